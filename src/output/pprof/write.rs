//! Writing pprof: each message goes into the compressor at once, so that memory holds names and locations, not samples.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::model::{
    COMMENT, LABEL_CGROUP, LABEL_CONTAINER, LABEL_CONTAINER_ID, LABEL_CONTAINER_NAME, LABEL_NAMESPACE,
    LABEL_PID, LABEL_POD, LABEL_POD_UID, LABEL_PROCESS, LABEL_SPAN, LABEL_STATE, LABEL_THREAD, LABEL_TID,
    LABEL_TRACE, PAUSES, ValueColumn, pause_numbers,
};
use super::proto::{
    self, Line, ProtoFunction, ProtoLabel, ProtoLocation, ProtoMapping, ProtoSample, ValueType,
};
use crate::output::{folded, name};
use crate::profile::frames::FrameId;
use crate::profile::labels::{ContainerLabels, LabelsId};
use crate::profile::pauses::{JvmPauses, PauseTotals};
use crate::profile::resource::ResourceAttribute;
use crate::profile::samples::Weight;
use crate::profile::trie::{NodeId, Trie};
use crate::profile::view::pauses_of_views;
use crate::profile::{Accounts, Kind, Labels, Module, ProfileView};
use crate::sample::unit::Unit;
use crate::sample::{Estimate, Event, SpanContext, ThreadState};

/// Writes events of a profile; each event has its own columns in the samples' values.
///
/// # Errors
/// There is no event, or the error of `out`.
pub fn write(views: &[ProfileView<'_>], out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(first) = views.first() else { bail!("there is no event to write") };
    let mut writer = PprofWriter::new(first, columns(views), out);
    for view in views {
        writer.view = view;
        writer.objects = Estimate::default();
        writer.samples()?;
        writer.lost()?;
    }
    writer.tables(views)?;
    writer.out.finish().context("compressing")?;
    Ok(())
}

/// The columns of the samples' values: for each event the number of samples, that of objects if it allocates, and the amount
/// that the samples stand for.
fn columns(views: &[ProfileView<'_>]) -> Vec<(Event, ValueColumn)> {
    let of = |view: &ProfileView<'_>| {
        let has_value = view.total().value > 0 || view.accounts().period_ns > 0 || view.accounts().one_in > 0;
        let value = has_value.then_some((view.event(), ValueColumn::Value));
        let Weight { count, objects, .. } = view.total();
        // A profile that was read from another format has samples and no numbers of objects.
        let has_objects = objects > Estimate::default() || count == 0 && value.is_some();
        let objects =
            (view.event().allocates() && has_objects).then_some((view.event(), ValueColumn::Objects));
        [Some((view.event(), ValueColumn::Samples)), objects, value].into_iter().flatten()
    };
    views.iter().flat_map(of).collect()
}

struct PprofWriter<'a, W: Write> {
    view: &'a ProfileView<'a>,
    columns: Vec<(Event, ValueColumn)>,
    /// The objects of the samples of the current event so far: their sum is rounded, and not each number.
    objects: Estimate,
    out: GzEncoder<W>,
    buffer: Vec<u8>,
    strings: ProtoStrings,
    functions: HashMap<(u32, Option<Arc<str>>), u64>,
    function_list: Vec<ProtoFunction>,
    mappings: HashMap<Arc<Module>, u64>,
    mapping_list: Vec<ProtoMapping>,
    locations: Vec<ProtoLocation>,
    labels: HashMap<LabelsId, Vec<ProtoLabel>>,
}

