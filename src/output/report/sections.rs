//! The report's sections, each a few lines.

use super::detail::Detail;
use super::event::noun;
use super::layout::{
    ColumnAlignment, advice, base_name, bytes, cut, duration, every, percent, share, table, thousands, wrap,
};
use crate::limits::{Limit, LimitRow};
use crate::output::name;
use crate::profile::pauses::PauseTotals;
use crate::profile::report::{
    Cost, EventReport, GroupReport, JvmRefusal, JvmReport, ReportedNameSource, Steady,
};
use crate::profile::tables::JavaFrameCounts;
use crate::profile::{ProfileView, RunReport};
use crate::sample::Event;

pub(super) fn head(report: &RunReport, width: usize) -> Vec<String> {
    let RunReport { target, command, version, host, kernel, cpus, start, duration_s, .. } = report;
    let title = format!("jbpf-prof {version}");
    let indent = title.len() + 3;
    let cpus = if *cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
    let mut lines = wrap(&format!("{target} on {host}, Linux {kernel}, {cpus}"), indent, width);
    lines.extend(wrap(&format!("{duration_s:.1} s{} from {start}", rates(report)), indent, width));
    if !command.is_empty() {
        lines.extend(wrap(command, indent, width));
    }
    if let Some(first) = lines.first_mut() {
        first.replace_range(..title.len(), &title);
    }
    lines
}

/// The rate of CPU time, if nothing else is sampled; else the rate or the period of each event.
fn rates(report: &RunReport) -> String {
    let cpu = || {
        let is_other = (report.requested_hz - report.effective_hz).abs() > report.requested_hz / 100.0;
        let asked = if is_other { format!(" (asked for {:.0})", report.requested_hz) } else { String::new() };
        format!(" at {:.0} Hz{asked}", report.effective_hz)
    };
    let of = |of: &EventReport| match of.event {
        Event::Cpu => format!("{}{}", of.event.title(), cpu()),
        Event::Wait if of.accounts.period_ns > 0 => {
            format!("{} at {:.0} Hz", of.event.title(), 1e9 / of.accounts.period_ns as f64)
        }
        event => period(event, of.accounts.one_in),
    };
    if report.first.event == Event::Cpu && report.others.is_empty() {
        return cpu();
    }
    let events: Vec<String> = std::iter::once(&report.first).chain(&report.others).map(of).collect();
    format!(": {},", events.join(", "))
}

/// How many of an event's occurrences one sample stands for; 0: not known.
fn period(event: Event, n: u64) -> String {
    match n {
        0 => event.title().to_owned(),
        1 => format!("all {}", event.title()),
        n => every(event, n),
    }
}

pub(super) fn warnings(report: &RunReport, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for warning in &report.warnings {
        let mut wrapped = wrap(warning, 4, width);
        if let Some(first) = wrapped.first_mut() {
            first.replace_range(..3, "  !");
        }
        lines.extend(wrapped);
    }
    lines
}

/// Parts that were left out because a limit was reached.
pub(super) fn limits(report: &RunReport, detail: Detail) -> Vec<String> {
    let mut all: Vec<&LimitRow> = report.limits.iter().collect();
    all.sort_by_key(|row| (row.limit, std::cmp::Reverse(row.left_out)));
    let rows: Vec<[String; 3]> = all
        .iter()
        .take(detail.rows)
        .map(|row| [thousands(row.left_out), row.limit.what().to_owned(), row.subject.clone()])
        .collect();
    let columns =
        [ColumnAlignment::Right("number"), ColumnAlignment::Left("of"), ColumnAlignment::Rest("where")];
    let mut lines = section("Limits reached", columns, &rows, all.len(), detail);
    let reached = Limit::all().filter(|limit| all.iter().any(|row| row.limit == *limit));
    lines.extend(reached.flat_map(|limit| wrap(limit.advice(), 2, detail.width)));
    lines
}

