//! Java addresses through a log in the agent's format.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use jbpf_prof::jvm::vm::{StubBlob, StubBlobs};
use jbpf_prof::profile::{Frame, Kind, UnknownReason};
use jbpf_prof::sample::{MonoNs, ProcessId, Stack, StopReason, UserWord};
use jbpf_prof::symbolize::{JvmLog, Symbolizer};
use jvm_symbols_log::encode::{self, code_flag};
use jvm_symbols_log::header::{HEADER_LEN, MAGIC, at};
use jvm_symbols_log::{
    ClassName, HeaderFields, LoadHead, LogKind, Nodes, Out, PcEncoder, RecordHeader, RecordType,
};
use rustix::fs::{MemfdFlags, memfd_create};

use super::common::{GENERATED, Space, chain, frames, names, offset_of, stack, start};

/// The address and size of code in these tests.
const CODE: u64 = GENERATED;
const SIZE: u32 = 0x100;

fn followed(file: File) -> JvmLog {
    JvmLog { file, clock_offset_ns: 0, consume: false, blobs: StubBlobs::default() }
}

/// An agent log that a test writes.
struct Log {
    file: File,
    end: u64,
    sequence: u64,
}

impl Log {
    fn new() -> Log {
        let file = File::from(memfd_create("jvm-symbols", MemfdFlags::CLOEXEC).unwrap());
        let fields = HeaderFields {
            kind: LogKind::Attach,
            pid: 1,
            started: 1,
            nonce: [7; 16],
            cap: 1 << 30,
            enabled: 1,
            lease_until: u64::MAX,
            path: b"",
        };
        let mut page = [0; HEADER_LEN as usize];
        fields.fill(&mut page);
        file.write_all_at(&page, 0).unwrap();
        file.write_all_at(&MAGIC, at::MAGIC).unwrap();
        Log { file, end: HEADER_LEN, sequence: 0 }
    }

    fn reader(&self) -> File {
        self.file.try_clone().unwrap()
    }

    /// Writes a record; returns its offset.
    fn record(&mut self, kind: RecordType, body: impl FnOnce(&mut Out<'_>)) -> u64 {
        let mut buffer = vec![0; 64 << 10];
        let mut out = Out::new(&mut buffer);
        body(&mut out);
        assert!(!out.overflowed());
        let word = RecordHeader::new(kind, u32::try_from(out.len()).unwrap());
        let offset = self.end;
        self.file.write_all_at(out.written(), offset + RecordHeader::LEN).unwrap();
        self.file.write_all_at(&word.to_bytes(), offset).unwrap();
        self.end += word.record_len();
        self.sequence += 1;
        self.file.set_len(self.end.next_multiple_of(4096)).unwrap();
        offset
    }

    fn method(&mut self, class: &str, name: &str) -> u64 {
        let class = format!("L{};", class.replace('.', "/"));
        let class = ClassName::Named { class: class.as_bytes(), file: b"Source.java" };
        let lines = [(0, 10), (5, 20)].into_iter();
        self.record(RecordType::Method, |out| encode::method(out, &class, name.as_bytes(), lines))
    }

    /// Logs code of the first method. Up to the middle of the code the others are inlined, one into the other.
    fn load(&mut self, flags: u8, time: u64, start: u64, methods: &[u64]) {
        let head = LoadHead { flags, time, sequence: self.sequence, start, size: SIZE };
        self.record(RecordType::Load, |out| {
            head.write(out);
            out.varint(methods.len() as u64);
            methods.iter().for_each(|m| out.varint(m / 8));
            let mut nodes = Nodes::default();
            let mut pcs = PcEncoder::new(out, &mut nodes);
            let count = u32::try_from(methods.len()).unwrap();
            let chain: Vec<_> = (0..count).map(|m| Some((m, 5))).collect();
            assert!(pcs.record(SIZE / 2, 0, chain.into_iter()));
            assert!(pcs.record(SIZE, 0, std::iter::once(Some((0, 0)))));
            assert!(pcs.finish());
        });
    }

    fn unload(&mut self, time: u64, start: u64) {
        let sequence = self.sequence;
        self.record(RecordType::Unload, |out| encode::unload(out, time, sequence, start));
    }
}

const JVM: ProcessId = ProcessId { tgid: 4242, start: 1, exec: 1 };

/// A process without a JVM.
const OTHER: ProcessId = ProcessId { tgid: 4343, start: 1, exec: 1 };

/// The frames of a stack of one word, sampled at this time, in tenths of a second.
fn at(symbolizer: &mut Symbolizer, word: UserWord, tenths: u64) -> Vec<std::sync::Arc<Frame>> {
    let mut stack = stack(&[word], &[], StopReason::Root);
    stack.key.process = JVM;
    stack.at = MonoNs(tenths * SECOND / 10);
    symbolizer.symbolize(&[stack], &mut Space::default()).remove(0).frames
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn inline_chains_stubs_and_unnamed_code() {
    let mut log = Log::new();
    let chain = [log.method("a.b.Outer", "run"), log.method("a.b.Mid", "call"), log.method("c.Leaf", "spin")];
    log.load(0, SECOND, CODE, &chain);
    let head = LoadHead { flags: 0, time: SECOND, sequence: 9, start: CODE + 0x1000, size: SIZE };
    log.record(RecordType::Stub, |out| encode::stub(out, &head, b"Interpreter"));
    let head = LoadHead { start: CODE + 0x2000, ..head };
    log.record(RecordType::Stub, |out| encode::stub(out, &head, b"StubRoutines (1)"));
    let mut symbolizer = start();
    symbolizer.add_agent_log(JVM, followed(log.reader()));
    let read = symbolizer.refresh_jvm_sources(&HashSet::new());
    assert_eq!((read[0].process, read[0].stats.records, read[0].stats.code), (JVM, 6, 3));

    let frames = at(&mut symbolizer, UserWord::Leaf(CODE + 1), 20);
    assert_eq!(names(&frames), ["a.b.Outer.run", "a.b.Mid.call", "c.Leaf.spin"]);
    let kinds: Vec<Kind> = frames.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::Java, Kind::JavaInlined, Kind::JavaInlined]);
    assert_eq!(
        (frames[2].file.as_deref(), frames[2].line, frames[2].bci),
        (Some("Source.java"), 20, Some(5))
    );
    // The record in the middle ends there. A call that returns to it is in the chain. So is a leaf at it, since the
    // clock interrupts after the instruction that took the time. The next address is not.
    let middle = CODE + u64::from(SIZE) / 2;
    assert_eq!(at(&mut symbolizer, UserWord::Return(middle), 20).len(), 3);
    assert_eq!(at(&mut symbolizer, UserWord::Leaf(middle), 20).len(), 3);
    assert_eq!(names(&at(&mut symbolizer, UserWord::Leaf(middle + 1), 20)), ["a.b.Outer.run"]);
    // The return address of a call that is the last instruction lies behind the code.
    let end = CODE + u64::from(SIZE);
    assert_eq!(names(&at(&mut symbolizer, UserWord::Return(end), 20)), ["a.b.Outer.run"]);
    assert_eq!(at(&mut symbolizer, UserWord::Leaf(end), 20)[0].unknown, Some(UnknownReason::NotLogged));

