//! Frames that were left by frame pointer before their file's table was loaded: where that was wrong.

use crate::sample::StopReason;
use crate::unwind::{Cfa, Fp, Rule};

/// How a walk has ended at a frame with this rule that was left by frame pointer; `None` if it may have been right. A
/// function that calls nobody, or has just begun, mostly has its caller's frame pointer: there `leaf` may be right.
pub(super) fn end_at(rule: Rule, leaf: bool) -> Option<StopReason> {
    match rule {
        Rule::None
        | Rule::Bare
        | Rule::Frame { cfa: Cfa::Fp(16), fp: Fp::AtCfa(-16) }
        // In 32-bit code.
        | Rule::Frame { cfa: Cfa::Fp(8), fp: Fp::AtCfa(-8) }
        // GCC's realigned stacks have a copy of the return address where others have it.
        | Rule::Frame { cfa: Cfa::AtFp(..), .. } => None,
        Rule::Frame { fp: Fp::Same, .. } | Rule::Plt { .. } if leaf => None,
        Rule::End => Some(StopReason::Root),
        Rule::Frame { .. } | Rule::Plt { .. } | Rule::Signal { .. } | Rule::Other => Some(StopReason::NoTable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_pointer_is_followed_where_it_is_one() {
        let frame = |cfa, fp| Rule::Frame { cfa, fp };
        let usual = frame(Cfa::Fp(16), Fp::AtCfa(-16));
        let pushed = frame(Cfa::Sp(24), Fp::AtCfa(-16));
        let untouched = frame(Cfa::Sp(8), Fp::Same);
        for leaf in [true, false] {
            assert_eq!(end_at(Rule::None, leaf), None, "nothing is known of it");
            assert_eq!(end_at(usual, leaf), None);
            assert_eq!(
                end_at(pushed, leaf),
                Some(StopReason::NoTable),
                "it is saved to be used for something else"
            );
            assert_eq!(end_at(Rule::End, leaf), Some(StopReason::Root));
        }
        assert_eq!((end_at(untouched, true), end_at(untouched, false)), (None, Some(StopReason::NoTable)));
    }
}
