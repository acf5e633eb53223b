//! Makes the rows of a view from samples.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::choice::{Expansion, Sort, TopChoice, TopView};
use super::live::Snapshot;
use super::row::TopColumn::{Number, Text};
use super::row::{FunctionKey, ProcessKey, RowKey, TopRow, TopTable};
use crate::output::name;
use crate::output::report::{percent, share, thousands};
use crate::profile::frames::Symbol;
use crate::profile::kind::Origin;
use crate::profile::neighbours::CallSide;
use crate::profile::report::{JvmReport, ReportedNameSource};
use crate::profile::samples::Weight;
use crate::profile::tables::family;
use crate::profile::{Accounts, Labels, Profile, ProfileView};
use crate::sample::Event;
use crate::sample::unit::Unit;
use crate::text::clean;

/// Characters of a name; a terminal shows fewer.
const MAX_NAME: usize = 1024;
/// Characters of a container's name beside its processes.
const MAX_CONTAINER: usize = 24;
/// The most callers or callees of a function that are shown.
const MAX_NEIGHBOURS: usize = 12;

/// The table of the chosen view. `profile`: the samples of the chosen process or container.
pub(super) fn table(choice: &TopChoice, snapshot: &Snapshot, profile: &Profile) -> TopTable {
    let view = profile.of_event(choice.event());
    match choice.view {
        TopView::Functions => functions(choice, &view),
        TopView::Processes => processes(choice, snapshot.length_s, &view),
        TopView::Containers => containers(choice, snapshot.length_s, &view),
        TopView::Account => account(choice, snapshot),
    }
}

fn key(view: &ProfileView<'_>, symbol: &Symbol) -> FunctionKey {
    let name = clean(name::display_name(view.frames(), symbol).as_bytes(), MAX_NAME);
    FunctionKey { name, family: family(symbol.kind) }
}

fn functions(choice: &TopChoice, view: &ProfileView<'_>) -> TopTable {
    let shown = view.accounts().shown();
    let symbols = view.frames().symbols();
    let columns = vec![Number("self"), Number("total"), Text("kind"), Text("function")];
    let mut table = TopTable { columns, ..TopTable::default() };
    let mut functions: Vec<_> = view
        .functions()
        .into_iter()
        .map(|row| (key(view, &symbols[row.symbol as usize]), row))
        .filter(|(key, _)| {
            let is_wanted = choice.filter_matches(&key.name);
            table.filtered += usize::from(!is_wanted);
            is_wanted
        })
        .collect();
    match choice.sort {
        Sort::Own => {}
        Sort::Total => functions.sort_by_key(|(_, row)| (Reverse(row.total), Reverse(row.itself))),
        Sort::Name => functions.sort_by(|(a, _), (b, _)| a.cmp(b)),
    }
    for (key, row) in functions {
        let symbol = &symbols[row.symbol as usize];
        let kind = if row.inlined { "inlined" } else { symbol.kind.facts().language };
        let expansion = choice.expansion.as_ref().filter(|expansion| expansion.function == key);
        table.rows.push(TopRow {
            cells: vec![percent(row.itself, shown), percent(row.total, shown), kind.to_owned()],
            text: key.name.clone(),
            key: RowKey::Function(key),
            origin: Some(symbol.kind.origin()),
        });
        if let Some(Expansion { side, .. }) = expansion {
            table.rows.extend(neighbours(view, row.symbol, *side));
        }
    }
    table
}

fn neighbours(view: &ProfileView<'_>, symbol: u32, side: CallSide) -> Vec<TopRow> {
    let shown = view.accounts().shown();
    let all = view.neighbours(symbol, side);
    let (mark, no_neighbour) = match side {
        CallSide::Callers => ("  ← ", "[no caller]"),
        CallSide::Callees => ("  → ", "[itself]"),
    };
    let row = |key: RowKey, total: u64, text: &str, origin: Option<Origin>| TopRow {
        key,
        cells: vec![String::new(), percent(total, shown), String::new()],
        text: format!("{mark}{text}"),
        origin,
    };
    let mut rows: Vec<TopRow> = all
        .iter()
        .take(MAX_NEIGHBOURS)
        .map(|neighbour| {
            let Some(symbol) = neighbour.symbol else {
                return row(RowKey::NoNeighbour, neighbour.total, no_neighbour, None);
            };
            let symbol = &view.frames().symbols()[symbol as usize];
            let function = key(view, symbol);
            let name = function.name.clone();
            row(RowKey::Neighbour(function), neighbour.total, &name, Some(symbol.kind.origin()))
        })
        .collect();
    if let more @ 1.. = all.len().saturating_sub(MAX_NEIGHBOURS) {
        let total = all.iter().skip(MAX_NEIGHBOURS).map(|neighbour| neighbour.total).sum();
        rows.push(row(RowKey::MoreNeighbours, total, &format!("[{more} more]"), None));
    }
    rows
}

/// The title of [`rate`].
fn rate_title(event: Event) -> &'static str {
    match (event, event.unit()) {
        (Event::Wait, _) => "threads",
        (_, Unit::Nanoseconds) => "CPUs",
        (_, Unit::Count) => "per s",
        (_, Unit::Bytes) => "B/s",
    }
}

/// The mean number of CPUs or threads that were busy so, or the events of a second.
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn rate(event: Event, weight: Weight, length_s: f64) -> String {
    if length_s <= 0.0 {
        return "-".to_owned();
    }
    match event.unit() {
        Unit::Nanoseconds => format!("{:.2}", weight.value as f64 / 1e9 / length_s),
        Unit::Count | Unit::Bytes => format!("{:.0}", weight.value as f64 / length_s),
    }
}

