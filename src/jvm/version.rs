//! The version of a HotSpot build, by which known crashes are recognised.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The newest feature release that the tests run on, of 8, 11, 17, 21 and this one.
const NEWEST_TESTED: u32 = 25;

/// A Java version, precise enough to distinguish updates: 8u372 is `8.0.372`, 17.0.15+6 is `17.0.15+6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JavaVersion {
    /// The feature release: 8, 11, 17, ….
    pub feature: u32,
    /// The interim release, nearly always 0.
    pub interim: u32,
    /// The update release: 15 in 17.0.15, 372 in 8u372.
    pub update: u32,
    /// The build, 0 if unknown.
    pub build: u32,
}

impl JavaVersion {
    /// A version without build.
    #[must_use]
    pub const fn new(feature: u32, interim: u32, update: u32) -> JavaVersion {
        JavaVersion { feature, interim, update, build: 0 }
    }

    /// For a version newer than the tested ones: the newest feature release that is tested.
    #[must_use]
    pub fn newer_than(self) -> Option<u32> {
        (self.feature > NEWEST_TESTED).then_some(NEWEST_TESTED)
    }

    /// Parses the text of a JVM (`Abstract_VM_Version::_s_vm_release`) or of a `release` file:
    /// `17.0.15+6-Debian-1deb12u1`, `25.0.3+9-LTS`, `21+35`, `1.8.0_372-b07`, and HotSpot 25, which is Java 8:
    /// `25.372-b07`.
    #[must_use]
    pub fn parse(text: &str) -> Option<JavaVersion> {
        if let Some(of_8) = text.strip_prefix("1.8.0") {
            let (update, rest) = number(of_8.strip_prefix('_').unwrap_or("0"))?;
            return Some(JavaVersion { build: build(rest).unwrap_or(0), ..JavaVersion::new(8, 0, update) });
        }
        let (feature, rest) = number(text)?;
        let (interim, rest) = part(rest);
        // Since Java 9 the build follows a `+`. HotSpot 25.N-bM is Java 8, and 25-beta+M is not.
        if feature == 25
            && let Some(build) = build(rest)
        {
            return Some(JavaVersion { build, ..JavaVersion::new(8, 0, interim) });
        }
        let (update, rest) = part(rest);
        let build = rest.split_once('+').and_then(|(_, after)| number(after)).map_or(0, |(build, _)| build);
        (8..1000).contains(&feature).then_some(JavaVersion { feature, interim, update, build })
    }
}

impl fmt::Display for JavaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JavaVersion { feature, interim, update, build } = self;
        if *feature == 8 {
            write!(f, "8u{update}")?;
        } else {
            write!(f, "{feature}.{interim}.{update}")?;
        }
        if *build > 0 { write!(f, "+{build}") } else { Ok(()) }
    }
}

/// `.N` at the front, 0 if there is no such part.
fn part(text: &str) -> (u32, &str) {
    text.strip_prefix('.').and_then(number).unwrap_or((0, text))
}

/// `-bNN` at the front.
fn build(text: &str) -> Option<u32> {
    text.strip_prefix("-b").and_then(number).map(|(build, _)| build)
}

/// Digits at the front, and the text after them.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_every_form() {
        let parsed = |text| JavaVersion::parse(text).map(|v| (v.feature, v.interim, v.update, v.build));
        assert_eq!(parsed("17.0.15+6-Debian-1deb12u1"), Some((17, 0, 15, 6)));
        assert_eq!(parsed("25.0.3+9-LTS"), Some((25, 0, 3, 9)));
        assert_eq!(parsed("25+36-3489"), Some((25, 0, 0, 36)));
        assert_eq!(parsed("21-ea+35"), Some((21, 0, 0, 35)));
        assert_eq!(parsed("25-beta+36-ea"), Some((25, 0, 0, 36)));
        assert_eq!(parsed("25.0.1-beta+5-202510"), Some((25, 0, 1, 5)));
        assert_eq!(parsed("25.372-b07"), Some((8, 0, 372, 7)));
        assert_eq!(parsed("25.71-b00"), Some((8, 0, 71, 0)));
        assert_eq!(parsed("25.472-b08"), Some((8, 0, 472, 8)));
        assert_eq!(parsed("1.8.0_382-b05"), Some((8, 0, 382, 5)));
        assert_eq!(parsed("1.8.0"), Some((8, 0, 0, 0)));
        assert_eq!(parsed("11.0.20.1+1"), Some((11, 0, 20, 1)));
        for bad in ["", "abc", "7.0", "99999999999999", "-1", "1.8.0_", "1.6.0_20"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn untested_releases_are_reported() {
        let newer_than = |text| JavaVersion::parse(text).and_then(JavaVersion::newer_than);
        assert_eq!(newer_than("28-ea+12"), Some(25));
        assert_eq!(newer_than("26.0.1+8"), Some(25));
        for tested in ["25.0.3+9-LTS", "25.504-b01", "22.0.2+9"] {
            assert_eq!(newer_than(tested), None, "{tested}");
        }
    }

    #[test]
    fn versions_are_ordered_and_printed() {
        assert!(JavaVersion::new(8, 0, 472) < JavaVersion::new(11, 0, 1));
        assert!(JavaVersion::new(17, 0, 9) < JavaVersion::new(17, 0, 14));
        let print = |text| JavaVersion::parse(text).expect("valid").to_string();
        assert_eq!(print("25.372-b07"), "8u372+7");
        assert_eq!(print("17.0.15+6"), "17.0.15+6");
    }
}
