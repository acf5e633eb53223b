//! The format of Java's Flight Recorder, version 2.1, which the JDK's `jfr`, JDK Mission Control and IDEs read.
//!
//! Each sample is an event: of the type `jdk.ExecutionSample` if it is of the `cpu` event, of a type of our own
//! otherwise. A profile knows time only by the second: the samples of a thread are spread over their second. The writer
//! keeps one chunk and the constants of the file in memory.

mod chunk;
mod constants;
mod encode;
mod frame_type;
mod metadata;
#[cfg(test)]
pub(super) mod parsed;
#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::{Context, bail, ensure};

use super::folded::{self, NO_FRAMES};
use super::format::{Format, FormatReader, FormatRequirements};
use super::name;
use super::seconds::{SECOND, part_of, spread};
use crate::profile::frames::Symbol;
use crate::profile::kind::waker;
use crate::profile::samples::{Sample, Weight};
use crate::profile::trie::NodeId;
use crate::profile::{Kind, ProfileView};
use crate::sample::Event;
use chunk::{Chunk, ChunkTime, JfrFrame, JfrStack, RUNNABLE};
use constants::{JfrConstants, NONE};
use encode::{put_number, put_text};
use frame_type::FrameType;
use metadata::{JfrEvents, JfrType, metadata_event};

/// A chunk that exceeds this size, in bytes, is written.
const CHUNK_SIZE: usize = 8 << 20;
/// Limit on the samples of a file, of some 15 bytes each: folded stacks can count to any number.
const MAX_SAMPLES: u64 = 1 << 26;

/// Bits of a stack's id. The other bits are the number of a node or of a reason.
const OF_WAKER: u64 = 1 << 32;
const OF_LOST: u64 = 1 << 33;

/// The format of Java's Flight Recorder.
pub static FORMAT: Format = Format {
    names: &["jfr"],
    media_type: "application/octet-stream",
    needs: FormatRequirements { seconds: true, threads: true },
    several: true,
    write: |views, _, out| write(views, out),
    read: FormatReader::Never(
        "jbpf-prof writes JFR files and cannot read them; record with -o x.html or -o x.pb.gz too",
    ),
};