impl<'a, W: Write> PprofWriter<'a, W> {
    fn new(view: &'a ProfileView<'a>, columns: Vec<(Event, ValueColumn)>, out: W) -> PprofWriter<'a, W> {
        PprofWriter {
            view,
            columns,
            objects: Estimate::default(),
            out: GzEncoder::new(out, Compression::fast()),
            buffer: Vec::new(),
            strings: ProtoStrings::default(),
            functions: HashMap::new(),
            function_list: Vec::new(),
            mappings: HashMap::new(),
            mapping_list: Vec::new(),
            locations: Vec::new(),
            labels: HashMap::new(),
        }
    }

    /// Writes a piece of the file. Protobuf allows this: readers join the repeated fields of all pieces.
    fn put(&mut self, piece: &proto::ProtoProfile) -> anyhow::Result<()> {
        self.buffer.clear();
        piece.encode(&mut self.buffer).context("encoding")?;
        Ok(self.out.write_all(&self.buffer)?)
    }

    /// The values of a sample of the current event.
    fn values(&mut self, weight: Weight) -> Vec<i64> {
        let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
        let event = self.view.event();
        let before = self.objects.rounded();
        self.objects += weight.objects;
        let objects = self.objects.rounded() - before;
        let of = |(of, column): &(Event, ValueColumn)| match column {
            _ if *of != event => 0,
            ValueColumn::Samples => signed(weight.count),
            ValueColumn::Objects => signed(objects),
            ValueColumn::Value => signed(weight.value),
        };
        self.columns.iter().map(of).collect()
    }

    fn samples(&mut self) -> anyhow::Result<()> {
        let view = self.view;
        let chains = Chains::of(view);
        // Ids of locations, by chain; 0 if the location does not exist yet.
        let mut known = vec![0u64; chains.trie.len()];
        for sample in view.samples() {
            let mut location_id = Vec::new();
            let mut at = sample.leaf;
            while at != NodeId::ROOT {
                let chain = chains.chain[at.index()];
                if known[chain.index()] == 0 {
                    known[chain.index()] = self.location(&chains.frames(chain));
                }
                location_id.push(known[chain.index()]);
                at = chains.caller(view, at);
            }
            if location_id.is_empty() {
                location_id.push(self.marker(folded::NO_FRAMES));
            }
            let label = match self.labels.get(&sample.labels) {
                Some(label) => label.clone(),
                None => self.label(sample.labels),
            };
            let value = self.values(sample.weight);
            let sample = vec![ProtoSample { location_id, value, label }];
            self.put(&proto::ProtoProfile { sample, ..Default::default() })?;
        }
        Ok(())
    }

    fn lost(&mut self) -> anyhow::Result<()> {
        let accounts = self.view.accounts();
        let each = accounts.of_sample();
        for (reason, n) in &accounts.lost {
            let location_id = vec![self.marker(&folded::reason(reason)), self.marker(name::LOST)];
            // How many objects they stood for is not known.
            let lost = Weight { count: *n, value: n.saturating_mul(each), ..Weight::default() };
            let value = self.values(lost);
            let sample = vec![ProtoSample { location_id, value, label: Vec::new() }];
            self.put(&proto::ProtoProfile { sample, ..Default::default() })?;
        }
        Ok(())
    }

    fn label(&mut self, id: LabelsId) -> Vec<ProtoLabel> {
        let Labels { pid, process, thread, tid, cgroup, container, state, span, resource } =
            self.view.labels(id);
        let mut list = Vec::new();
        let mut text = |key: &str, value: &str| {
            if !value.is_empty() {
                list.push(ProtoLabel { key: self.strings.id(key), str: self.strings.id(value), num: 0 });
            }
        };
        text(LABEL_PROCESS, process);
        text(LABEL_THREAD, thread);
        if *state != ThreadState::Running {
            text(LABEL_STATE, state.name());
        }
        if let Some(SpanContext { trace, span }) = span {
            text(LABEL_TRACE, &trace.to_string());
            text(LABEL_SPAN, &span.to_string());
        }
        for ResourceAttribute { key, value } in resource.iter().flat_map(|resource| resource.iter()) {
            text(key, value);
        }
        if let Some(container) = container {
            let ContainerLabels { namespace, pod, container, name, id, pod_uid } = &**container;
            text(LABEL_NAMESPACE, namespace);
            text(LABEL_POD, pod);
            text(LABEL_POD_UID, pod_uid);
            text(LABEL_CONTAINER, container);
            text(LABEL_CONTAINER_NAME, name);
            text(LABEL_CONTAINER_ID, id);
        }
        for (key, num) in
            [(LABEL_PID, u64::from(*pid)), (LABEL_TID, u64::from(*tid)), (LABEL_CGROUP, *cgroup)]
        {
            if num != 0 {
                list.push(ProtoLabel { key: self.strings.id(key), str: 0, num: num.cast_signed() });
            }
        }
        self.labels.insert(id, list.clone());
        list
    }

    /// A location of the frames at one address, the outermost first.
    fn location(&mut self, frames: &[FrameId]) -> u64 {
        let table = self.view.frames();
        let outer = frames.first().map(|&f| table.get(f));
        let module = outer.as_ref().and_then(|f| f.module.clone());
        let mapping_id = module.map_or(0, |m| self.mapping(&m));
        let mut line = Vec::with_capacity(frames.len());
        for &id in frames.iter().rev() {
            let frame = table.get(id);
            if let Some(mapping) = mapping_id.checked_sub(1).map(|m| &mut self.mapping_list[m as usize]) {
                mapping.has_functions |= frame.kind != Kind::Unknown;
                mapping.has_filenames |= frame.file.is_some();
                mapping.has_line_numbers |= frame.line > 0;
                mapping.has_inline_frames |= frames.len() > 1;
            }
            let symbol = table.symbol_of(id);
            let function_id = self.function(symbol, frame.file);
            line.push(Line { function_id, line: i64::from(frame.line) });
        }
        self.add_location(mapping_id, outer.map_or(0, |f| f.address), line)
    }

    fn add_location(&mut self, mapping_id: u64, address: u64, line: Vec<Line>) -> u64 {
        let id = self.locations.len() as u64 + 1;
        self.locations.push(ProtoLocation { id, mapping_id, address, line });
        id
    }

    /// A location that is not code. Markers are few, so duplicates do no harm.
    fn marker(&mut self, text: &str) -> u64 {
        let function_id = self.add_function(text, Kind::Marker, "");
        self.add_location(0, 0, vec![Line { function_id, line: 0 }])
    }

    fn function(&mut self, symbol: u32, file: Option<Arc<str>>) -> u64 {
        let key = (symbol, file);
        if let Some(&id) = self.functions.get(&key) {
            return id;
        }
        let table = self.view.frames();
        let described = &table.symbols()[symbol as usize];
        let id = self.add_function(
            &name::display_name(table, described),
            described.kind,
            key.1.as_deref().unwrap_or(""),
        );
        self.functions.insert(key, id);
        id
    }

    fn add_function(&mut self, name: &str, kind: Kind, file: &str) -> u64 {
        let id = self.function_list.len() as u64 + 1;
        let (name, system_name) = (self.strings.id(name), self.strings.id(kind.facts().label));
        self.function_list.push(ProtoFunction { id, name, system_name, filename: self.strings.id(file) });
        id
    }

    fn mapping(&mut self, module: &Arc<Module>) -> u64 {
        if let Some(&id) = self.mappings.get(module) {
            return id;
        }
        let id = self.mapping_list.len() as u64 + 1;
        let filename = self.strings.id(&module.path);
        let build_id = self.strings.id(&module.build_id_text());
        self.mapping_list.push(ProtoMapping { id, filename, build_id, ..ProtoMapping::default() });
        self.mappings.insert(Arc::clone(module), id);
        id
    }

    /// Writes the tables that samples refer to, and the fields of the whole file.
    fn tables(&mut self, views: &[ProfileView<'_>]) -> anyhow::Result<()> {
        let strings = &mut self.strings;
        let mut of =
            |(kind, unit): (String, &str)| ValueType { r#type: strings.id(&kind), unit: strings.id(unit) };
        let sample_type = self.columns.iter().map(|(event, column)| of(column.name(*event))).collect();
        let first = views.first().unwrap_or(self.view);
        let period_type = of(ValueColumn::Value.name(first.event()));
        // Without this field `go tool pprof` shows the last event.
        let main = self.columns.iter().rfind(|(event, _)| *event == first.event());
        let default_sample_type = main.map_or(0, |(event, column)| of(column.name(*event)).r#type);
        let pauses = pause_comments(&pauses_of_views(views));
        let comment = views.iter().flat_map(comments).chain(pauses).map(|c| strings.id(&c)).collect();
        let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
        let piece = proto::ProtoProfile {
            sample_type,
            mapping: std::mem::take(&mut self.mapping_list),
            location: std::mem::take(&mut self.locations),
            function: std::mem::take(&mut self.function_list),
            string_table: std::mem::take(&mut self.strings.list),
            time_nanos: signed(first.span().start_unix_ns),
            duration_nanos: signed(first.span().duration_ns),
            period_type: Some(period_type),
            default_sample_type,
            period: signed(first.accounts().of_sample()),
            comment,
            sample: Vec::new(),
        };
        self.put(&piece)
    }
}

/// The accounts as comments. Names of the `cpu` event have no event prefix: files from before the other events exist.
fn comments(view: &ProfileView<'_>) -> Vec<String> {
    let Accounts { taken, filtered, kept, lost, missed, expected, period_ns, one_in, longest_period_ns } =
        view.accounts();
    let event = if view.event() == Event::Cpu { String::new() } else { format!("{}.", view.event().name()) };
    let mut list = Vec::new();
    let mut say = |what: &str, n: u64| list.push(format!("{COMMENT}{event}{what}={n}"));
    say("ticks", *taken);
    say("filtered", *filtered);
    say("kept", *kept);
    lost.iter().for_each(|(reason, n)| say(&format!("lost.{reason}"), *n));
    say("missed", *missed);
    say("expected", *expected);
    match view.event().unit() {
        Unit::Nanoseconds => say("period_ns", *period_ns),
        Unit::Count | Unit::Bytes => say("one_in", *one_in),
    }
    if *longest_period_ns > 0 {
        say("longest_period_ns", *longest_period_ns);
    }
    list
}

/// The pauses of each JVM as comments. The format has no time within the profile.
fn pause_comments(pauses: &JvmPauses) -> Vec<String> {
    let of_jvm = |(pid, mut totals): (u32, PauseTotals)| {
        pause_numbers(&mut totals).map(|(what, n)| format!("{COMMENT}{PAUSES}{pid}.{what}={n}"))
    };
    pauses.by_process().into_iter().flat_map(of_jvm).collect()
}

/// Interned strings by their index in the string table.
struct ProtoStrings {
    list: Vec<String>,
    ids: HashMap<String, i64>,
}

impl Default for ProtoStrings {
    /// The first string must be empty, as the format requires.
    fn default() -> ProtoStrings {
        ProtoStrings { list: vec![String::new()], ids: HashMap::from([(String::new(), 0)]) }
    }
}

impl ProtoStrings {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Groups frames that share an address: a chain is a physical frame and the frames inlined into it.
struct Chains {
    /// A node stands for the chain that ends with it; items are frames.
    trie: Trie,
    chain: Vec<NodeId>,
}

impl Chains {
    fn of(view: &ProfileView<'_>) -> Chains {
        let from = view.trie();
        let mut trie = Trie::new(usize::MAX);
        let mut chain = vec![NodeId::ROOT; from.len()];
        for node in view.nodes() {
            let frame = from.item(node);
            let parent = from.parent(node);
            let continues = parent != NodeId::ROOT && {
                let kind = |n| view.frames().kind(view.frame_of(n));
                kind(node).is_inlined_into(kind(parent))
            };
            let outer = if continues { chain[parent.index()] } else { NodeId::ROOT };
            chain[node.index()] = trie.child(outer, frame).unwrap_or(outer);
        }
        Chains { trie, chain }
    }

    /// The frames of a chain, the outermost first.
    fn frames(&self, chain: NodeId) -> Vec<FrameId> {
        let mut frames: Vec<FrameId> =
            self.trie.path_to_root(chain).map(|n| FrameId::from_item(self.trie.item(n))).collect();
        frames.reverse();
        frames
    }

    /// The node above the chain that ends at `leaf`.
    fn caller(&self, view: &ProfileView<'_>, leaf: NodeId) -> NodeId {
        let length = self.trie.path_to_root(self.chain[leaf.index()]).count();
        (0..length).fold(leaf, |at, _| view.trie().parent(at))
    }
}
