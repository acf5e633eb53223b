//! Output: one file a format, from `profile` only.
//!
//! Every format's ticks sum to the same, [`Accounts::shown`](crate::profile::Accounts::shown): samples and lost ticks.

pub mod file;
pub mod folded;
pub mod format;
pub mod name;
pub mod palette;
pub mod pprof;
pub mod svg;

use std::io::Write;

use crate::profile::Profile;
pub use format::{Format, Target, UnknownFormat};
pub use svg::Look;

/// Writes a profile where it is to go.
///
/// # Errors
/// One sentence with the path and what is wrong; there is no half file then.
pub fn write(profile: &Profile, target: &Target, look: &Look) -> anyhow::Result<()> {
    match target {
        Target::File(path, format) => file::replace(path, |out| encode(profile, *format, look, out)),
        Target::Stdout(format) => file::to_stdout(|out| encode(profile, *format, look, out)),
    }
}

fn encode(profile: &Profile, format: Format, look: &Look, mut out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Svg => svg::write(profile, look, &mut out),
        Format::Folded => Ok(folded::write(profile, &mut out)?),
        Format::Pprof => pprof::write(profile, &mut out),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Look, folded, svg};
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile};

    #[test]
    fn quick() {
        let mut p = Profile::new();
        let f = |k, n: &str| Arc::new(Frame::named(k, n));
        p.add(
            &Labels::default(),
            &[
                f(Kind::Process, "my java"),
                f(Kind::Native, "start_thread"),
                f(Kind::Java, "a.B.c"),
                f(Kind::JavaInlined, "a.B.d"),
            ],
            7,
            70,
        );
        p.accounts = Accounts { ticks: 7, kept: 7, ..Accounts::default() };
        p.accounts.lose("ring full", 2);
        p.accounts.ticks += 2;
        p.check().unwrap();
        let mut out = Vec::new();
        folded::write(&p, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out.clone()).unwrap(),
            "my_java;start_thread;a.B.c_[j];a.B.d_[i] 7\n[lost];[ring full] 2\n"
        );
        let back = folded::read(&mut out.as_slice()).unwrap();
        let mut again = Vec::new();
        folded::write(&back, &mut again).unwrap();
        assert_eq!(out, again);
        let mut picture = Vec::new();
        svg::write(&p, &Look::default(), &mut picture).unwrap();
        let picture = String::from_utf8(picture).unwrap();
        assert!(picture.contains("a.B.d (7 samples, 77.78%)"), "{picture}");
    }
}
