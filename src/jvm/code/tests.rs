//! The timeline, on logs made here.

use jvm_symbols_log::encode::code_flag;
use jvm_symbols_log::header::{HEADER_LEN, MAGIC, at};
use jvm_symbols_log::{
    ClassName, HeaderFields, LoadHead, LogKind, Nodes, Out, PcEncoder, RecordHeader, RecordType, encode,
};

use super::{CodeLimits, CodeMiss, CodeOptions, CodeTimeline, FrameKind, Validity};
use crate::sample::MonoNs;

const SECOND: u64 = 1_000_000_000;
const CODE: u64 = 0x7f00_0000_1000;

struct FakeLog {
    bytes: Vec<u8>,
    sequence: u64,
}

impl FakeLog {
    fn new() -> FakeLog {
        let mut page = [0; HEADER_LEN as usize];
        let fields = HeaderFields {
            kind: LogKind::Attach,
            pid: 7,
            started: SECOND,
            nonce: [0; 16],
            cap: 1 << 20,
            enabled: SECOND,
            lease_until: 0,
            path: b"",
        };
        fields.fill(&mut page);
        page[..8].copy_from_slice(&MAGIC);
        FakeLog { bytes: page.to_vec(), sequence: 0 }
    }

    fn append(&mut self, kind: RecordType, write: impl FnOnce(&mut Out<'_>)) -> u64 {
        let mut buffer = vec![0; 1 << 16];
        let mut out = Out::new(&mut buffer);
        write(&mut out);
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(&RecordHeader::new(kind, out.len() as u32).to_bytes());
        self.bytes.extend_from_slice(out.written());
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        offset
    }

    fn method(&mut self, name: &str) -> u64 {
        self.method_of(b"La/B;", name)
    }

    fn method_of(&mut self, class: &[u8], name: &str) -> u64 {
        let class = ClassName::Named { class, file: b"B.java" };
        let lines = [(0, 10), (8, 20)].into_iter();
        self.append(RecordType::Method, |out| encode::method(out, &class, name.as_bytes(), lines))
    }

    fn head(&mut self, seconds: u64, replayed: bool, start: u64, size: u32) -> LoadHead {
        self.sequence += 1;
        let flags = if replayed { code_flag::REPLAYED } else { 0 };
        LoadHead { flags, time: seconds * SECOND, sequence: self.sequence, start, size }
    }

    /// Code whose record at 0x10 is (root @ 1), at 0x20 (root @ 8, inlined @ 2), and at 0x30 (root @ 9).
    fn load(&mut self, seconds: u64, replayed: bool, start: u64, size: u32, root: u64, inlined: u64) {
        let head = self.head(seconds, replayed, start, size);
        self.append(RecordType::Load, |out| {
            head.write(out);
            out.varint(2);
            out.varint(root / 8);
            out.varint(inlined / 8);
            let mut nodes = Nodes::default();
            let mut pcs = PcEncoder::new(out, &mut nodes);
            assert!(pcs.record(0x10, 0, [Some((0, 1))].into_iter()));
            assert!(pcs.record(0x20, 0, [Some((0, 8)), Some((1, 2))].into_iter()));
            assert!(pcs.record(0x30, 0, [Some((0, 9))].into_iter()));
            assert!(pcs.finish());
        });
    }

    fn unload(&mut self, seconds: u64, start: u64) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.append(RecordType::Unload, |out| encode::unload(out, seconds * SECOND, sequence, start));
    }

    fn stub(&mut self, start: u64, size: u32, name: &str) {
        let head = self.head(1, true, start, size);
        self.append(RecordType::Stub, |out| encode::stub(out, &head, name.as_bytes()));
    }

    fn timeline(&self) -> CodeTimeline {
        let mut timeline = CodeTimeline::new(CodeOptions { keep: 100 * SECOND, ..CodeOptions::default() });
        timeline.read(&self.bytes).unwrap();
        timeline
    }
}

/// The compiled method's name at an address and a time.
fn root(timeline: &CodeTimeline, pc: u64, tenths: u64) -> Result<String, CodeMiss> {
    let found = timeline.lookup(pc, true, MonoNs(tenths * SECOND / 10))?;
    Ok(found.frames.last().unwrap().name.to_string())
}

fn ok(name: &str) -> Result<String, CodeMiss> {
    Ok(name.to_owned())
}

#[test]
fn what_was_asked_before_changes_no_answer() {
    let mut log = FakeLog::new();
    let (outer, inner) = (log.method("outer"), log.method("inner"));
    log.load(2, false, CODE, 0x40, outer, inner);
    log.load(2, false, CODE + 0x40, 0x40, inner, outer);
    let timeline = log.timeline();
    let at = MonoNs(3 * SECOND);
    let addresses = || CODE..=CODE + 0x90;
    for first in addresses() {
        for second in addresses() {
            let mut lookups = timeline.lookups();
            let _ = lookups.lookup(first, true, at);
            assert_eq!(lookups.lookup(second, true, at), timeline.lookup(second, true, at), "{first:#x}");
        }
    }
}

