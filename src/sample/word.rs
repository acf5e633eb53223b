//! A frame of a user stack as the walk left it.

/// One frame of the user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UserWord {
    /// An instruction that was about to run.
    Leaf(u64),
    /// The address after a call.
    Return(u64),
    /// The same, to which a frame pointer led in code of a file of which no unwind table was there to say that it is one.
    Followed(u64),
    /// A Java method that the interpreter was running. What it says was found in the JVM's memory and may be a lie.
    Interpreted {
        /// Its `Method*`; 0 if the frame was not whole.
        method: u64,
        /// The bytecode that was running or calling, an address too; 0 of a native method, or of one that was being
        /// entered.
        bcp: u64,
    },
}

impl UserWord {
    /// Its code's address: within the instruction that was running or calling. None of an interpreted method.
    #[must_use]
    pub fn probe(self) -> Option<u64> {
        match self {
            UserWord::Leaf(pc) => Some(pc),
            UserWord::Return(pc) | UserWord::Followed(pc) => Some(pc.saturating_sub(1)),
            UserWord::Interpreted { .. } => None,
        }
    }
}
