//! A frame of a user stack as the unwinder recorded it.

use serde::{Deserialize, Serialize};

/// Bits from this one on are a word's tag: `JP_WORD_TAG_SHIFT` of `bpf/abi.h`.
pub(crate) const TAG_SHIFT: u32 = 60;
/// The tags: `JP_WORD_RETURN` and so on.
pub(crate) const TAG_RETURN: u64 = 0;
pub(crate) const TAG_LEAF: u64 = 1;
pub(crate) const TAG_INTERPRETED: u64 = 3;
pub(crate) const TAG_FOLLOWED: u64 = 4;

/// One frame of the user stack. The unwinder sends one word, and two for an interpreted frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UserWord {
    /// An instruction that was about to run.
    Leaf(u64),
    /// The address after a call.
    Return(u64),
    /// A return address that the unwinder found by frame pointer. No unwind table of the callee's file was loaded, so
    /// nothing confirms the address.
    Followed(u64),
    /// A Java method in the interpreter. Both addresses come from the JVM's memory and may be false.
    Interpreted {
        /// The address of the `Method`; 0 if the frame was not complete.
        method: u64,
        /// The address of the bytecode that was running or calling; 0 in a native method, or while a method was
        /// entered.
        bcp: u64,
    },
}

impl UserWord {
    /// The last word of a stack whose root the unwinder found by frame pointer, like a `Followed` address. The loader of
    /// unwind tables removes it.
    pub(crate) const UNCONFIRMED_ROOT: UserWord = UserWord::Followed(0);

    /// Parses the words of a user stack; an interpreted frame has two words. `None` if a tag is unknown or a word is
    /// missing, which only an unwinder of another build could cause.
    pub(crate) fn parse(mut words: impl Iterator<Item = u64>) -> Option<Vec<UserWord>> {
        let value = |word: u64| word & ((1 << TAG_SHIFT) - 1);
        let mut frames = Vec::with_capacity(words.size_hint().0);
        while let Some(word) = words.next() {
            frames.push(match word >> TAG_SHIFT {
                TAG_RETURN => UserWord::Return(value(word)),
                TAG_LEAF => UserWord::Leaf(value(word)),
                TAG_INTERPRETED => UserWord::Interpreted { method: value(word), bcp: words.next()? },
                TAG_FOLLOWED => UserWord::Followed(value(word)),
                _ => return None,
            });
        }
        Some(frames)
    }

    /// The address to symbolize: within the instruction that was running or calling. `None` for an interpreted method.
    #[must_use]
    pub fn lookup_pc(self) -> Option<u64> {
        match self {
            UserWord::Leaf(pc) => Some(pc),
            UserWord::Return(pc) | UserWord::Followed(pc) => Some(pc.saturating_sub(1)),
            UserWord::Interpreted { .. } => None,
        }
    }
}