/// JVMs, their symbol sources and notes on them.
pub(super) fn jvms(report: &RunReport, profile: &ProfileView<'_>, width: usize) -> Vec<String> {
    if report.jvms.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["JVMs".to_owned()];
    let rows: Vec<[String; 7]> = report.jvms.iter().map(jvm_row).collect();
    let columns = [
        ColumnAlignment::Right("pid"),
        ColumnAlignment::Left("version"),
        ColumnAlignment::Right(noun(profile.event())),
        ColumnAlignment::Right("Java"),
        ColumnAlignment::Right("to the root"),
        ColumnAlignment::Left("names"),
        ColumnAlignment::Rest("main"),
    ];
    let mut table = table(columns, &rows, width).into_iter();
    lines.extend(table.next());
    for (jvm, row) in report.jvms.iter().zip(table) {
        lines.push(row);
        for note in jvm_notes(jvm, report.duration_s).into_iter().chain(note_on_end(jvm, profile)) {
            lines.extend(wrap(&note, 6, width));
        }
    }
    lines
}

fn jvm_row(jvm: &JvmReport) -> [String; 7] {
    let names = match &jvm.names {
        ReportedNameSource::AgentAtStart => "agent at start".to_owned(),
        ReportedNameSource::AgentLate { ms } => format!("agent, {ms} ms"),
        ReportedNameSource::AgentDuringRun { ms } => format!("agent mid-run, {ms} ms"),
        ReportedNameSource::Memory { ms } => format!("its memory, {ms} ms"),
        ReportedNameSource::Off => "off".to_owned(),
        ReportedNameSource::Refused { .. } => "none".to_owned(),
    };
    let whole = jvm.java_samples.saturating_sub(jvm.rootless_samples);
    [
        jvm.pid.to_string(),
        if jvm.version.is_empty() { "unknown".to_owned() } else { cut(&jvm.version, 28) },
        thousands(jvm.samples),
        percent(jvm.java_samples, jvm.samples),
        percent(whole, jvm.java_samples),
        names,
        jvm.name.clone(),
    ]
}

fn pause_note(pauses: &PauseTotals, duration_s: f64) -> String {
    let PauseTotals { safepoints, safepoint_usec, collections, collection_usec } = *pauses;
    let part = if duration_s > 0.0 { safepoint_usec as f64 / 1e6 / duration_s } else { 0.0 };
    format!(
        "All Java threads were stopped at {} safepoints, {} in total ({}). Collections or pauses of its collectors: {}, {} in total.",
        thousands(safepoints),
        duration(safepoint_usec.saturating_mul(1000)),
        share(part),
        thousands(collections),
        duration(collection_usec.saturating_mul(1000))
    )
}

fn jvm_notes(jvm: &JvmReport, duration_s: f64) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(tested) = jvm.newer_than {
        notes.push(format!(
            "This JVM is newer than JDK {tested}, the newest that jbpf-prof is tested with: names or callers may be missing."
        ));
    }
    if let ReportedNameSource::Refused { label, hint } = &jvm.names {
        notes.push(format!("This JVM's Java code has no names: {label}. {hint}"));
    }
    match (&jvm.no_agent, &jvm.names) {
        (Some(JvmRefusal { label, hint }), ReportedNameSource::Memory { .. }) => {
            notes.push(format!("Names come from the JVM's memory, not from the agent: {label}. {hint}"));
        }
        (Some(JvmRefusal { label, hint }), _) => {
            notes.push(format!("The agent could not be attached: {label}. {hint}"));
        }
        (None, _) => {}
    }
    if let Some(why) = jvm.undescribed.as_ref().filter(|_| jvm.frame_pointers != Some(true)) {
        let share = match jvm.java_samples {
            0 => String::new(),
            all => {
                format!(", {} of its Java samples do not reach the root", percent(jvm.rootless_samples, all))
            }
        };
        notes.push(format!(
            "This JVM's stacks are unwound by frame pointers only{share}: {why}. Start it with -XX:+PreserveFramePointer."
        ));
    }
    if let Some(before) = jvm.compiled_before.filter(|b| *b >= 0.01) {
        let from = match jvm.names {
            ReportedNameSource::Memory { .. } => "has debug records at calls and safepoints only",
            _ => "was compiled before the agent was attached",
        };
        notes.push(format!(
            "{} of its Java samples are in code that {from}. A compiled method (green box) is right where it stands. \
             Inlined methods (aqua boxes) and lines are approximate there: the time of one can be shown for another. So \
             the total of a method that any caller inlines is approximate, too. To check a method, start the JVM with -XX:CompileCommand=dontinline,CLASS::METHOD.",
            share(before)
        ));
    }
    if let Some(throttling) = jvm.throttling.filter(|t| t.times > 0) {
        notes.push(format!(
            "The cgroup of this JVM was throttled {} times, {:.1} s in total.",
            thousands(throttling.times),
            throttling.usec as f64 / 1e6
        ));
    }
    let pauses = jvm.pauses.filter(|pauses| pauses.safepoints > 0 || pauses.collections > 0);
    notes.extend(pauses.map(|pauses| pause_note(&pauses, duration_s)));
    if jvm.log_cut {
        notes.push(format!(
            "The agent's log was cut at {}: some Java code has no name.",
            bytes(jvm.log_bytes)
        ));
    }
    notes
}

