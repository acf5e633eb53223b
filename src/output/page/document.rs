//! The JSON document of the page, as `docs/design/page.md` describes it: tables as columns of numbers, which compress
//! well.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::stacks::PageStacks;
use crate::limits::LimitRow;
use crate::output::palette;
use crate::output::picture_options::PictureOptions;
use crate::profile::kind::{Origin, Tier};
use crate::profile::labels::{ContainerLabels, LabelsId};
use crate::profile::pauses::{JvmPauses, PauseMark, PauseTotals};
use crate::profile::samples::Sample;
use crate::profile::trie::NodeId;
use crate::profile::view::pauses_of_views;
use crate::profile::{Accounts, Kind, ProfileView, RunReport};

/// Version of the document's shape: grows when a field changes its meaning or is removed.
pub(super) const VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    version: u32,
    title: String,
    start_unix_ms: u64,
    /// Length of a column of time.
    column_ms: u64,
    columns: u32,
    kinds: Vec<KindRow>,
    strings: Vec<String>,
    symbols: SymbolColumns,
    nodes: NodeColumns,
    lines: LineColumns,
    labels: LabelColumns,
    containers: Vec<ContainerColumns>,
    events: Vec<EventRow>,
    samples: SampleColumns,
    pauses: PauseColumns,
    report: Option<&'a RunReport>,
    limits: Vec<LimitTexts<'a>>,
    /// Only in the page of a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    compare: Option<CompareRow>,
}

/// Two ranges of columns: the first one, and the one behind the last.
#[derive(Serialize)]
struct CompareRow {
    range: [u32; 2],
    base: [u32; 2],
}

/// A row of the report's limits, in words.
#[derive(Serialize)]
struct LimitTexts<'a> {
    subject: &'a str,
    left_out: u64,
    what: &'static str,
    advice: &'static str,
}

#[derive(Serialize)]
struct KindRow {
    name: &'static str,
    legend: Option<&'static str>,
    colour: String,
    language: &'static str,
    inlined: bool,
    interpreted: bool,
    wait: bool,
    /// Equal for kinds whose equal names are one function; -1 for frames that are not code.
    family: i32,
}

#[derive(Default, Serialize)]
struct SymbolColumns {
    name: Vec<u32>,
    kind: Vec<u32>,
    shade: Vec<u8>,
}

#[derive(Default, Serialize)]
struct NodeColumns {
    depth: Vec<usize>,
    symbol: Vec<u32>,
}

/// Row 0 stands for samples without a known line.
#[derive(Default, Serialize)]
struct LineColumns {
    file: Vec<u32>,
    line: Vec<u32>,
    bci: Vec<i64>,
}

#[derive(Default, Serialize)]
struct LabelColumns {
    process: Vec<u32>,
    pid: Vec<u32>,
    thread: Vec<u32>,
    tid: Vec<u32>,
    container: Vec<i64>,
    state: Vec<&'static str>,
}

#[derive(Serialize)]
struct ContainerColumns {
    title: String,
    namespace: Arc<str>,
    pod: Arc<str>,
    id: Arc<str>,
}

#[derive(Serialize)]
struct EventRow {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    accounts: Accounts,
}

/// The samples, by column. A key is an event, a node, labels and a line, with the number of its rows. A row is a column
/// of time and a count; the rows of all keys follow each other. Numbers of nodes are differences to the key before, and
/// columns of time to the row before of the same key.
#[derive(Default, Serialize)]
struct SampleColumns {
    event: Vec<usize>,
    node: Vec<i64>,
    labels: Vec<u32>,
    line: Vec<u32>,
    rows: Vec<u32>,
    column: Vec<u32>,
    count: Vec<u64>,
}

/// The pauses of JVMs, by process and column of time.
#[derive(Default, Serialize)]
struct PauseColumns {
    pid: Vec<u32>,
    column: Vec<u16>,
    safepoints: Vec<u64>,
    safepoint_usec: Vec<u64>,
    collections: Vec<u64>,
    collection_usec: Vec<u64>,
}

