//! Assembles the outcome of a part of a session: the profile with its accounts, and the report.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::batch::{EventTotals, SessionTotals};
use super::cost::{cost, resident};
use super::outcome::{Outcome, ResourceUse};
use super::part::RunPart;
use super::stop_reason::{advice, label};
use super::tally::EventTally;
use crate::plan::{Settings, Target};
use crate::process::selection::Selection;
use crate::process::throttling::MachineTime;
use crate::profile::frame::clean;
use crate::profile::report::{AllocatedBytes, EventReport, MAX_STOP_ROWS, StopRow};
use crate::profile::samples::TimeSpan;
use crate::profile::{Accounts, Module, Profile, RunReport};
use crate::sample::unit::{Expectation, Unit};
use crate::sample::{Event, StopReason};
use crate::symbolize::Stats;
use crate::world::{ChildStats, PartReport};

/// How far a part's end may differ from its start plus its duration. A larger difference means that the wall clock was
/// set. Smaller corrections are slewed, which affects both clocks, and the thread may wait for a CPU between reading
/// them.
const MAX_CLOCK_CORRECTION: SignedDuration = SignedDuration::from_millis(100);

/// Numbers of the session so far, from which the next part's are computed.
pub(super) struct PartAssembler {
    /// Wall-clock end of the last part; `None` before the first.
    ended_at: Option<Timestamp>,
    machine: MachineTime,
    /// Duration of all parts so far.
    past_duration: Duration,
    past: BTreeMap<Event, PastSamples>,
}

/// Samples of an event in all parts so far.
#[derive(Clone, Copy, Debug, Default)]
struct PastSamples {
    taken: u64,
    missed: u64,
    expected: u64,
}

impl PartAssembler {
    pub(super) fn begin() -> PartAssembler {
        let machine = MachineTime::now();
        PartAssembler { ended_at: None, machine, past_duration: Duration::ZERO, past: BTreeMap::new() }
    }