#[test]
fn an_address_belongs_to_the_record_at_or_above_it() {
    let mut log = FakeLog::new();
    let (outer, inner) = (log.method("outer"), log.method("inner"));
    log.load(2, false, CODE, 0x40, outer, inner);
    let timeline = log.timeline();
    let see = |pc: u64, leaf: bool| -> Vec<(String, FrameKind, u32, Option<u32>)> {
        let found = timeline.lookup(CODE + pc, leaf, MonoNs(3 * SECOND)).unwrap();
        assert!(!found.before_attach);
        found.frames.iter().map(|f| (f.name.to_string(), f.kind, f.line, f.bci)).collect()
    };
    let outer = |line, bci| ("a.B.outer".to_owned(), FrameKind::Compiled, line, bci);
    let inlined = vec![("a.B.inner".to_owned(), FrameKind::Inlined, 10, Some(2)), outer(20, Some(8))];
    assert_eq!(see(0, true), [outer(10, Some(1))]);
    assert_eq!(see(0x0f, true), [outer(10, Some(1))]);
    assert_eq!(see(0x10, false), [outer(10, Some(1))], "the call that returns to the record's pc");
    assert_eq!(see(0x10, true), [outer(10, Some(1))], "the instruction before it took the time");
    assert_eq!(see(0x11, true), inlined);
    assert_eq!(see(0x1c, false), inlined, "a call without a record of its own");
    assert_eq!(see(0x20, false), inlined);
    assert_eq!(see(0x20, true), inlined);
    assert_eq!(see(0x21, true), [outer(20, Some(9))]);
    assert_eq!(see(0x31, true), [outer(0, None)], "above the last record only the method is known");
    assert_eq!(see(0x40, false), [outer(0, None)], "a call at the very end");
    assert_eq!(timeline.lookup(CODE + 0x40, true, MonoNs(3 * SECOND)), Err(CodeMiss::Never));
    assert_eq!(timeline.lookup(CODE, false, MonoNs(3 * SECOND)), Err(CodeMiss::Never));
}

#[test]
fn an_address_has_one_owner_after_the_other() {
    let mut log = FakeLog::new();
    let (first, second) = (log.method("first"), log.method("second"));
    log.load(2, false, CODE, 0x40, first, first);
    log.unload(5, CODE);
    log.load(5, false, CODE - 0x10, 0x40, second, second);
    let timeline = log.timeline();
    assert_eq!(root(&timeline, CODE, 10), ok("a.B.first"), "reported late: owned from the start");
    assert_eq!(root(&timeline, CODE, 40), ok("a.B.first"));
    assert_eq!(root(&timeline, CODE, 47), Err(CodeMiss::Moved), "the unload may be reported late");
    assert_eq!(root(&timeline, CODE, 51), ok("a.B.second"), "from the logged end of the one before");
    assert_eq!(root(&timeline, CODE, 90), ok("a.B.second"));
    assert_eq!(root(&timeline, CODE + 0x30, 49), ok("a.B.first"), "no other code came here");
    assert_eq!(root(&timeline, CODE + 0x30, 60), Err(CodeMiss::Moved));
}

#[test]
fn what_came_much_later_was_not_there_yet() {
    let mut log = FakeLog::new();
    let (first, second) = (log.method("first"), log.method("second"));
    log.load(2, false, CODE, 0x40, first, first);
    log.unload(5, CODE);
    log.load(6, false, CODE, 0x40, second, second);
    let timeline = log.timeline();
    assert_eq!(root(&timeline, CODE, 49), ok("a.B.first"), "both are at most equally late");
    assert_eq!(root(&timeline, CODE, 54), ok("a.B.second"));
}