impl<'a> Document<'a> {
    pub(super) fn of(views: &[ProfileView<'_>], picture_options: &'a PictureOptions) -> Document<'a> {
        let stacks = PageStacks::of(views);
        let mut tables = Tables::default();
        let mut symbols = SymbolColumns::default();
        for symbol in &stacks.symbols {
            symbols.name.push(tables.string(&symbol.name));
            symbols.kind.push(place(symbol.kind));
            symbols.shade.push(palette::shade(&symbol.folded));
        }
        let mut nodes = NodeColumns::default();
        for node in &stacks.nodes {
            nodes.depth.push(node.depth);
            nodes.symbol.push(node.symbol);
        }
        tables.line(LineKey::default());
        let rows = tables.rows(views, &stacks);
        let span = views.first().map(ProfileView::span).unwrap_or_default();
        let pauses = pause_columns(&pauses_of_views(views));
        let seconds = rows.iter().map(|row| row.second);
        let last = seconds.chain(pauses.column.iter().map(|column| u32::from(*column))).max().unwrap_or(0);
        let report = picture_options.report.as_deref();
        let title = picture_options.title.clone().or_else(|| Some(format!("jbpf-prof: {}", report?.target)));
        let title = title.unwrap_or_else(|| "jbpf-prof".to_owned());
        Document {
            version: VERSION,
            title: crate::profile::frame::clean(title.as_bytes(), 200),
            start_unix_ms: span.start_unix_ns / 1_000_000,
            column_ms: picture_options.column_ms,
            columns: picture_options.columns.as_ref().map_or(0, |columns| columns.range.end).max(last + 1),
            kinds: Kind::ALL.into_iter().map(kind_row).collect(),
            symbols,
            nodes,
            samples: sample_columns(&rows),
            pauses,
            lines: tables.lines,
            labels: tables.labels,
            containers: tables.containers,
            events: views.iter().map(event_row).collect(),
            limits: report.map(limits).unwrap_or_default(),
            report,
            strings: tables.strings,
            compare: picture_options.columns.as_ref().map(|columns| CompareRow {
                range: [columns.range.start, columns.range.end],
                base: [columns.base.start, columns.base.end],
            }),
        }
    }
}

fn limits(report: &RunReport) -> Vec<LimitTexts<'_>> {
    let texts = report.limits.iter().map(|LimitRow { limit, subject, left_out }| LimitTexts {
        subject,
        left_out: *left_out,
        what: limit.what(),
        advice: limit.advice(),
    });
    texts.collect()
}

fn place(kind: Kind) -> u32 {
    Kind::ALL.iter().position(|of| *of == kind).unwrap_or_default() as u32
}

fn kind_row(kind: Kind) -> KindRow {
    let facts = kind.facts();
    let [r, g, b] = facts.colour;
    let family = match kind.origin() {
        Origin::NotCode => -1,
        Origin::Cpp => Origin::Native as i32,
        origin => origin as i32,
    };
    KindRow {
        name: facts.label,
        legend: facts.legend,
        colour: format!("#{r:02x}{g:02x}{b:02x}"),
        language: facts.language,
        inlined: facts.inlined,
        interpreted: facts.tier == Tier::Interpreted,
        wait: kind.is_wait(),
        family,
    }
}

fn event_row(view: &ProfileView<'_>) -> EventRow {
    let event = view.event();
    EventRow {
        name: event.name(),
        title: event.title(),
        unit: event.unit().name(),
        accounts: view.accounts().clone(),
    }
}

fn pause_columns(pauses: &JvmPauses) -> PauseColumns {
    let mut columns = PauseColumns::default();
    for PauseMark { pid, second, totals } in pauses.marks() {
        let PauseTotals { safepoints, safepoint_usec, collections, collection_usec } = totals;
        columns.pid.push(pid);
        columns.column.push(second);
        columns.safepoints.push(safepoints);
        columns.safepoint_usec.push(safepoint_usec);
        columns.collections.push(collections);
        columns.collection_usec.push(collection_usec);
    }
    columns
}

/// A row of samples, in the order of the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    event: usize,
    node: u32,
    labels: u32,
    line: u32,
    second: u32,
    count: u64,
}

