//! The daemon's counters for `/metrics`, without names of processes, containers or pods: tenants choose those.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use super::exposition::{Exposition, Metric};
use super::kubelet::KubeletPolls;
use super::push::PushStats;
use super::store::StoreTotals;
use crate::limits::{Limit, LimitRow};
use crate::profile::UnknownReason;
use crate::profile::report::{Cost, ReportedNameSource};
use crate::serve::FeedStats;
use crate::session::{self, Outcome, ResourceUse};

/// Totals since the start of the daemon, and its current state.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    taken: u64,
    filtered: u64,
    kept: u64,
    lost: BTreeMap<String, u64>,
    missed: u64,
    /// Numbers of samples by event and result.
    events: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    unknown: BTreeMap<&'static str, u64>,
    user_frames: u64,
    /// Amount left out because of a limit, by the limit's name.
    limits: SessionCounters<&'static str>,
    windows: u64,
    /// Windows that were dropped because the queue to the disk was full.
    pub(super) skipped: u64,
    /// Sessions that ended with an error.
    pub(super) failures: u64,
    attached: SessionCounters<String>,
    jvms: BTreeMap<&'static str, u64>,
    throttled: ThrottledJvms,
    /// Time of all JVMs at safepoints, microseconds.
    paused_usec: u64,
    cpu: SessionCounters<&'static str>,
    resource_use: ResourceUse,
    maps_bytes: u64,
    /// Own CPU time as a share (0 to 1) of the host's, and the current rate.
    pub(super) share: f64,
    pub(super) hz: f64,
    pub(super) lowered: u64,
    pub(super) evictions: u64,
    pub(super) paused: bool,
}

/// JVMs that their CPU limit throttled.
#[derive(Clone, Copy, Debug, Default)]
struct ThrottledJvms {
    /// The number of such JVMs in the last window.
    in_last_window: u64,
    /// The throttled time of all JVMs, microseconds.
    total_usec: u64,
}

/// Totals over sessions of counters that restart at 0 with each session.
#[derive(Clone, Debug, Default)]
struct SessionCounters<K> {
    total: BTreeMap<K, f64>,
    last: BTreeMap<K, f64>,
}

impl<K: Ord + Clone> SessionCounters<K> {
    fn update(&mut self, key: K, now: f64) {
        let last = self.last.insert(key.clone(), now).unwrap_or(0.0);
        self.add(key, if now >= last { now - last } else { now });
    }

    fn add(&mut self, key: K, more: f64) {
        *self.total.entry(key).or_default() += more;
    }
}

impl Metrics {
    /// Adds one stored window, whose JVMs replace those of the window before.
    pub(super) fn add_window(&mut self, outcome: &Outcome) {
        let Outcome { report, resource_use, .. } = outcome;
        let accounts = &report.first.accounts;
        self.windows += 1;
        self.taken += accounts.taken;
        self.filtered += accounts.filtered;
        self.kept += accounts.kept;
        self.missed += accounts.missed;
        for (reason, n) in &accounts.lost {
            *self.lost.entry(reason.to_string()).or_default() += n;
        }
        for of in std::iter::once(&report.first).chain(&report.others) {
            let accounts = &of.accounts;
            let results = self.events.entry(of.event.name()).or_default();
            let (lost, missed) = (accounts.lost_total(), accounts.missed);
            let now = [
                ("kept", accounts.kept),
                ("filtered", accounts.filtered),
                ("lost", lost),
                ("missed", missed),
            ];
            now.into_iter().for_each(|(result, n)| *results.entry(result).or_default() += n);
        }
        self.user_frames += report.first.unknown.user_frames;
        for row in &report.first.unknown.rows {
            *self.unknown.entry(row.why.label()).or_default() += row.frames;
        }
        self.add_limits(&report.limits);
        for (result, n) in &resource_use.attached {
            self.attached.update(result.clone(), *n as f64);
        }
        self.jvms.clear();
        self.throttled.in_last_window = 0;
        self.paused_usec +=
            report.jvms.iter().filter_map(|jvm| Some(jvm.pauses?.safepoint_usec)).sum::<u64>();
        for jvm in &report.jvms {
            *self.jvms.entry(source(&jvm.names)).or_default() += 1;
            let usec = jvm.throttling.map_or(0, |throttling| throttling.usec);
            self.throttled.in_last_window += u64::from(usec > 0);
            self.throttled.total_usec += usec;
        }
        let Cost { broker_s, worker_s, helpers_s, bpf_s, maps_bytes, .. } = report.cost;
        self.cpu.update("broker", broker_s);
        self.cpu.update("workers", worker_s);
        self.cpu.update("helpers", helpers_s);
        self.cpu.update("bpf", bpf_s.unwrap_or(0.0));
        self.maps_bytes = maps_bytes;
        self.resource_use = resource_use.clone();
    }