    /// Assembles the outcome of a part. The next part starts where this one ends.
    pub(super) fn part(
        &mut self,
        part: RunPart,
        totals: &SessionTotals,
        reported: PartReport,
        children: &ChildStats,
        settings: &Settings,
    ) -> Outcome {
        let ChildStats { symbols, openers } = children;
        let pauses = part.pauses(&reported.pauses);
        let RunPart { mut profile, mut tally, most_stacks, .. } = part;
        let duration = totals.duration.saturating_sub(self.past_duration);
        self.past_duration = totals.duration;
        let mut events = Vec::new();
        for of in &totals.events {
            let tally = tally.of(of.event);
            let hidden_idle = tally.hidden_idle(settings.idle);
            *profile.accounts_mut(of.event) = self.accounts(tally, of, hidden_idle);
            events.push(EventReport {
                event: of.event,
                accounts: profile.accounts(of.event),
                idle: hidden_idle,
                unknown: profile.of_event(of.event).unknown(),
                stop_reasons: stop_reasons(tally),
                stopped_in: stopped_in(tally),
                waits: (of.event == Event::Wait).then(|| tally.waits.report()),
                allocated: of.event.allocates().then_some(AllocatedBytes {
                    profiled: tally.allocated.wanted,
                    filtered: tally.allocated.filtered,
                    profiled_calls: tally.allocated.wanted_calls,
                    filtered_calls: tally.allocated.filtered_calls,
                    estimated: tally.allocated.estimated,
                }),
                traces: settings.trace_context.then_some(tally.traces),
            });
        }
        let others = events.split_off(events.len().min(1));
        let start = self.start(totals.ended_at, duration);
        profile.span = TimeSpan {
            start_unix_ns: start.as_nanosecond().try_into().unwrap_or(0),
            duration_ns: duration.as_nanos().try_into().unwrap_or(0),
        };
        profile.pauses = pauses;
        let steal = totals.machine.stolen_share_since(&self.machine);
        self.machine = totals.machine;
        #[allow(clippy::cast_precision_loss, reason = "a period has few digits")]
        let hz = totals.clock_ns().map_or(0.0, |period| 1e9 / period as f64);
        let report = RunReport {
            target: target(settings),
            command: command(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: read_line("/proc/sys/kernel/hostname"),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            cpus: u32::try_from(totals.cpus).unwrap_or(u32::MAX),
            start: start.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
            duration_s: duration.as_secs_f64(),
            requested_hz: settings.requested_hz,
            effective_hz: hz,
            first: events.pop().unwrap_or_default(),
            others,
            jvms: reported.jvms,
            groups: reported.groups,
            steal: Some(steal),
            cost: cost(totals, symbols, *openers, reported.tables),
            limits: Vec::new(),
            warnings: reported.warnings.into_iter().chain(warnings(&profile, totals, symbols)).collect(),
            outputs: Vec::new(),
        };
        let resource_use = ResourceUse {
            resident: resident(symbols, *openers),
            cached: symbols.cached,
            most_stacks,
            room_for_stacks: totals.room_for_stacks,
            tables: reported.tables,
            attached: reported.attached,
        };
        Outcome { profile, report, resource_use, ended: totals.ended }
    }

    /// When a part began that ended at `ended_at`: where the last part ended, unless the clock was set meanwhile.
    fn start(&mut self, ended_at: Timestamp, duration: Duration) -> Timestamp {
        let by_end = ended_at.checked_sub(duration).unwrap_or(ended_at);
        let follows = self.ended_at.filter(|last| last.duration_since(by_end).abs() < MAX_CLOCK_CORRECTION);
        let start = follows.unwrap_or(by_end);
        self.ended_at = start.checked_add(duration).ok();
        start
    }

    /// The accounts of a part. The event's own count is read a moment before the window ends. A tick in between is
    /// taken in this part and expected in the next. Over all parts expected = taken + missed.
    fn accounts(&mut self, tally: &EventTally, of: &EventTotals, hidden_idle: u64) -> Accounts {
        let taken = tally.counters.ticks;
        let past = self.past.entry(of.event).or_default();
        past.taken += taken;
        let periods = match of.event.expected() {
            Expectation::Counted => past.taken + of.elapsed.missed,
            Expectation::Periodic | Expectation::OneIn => of.elapsed.periods,
        };
        let missed = periods.saturating_sub(past.taken + past.missed);
        past.missed += missed;
        let expected = periods.saturating_sub(past.expected);
        past.expected += expected;
        let is_time = of.event.unit() == Unit::Nanoseconds;
        Accounts {
            taken,
            filtered: tally.counters.filtered + hidden_idle,
            kept: tally.kept - hidden_idle,
            lost: tally.lost(),
            missed,
            expected,
            period_ns: if is_time { of.period } else { 0 },
            one_in: if is_time { 0 } else { of.period },
            longest_period_ns: 0,
        }
    }
}

/// Stop reasons of user stacks, the most frequent first.
fn stop_reasons(tally: &EventTally) -> Vec<(String, u64)> {
    let row = |(&stop_reason, &samples): (&StopReason, &u64)| (label(stop_reason).to_owned(), samples);
    let mut rows: Vec<(String, u64)> = tally.stop_reasons.iter().map(row).collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}

/// The files in whose code unwinding stopped before the root, those with the most samples first.
fn stopped_in(tally: &EventTally) -> Vec<StopRow> {
    let row = |((file, stop_reason), &samples): (&(Arc<Module>, StopReason), &u64)| StopRow {
        file: file.path.to_string(),
        why: label(*stop_reason).to_owned(),
        advice: advice(*stop_reason, file).unwrap_or_default().to_owned(),
        samples,
    };
    let mut rows: Vec<StopRow> = tally.stopped_in.iter().map(row).collect();
    rows.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.cmp(b)));
    rows.truncate(MAX_STOP_ROWS);
    rows
}

fn warnings(profile: &Profile, totals: &SessionTotals, symbols: &Stats) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Err(error) = profile.check() {
        warnings.push(error);
    }
    if totals.lost_events > 0 {
        warnings.push(format!(
            "{} events of processes and mappings were lost by the kernel; short processes may be unnamed",
            totals.lost_events
        ));
    }
    if symbols.worker_lost > 0 {
        warnings.push(format!(
            "the symbol worker crashed or timed out {} times and was restarted; {} files were given up",
            symbols.worker_lost, symbols.files_poisoned
        ));
    }
    warnings
}

