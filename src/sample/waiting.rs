//! A thread that is still waiting: what user space needs to unwind its stack from outside.

use serde::{Deserialize, Serialize};

/// The registers with which a thread left user mode, and from which its user stack is unwound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SavedRegisters {
    /// Instruction pointer: `rip` or `pc`.
    pub ip: u64,
    /// Stack pointer: `rsp` or `sp`.
    pub sp: u64,
    /// Frame pointer: `rbp` or `x29`.
    pub fp: u64,
    /// x86-64: `rax`. HotSpot's interpreter has the caller in `rax`, `rbx` and `r13` while it enters a method.
    pub ax: u64,
    /// x86-64: `rbx`.
    pub bx: u64,
    /// x86-64: `r13`.
    pub r13: u64,
    /// The thread ran 32-bit code.
    pub i386: bool,
}

/// A thread whose wait is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StillWaiting {
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Thread id in its own pid namespace.
    pub own_tid: u32,
    /// How often the thread had lost its CPU since it began. The number is the same as long as this wait lasts.
    pub switches: u64,
    /// Registers at the entry to the kernel.
    pub registers: SavedRegisters,
}
