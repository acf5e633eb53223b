//! A stack as the kernel saw it: addresses, leaf first, with how it was interrupted and why the walk ended.

use super::{Event, MonoNs, ProcessId, StopReason, UserWord};

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
    /// What happened.
    pub event: Event,
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

/// What one key was counted for in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Samples.
    pub ticks: u64,
    /// What they stand for, in the unit of their event.
    pub weight: u64,
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
    pub end: StopReason,
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