/// What is profiled, for people.
#[must_use]
pub fn target(settings: &Settings) -> String {
    let list = |one: &str, several: &str, ids: &[u32]| {
        let noun = if ids.len() == 1 { one } else { several };
        format!("{noun} {}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
    };
    match &settings.target {
        Target::All => "all processes".to_owned(),
        Target::Pids(pids) if settings.children => {
            format!("{} and all descendants", list("process", "processes", pids))
        }
        Target::Pids(pids) => list("process", "processes", pids),
        Target::Tids(tids) => list("thread", "threads", tids),
        Target::Groups(selection) => {
            let Selection { paths, containers, pods, namespaces, node: _ } = selection;
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let named = [("cgroups", &paths), ("containers", containers), ("pods", pods)];
            let named = named.into_iter().chain([("namespaces", namespaces)]);
            let parts = named.filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
                let names: Vec<String> = names.iter().map(|n| clean(n.as_bytes(), 200)).collect();
                format!("{what} {}", names.join(", "))
            });
            parts.collect::<Vec<_>>().join("; ")
        }
        Target::Launch(command) => {
            let words: Vec<String> = command.iter().map(|w| clean(w.as_encoded_bytes(), 200)).collect();
            format!("command {}", words.join(" "))
        }
    }
}

fn command() -> String {
    let words: Vec<String> = std::env::args_os().map(|w| clean(w.as_encoded_bytes(), 200)).collect();
    words.join(" ")
}

fn read_line(path: &str) -> String {
    clean(fs::read(path).unwrap_or_default().trim_ascii(), 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ExpectedSamples;
    use crate::output::report::{Detail, text};
    use crate::profile::Profile;

    #[test]
    fn parts_follow_each_other_and_a_clock_that_is_set() {
        let mut part_assembler = PartAssembler::begin();
        // When a part of ten seconds ends by the wall clock, and when it began.
        let hour = 3_600_000;
        for (ended_ms, began_ms) in [
            (100_000, 90_000),
            // Within the tolerance, late and early.
            (110_003, 100_000),
            (119_980, 110_000),
            (130_000, 120_000),
            // The clock is set forward by an hour, then back by a second.
            (140_000 + hour, 130_000 + hour),
            (150_002 + hour, 140_000 + hour),
            (159_000 + hour, 149_000 + hour),
            (169_000 + hour, 159_000 + hour),
        ] {
            let ended_at = Timestamp::from_millisecond(ended_ms).unwrap();
            let began_at = part_assembler.start(ended_at, Duration::from_secs(10));
            assert_eq!(began_at.as_millisecond(), began_ms, "{ended_ms}");
        }
    }

    #[test]
    fn a_missed_tick_is_missed_in_one_part() {
        let mut part_assembler = PartAssembler::begin();
        let (mut expected, mut taken, mut missed) = (0, 0, 0);
        for (periods, ticks) in [(100, 90), (200, 95), (300, 100), (400, 100), (500, 97)] {
            let elapsed = ExpectedSamples { periods, ..ExpectedSamples::default() };
            let of = EventTotals { event: Event::Cpu, elapsed, period: 0 };
            let mut tally = EventTally::default();
            tally.counters.ticks = ticks;
            let accounts = part_assembler.accounts(&tally, &of, 0);
            expected += accounts.expected;
            taken += accounts.taken;
            missed += accounts.missed;
            assert_eq!((expected, expected - taken), (periods, missed));
        }
    }

    /// The number in a row of the report.
    fn row(report: &str, label: &str) -> u64 {
        let row = report.lines().find_map(|line| line.strip_prefix(label));
        row.and_then(|row| row.split_whitespace().next()).map_or(0, |n| n.parse().unwrap())
    }

    #[test]
    fn ticks_add_up_whether_idleness_is_shown_or_not() {
        let of = EventTotals { event: Event::Cpu, elapsed: ExpectedSamples::default(), period: 0 };
        let mut tally = EventTally { kept: 88, idle: 60, frameless: 3, ..EventTally::default() };
        (tally.counters.ticks, tally.counters.filtered) = (100, 9);
        for (shown, rows) in [(false, [28, 60, 9, 3]), (true, [88, 0, 9, 3])] {
            let idle = tally.hidden_idle(shown);
            let accounts = PartAssembler::begin().accounts(&tally, &of, idle);
            accounts.check().unwrap();
            let first = EventReport { accounts, idle, ..EventReport::default() };
            let report = RunReport { first, ..RunReport::default() };
            let text = text(&report, &Profile::new(), Detail::default());
            let labels = ["  in the profile", "  idle CPUs", "  not asked for", "  lost"];
            assert_eq!(labels.map(|label| row(&text, label)), rows, "{text}");
            assert_eq!(rows.iter().sum::<u64>(), row(&text, "Ticks"));
        }
    }
}
