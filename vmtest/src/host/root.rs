//! The root file system of all guests: Debian's essential packages, all JDKs, `perf`, musl's libc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::cache::Cache;
use super::packages;
use crate::arch::Arch;
use crate::distribution::Suite;
use crate::matrix::JDKS;
use crate::plan::PAYLOAD;
use crate::say;

/// Room for what guests write, in MiB; what they write is thrown away.
const ROOM_MIB: u64 = 256;

/// The suite whose userland all guests have: the newest, since it has the most JDKs. Kernels care little about it, and
/// the binary under test needs nothing of it.
const SUITE: Suite = Suite::debian("sid");

/// What the guests of another architecture have: there no JVM runs, and nothing of it can run while it is made.
const TOOLS: [&str; 6] = ["base-files", "bash", "coreutils", "dash", "findutils", "util-linux"];

/// The image from the cache, or made now.
pub(super) fn image(cache: &Cache, arch: Arch) -> anyhow::Result<PathBuf> {
    let name = if arch.is_own() { "root".to_owned() } else { format!("root-{arch}") };
    let dir = cache.entry(&name, |dir| {
        say(&format!("vmtest: making the root file system of the guests for {arch} (once, about a minute)"));
        make(dir, arch).context("the guests' root file system cannot be made")
    })?;
    Ok(dir.join("root.ext4"))
}

fn make(dir: &Path, arch: Arch) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root can make it: run this once with sudo");
    let tree = dir.join("tree");
    if arch.is_own() {
        let mut packages: Vec<String> =
            JDKS.iter().map(|jdk| format!("openjdk-{jdk}-jre-headless")).collect();
        packages.extend(["musl", "linux-perf"].map(str::to_owned));
        // A JRE's postinst wants a directory for manual pages; of those, as of jmods and sources, nothing is kept.
        let hooks = [
            "--setup-hook=mkdir -p \"$1/usr/share/man/man1\"",
            "--customize-hook=rm -rf \"$1\"/usr/lib/jvm/*/jmods \"$1\"/usr/lib/jvm/*/lib/src.zip \
             \"$1\"/usr/share/doc \"$1\"/usr/share/man \"$1\"/usr/share/locale \"$1\"/var/lib/apt/lists/* \
             \"$1\"/var/cache/apt/*",
        ];
        packages::unpack((SUITE, arch), "essential", &packages, &tree, &hooks)?;
    } else {
        packages::unpack((SUITE, arch), "extract", &TOOLS.map(str::to_owned), &tree, &[])?;
    }
    fs::create_dir(tree.join(PAYLOAD.trim_start_matches('/'))).context("a place for the payload")?;
    let used = packages::finish(Command::new("du").args(["-sm"]).arg(&tree))?;
    let used = String::from_utf8_lossy(&used.stdout);
    let mib: u64 = used.split_whitespace().next().and_then(|n| n.parse().ok()).context("du says no size")?;
    let image = dir.join("root.ext4");
    packages::finish(
        Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-O", "^has_journal", "-L", "vmtest", "-d"])
            .arg(&tree)
            .arg(&image)
            .arg(format!("{}M", mib + mib / 10 + ROOM_MIB)),
    )?;
    fs::remove_dir_all(&tree).context("the unpacked packages")
}
