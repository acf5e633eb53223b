//! A thread that waits still: what user space needs to unwind its stack from outside.

use serde::{Deserialize, Serialize};

/// The registers with which a thread left user mode, and from which its user stack is unwound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SavedRegisters {
    /// The program counter.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// x86-64: `rax`, `rbx` and `r13`. HotSpot's interpreter has the caller in them while it enters a method.
    pub ax: u64,
    /// See `ax`.
    pub bx: u64,
    /// See `ax`.
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
    /// Where unwinding begins.
    pub registers: SavedRegisters,
}
