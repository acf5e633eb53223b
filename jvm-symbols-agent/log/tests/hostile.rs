//! The log's format, encoded and decoded again; and how a reader handles malformed logs.
#![allow(missing_docs, clippy::unwrap_used)]

use jvm_symbols_log::header::{Counters, HEADER_LEN, MAGIC, at};
use jvm_symbols_log::{
    BadHeader, ClassName, End, Header, HeaderFields, Load, LoadHead, LogKind, Method, Nodes, Out, PcDecoder,
    PcEncoder, Quotas, Reader, RecordHeader, RecordType, RecordVisitor, Stub, Unload, encode,
};

/// The received records, as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct RecordedSink(Vec<String>);

impl RecordVisitor for RecordedSink {
    fn method(&mut self, offset: u64, m: &Method<'_>) {
        let text = |b| String::from_utf8_lossy(b).into_owned();
        let lines: Vec<_> = m.lines().map(|l| (l.bci, l.line)).collect();
        let class = match m.class {
            ClassName::Named { class, file } => format!("{} {}", text(class), text(file)),
            ClassName::As(known) => format!("as {known}"),
        };
        self.0.push(format!("{offset} {class} {} {lines:?}", text(m.name)));
    }

    fn load(&mut self, load: &Load<'_>) {
        let methods: Vec<u64> = load.methods().collect();
        let mut decoder = PcDecoder::new(load.debug(), methods.len());
        let mut records = Vec::new();
        while let Some(record) = decoder.step().unwrap() {
            let chain: Vec<_> = decoder.chain().iter().map(|f| (methods[f.method as usize], f.bci)).collect();
            records.push((record.pc, chain));
        }
        self.0.push(format!("load {:x} {} {methods:?} {records:?}", load.code.start, load.code.size));
    }

    fn unload(&mut self, unload: &Unload) {
        self.0.push(format!("unload {:x} {} {}", unload.start, unload.time, unload.sequence));
    }

    fn stub(&mut self, stub: &Stub<'_>) {
        self.0.push(format!("stub {:x} {}", stub.code.start, String::from_utf8_lossy(stub.name)));
    }

    fn replay_end(&mut self) {
        self.0.push("end".to_owned());
    }
}

fn header(kind: LogKind) -> Vec<u8> {
    let mut page = [0; HEADER_LEN as usize];
    let fields = HeaderFields {
        kind,
        pid: 7,
        started: 1000,
        nonce: [9; 16],
        cap: 1 << 20,
        enabled: 900,
        lease_until: 2000,
        path: b"/tmp/agent.so",
    };
    fields.fill(&mut page);
    page[..8].copy_from_slice(&MAGIC);
    page.to_vec()
}

fn append(log: &mut Vec<u8>, kind: RecordType, body: &[u8]) -> u64 {
    let offset = log.len();
    log.extend_from_slice(&RecordHeader::new(kind, body.len() as u32).to_bytes());
    log.extend_from_slice(body);
    log.resize(log.len().next_multiple_of(8), 0);
    offset as u64
}

