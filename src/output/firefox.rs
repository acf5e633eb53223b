//! The format of the Firefox Profiler, <https://profiler.firefox.com>: threads over time. Mozilla's own crate writes
//! its JSON, in gzip.
//!
//! A profile knows time only by the second. Each second is divided among a thread's samples in that second, in the
//! order of their stacks. A sample is placed at the end of its part. A profile that does not distinguish seconds is
//! divided as a whole.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, ProcessHandle,
    Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle, ThreadHandle, Timestamp,
};

use super::folded::{self, NO_FRAMES};
use super::format::{Format, FormatReader, Needs};
use super::name;
use crate::profile::kind::Origin;
use crate::profile::labels::LabelsId;
use crate::profile::samples::Sample;
use crate::profile::trie::NodeId;
use crate::profile::{Kind, Labels, ProfileView};
use crate::sample::unit::Unit;

/// A second in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// The Firefox Profiler's format.
pub static FORMAT: Format = Format {
    names: &["json.gz", "firefox"],
    media_type: "application/gzip",
    needs: Needs { seconds: true, threads: true },
    several: false,
    write: |views, _, out| views.iter().try_for_each(|view| write(view, out)),
    read: FormatReader::Never("a Firefox profile is for looking at; convert what it was made from"),
};

/// Writes the samples of one event.
///
/// # Errors
/// The error of `out`.
pub fn write(view: &ProfileView<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    serde_json::to_writer(&mut gzip, &Threads::of(view)).context("writing a Firefox profile")?;
    gzip.finish().context("writing a Firefox profile")?;
    Ok(())
}

