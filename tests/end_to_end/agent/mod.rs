//! The agent in real JVMs: its log agrees with the source, and it harms nothing.

mod elf;
mod jvm;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use jbpf_prof::jvm::code::{self, CodeOptions, CodeTimeline, FrameKind, JavaFrame};
use jbpf_prof::sample::MonoNs;
use jvm_symbols_log::header::{HEADER_LEN, event, flag};
use jvm_symbols_log::{
    ClassName, Header, Load, LogKind, Method, PcDecoder, ReadAt, Reader, RecordVisitor, Stub, Unload,
};
use rustix::fs::{SealFlags, fcntl_get_seals};

use self::jvm::{Jdk, Jvm, agent};

/// Flags that make the JIT compile `Inlined.top` as the source says.
const FLAGS: [&str; 6] = [
    "-XX:CompileCommand=quiet",
    "-XX:CompileCommand=dontinline,Inlined.top",
    "-XX:CompileCommand=dontinline,Inlined.sink",
    "-XX:CompileCommand=inline,Inlined.middle",
    "-XX:CompileCommand=inline,Inlined.leaf",
    "-Xbatch",
];

fn inlined(jdk: &Jdk, more: &[&str]) -> Jvm {
    let flags: Vec<&str> = FLAGS.iter().chain(more).copied().collect();
    jdk.start("Inlined", &flags)
}

/// The name of a method that has no record in a log, because the rest of the log was too small for the record. A load
/// record, which is smaller, may have had room after that.
const UNLOGGED: &str = "";

/// All records of a log.
#[derive(Debug, Default)]
struct Everything {
    classes: HashMap<u64, (String, String)>,
    methods: HashMap<u64, String>,
    loads: Vec<LoadSeen>,
    stubs: Vec<String>,
    replayed_stubs: usize,
    replay_ended: bool,
}

#[derive(Debug)]
struct LoadSeen {
    root: String,
    start: u64,
    replayed: bool,
    /// Methods without a record.
    unlogged: usize,
    records: Vec<(u32, Vec<(String, i32)>)>,
}

impl Everything {
    /// Reads a log. Only a log that was too small may lack a method of its loads.
    fn read(log: &impl ReadAt) -> Everything {
        let mut all = Everything::default();
        let mut reader = Reader::default();
        reader.read(log, &mut all).unwrap();
        let counts = reader.counts();
        assert_eq!((counts.malformed, counts.too_long, counts.unknown), (0, 0, 0));
        assert!(reader.end().is_none() && counts.records > 0);
        let unlogged = all.loads.iter().find(|load| load.unlogged > 0);
        let is_full = Header::read(log).unwrap().has(flag::FULL);
        assert!(unlogged.is_none() || is_full, "the log is not full: {unlogged:?}");
        all
    }

    fn loads_of<'a>(&'a self, root: &'a str) -> impl Iterator<Item = &'a LoadSeen> {
        self.loads.iter().filter(move |load| load.root == root)
    }
}

impl RecordVisitor for Everything {
    fn method(&mut self, offset: u64, m: &Method<'_>) {
        let text = |b| String::from_utf8_lossy(b).into_owned();
        let class = match m.class {
            ClassName::Named { class, file } => (text(class), text(file)),
            ClassName::As(known) => self.classes[&known].clone(),
        };
        self.methods.insert(offset, format!("{}{}", class.0, text(m.name)));
        self.classes.insert(offset, class);
    }

    fn load(&mut self, load: &Load<'_>) {
        // The offset 0 stands for a method that is not in the log.
        let name = |offset: u64| if offset == 0 { UNLOGGED } else { self.methods[&offset].as_str() };
        let methods: Vec<String> = load.methods().map(|offset| name(offset).to_owned()).collect();
        let unlogged = methods.iter().filter(|name| *name == UNLOGGED).count();
        let mut decoder = PcDecoder::new(load.debug(), methods.len());
        let mut records = Vec::new();
        while let Some(record) = decoder.step().unwrap() {
            let chain = decoder.chain().into_iter().map(|f| (methods[f.method as usize].clone(), f.bci));
            records.push((record.pc, chain.collect()));
        }
        let (root, start, replayed) = (methods[0].clone(), load.code.start, load.code.replayed);
        self.loads.push(LoadSeen { root, start, replayed, unlogged, records });
    }

    fn unload(&mut self, _: &Unload) {}

    fn stub(&mut self, stub: &Stub<'_>) {
        self.replayed_stubs += usize::from(stub.code.replayed);
        self.stubs.push(String::from_utf8_lossy(stub.name).into_owned());
    }

    fn replay_end(&mut self) {
        self.replay_ended = true;
    }
}

