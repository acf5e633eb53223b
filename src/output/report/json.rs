//! The report for machines: one JSON object with stable names and plain numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;

use crate::output::name;
use crate::profile::labels::ContainerLabels;
use crate::profile::tables::LeafSides;
use crate::profile::{Profile, ProfileView, RunReport};

/// Version of the object's shape: grows when a field changes its meaning or is removed.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct ReportObject<'a> {
    schema: u32,
    #[serde(flatten)]
    report: &'a RunReport,
    #[serde(flatten)]
    tables: ReportTables,
    /// The tables of the other events.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tables_of: BTreeMap<&'static str, ReportTables>,
}

/// Tables of an event's samples.
#[derive(Serialize)]
struct ReportTables {
    /// The whole for shares: samples of the profile and lost samples.
    shown: u64,
    /// Samples whose leaf is code of the kernel. With `--user` no sample has such a leaf.
    in_kernel: u64,
    /// Samples whose leaf is code of a process.
    in_user: u64,
    /// Containers, and a row for samples outside of containers; empty if there are no containers.
    containers: Vec<ContainerSamples>,
    processes: Vec<ReportProcess>,
    functions: Vec<ReportFunction>,
    /// How many allocated objects the samples stand for, estimated; only of events that allocate.
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<u64>,
    /// Classes of allocated objects; only of `alloc`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ReportClass>,
    stripped: Vec<Stripped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<ReportLine>>,
}

#[derive(Serialize)]
struct ContainerSamples {
    container: Option<Arc<ContainerLabels>>,
    #[serde(rename = "ticks")]
    samples: u64,
}

#[derive(Serialize)]
struct ReportProcess {
    name: String,
    pids: Vec<u32>,
    #[serde(rename = "ticks")]
    samples: u64,
}

#[derive(Serialize)]
struct ReportFunction {
    name: String,
    kind: &'static str,
    /// Whether the function was inlined into its caller in most of these samples.
    inlined: bool,
    #[serde(rename = "self")]
    itself: u64,
    total: u64,
}

#[derive(Serialize)]
struct ReportClass {
    name: String,
    samples: u64,
    bytes: u64,
    /// Estimated.
    objects: u64,
}

#[derive(Serialize)]
struct Stripped {
    path: String,
    advice: &'static str,
    #[serde(rename = "self")]
    itself: u64,
    total: u64,
}

#[derive(Serialize)]
struct ReportLine {
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    bci: Option<u32>,
    #[serde(rename = "self")]
    itself: u64,
}

/// The report as JSON with a newline at its end. The object has all functions, and all lines if `lines` is set.
///
/// # Errors
/// A number cannot be written.
pub fn json(report: &RunReport, profile: &Profile, lines: bool) -> anyhow::Result<String> {
    let tables_of =
        report.others.iter().map(|of| (of.event.name(), tables(&profile.of_event(of.event), lines)));
    let object = ReportObject {
        schema: SCHEMA,
        report,
        tables: tables(&profile.of_event(report.first.event), lines),
        tables_of: tables_of.collect(),
    };
    let mut text = serde_json::to_string_pretty(&object).context("report as JSON")?;
    text.push('\n');
    Ok(text)
}

fn tables(profile: &ProfileView<'_>, lines: bool) -> ReportTables {
    let frames = profile.frames();
    let named = |symbol: u32| {
        let symbol = &frames.symbols()[symbol as usize];
        (name::display_name(frames, symbol), symbol.kind.facts().language)
    };
    let containers = profile
        .containers()
        .into_iter()
        .map(|row| ContainerSamples { container: row.container, samples: row.samples });
    let processes = profile.processes().into_iter().map(|row| ReportProcess {
        name: row.name.to_string(),
        pids: row.pids,
        samples: row.samples,
    });
    let functions = profile.functions().into_iter().map(|row| {
        let (name, kind) = named(row.symbol);
        ReportFunction { name, kind, inlined: row.inlined, itself: row.itself, total: row.total }
    });
    let classes = profile.object_classes().into_iter().map(|row| ReportClass {
        name: name::of_object(&named(row.symbol).0).to_owned(),
        samples: row.samples,
        bytes: row.bytes,
        objects: row.objects,
    });
    let stripped = profile.stripped().into_iter().map(|row| Stripped {
        path: row.path.to_string(),
        advice: row.advice,
        itself: row.itself,
        total: row.total,
    });
    let table = || {
        let rows = profile.lines().into_iter();
        rows.map(|row| ReportLine {
            function: named(row.symbol).0,
            file: row.file.map(|f| f.to_string()),
            line: row.line,
            bci: row.bci,
            itself: row.itself,
        })
        .collect()
    };
    let LeafSides { kernel, user } = profile.leaf_sides();
    ReportTables {
        shown: profile.accounts().shown(),
        in_kernel: kernel,
        in_user: user,
        containers: containers.collect(),
        processes: processes.collect(),
        functions: functions.collect(),
        objects: profile.event().allocates().then(|| profile.total().objects.rounded()),
        classes: classes.collect(),
        stripped: stripped.collect(),
        lines: lines.then(table),
    }
}