/// A profile under construction.
struct Threads<'v, 'p> {
    view: &'v ProfileView<'p>,
    profile: Profile,
    categories: HashMap<Origin, CategoryHandle>,
    processes: HashMap<(u32, &'p str), ProcessHandle>,
    threads: HashMap<LabelsId, ThreadHandle>,
    strings: HashMap<u32, StringHandle>,
    stacks: HashMap<(ThreadHandle, NodeId), StackHandle>,
}

impl<'p> Threads<'_, 'p> {
    fn of(view: &ProfileView<'p>) -> Profile {
        let accounts = view.accounts();
        let interval = if accounts.period_ns > 0 { accounts.period_ns } else { SECOND };
        let begin = ReferenceTimestamp::from_duration_since_unix_epoch(std::time::Duration::from_nanos(
            view.span().start_unix_ns,
        ));
        let mut profile = Profile::new("jbpf-prof", begin, SamplingInterval::from_nanos(interval));
        profile.set_symbolicated(true);
        let categories = CATEGORIES.map(|(origin, name, color)| (origin, profile.add_category(name, color)));
        let mut threads = Threads {
            view,
            profile,
            categories: categories.into(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            strings: HashMap::new(),
            stacks: HashMap::new(),
        };
        threads.add_samples();
        threads.add_lost();
        threads.profile
    }

    fn add_samples(&mut self) {
        let mut samples = self.view.by_second().to_vec();
        // Group by thread and second; order by stack within each second.
        samples.sort_by_key(|sample| (sample.labels, sample.second, sample.leaf));
        let told = samples.iter().any(|sample| sample.second > 0);
        let length = if told { SECOND } else { self.view.span().duration_ns.max(SECOND) };
        for samples in samples.chunk_by(|a, b| (a.labels, a.second) == (b.labels, b.second)) {
            let thread = self.thread(samples[0].labels);
            let all: u64 = samples.iter().map(|sample| sample.weight.count).sum();
            let (begin, mut sum) = (u64::from(samples[0].second) * SECOND, 0);
            // A viewer spreads a sample's CPU time over the time since the previous sample. An empty sample at the
            // start of each second keeps the time of the first sample within its second.
            self.profile.add_sample(thread, timestamp(begin), None, CpuDelta::from_nanos(0), 0);
            for &Sample { leaf, weight, .. } in samples {
                sum += weight.count;
                let at = begin + share(length - 1, sum, all);
                let stack = self.stack(thread, leaf);
                self.add(thread, at, stack, weight.count, weight.value);
            }
        }
    }

    /// Lost ticks belong to no thread, as in every format, so they get a process of their own.
    fn add_lost(&mut self) {
        let accounts = self.view.accounts();
        if accounts.lost_total() == 0 {
            return;
        }
        let begin = timestamp(0);
        let process = self.profile.add_process(name::LOST, 0, begin);
        let thread = self.profile.add_thread(process, 0, begin, true);
        for (reason, lost) in &accounts.lost {
            let text = self.profile.intern_string(&folded::reason(reason));
            let frame = self.frame(text, Kind::Marker);
            let stack = self.profile.intern_stack_frames(thread, std::iter::once(frame));
            self.add(thread, 0, stack, *lost, 0);
        }
    }

    fn add(&mut self, thread: ThreadHandle, at: u64, stack: Option<StackHandle>, count: u64, value: u64) {
        let is_time = self.view.event().unit() == Unit::Nanoseconds;
        let cpu = CpuDelta::from_nanos(if is_time { value } else { 0 });
        let (mut left, mut cpu) = (count, cpu);
        // Weights have 31 bits, so a larger count becomes several samples.
        while left > 0 {
            let weight = i32::try_from(left).unwrap_or(i32::MAX);
            self.profile.add_sample(thread, timestamp(at), stack, cpu, weight);
            (left, cpu) = (left - u64::from(weight.unsigned_abs()), CpuDelta::from_nanos(0));
        }
    }

    fn thread(&mut self, id: LabelsId) -> ThreadHandle {
        if let Some(thread) = self.threads.get(&id) {
            return *thread;
        }
        let Labels { pid, process, thread: name, tid, .. } = self.view.labels(id);
        let begin = timestamp(0);
        let profile = &mut self.profile;
        let process = *self
            .processes
            .entry((*pid, &**process))
            .or_insert_with(|| profile.add_process(process, *pid, begin));
        let thread = profile.add_thread(process, if *tid > 0 { *tid } else { *pid }, begin, tid == pid);
        profile.set_thread_name(thread, name);
        self.threads.insert(id, thread);
        thread
    }

    /// The stack of a leaf without the frames of process and thread, which are rows in this format.
    fn stack(&mut self, thread: ThreadHandle, leaf: NodeId) -> Option<StackHandle> {
        let (mut missing, mut stack) = (Vec::new(), None);
        for node in self.view.trie().up(leaf) {
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
            let symbol = self.view.frames().symbol_of(id);
            let (frames, profile) = (self.view.frames(), &mut self.profile);
            let text = *self.strings.entry(symbol).or_insert_with(|| {
                profile.intern_string(&name::plain(frames, &frames.symbols()[symbol as usize]))
            });
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

    fn frame(&self, text: StringHandle, kind: Kind) -> FrameInfo {
        let category = self.categories.get(&kind.origin()).copied().unwrap_or(CategoryHandle::OTHER);
        FrameInfo {
            frame: Frame::Label(text),
            category_pair: CategoryPairHandle::from(category),
            flags: FrameFlags::empty(),
        }
    }
}

/// The format has few colours; these are the nearest to those of the flame graph.
const CATEGORIES: [(Origin, &str, CategoryColor); 6] = [
    (Origin::Java, "Java", CategoryColor::Green),
    (Origin::Jvm, "JVM", CategoryColor::LightGreen),
    (Origin::Jit, "JIT", CategoryColor::LightBlue),
    (Origin::Cpp, "C++", CategoryColor::Yellow),
    (Origin::Native, "Native", CategoryColor::Red),
    (Origin::Kernel, "Kernel", CategoryColor::Orange),
];

/// `ns` counts from the beginning of the profile.
fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}

/// `part / all` of a length.
fn share(length: u64, part: u64, all: u64) -> u64 {
    let part = u128::from(length) * u128::from(part) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::profile::samples::Weight;
    use crate::profile::{Frame as OurFrame, Profile as OurProfile};
    use crate::sample::Event;

    /// One thread that ran `early` in second 0 and `late` in second 2, and one lost tick.
    fn profile() -> OurProfile {
        let mut profile = OurProfile::new();
        let labels =
            Labels { pid: 7, tid: 8, process: "java".into(), thread: "worker".into(), ..Labels::default() };
        let labels = profile.intern_labels(&labels);
        let mut add = |second, name: &str, count| {
            let frames = [(Kind::Process, "java"), (Kind::Thread, "worker"), (Kind::Java, name)];
            let frames = frames.map(|(kind, name)| Arc::new(OurFrame::named(kind, name)));
            let stack = profile.intern_stack(&frames);
            let weight = Weight { count, value: count * 1_000_000 };
            profile.add_in(second, stack, labels, Event::Cpu, weight);
        };
        add(0, "early", 3);
        add(0, "both", 1);
        add(2, "late", 5);
        add(2, "both", 1);
        let accounts = profile.accounts_mut(Event::Cpu);
        (accounts.ticks, accounts.kept, accounts.period_ns) = (11, 10, 1_000_000);
        accounts.lose("ring full", 1);
        profile.check().unwrap();
        profile
    }

    fn json(profile: &OurProfile) -> Value {
        serde_json::to_value(Threads::of(&profile.of_event(Event::Cpu))).unwrap()
    }

    fn thread<'j>(json: &'j Value, name: &str) -> &'j Value {
        json["threads"].as_array().unwrap().iter().find(|thread| thread["processName"] == name).unwrap()
    }

