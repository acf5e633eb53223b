//! Names of generated code, the same for every release.

/// The name of a stub without what its release adds: JDK 8 to 25 say `call_stub`, 26 and 27 `Stub Generator
/// call_stub_stub`, and 28 `call_stub_stub (stub gen)`.
#[must_use]
pub(super) fn without_release_affixes(name: &str) -> &str {
    let bare = name.strip_prefix("Stub Generator ").or_else(|| name.strip_suffix(" (stub gen)"));
    bare.map_or(name, |bare| bare.strip_suffix("_stub").unwrap_or(bare))
}

#[cfg(test)]
mod tests {
    use super::without_release_affixes;

    #[test]
    fn a_stub_has_one_name_in_all_releases() {
        for name in ["call_stub", "Stub Generator call_stub_stub", "call_stub_stub (stub gen)"] {
            assert_eq!(without_release_affixes(name), "call_stub");
        }
        assert_eq!(without_release_affixes("Stub Generator cont_returnBarrier_stub"), "cont_returnBarrier");
        assert_eq!(without_release_affixes("cont_returnBarrier_stub (stub gen)"), "cont_returnBarrier");
        assert_eq!(without_release_affixes("catch_exception (stub gen)"), "catch_exception");
        for other in ["Interpreter", "StubRoutines (continuation stubs)", "C1 Runtime new_instance_blob", ""]
        {
            assert_eq!(without_release_affixes(other), other);
        }
    }
}
