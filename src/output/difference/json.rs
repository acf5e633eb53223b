//! The difference for programs. `docs/diff.md` describes the fields.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;

use super::format::DiffFormat;
use super::model::Difference;
use super::words;
use crate::compare::{NoiseBasis, ShareChange, Side};

pub(super) static FORMAT: DiffFormat =
    DiffFormat { extension: "json", write: |difference, _, out| write(difference, out) };

/// Version of the object's shape: grows when a field changes its meaning or is removed.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct DiffObject<'a> {
    version: u32,
    verdict: &'static str,
    sentence: String,
    event: &'static str,
    threshold_points: f64,
    noise: NoiseObject,
    before: SideObject<'a>,
    after: SideObject<'a>,
    /// Only with `--per`.
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<PerObject<'a>>,
    functions: Vec<FunctionObject>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct NoiseObject {
    between: &'static str,
    blocks_before: usize,
    blocks_after: usize,
    sentence: String,
}

#[derive(Serialize)]
struct SideObject<'a> {
    files: &'a [String],
    runs: usize,
    samples: u64,
    lost: u64,
}

#[derive(Serialize)]
struct PerObject<'a> {
    name: &'a str,
    before: f64,
    after: f64,
    change: ChangeObject,
}

#[derive(Serialize)]
struct FunctionObject {
    name: String,
    kind: &'static str,
    finding: bool,
    #[serde(rename = "self")]
    itself: ChangeObject,
    total: ChangeObject,
}

#[derive(Serialize)]
struct ChangeObject {
    before_percent: f64,
    after_percent: f64,
    points: f64,
    interval_points: f64,
    change_percent: Option<f64>,
    interval_percent: Option<f64>,
    p: Option<f64>,
    significant: bool,
    finding: bool,
}

impl ChangeObject {
    fn of(change: &ShareChange) -> ChangeObject {
        ChangeObject {
            before_percent: change.before,
            after_percent: change.after,
            points: change.points(),
            interval_points: change.interval,
            change_percent: change.percent(),
            interval_percent: change.interval_percent(),
            p: change.p,
            significant: change.is_significant,
            finding: change.is_finding,
        }
    }
}

fn write(difference: &Difference<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &object(difference)).context("writing a difference as JSON")?;
    Ok(out.write_all(b"\n")?)
}

fn object<'a>(difference: &'a Difference<'_>) -> DiffObject<'a> {
    let comparison = difference.comparison;
    let [blocks_before, blocks_after] = comparison.blocks;
    let per = comparison.options.per.as_ref().zip(comparison.whole.as_ref());
    let functions = comparison.functions.iter().map(|function| FunctionObject {
        name: difference.name(function),
        kind: difference.kind(function).facts().label,
        finding: function.is_finding(),
        itself: ChangeObject::of(&function.itself),
        total: ChangeObject::of(&function.total),
    });
    DiffObject {
        version: VERSION,
        verdict: if comparison.is_changed() { "changed" } else { "unchanged" },
        sentence: words::verdict(difference),
        event: difference.pair.view().event().name(),
        threshold_points: comparison.options.threshold,
        noise: NoiseObject {
            between: match comparison.basis {
                NoiseBasis::Runs => "runs",
                NoiseBasis::Seconds => "seconds",
                NoiseBasis::Assumed => "assumed",
            },
            blocks_before,
            blocks_after,
            sentence: words::noise(difference),
        },
        before: side(difference, Side::Before),
        after: side(difference, Side::After),
        per: per.map(|(work, whole)| PerObject {
            name: &work.name,
            before: work.before,
            after: work.after,
            change: ChangeObject::of(whole),
        }),
        functions: functions.collect(),
        warnings: words::warnings(difference),
    }
}

fn side<'a>(difference: &'a Difference<'_>, side: Side) -> SideObject<'a> {
    let accounts = difference.accounts(side);
    SideObject {
        files: difference.files(side),
        runs: accounts.runs,
        samples: accounts.samples,
        lost: accounts.lost,
    }
}
