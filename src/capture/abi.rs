//! The contract with the BPF program: `bpf/abi.h` in Rust. Both compilers check it, and a test compares the header's
//! lists and numbers. The derives prove at compile time that each structure is plain bytes without padding.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::numbers::EventNumbers;
use crate::process::group::GroupId;
use crate::sample::lock::LockNumbers;
use crate::sample::{
    AllocatedObject, Count, Estimate, Leaf, Lock, MonoNs, ProcessId, SavedRegisters, SpanContext, SpanId,
    Stack, StackKey, StillWaiting, StopReason, ThreadContext, ThreadState, TraceId, UserWord, WakerId,
};

/// `JP_ABI_VERSION`: [`parse_record`] rejects records of any other version.
pub const VERSION: u16 = 1;
/// `JP_STATE_SHIFT`: a key's event has the state above this bit.
const STATE_SHIFT: u32 = 8;

/// The labels of `JP_LOSSES`, in its order: why a sample was lost.
pub const LOSSES: [&str; 6] =
    ["ring full", "counts full", "counts busy", "no scratch", "nested", "spaces full"];

/// `struct jp_key`: the process, thread, cgroup, event and stack of a count.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
pub struct CountKey {
    start: u64,
    cgroup: u64,
    stack: u64,
    comm: u64,
    tgid: u32,
    tid: u32,
    exec: u32,
    event: u32,
}

/// `struct jp_value`: what the BPF program counted for one key in a window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct CountValue {
    /// Samples with this key in the window.
    pub count: u64,
    /// Sum of their weights, in the unit of the event.
    pub weight: u64,
    pub(super) estimate: u64,
    pub(super) longest: u64,
}

/// `struct jp_waiting`: a thread that is still waiting.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
struct WaitingRecord {
    ip: u64,
    sp: u64,
    fp: u64,
    ax: u64,
    bx: u64,
    r13: u64,
    switches: u64,
    tid: u32,
    own_tid: u32,
    i386: u64,
}

/// `struct jp_record`, without the words that follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
struct SampleRecord {
    version: u16,
    leaf: u8,
    stop_reason: u8,
    kernel_words: u16,
    user_words: u16,
    window: u32,
    context: u32,
    ktime: u64,
    key: CountKey,
    comm: [u8; 16],
    lock: LockRecord,
    waker: u64,
    object_class: u64,
}

/// `struct jp_lock`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
struct LockRecord {
    class: u64,
    owner: u32,
    kind: u16,
    owner_kind: u16,
}

/// `JP_CONTEXT_WORDS` words behind the others: the ids of a span, as the process has them in its memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
struct SpanWords {
    trace: [u8; 16],
    span: [u8; 8],
}

/// `struct jp_counters`: the counters of one event, on one CPU, in one window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Counters {
    /// Samples taken. One run of the program can take several.
    pub ticks: u64,
    /// Samples of tasks or code that the filter excludes.
    pub filtered: u64,
    /// Ticks of idle CPUs at the addresses in [`IdleAddresses`]; they have no stacks.
    pub idle: u64,
    /// Samples lost, in the order of [`LOSSES`].
    pub lost: [u64; LOSSES.len()],
}

/// `struct jp_idle_addresses`: kernel addresses; 0 is a free entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct IdleAddresses(pub [u64; 8]);

/// `struct jp_waited`: waiting time, measured at the ends of waits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct WaitTotals {
    /// Nanoseconds by state, in the order of [`ThreadState::ALL`].
    pub ns: [u64; ThreadState::ALL.len()],
    /// Waits that were not measured, because there was no room for the thread, or their end was not seen.
    pub untimed: u64,
}

/// `struct jp_switches`: the context switches of a CPU while the programs of waits are attached.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes)]
pub struct CpuSwitches {
    /// When the last one was, nanoseconds of the monotonic clock.
    pub last: u64,
    /// How many there were.
    pub number: u64,
}

