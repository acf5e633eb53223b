//! The known name that is nearest to a wrong one, for messages. Every room may import this file.

/// The name in `known` that is most like `wrong`; empty if no name is known.
#[must_use]
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> &'a str {
    let likeness = |name: &&str| strsim::jaro_winkler(wrong, name);
    known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_near_its_name() {
        let known = ["sleeping", "runnable", "running"];
        assert_eq!(nearest("sleping", known), "sleeping");
        assert_eq!(nearest("runable", known), "runnable");
        assert_eq!(nearest("x", []), "");
    }
}
