//! Colours by kind of frame.

use crate::profile::Kind;

/// Red, green and blue, 0 to 255 each.
pub type Rgb = [u8; 3];

/// The colour of a frame: its kind's, made a little lighter or darker by a hash of the name. Neighbours then differ,
/// and a name has the same colour in every picture.
#[must_use]
pub fn of(kind: Kind, name: &str) -> Rgb {
    let shade = u16::from(shade(name));
    kind.facts().colour.map(|c| (u16::from(c) + shade).saturating_sub(u16::from(MIDDLE)).min(255) as u8)
}

/// The shade that is neither lighter nor darker than the kind's colour.
const MIDDLE: u8 = 14;

/// How light a name's colour is: 0 to 28, with the kind's own colour at 14.
#[must_use]
pub(super) fn shade(name: &str) -> u8 {
    // FNV-1a: its values never change, unlike those of the standard library's hasher.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    ((hash >> 33) % (2 * u64::from(MIDDLE) + 1)) as u8
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::profile::Kind;

    #[test]
    fn a_name_keeps_its_colour_and_its_family() {
        assert_eq!(of(Kind::Java, "a.b"), of(Kind::Java, "a.b"));
        assert_ne!(of(Kind::Java, "a.b"), of(Kind::Java, "a.c"));
        for name in ["", "x", "java.lang.String.equals"] {
            for (got, middle) in of(Kind::Kernel, name).into_iter().zip(Kind::Kernel.facts().colour) {
                assert!(got.abs_diff(middle) <= 14);
            }
        }
    }
}