/// `struct jp_allocated`: bytes that were allocated, and in how many calls, with and without samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct AllocationTotals {
    /// Bytes of processes and threads that are sampled.
    pub wanted: u64,
    /// Bytes of processes and threads that are not sampled.
    pub filtered: u64,
    /// Calls of the processes and threads that are sampled.
    pub wanted_calls: u64,
    /// Calls of all others.
    pub filtered_calls: u64,
    /// Estimated bytes of processes that are sampled and whose JVM chooses the samples itself.
    pub estimated: u64,
}

/// `struct jp_cgroup`: the key of a chosen cgroup in the filter's map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct Cgroup {
    id: u64,
    hierarchy: u32,
    pad: u32,
}

/// `struct jp_member`: a record of the BPF program `members`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub(super) struct MemberRecord {
    pub(super) id: u64,
    pub(super) tgid: u32,
    pub(super) hierarchy: u32,
    pub(super) wanted: u32,
    pad: u32,
}

const _: () = assert!(size_of::<Cgroup>() == 16 && size_of::<MemberRecord>() == 24);
const _: () = assert!(size_of::<CountKey>() == 48 && offset_of!(CountKey, tgid) == 32);
const _: () = assert!(size_of::<CountValue>() == 32 && size_of::<WaitTotals>() == 48);
const _: () = assert!(size_of::<WaitingRecord>() == 72 && offset_of!(WaitingRecord, tid) == 56);
const _: () = assert!(
    size_of::<SampleRecord>() == 120
        && offset_of!(SampleRecord, key) == 24
        && offset_of!(SampleRecord, comm) == 72
);
const _: () = assert!(size_of::<Counters>() == 72 && size_of::<AllocationTotals>() == 40);
const _: () = assert!(size_of::<IdleAddresses>() == 64 && size_of::<CpuSwitches>() == 16);

impl Cgroup {
    /// The key of a group.
    #[must_use]
    pub fn of(group: GroupId) -> Cgroup {
        Cgroup { id: group.id, hierarchy: group.hierarchy.number().into(), pad: 0 }
    }
}

impl CountKey {
    /// The key as the other rooms use it; `None` if the event is unknown.
    #[must_use]
    pub fn stack_key(self, numbers: &EventNumbers) -> Option<StackKey> {
        let CountKey { start, cgroup, stack, comm, tgid, tid, exec, event } = self;
        let state = *ThreadState::ALL.get((event >> STATE_SHIFT) as usize)?;
        let event = numbers.event(event & ((1 << STATE_SHIFT) - 1))?;
        Some(StackKey { process: ProcessId { tgid, start, exec }, tid, comm, cgroup, event, state, stack })
    }
}

impl CountValue {
    /// Samples that stand for themselves.
    #[cfg(test)]
    pub(super) fn of_samples(count: u64) -> CountValue {
        CountValue { count, ..CountValue::default() }
    }

    /// The value as the other rooms use it.
    #[must_use]
    pub fn to_count(self) -> Count {
        let CountValue { count, weight, estimate, longest } = self;
        Count { samples: count, weight, estimate: Estimate::of_units(estimate), longest_ns: longest }
    }
}

impl Counters {
    /// Adds the counters of another CPU or window.
    pub fn add(&mut self, other: &Counters) {
        let Counters { ticks, filtered, idle, lost } = other;
        self.ticks = self.ticks.saturating_add(*ticks);
        self.filtered = self.filtered.saturating_add(*filtered);
        self.idle = self.idle.saturating_add(*idle);
        for (sum, n) in self.lost.iter_mut().zip(lost) {
            *sum = sum.saturating_add(*n);
        }
    }
}

impl WaitTotals {
    /// Adds the times of another CPU or window.
    pub fn add(&mut self, other: &WaitTotals) {
        let WaitTotals { ns, untimed } = other;
        for (sum, ns) in self.ns.iter_mut().zip(ns) {
            *sum += ns;
        }
        self.untimed += untimed;
    }
}

impl AllocationTotals {
    /// Adds the allocations of another CPU or window.
    pub fn add(&mut self, other: &AllocationTotals) {
        let AllocationTotals { wanted, filtered, wanted_calls, filtered_calls, estimated } = other;
        self.wanted = self.wanted.saturating_add(*wanted);
        self.filtered = self.filtered.saturating_add(*filtered);
        self.wanted_calls = self.wanted_calls.saturating_add(*wanted_calls);
        self.filtered_calls = self.filtered_calls.saturating_add(*filtered_calls);
        self.estimated = self.estimated.saturating_add(*estimated);
    }
}