    fn add_limits(&mut self, reached: &[LimitRow]) {
        for limit in Limit::all() {
            let rows = reached.iter().filter(|row| row.limit == limit);
            let left_out = rows.map(|row| row.left_out as f64).sum();
            if limit.is_per_part() {
                self.limits.add(limit.name(), left_out);
            } else {
                self.limits.update(limit.name(), left_out);
            }
        }
    }

    /// A session has ended, and the next one counts from 0. The CPU time of this process goes on.
    pub(super) fn session_ended(&mut self) {
        self.attached.last.clear();
        self.limits.last.clear();
        // The session's workers have ended too, so the kernel counts their CPU time among the helpers from now on.
        let workers = self.cpu.last.remove("workers").unwrap_or(0.0);
        *self.cpu.last.entry("helpers").or_default() += workers;
        self.cpu.last.remove("bpf");
        self.jvms.clear();
        self.resource_use = ResourceUse::default();
        self.maps_bytes = 0;
    }

    /// Total own CPU time in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu.total.values().sum()
    }

    /// Current own memory in bytes: resident memory, and the kernel's memory for BPF maps.
    pub(super) fn memory(&self) -> u64 {
        self.resource_use.resident + self.maps_bytes
    }

    /// Number of windows since the start of the daemon.
    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// The metrics in Prometheus's text format.
    pub(super) fn text(
        &self,
        kept: Option<StoreTotals>,
        sinks: &[(String, PushStats)],
        polls: Option<KubeletPolls>,
        live: FeedStats,
    ) -> String {
        let mut out = Exposition::default();
        let version = env!("CARGO_PKG_VERSION");
        out.metric("build_info", "gauge", "The version of jbpf-prof.").sample(&[("version", version)], 1);
        self.samples(&mut out);
        self.java(&mut out);
        self.own(&mut out);
        if let Some(kept) = kept {
            out.single("windows_kept", "gauge", "Stored windows on disk.", kept.windows);
            out.single("windows_kept_bytes", "gauge", "Size of the stored windows on disk.", kept.bytes);
            let help = "Stored windows that were removed: too old, too many, or the disk was full.";
            out.single("windows_removed_total", "counter", help, kept.removed);
            let help = "Stored windows that could not be written.";
            out.single("windows_lost_total", "counter", help, kept.lost);
        }
        out.single("live_clients", "gauge", "Live pages that are open.", live.clients);
        let help = "Live pages that were refused because too many were open.";
        out.single("live_refused_total", "counter", help, live.refused);
        let help = "Live pages that were disconnected because they did not read.";
        out.single("live_dropped_total", "counter", help, live.slow);
        pushes(&mut out, sinks);
        if let Some(polls) = polls {
            kubelet(&mut out, polls);
        }
        out.finish()
    }

    fn samples(&self, out: &mut Exposition) {
        let mut counter = |name: &str, help: &str, n: u64| out.single(name, "counter", help, n);
        counter("ticks_total", "Ticks that the BPF program saw.", self.taken);
        counter("ticks_filtered_total", "Ticks of idle CPUs and of the profiler itself.", self.filtered);
        counter("samples_total", "Ticks that became samples.", self.kept);
        counter("ticks_missed_total", "Missed ticks: ticks that were due and did not come.", self.missed);
        counter(
            "windows_total",
            "Stored windows that were sampled, whether or not they could be written.",
            self.windows,
        );
        counter(
            "windows_skipped_total",
            "Stored windows that were given up, and are in no other metric, because too many others waited for the disk.",
            self.skipped,
        );
        counter("session_failures_total", "Times that sampling ended with an error.", self.failures);
        counter("frames_user_total", "User frames, weighted by their samples.", self.user_frames);
        let lost = out.metric("samples_lost_total", "counter", "Lost ticks, by reason.");
        by_reason(lost, session::loss_reasons(), &self.lost);
        let help = "Samples of each event, by result: kept, filtered, lost, missed.";
        let mut events = out.metric("event_samples_total", "counter", help);
        for (event, results) in &self.events {
            results.iter().for_each(|(result, n)| events.sample(&[("event", event), ("result", result)], n));
        }
        let unknown =
            out.metric("frames_unknown_total", "counter", "Frames without a name, by unknown reason.");
        by_reason(unknown, UnknownReason::ALL.into_iter().map(UnknownReason::label), &self.unknown);
        let help = "Amount that was left out because of a limit, by limit; each limit has its own unit.";
        let mut limits = out.metric("limit_left_out_total", "counter", help);
        self.limits.total.iter().for_each(|(limit, n)| limits.sample(&[("limit", limit)], n));
    }

    fn java(&self, out: &mut Exposition) {
        let help = "Results of asking JVMs: agent, memory, or the refusal. A JVM that refuses the agent and whose memory is read counts twice.";
        let mut attached = out.metric("attach_total", "counter", help);
        self.attached.total.iter().for_each(|(result, n)| attached.sample(&[("result", result)], n));
        let mut jvms = out.metric(
            "jvms",
            "gauge",
            "JVMs of the last stored window, by the source of names: agent, memory, off, refused.",
        );
        self.jvms.iter().for_each(|(names, n)| jvms.sample(&[("names", names)], n));
        let ThrottledJvms { in_last_window, total_usec } = self.throttled;
        let help = "JVMs that their CPU limit throttled in the last stored window.";
        out.single("jvms_throttled", "gauge", help, in_last_window);
        let help = "The time that JVMs were throttled, summed over CPUs.";
        out.single("jvms_throttled_seconds_total", "counter", help, total_usec as f64 / 1e6);
        let help = "The time that all Java threads of JVMs stood still at safepoints.";
        out.single("jvms_paused_seconds_total", "counter", help, self.paused_usec as f64 / 1e6);
    }

    fn own(&self, out: &mut Exposition) {
        let mut cpu = out.metric(
            "cpu_seconds_total",
            "counter",
            "Own CPU time, by part: broker, workers, helpers, bpf.",
        );
        self.cpu.total.iter().for_each(|(part, seconds)| cpu.sample(&[("part", part)], seconds));
        let ResourceUse { resident, cached, most_stacks, room_for_stacks, tables, .. } = &self.resource_use;
        let mut gauge = |name: &str, help: &str, n: f64| out.single(name, "gauge", help, n);
        gauge(
            "cpu_share",
            "Own CPU time as a share of the host's CPU time: mean of the last minutes, three at most.",
            self.share,
        );
        gauge("frequency_hertz", "The present rate: ticks a second on each CPU.", self.hz);
        gauge("resident_bytes", "Resident memory of broker and workers.", *resident as f64);
        gauge("maps_bytes", "Kernel memory of BPF maps and rings.", self.maps_bytes as f64);
        gauge("cached_addresses", "Native addresses whose frames are cached.", *cached as f64);
        gauge(
            "stack_map_entries",
            "The most distinct stacks in one second of the last stored window.",
            *most_stacks as f64,
        );
        gauge("stack_map_room", "Room for distinct stacks in one second.", f64::from(*room_for_stacks));
        gauge("unwind_tables", "Loaded unwind tables.", tables.tables as f64);
        gauge("unwind_tables_bytes", "Kernel memory of the loaded unwind tables.", tables.bytes as f64);
        gauge("paused", "1 while the kill switch exists.", f64::from(u8::from(self.paused)));
        let help = "Times that the rate was lowered to stay within max-cpu.";
        out.single("rate_lowered_total", "counter", help, self.lowered);
        let help = "Times that caches were evicted to stay within max-memory.";
        out.single("evictions_total", "counter", help, self.evictions);
    }
}