    let frames = at(&mut symbolizer, UserWord::Return(CODE + 0x1010), 20);
    assert_eq!((names(&frames), frames[0].kind), (vec!["Interpreter"], Kind::JavaInterpreted));
    let frames = at(&mut symbolizer, UserWord::Leaf(CODE + 0x2010), 20);
    assert_eq!((names(&frames), frames[0].kind), (vec!["StubRoutines (1)"], Kind::JvmStub));
}

#[test]
fn an_address_is_named_after_its_owner_at_the_time() {
    let mut log = Log::new();
    let (old, new) = (log.method("p.Old", "m"), log.method("p.New", "m"));
    log.load(0, SECOND, CODE, &[old]);
    let mut symbolizer = start();
    symbolizer.add_agent_log(JVM, followed(log.reader()));
    symbolizer.refresh_jvm_sources(&HashSet::new());
    let word = UserWord::Leaf(CODE + 1);
    assert_eq!(names(&at(&mut symbolizer, word, 20)), ["p.Old.m"]);
    assert_eq!(names(&at(&mut symbolizer, word, 30)), ["p.Old.m"]);
    // Now other code replaces this code: the cached name is used no more, and the past stays as it was.
    log.unload(10 * SECOND, CODE);
    log.load(0, 10 * SECOND + SECOND / 5, CODE, &[new]);
    symbolizer.refresh_jvm_sources(&HashSet::new());
    for _ in 0..2 {
        assert_eq!(names(&at(&mut symbolizer, word, 40)), ["p.Old.m"]);
        assert_eq!(names(&at(&mut symbolizer, word, 130)), ["p.New.m"]);
        assert_eq!(at(&mut symbolizer, word, 98)[0].unknown, Some(UnknownReason::CodeMoved));
    }
    // All times in one call.
    let stacks: Vec<_> = [130, 40, 140, 50, 98, 40]
        .map(|tenths| {
            let mut stack = stack(&[word], &[], StopReason::Root);
            stack.key.process = JVM;
            stack.at = MonoNs(tenths * SECOND / 10);
            stack
        })
        .into();
    let frames = frames(&mut symbolizer, &stacks, &mut Space::default());
    let names: Vec<&str> = frames.iter().map(|f| &*f[0].name).collect();
    assert_eq!(names, ["p.New.m", "p.Old.m", "p.New.m", "p.Old.m", "", "p.Old.m"]);
}