fn body(write: impl FnOnce(&mut Out<'_>)) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let mut out = Out::new(&mut buffer);
    write(&mut out);
    assert!(!out.overflowed());
    out.written().to_vec()
}

/// A log with each type of record, and the records as text.
fn sample() -> (Vec<u8>, RecordedSink) {
    let mut log = header(LogKind::Attach);
    let class = ClassName::Named { class: b"La/B;", file: b"B.java" };
    let lines = [(0, 10), (4, 12), (9, 11)].into_iter();
    let outer = append(&mut log, RecordType::Method, &body(|o| encode::method(o, &class, b"run", lines)));
    let class = ClassName::As(outer);
    let inner = body(|o| encode::method(o, &class, b"inner", std::iter::empty()));
    let inner = append(&mut log, RecordType::Method, &inner);
    let head = LoadHead { flags: 1, time: 5, sequence: 1, start: 0x7f00_0000_1000, size: 64 };
    let load = body(|out| {
        head.write(out);
        out.varint(2);
        out.varint(outer / 8);
        out.varint(inner / 8);
        let mut nodes = Nodes::default();
        let mut pcs = PcEncoder::new(out, &mut nodes);
        assert!(pcs.record(4, 0, [Some((0, 3))].into_iter()));
        assert!(pcs.record(9, 0, [Some((0, 4)), Some((1, -1))].into_iter()));
        assert!(pcs.record(12, 1, [Some((1, 70_000))].into_iter()));
        assert!(pcs.finish());
    });
    append(&mut log, RecordType::Load, &load);
    append(&mut log, RecordType::Skip, &[1; 13]);
    append(&mut log, RecordType::Unload, &body(|o| encode::unload(o, 8, 2, head.start)));
    append(&mut log, RecordType::Stub, &body(|o| encode::stub(o, &head, b"Interpreter")));
    append(&mut log, RecordType::ReplayEnd, &body(|o| encode::replay_end(o, 9, 3)));
    let recorded = [
        format!("{outer} La/B; B.java run [(0, 10), (4, 12), (9, 11)]"),
        format!("{inner} as {outer} inner []"),
        format!(
            "load 7f0000001000 64 [{outer}, {inner}] [(4, [({outer}, 3)]), (9, [({outer}, 4), ({inner}, -1)]), \
             (12, [({outer}, 4), ({inner}, 70000)])]"
        ),
        "unload 7f0000001000 8 2".to_owned(),
        "stub 7f0000001000 Interpreter".to_owned(),
        "end".to_owned(),
    ];
    (log, RecordedSink(recorded.into()))
}

#[test]
fn what_is_written_is_read() {
    let (log, expected) = sample();
    let mut recorded = RecordedSink::default();
    let mut reader = Reader::default();
    assert_eq!(reader.read(&log, &mut recorded).unwrap(), 7);
    assert_eq!(recorded, expected);
    assert_eq!(
        (reader.counts().unknown, reader.counts().malformed, reader.offset()),
        (1, 0, log.len() as u64)
    );
    let header = Header::read(&log).unwrap();
    assert_eq!((header.kind, header.pid, header.started), (LogKind::Attach, 7, 1000));
    assert_eq!(
        (header.lease_until, header.consumed, &*header.path),
        (2000, HEADER_LEN, &b"/tmp/agent.so"[..])
    );
}

#[test]
fn counters_are_read_back() {
    let mut log = header(LogKind::Start);
    let counters = Counters { written: 1, dropped: 2, flags: 3, events: 4, ..Counters::default() };
    let bytes = counters.to_bytes();
    log[at::WRITTEN as usize..][..bytes.len()].copy_from_slice(&bytes);
    assert_eq!(Header::read(&log).unwrap().counters, counters);
}

#[test]
fn a_truncated_log_gives_a_prefix_and_continues() {
    let (log, expected) = sample();
    for cut in HEADER_LEN as usize..log.len() {
        let mut recorded = RecordedSink::default();
        let mut reader = Reader::default();
        reader.read(&log[..cut].to_vec(), &mut recorded).unwrap();
        assert_eq!(recorded.0, expected.0[..recorded.0.len()], "cut at {cut}");
        reader.read(&log, &mut recorded).unwrap();
        assert_eq!(recorded, expected, "cut at {cut}");
    }
}

#[test]
fn the_last_record_needs_no_padding() {
    let (mut log, expected) = sample();
    let body = body(|out| encode::replay_end(out, 9, 3)).len();
    log.truncate(log.len().div_ceil(8) * 8 - 8usize.wrapping_sub(body) % 8);
    let (mut recorded, mut reader) = (RecordedSink::default(), Reader::default());
    reader.read(&log, &mut recorded).unwrap();
    assert_eq!(recorded, expected);
}

#[test]
fn a_record_without_its_word_is_not_there_yet() {
    let (mut log, expected) = sample();
    let word: [u8; 8] = log[HEADER_LEN as usize..][..8].try_into().unwrap();
    log[HEADER_LEN as usize..][..8].fill(0);
    let (mut recorded, mut reader) = (RecordedSink::default(), Reader::default());
    assert_eq!(reader.read(&log, &mut recorded).unwrap(), 0);
    log[HEADER_LEN as usize..][..8].copy_from_slice(&word);
    reader.read(&log, &mut recorded).unwrap();
    assert_eq!(recorded, expected);
}

#[test]
fn garbage_ends_a_log_when_it_is_seen_twice() {
    let (mut log, expected) = sample();
    log.extend_from_slice(&[0xaa; 64]);
    let (mut recorded, mut reader) = (RecordedSink::default(), Reader::default());
    reader.read(&log, &mut recorded).unwrap();
    reader.read(&log, &mut recorded).unwrap();
    assert_eq!((recorded, reader.end()), (expected, Some(End::Garbage)));
}

#[test]
fn quotas_hold() {
    let (log, _) = sample();
    for quotas in [Quotas { records: 3, ..Quotas::default() }, Quotas { bytes: 100, ..Quotas::default() }] {
        let (mut recorded, mut reader) = (RecordedSink::default(), Reader::new(quotas));
        reader.read(&log, &mut recorded).unwrap();
        assert_eq!(reader.end(), Some(End::Quota));
        assert!(recorded.0.len() <= 3);
    }
    let (mut recorded, mut reader) =
        (RecordedSink::default(), Reader::new(Quotas { name: 4, ..Quotas::default() }));
    reader.read(&log, &mut recorded).unwrap();
    assert_eq!(reader.counts().too_long, 3, "two methods and a stub");
}

#[test]
fn the_longest_names_of_class_files_are_read_whole() {
    let long = "x".repeat(65_535);
    let class = format!("L{long};");
    let mut log = header(LogKind::Attach);
    let named = ClassName::Named { class: class.as_bytes(), file: long.as_bytes() };
    let mut buffer = vec![0; 256 << 10];
    let mut out = Out::new(&mut buffer);
    encode::method(&mut out, &named, long.as_bytes(), std::iter::empty());
    assert!(!out.overflowed(), "the agent has as much room");
    append(&mut log, RecordType::Method, out.written());
    let (mut recorded, mut reader) = (RecordedSink::default(), Reader::default());
    reader.read(&log, &mut recorded).unwrap();
    assert_eq!(reader.counts().too_long, 0);
    assert!(recorded.0[0].contains(&format!("{class} {long} {long}")), "the names are not whole");
}

#[test]
fn a_header_that_is_none_is_refused() {
    assert!(matches!(Header::read(&vec![0; 5000]), Err(BadHeader::NotALog)));
    assert!(matches!(Header::read(&MAGIC.to_vec()), Err(BadHeader::NotALog)));
    let good = header(LogKind::Start);
    for (offset, value) in [(at::KIND, 9), (at::PATH_LEN, 255)] {
        let mut log = good.clone();
        log[offset as usize..][..4].fill(value);
        assert!(matches!(Header::read(&log), Err(BadHeader::Malformed)));
    }
    let mut log = good;
    log[at::VERSION as usize] = 99;
    assert!(matches!(Header::read(&log), Err(BadHeader::Version(99))));
}

/// splitmix64, a small generator: the same logs in every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn three_thousand_mutated_logs_are_read_to_an_end() {
    let (good, _) = sample();
    let (mut state, mut bad) = (1, 0);
    for _ in 0..3_000 {
        let mut log = good.clone();
        for _ in 0..=random(&mut state) % 8 {
            let at = HEADER_LEN as usize + random(&mut state) as usize % (log.len() - HEADER_LEN as usize);
            log[at] = match random(&mut state) % 4 {
                0 => 0xff,
                1 => 0,
                2 => log[at] ^ (1 << (random(&mut state) % 8)),
                _ => random(&mut state) as u8,
            };
        }
        let (mut recorded, mut reader) = (RecordedSink::default(), Reader::default());
        for _ in 0..3 {
            reader.read(&log, &mut recorded).unwrap();
        }
        let counts = reader.counts();
        bad += counts.malformed + counts.too_long + u64::from(reader.end().is_some());
        assert!(counts.records <= 2000);
    }
    assert!(bad > 500, "the mutations were harmless: {bad}");
}
