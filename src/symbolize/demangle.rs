//! Demangles the names of C++ and Rust symbols.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use super::constrained;
use crate::profile::Kind;
use crate::profile::frame::clean;

/// Longest printed name, characters.
pub(crate) const MAX_NAME: usize = 1024;
/// Longest mangled name that is demangled, bytes: substitutions make the text exponentially longer.
const MAX_MANGLED: usize = 8 << 10;
/// Longest demangled text, bytes. A longer name stays mangled: a cut name would be the name of other functions too.
const MAX_UNFOLDED: usize = 64 << 10;
const MAX_DEPTH: u32 = 160;

/// The name to print for a linker symbol, and the kind of its language.
///
/// C++ names come without parameters and return type, as in async-profiler: overloads are one function in a picture,
/// and names stay short. Rust names come without the hash. Other names are printed as they are.
#[must_use]
pub fn demangle(raw: &[u8]) -> (String, Kind) {
    // A symbol can carry a version, `memcpy@@GLIBC_2.14`, which is not part of the name.
    let raw = match raw.iter().position(|&b| b == b'@') {
        Some(at) if at > 0 => &raw[..at],
        _ => raw,
    };
    let raw = without_clone(raw);
    if raw.len() > MAX_MANGLED {
        return (clean(raw, MAX_NAME), Kind::Native);
    }
    if let Some(name) = rust(raw) {
        return (clean(name.as_bytes(), MAX_NAME), Kind::Native);
    }
    match cpp(raw) {
        Some(name) => (clean(name.as_bytes(), MAX_NAME), Kind::Cpp),
        None if raw.starts_with(b"_Z") => (clean(raw, MAX_NAME), Kind::Cpp),
        None => (clean(raw, MAX_NAME), Kind::Native),
    }
}

/// Compilers split and specialise functions: `f.cold`, `f.part.0`, `f.isra.0`, `f.llvm.42` are all `f` to the author.
fn without_clone(raw: &[u8]) -> &[u8] {
    const SUFFIXES: [&[u8]; 6] = [b".cold", b".part.", b".isra.", b".constprop.", b".llvm.", b".lto_priv."];
    let dots = raw.iter().enumerate().skip(1).filter(|&(_, &b)| b == b'.');
    let cut = dots.map(|(at, _)| at).find(|&at| SUFFIXES.iter().any(|s| raw[at..].starts_with(s)));
    cut.map_or(raw, |at| &raw[..at])
}

fn rust(raw: &[u8]) -> Option<String> {
    let name = rustc_demangle::try_demangle(std::str::from_utf8(raw).ok()?).ok()?;
    let mut out = Bounded::default();
    write!(out, "{name:#}").ok()?;
    Some(out.0)
}

fn cpp(raw: &[u8]) -> Option<String> {
    if !raw.starts_with(b"_Z") {
        return None;
    }
    whole_cpp(raw).or_else(|| constrained::name(raw, whole_cpp))
}

fn whole_cpp(raw: &[u8]) -> Option<String> {
    let symbol = Symbol::new_with_options(raw, &ParseOptions::default().recursion_limit(MAX_DEPTH)).ok()?;
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(MAX_DEPTH);
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

/// Text that refuses to grow beyond the limit.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_UNFOLDED {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_recognized() {
        assert_eq!(demangle(b"main"), ("main".into(), Kind::Native));
        assert_eq!(demangle(b"_ZN3foo3barEii"), ("foo::bar".into(), Kind::Cpp));
        assert_eq!(
            demangle(b"_ZN14PhaseIdealLoop18build_and_optimizeE12LoopOptsMode").0,
            "PhaseIdealLoop::build_and_optimize"
        );
        assert_eq!(
            demangle(b"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"),
            ("core::fmt::Formatter::pad".into(), Kind::Native)
        );
        assert_eq!(demangle(b"_RNvCskwGfYPst2Cb_3foo16example_function").0, "foo::example_function");
        assert_eq!(demangle(b"memcpy@@GLIBC_2.14").0, "memcpy");
        assert_eq!(demangle(b"_Z3fooi.cold"), ("foo".into(), Kind::Cpp));
        assert_eq!(demangle(b"gc_work.constprop.0.isra.0").0, "gc_work");
    }

    #[test]
    fn bombs_and_garbage_stay_small() {
        // Each `S_` repeats the text before it: 2^40 characters if it were demangled.
        let mut bomb = b"_ZN1aI".to_vec();
        for _ in 0..40 {
            bomb.extend_from_slice(b"1bIS_S_");
        }
        assert_eq!(demangle(&bomb).0, String::from_utf8(bomb).unwrap());
        let deep: Vec<u8> = b"_Z".iter().chain(std::iter::repeat_n(&b'P', 8000)).copied().collect();
        assert_eq!(demangle(&deep).0.chars().count(), MAX_NAME);
        assert_eq!(demangle(b"a\x1b[31m\nb").0, "a?[31m?b");
        assert_eq!(demangle(b"").0, "");
        assert_eq!(demangle(b"@").0, "@");
    }

    /// Mangled `Kernel<List<Node<0>…Node<count - 1>>, last>::evaluate`.
    fn kernel(count: u32, last: u32) -> Vec<u8> {
        let nodes: String = (0..count).map(|n| format!("4NodeILi{n}EE")).collect();
        format!("_ZN6KernelI4ListIJ{nodes}EELi{last}EE8evaluateEmi").into_bytes()
    }

    #[test]
    fn long_names_that_differ_in_their_last_argument_stay_different() {
        for (count, end) in [
            (300, "Node<299> >, 0>::evaluate"),
            (600, "Node<599> >, 0>::evaluate"),
            (4000, "EELi0EE8evaluateEmi"),
        ] {
            let (zero, one) = (demangle(&kernel(count, 0)).0, demangle(&kernel(count, 1)).0);
            assert_ne!(zero, one, "{count}");
            assert_eq!(zero.chars().count(), MAX_NAME);
            assert!(zero.ends_with(end), "{zero}");
        }
    }
}
