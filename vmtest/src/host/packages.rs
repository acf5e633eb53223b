//! Downloads packages of a distribution's suite, through the mirror that this machine's own apt uses.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, bail, ensure};

use crate::arch::Arch;
use crate::distribution::{Distribution, Suite};

/// The key that signs Ubuntu's suites since 2018, with the fingerprint F6EC B376 2474 EDA9 D21B 7022 8719 20D1 991B
/// C93C. Debian has no package with it. Debian's own keys come with `debian-archive-keyring`.
const UBUNTU_KEY: &[u8] = include_bytes!("../../ubuntu-archive-2018.asc");

/// Creates a root file system of a suite in `dir`, with mmdebstrap's variant, more packages, and more arguments. For
/// another architecture only the variant `extract` works, because it runs no unpacked program.
pub(super) fn unpack(
    (suite, arch): (Suite, Arch),
    variant: &str,
    packages: &[String],
    dir: &Path,
    more: &[&str],
) -> anyhow::Result<()> {
    let mirror = mirror(suite.distribution)?;
    let key = tempfile::Builder::new().suffix(".asc").tempfile().context("a file for a key")?;
    std::fs::write(key.path(), UBUNTU_KEY).context("a file for a key")?;
    let mut command = Command::new("mmdebstrap");
    command
        .arg(format!("--variant={variant}"))
        .arg(format!("--architectures={arch}"))
        .arg(format!("--include={}", packages.join(",")))
        // The Release file of an old suite may have expired; its packages are still signed.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .args(more);
    let sources = match suite.distribution {
        Distribution::Debian => {
            command.arg("--keyring=/usr/share/keyrings");
            vec![mirror.clone()]
        }
        Distribution::Ubuntu => {
            command.arg(format!("--keyring={}", key.path().display()));
            // Ubuntu's suites stay as released; the updates have the packages that users run.
            ["", "-updates"].map(|pocket| format!("deb {mirror} {}{pocket} main", suite.name)).to_vec()
        }
    };
    command.arg(suite.name).arg(dir).args(sources);
    finish(&mut command).with_context(|| {
        format!("packages {} of {suite} cannot be fetched from {mirror}", packages.join(", "))
    })?;
    Ok(())
}

/// A distribution's mirror: the one in its variable, else the first in apt's sources. Mirrors often have several
/// distributions side by side, so the last choice is this one's directory beside the other one's.
fn mirror(distribution: Distribution) -> anyhow::Result<String> {
    let variable = format!("JBPF_PROF_{}_MIRROR", distribution.to_string().to_uppercase());
    if let Ok(mirror) = std::env::var(&variable) {
        return Ok(mirror);
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"])
        .output()
        .context("asking apt for its mirror")?;
    let sources = String::from_utf8_lossy(&output.stdout);
    among(&sources, distribution)
        .with_context(|| format!("apt's sources name no {distribution} mirror: set {variable}"))
}

/// The mirror of a distribution, from lines `ORIGIN|LABEL|URI` of apt's sources.
fn among(sources: &str, distribution: Distribution) -> Option<String> {
    let of = |origin: Distribution| {
        sources.lines().find_map(|line| line.strip_prefix(&format!("{origin}|{origin}|"))).map(str::to_owned)
    };
    of(distribution).or_else(|| {
        let other = match distribution {
            Distribution::Debian => Distribution::Ubuntu,
            Distribution::Ubuntu => Distribution::Debian,
        };
        let directory = |of: Distribution| of.to_string().to_lowercase();
        let place = of(other)?;
        let parent = place.trim_end_matches('/').strip_suffix(&directory(other))?.strip_suffix('/')?;
        Some(format!("{parent}/{}/", directory(distribution)))
    })
}

/// Runs a tool to its end. If the tool fails, the error has its standard error.
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

#[cfg(test)]
mod tests {
    use super::among;
    use crate::distribution::Distribution::{Debian, Ubuntu};

    #[test]
    fn a_mirror_is_apts_own_or_stands_beside_it() {
        let debian = "Debian|Debian-Security|http://m/debian-security/\nDebian|Debian|http://m/a/debian/\n";
        assert_eq!(among(debian, Debian).as_deref(), Some("http://m/a/debian/"));
        assert_eq!(among(debian, Ubuntu).as_deref(), Some("http://m/a/ubuntu/"));
        assert_eq!(among("Ubuntu|Ubuntu|http://m/ubuntu", Debian).as_deref(), Some("http://m/debian/"));
        assert_eq!(among("Other|Other|http://m/other/", Debian), None);
    }
}