fn sample_columns(rows: &[Row]) -> SampleColumns {
    let mut columns = SampleColumns::default();
    let key = |row: &Row| (row.event, row.node, row.labels, row.line);
    let mut before = 0;
    for rows in rows.chunk_by(|a, b| key(a) == key(b)) {
        let Row { event, node, labels, line, .. } = rows[0];
        columns.event.push(event);
        columns.node.push(i64::from(node) - before);
        before = i64::from(node);
        columns.labels.push(labels);
        columns.line.push(line);
        let (mut seconds, mut second) = (0, 0);
        for rows in rows.chunk_by(|a, b| a.second == b.second) {
            columns.column.push(rows[0].second - second);
            second = rows[0].second;
            columns.count.push(rows.iter().map(|row| row.count).sum());
            seconds += 1;
        }
        columns.rows.push(seconds);
    }
    columns
}

/// A line of source.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct LineKey {
    file: Option<Arc<str>>,
    line: u32,
    bci: Option<u32>,
}

/// The tables of a document, in the order in which rows were first needed.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, u32>,
    lines: LineColumns,
    line_ids: HashMap<LineKey, u32>,
    labels: LabelColumns,
    label_ids: HashMap<LabelsId, u32>,
    containers: Vec<ContainerColumns>,
    container_ids: HashMap<Arc<ContainerLabels>, i64>,
}

impl Tables {
    fn rows(&mut self, views: &[ProfileView<'_>], stacks: &PageStacks) -> Vec<Row> {
        let mut rows = Vec::new();
        for (event, view) in views.iter().enumerate() {
            let mut last = (NodeId::ROOT, 0);
            for &Sample { leaf, labels, second, weight, .. } in view.by_second() {
                if last.0 != leaf {
                    last = (leaf, self.line_of(view, leaf));
                }
                let (node, line) = (stacks.number(leaf), last.1);
                let labels = self.label(view, labels);
                rows.push(Row { event, node, labels, line, second: u32::from(second), count: weight.count });
            }
        }
        rows.sort_unstable();
        rows
    }

    /// The line of the code that ran, or that waited.
    fn line_of(&mut self, view: &ProfileView<'_>, leaf: NodeId) -> u32 {
        let frames = view.frames();
        let Some(code) = view.code_path_from_leaf(leaf).next() else { return 0 };
        let frame = frames.get(view.frame_of(code));
        self.line(LineKey { file: frame.file, line: frame.line, bci: frame.bci })
    }

    fn line(&mut self, key: LineKey) -> u32 {
        if let Some(id) = self.line_ids.get(&key) {
            return *id;
        }
        let file = self.string(key.file.as_deref().unwrap_or_default());
        self.lines.file.push(file);
        self.lines.line.push(key.line);
        self.lines.bci.push(key.bci.map_or(-1, i64::from));
        let id = self.lines.file.len() as u32 - 1;
        self.line_ids.insert(key, id);
        id
    }

    fn label(&mut self, view: &ProfileView<'_>, id: LabelsId) -> u32 {
        if let Some(row) = self.label_ids.get(&id) {
            return *row;
        }
        let labels = view.labels(id);
        let (process, thread) = (self.string(&labels.process), self.string(&labels.thread));
        let container = labels.container.as_ref().map_or(-1, |container| self.container(container));
        self.labels.process.push(process);
        self.labels.pid.push(labels.pid);
        self.labels.thread.push(thread);
        self.labels.tid.push(labels.tid);
        self.labels.container.push(container);
        self.labels.state.push(labels.state.name());
        let row = self.labels.pid.len() as u32 - 1;
        self.label_ids.insert(id, row);
        row
    }

    fn container(&mut self, container: &Arc<ContainerLabels>) -> i64 {
        let next = self.containers.len() as i64;
        *self.container_ids.entry(Arc::clone(container)).or_insert_with(|| {
            let ContainerLabels { namespace, pod, id, .. } = &**container;
            self.containers.push(ContainerColumns {
                title: container.title(),
                namespace: Arc::clone(namespace),
                pod: Arc::clone(pod),
                id: Arc::clone(id),
            });
            next
        })
    }

    fn string(&mut self, text: &str) -> u32 {
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = self.strings.len() as u32;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }
}