/// A sample for each known reason, also for those that have not occurred: without a 0 before the first event
/// Prometheus's `increase()` does not see this event.
fn by_reason<K: Borrow<str> + Ord>(
    mut metric: Metric<'_>,
    known: impl Iterator<Item = &'static str>,
    counted: &BTreeMap<K, u64>,
) {
    let mut all: BTreeMap<&str, u64> = known.map(|reason| (reason, 0)).collect();
    all.extend(counted.iter().map(|(reason, n)| (reason.borrow(), *n)));
    all.iter().for_each(|(reason, n)| metric.sample(&[("reason", reason)], n));
}

fn pushes(out: &mut Exposition, sinks: &[(String, PushStats)]) {
    if sinks.is_empty() {
        return;
    }
    let mut pushed = out.metric(
        "push_total",
        "counter",
        "Requests to the sink, by result: sent, failed (tried again), refused (given up).",
    );
    for (sink, stats) in sinks {
        let results = [("sent", stats.sent), ("failed", stats.failed), ("refused", stats.refused)];
        results.iter().for_each(|(result, n)| pushed.sample(&[("sink", sink), ("result", result)], n));
    }
    let mut family = |name: &str, kind: &str, help: &str, value: fn(&PushStats) -> u64| {
        let mut metric = out.metric(name, kind, help);
        sinks.iter().for_each(|(sink, stats)| metric.sample(&[("sink", sink)], value(stats)));
    };
    family("push_bytes_total", "counter", "Bytes that the sink accepted.", |s| s.bytes);
    family("spool_bytes", "gauge", "Bytes that wait for the sink.", |s| s.spooled);
    let help = "Requests that were dropped before the sink accepted them.";
    family("spool_dropped_total", "counter", help, |s| s.dropped);
    let help = "Stacks that were not sent, because each is larger than a request may be.";
    family("push_oversized_total", "counter", help, |s| s.oversized);
    let help = "Profiles that the sink rejected of requests that it accepted.";
    family("push_rejected_profiles_total", "counter", help, |s| s.rejected);
}

