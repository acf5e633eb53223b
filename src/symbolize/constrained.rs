//! Names of constrained templates (C++20), as clang 18 and later and GCC 14 and later mangle them. `cpp_demangle`
//! cannot read constraints.
//!
//! The part of a name before the first unreadable item is enough, because parameters and constraints are not printed.
//! If template arguments are among the unreadable items, a checksum stands for them, because a template has several
//! functions.

/// Places in a name where a cut is tried.
const MAX_CUTS: usize = 32;

/// The name of a symbol that `demangle` cannot read whole, if `demangle` can read the part before a constraint.
pub(super) fn name(raw: &[u8], demangle: impl Fn(&[u8]) -> Option<String>) -> Option<String> {
    let cuts = |at: u8, constrains: fn(&[u8]) -> bool| {
        let places = (2..raw.len()).filter(move |&cut| raw[cut] == at && constrains(&raw[cut + 1..]));
        places.filter(|&cut| !is_in_identifier(raw, cut)).take(MAX_CUTS)
    };
    let closed =
        |cut: usize, ends: &[&[u8]]| ends.iter().find_map(|end| demangle(&[&raw[..cut], end].concat()));
    // A constraint stands behind the parameters, behind the template arguments of the function's name, or before one of
    // them. A name that is local to another function stands behind all parts of that function's name.
    let (behind, before): (&[&[u8]], &[&[u8]]) = match raw.get(2)? {
        b'Z' => (&[b""], &[]),
        b'N' => (&[b"", b"EEvv"], &[b"Ev"]),
        _ => (&[b"", b"Evv"], &[b"v"]),
    };
    cuts(b'Q', |rest| !rest.is_empty()).find_map(|cut| closed(cut, behind)).or_else(|| {
        let is_declared = |rest: &[u8]| rest.starts_with(b"Tk") || rest.starts_with(b"Tn");
        let name = cuts(b'I', is_declared).find_map(|cut| closed(cut, before))?;
        let mut checksum = flate2::Crc::new();
        checksum.update(raw);
        Some(format!("{name}<\u{2026}{:08x}>", checksum.sum()))
    })
}

/// Whether the byte at `cut` may be in an identifier: an identifier has its length before it.
fn is_in_identifier(raw: &[u8], cut: usize) -> bool {
    let mut at = 0;
    while at < cut {
        let digits = raw[at..cut].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = at + digits;
        // Any end of the digits may be the length: `Li1` is a literal, and `3abc` may follow it.
        let reaches = |from: usize| {
            let length = std::str::from_utf8(&raw[from..end]).ok().and_then(|text| text.parse().ok());
            length.is_none_or(|length: usize| length.saturating_add(end) > cut)
        };
        if (at..end).any(reaches) {
            return true;
        }
        at = end + 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::profile::Kind;
    use crate::symbolize::demangle::demangle;

    /// As clang 19 mangles them, and as its own demangler prints them, without parameters and constraints.
    #[test]
    fn constraints_are_no_part_of_a_name() {
        for (raw, name) in [
            ("_ZN1n8trailingIiEET_S1_QSt8integralIS1_E", "n::trailing<int>"),
            ("_ZN1n10req_clauseIiQaa3NumIT_EgtstS1_Li2EEES1_S1_", "n::req_clause<int>"),
            ("_ZN1n3BoxIiE3getEvQ3NumIT_E", "n::Box<int>::get"),
            ("_Z3reqIiQ3NumIT_EEvS0_", "req<int>"),
            ("_ZZ4mainENK3$_5clIiEEDaT_Q3NumIS1_E", "main::$_5::operator()<int> const"),
        ] {
            assert_eq!(demangle(raw.as_bytes()), (name.to_owned(), Kind::Cpp), "{raw}");
        }
    }

    #[test]
    fn unreadable_template_arguments_stay_distinct() {
        let name = |raw: &str| demangle(raw.as_bytes()).0;
        let int = name("_ZN1n11constrainedITk3NumiEET_S1_");
        let double = name("_ZN1n11constrainedITk3NumdEET_S1_");
        assert_ne!(int, double);
        for one in [int, double, name("_ZN1n11constrainedITk3NumiEET_S1_.cold")] {
            assert!(one.starts_with("n::constrained<\u{2026}") && one.ends_with('>'), "{one}");
        }
        let member = name("_ZN1n3BoxIiE4convITk5Same2IT_EiEES4_S4_");
        assert!(member.starts_with("n::Box<int>::conv<\u{2026}"), "{member}");
    }

    #[test]
    fn what_is_cut_within_an_identifier_is_no_name() {
        // A function `aQbEE` with an unreadable part, and a function whose argument has an `I` in its name.
        for raw in ["_ZN1n5aQbEEITk3NumiEEvv", "_Z1fI3aIbTk3NumiEvv"] {
            let name = demangle(raw.as_bytes()).0;
            let outer = name.split('<').next().unwrap();
            assert!(["n::aQbEE", "f", raw].contains(&outer), "{name}");
        }
        for garbage in ["_ZQ", "_ZNQ", "_ZZQ", "_Z3fooQ", "_ZI", "_ZN", "_Z1", "_Z99999999999999999999Q"] {
            assert_eq!(demangle(garbage.as_bytes()).0, garbage);
        }
    }
}