/// Writes events of a profile.
///
/// # Errors
/// There is no event, there are more samples than a file can have, or the error of `out`.
pub fn write(views: &[ProfileView<'_>], out: &mut dyn Write) -> anyhow::Result<()> {
    write_chunks(views, CHUNK_SIZE, out)
}

fn write_chunks(views: &[ProfileView<'_>], chunk_size: usize, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(first) = views.first() else { bail!("there is no event to write") };
    let samples = |view: &ProfileView<'_>| view.total().count.saturating_add(view.accounts().lost_total());
    let all = views.iter().map(samples).fold(0, u64::saturating_add);
    ensure!(
        all <= MAX_SAMPLES,
        "a JFR file has an event for each sample, at most {MAX_SAMPLES}, and the profile has {all} samples; choose \
         another format, or sample less often"
    );
    let mut rows: Vec<Sample> = views.iter().flat_map(|view| view.by_second()).copied().collect();
    rows.sort_unstable_by_key(|row| (row.second, row.event, row.labels, row.leaf));
    let events = JfrEvents(views.iter().map(ProfileView::event).collect());
    let mut writer = JfrWriter::new(first, events, &rows, chunk_size, out);
    writer.add_recording();
    views.iter().for_each(|view| writer.add_accounts(view));
    for view in views {
        writer.add_lost(view)?;
    }
    for rows in rows.chunk_by(|a, b| (a.second, a.event, a.labels) == (b.second, b.event, b.labels)) {
        writer.add_samples(rows)?;
    }
    writer.finish()
}

/// A file under construction.
struct JfrWriter<'a, 'p> {
    /// Any view: all have the profile's frames, stacks and labels.
    view: &'a ProfileView<'p>,
    events: JfrEvents,
    /// The types of the file, the same in each chunk.
    metadata: Vec<u8>,
    constants: JfrConstants,
    chunk: Chunk,
    chunk_size: usize,
    /// The begin of the chunk, in nanoseconds since the begin of the profile.
    begin: u64,
    /// The begin of the second whose samples are written.
    second: u64,
    /// Nanoseconds over which the samples of a second are spread: the whole profile if it does not distinguish seconds.
    spread: u64,
    /// Whether samples know their processes; if not, the frames of processes and threads stay in the stacks.
    has_labels: bool,
    lost: u64,
    body: Vec<u8>,
    out: &'a mut dyn Write,
}

impl<'a, 'p> JfrWriter<'a, 'p> {
    fn new(
        view: &'a ProfileView<'p>,
        events: JfrEvents,
        rows: &[Sample],
        chunk_size: usize,
        out: &'a mut dyn Write,
    ) -> JfrWriter<'a, 'p> {
        let process = |row: &Sample| (view.labels(row.labels).pid, &view.labels(row.labels).process);
        let has_processes = rows.iter().any(|row| process(row) != process(&rows[0]));
        let has_labels = rows.iter().any(|row| !view.labels(row.labels).process.is_empty());
        JfrWriter {
            view,
            metadata: metadata_event(&events),
            events,
            constants: JfrConstants::new(has_processes),
            chunk: Chunk::default(),
            chunk_size,
            begin: 0,
            second: 0,
            spread: spread(rows.iter(), view.span().duration_ns),
            has_labels,
            lost: 0,
            body: Vec::new(),
            out,
        }
    }

    /// Begins an event of a type at a time in nanoseconds since the begin of the profile.
    fn begin_event(&mut self, of: u64, at: u64) {
        self.body.clear();
        self.put(of);
        self.put(at);
    }

    fn put(&mut self, number: u64) {
        put_number(&mut self.body, number);
    }

    fn put_text(&mut self, text: &str) {
        put_text(&mut self.body, text);
    }

    fn end_event(&mut self) {
        self.chunk.add_event(&self.body);
    }

    /// Adds what tools show of a recording.
    fn add_recording(&mut self) {
        let span = self.view.span();
        self.begin_event(JfrType::ActiveRecording as u64, 0);
        self.put(1);
        self.put_text(concat!("jbpf-prof ", env!("CARGO_PKG_VERSION")));
        self.put(span.start_unix_ns / 1_000_000);
        self.put(span.duration_ns / 1_000_000);
        self.end_event();
    }

    /// Adds where the samples of an event went, and the period, which Mission Control needs to judge the samples.
    fn add_accounts(&mut self, view: &ProfileView<'_>) {
        let accounts = view.accounts();
        if accounts.period_ns > 0 {
            self.begin_event(JfrType::ActiveSetting as u64, 0);
            self.put(self.events.type_of(view.event()));
            self.put_text("period");
            self.put_text(&format!("{} ns", accounts.period_ns));
            self.end_event();
        }
        self.begin_event(JfrType::Accounts as u64, 0);
        self.put_text(view.event().name());
        let lost = accounts.lost_total();
        for n in [accounts.taken, accounts.filtered, accounts.kept, lost, accounts.missed, accounts.expected]
        {
            self.put(n);
        }
        self.end_event();
    }

    /// Adds the lost samples of an event. They have no thread and no time, so they get a thread of their own.
    fn add_lost(&mut self, view: &ProfileView<'_>) -> anyhow::Result<()> {
        let each = view.accounts().of_sample();
        for (reason, lost) in &view.accounts().lost {
            self.begin_event(JfrType::Lost as u64, 0);
            self.put_text(view.event().name());
            self.put_text(reason);
            self.put(*lost);
            self.end_event();
            self.lost += 1;
            let id = OF_LOST | self.lost;
            for _ in 0..*lost {
                if !self.chunk.has_stack(id) {
                    let frames =
                        [&*folded::reason(reason), name::LOST].map(|text| self.marker(text)).to_vec();
                    self.chunk.add_stack(&mut self.constants, id, &JfrStack { frames, is_truncated: false });
                }
                let thread = self.constants.add_lost_thread();
                let sample =
                    JfrSample { at: 0, each, thread, stack: id, state: NONE, reason: NONE, waker: NONE };
                self.add_sample(view.event(), &sample)?;
            }
        }
        Ok(())
    }

    /// Adds samples of one event and one thread in one second.
    fn add_samples(&mut self, rows: &[Sample]) -> anyhow::Result<()> {
        self.second = u64::from(rows[0].second) * SECOND;
        let all: u64 = rows.iter().map(|row| row.weight.count).sum();
        let labels = self.view.labels(rows[0].labels);
        let thread = self.constants.thread(labels);
        let mut before = 0;
        for row in rows {
            let is_wait = row.event == Event::Wait;
            let (mut code, mut state, mut reason) = (row.leaf, NONE, NONE);
            if is_wait {
                code = self.view.code_path_from_leaf(row.leaf).next().unwrap_or(NodeId::ROOT);
                state = self.constants.text(labels.state.name());
                reason = self.constants.text(&self.wait_reason(row.leaf));
            }
            let Weight { count, value, .. } = row.weight;
            let end = self.second + part_of(self.spread, before + count, all);
            for of_row in 0..count {
                let each = value / count;
                let at = if is_wait {
                    // Waits belong to the second in which they end, and may be longer.
                    end.saturating_sub((count - of_row) * each)
                } else {
                    self.second + part_of(self.spread, before + of_row, all)
                };
                let stack = self.stack(code);
                let waker = if is_wait { self.waker(row.leaf) } else { NONE };
                let sample = JfrSample { at, each, thread, stack, state, reason, waker };
                self.add_sample(row.event, &sample)?;
            }
            before += count;
        }
        Ok(())
    }

    fn add_sample(&mut self, event: Event, sample: &JfrSample) -> anyhow::Result<()> {
        let JfrSample { at, each, thread, stack, state, reason, waker } = *sample;
        self.begin_event(self.events.type_of(event), at);
        self.chunk.add_thread(&self.constants, thread);
        match event {
            Event::Cpu => [thread, stack, RUNNABLE].into_iter().for_each(|number| self.put(number)),
            Event::Wait => {
                [state, reason].into_iter().for_each(|text| self.chunk.add_text(&self.constants, text));
                let numbers = [each, thread, stack, state, reason, waker];
                numbers.into_iter().for_each(|number| self.put(number));
            }
            _ => [thread, stack, each].into_iter().for_each(|number| self.put(number)),
        }
        self.end_event();
        if self.chunk.size() > self.chunk_size {
            self.end_chunk(self.second)?;
        }
        Ok(())
    }

    /// The id of a stack, which is added to the chunk.
    fn stack(&mut self, leaf: NodeId) -> u64 {
        let id = leaf.index() as u64 + 1;
        if self.chunk.has_stack(id) {
            return id;
        }
        let (view, mut stack) = (self.view, JfrStack { frames: Vec::new(), is_truncated: false });
        for node in view.trie().path_to_root(leaf) {
            let symbol = symbol_of(view, node);
            if !(self.has_labels && matches!(symbol.kind, Kind::Process | Kind::Thread)) {
                stack.frames.push(self.frame(node));
            }
            stack.is_truncated |=
                symbol.kind == Kind::Marker && &**view.frames().name(symbol) == "[truncated]";
        }
        if stack.frames.is_empty() {
            stack.frames.push(self.marker(NO_FRAMES));
        }
        self.chunk.add_stack(&mut self.constants, id, &stack);
        id
    }

    /// The id of the stack that ended a wait; [`NONE`] if it is not known.
    fn waker(&mut self, leaf: NodeId) -> u64 {
        let id = OF_WAKER | leaf.index() as u64;
        if self.chunk.has_stack(id) {
            return id;
        }
        let view = self.view;
        let nodes =
            view.trie().path_to_root(leaf).take_while(|node| symbol_of(view, *node).kind == Kind::Waker);
        let nodes = nodes.filter(|node| &**view.frames().name(symbol_of(view, *node)) != waker::SEPARATOR);
        let mut frames: Vec<JfrFrame> = nodes.map(|node| self.frame(node)).collect();
        if frames.is_empty() {
            return NONE;
        }
        // A waker's stack begins with its leaf, at the wait.
        frames.reverse();
        self.chunk.add_stack(&mut self.constants, id, &JfrStack { frames, is_truncated: false });
        id
    }

    /// Why a thread waited, in the words of all formats: `wait: lock`, `idle: thread pool`, `runnable`.
    fn wait_reason(&self, leaf: NodeId) -> String {
        let frames = self.view.frames();
        let symbols =
            self.view.wait_frames_at_leaf(leaf).map(|id| &frames.symbols()[frames.symbol_of(id) as usize]);
        let texts = symbols.map(|symbol| name::strip_brackets(frames.name(symbol)));
        texts.collect::<Vec<_>>().join(", ")
    }

    fn frame(&mut self, node: NodeId) -> JfrFrame {
        let id = self.view.frame_of(node);
        let frame = self.view.frames().get(id);
        JfrFrame {
            method: self.constants.method(self.view.frames(), self.view.frames().symbol_of(id)),
            line: Some(frame.line).filter(|line| *line > 0),
            bci: frame.bci,
            kind: FrameType::of(frame.kind),
        }
    }

    fn marker(&mut self, text: &str) -> JfrFrame {
        JfrFrame { method: self.constants.marker(text), line: None, bci: None, kind: FrameType::Native }
    }

    /// Writes the chunk and begins the next one at a time in nanoseconds since the begin of the profile, or later:
    /// Mission Control takes chunks with the same begin for one chunk.
    fn end_chunk(&mut self, at: u64) -> anyhow::Result<()> {
        let profile_unix_ns = self.view.span().start_unix_ns;
        let time = ChunkTime { profile_unix_ns, begin: self.begin, end: at.max(self.begin + 1) };
        std::mem::take(&mut self.chunk)
            .write(time, &self.metadata, self.out)
            .context("writing a JFR file")?;
        self.begin = time.end;
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.end_chunk(self.view.span().duration_ns)
    }
}

/// A sample as an event.
#[derive(Clone, Copy, Debug)]
struct JfrSample {
    /// Nanoseconds since the begin of the profile.
    at: u64,
    /// The amount that the sample stands for, in the unit of its event.
    each: u64,
    thread: u64,
    stack: u64,
    /// The text of what a waiting thread did; [`NONE`] for other events.
    state: u64,
    /// The text of why a thread waited; [`NONE`] for other events.
    reason: u64,
    /// The stack that ended a wait; [`NONE`] if it is not known.
    waker: u64,
}

fn symbol_of<'p>(view: &ProfileView<'p>, node: NodeId) -> &'p Symbol {
    let frames = view.frames();
    &frames.symbols()[frames.symbol_of(view.frame_of(node)) as usize]
}
