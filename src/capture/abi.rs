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
const _: () = assert!(size_of::<IdleAddresses>() == 64);

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
mod tests {
    use super::*;
    use crate::process::hierarchy::Controller;
    use crate::sample::word::{TAG_FOLLOWED, TAG_INTERPRETED, TAG_LEAF, TAG_RETURN, TAG_SHIFT};
    use crate::sample::{DynamicEvent, Event};

    /// The names in `#define LIST(X) X(a) X(b) …` of `bpf/abi.h`.
    fn list(name: &str) -> Vec<String> {
        let header = include_str!("../../bpf/abi.h");
        let line = header.lines().find(|l| l.starts_with(&format!("#define {name}(X)"))).expect(name);
        line.split("X(").skip(1).map(|x| x.split(')').next().unwrap().replace('_', " ")).collect()
    }

    #[test]
    fn lists_are_those_of_the_header() {
        assert_eq!(list("JP_LOSSES"), LOSSES);
        let kernels = |c: &Controller| c.name().replace("blkio", "io").replace('_', " ");
        let controllers: Vec<String> = Controller::ALL.iter().map(kernels).collect();
        assert_eq!(list("JP_CONTROLLERS"), controllers);
        let ends: Vec<_> = (0..).map_while(stop_reason).map(|e| format!("{e:?}").to_lowercase()).collect();
        assert_eq!(list("JP_ENDS").iter().map(|e| e.replace(' ', "")).collect::<Vec<_>>(), ends);
        let events: Vec<String> = Event::FIXED.iter().map(|event| event.name().replace('-', " ")).collect();
        assert_eq!(list("JP_EVENTS"), events);
        assert_eq!(list("JP_STATES"), ThreadState::ALL.map(ThreadState::name));
        let kinds = (0..).map(|kind| LockRecord { kind, ..LockRecord::default() });
        let kinds = kinds.skip(1).map_while(LockRecord::lock);
        let kinds: Vec<String> = kinds.map(|lock| format!("{:?}", lock.kind).to_lowercase()).collect();
        assert_eq!(list("JP_LOCKS")[1..], kinds);
        let of = |context| format!("{context:?}").split('(').next().unwrap().to_lowercase();
        let contexts: Vec<String> = (0..).map_while(|code| context(code, &[0; 24])).map(of).collect();
        assert_eq!(list("JP_CONTEXTS"), contexts);
        let leaves: Vec<String> = (0..).map_while(leaf).map(|l| format!("{l:?}").to_lowercase()).collect();
        assert_eq!(list("JP_LEAVES"), leaves);
    }

