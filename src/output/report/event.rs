//! The report's sections on one event: its accounts, and the quality of its stacks.

use super::detail::Detail;
use super::layout::{ColumnAlignment, advice, base_name, percent, share, table, thousands, wrap};
use crate::profile::advice::for_unknown;
use crate::profile::report::{EventReport, StopRow, TraceReport};
use crate::profile::tables::LeafSides;
use crate::profile::unknown::UnknownRow;
use crate::profile::{ProfileView, RunReport};
use crate::sample::Event;
use crate::sample::unit::Expectation;

/// A labelled number, the whole for its share, and a note.
struct ReportRow {
    label: String,
    n: u64,
    of: u64,
    note: String,
}

impl ReportRow {
    fn new(label: impl Into<String>, n: u64, of: u64) -> ReportRow {
        ReportRow { label: label.into(), n, of, note: String::new() }
    }
}

/// Aligns the numbers of rows in a column; numbers above 0 also get their share.
fn numbers(rows: &[ReportRow]) -> Vec<String> {
    let label = rows.iter().map(|r| r.label.chars().count()).max().unwrap_or(0).max(20);
    let rows = rows.iter().map(|ReportRow { label: text, n, of, note }| {
        let part = if *n == 0 { String::new() } else { format!("  {:>7}{note}", percent(*n, *of)) };
        format!("  {text:<label$}{:>12}{part}", thousands(*n))
    });
    rows.collect()
}

/// The word for an event's samples in heads of columns.
pub(super) fn noun(event: Event) -> &'static str {
    if event == Event::Cpu { "ticks" } else { "samples" }
}

/// Missed ticks are worth a note above one in this many expected ones.
const MANY_MISSED: u64 = 100;

/// The heading of an event's sections; empty if the run has one event.
pub(super) fn title(of: &EventReport, is_one: bool) -> Vec<String> {
    if is_one { Vec::new() } else { vec![format!("== {}: {} ==", of.event.name(), of.event.title())] }
}

pub(super) fn samples(
    report: &RunReport,
    of: &EventReport,
    profile: &ProfileView<'_>,
    width: usize,
) -> Vec<String> {
    let accounts = &of.accounts;
    let filtered = accounts.filtered.saturating_sub(of.idle);
    let row = |label: &str, n| ReportRow::new(label, n, accounts.taken);
    let mut rows = vec![row("in the profile", accounts.kept)];
    if of.idle > 0 {
        rows.push(row(if of.event == Event::Wait { "idle threads" } else { "idle CPUs" }, of.idle));
    }
    if filtered > 0 {
        rows.push(row("not asked for", filtered));
    }
    rows.push(row("lost", accounts.lost_total()));
    rows.extend(accounts.lost.iter().map(|(reason, n)| row(&format!("  {reason}"), *n)));
    let title = match of.event {
        Event::Cpu => "Ticks".to_owned(),
        event => format!("Samples of {}", event.name()),
    };
    let expected = match of.event.expected() {
        Expectation::Counted if accounts.missed == 0 => String::new(),
        Expectation::Counted => format!("  and {} missed", thousands(accounts.missed)),
        Expectation::Periodic | Expectation::OneIn => {
            format!("  of {} expected, {} missed", thousands(accounts.expected), thousands(accounts.missed))
        }
    };
    let mut lines = vec![format!("{title:<22}{:>12}{expected}", thousands(accounts.taken))];
    lines.extend(numbers(&rows));
    if let Some(steal) = report.steal.filter(|s| *s > 0.0 && of.event == Event::Cpu) {
        lines.push(format!("  stolen by the hypervisor: {} of all CPU time", share(steal)));
    }
    let LeafSides { kernel, user } = profile.leaf_sides();
    // With --user no sample has a frame of the kernel. Context switches have no other leaf.
    if of.event == Event::Cpu && kernel > 0 {
        let [kernel, user] = [kernel, user].map(|n| percent(n, profile.accounts().shown()));
        lines.push(format!("  the function that ran: {kernel} in the kernel, {user} in user code"));
    }
    if of.idle > 0 && accounts.missed.saturating_mul(MANY_MISSED) > accounts.expected {
        let note =
            "On a virtual machine missed ticks are mostly those of idle CPUs: then add them to idle CPUs.";
        lines.extend(wrap(note, 2, width));
    }
    lines
}

/// Rows below one part in this many get no advice.
const MUCH: u64 = 500;

