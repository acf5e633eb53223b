//! Java names as people write them: dotted, without the numbers that differ from run to run.

use super::generated::without_run_number;
use crate::text::{clean, shortened, standard_utf8};

/// Longest name that is printed, characters.
const MAX_NAME: usize = 1024;

/// A class name from the JVM signature, `Lpackage/Class;` in modified UTF-8. `file` is its source file, empty if
/// unknown. With `raw` the name keeps the numbers that the JVM, or a code generator, made up for this run.
#[must_use]
pub fn class(signature: &[u8], file: &[u8], raw: bool) -> String {
    let bare = signature.strip_prefix(b"L").and_then(|s| s.strip_suffix(b";")).unwrap_or(signature);
    // A hidden class has a suffix that only this JVM knows (JEP 371): `package/Class.0x00007f0012345678`.
    let (name, hidden) = match bare.iter().rposition(|&b| b == b'.') {
        Some(dot) => (&bare[..dot], &bare[dot + 1..]),
        None => (bare, &b""[..]),
    };
    let mut dotted = whole(name).replace('/', ".");
    if !raw {
        dotted = without_run_number(&dotted, file, !hidden.is_empty()).unwrap_or(dotted);
    } else if !hidden.is_empty() {
        dotted.push('/');
        dotted.push_str(&whole(hidden));
    }
    shortened(dotted, MAX_NAME)
}

/// A method's name, source file or signature: made fit to print, otherwise as the JVM has it.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    shortened(whole(bytes), MAX_NAME)
}

/// The whole text, made fit to print.
fn whole(bytes: &[u8]) -> String {
    clean(&standard_utf8(bytes), usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(signature: &str, pretty: &str, raw: &str) {
        assert_eq!(class(signature.as_bytes(), b"", false), pretty);
        assert_eq!(class(signature.as_bytes(), b"", true), raw);
    }

    #[test]
    fn names_are_dotted() {
        reads("Ljava/lang/String;", "java.lang.String", "java.lang.String");
        reads("La/Outer$Inner;", "a.Outer$Inner", "a.Outer$Inner");
        reads("La/Foo$$Lambda.0x00007f00c8000a00;", "a.Foo$$Lambda", "a.Foo$$Lambda/0x00007f00c8000a00");
        reads("La/Foo$$Lambda$7/1234567;", "a.Foo$$Lambda", "a.Foo$$Lambda$7.1234567");
        reads("La/Hidden.0x0000000800c03000;", "a.Hidden", "a.Hidden/0x0000000800c03000");
    }

    #[test]
    fn hostile_names_are_harmless() {
        let class = |signature: &[u8], raw| class(signature, b"", raw);
        assert_eq!(class(b"La/\x1b[31mred\n;", false), "a.?[31mred?");
        assert_eq!(class(b"", false), "");
        assert_eq!(class(b"L;", false), "");
        assert_eq!(class(b"L.;", true), "");
        assert_eq!(class(&[b'x'; 70_000], false).chars().count(), MAX_NAME);
        assert_eq!(text(b"\xed\xa0\xbd\xed\xb8\x80"), "\u{1f600}");
        assert_eq!(text(b"\xed\xa0\xbd"), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(text(b"a\xc0\x80"), "a\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_names_that_differ_stay_different() {
        let long = "x".repeat(65_000);
        let of = |last: char| (text(format!("{long}{last}").as_bytes()), long.clone() + &last.to_string());
        let ((one, _), (two, _)) = (of('1'), of('2'));
        assert!(one != two && one.ends_with("xx1") && two.ends_with("xx2"));
        // Numbers of a run are removed before a name is shortened.
        let lambda = |number| class(format!("L{long}$$Lambda${number};").as_bytes(), b"", false);
        assert_eq!(lambda(1), lambda(23));
        assert!(lambda(1).ends_with("xx$$Lambda") && lambda(1).starts_with("xx"));
    }
}
