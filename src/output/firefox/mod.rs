//! The format of the Firefox Profiler, <https://profiler.firefox.com>: threads over time. Mozilla's own crate writes
//! its JSON, in gzip.
//!
//! A profile knows time only by the second. Each second is divided among a thread's samples in that second, in the
//! order of their stacks. A sample is placed at the end of its part. A profile that does not distinguish seconds is
//! divided as a whole.
//!
//! A thread has a row for its samples of the first event, and a row for those of each other event, since the Profiler
//! adds up the samples of a row. Waits are markers as well, in the thread's first row. A JVM has a row with a marker for
//! each second in which it stood still.

mod pause_marker;
#[cfg(test)]
mod tests;
mod wait_marker;

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle, ThreadHandle,
    Timestamp,
};

use super::folded::{self, NO_FRAMES};
use super::format::{Format, FormatReader, FormatRequirements};
use super::name;
use super::seconds::{SECOND, part_of, spread};
use crate::profile::kind::Origin;
use crate::profile::labels::LabelsId;
use crate::profile::pauses::PauseMark;
use crate::profile::samples::{Sample, Weight};
use crate::profile::trie::NodeId;
use crate::profile::view::pauses_of_views;
use crate::profile::{Kind, Labels, ProfileView};
use crate::sample::Event;
use crate::sample::unit::Unit;
use pause_marker::PauseMarker;
use wait_marker::WaitMarker;

/// The Firefox Profiler's format.
pub static FORMAT: Format = Format {
    names: &["json.gz", "firefox"],
    media_type: "application/gzip",
    needs: FormatRequirements { seconds: true, threads: true },
    several: true,
    write: |views, _, out| write(views, out),
    read: FormatReader::Never("a Firefox profile is for looking at; convert what it was made from"),
};

