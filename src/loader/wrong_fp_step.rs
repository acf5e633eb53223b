//! Finds steps by frame pointer that were wrong, once the unwind table of the frame's file is there.

use crate::sample::StopReason;
use crate::unwind::{Cfa, Fp, Rule};

/// The stop reason at a frame with this rule that the unwinder left by frame pointer; `None` if the step may be right.
/// A leaf function, or a function that has just begun, mostly has its caller's frame pointer, so there the step may be
/// right if `leaf`.
pub(super) fn stop_reason_after(rule: Rule, leaf: bool) -> Option<StopReason> {
    match rule {
        Rule::None
        | Rule::Bare
        | Rule::Frame { cfa: Cfa::Fp(16), fp: Fp::AtCfa(-16) }
        // The same rule in 32-bit code.
        | Rule::Frame { cfa: Cfa::Fp(8), fp: Fp::AtCfa(-8) }
        // GCC's realigned stacks have a copy of the return address at the usual place.
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
    fn valid_frame_pointers_are_followed() {
        let frame = |cfa, fp| Rule::Frame { cfa, fp };
        let usual = frame(Cfa::Fp(16), Fp::AtCfa(-16));
        let pushed = frame(Cfa::Sp(24), Fp::AtCfa(-16));
        let untouched = frame(Cfa::Sp(8), Fp::Same);
        for leaf in [true, false] {
            assert_eq!(stop_reason_after(Rule::None, leaf), None, "nothing is known of it");
            assert_eq!(stop_reason_after(usual, leaf), None);
            assert_eq!(
                stop_reason_after(pushed, leaf),
                Some(StopReason::NoTable),
                "it is saved to be used for something else"
            );
            assert_eq!(stop_reason_after(Rule::End, leaf), Some(StopReason::Root));
        }
        assert_eq!(
            (stop_reason_after(untouched, true), stop_reason_after(untouched, false)),
            (None, Some(StopReason::NoTable))
        );
    }
}
