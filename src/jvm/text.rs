//! Text of processes, made fit to print.

/// Control characters and bidirectional overrides become `?`; what is longer than `max` characters is cut with `…`.
pub(super) fn printable(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let bidi =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut chars = text.chars();
    let mut out: String =
        chars.by_ref().take(max).map(|c| if c.is_control() || bidi(c) { '?' } else { c }).collect();
    if chars.next().is_some() {
        out.push('…');
    }
    out
}
