//! The list of CPUs that are online.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context, bail};

use crate::failure::Failure;

/// The kernel's file of online CPUs. The file stays open, so that it can be read when no descriptor is left.
#[derive(Debug)]
pub struct OnlineCpuFile(File);

impl OnlineCpuFile {
    const PATH: &str = "/sys/devices/system/cpu/online";

    /// # Errors
    /// When the file cannot be opened.
    pub fn open() -> anyhow::Result<OnlineCpuFile> {
        Ok(OnlineCpuFile(
            File::open(OnlineCpuFile::PATH).with_context(|| format!("CPUs: {}", OnlineCpuFile::PATH))?,
        ))
    }

    /// The CPUs that are online now.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a list of CPUs.
    pub fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let path = OnlineCpuFile::PATH;
        // Files of sysfs are at most one page.
        let mut page = [0; 4096];
        let length = self.0.read_at(&mut page, 0).with_context(|| format!("CPUs: {path}"))?;
        let text = String::from_utf8_lossy(&page[..length]);
        parse_ranges(text.trim()).with_context(|| format!("CPUs: {path} says {text:?}"))
    }

    /// The chosen CPUs, or all that are online now.
    ///
    /// # Errors
    /// When a chosen CPU is not online: a [`Failure`] of the target.
    pub(super) fn chosen(&self, chosen: Option<&[u32]>) -> anyhow::Result<Vec<u32>> {
        let online = self.cpus()?;
        if let Some(absent) = chosen.into_iter().flatten().find(|cpu| !online.contains(cpu)) {
            bail!(Failure::target(format!("CPU {absent} is not online (online are {})", ranges(&online))));
        }
        Ok(among(&online, chosen))
    }
}

/// The CPUs that a source samples.
#[derive(Debug)]
pub(super) struct SampledCpus {
    /// Only these; `None`: all that are online.
    chosen: Option<Vec<u32>>,
    now: Vec<u32>,
}

impl SampledCpus {
    /// The chosen CPUs, or all.
    ///
    /// # Errors
    /// When a chosen CPU is not online: a [`Failure`] of the target.
    pub(super) fn open(chosen: Option<Vec<u32>>) -> anyhow::Result<SampledCpus> {
        let now = OnlineCpuFile::open()?.chosen(chosen.as_deref())?;
        Ok(SampledCpus { chosen, now })
    }

    /// Follows CPUs that went online or offline.
    pub(super) fn follow(&mut self, online: &[u32]) {
        self.now = among(online, self.chosen.as_deref());
    }

    /// Those that are sampled now.
    pub(super) fn now(&self) -> Vec<u32> {
        self.now.clone()
    }
}

/// The CPUs of `online` that are chosen.
pub(super) fn among(online: &[u32], chosen: Option<&[u32]>) -> Vec<u32> {
    online.iter().copied().filter(|cpu| chosen.is_none_or(|chosen| chosen.contains(cpu))).collect()
}

/// Parses a list such as `0-3,5`; `None` if the text has another form.
pub(crate) fn parse_ranges(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn ranges(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(parse_ranges("0"), Some(vec![0]));
        assert_eq!(parse_ranges("0-3,5"), Some(vec![0, 1, 2, 3, 5]));
        assert_eq!(parse_ranges(""), Some(vec![]));
        assert_eq!(parse_ranges("0-4000000000"), None);
        assert_eq!(parse_ranges("a"), None);
    }
}
