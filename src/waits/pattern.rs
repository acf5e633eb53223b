//! Names of functions in the tables of this room.

/// Whether a name matches a pattern, in which one `*` stands for any text.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len()
                && name.starts_with(head)
                && (tail.is_empty() || name.ends_with(tail))
        }
    }
}

/// A name without its parameters: `os::signal_wait()`.
pub(super) fn without_parameters(name: &str) -> &str {
    match name.find('(') {
        // `(anonymous namespace)` begins with a parenthesis too.
        Some(at) if !name[at..].starts_with("(anonymous") => &name[..at],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_one_star() {
        assert!(matches("a.b", "a.b") && !matches("a.b", "a.bc"));
        assert!(matches("a*", "abc") && matches("a*c", "abc") && !matches("ab*bc", "abc"));
        assert_eq!(without_parameters("os::signal_wait()"), "os::signal_wait");
        assert_eq!(without_parameters("node::(anonymous namespace)::f"), "node::(anonymous namespace)::f");
    }
}
