//! Lookups of the addresses of stacks: pending lookups, requests to the workers, and their answers.

use std::collections::HashMap;

use ahash::RandomState;

use super::address_cache::{JavaFrames, KnownAddress, LookupAddress, SpaceNumber, TimedAddress};
use super::frames::{FrameChain, unknown};
use super::method_cache::InterpretedFrame;
use super::place::FileHandle;
use crate::process::FileId;
use crate::profile::UnknownReason;
use crate::sample::{MonoNs, ProcessId, UserWord};

/// The lookup that a word of a stack needs.
pub(super) enum WordQuery {
    Code(LookupAddress),
    Method(InterpretedFrame),
}

impl From<UserWord> for WordQuery {
    fn from(word: UserWord) -> WordQuery {
        match word {
            UserWord::Leaf(pc) => WordQuery::Code(LookupAddress { pc, leaf: true }),
            UserWord::Return(pc) | UserWord::Followed(pc) => {
                WordQuery::Code(LookupAddress { pc, leaf: false })
            }
            UserWord::Interpreted { method, bcp } => WordQuery::Method(InterpretedFrame { method, bcp }),
        }
    }
}

/// One user word of a stack.
pub(super) struct WordLookup {
    pub(super) slot: Slot,
    /// The word was found as a return address, but no code is mapped there.
    pub(super) astray: bool,
    /// The space in which its frames are to be cached.
    pub(super) new_in: Option<SpaceNumber>,
}

/// The frames of one user word, or the pending lookup.
pub(super) enum Slot {
    Known(FrameChain),
    Native { file: FileId, offset: u64 },
    Jit { process: ProcessId, pc: u64 },
    JavaKnown(JavaFrames),
    Java { process: ProcessId, address: LookupAddress, at_ns: u64 },
    Interpreted { process: ProcessId, frame: InterpretedFrame },
}

/// Interpreted methods, each with the first time at which it was seen.
pub(super) type WantedMethods = HashMap<ProcessId, HashMap<InterpretedFrame, u64, RandomState>>;

/// A file whose names are needed.
pub(super) struct WantedFile {
    pub(super) file: FileHandle,
    /// A process that maps the file.
    pub(super) mapped_by: ProcessId,
    /// When the process was seen to map the file.
    pub(super) mapped_at: MonoNs,
    pub(super) offsets: Vec<u64>,
}

/// The lookups of one batch of stacks that the workers must answer.
#[derive(Default)]
pub(super) struct WorkerBatch {
    pub(super) native: HashMap<FileId, WantedFile, RandomState>,
    pub(super) jit: HashMap<ProcessId, Vec<TimedAddress>>,
    /// Each address with the times at which it was seen.
    pub(super) java: HashMap<ProcessId, HashMap<LookupAddress, Vec<u64>, RandomState>>,
    pub(super) interpreted: WantedMethods,
}

/// The workers' answers to a [`WorkerBatch`].
#[derive(Default)]
pub(super) struct BatchAnswer {
    pub(super) native: HashMap<(FileId, u64), FrameChain, RandomState>,
    pub(super) jit: HashMap<(ProcessId, u64), FrameChain, RandomState>,
    pub(super) java: HashMap<(ProcessId, LookupAddress, u64), JavaFrames, RandomState>,
    pub(super) interpreted: HashMap<(ProcessId, InterpretedFrame), FrameChain, RandomState>,
}

impl BatchAnswer {
    /// The frames of a lookup.
    pub(super) fn frames(&self, slot: &Slot) -> FrameChain {
        let frames = match slot {
            Slot::Known(frames) => Some(frames),
            Slot::Native { file, offset } => self.native.get(&(*file, *offset)),
            Slot::Jit { process, pc } => self.jit.get(&(*process, *pc)),
            Slot::JavaKnown(java) => Some(&java.chain),
            Slot::Java { process, address, at_ns } => {
                self.java.get(&(*process, *address, *at_ns)).map(|java| &java.chain)
            }
            Slot::Interpreted { process, frame } => self.interpreted.get(&(*process, *frame)),
        };
        frames.map_or_else(|| unknown(UnknownReason::WorkerFailed, None, 0), FrameChain::clone)
    }

    /// The answer to cache, if its frames are valid at other times too.
    pub(super) fn lasting(&self, slot: &Slot, frames: &FrameChain) -> Option<KnownAddress> {
        // An unknown frame may be known the next time.
        if frames.iter().any(|frame| frame.unknown.is_some()) {
            return None;
        }
        match slot {
            Slot::Known(_) | Slot::Native { .. } => Some(KnownAddress::Code(FrameChain::clone(frames))),
            Slot::Java { process, address, at_ns } => {
                let java = self.java.get(&(*process, *address, *at_ns));
                java.filter(|java| java.lasting).cloned().map(KnownAddress::Java)
            }
            Slot::Jit { .. } | Slot::JavaKnown(_) | Slot::Interpreted { .. } => None,
        }
    }
}
