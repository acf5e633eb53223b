//! Reading pprof: own files completely, files of other writers as far as they describe their frames.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, ensure};
use flate2::read::MultiGzDecoder;
use prost::Message;

use super::model::{
    COMMENT, GZIP, LABEL_CGROUP, LABEL_CONTAINER, LABEL_CONTAINER_ID, LABEL_CONTAINER_NAME, LABEL_NAMESPACE,
    LABEL_PID, LABEL_POD, LABEL_POD_UID, LABEL_PROCESS, LABEL_SPAN, LABEL_STATE, LABEL_THREAD, LABEL_TID,
    LABEL_TRACE, PAUSES, ValueColumn, pause_numbers,
};
use super::proto::{self, ProtoFunction, ProtoLabel, ProtoLocation};
use crate::output::{folded, name};
use crate::profile::labels::ContainerLabels;
use crate::profile::pauses::{JvmPauses, PauseMark, PauseTotals};
use crate::profile::resource::{ResourceAttribute, ResourceAttributes};
use crate::profile::samples::{TimeSpan, Weight};
use crate::profile::{Accounts, Frame, Kind, Labels, Module, Profile, UnknownReason};
use crate::sample::unit::Unit;
use crate::sample::{Estimate, Event, SpanContext, ThreadState};

/// Limit on the unpacked size of a file in bytes: a small file can be made to unpack to any size.
const MAX_BYTES: u64 = 512 << 20;

/// Reads a file, gzipped or not.
///
/// # Errors
/// The input is not a pprof file, or refers to entries that it does not contain.
pub fn read(input: &mut (impl Read + ?Sized)) -> anyhow::Result<Profile> {
    let mut bytes = Vec::new();
    Read::take(&mut *input, MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.starts_with(GZIP) {
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(bytes.as_slice())
            .take(MAX_BYTES + 1)
            .read_to_end(&mut unpacked)
            .context("the file cannot be decompressed")?;
        bytes = unpacked;
    }
    ensure!(bytes.len() as u64 <= MAX_BYTES, "the file decompresses to more than {MAX_BYTES} bytes");
    let file = proto::ProtoProfile::decode(bytes.as_slice()).context("the file is not a pprof profile")?;
    drop(bytes);
    ensure!(!file.sample_type.is_empty() && !file.string_table.is_empty(), "the file is not a pprof profile");
    Reader::new(&file)?.profile()
}

struct Reader<'a> {
    file: &'a proto::ProtoProfile,
    strings: Vec<Arc<str>>,
    functions: HashMap<u64, &'a ProtoFunction>,
    modules: HashMap<u64, Arc<Module>>,
    /// The frames of each location, the outermost first.
    locations: HashMap<u64, Vec<Arc<Frame>>>,
    columns: Vec<EventColumns>,
}

