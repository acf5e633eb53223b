//! Names of threads and processes as the kernel keeps them. Names in a thread pool differ only in numbers, which are
//! folded.

use crate::text::{clean, standard_utf8};

/// Bytes that the kernel keeps of a name (`TASK_COMM_LEN` without the zero at the end).
pub const MAX_KERNEL: usize = 15;

/// A kernel's name as text. A JVM writes characters beyond U+FFFF as surrogates. A character that the kernel has cut in
/// its middle is not shown.
#[must_use]
pub fn text(comm: &[u8]) -> String {
    let text = clean(&standard_utf8(comm), usize::MAX);
    if comm.len() < MAX_KERNEL { text } else { text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned() }
}

/// Replaces each run of digits by `#`: `pool-3-thread-12` and `pool-1-thread-7` become `pool-#-thread-#`. A word of one
/// capital and a number is a name (`C1 CompilerThread`, `G1 Conc#0`) and stays.
#[must_use]
pub fn fold_numbers(name: &str) -> String {
    name.split(' ').map(fold_word).collect::<Vec<_>>().join(" ")
}

fn fold_word(word: &str) -> String {
    let mut chars = word.chars();
    let capital = chars.next().is_some_and(|c| c.is_ascii_uppercase());
    if capital && !chars.as_str().is_empty() && chars.all(|c| c.is_ascii_digit()) {
        return word.to_owned();
    }
    let mut folded = String::with_capacity(word.len());
    for c in word.chars() {
        if !c.is_ascii_digit() {
            folded.push(c);
        } else if !folded.ends_with('#') {
            folded.push('#');
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::{fold_numbers, text};

    #[test]
    fn half_a_character_is_not_shown() {
        assert_eq!(text("java".as_bytes()), "java");
        assert_eq!(text(&"Größenänderung".as_bytes()[..15]), "Größenänderu");
        assert_eq!(text(&"abcdefghijklmnä".as_bytes()[..15]), "abcdefghijklmn");
        assert_eq!(text(&"abcdefghijklm\u{1f986}".as_bytes()[..15]), "abcdefghijklm");
        // A JVM's surrogates; the last one has no other half.
        let ducks = b"\xed\xa0\xbe\xed\xb6\x86\xed\xa0\xbe\xed\xb6\x86\xed\xa0\xbe";
        assert_eq!(text(ducks), "\u{1f986}\u{1f986}");
        assert_eq!(text(b"a\xff"), "a\u{fffd}");
    }

    #[test]
    fn numbers_are_folded() {
        assert_eq!(fold_numbers("pool-3-thread-12"), "pool-#-thread-#");
        assert_eq!(fold_numbers("GC Thread#11"), "GC Thread#");
        assert_eq!(fold_numbers("C2 CompilerThre"), "C2 CompilerThre");
        assert_eq!(fold_numbers("G1 Conc#0"), "G1 Conc#");
        assert_eq!(fold_numbers("main"), "main");
        assert_eq!(fold_numbers(""), "");
    }
}
