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

/// Free space for writes of the guest, in MiB; the writes are discarded.
const ROOM_MIB: u64 = 256;

/// The suite of all guests' userland: the newest one, because it has the most JDKs. Kernels hardly depend on it, and
/// the binary under test not at all.
const SUITE: Suite = Suite::debian("sid");

/// The packages of guests of another architecture. No JVM runs there, and none of their programs can run during the
/// build.
const TOOLS: [&str; 6] = ["base-files", "bash", "coreutils", "dash", "findutils", "util-linux"];

/// The image from the cache, or a new one.
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
        // A JRE's postinst needs a directory for manual pages. Manual pages, jmods and sources are removed afterwards.
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