/// The columns of an event.
#[derive(Clone, Copy)]
struct EventColumns {
    event: Event,
    /// The number of samples.
    samples: usize,
    /// What `samples` has for one sample: 1, or the period if the file has no number of samples, only their time.
    grain: u64,
    /// The amount that the samples stand for.
    stands_for: Option<usize>,
    /// The number of allocated objects.
    objects: Option<usize>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a proto::ProtoProfile) -> anyhow::Result<Reader<'a>> {
        let strings = file.string_table.iter().map(|s| s.as_str().into()).collect();
        let functions = file.function.iter().map(|f| (f.id, f)).collect();
        let (modules, locations) = (HashMap::new(), HashMap::new());
        let mut reader = Reader { file, strings, functions, modules, locations, columns: Vec::new() };
        reader.columns = reader.find_columns()?;
        for mapping in &file.mapping {
            let path = Arc::clone(reader.text(mapping.filename)?);
            let module = Module { build_id: unhex(reader.text(mapping.build_id)?), ..Module::at(path) };
            reader.modules.insert(mapping.id, Arc::new(module));
        }
        for location in &file.location {
            let frames = reader.frames(location)?;
            reader.locations.insert(location.id, frames);
        }
        Ok(reader)
    }

    /// Finds the columns of each event. Of our files: `NAME samples`, `NAME`, and objects of events that allocate.
    /// `samples/count` and the time are the event `cpu`, in files of other writers too. Each other column is an event of
    /// its own.
    fn find_columns(&self) -> anyhow::Result<Vec<EventColumns>> {
        let mut types = Vec::new();
        for value in &self.file.sample_type {
            types.push((&**self.text(value.r#type)?, &**self.text(value.unit)?));
        }
        let mut columns = Vec::new();
        let mut used = BTreeSet::new();
        for (samples, (kind, unit)) in types.iter().enumerate() {
            let Some(name) = kind.strip_suffix(ValueColumn::OF_EVENT).filter(|_| *unit == "count") else {
                continue;
            };
            let known = Event::parse(name).ok();
            let value_type = known.map_or(name.to_owned(), |event| ValueColumn::Value.name(event).0);
            let stands_for = types.iter().position(|(other, _)| *other == value_type);
            let event = match stands_for {
                Some(value) => Event::stored(name, Unit::named(types[value].1)),
                None => known,
            };
            if let Some(event) = event {
                let objects = event.allocates().then(|| ValueColumn::Objects.name(event));
                let objects =
                    objects.and_then(|(kind, unit)| types.iter().position(|of| *of == (&*kind, unit)));
                columns.push(EventColumns { event, samples, grain: 1, stands_for, objects });
                used.extend(stands_for.into_iter().chain(objects).chain([samples]));
            }
        }
        if let Some(cpu) = self.cpu_columns(&types, &used) {
            used.extend(cpu.stands_for.into_iter().chain([cpu.samples]));
            columns.insert(0, cpu);
        }
        for (at, (kind, unit)) in types.iter().enumerate().filter(|(at, _)| !used.contains(at)) {
            let event =
                Event::stored(kind, Unit::named(unit)).context("the file has too many sample types")?;
            columns.push(EventColumns { event, samples: at, grain: 1, stands_for: Some(at), objects: None });
        }
        let mut events = BTreeSet::new();
        columns.retain(|of| events.insert(of.event));
        Ok(columns)
    }

    /// The columns of CPU time: `samples/count` with the first unused column in nanoseconds, or `cpu/nanoseconds` alone.
    fn cpu_columns(&self, types: &[(&str, &str)], used: &BTreeSet<usize>) -> Option<EventColumns> {
        let find =
            |(kind, unit): (String, &str)| types.iter().position(|known| *known == (kind.as_str(), unit));
        let own = find(ValueColumn::Value.name(Event::Cpu));
        let samples = find(ValueColumn::Samples.name(Event::Cpu));
        let time = || {
            types.iter().enumerate().position(|(at, (_, unit))| *unit == "nanoseconds" && !used.contains(&at))
        };
        let ns = own.or_else(|| if samples.is_some() { time() } else { None });
        let period = u64::try_from(self.file.period).unwrap_or(0);
        let grain = if samples.is_none() { period.max(1) } else { 1 };
        Some(EventColumns {
            event: Event::Cpu,
            samples: samples.or(ns)?,
            grain,
            stands_for: ns,
            objects: None,
        })
    }

    fn text(&self, at: i64) -> anyhow::Result<&Arc<str>> {
        let found = usize::try_from(at).ok().and_then(|at| self.strings.get(at));
        found.with_context(|| format!("the file refers to string {at} of {}", self.strings.len()))
    }

    fn profile(&self) -> anyhow::Result<Profile> {
        let mut profile = Profile::new();
        for sample in &self.file.sample {
            let value = |at: usize| -> anyhow::Result<u64> {
                let value = sample.value.get(at).context("a sample has fewer values than sample types")?;
                u64::try_from(*value).context("a sample has a negative value")
            };
            let stack = self.stack(&sample.location_id)?;
            let lost = match stack.as_slice() {
                [lost, reason] if lost.kind == Kind::Marker && &*lost.name == name::LOST => {
                    Some(&reason.name)
                }
                _ => None,
            };
            let (node, labels) = (profile.intern_stack(&stack), self.labels(&sample.label)?);
            let labels = profile.intern_labels(&labels);
            for &EventColumns { event, samples, grain, stands_for, objects } in &self.columns {
                let count = value(samples)?.div_ceil(grain);
                let amount = stands_for.map_or(Ok(0), value)?;
                let objects = Estimate::whole(objects.map_or(Ok(0), value)?);
                let weight = Weight { count, value: amount, objects };
                match lost {
                    Some(reason) => {
                        profile
                            .accounts_mut(event)
                            .lose(name::strip_brackets(reason).to_owned(), weight.count);
                    }
                    None => profile.add_interned(node, labels, event, weight),
                }
            }
        }
        for (at, &EventColumns { event, .. }) in self.columns.iter().enumerate() {
            let kept = profile.of_event(event).total().count;
            let accounts = profile.accounts_mut(event);
            accounts.kept = kept;
            if at == 0 && event.unit() == Unit::Nanoseconds {
                accounts.period_ns = u64::try_from(self.file.period).unwrap_or(0);
            }
            self.add_comments(event, accounts)?;
            accounts.taken = accounts.filtered.saturating_add(accounts.shown());
        }
        profile.span = TimeSpan {
            start_unix_ns: u64::try_from(self.file.time_nanos).unwrap_or(0),
            duration_ns: u64::try_from(self.file.duration_nanos).unwrap_or(0),
        };
        profile.pauses = self.pauses()?;
        Ok(profile)
    }

    /// The pauses of JVMs, which the file does not have by the second.
    fn pauses(&self) -> anyhow::Result<JvmPauses> {
        let mut pauses = JvmPauses::default();
        for (what, n) in self.commented(PAUSES)? {
            let Some((Ok(pid), name)) = what.split_once('.').map(|(pid, name)| (pid.parse(), name)) else {
                continue;
            };
            let mut totals = PauseTotals::default();
            // Of an unknown name nothing is added.
            for (_, number) in pause_numbers(&mut totals).into_iter().filter(|(known, _)| *known == name) {
                *number = n;
            }
            pauses.add(PauseMark { pid, second: 0, totals });
        }
        Ok(pauses)
    }

    /// The numbers in our comments whose names begin so, and the rest of their names.
    fn commented(&self, prefix: &str) -> anyhow::Result<Vec<(&str, u64)>> {
        let mut numbers = Vec::new();
        for &comment in &self.file.comment {
            let text = self.text(comment)?;
            let said =
                text.strip_prefix(COMMENT).and_then(|text| text.strip_prefix(prefix)?.rsplit_once('='));
            if let Some((what, Ok(n))) = said.map(|(what, n)| (what, n.parse())) {
                numbers.push((what, n));
            }
        }
        Ok(numbers)
    }

    /// Adds the numbers that only the comments of an event contain. A file that was merged from several files has the
    /// comments of each.
    fn add_comments(&self, event: Event, accounts: &mut Accounts) -> anyhow::Result<()> {
        let own = if event == Event::Cpu { String::new() } else { format!("{}.", event.name()) };
        let mut periods = Vec::new();
        for (what, n) in self.commented(&own)? {
            match what {
                "filtered" => accounts.filtered = accounts.filtered.saturating_add(n),
                "missed" => accounts.missed = accounts.missed.saturating_add(n),
                "expected" => accounts.expected = accounts.expected.saturating_add(n),
                "one_in" => accounts.one_in = n,
                "period_ns" => periods.push(n),
                "longest_period_ns" => accounts.longest_period_ns = accounts.longest_period_ns.max(n),
                _ => {}
            }
        }
        if let Some(&period) = periods.first() {
            accounts.period_ns = if periods.iter().all(|other| *other == period) { period } else { 0 };
        }
        Ok(())
    }

    fn stack(&self, leaf_first: &[u64]) -> anyhow::Result<Vec<Arc<Frame>>> {
        let mut stack = Vec::with_capacity(leaf_first.len());
        for id in leaf_first.iter().rev() {
            let frames = self
                .locations
                .get(id)
                .with_context(|| format!("the file refers to location {id}, which does not exist"))?;
            stack.extend(frames.iter().cloned());
        }
        let bare = matches!(stack.as_slice(), [only] if only.kind == Kind::Marker && &*only.name == folded::NO_FRAMES);
        Ok(if bare { Vec::new() } else { stack })
    }

    fn labels(&self, list: &[ProtoLabel]) -> anyhow::Result<Labels> {
        let mut labels = Labels::default();
        let mut container = ContainerLabels::default();
        let mut attributes = Vec::new();
        let (mut trace, mut span) = (None, None);
        for ProtoLabel { key, str, num } in list {
            match &**self.text(*key)? {
                LABEL_PROCESS => labels.process = Arc::clone(self.text(*str)?),
                LABEL_THREAD => labels.thread = Arc::clone(self.text(*str)?),
                LABEL_PID => labels.pid = u32::try_from(*num).unwrap_or(0),
                LABEL_TID => labels.tid = u32::try_from(*num).unwrap_or(0),
                LABEL_STATE => labels.state = ThreadState::named(self.text(*str)?).unwrap_or_default(),
                LABEL_TRACE => trace = self.text(*str)?.parse().ok(),
                LABEL_SPAN => span = self.text(*str)?.parse().ok(),
                LABEL_CGROUP => labels.cgroup = num.cast_unsigned(),
                LABEL_NAMESPACE => container.namespace = Arc::clone(self.text(*str)?),
                LABEL_POD => container.pod = Arc::clone(self.text(*str)?),
                LABEL_POD_UID => container.pod_uid = Arc::clone(self.text(*str)?),
                LABEL_CONTAINER => container.container = Arc::clone(self.text(*str)?),
                LABEL_CONTAINER_NAME => container.name = Arc::clone(self.text(*str)?),
                LABEL_CONTAINER_ID => container.id = Arc::clone(self.text(*str)?),
                _ if *str != 0 => {
                    let (key, value) = (Arc::clone(self.text(*key)?), Arc::clone(self.text(*str)?));
                    attributes.push(ResourceAttribute { key, value });
                }
                _ => {}
            }
        }
        let resource = ResourceAttributes::new(attributes);
        labels.resource = (!resource.is_empty()).then(|| Arc::new(resource));
        labels.span = trace.zip(span).map(|(trace, span)| SpanContext { trace, span });
        if container != ContainerLabels::default() {
            labels.container = Some(Arc::new(container));
        }
        Ok(labels)
    }

    fn frames(&self, location: &ProtoLocation) -> anyhow::Result<Vec<Arc<Frame>>> {
        let module = match location.mapping_id {
            0 => None,
            id => Some(
                self.modules
                    .get(&id)
                    .with_context(|| format!("the file refers to mapping {id}, which does not exist"))?,
            ),
        };
        if location.line.is_empty() {
            let unknown = Frame::unknown(UnknownReason::NoSymbol, module.cloned(), location.address);
            return Ok(vec![Arc::new(unknown)]);
        }
        let mut frames: Vec<Arc<Frame>> = Vec::new();
        for (at, line) in location.line.iter().rev().enumerate() {
            let id = line.function_id;
            let function = self
                .functions
                .get(&id)
                .with_context(|| format!("the file refers to function {id}, which does not exist"))?;
            let mut frame = self.frame(function, at > 0, frames.last().map(|f| f.kind))?;
            frame.line = u32::try_from(line.line).unwrap_or(0);
            frame.address = location.address;
            frame.module = module.cloned();
            frames.push(Arc::new(frame));
        }
        Ok(frames)
    }

    /// A frame without module, address and line.
    fn frame(&self, function: &ProtoFunction, inlined: bool, outer: Option<Kind>) -> anyhow::Result<Frame> {
        let text = self.text(function.name)?;
        let label = self.text(function.system_name)?;
        let kind = Kind::labelled(label);
        let mut frame = match kind {
            Some(kind) => name::frame(kind, Arc::clone(text)),
            // A file of another writer: its stacks have no process at the root, so the depth is 2.
            None => name::parse(text, 2, outer),
        };
        if kind.is_none() && inlined && outer.is_some_and(|o| !frame.kind.is_inlined_into(o)) {
            frame.kind = Kind::inlined_in(outer);
        }
        let file = self.text(function.filename)?;
        frame.file = (!file.is_empty()).then(|| Arc::clone(file));
        Ok(frame)
    }
}

fn unhex(text: &str) -> Option<Arc<[u8]>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::proto::{ProtoProfile, ProtoSample, ValueType};
    use super::*;

    const STRINGS: [&str; 12] = [
        "",
        "cpu",
        "nanoseconds",
        "samples",
        "count",
        "alloc_objects",
        "alloc_space",
        "bytes",
        "contentions",
        "delay",
        "page-faults samples",
        "alloc samples",
    ];

    /// A file of another writer with sample types by their place in `STRINGS`, and samples without frames.
    fn proto(types: &[(i64, i64)], samples: &[&[i64]]) -> ProtoProfile {
        ProtoProfile {
            sample_type: types.iter().map(|&(r#type, unit)| ValueType { r#type, unit }).collect(),
            sample: samples
                .iter()
                .map(|value| ProtoSample { value: value.to_vec(), ..ProtoSample::default() })
                .collect(),
            string_table: STRINGS.map(str::to_owned).to_vec(),
            period: 10_000_000,
            ..ProtoProfile::default()
        }
    }

    fn file(types: &[(i64, i64)], samples: &[&[i64]]) -> Profile {
        read(&mut proto(types, samples).encode_to_vec().as_slice()).unwrap()
    }

    /// Name, unit, samples and amount of each event.
    fn events(profile: &Profile) -> Vec<(&'static str, &'static str, u64, u64)> {
        profile.check().unwrap();
        let events = profile.events().into_iter();
        let rows = events.map(|event| (event, profile.of_event(event).total()));
        rows.map(|(event, sum)| (event.name(), event.unit().name(), sum.count, sum.value)).collect()
    }

    #[test]
    fn a_file_with_times_only_has_a_sample_for_each_period() {
        let profile = file(&[(1, 2)], &[&[30_000_000], &[5]]);
        assert_eq!(events(&profile), [("cpu", "nanoseconds", 4, 30_000_005)]);
        let both = file(&[(3, 4), (1, 2)], &[&[7, 70_000_000]]);
        assert_eq!(events(&both), [("cpu", "nanoseconds", 7, 70_000_000)]);
    }

    #[test]
    fn each_sample_type_of_another_writer_is_an_event() {
        let heap = file(&[(5, 4), (6, 7)], &[&[2, 64], &[1, 4096]]);
        assert_eq!(events(&heap), [("alloc_objects", "count", 3, 3), ("alloc_space", "bytes", 4160, 4160)]);
        let mutex = file(&[(8, 4), (9, 2)], &[&[3, 500]]);
        assert_eq!(events(&mutex), [("contentions", "count", 3, 3), ("delay", "nanoseconds", 500, 500)]);
        let mixed = file(&[(3, 4), (1, 2), (6, 7), (10, 4)], &[&[1, 10, 64, 9]]);
        let all =
            [("cpu", "nanoseconds", 1, 10), ("page-faults", "count", 9, 0), ("alloc_space", "bytes", 64, 64)];
        assert_eq!(events(&mixed), all);
    }

    #[test]
    fn bytes_of_allocations_have_the_name_of_gos_profiler() {
        let own = file(&[(11, 4), (6, 7)], &[&[2, 1 << 20]]);
        assert_eq!(events(&own), [("alloc", "bytes", 2, 1 << 20)]);
        let with_objects = file(&[(11, 4), (5, 4), (6, 7)], &[&[2, 300, 1 << 20], &[1, 41, 1 << 19]]);
        assert_eq!(events(&with_objects), [("alloc", "bytes", 3, 3 << 19)]);
        assert_eq!(with_objects.of_event(Event::Alloc).total().objects, Estimate::whole(341));
    }

    /// Files of newer versions may have further comments.
    #[test]
    fn pauses_are_read_from_comments() {
        let mut file = proto(&[(3, 4)], &[&[1]]);
        let comments = [
            "jbpf-prof.pauses.7.safepoints=2",
            "jbpf-prof.pauses.7.safepoint_usec=1500",
            "jbpf-prof.pauses.9.collections=1",
            "jbpf-prof.pauses.9.collection_usec=800",
            "jbpf-prof.pauses.9.longest_usec=5",
            "jbpf-prof.pauses.x.safepoints=5",
            "jbpf-prof.pauses.7.safepoints=-1",
            "jbpf-prof.pauses.safepoints=5",
            "jbpf-prof.kept=1",
            // The same JVM in another file, with which this one was merged.
            "jbpf-prof.pauses.7.safepoints=3",
        ];
        for text in comments {
            file.comment.push(file.string_table.len() as i64);
            file.string_table.push(text.to_owned());
        }
        let profile = read(&mut file.encode_to_vec().as_slice()).unwrap();
        let of = |pid, totals| PauseMark { pid, second: 0, totals };
        let none = PauseTotals::default();
        let wanted = [
            of(7, PauseTotals { safepoints: 5, safepoint_usec: 1500, ..none }),
            of(9, PauseTotals { collections: 1, collection_usec: 800, ..none }),
        ];
        assert_eq!(profile.pauses.marks().collect::<Vec<_>>(), wanted);
        assert_eq!(profile.accounts(Event::Cpu).kept, 1);
    }

    #[test]
    fn one_event_can_be_kept() {
        let mut heap = file(&[(5, 4), (6, 7)], &[&[2, 64]]);
        let none = heap.keep_event("inuse_space").unwrap_err().to_string();
        assert_eq!(none, "the profile has no event inuse_space; it has alloc_objects, alloc_space");
        heap.keep_event("alloc_space").unwrap();
        assert_eq!(events(&heap), [("alloc_space", "bytes", 64, 64)]);
    }
}