/// A note on a JVM that ended before most of its Java code was named from its memory.
fn note_on_end(jvm: &JvmReport, profile: &ProfileView<'_>) -> Option<String> {
    let ReportedNameSource::Memory { .. } = jvm.names else { return None };
    let JavaFrameCounts { named, gone } = profile.java_frames(jvm.pid);
    (gone > named).then(|| {
        format!(
            "This JVM ended before its memory was read: {} of its Java frames are [unknown: process gone]. Start such a \
             JVM with -agentpath for the agent.",
            percent(gone, named + gone)
        )
    })
}

/// The selected cgroups and their CPU throttling.
pub(super) fn groups(report: &RunReport, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for group in &report.groups {
        if lines.is_empty() {
            lines.push("Cgroups".to_owned());
        }
        lines.push(cut(&format!("  {} ({})", group.path, group.hierarchy), width));
        lines.extend(group_notes(group).iter().flat_map(|note| wrap(note, 6, width)));
    }
    lines
}

fn group_notes(group: &GroupReport) -> Vec<String> {
    let seconds = |usec: u64| usec as f64 / 1e6;
    let mut notes = Vec::new();
    let GroupReport { limit_cpus, periods, throttled_periods, throttled_usec, .. } = group;
    if limit_cpus.is_some() || *throttled_periods > 0 {
        let limit = limit_cpus.map(|cpus| format!("The CPU limit is {cpus:.2} CPUs."));
        notes.push(format!(
            "{} Throttled in {} of {} periods, {:.1} s in total, summed over CPUs.",
            limit.as_deref().unwrap_or("The CPU limit was removed."),
            thousands(*throttled_periods),
            thousands(*periods),
            seconds(*throttled_usec),
        ));
    }
    if let Some(usec) = group.pressure_usec.filter(|usec| *usec > 0) {
        notes.push(format!("Threads waited for a CPU during {:.1} s.", seconds(usec)));
    }
    notes
}

/// Containers, and a row for samples outside of containers.
pub(super) fn containers(profile: &ProfileView<'_>, detail: Detail) -> Vec<String> {
    let all = profile.containers();
    let shown = profile.accounts().shown();
    let rows: Vec<[String; 4]> = all
        .iter()
        .take(detail.rows)
        .map(|row| {
            let [id, title] = match &row.container {
                Some(container) => [container.short_id().to_owned(), container.title()],
                None => ["-".to_owned(), "[in no container]".to_owned()],
            };
            [percent(row.samples, shown), thousands(row.samples), id, title]
        })
        .collect();
    let columns = [
        ColumnAlignment::Right("share"),
        ColumnAlignment::Right(noun(profile.event())),
        ColumnAlignment::Left("id"),
        ColumnAlignment::Rest("container"),
    ];
    section("Containers", columns, &rows, all.len(), detail)
}

/// The most pids of processes with one name in a row.
const MAX_PIDS: usize = 4;