/// A class of the same name often gets the freed place at once.
#[test]
fn common_frames_are_returned_if_either_method_may_have_run() {
    let mut log = FakeLog::new();
    let (outer, inner, other) = (log.method("outer"), log.method("inner"), log.method("other"));
    let again = log.method("outer");
    log.load(2, false, CODE, 0x40, outer, inner);
    log.unload(5, CODE);
    log.load(5, false, CODE - 0x10, 0x40, again, other);
    let timeline = log.timeline();
    let see = |pc: u64, tenths: u64| -> Result<Vec<(String, u32, Option<u32>)>, CodeMiss> {
        let found = timeline.lookup(CODE + pc, true, MonoNs(tenths * SECOND / 10))?;
        Ok(found.frames.iter().map(|f| (f.name.to_string(), f.line, f.bci)).collect())
    };
    let outer = |line, bci| Ok(vec![("a.B.outer".to_owned(), line, bci)]);
    assert_eq!(see(0x20 + 1, 44), outer(20, Some(9)), "it is sure");
    assert_eq!(see(0x20 + 1, 49), outer(0, None), "above the other's last record");
    assert_eq!(see(0x00, 49), outer(10, Some(1)));
    assert_eq!(see(0x10, 49), Err(CodeMiss::Moved), "the other had inlined something there");
    assert_eq!(see(0x20 + 1, 50), outer(0, None), "it is sure, the other");
    let validity = |from, to| {
        let time = |tenths: u64| MonoNs(tenths * SECOND / 10);
        let mut lookups = timeline.lookups();
        lookups.lookup_until(CODE + 0x21, true, time(from), time(to)).map(|code| code.validity)
    };
    assert_eq!(
        [(40, 44), (44, 44), (44, 46), (46, 49), (49, 51), (51, 90)].map(|(from, to)| validity(from, to)),
        [Some(Validity::Ends), Some(Validity::Ends), None, Some(Validity::Ends), None, Some(Validity::Lasts)]
    );
}

#[test]
fn code_over_code_ends_what_was_there() {
    let mut log = FakeLog::new();
    let (first, second) = (log.method("first"), log.method("second"));
    log.load(2, false, CODE, 0x40, first, first);
    log.load(5, false, CODE, 0x40, second, second);
    let timeline = log.timeline();
    assert_eq!(root(&timeline, CODE, 30), ok("a.B.first"));
    assert_eq!(root(&timeline, CODE, 49), Err(CodeMiss::Moved));
    assert_eq!(root(&timeline, CODE, 50), ok("a.B.second"));
}

#[test]
fn what_happened_wins_over_what_is_replayed() {
    let mut log = FakeLog::new();
    let (first, second) = (log.method("first"), log.method("second"));
    log.load(3, false, CODE, 0x40, second, second);
    log.load(4, true, CODE, 0x40, first, first);
    // Unloaded while the replay was about to report it: the code was there until then.
    log.unload(5, CODE + 0x1000);
    log.load(6, true, CODE + 0x1000, 0x40, first, first);
    // Replayed, then reported again as it happened (late): one owner, from the start.
    log.load(6, true, CODE + 0x2000, 0x40, first, first);
    log.load(7, false, CODE + 0x2000, 0x40, first, first);
    log.append(RecordType::ReplayEnd, |out| encode::replay_end(out, 8 * SECOND, 9));
    let timeline = log.timeline();
    assert!(timeline.facts().replayed);
    assert_eq!(root(&timeline, CODE, 100), ok("a.B.second"));
    assert_eq!(root(&timeline, CODE + 0x1000, 40), ok("a.B.first"));
    assert_eq!(root(&timeline, CODE + 0x1000, 60), Err(CodeMiss::Moved));
    assert_eq!(root(&timeline, CODE + 0x2000, 20), ok("a.B.first"));
    let before = |pc, tenths| timeline.lookup(pc, true, MonoNs(tenths * SECOND / 10)).unwrap().before_attach;
    assert!(before(CODE + 0x1000, 40) && !before(CODE, 100) && !before(CODE + 0x2000, 20));
}

#[test]
fn of_stubs_the_narrowest_is_meant_and_methods_replace_them() {
    let mut log = FakeLog::new();
    let method = log.method("run");
    log.stub(CODE, 0x4000, "StubRoutines");
    log.stub(CODE + 0x100, 0x20, "arraycopy");
    log.stub(CODE + 0x8000, 0x20, "I2C/C2I adapters");
    log.load(5, false, CODE + 0x8000, 0x40, method, method);
    let timeline = log.timeline();
    assert_eq!(root(&timeline, CODE + 0x110, 20), ok("arraycopy"));
    assert_eq!(root(&timeline, CODE + 0x120, 20), ok("StubRoutines"));
    assert_eq!(root(&timeline, CODE + 0x8000, 20), ok("I2C/C2I adapters"));
    assert_eq!(root(&timeline, CODE + 0x8000, 60), ok("a.B.run"));
}

#[test]
fn clocks_differ_by_the_offset_of_the_time_namespace() {
    let mut log = FakeLog::new();
    let method = log.method("run");
    log.load(2, false, CODE, 0x40, method, method);
    log.unload(5, CODE);
    let mut timeline =
        CodeTimeline::new(CodeOptions { clock_offset: -(SECOND as i64), ..CodeOptions::default() });
    timeline.read(&log.bytes).unwrap();
    assert_eq!(root(&timeline, CODE, 55), ok("a.B.run"), "4.5 s in the JVM");
    assert_eq!(root(&timeline, CODE, 65), Err(CodeMiss::Moved));
}

