//! What `jbpf-prof --version` prints.

use std::sync::OnceLock;

/// Version, commit, libbpf and target, for bug reports. Nothing here depends on the time or the place of the build.
pub(super) fn long_version() -> &'static str {
    static LONG: OnceLock<String> = OnceLock::new();
    LONG.get_or_init(|| {
        format!(
            "{}\ncommit: {}\nlibbpf: {}\ntarget: {}",
            env!("CARGO_PKG_VERSION"),
            env!("JBPF_PROF_COMMIT"),
            crate::capture::libbpf_version(),
            env!("JBPF_PROF_TARGET"),
        )
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_long_version_has_four_facts() {
        let lines: Vec<&str> = super::long_version().lines().collect();
        assert_eq!(lines[0], env!("CARGO_PKG_VERSION"));
        let facts = ["commit: ", "libbpf: ", "target: "];
        let values: Vec<_> = facts.iter().zip(&lines[1..]).map(|(f, line)| line.strip_prefix(f)).collect();
        assert!(values.iter().all(|value| value.is_some_and(|value| !value.is_empty())), "{lines:?}");
        assert!(values[1].unwrap().starts_with("1."), "{lines:?}");
        assert!(values[2].unwrap().ends_with("-unknown-linux-gnu"), "{lines:?}");
    }
}