    /// Name of the leaf, time in milliseconds, weight.
    fn samples(thread: &Value) -> Vec<(String, f64, u64)> {
        let numbers = |column: &Value| -> Vec<f64> {
            column.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
        };
        let at = |column: &Value, place: &Value| column[place.as_u64().unwrap() as usize].clone();
        let (samples, mut time) = (&thread["samples"], 0.0);
        let deltas = numbers(&samples["timeDeltas"]);
        let rows = samples["stack"].as_array().unwrap().iter().zip(deltas).zip(numbers(&samples["weight"]));
        rows.filter_map(|((stack, delta), weight)| {
            time += delta;
            if stack.is_null() {
                assert_eq!(weight, 0.0, "the beginning of a second weighs nothing");
                return None;
            }
            let frame = at(&thread["stackTable"]["frame"], stack);
            let function = at(&thread["frameTable"]["func"], &frame);
            let name = at(&thread["funcTable"]["name"], &function);
            Some((at(&thread["stringArray"], &name).as_str().unwrap().to_owned(), time, weight as u64))
        })
        .collect()
    }

    #[test]
    fn samples_stand_in_their_seconds() {
        let json = json(&profile());
        let java = thread(&json, "java");
        assert_eq!((&java["name"], &java["pid"], &java["tid"]), (&"worker".into(), &"7".into(), &"8".into()));
        let samples = samples(java);
        let seconds: Vec<(&str, u64, u64)> =
            samples.iter().map(|(name, ms, weight)| (&**name, *ms as u64 / 1000, *weight)).collect();
        assert_eq!(seconds, [("early", 0, 3), ("both", 0, 1), ("both", 2, 1), ("late", 2, 5)]);
        assert!(samples.is_sorted_by_key(|(_, ms, _)| *ms as u64));
    }

    #[test]
    fn nothing_is_left_out_and_other_formats_see_no_seconds() {
        let profile = profile();
        let json = json(&profile);
        let all: u64 =
            ["java", "[lost]"].iter().flat_map(|name| samples(thread(&json, name))).map(|s| s.2).sum();
        let view = profile.of_event(Event::Cpu);
        assert_eq!(all, view.accounts().shown());
        assert_eq!(samples(thread(&json, "[lost]"))[0].0, "[ring full]");
        assert_eq!((view.samples().len(), view.by_second().len()), (3, 4), "`both` is one sample");
        let mut folded = Vec::new();
        folded::write(&view, &mut folded).unwrap();
        let folded = String::from_utf8(folded).unwrap();
        assert!(folded.contains("both_[j] 2\n"), "{folded}");
    }

    #[test]
    fn without_seconds_samples_are_spread_over_the_time_of_the_profile() {
        let mut whole = OurProfile::new();
        let labels = whole.intern_labels(&Labels { process: "a".into(), ..Labels::default() });
        for name in ["one", "two"] {
            let stack = whole.intern_stack(&[Arc::new(OurFrame::named(Kind::Native, name))]);
            whole.add_at(stack, labels, Event::Cpu, Weight { count: 5, value: 0 });
        }
        whole.span.duration_ns = 10 * SECOND;
        let json = json(&whole);
        let times: Vec<u64> =
            samples(thread(&json, "a")).iter().map(|sample| sample.1.round() as u64).collect();
        assert_eq!(times, [5000, 10_000]);
    }
}
