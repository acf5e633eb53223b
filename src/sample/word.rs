//! A frame of a user stack as the unwinder recorded it.

/// One frame of the user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The address to symbolize: within the instruction that was running or calling. `None` for an interpreted method.
    #[must_use]
    pub fn probe(self) -> Option<u64> {
        match self {
            UserWord::Leaf(pc) => Some(pc),
            UserWord::Return(pc) | UserWord::Followed(pc) => Some(pc.saturating_sub(1)),
            UserWord::Interpreted { .. } => None,
        }
    }
}
