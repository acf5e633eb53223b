//! A stack as the BPF program recorded it: addresses, leaf first, how the task left user mode, and the stop reason.

use serde::{Deserialize, Serialize};

use super::{
    AllocatedObject, Estimate, Event, Lock, MonoNs, ProcessId, StillWaiting, StopReason, ThreadContext,
    ThreadState, UserWord, WakerId,
};

/// The key of a count. Equal keys are one stack of one program (and of one thread, if threads are counted one by one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackKey {
    /// The program in its process.
    pub process: ProcessId,
    /// Thread id in the initial pid namespace; 0 unless threads are counted one by one.
    pub tid: u32,
    /// Hash of the thread's comm.
    pub comm: u64,
    /// kernfs id of the task's cgroup in the hierarchy that identifies containers.
    pub cgroup: u64,
    /// The event that was sampled.
    pub event: Event,
    /// What the thread did.
    pub state: ThreadState,
    /// Seeded hash of the stack.
    pub stack: u64,
}

/// How the task left user mode before the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Leaf {
    /// The task was in user mode.
    User,
    /// The task was in a system call: the first user pc is a return address.
    Syscall,
    /// The task was in the kernel for a fault or an interrupt: the first user pc is an instruction that was about to
    /// run.
    Fault,
    /// There is no user code: a kernel thread or the idle task.
    None,
}

/// The count of one key in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of samples with this key in the window.
    pub samples: u64,
    /// Sum of the samples' weights, in the unit of their event.
    pub weight: u64,
    /// How many waits or allocated objects the samples stand for; 0 for other events.
    pub estimate: Estimate,
    /// The longest wait with a sample, in nanoseconds; 0 for other events.
    pub longest_ns: u64,
}

/// A distinct stack of a window, and how many samples have it.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedStack {
    /// As it came from the ring buffer, not symbolized.
    pub stack: Stack,
    /// Its count in the window.
    pub count: Count,
}

/// A distinct stack of a window, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The key of the stack's count.
    pub key: StackKey,
    /// When the stack was first recorded in its window.
    pub at: MonoNs,
    /// The thread's name in the kernel (any bytes, at most 15).
    pub comm: Vec<u8>,
    /// How the task left user mode.
    pub leaf: Leaf,
    /// Why the unwinder stopped.
    pub stop_reason: StopReason,
    /// Kernel addresses: the first is a leaf, the others are return addresses.
    pub kernel: Vec<u64>,
    /// User frames, leaf first.
    pub user: Vec<UserWord>,
    /// The thread, if it is still waiting ([`StopReason::Unfinished`]): `user` has one frame until the stack is unwound
    /// from outside.
    pub waiting: Option<Box<StillWaiting>>,
    /// For which Java lock the thread waited; only of waits.
    pub lock: Option<Lock>,
    /// Of a wait: the stack that ended it. Of such a stack: its own id.
    pub waker: Option<WakerId>,
    /// The object of an allocation.
    pub object: Option<AllocatedObject>,
    /// The trace that the thread worked for.
    pub context: ThreadContext,
}

impl Stack {
    /// Whether this is no sample, but the stack of a thread or an interrupt that ended a wait.
    #[must_use]
    pub fn is_waker(&self) -> bool {
        self.key.event == Event::Wait && self.key.state == ThreadState::Running
    }

    /// The kernel addresses to symbolize, leaf first: within the instruction that was running or calling.
    pub fn kernel_probes(&self) -> impl Iterator<Item = u64> + '_ {
        self.kernel.iter().enumerate().map(|(i, &pc)| if i == 0 { pc } else { pc.saturating_sub(1) })
    }
}
