//! Frames without a name, by reason.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::frame::UnknownReason;
use super::kind::{Kind, Origin};
use super::samples::NodeSamples;
use super::tables::Sums;
use super::view::ProfileView;

/// Frames without a name for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownRow {
    /// Why they have no name.
    pub why: UnknownReason,
    /// Such frames, each counted as often as it was sampled.
    pub frames: u64,
    /// Samples whose leaf is such a frame.
    pub leaves: u64,
}

/// Unknown parts of a profile's stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownFrames {
    /// User frames, each counted as often as it was sampled.
    pub user_frames: u64,
    /// The reasons that occur, the most frequent first.
    pub rows: Vec<UnknownRow>,
    /// Samples whose stack is cut on the side of the root.
    pub truncated: u64,
}

impl UnknownFrames {
    /// User frames without a name, each counted as often as it was sampled.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.rows.iter().filter(|r| !r.why.is_of_kernel()).map(|r| r.frames).sum()
    }

    /// Samples whose leaf has no name.
    #[must_use]
    pub fn leaves(&self) -> u64 {
        self.rows.iter().map(|r| r.leaves).sum()
    }
}

impl ProfileView<'_> {
    /// Counts unknown and truncated frames, by reason.
    #[must_use]
    pub fn unknown(&self) -> UnknownFrames {
        let frames = self.frames();
        let mut found = UnknownFrames::default();
        let (mut by_frame, mut by_leaf) = (Sums::default(), Sums::default());
        for NodeSamples { node: leaf, samples: count } in self.nonempty_leaves() {
            let mut cut = false;
            for (up, node) in self.code_path_from_leaf(leaf).enumerate() {
                let symbol = &frames.symbols()[frames.symbol_of(self.frame_of(node)) as usize];
                let user = !matches!(symbol.kind.origin(), Origin::NotCode | Origin::Kernel)
                    && !symbol.unknown.is_some_and(UnknownReason::is_of_kernel);
                found.user_frames += if user { count } else { 0 };
                cut |= symbol.kind == Kind::Marker && &**frames.name(symbol) == "[truncated]";
                let Some(why) = symbol.unknown else { continue };
                by_frame.add(why, count);
                if up == 0 {
                    by_leaf.add(why, count);
                }
            }
            found.truncated += if cut { count } else { 0 };
        }
        found.rows = by_frame
            .all()
            .map(|(why, frames)| UnknownRow { why, frames, leaves: by_leaf.of(&why) })
            .collect();
        found.rows.sort_by_key(|r| (Reverse(r.frames), r.why));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::profile::{Frame, Kind, Labels, Module, Profile, UnknownReason};
    use crate::sample::Event;

    fn named(kind: Kind, name: &str) -> Arc<Frame> {
        Arc::new(Frame::named(kind, name))
    }

    #[test]
    fn unknown_frames_by_reason() {
        let mut p = Profile::new();
        let module = Arc::new(Module::at("/usr/lib/libx.so"));
        let gone = Arc::new(Frame::unknown(UnknownReason::CodeMoved, None, 1));
        let bare =
            |address| Arc::new(Frame::unknown(UnknownReason::NoSymbol, Some(Arc::clone(&module)), address));
        let hidden = Arc::new(Frame::unknown(UnknownReason::KernelHidden, None, 9));
        let process = named(Kind::Process, "x");
        let labels = Labels::default();
        p.add(&labels, &[process.clone(), bare(1), bare(2), gone], 2, 0);
        p.add(&labels, &[process.clone(), named(Kind::Marker, "[truncated]"), bare(3), hidden], 3, 0);
        let u = p.of_event(Event::Cpu).unknown();
        let shown: Vec<_> = u.rows.iter().map(|r| (r.why, r.frames, r.leaves)).collect();
        assert_eq!(
            shown,
            [
                (UnknownReason::NoSymbol, 7, 0),
                (UnknownReason::KernelHidden, 3, 3),
                (UnknownReason::CodeMoved, 2, 2)
            ]
        );
        assert_eq!((u.user_frames, u.user(), u.leaves(), u.truncated), (9, 9, 5, 3));
    }
}