pub(super) fn processes(profile: &ProfileView<'_>, detail: Detail) -> Vec<String> {
    let all = profile.processes();
    let shown = profile.accounts().shown();
    let rows: Vec<[String; 3]> = all
        .iter()
        .take(detail.rows)
        .map(|row| {
            let who = match row.pids.as_slice() {
                [0] => row.name.to_string(),
                [pid] => format!("{} ({pid})", row.name),
                pids if pids.len() <= MAX_PIDS => {
                    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                    format!("{} ({})", row.name, pids.join(", "))
                }
                pids => format!("{} ({} processes)", row.name, thousands(pids.len() as u64)),
            };
            [percent(row.samples, shown), thousands(row.samples), who]
        })
        .collect();
    let columns = [
        ColumnAlignment::Right("share"),
        ColumnAlignment::Right(noun(profile.event())),
        ColumnAlignment::Rest("process"),
    ];
    section("Processes", columns, &rows, all.len(), detail)
}

pub(super) fn functions(profile: &ProfileView<'_>, detail: Detail) -> Vec<String> {
    let all = profile.functions();
    let shown = profile.accounts().shown();
    let frames = profile.frames();
    let rows: Vec<[String; 4]> = all
        .iter()
        .take(detail.rows)
        .map(|row| {
            let symbol = &frames.symbols()[row.symbol as usize];
            [
                percent(row.itself, shown),
                percent(row.total, shown),
                if row.inlined { "inlined" } else { symbol.kind.facts().language }.to_owned(),
                name::display_name(frames, symbol),
            ]
        })
        .collect();
    let columns = [
        ColumnAlignment::Right("self"),
        ColumnAlignment::Right("total"),
        ColumnAlignment::Left("kind"),
        ColumnAlignment::Rest("function"),
    ];
    section("Functions", columns, &rows, all.len(), detail)
}

/// Files whose functions have no names, with advice on where to find the names.
pub(super) fn stripped(profile: &ProfileView<'_>, detail: Detail) -> Vec<String> {
    let all = profile.stripped();
    let shown = profile.accounts().shown();
    let rows: Vec<[String; 3]> = all
        .iter()
        .take(detail.rows)
        .map(|row| [percent(row.itself, shown), percent(row.total, shown), row.path.to_string()])
        .collect();
    let columns =
        [ColumnAlignment::Right("self"), ColumnAlignment::Right("total"), ColumnAlignment::Rest("file")];
    let mut lines = section("Without symbols", columns, &rows, all.len(), detail);
    if !lines.is_empty() {
        lines.extend(wrap("Such functions are called FILE!fun_ADDRESS.", 2, detail.width));
    }
    let shown: Vec<(&str, &str)> =
        all.iter().take(detail.rows).map(|row| (base_name(&row.path), row.advice)).collect();
    lines.extend(advice(&shown, detail.width));
    lines
}

pub(super) fn lines(profile: &ProfileView<'_>, detail: Detail) -> Vec<String> {
    let all = profile.lines();
    let shown = profile.accounts().shown();
    let rows: Vec<[String; 3]> = all
        .iter()
        .take(detail.rows)
        .map(|row| {
            let place = name::with_line(profile.frames(), row);
            [percent(row.itself, shown), thousands(row.itself), place]
        })
        .collect();
    let columns = [
        ColumnAlignment::Right("self"),
        ColumnAlignment::Right(noun(profile.event())),
        ColumnAlignment::Rest("line"),
    ];
    section("Lines", columns, &rows, all.len(), detail)
}

fn section<const N: usize>(
    title: &str,
    columns: [ColumnAlignment; N],
    rows: &[[String; N]],
    all: usize,
    detail: Detail,
) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let title = match all.saturating_sub(rows.len()) {
        0 => title.to_owned(),
        _ => format!("{title}, {} of {}", rows.len(), thousands(all as u64)),
    };
    std::iter::once(title).chain(table(columns, rows, detail.width)).collect()
}

