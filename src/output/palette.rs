//! Colours by the kind of frame.

use crate::profile::Kind;

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// The middle of a kind's colours: green Java (lighter if interpreted), aqua inlined, yellow C++, orange kernel, red other
/// native code, as users of async-profiler and flamegraph.pl know them; what is no code is grey or blue.
#[must_use]
pub fn base(kind: Kind) -> Rgb {
    match kind {
        Kind::Process => [0xb4, 0xc4, 0xdc],
        Kind::Thread => [0xcb, 0xd6, 0xe6],
        Kind::Kernel => [0xf0, 0x9a, 0x38],
        Kind::Cpp => [0xd8, 0xcc, 0x4e],
        Kind::Native => [0xe8, 0x74, 0x68],
        Kind::NativeInlined => [0xf0, 0xa0, 0x96],
        Kind::Java => [0x62, 0xd0, 0x62],
        Kind::JavaInlined => [0x5c, 0xcb, 0xcb],
        Kind::JavaInterpreted => [0xb4, 0xe2, 0xb4],
        Kind::JvmStub => [0xd8, 0x94, 0x70],
        Kind::Jit => [0x9c, 0xd8, 0x5c],
        Kind::Marker => [0xc8, 0xc8, 0xc8],
        Kind::Unknown => [0xc4, 0xb0, 0xcc],
    }
}

/// The colour of a frame: its kind's, a little lighter or darker by its name, so that neighbours are told apart and a
/// name looks the same in every picture.
#[must_use]
pub fn of(kind: Kind, name: &str) -> Rgb {
    // FNV-1a, whose values never change.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let shift = (hash >> 33) % 29;
    base(kind).map(|c| (u64::from(c) + shift).saturating_sub(14).min(255) as u8)
}

#[cfg(test)]
mod tests {
    use super::{base, of};
    use crate::profile::Kind;

    #[test]
    fn a_name_keeps_its_colour_and_its_family() {
        assert_eq!(of(Kind::Java, "a.b"), of(Kind::Java, "a.b"));
        assert_ne!(of(Kind::Java, "a.b"), of(Kind::Java, "a.c"));
        for name in ["", "x", "java.lang.String.equals"] {
            for (got, middle) in of(Kind::Kernel, name).into_iter().zip(base(Kind::Kernel)) {
                assert!(got.abs_diff(middle) <= 14);
            }
        }
    }
}
