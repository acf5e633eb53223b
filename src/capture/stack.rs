//! A stack as the kernel saw it: addresses, leaf first, with how it was interrupted and why the walk ended.

use crate::process::{MonoNs, ProcessId};

/// What one counter counts: equal keys are one stack of one program (and thread, if threads were asked for).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackKey {
    /// The program.
    pub process: ProcessId,
    /// Thread id in the initial pid namespace; 0 unless threads were asked for.
    pub tid: u32,
    /// Hash of the thread's comm.
    pub comm: u64,
    /// kernfs id of the task's cgroup in the hierarchy that tells containers apart.
    pub cgroup: u64,
    /// Which event, 0 = cpu-clock.
    pub event: u32,
    /// Seeded hash of the stack.
    pub stack: u64,
}

/// How user code was left when the tick came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// The tick came in user mode.
    User,
    /// In the kernel, under a system call: the first user pc is a return address.
    Syscall,
    /// In the kernel, under a fault or interrupt: the first user pc was about to run.
    Fault,
    /// There is no user code: a kernel thread or the idle task.
    None,
}

/// Why the walk of the user stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The outermost frame was reached.
    Root,
    /// The limit of 1,024 frames was reached, or that of what a walk may read: the root side is missing.
    Depth,
    /// The frame's memory could not be read.
    BadRead,
    /// The next frame does not lie above this one.
    NotUp,
    /// The return address is no user address; or, found out later, no address of code.
    BadPc,
    /// There is no user stack.
    NoUser,
    /// The frame pointer led nowhere, in a file's code of which no unwind table was loaded.
    NoTable,
    /// The unwind table has a rule that is not followed.
    NoRule,
    /// The pc lies in a JVM's code heap, but in no code that is in use there.
    NoBlob,
    /// A JVM's code was found without a frame as that code has: it was about to be made, changed or left.
    NoFrame,
    /// Another tool's uretprobe has replaced the return address, and the true one is not known.
    Uretprobe,
}

impl End {
    /// Every reason, in the order of `JP_ENDS` in `bpf/abi.h`.
    pub const ALL: [End; 11] = [
        End::Root,
        End::Depth,
        End::BadRead,
        End::NotUp,
        End::BadPc,
        End::NoUser,
        End::NoTable,
        End::NoRule,
        End::NoBlob,
        End::NoFrame,
        End::Uretprobe,
    ];
}

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

/// A distinct stack of a window, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// What counts it.
    pub key: StackKey,
    /// When it was first seen in its window.
    pub at: MonoNs,
    /// The thread's name, as the kernel has it (any bytes, at most 15).
    pub comm: Vec<u8>,
    /// How user code was left.
    pub leaf: Leaf,
    /// Why the user walk ended.
    pub end: End,
    /// Kernel addresses: the first is a leaf, the others are return addresses.
    pub kernel: Vec<u64>,
    /// User frames.
    pub user: Vec<UserWord>,
}

impl Stack {
    /// The kernel addresses to look up, leaf first.
    pub fn kernel_probes(&self) -> impl Iterator<Item = u64> + '_ {
        self.kernel.iter().enumerate().map(|(i, &pc)| if i == 0 { pc } else { pc.saturating_sub(1) })
    }
}