/// Stacks like those of a real machine: many share roots. A few are cut, have an invalid address, are of another
/// process, or are older than the present code.
fn stacks_of_few_roots(words: &[UserWord], leaf: UserWord) -> Vec<Stack> {
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    (0..400)
        .map(|_| {
            let mut user: Vec<UserWord> =
                (0..random(7)).map(|_| words[random(words.len() * words.len()) / words.len()]).collect();
            user.insert(0, if random(5) == 0 { UserWord::Leaf(77) } else { leaf });
            let mut stack =
                stack(&user, &[], if random(8) == 0 { StopReason::Depth } else { StopReason::Root });
            stack.key.process = if random(5) == 0 { OTHER } else { JVM };
            stack.at = MonoNs([4, 5, 13, 14][random(4)] * SECOND);
            stack
        })
        .collect()
}

#[test]
fn stacks_that_share_their_root_are_named_as_each_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let binary = chain(dir.path(), "chain", &["-g"]);
    let mut log = Log::new();
    let chain = [log.method("a.b.Outer", "run"), log.method("a.b.Mid", "call")];
    let mount = log.method("jdk.internal.vm.Continuation", "enterSpecial");
    let (old, new) = (log.method("p.Old", "m"), log.method("p.New", "m"));
    log.load(0, SECOND, CODE, &chain);
    log.load(0, SECOND, CODE + 0x1000, &[mount]);
    log.load(0, SECOND, CODE + 0x2000, &[old]);
    log.unload(10 * SECOND, CODE + 0x2000);
    log.load(0, 12 * SECOND, CODE + 0x2000, &[new]);
    let started = |log: &Log| {
        let mut symbolizer = start();
        symbolizer.add_agent_log(JVM, followed(log.reader()));
        symbolizer.refresh_jvm_sources(&HashSet::new());
        symbolizer
    };
    let mut space = Space::default();
    let base = space.add(&binary);
    let native = base + offset_of(&binary, "at_innermost");
    let words = [
        UserWord::Return(native + 1),
        UserWord::Return(CODE + 1),
        UserWord::Return(CODE + 0x2001),
        UserWord::Return(CODE + 0x1001),
        UserWord::Interpreted { method: 0, bcp: 0 },
        UserWord::Return(77),
        UserWord::Leaf(77),
    ];
    let mut stacks = stacks_of_few_roots(&words, UserWord::Leaf(native));
    let root_first =
        |stack: &Stack| -> Vec<String> { stack.user.iter().rev().map(|word| format!("{word:?}")).collect() };
    stacks.sort_by_key(root_first);
    let mut alone = started(&log);
    let each: Vec<_> = stacks
        .iter()
        .map(|stack| alone.symbolize(std::slice::from_ref(stack), &mut space).remove(0).frames)
        .collect();
    let mut together = started(&log);
    // In the first call much is not in the cache yet; in the second everything is.
    for time in ["first", "second"] {
        let frames = frames(&mut together, &stacks, &mut space);
        for ((stack, alone), together) in stacks.iter().zip(&each).zip(&frames) {
            assert_eq!(alone, together, "{time}: {stack:?}");
        }
    }
    let all: Vec<Vec<&str>> = each.iter().map(|frames| names(frames)).collect();
    let shown = |name: &str| all.iter().filter(|names| names.contains(&name)).count();
    for name in ["[truncated]", "[vthread]", "p.Old.m", "p.New.m", "a.b.Mid.call", "Interpreter"] {
        assert!(shown(name) > 20, "{name}: {}", shown(name));
    }
    let astray = |symbolizer: &Symbolizer| symbolizer.stats().unknown.get(&UnknownReason::NotMapped).copied();
    assert_eq!(astray(&together).unwrap(), astray(&alone).unwrap() * 2);
}