impl LockRecord {
    fn lock(self) -> Option<Lock> {
        let LockRecord { class, owner, kind, owner_kind } = self;
        LockNumbers { class, owner, kind, owner_kind }.lock()
    }
}

fn leaf(code: u8) -> Option<Leaf> {
    [Leaf::User, Leaf::Syscall, Leaf::Fault, Leaf::None].get(usize::from(code)).copied()
}

fn stop_reason(code: u8) -> Option<StopReason> {
    StopReason::ALL.get(usize::from(code)).copied()
}

/// A stack from the ring buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivedStack {
    /// As the BPF program recorded it, not symbolized.
    pub stack: Stack,
    /// Parity of the window that counts the stack.
    pub parity: u32,
}

/// Parses a record of the ring buffer. `None` if the bytes are not a record of this version, which only a BPF program of
/// another build could cause.
#[must_use]
pub fn parse_record(bytes: &[u8], numbers: &EventNumbers) -> Option<ArrivedStack> {
    let (record, words) = SampleRecord::read_from_prefix(bytes).ok()?;
    let (kernel_words, user_words) = (usize::from(record.kernel_words), usize::from(record.user_words));
    if record.version != VERSION || words.len() < 8 * (kernel_words + user_words) {
        return None;
    }
    let (kernel, words) = words.split_at(8 * kernel_words);
    let (user, behind) = words.split_at(8 * user_words);
    let (leaf, stop_reason) = (leaf(record.leaf)?, stop_reason(record.stop_reason)?);
    let waiting = match stop_reason {
        StopReason::Unfinished => Some(waiting_thread(user)?),
        _ => None,
    };
    let user = match &waiting {
        Some(waiting) => vec![first_frame(waiting, leaf)],
        None => UserWord::parse(words_of(user))?,
    };
    let name_len = record.comm.iter().position(|&b| b == 0).unwrap_or(record.comm.len());
    let stack = Stack {
        key: record.key.stack_key(numbers)?,
        at: MonoNs(record.ktime),
        comm: record.comm[..name_len].to_vec(),
        leaf,
        stop_reason,
        kernel: words_of(kernel).collect(),
        user,
        waiting: waiting.map(Box::new),
        lock: record.lock.lock(),
        waker: WakerId::new(record.waker),
        object: AllocatedObject::of(record.object_class),
        context: context(record.context, behind)?,
    };
    Some(ArrivedStack { stack, parity: record.window })
}

/// The trace context with this number in `JP_CONTEXTS`; `behind`: the bytes behind the words of the stack.
fn context(code: u32, behind: &[u8]) -> Option<ThreadContext> {
    let span = || {
        let (SpanWords { trace, span }, _) = SpanWords::read_from_prefix(behind).ok()?;
        Some(ThreadContext::Span(SpanContext { trace: TraceId(trace), span: SpanId(span) }))
    };
    match code {
        0 => Some(ThreadContext::None),
        1 => span(),
        2 => Some(ThreadContext::Idle),
        3 => Some(ThreadContext::Unread),
        _ => None,
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

fn waiting_thread(bytes: &[u8]) -> Option<StillWaiting> {
    let (read, _) = WaitingRecord::read_from_prefix(bytes).ok()?;
    let WaitingRecord { ip, sp, fp, ax, bx, r13, switches, tid, own_tid, i386 } = read;
    let registers = SavedRegisters { ip, sp, fp, ax, bx, r13, i386: i386 != 0 };
    Some(StillWaiting { tid, own_tid, switches, registers })
}

/// The only frame that is known before the stack is unwound.
fn first_frame(waiting: &StillWaiting, leaf: Leaf) -> UserWord {
    match leaf {
        Leaf::Syscall => UserWord::Return(waiting.registers.ip),
        _ => UserWord::Leaf(waiting.registers.ip),
    }
}

#[cfg(test)]
#[path = "abi_tests.rs"]
mod tests;