pub(super) fn cost(report: &RunReport, width: usize) -> Vec<String> {
    let Cost { broker_s, worker_s, helpers_s, bpf_s, bpf_runs, rss_bytes, maps_bytes, steady } = &report.cost;
    let mut parts = format!(
        "{} of one core: broker {broker_s:.2} s, symbols {worker_s:.2} s, helpers {helpers_s:.2} s",
        share(report.cost.cpu_s() / report.duration_s.max(1e-3)),
    );
    parts += &match bpf_s {
        Some(s) => {
            let each = if *bpf_runs == 0 { 0.0 } else { s * 1e6 / *bpf_runs as f64 };
            format!(", BPF {s:.2} s ({each:.1} µs for each run of a BPF program)")
        }
        None => ", BPF not counted by this kernel".to_owned(),
    };
    parts += &format!("; {} of memory, {} of BPF maps", bytes(*rss_bytes), bytes(*maps_bytes));
    if let Some(Steady { seconds, cpu_s, after_s }) = steady {
        let of_core = share(cpu_s / seconds.max(1e-3));
        parts += &format!("; in steady state, from second {after_s:.0} to the last, {of_core} of one core");
    }
    let mut lines = wrap(&parts, 6, width);
    if let Some(first) = lines.first_mut() {
        first.replace_range(..6, "Cost  ");
    }
    lines
}

pub(super) fn outputs(report: &RunReport) -> Vec<String> {
    report.outputs.iter().map(|path| format!("Wrote {path}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        Event, GroupReport, JvmReport, ReportedNameSource, RunReport, group_notes, note_on_end, rates,
    };
    use crate::profile::report::EventReport;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile, UnknownReason};

    #[test]
    fn the_rate_is_that_of_the_clock_and_other_events_have_a_period() {
        let of = |event, one_in| {
            let accounts = Accounts { one_in, period_ns: 5_025_126, ..Accounts::default() };
            EventReport { event, accounts, ..EventReport::default() }
        };
        let text = |first, others| {
            rates(&RunReport {
                first,
                others,
                requested_hz: 99.0,
                effective_hz: 99.0,
                ..RunReport::default()
            })
        };
        assert_eq!(text(of(Event::Cpu, 0), Vec::new()), " at 99 Hz");
        assert_eq!(text(of(Event::PageFaults, 100), Vec::new()), ": one in 100 page faults,");
        assert_eq!(text(of(Event::Rss, 4096), Vec::new()), ": one for each 4 KiB of growth of memory,");
        assert_eq!(
            text(of(Event::Cpu, 0), vec![of(Event::ContextSwitches, 1)]),
            ": CPU time at 99 Hz, all context switches,"
        );
        assert_eq!(text(of(Event::Wait, 0), Vec::new()), ": waiting time at 199 Hz,");
    }

    #[test]
    fn a_jvm_that_ended_before_it_was_read_has_a_note() {
        let (method, gone) = (
            Arc::new(Frame::named(Kind::JavaInterpreted, "A.f")),
            Arc::new(Frame::unknown(UnknownReason::ProcessGone, None, 9)),
        );
        let note = |named: usize, names| {
            let mut profile = Profile::new();
            let stack = [vec![Arc::clone(&method); named], vec![Arc::clone(&gone); 3]].concat();
            profile.add(&Labels { pid: 7, ..Labels::default() }, &stack, 2, 0);
            let jvm = JvmReport { pid: 7, names, ..JvmReport::default() };
            note_on_end(&jvm, &profile.of_event(Event::Cpu))
        };
        let memory = ReportedNameSource::Memory { ms: 5 };
        assert!(note(1, memory.clone()).is_some_and(|text| text.contains("75.0 %")));
        assert_eq!(note(3, memory), None);
        assert_eq!(note(0, ReportedNameSource::AgentAtStart), None);
    }

    #[test]
    fn a_removed_quota_is_reported_if_it_throttled() {
        let group = |limit_cpus, throttled_periods| {
            let group = GroupReport { limit_cpus, throttled_periods, periods: 30, ..GroupReport::default() };
            group_notes(&group).concat()
        };
        assert_eq!(
            group(Some(0.5), 0),
            "The CPU limit is 0.50 CPUs. Throttled in 0 of 30 periods, 0.0 s in total, summed over CPUs."
        );
        assert_eq!(
            group(None, 2),
            "The CPU limit was removed. Throttled in 2 of 30 periods, 0.0 s in total, summed over CPUs."
        );
        assert_eq!(group(None, 0), "");
    }
}