fn kubelet(out: &mut Exposition, KubeletPolls { answered, failed, opted_in }: KubeletPolls) {
    let mut asked = out.metric(
        "kubelet_requests_total",
        "counter",
        "Requests to the kubelet, by result: answered, failed.",
    );
    let results = [("answered", answered), ("failed", failed)];
    results.iter().for_each(|(result, n)| asked.sample(&[("result", result)], n));
    out.single(
        "pods_opted_in",
        "gauge",
        "Pods of this node that ask for the agent by an annotation.",
        opted_in,
    );
}

fn source(names: &ReportedNameSource) -> &'static str {
    match names {
        ReportedNameSource::AgentAtStart
        | ReportedNameSource::AgentLate { .. }
        | ReportedNameSource::AgentDuringRun { .. } => "agent",
        ReportedNameSource::Memory { .. } => "memory",
        ReportedNameSource::Off => "off",
        ReportedNameSource::Refused { .. } => "refused",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{FeedStats, KubeletPolls, Metrics, PushStats, SessionCounters, StoreTotals};
    use crate::limits::{Limit, LimitRow};
    use crate::manual;

    #[test]
    fn counters_go_on_when_a_session_starts_anew() {
        let mut sum = SessionCounters::default();
        for now in [1.0, 4.0, 0.5, 2.0] {
            sum.update("a", now);
        }
        assert_eq!(sum.total["a"], 6.0);
    }

    #[test]
    fn limits_of_one_window_add_up_and_those_of_a_session_replace() {
        let mut metrics = Metrics::default();
        let row = |limit| LimitRow { limit, subject: String::new(), left_out: 5 };
        for _window in 0..2 {
            metrics.add_limits(&[row(Limit::Stacks), row(Limit::Mappings)]);
        }
        assert_eq!((metrics.limits.total["stacks"], metrics.limits.total["mappings"]), (10.0, 5.0));
    }

    #[test]
    fn each_known_reason_has_a_value_before_it_occurs() {
        let mut metrics = Metrics::default();
        metrics.lost.insert("ring full".to_owned(), 7);
        let text = metrics.text(None, &[], None, FeedStats::default());
        for line in [
            "samples_lost_total{reason=\"ring full\"} 7",
            "samples_lost_total{reason=\"frames never arrived\"} 0",
            "frames_unknown_total{reason=\"process gone\"} 0",
        ] {
            assert!(text.contains(&format!("\njbpf_prof_{line}\n")), "{line}: {text}");
        }
    }

    #[test]
    fn the_tables_in_the_daemons_page_have_each_metric() {
        let sinks = [("pyroscope".to_owned(), PushStats::default())];
        let (kept, polls) = (StoreTotals::default(), KubeletPolls::default());
        let text = Metrics::default().text(Some(kept), &sinks, Some(polls), FeedStats::default());
        let help = text.lines().filter_map(|line| line.strip_prefix("# HELP jbpf_prof_"));
        let written: BTreeSet<&str> = help.filter_map(|line| line.split(' ').next()).collect();
        // The table of alerts, before that of samples, repeats metrics.
        let (_, page) = include_str!("../../docs/daemon.md").split_once("\n### Samples\n").unwrap();
        let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        let names = cells.flat_map(manual::codes);
        let documented: BTreeSet<&str> = names.filter_map(|name| name.split('{').next()).collect();
        assert_eq!(documented, written);
    }
}
