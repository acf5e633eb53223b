//! Foreign text made fit to print. A leaf: every room may use it.

/// Whether a character may be printed anywhere: no control character, nothing that turns the direction of text or
/// breaks a line (bidirectional marks and overrides, line and paragraph separators), no noncharacter (XML forbids them).
fn printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        && !matches!(c, '\u{fdd0}'..='\u{fdef}')
        && u32::from(c) & 0xfffe != 0xfffe
}

/// Whether [`clean`] would leave the text as it is.
#[must_use]
pub fn is_clean(text: &str, max: usize) -> bool {
    text.chars().all(printable) && (text.len() <= max || text.chars().nth(max).is_none())
}

/// Makes foreign text fit to print: control characters (ESC, newline, DEL, C1), bidirectional overrides, line
/// separators and noncharacters become `?`, bytes that are no UTF-8 become U+FFFD, and what is longer than `max`
/// characters is cut to that, `…` being the last.
#[must_use]
pub fn clean(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out: String = text.chars().take(max).map(|c| if printable(c) { c } else { '?' }).collect();
    if text.chars().nth(max).is_some() {
        out.pop();
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{clean, is_clean};

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
}