    /// The value of `#define NAME NUMBER` in `bpf/abi.h`.
    fn number(name: &str) -> u64 {
        let header = include_str!("../../bpf/abi.h");
        let line =
            header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} "))).expect(name);
        let value = line.split_whitespace().next().unwrap();
        value.trim_end_matches("ULL").parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        use crate::unwind;
        for (name, here) in [
            ("JP_ABI_VERSION", u64::from(VERSION)),
            ("JP_CONTEXT_WORDS", size_of::<SpanWords>() as u64 / 8),
            ("JP_WORD_TAG_SHIFT", TAG_SHIFT.into()),
            ("JP_STATE_SHIFT", STATE_SHIFT.into()),
            ("JP_WORD_RETURN", TAG_RETURN),
            ("JP_WORD_LEAF", TAG_LEAF),
            ("JP_WORD_INTERPRETED", TAG_INTERPRETED),
            ("JP_WORD_FOLLOWED", TAG_FOLLOWED),
            ("JP_IDLE_ADDRESSES", IdleAddresses::default().0.len() as u64),
            ("JP_ESTIMATE_UNIT", Estimate::whole(1).units()),
            ("JP_PAGE_SIZE", unwind::PAGE as u64),
            ("JP_CHUNK_PAGES", unwind::CHUNK_PAGES.into()),
            ("JP_EVENT_SLOTS", DynamicEvent::AT_ONCE as u64),
            ("JP_CHUNKS", unwind::CHUNKS.into()),
            ("JP_MAX_RANGES", unwind::space::MAX_RANGES as u64),
            ("JP_STEP_SHIFT", unwind::table::STEP_SHIFT.into()),
            ("JP_VM_STUBS", unwind::hotspot::MAX_STUBS as u64),
            ("JP_BLOB_BYTES", unwind::hotspot::BLOB_BYTES.into()),
            ("JP_MAX_LEVEL", crate::process::group::MAX_LEVEL.into()),
        ] {
            assert_eq!(number(name), here, "{name}");
        }
    }

    fn record_bytes(kernel: &[u64], user: &[u64]) -> Vec<u8> {
        let record = SampleRecord {
            version: VERSION,
            leaf: 1,
            stop_reason: 0,
            kernel_words: u16::try_from(kernel.len()).unwrap(),
            user_words: u16::try_from(user.len()).unwrap(),
            window: 1,
            ktime: 42,
            comm: *b"java\0\0\0\0\0\0\0\0\0\0\0\0",
            ..SampleRecord::default()
        };
        let mut bytes = record.as_bytes().to_vec();
        bytes.extend(kernel.iter().chain(user).flat_map(|w| w.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_record_is_read() {
        let bytes = record_bytes(
            &[0xffff_ffff_8100_0000],
            &[1 << TAG_SHIFT | 0x1000, 0x2000, 4 << TAG_SHIFT | 0x3000],
        );
        let ArrivedStack { stack, parity } =
            parse_record(&bytes, &EventNumbers::default()).expect("a good record");
        assert_eq!(
            (parity, stack.at, stack.leaf, stack.stop_reason),
            (1, MonoNs(42), Leaf::Syscall, StopReason::Root)
        );
        assert_eq!(stack.comm, b"java");
        assert_eq!(stack.kernel, [0xffff_ffff_8100_0000]);
        assert_eq!(
            stack.user,
            [UserWord::Leaf(0x1000), UserWord::Return(0x2000), UserWord::Followed(0x3000)]
        );
    }

    #[test]
    fn the_ids_of_a_span_follow_the_words() {
        let mut bytes = record_bytes(&[1], &[2]);
        bytes[offset_of!(SampleRecord, context)] = 1;
        let numbers = EventNumbers::default();
        assert!(parse_record(&bytes, &numbers).is_none(), "the ids are missing");
        bytes.extend(1..=24);
        let stack = parse_record(&bytes, &numbers).expect("a good record").stack;
        let span = stack.context.span().expect("a span");
        assert_eq!(
            (span.trace.0[0], span.trace.0[15], span.span.0),
            (1, 16, [17, 18, 19, 20, 21, 22, 23, 24])
        );
        assert_eq!((stack.kernel.len(), stack.user.len()), (1, 1));
        bytes[offset_of!(SampleRecord, context)] = 9;
        assert!(parse_record(&bytes, &numbers).is_none(), "no such context");
    }

    #[test]
    fn an_interpreted_frame_has_two_words() {
        let words = [1 << TAG_SHIFT | 0x1000, TAG_INTERPRETED << TAG_SHIFT | 0x7f00, 0x7f40, 0x2000];
        let record = parse_record(&record_bytes(&[], &words), &EventNumbers::default());
        let stack = record.expect("a good record").stack;
        let interpreted = UserWord::Interpreted { method: 0x7f00, bcp: 0x7f40 };
        assert_eq!(stack.user, [UserWord::Leaf(0x1000), interpreted, UserWord::Return(0x2000)]);
    }

    #[test]
    fn a_cut_or_foreign_record_is_refused() {
        let parse = |bytes: &[u8]| parse_record(bytes, &EventNumbers::default());
        let bytes = record_bytes(&[1], &[2, 3]);
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len]).is_none(), "{len} bytes");
        }
        let unknown_tag = record_bytes(&[], &[7 << TAG_SHIFT]);
        assert!(parse(&unknown_tag).is_none());
        let half = record_bytes(&[], &[TAG_INTERPRETED << TAG_SHIFT | 0x1000]);
        assert!(parse(&half).is_none());
        let mut other_version = bytes;
        other_version[0] = 99;
        assert!(parse(&other_version).is_none());
    }
}
