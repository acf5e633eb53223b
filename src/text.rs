//! Makes untrusted text printable. Every room may import this file.

use std::borrow::Cow;

/// Whether a character is safe to print: no control character, no character that changes the direction of text or
/// breaks a line (bidirectional marks and overrides, line and paragraph separators), no noncharacter (XML forbids
/// them).
fn printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        && !matches!(c, '\u{fdd0}'..='\u{fdef}')
        && u32::from(c) & 0xfffe != 0xfffe
}

/// Whether [`clean`] would return the text unchanged.
#[must_use]
pub fn is_clean(text: &str, max: usize) -> bool {
    text.chars().all(printable) && (text.len() <= max || text.chars().nth(max).is_none())
}

/// Makes untrusted text printable. Control characters (ESC, newline, DEL, C1), bidirectional overrides, line separators
/// and noncharacters become `?`; invalid UTF-8 becomes U+FFFD. [`shortened`] shortens text of more than `max`
/// characters.
#[must_use]
pub fn clean(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    shortened(text.chars().map(|c| if printable(c) { c } else { '?' }).collect(), max)
}

/// Shortens text of more than `max` characters to `head…1234abcd…tail` of `max` characters. The eight digits are a hash
/// of the whole text: different names stay different, and a name is the same in each run, file and format.
#[must_use]
pub fn shortened(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let length = text.chars().count();
    if length <= max {
        return text;
    }
    let Some(ends) = max.checked_sub(MARK).filter(|&ends| ends >= MARK) else {
        return text.chars().take(max.saturating_sub(1)).chain(['…']).collect();
    };
    let tail = ends / 2;
    let head: String = text.chars().take(ends - tail).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}…{:08x}…{tail}", hash(text.as_bytes()))
}

/// Characters in place of the middle of a shortened text: a hash between two `…`.
const MARK: usize = 10;

/// FNV-1a of 64 bits, folded to 32, without a key: a program with two colliding names misleads only its owner.
fn hash(bytes: &[u8]) -> u32 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 32) as u32 ^ hash as u32
}

/// Converts modified UTF-8 to UTF-8. The modified form writes characters above U+FFFF as two surrogates of three bytes
/// each (JVM specification, 4.4.7).
#[must_use]
pub fn standard_utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&0xed) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        if let [0xed, a @ 0xa0..=0xaf, b, 0xed, c @ 0xb0..=0xbf, d, after @ ..] = rest {
            let high = u32::from(a & 0x0f) << 6 | u32::from(b & 0x3f);
            let low = u32::from(c & 0x0f) << 6 | u32::from(d & 0x3f);
            let character = char::from_u32(0x10000 + (high << 10 | low)).unwrap_or('\u{fffd}');
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::{clean, is_clean, shortened};

    #[test]
    fn foul_text_becomes_fit_to_print() {
        assert_eq!(clean(b"a\x1b[31m\nb\x7f", 99), "a?[31m?b?");
        assert_eq!(clean("x\u{202e}y\u{9b}\u{2028}\u{ffff}\u{fdd0}".as_bytes(), 99), "x?y????");
        assert_eq!(clean(b"\xff", 9), "\u{fffd}");
        assert_eq!(clean("äöüß".as_bytes(), 3), "äö…");
        assert_eq!(clean("äöü".as_bytes(), 3), "äöü");
        assert!(is_clean("äöü", 3) && !is_clean("äöüß", 3) && !is_clean("a\tb", 9));
        assert!(is_clean(&clean("äöüß\r\u{1}".as_bytes(), 3), 3));
    }

    #[test]
    fn long_names_that_differ_stay_different() {
        let long = |middle: &str| format!("{}{middle}{}", "head<".repeat(1000), ">tail".repeat(1000));
        let (one, two) = (clean(long("1").as_bytes(), 1024), clean(long("2").as_bytes(), 1024));
        assert_ne!(one, two);
        assert_eq!((one.chars().count(), one.len()), (1024, 1024 + 4));
        assert!(one.starts_with("head<head<") && one.ends_with(">tail>tail"));
        let (last, other) = (format!("{}1", "ä".repeat(2000)), format!("{}2", "ä".repeat(2000)));
        assert!(
            clean(last.as_bytes(), 1024).ends_with("ää1") && clean(other.as_bytes(), 1024).ends_with("ää2")
        );
        // The hash is the same in each run, and shortening a shortened name changes nothing.
        assert_eq!(clean("abc".repeat(20).as_bytes(), 30), "abcabcabca…9a84666e…cabcabcabc");
        assert_eq!(clean(one.as_bytes(), 1024), one);
        assert_eq!(shortened(one.clone(), 4096), one);
    }
}