/// Writes events of a profile.
///
/// # Errors
/// There is no event, or the error of `out`.
pub fn write(views: &[ProfileView<'_>], out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(first) = views.first() else { bail!("there is no event to write") };
    let mut gzip = GzEncoder::new(out, Compression::default());
    serde_json::to_writer(&mut gzip, &FirefoxWriter::of(first, views))
        .context("writing a Firefox profile")?;
    gzip.finish().context("writing a Firefox profile")?;
    Ok(())
}

/// A profile under construction.
struct FirefoxWriter<'v, 'p> {
    /// The first event. All views have its frames, stacks and labels.
    view: &'v ProfileView<'p>,
    profile: Profile,
    categories: HashMap<&'static str, CategoryHandle>,
    processes: HashMap<(u32, &'p str), ProcessHandle>,
    threads: HashMap<ThreadRow<'p>, ThreadHandle>,
    strings: HashMap<u32, StringHandle>,
    stacks: HashMap<(ThreadHandle, NodeId), StackHandle>,
    /// Nanoseconds among which the samples of a second are divided.
    length: u64,
}

/// A row: a thread's samples of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ThreadRow<'p> {
    pid: u32,
    process: &'p str,
    tid: u32,
    thread: &'p str,
    event: Event,
}

impl<'v, 'p> FirefoxWriter<'v, 'p> {
    fn of(first: &'v ProfileView<'p>, views: &[ProfileView<'p>]) -> Profile {
        let accounts = first.accounts();
        let interval = if accounts.period_ns > 0 { accounts.period_ns } else { SECOND };
        let begin = ReferenceTimestamp::from_duration_since_unix_epoch(std::time::Duration::from_nanos(
            first.span().start_unix_ns,
        ));
        let mut profile = Profile::new("jbpf-prof", begin, SamplingInterval::from_nanos(interval));
        profile.set_symbolicated(true);
        let categories = CATEGORIES.map(|(name, color)| (name, profile.add_category(name, color)));
        let samples = views.iter().flat_map(|view| view.by_second());
        let mut threads = FirefoxWriter {
            view: first,
            profile,
            categories: categories.into(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            strings: HashMap::new(),
            stacks: HashMap::new(),
            length: spread(samples, first.span().duration_ns),
        };
        for view in views {
            threads.add_samples(view);
            threads.add_lost(view);
        }
        threads.add_pauses(views);
        threads.profile
    }

    /// Marks the seconds in which JVMs stood still. Only JVMs with samples have a process in the file.
    fn add_pauses(&mut self, views: &[ProfileView<'p>]) {
        let samples = views.iter().flat_map(|view| view.by_second());
        let jvms: HashMap<u32, LabelsId> =
            samples.map(|sample| (self.view.labels(sample.labels).pid, sample.labels)).collect();
        let name = self.profile.intern_string(PAUSES);
        let category = self.categories.get("JVM").copied().unwrap_or(CategoryHandle::OTHER);
        let pauses = pauses_of_views(views);
        // Of a profile that does not distinguish seconds, a mark covers the whole.
        let length = if pauses.marks().any(|mark| mark.second > 0) { SECOND } else { self.length };
        for PauseMark { pid, second, totals } in pauses.marks() {
            let Some(labels) = jvms.get(&pid) else { continue };
            let Labels { process, .. } = self.view.labels(*labels);
            let row = ThreadRow { pid, process, tid: 0, thread: PAUSES, event: self.view.event() };
            let thread = self.row(row);
            let begin = u64::from(second) * SECOND;
            let timing = MarkerTiming::Interval(timestamp(begin), timestamp(begin + length));
            self.profile.add_marker(thread, timing, PauseMarker { name, category, totals });
        }
    }

    fn add_samples(&mut self, view: &ProfileView<'_>) {
        let event = view.event();
        let samples = view.by_second().iter().map(|sample| (self.thread(sample.labels, event), *sample));
        let mut samples: Vec<(ThreadHandle, Sample)> = samples.collect();
        // Group by thread and second; order by stack within each second.
        samples.sort_by_key(|(thread, sample)| (*thread, sample.second, sample.leaf, sample.labels));
        for samples in samples.chunk_by(|(a, x), (b, y)| (a, x.second) == (b, y.second)) {
            let (thread, first) = samples[0];
            let all: u64 = samples.iter().map(|(_, sample)| sample.weight.count).sum();
            let (begin, mut sum) = (u64::from(first.second) * SECOND, 0);
            // A viewer spreads a sample's CPU time over the time since the previous sample. An empty sample at the
            // start of each second keeps the time of the first sample within its second.
            self.profile.add_sample(thread, timestamp(begin), None, CpuDelta::from_nanos(0), 0);
            for (_, sample) in samples {
                sum += sample.weight.count;
                let at = begin + part_of(self.length - 1, sum, all);
                let stack = self.stack(thread, sample.leaf);
                self.add(event, thread, at, stack, sample.weight);
                if event == Event::Wait {
                    self.add_wait(sample, at);
                }
            }
        }
    }

    /// Marks a wait in the thread's first row. The wait ends at `at`: it belongs to the second in which it ends.
    fn add_wait(&mut self, sample: &Sample, at: u64) {
        let thread = self.thread(sample.labels, self.view.event());
        let wait = self.view.wait_frames_at_leaf(sample.leaf).next();
        let wait = wait.map(|id| (self.view.frames().kind(id), self.view.frames().symbol_of(id)));
        let (kind, reason) = match wait {
            Some((kind, symbol)) => (kind, self.text(symbol)),
            None => (Kind::Wait, self.profile.intern_string(NO_REASON)),
        };
        let name = self.profile.intern_string(category_name(kind).unwrap_or(NO_REASON));
        let marker = WaitMarker { name, reason, category: self.category(kind), samples: sample.weight.count };
        let begin = timestamp(at.saturating_sub(sample.weight.value));
        let marker = self.profile.add_marker(thread, MarkerTiming::Interval(begin, timestamp(at)), marker);
        let stack = self.stack(thread, sample.leaf);
        self.profile.set_marker_stack(thread, marker, stack);
    }

    /// Lost samples belong to no thread, as in every format, so they get a process of their own.
    fn add_lost(&mut self, view: &ProfileView<'_>) {
        let accounts = view.accounts();
        if accounts.lost_total() == 0 {
            return;
        }
        let begin = timestamp(0);
        let process = self.profile.add_process(name::LOST, 0, begin);
        let thread = self.profile.add_thread(process, 0, begin, true);
        self.profile.set_thread_name(thread, view.event().title());
        for (reason, lost) in &accounts.lost {
            let text = self.profile.intern_string(&folded::reason(reason));
            let frame = self.frame(text, Kind::Marker);
            let stack = self.profile.intern_stack_frames(thread, std::iter::once(frame));
            self.add(view.event(), thread, 0, stack, Weight { count: *lost, ..Weight::default() });
        }
    }

    fn add(
        &mut self,
        event: Event,
        thread: ThreadHandle,
        at: u64,
        stack: Option<StackHandle>,
        weight: Weight,
    ) {
        let is_time = event.unit() == Unit::Nanoseconds;
        let cpu = CpuDelta::from_nanos(if is_time { weight.value } else { 0 });
        let (mut left, mut cpu) = (weight.count, cpu);
        // Weights have 31 bits, so a larger count becomes several samples.
        while left > 0 {
            let weight = i32::try_from(left).unwrap_or(i32::MAX);
            self.profile.add_sample(thread, timestamp(at), stack, cpu, weight);
            (left, cpu) = (left - u64::from(weight.unsigned_abs()), CpuDelta::from_nanos(0));
        }
    }

    fn thread(&mut self, id: LabelsId, event: Event) -> ThreadHandle {
        let Labels { pid, process, thread, tid, .. } = self.view.labels(id);
        self.row(ThreadRow { pid: *pid, process, tid: *tid, thread, event })
    }

    fn row(&mut self, row: ThreadRow<'p>) -> ThreadHandle {
        let ThreadRow { pid, process, tid, thread, event } = row;
        if let Some(thread) = self.threads.get(&row) {
            return *thread;
        }
        let begin = timestamp(0);
        let profile = &mut self.profile;
        let process =
            *self.processes.entry((pid, process)).or_insert_with(|| profile.add_process(process, pid, begin));
        let is_first = event == self.view.event();
        let handle =
            profile.add_thread(process, if tid > 0 { tid } else { pid }, begin, is_first && tid == pid);
        if is_first {
            profile.set_thread_name(handle, thread);
        } else {
            profile.set_thread_name(handle, &format!("{thread}: {}", event.title()));
        }
        self.threads.insert(row, handle);
        handle
    }

    /// The stack of a leaf without the frames of process and thread, which are rows in this format.
    fn stack(&mut self, thread: ThreadHandle, leaf: NodeId) -> Option<StackHandle> {
        let (mut missing, mut stack) = (Vec::new(), None);
        for node in self.view.trie().path_to_root(leaf) {
            if let Some(known) = self.stacks.get(&(thread, node)) {
                stack = Some(*known);
                break;
            }
            missing.push(node);
        }
        for node in missing.into_iter().rev() {
            let id = self.view.frame_of(node);
            let kind = self.view.frames().kind(id);
            if matches!(kind, Kind::Process | Kind::Thread) {
                continue;
            }
            let text = self.text(self.view.frames().symbol_of(id));
            let frame = self.frame(text, kind);
            let frame = self.profile.intern_frame(thread, frame);
            let handle = self.profile.intern_stack(thread, stack, frame);
            self.stacks.insert((thread, node), handle);
            stack = Some(handle);
        }
        if stack.is_some() {
            return stack;
        }
        let text = self.profile.intern_string(NO_FRAMES);
        let frame = self.frame(text, Kind::Marker);
        self.profile.intern_stack_frames(thread, std::iter::once(frame))
    }

    fn text(&mut self, symbol: u32) -> StringHandle {
        let (frames, profile) = (self.view.frames(), &mut self.profile);
        *self.strings.entry(symbol).or_insert_with(|| {
            profile.intern_string(&name::display_name(frames, &frames.symbols()[symbol as usize]))
        })
    }

    fn frame(&self, text: StringHandle, kind: Kind) -> FrameInfo {
        FrameInfo {
            frame: Frame::Label(text),
            category_pair: CategoryPairHandle::from(self.category(kind)),
            flags: FrameFlags::empty(),
        }
    }

    fn category(&self, kind: Kind) -> CategoryHandle {
        let category = category_name(kind).and_then(|name| self.categories.get(name));
        category.copied().unwrap_or(CategoryHandle::OTHER)
    }
}

/// The name of a JVM's row of pauses.
const PAUSES: &str = "Pauses of the JVM";

/// Stands for the reason of a wait whose stack has none.
const NO_REASON: &str = "[wait]";

/// The format has few colours; these are the nearest to those of the flame graph.
const CATEGORIES: [(&str, CategoryColor); 9] = [
    ("Java", CategoryColor::Green),
    ("JVM", CategoryColor::LightGreen),
    ("JIT", CategoryColor::LightBlue),
    ("C++", CategoryColor::Yellow),
    ("Native", CategoryColor::Red),
    ("Kernel", CategoryColor::Orange),
    ("Sleeping", CategoryColor::Blue),
    ("Blocked", CategoryColor::Purple),
    ("No CPU", CategoryColor::Magenta),
];

/// The category of a kind; `None` for kinds that are not code.
fn category_name(kind: Kind) -> Option<&'static str> {
    match (kind, kind.origin()) {
        (Kind::Wait, _) => Some("Sleeping"),
        (Kind::Blocked, _) => Some("Blocked"),
        (Kind::Queued, _) => Some("No CPU"),
        (_, Origin::Java) => Some("Java"),
        (_, Origin::Jvm) => Some("JVM"),
        (_, Origin::Jit) => Some("JIT"),
        (_, Origin::Cpp) => Some("C++"),
        (_, Origin::Native) => Some("Native"),
        (_, Origin::Kernel) => Some("Kernel"),
        (_, Origin::NotCode | Origin::Unknown) => None,
    }
}

/// `ns` counts from the beginning of the profile.
fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}