/// The samples of a view by a key of their labels.
fn sums<K: Ord>(view: &ProfileView<'_>, key: impl Fn(&Labels) -> K) -> BTreeMap<K, Weight> {
    let mut sums: BTreeMap<K, Weight> = BTreeMap::new();
    for sample in view.samples() {
        *sums.entry(key(view.labels(sample.labels))).or_default() += sample.weight;
    }
    sums
}

fn processes(choice: &TopChoice, length_s: f64, view: &ProfileView<'_>) -> TopTable {
    let (event, shown) = (view.event(), view.accounts().shown());
    let columns =
        vec![Number("share"), Number(rate_title(event)), Number("pid"), Text("container"), Text("process")];
    let mut table = TopTable { columns, ..TopTable::default() };
    let all = sums(view, |labels| ProcessKey {
        name: Arc::clone(&labels.process),
        pid: labels.pid,
        container: labels.container.clone(),
    });
    let mut all: Vec<_> = all.into_iter().collect();
    if choice.sort != Sort::Name {
        all.sort_by_key(|(_, weight)| Reverse(weight.count));
    }
    for (process, weight) in all {
        let text = clean(process.name.as_bytes(), MAX_NAME);
        let pid = if process.pid == 0 { "-".to_owned() } else { process.pid.to_string() };
        if !choice.filter_matches(&text) && !choice.filter_matches(&pid) {
            table.filtered += 1;
            continue;
        }
        let container = process.container.as_deref();
        let container = container.map_or("-".to_owned(), |c| clean(c.title().as_bytes(), MAX_CONTAINER));
        let rate = rate(event, weight, length_s);
        let cells = vec![percent(weight.count, shown), rate, pid, container];
        table.rows.push(TopRow { key: RowKey::Process(process), cells, text, origin: None });
    }
    table
}

fn containers(choice: &TopChoice, length_s: f64, view: &ProfileView<'_>) -> TopTable {
    let (event, shown) = (view.event(), view.accounts().shown());
    let columns = vec![Number("share"), Number(rate_title(event)), Text("id"), Text("container")];
    let mut table = TopTable { columns, ..TopTable::default() };
    let mut all: Vec<_> = sums(view, |labels| labels.container.clone()).into_iter().collect();
    if choice.sort != Sort::Name {
        all.sort_by_key(|(_, weight)| Reverse(weight.count));
    }
    for (container, weight) in all {
        let text = match container.as_deref() {
            Some(container) => clean(container.title().as_bytes(), MAX_NAME),
            None => "[in no container]".to_owned(),
        };
        let id = container.as_deref().map_or("-".to_owned(), |c| clean(c.short_id().as_bytes(), 12));
        if !choice.filter_matches(&text) && !choice.filter_matches(&id) {
            table.filtered += 1;
            continue;
        }
        let rate = rate(event, weight, length_s);
        let cells = vec![percent(weight.count, shown), rate, id];
        table.rows.push(TopRow { key: RowKey::Container(container), cells, text, origin: None });
    }
    table
}

/// The accounts of all events, the JVMs, and warnings.
fn account(choice: &TopChoice, snapshot: &Snapshot) -> TopTable {
    let Snapshot { totals, jvms, warnings, .. } = snapshot;
    let mut lines: Vec<(String, String)> = Vec::new();
    for event in &choice.events {
        let Accounts { taken, filtered, kept, lost, missed, expected, .. } =
            totals.get(event).cloned().unwrap_or_default();
        lines.push((thousands(taken), format!("samples taken: {}, since the start", event.title())));
        lines.push((thousands(kept), "  in the profile".to_owned()));
        lines.push((thousands(filtered), "  not asked for (other processes, idle)".to_owned()));
        for (reason, n) in &lost {
            lines.push((thousands(*n), format!("  lost: {}", clean(reason.as_bytes(), MAX_NAME))));
        }
        if lost.is_empty() {
            lines.push(("0".to_owned(), "  lost".to_owned()));
        }
        lines.push((thousands(missed), format!("missed, of {} expected", thousands(expected))));
    }
    for jvm in jvms {
        lines.push((thousands(jvm.samples), jvm_line(jvm)));
    }
    lines.extend(warnings.iter().map(|warning| (String::new(), format!("warning: {warning}"))));
    let mut table = TopTable { columns: vec![Number("samples"), Text("account")], ..TopTable::default() };
    for (at, (number, text)) in lines.into_iter().enumerate() {
        if choice.filter_matches(&text) {
            let (key, cells) = (RowKey::Line(at), vec![number]);
            table.rows.push(TopRow { key, cells, text, origin: None });
        } else {
            table.filtered += 1;
        }
    }
    table
}

fn jvm_line(jvm: &JvmReport) -> String {
    let names = match &jvm.names {
        ReportedNameSource::AgentAtStart
        | ReportedNameSource::AgentLate { .. }
        | ReportedNameSource::AgentDuringRun { .. } => "names by the agent".to_owned(),
        ReportedNameSource::Memory { .. } => "names from memory".to_owned(),
        ReportedNameSource::Off => "no names".to_owned(),
        ReportedNameSource::Refused { label, .. } => format!("no names: {label}"),
    };
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    let java = if jvm.samples == 0 { 0.0 } else { jvm.java_samples as f64 / jvm.samples as f64 };
    let text = format!("JVM {} {} {}: {names}, {} Java", jvm.pid, jvm.name, jvm.version, share(java));
    clean(text.as_bytes(), MAX_NAME)
}