/// Unknown frames, stop reasons and advice.
pub(super) fn stacks(of: &EventReport, detail: Detail) -> Vec<String> {
    let unknown = &of.unknown;
    let kept = of.accounts.kept;
    let ended: u64 = of.stop_reasons.iter().map(|(_, n)| n).sum();
    let frames = thousands(unknown.user_frames);
    let mut rows = vec![
        ReportRow::new("unknown leaf", unknown.leaves(), kept),
        ReportRow {
            note: format!(" of {frames}"),
            ..ReportRow::new("unknown user frames", unknown.user(), unknown.user_frames)
        },
        ReportRow::new("truncated", unknown.truncated, kept),
    ];
    rows.extend(
        of.stop_reasons.iter().map(|(reason, n)| ReportRow::new(format!("ended: {reason}"), *n, ended)),
    );
    let mut lines = vec!["Stacks".to_owned()];
    lines.extend(numbers(&rows));
    if !unknown.rows.is_empty() {
        let rows: Vec<[String; 3]> = unknown
            .rows
            .iter()
            .map(|UnknownRow { why, frames, leaves }| {
                [thousands(*frames), thousands(*leaves), why.label().to_owned()]
            })
            .collect();
        let columns = [
            ColumnAlignment::Right("frames"),
            ColumnAlignment::Right("leaves"),
            ColumnAlignment::Left("unknown because"),
        ];
        lines.extend(table(columns, &rows, usize::MAX));
        let much = |row: &&UnknownRow| row.frames * MUCH > unknown.user_frames || row.leaves * MUCH > kept;
        for UnknownRow { why, .. } in unknown.rows.iter().filter(much) {
            lines.extend(wrap(&format!("{}: {}", why.label(), for_unknown(*why)), 2, detail.width));
        }
    }
    let row = |StopRow { file, why, samples, .. }: &StopRow| [thousands(*samples), why.clone(), file.clone()];
    let rows: Vec<[String; 3]> = of.stopped_in.iter().take(detail.rows).map(row).collect();
    if !rows.is_empty() {
        let columns = [
            ColumnAlignment::Right(noun(of.event)),
            ColumnAlignment::Left("ended because"),
            ColumnAlignment::Rest("in"),
        ];
        lines.extend(table(columns, &rows, detail.width));
        let much = |row: &&StopRow| row.samples * MUCH > kept;
        let shown: Vec<&StopRow> = of.stopped_in.iter().take(detail.rows).filter(much).collect();
        let shown: Vec<(&str, &str)> = shown.iter().map(|row| (base_name(&row.file), &*row.advice)).collect();
        lines.extend(advice(&shown, detail.width));
    }
    lines
}

/// Samples with and without a trace.
pub(super) fn traces(of: &EventReport) -> Vec<String> {
    let Some(TraceReport { in_span, no_span, unread, unpublished }) = of.traces else { return Vec::new() };
    let all = in_span + no_span + unread + unpublished;
    let rows = [
        ("in a span", in_span),
        ("no active span", no_span),
        ("not readable", unread),
        ("no trace context", unpublished),
    ];
    let mut lines = vec!["Traces".to_owned()];
    lines.extend(numbers(&rows.map(|(label, n)| ReportRow::new(label, n, all))));
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Event, EventReport, RunReport, TraceReport, samples, traces};
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile};

    #[test]
    fn traces_are_shown_where_they_were_asked_for() {
        assert!(traces(&EventReport::default()).is_empty());
        let counts = TraceReport { in_span: 6, no_span: 1, unread: 1, unpublished: 2 };
        let lines = traces(&EventReport { traces: Some(counts), ..EventReport::default() });
        assert!(lines[1].contains("in a span") && lines[1].contains("60.0 %"), "{lines:?}");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn the_share_of_the_kernel_and_a_doubtful_share_of_idle_cpus_are_said() {
        let lines = |kind, missed| {
            let mut profile = Profile::new();
            profile.add(&Labels::default(), &[Arc::new(Frame::named(kind, "f"))], 100, 0);
            let accounts = Accounts {
                taken: 300,
                filtered: 200,
                kept: 100,
                missed,
                expected: 300 + missed,
                ..Accounts::default()
            };
            *profile.accounts_mut(Event::Cpu) = accounts.clone();
            let of = EventReport { accounts, idle: 200, ..EventReport::default() };
            samples(&RunReport::default(), &of, &profile.of_event(Event::Cpu), 100).join("\n")
        };
        let text = lines(Kind::Kernel, 3);
        assert!(text.contains("the function that ran: 100.0 % in the kernel, 0.0 % in user code"), "{text}");
        assert!(!text.contains("missed ticks are"), "{text}");
        let text = lines(Kind::Native, 4);
        assert!(!text.contains("in the kernel") && text.contains("add them to idle CPUs"), "{text}");
    }
}