#[test]
fn a_lost_worker_reads_the_log_again() {
    let mut log = Log::new();
    let method = log.method("p.C", "m");
    log.load(code_flag::REPLAYED, SECOND, CODE, &[method]);
    log.load(code_flag::REPLAYED, SECOND, CODE + 0x1000, &[method]);
    let mut symbolizer = start();
    symbolizer.add_agent_log(JVM, followed(log.reader()));
    symbolizer.refresh_jvm_sources(&HashSet::new());
    assert_eq!(names(&at(&mut symbolizer, UserWord::Leaf(CODE + 1), 20)), ["p.C.m"]);
    let pid = i32::try_from(symbolizer.java_worker_pid().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(names(&at(&mut symbolizer, UserWord::Leaf(CODE + 0x1001), 20)), ["p.C.m"]);
    let stats = symbolizer.stats();
    assert_eq!(stats.worker_lost, 1);
    let leaves = stats.java_leaves[&JVM];
    assert_eq!((leaves.all, leaves.before_attach), (2, 2));
}

#[test]
fn what_was_read_is_given_back() {
    let mut log = Log::new();
    let method = log.method("p.C", "m");
    for i in 0..1000 {
        log.load(0, SECOND, CODE + i * u64::from(SIZE), &[method; 40]);
    }
    let before = log.file.metadata().unwrap().blocks();
    let mut symbolizer = start();
    symbolizer.add_agent_log(JVM, JvmLog { consume: true, ..followed(log.reader()) });
    let read = symbolizer.refresh_jvm_sources(&HashSet::new())[0].stats;
    assert_eq!(read.read_to, log.end);
    let after = log.file.metadata().unwrap().blocks();
    assert!(before > 100 && after <= 16, "{before} blocks, then {after}");
    let mut consumed = [0; 8];
    log.file.read_exact_at(&mut consumed, at::CONSUMED).unwrap();
    assert_eq!(u64::from_le_bytes(consumed), log.end);
    // More records follow, and all code is known.
    log.load(0, SECOND, CODE + 0x80_0000, &[method]);
    symbolizer.refresh_jvm_sources(&HashSet::new());
    for start in [CODE, CODE + 999 * u64::from(SIZE), CODE + 0x80_0000] {
        assert_eq!(&*at(&mut symbolizer, UserWord::Leaf(start + 1), 20)[0].name, "p.C.m");
    }
}

#[test]
fn code_that_was_read_from_the_code_cache_has_its_name_until_the_log_says_otherwise() {
    let mut log = Log::new();
    let method = [log.method("a.B", "run")];
    let stubs =
        |places: &[u64]| places.iter().map(|&start| StubBlob { start, size: SIZE, name_index: 0 }).collect();
    let blobs = StubBlobs { names: vec!["Interpreter".into()], blobs: stubs(&[CODE, CODE + 0x1000]) };
    log.load(0, 3 * SECOND, CODE, &method);
    let mut symbolizer = start();
    symbolizer.add_agent_log(JVM, JvmLog { blobs, ..followed(log.reader()) });
    symbolizer.refresh_jvm_sources(&HashSet::new());
    for (place, tenths) in [(CODE + 0x1001, 10), (CODE + 0x1001, 90), (CODE + 1, 20)] {
        let frames = at(&mut symbolizer, UserWord::Leaf(place), tenths);
        assert_eq!(
            (names(&frames).as_slice(), frames[0].kind),
            (&["Interpreter"][..], Kind::JavaInterpreted)
        );
    }
    assert_eq!(names(&at(&mut symbolizer, UserWord::Leaf(CODE + 1), 40)), ["a.B.run"]);
    assert_eq!(
        at(&mut symbolizer, UserWord::Leaf(CODE + 0x1000 + u64::from(SIZE)), 20)[0].unknown,
        Some(UnknownReason::NotLogged)
    );
}

#[test]
fn garbage_and_an_endless_log_are_cut() {
    let mut symbolizer = start();
    let garbage = Log::new();
    garbage.file.write_all_at(&[0xa5; 4096], HEADER_LEN).unwrap();
    let endless = Log::new();
    endless.file.set_len(1 << 40).unwrap();
    for log in [&garbage, &endless] {
        symbolizer.add_agent_log(JVM, followed(log.reader()));
        for _ in 0..3 {
            symbolizer.refresh_jvm_sources(&HashSet::new());
        }
        let frames = at(&mut symbolizer, UserWord::Leaf(CODE), 20);
        assert!(
            matches!(frames[0].unknown, Some(UnknownReason::LogCut | UnknownReason::NotLogged)),
            "{frames:?}"
        );
    }
    let no_log = tempfile::tempfile().unwrap();
    symbolizer.add_agent_log(JVM, followed(no_log));
    assert!(!symbolizer.refresh_jvm_sources(&HashSet::new())[0].stats.readable);
    assert_eq!(symbolizer.stats().worker_lost, 0);
}

#[test]
fn a_jvm_without_agent_has_its_own_unknown_reason() {
    let mut symbolizer = start();
    let word = UserWord::Leaf(CODE);
    assert_eq!(at(&mut symbolizer, word, 10)[0].unknown, Some(UnknownReason::AnonymousCode));
    symbolizer.mark_without_agent(JVM);
    assert_eq!(at(&mut symbolizer, word, 10)[0].unknown, Some(UnknownReason::NoAgent));
    symbolizer.add_agent_log(JVM, followed(Log::new().reader()));
    symbolizer.refresh_jvm_sources(&HashSet::new());
    assert_eq!(at(&mut symbolizer, word, 10)[0].unknown, Some(UnknownReason::NotLogged));
    symbolizer.forget(JVM);
    assert_eq!(at(&mut symbolizer, word, 10)[0].unknown, Some(UnknownReason::AnonymousCode));
}
