//! Names and numbers are those of `bpf/abi.h`, and records are read or refused. `abi.rs` compares layouts when it is
//! compiled.

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
    let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} "))).expect(name);
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
        ("JP_STUB_RULES", unwind::hotspot::MAX_STUB_RULES as u64),
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
    let bytes =
        record_bytes(&[0xffff_ffff_8100_0000], &[1 << TAG_SHIFT | 0x1000, 0x2000, 4 << TAG_SHIFT | 0x3000]);
    let ArrivedStack { stack, parity } =
        parse_record(&bytes, &EventNumbers::default()).expect("a good record");
    assert_eq!(
        (parity, stack.at, stack.leaf, stack.stop_reason),
        (1, MonoNs(42), Leaf::Syscall, StopReason::Root)
    );
    assert_eq!(stack.comm, b"java");
    assert_eq!(stack.kernel, [0xffff_ffff_8100_0000]);
    assert_eq!(stack.user, [UserWord::Leaf(0x1000), UserWord::Return(0x2000), UserWord::Followed(0x3000)]);
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
    assert_eq!((span.trace.0[0], span.trace.0[15], span.span.0), (1, 16, [17, 18, 19, 20, 21, 22, 23, 24]));
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
