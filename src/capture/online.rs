//! CPUs that are online.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::Context;

/// Which CPUs are online: read again and again, also when no descriptor is left for another file.
#[derive(Debug)]
pub struct Online(File);

impl Online {
    const PATH: &str = "/sys/devices/system/cpu/online";

    /// # Errors
    /// What the kernel says.
    pub fn open() -> anyhow::Result<Online> {
        Ok(Online(File::open(Online::PATH).with_context(|| format!("CPUs: {}", Online::PATH))?))
    }

    /// Those that are online now.
    ///
    /// # Errors
    /// What the kernel says, or when it says no list.
    pub fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let path = Online::PATH;
        // No file of sysfs is larger.
        let mut page = [0; 4096];
        let length = self.0.read_at(&mut page, 0).with_context(|| format!("CPUs: {path}"))?;
        let text = String::from_utf8_lossy(&page[..length]);
        parse_ranges(text.trim()).with_context(|| format!("CPUs: {path} says {text:?}"))
    }
}

/// Reads `0-3,5`; `None` if it is not of this form.
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

pub(super) fn ranges(cpus: &[u32]) -> String {
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