#[test]
fn method_handle_intrinsics_have_no_wrong_name() {
    let mut log = FakeLog::new();
    for (class, name, shown) in [
        (
            &b"Ljava/lang/invoke/MethodHandle;"[..],
            "linkToStatic",
            "java.lang.invoke.MethodHandle.[intrinsic]",
        ),
        (b"Ljava/lang/invoke/MethodHandle;", "invokeBasic", "java.lang.invoke.MethodHandle.[intrinsic]"),
        (b"Ljava/lang/invoke/MethodHandle;", "asType", "java.lang.invoke.MethodHandle.asType"),
        (b"La/MethodHandle;", "linkToStatic", "a.MethodHandle.linkToStatic"),
    ] {
        let method = log.method_of(class, name);
        log.load(2, false, CODE, 0x40, method, method);
        assert_eq!(root(&log.timeline(), CODE, 30), ok(shown));
    }
}

#[test]
fn what_is_missing_is_said() {
    let mut log = FakeLog::new();
    log.load(2, false, CODE, 0x40, 8 * 999, 8 * 999);
    let mut timeline = log.timeline();
    let frames = timeline.lookup(CODE, true, MonoNs(3 * SECOND)).unwrap().frames;
    assert_eq!((frames[0].kind, &*frames[0].name), (FrameKind::Unnamed, ""));
    assert_eq!(timeline.lookup(1, true, MonoNs(0)), Err(CodeMiss::Never));
    log.bytes[at::DROPPED as usize] = 1;
    timeline.read(&log.bytes).unwrap();
    assert_eq!(timeline.lookup(1, true, MonoNs(0)), Err(CodeMiss::Cut));
}

/// Memory of a timeline with these limits for names or code, and the number of refused records.
fn kept(log: &FakeLog, limits: CodeLimits) -> (usize, u64) {
    let mut timeline = CodeTimeline::new(CodeOptions { limits, ..CodeOptions::default() });
    timeline.read(&log.bytes).unwrap();
    assert!(timeline.facts().is_cut() || timeline.facts().refused == 0);
    (timeline.facts().bytes, timeline.facts().refused)
}

#[test]
fn stubs_that_are_refused_leave_no_names() {
    let mut log = FakeLog::new();
    for n in 0..1000 {
        log.stub(CODE + 0x1000 * n, 0x20, &format!("{n:01000}"));
    }
    let (all, refused) = kept(&log, CodeLimits::default());
    assert!(all > 1_000_000 && refused == 0, "{all}");
    let (few, refused) = kept(&log, CodeLimits { code: 10, ..CodeLimits::default() });
    assert!(few < all / 90 && refused == 990, "{few} of {all}, {refused}");
    let (bounded, refused) = kept(&log, CodeLimits { name_bytes: 100_000, ..CodeLimits::default() });
    assert!(bounded < all / 5 && refused > 900, "{bounded} of {all}, {refused}");
}

#[test]
fn long_code_takes_memory_for_each_of_its_pages() {
    let mut log = FakeLog::new();
    let method = log.method("run");
    for n in 0..1000 {
        log.load(2, false, CODE + 0x100_0000 * n, 0x100_0000, method, method);
    }
    let (bytes, refused) = kept(&log, CodeLimits { code_bytes: 10 << 20, ..CodeLimits::default() });
    // Each piece of code has 4,096 pages.
    assert!((10 << 20..11 << 20).contains(&bytes) && (960..990).contains(&refused), "{bytes}, {refused}");
}

#[test]
fn code_that_lies_on_much_other_code_is_looked_at_for_a_while() {
    let mut log = FakeLog::new();
    let method = log.method("run");
    for n in 0..100 {
        log.load(2 + n, false, CODE, 0x10_0000, method, method);
        log.unload(2 + n, CODE);
    }
    let limits = CodeLimits { visits: 256 * 50, ..CodeLimits::default() };
    let mut timeline =
        CodeTimeline::new(CodeOptions { limits, keep: 1000 * SECOND, ..CodeOptions::default() });
    timeline.read(&log.bytes).unwrap();
    let refused = timeline.facts().refused;
    assert!(refused > 150 && timeline.facts().is_cut(), "{refused}");
    // The next read has its own limit.
    log.load(200, false, CODE + 0x100_0000, 0x40, method, method);
    timeline.read(&log.bytes).unwrap();
    assert_eq!(
        (root(&timeline, CODE + 0x100_0000, 2010), timeline.facts().refused),
        (ok("a.B.run"), refused)
    );
}

#[test]
fn code_that_is_long_gone_is_forgotten() {
    let mut log = FakeLog::new();
    let method = log.method("run");
    for second in 2..1000 {
        log.load(second, false, CODE, 0x40, method, method);
        log.unload(second, CODE);
    }
    let mut timeline = CodeTimeline::new(CodeOptions::default());
    timeline.read(&log.bytes).unwrap();
    assert!((25..=35).contains(&timeline.facts().code), "{}", timeline.facts().code);
}
