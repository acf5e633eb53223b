//! Thread names of pools differ by a number only; folded, they are one.

/// Replaces each run of digits with `#`: `pool-3-thread-12` and `pool-1-thread-7` are `pool-#-thread-#`. A word that
/// is one capital and a number is a name (`C1 CompilerThread`, `G1 Conc#0`) and stays.
#[must_use]
pub(super) fn fold_numbers(name: &str) -> String {
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
    use super::fold_numbers;

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
