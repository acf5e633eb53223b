//! Debian packages of any suite, through the mirror that this machine's own apt uses.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, bail, ensure};

/// The mirror: `$JBPF_PROF_DEBIAN_MIRROR`, or the first one in apt's sources.
pub(super) fn mirror() -> anyhow::Result<String> {
    if let Ok(mirror) = std::env::var("JBPF_PROF_DEBIAN_MIRROR") {
        return Ok(mirror);
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"])
        .output()
        .context("asking apt for its mirror")?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("Debian|Debian|").map(str::to_owned))
        .context("apt's sources name no Debian mirror: set JBPF_PROF_DEBIAN_MIRROR")
}

/// A root file system of a suite in `dir`: mmdebstrap's variant, more packages, more of its arguments.
pub(super) fn unpack(
    suite: &str,
    variant: &str,
    packages: &[String],
    dir: &Path,
    more: &[&str],
) -> anyhow::Result<()> {
    let mirror = mirror()?;
    let mut command = Command::new("mmdebstrap");
    command
        .arg(format!("--variant={variant}"))
        .arg(format!("--include={}", packages.join(",")))
        .arg("--keyring=/usr/share/keyrings")
        // An old suite's Release file may be past its date: its packages are signed all the same.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .args(more)
        .args([suite.as_ref(), dir.as_os_str(), mirror.as_ref()]);
    finish(&mut command).with_context(|| {
        format!("packages {} of Debian {suite} cannot be fetched from {mirror}", packages.join(", "))
    })?;
    Ok(())
}

/// Runs a tool to its end; what it said is in the error if it failed.
pub(super) fn finish(command: &mut Command) -> anyhow::Result<Output> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("this machine has no {tool}; `./test.sh vmtest` installs what is needed")
        }
        output => output.with_context(|| tool.clone())?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    ensure!(
        output.status.success(),
        "{tool} ended with {}:\n{}",
        output.status,
        lines[lines.len().saturating_sub(12)..].join("\n")
    );
    Ok(output)
}