const TOP: &str = "LInlined;top";

/// The call of `sink` is at bytecode 1 of each of the three methods (`iload_0` is one byte long).
fn chain_of_the_call() -> Vec<(String, i32)> {
    ["top", "middle", "leaf"].map(|name| (format!("LInlined;{name}"), 1)).to_vec()
}

/// The absolute pc of the record for the call of `sink` in the newest code of `top`.
fn return_address(all: &Everything) -> u64 {
    let load = all.loads_of(TOP).last().expect("top was compiled");
    let chain = chain_of_the_call();
    let found: Vec<u32> = load.records.iter().filter(|(_, c)| *c == chain).map(|(pc, _)| *pc).collect();
    assert!(!found.is_empty(), "{load:?}");
    // The call's record is the last one of that chain; records before it end within the call.
    load.start + u64::from(*found.last().unwrap())
}

fn timeline(log: &File) -> CodeTimeline {
    let mut timeline = CodeTimeline::new(CodeOptions::default());
    timeline.read(log).unwrap();
    timeline
}

fn described(frame: &JavaFrame) -> (FrameKind, &str, u32, Option<u32>) {
    assert_eq!(frame.method.as_ref().and_then(|m| m.file.as_deref()), Some("Inlined.java"));
    (frame.kind, &frame.name, frame.line, frame.bci)
}

#[test]
fn logged_from_the_start_inlined_chains_are_those_of_the_source() {
    for jdk in Jdk::all() {
        let agent = agent();
        let jvm = inlined(&jdk, &[&format!("-agentpath:{agent}=nonce=5a,path={agent}")]);
        let [log] = &jvm.logs()[..] else { panic!("{}: one log, no more", jdk.version) };
        let header = Header::read(log).unwrap();
        assert_eq!((header.kind, header.nonce[0], &*header.path), (LogKind::Start, 0x5a, agent.as_bytes()));
        assert_eq!(header.counters.dropped, 0);
        let all = Everything::read(log);
        assert!(all.loads.iter().all(|load| !load.replayed));
        let pc = return_address(&all);
        assert!(
            all.stubs.iter().any(|name| name.contains("adapter") || name == "Interpreter"),
            "{:?}",
            all.stubs
        );

        let timeline = timeline(log);
        assert!(!timeline.facts().is_cut());
        let frames = timeline.lookup(pc, false, MonoNs(header.started)).unwrap().frames;
        let frames: Vec<_> = frames.iter().map(described).collect();
        assert_eq!(
            frames,
            [
                (FrameKind::Inlined, "Inlined.leaf", 10, Some(1)),
                (FrameKind::Inlined, "Inlined.middle", 14, Some(1)),
                (FrameKind::Compiled, "Inlined.top", 18, Some(1)),
            ]
        );
        eprintln!("{}: {} loads, {} stubs", jdk.version, all.loads.len(), all.stubs.len());
    }
}

#[test]
fn three_late_attaches_have_three_whole_logs_and_the_jvm_complains_of_nothing() {
    for jdk in Jdk::all() {
        let mut jvm = inlined(&jdk, &["-Xcheck:jni"]);
        for nonce in 1..=3 {
            jdk.attach(&jvm, &format!("nonce={nonce:02x},lease=600"));
        }
        jvm.again();
        assert_eq!(jvm.logs().len(), 3);
        for nonce in 1..=3 {
            let log = jvm.log(nonce).expect("a log for each nonce");
            let header = Header::read(&log).unwrap();
            assert!(header.counters.replay.done >= header.counters.replay.begun);
            assert!(header.counters.replay.begun >= header.started);
            let all = Everything::read(&log);
            assert!(all.replay_ended && all.loads_of(TOP).any(|load| load.replayed));
            let _ = return_address(&all);
        }
        assert_ends_quietly(jvm, &jdk);
    }
}

/// Ends a JVM that checks what native code does (`-Xcheck:jni`); it must not have complained.
#[track_caller]
fn assert_ends_quietly(jvm: Jvm, jdk: &Jdk) {
    let said = jvm.finish();
    for bad in ["WARNING in native", "FATAL ERROR", "JNI local refs", "pending exception"] {
        assert!(!said.contains(bad), "{}: {said}", jdk.version);
    }
}

/// A log is sealed, and its memory is given back. A log whose lease is past is closed, and makes room.
#[test]
fn logs_are_sealed_and_end_with_their_lease() {
    for jdk in Jdk::all() {
        let jvm = inlined(&jdk, &[]);
        for nonce in 1..=6 {
            jdk.attach(&jvm, &format!("nonce={nonce:02x},lease=600"));
        }
        assert_eq!(jvm.logs().len(), 4, "four attach logs, the fifth and sixth find no room");
        assert!(jvm.log(5).is_none());
        assert_sealed(&jvm.log(1).unwrap());
        let ended = jvm.log(2).unwrap();
        code::end(&ended).unwrap();
        jdk.attach(&jvm, "nonce=07,lease=600");
        assert!(Header::read(&ended).unwrap().has(flag::CLOSED));
        assert!(jvm.log(2).is_none() && jvm.log(7).is_some());
        assert_eq!(jvm.logs().len(), 4);
        assert!(Everything::read(&jvm.log(7).unwrap()).loads_of(TOP).count() > 0);
    }
}

/// Asserts that a log of a late attach cannot be cut by a reader, and that a reader can give its memory back.
fn assert_sealed(log: &File) {
    let seals = fcntl_get_seals(log).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::SEAL), "{seals:?}");
    assert!(log.set_len(0).is_err());

    let mut timeline = timeline(log);
    let before = log.metadata().unwrap().blocks();
    code::release(log, timeline.read_to()).unwrap();
    let after = log.metadata().unwrap().blocks();
    assert!(after < before && after <= 32, "{before} {after}");
    assert_eq!(Header::read(log).unwrap().consumed, timeline.read_to());
    // Records that were read stay known, and reading goes on. A new reader has missed them.
    let facts = timeline.facts();
    assert!(facts.replayed && facts.methods > 2, "{facts:?}");
    timeline.read(log).unwrap();
    let mut late = CodeTimeline::new(CodeOptions::default());
    late.read(log).unwrap();
    assert!(late.facts().head_missing && late.facts().is_cut());
}

/// Only one agent can have the samples of allocations, and it gives them back when its profiler is gone.
#[test]
fn samples_of_allocations_end_with_their_lease() {
    let copies = tempfile::tempdir().unwrap();
    let other = copies.path().join("other.so");
    std::fs::copy(agent(), &other).unwrap();
    let other = other.to_str().unwrap();
    for jdk in Jdk::all() {
        let mut jvm = inlined(&jdk, &["-Xcheck:jni"]);
        let samples = |jvm: &Jvm, nonce: u8| {
            let header = Header::read(&jvm.log(nonce).expect("a log for each nonce")).unwrap();
            header.counters.events & event::ALLOCATION != 0
        };
        jdk.attach(&jvm, "nonce=01,lease=600");
        assert!(!samples(&jvm, 1), "it was not asked");
        jdk.attach(&jvm, "nonce=02,lease=600,alloc=16,klass=72");
        if !samples(&jvm, 2) {
            assert!(jdk.version.starts_with("1.8"), "{}", jdk.version);
            continue;
        }
        jvm.again();
        jdk.attach(&jvm, "nonce=03,lease=600,alloc=16");
        jdk.attach_file(&jvm, other, "nonce=04,lease=600,alloc=16");
        assert!(!samples(&jvm, 3) && !samples(&jvm, 4), "another log has them");
        assert!(samples(&jvm, 2));
        code::end(&jvm.log(2).unwrap()).unwrap();
        // The program allocates, so the agent notices.
        jvm.again();
        jdk.attach_file(&jvm, other, "nonce=05,lease=600,alloc=16");
        assert!(samples(&jvm, 5), "{}: the event was on", jdk.version);
        code::end(&jvm.log(5).unwrap()).unwrap();
        jvm.again();
        jdk.attach(&jvm, "nonce=06,lease=600,alloc=16");
        assert!(samples(&jvm, 6), "{}: it can be asked once more", jdk.version);
        assert_ends_quietly(jvm, &jdk);
    }
}

#[test]
fn a_full_log_says_so_and_the_jvm_runs_on() {
    for jdk in Jdk::all() {
        let mut jvm = inlined(&jdk, &[&format!("-agentpath:{}=cap=8192", agent())]);
        jdk.attach(&jvm, "nonce=01,lease=600,stubs=0");
        jvm.again();
        let start = &jvm.logs()[0];
        let header = Header::read(start).unwrap();
        assert_eq!(header.kind, LogKind::Start);
        assert!(header.counters.written <= 8192 + HEADER_LEN);
        assert!(header.has(flag::FULL) && header.counters.dropped > 0);
        assert!(!Everything::read(start).stubs.is_empty() && timeline(start).facts().is_cut());
        // A late attach is not affected: its log is complete. Of the stubs, which it did not ask for, it has those that
        // the JVM has made since.
        let attached = jvm.log(1).unwrap();
        let all = Everything::read(&attached);
        assert!(all.replayed_stubs == 0 && !timeline(&attached).facts().is_cut());
        let _ = return_address(&all);
        jvm.finish();
    }
}
