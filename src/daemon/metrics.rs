//! The daemon's counters for `/metrics`, without names of processes, containers or pods: tenants choose those.

use std::collections::BTreeMap;

use super::exposition::Exposition;
use super::kubelet::KubeletPolls;
use super::push::PushStats;
use super::store::StoreTotals;
use crate::limits::Limit;
use crate::profile::report::{Cost, NameSource};
use crate::session::{Outcome, Vitals};

/// Totals since the start of the daemon, and its current state.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    ticks: u64,
    filtered: u64,
    kept: u64,
    lost: BTreeMap<String, u64>,
    missed: u64,
    /// Numbers of samples by event and result.
    events: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    unknown: BTreeMap<&'static str, u64>,
    user_frames: u64,
    /// Amount left out because of a limit, by the limit's name.
    limits: Sum<&'static str>,
    windows: u64,
    /// Windows that were dropped because the queue to the disk was full.
    pub(super) skipped: u64,
    /// Sessions that ended with an error.
    pub(super) failures: u64,
    attached: Sum<String>,
    jvms: BTreeMap<&'static str, u64>,
    /// JVMs that were throttled in the last window, and the total throttled time of all JVMs in microseconds.
    throttled: (u64, u64),
    cpu: Sum<&'static str>,
    vitals: Vitals,
    maps_bytes: u64,
    /// Own CPU time as a share (0 to 1) of the host's, and the current rate.
    pub(super) share: f64,
    pub(super) hz: f64,
    pub(super) lowered: u64,
    pub(super) evictions: u64,
    pub(super) paused: bool,
}

/// Totals over sessions of counters that restart at 0 with each session.
#[derive(Clone, Debug, Default)]
struct Sum<K> {
    total: BTreeMap<K, f64>,
    last: BTreeMap<K, f64>,
}

impl<K: Ord + Clone> Sum<K> {
    fn take(&mut self, key: K, now: f64) {
        let last = self.last.insert(key.clone(), now).unwrap_or(0.0);
        *self.total.entry(key).or_default() += if now >= last { now - last } else { now };
    }
}

impl Metrics {
    /// Adds one stored window, whose JVMs replace those of the window before.
    pub(super) fn take(&mut self, outcome: &Outcome) {
        let Outcome { report, vitals, .. } = outcome;
        let accounts = &report.first.accounts;
        self.windows += 1;
        self.ticks += accounts.ticks;
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
        for limit in Limit::all() {
            let rows = report.limits.iter().filter(|row| row.limit == limit);
            self.limits.take(limit.name(), rows.map(|row| row.left_out as f64).sum());
        }
        for (result, n) in &vitals.attached {
            self.attached.take(result.clone(), *n as f64);
        }
        self.jvms.clear();
        self.throttled.0 = 0;
        for jvm in &report.jvms {
            *self.jvms.entry(source(&jvm.names)).or_default() += 1;
            let usec = jvm.throttling.map_or(0, |throttling| throttling.usec);
            self.throttled.0 += u64::from(usec > 0);
            self.throttled.1 += usec;
        }
        let Cost { broker_s, worker_s, helpers_s, bpf_s, maps_bytes, .. } = report.cost;
        self.cpu.take("broker", broker_s);
        self.cpu.take("workers", worker_s);
        self.cpu.take("helpers", helpers_s);
        self.cpu.take("bpf", bpf_s.unwrap_or(0.0));
        self.maps_bytes = maps_bytes;
        self.vitals = vitals.clone();
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
        self.vitals = Vitals::default();
        self.maps_bytes = 0;
    }

    /// Total own CPU time in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu.total.values().sum()
    }

    /// Current own memory in bytes: resident memory, and the kernel's memory for BPF maps.
    pub(super) fn memory(&self) -> u64 {
        self.vitals.resident + self.maps_bytes
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
        looks: Option<KubeletPolls>,
    ) -> String {
        let mut out = Exposition::default();
        let version = env!("CARGO_PKG_VERSION");
        out.metric("build_info", "gauge", "The version that runs.").sample(&[("version", version)], 1);
        self.samples(&mut out);
        self.java(&mut out);
        self.own(&mut out);
        if let Some(kept) = kept {
            out.one("windows_kept", "gauge", "Windows on disk.", kept.windows);
            out.one("windows_kept_bytes", "gauge", "Bytes of the windows on disk.", kept.bytes);
            let help = "Windows removed from the disk: too old, too many, or the disk is full.";
            out.one("windows_removed_total", "counter", help, kept.removed);
            out.one("windows_lost_total", "counter", "Windows that could not be written.", kept.lost);
        }
        pushes(&mut out, sinks);
        if let Some(looks) = looks {
            kubelet(&mut out, looks);
        }
        out.finish()
    }

    fn samples(&self, out: &mut Exposition) {
        let mut counter = |name: &str, help: &str, n: u64| out.one(name, "counter", help, n);
        counter("ticks_total", "Ticks of the clock that the BPF program saw.", self.ticks);
        counter("ticks_filtered_total", "Ticks of idle CPUs and of the profiler itself.", self.filtered);
        counter("samples_total", "Ticks that became samples.", self.kept);
        counter("ticks_missed_total", "Ticks that should have come and did not.", self.missed);
        counter("windows_total", "Windows that were sampled.", self.windows);
        counter(
            "windows_skipped_total",
            "Windows given up since too many others waited for the disk.",
            self.skipped,
        );
        counter("session_failures_total", "Times that sampling ended in an error.", self.failures);
        counter("frames_user_total", "User frames, each as often as it was sampled.", self.user_frames);
        let mut lost =
            out.metric("samples_lost_total", "counter", "Ticks that could not be kept, by reason.");
        self.lost.iter().for_each(|(reason, n)| lost.sample(&[("reason", reason)], n));
        let help = "Samples by event and by what became of them: kept, filtered, lost, missed.";
        let mut events = out.metric("event_samples_total", "counter", help);
        for (event, results) in &self.events {
            results.iter().for_each(|(result, n)| events.sample(&[("event", event), ("result", result)], n));
        }
        let mut unknown = out.metric("frames_unknown_total", "counter", "Frames without a name, by reason.");
        self.unknown.iter().for_each(|(reason, n)| unknown.sample(&[("reason", reason)], n));
        let help = "What was not read or kept since a limit was met, by limit: bytes, mappings, stacks.";
        let mut limits = out.metric("limit_left_out_total", "counter", help);
        self.limits.total.iter().for_each(|(limit, n)| limits.sample(&[("limit", limit)], n));
    }

    fn java(&self, out: &mut Exposition) {
        let help = "JVMs whose names were asked for, by result: agent, memory, or why not; one that refuses the agent and is read counts twice.";
        let mut attached = out.metric("attach_total", "counter", help);
        self.attached.total.iter().for_each(|(result, n)| attached.sample(&[("result", result)], n));
        let mut jvms =
            out.metric("jvms", "gauge", "JVMs of the last window, by where their names come from.");
        self.jvms.iter().for_each(|(names, n)| jvms.sample(&[("names", names)], n));
        let (jvms, usec) = self.throttled;
        let help = "JVMs that their cgroups' CPU limits kept from running in the last window.";
        out.one("jvms_throttled", "gauge", help, jvms);
        let help = "Time that JVMs were kept from running by these limits, summed over CPUs.";
        out.one("jvms_throttled_seconds_total", "counter", help, usec as f64 / 1e6);
    }

    fn own(&self, out: &mut Exposition) {
        let mut cpu = out.metric("cpu_seconds_total", "counter", "CPU time of the profiler itself, by part.");
        self.cpu.total.iter().for_each(|(part, seconds)| cpu.sample(&[("part", part)], seconds));
        let Vitals { resident, cached, most_stacks, room_for_stacks, tables, .. } = &self.vitals;
        let mut gauge = |name: &str, help: &str, n: f64| out.one(name, "gauge", help, n);
        gauge("cpu_share", "CPU time of the profiler as a share of the host's, over a minute.", self.share);
        gauge("frequency_hertz", "Ticks a second and CPU.", self.hz);
        gauge("resident_bytes", "Resident memory of broker and workers.", *resident as f64);
        gauge("maps_bytes", "Kernel memory of BPF maps and rings.", self.maps_bytes as f64);
        gauge("cached_addresses", "Native addresses whose frames are kept.", *cached as f64);
        gauge("stack_map_entries", "Most stacks in one second of the last window.", *most_stacks as f64);
        gauge("stack_map_room", "Stacks that the map of one second holds.", f64::from(*room_for_stacks));
        gauge("unwind_tables", "Unwind tables that are loaded.", tables.tables as f64);
        gauge("unwind_tables_bytes", "Kernel memory of unwind tables.", tables.bytes as f64);
        gauge("paused", "1 while the kill switch is there.", f64::from(u8::from(self.paused)));
        let help = "Times that the rate was lowered to keep within max-cpu.";
        out.one("rate_lowered_total", "counter", help, self.lowered);
        let help = "Times that caches were given back to keep within max-memory.";
        out.one("evictions_total", "counter", help, self.evictions);
    }
}

fn pushes(out: &mut Exposition, sinks: &[(String, PushStats)]) {
    if sinks.is_empty() {
        return;
    }
    let mut pushed = out.metric("push_total", "counter", "Requests to sinks, by result.");
    for (sink, stats) in sinks {
        let results = [("sent", stats.sent), ("failed", stats.failed), ("refused", stats.refused)];
        results.iter().for_each(|(result, n)| pushed.sample(&[("sink", sink), ("result", result)], n));
    }
    let mut family = |name: &str, kind: &str, help: &str, value: fn(&PushStats) -> u64| {
        let mut metric = out.metric(name, kind, help);
        sinks.iter().for_each(|(sink, stats)| metric.sample(&[("sink", sink)], value(stats)));
    };
    family("push_bytes_total", "counter", "Bytes that sinks took.", |s| s.bytes);
    family("spool_bytes", "gauge", "Bytes that wait for a sink.", |s| s.spooled);
    let help = "Windows that were dropped before a sink took them: the spool is full.";
    family("spool_dropped_total", "counter", help, |s| s.dropped);
}

fn kubelet(out: &mut Exposition, KubeletPolls { answered, failed, opted_in }: KubeletPolls) {
    let mut asked = out.metric("kubelet_requests_total", "counter", "Requests to the kubelet, by result.");
    let results = [("answered", answered), ("failed", failed)];
    results.iter().for_each(|(result, n)| asked.sample(&[("result", result)], n));
    out.one(
        "pods_opted_in",
        "gauge",
        "Pods of this node that opt in to the agent by an annotation.",
        opted_in,
    );
}

fn source(names: &NameSource) -> &'static str {
    match names {
        NameSource::AgentAtStart | NameSource::AgentLate { .. } | NameSource::AgentDuringRun { .. } => {
            "agent"
        }
        NameSource::Memory { .. } => "memory",
        NameSource::Off => "off",
        NameSource::Refused { .. } => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn counters_go_on_when_a_session_starts_anew() {
        let mut sum = Sum::default();
        for now in [1.0, 4.0, 0.5, 2.0] {
            sum.take("a", now);
        }
        assert_eq!(sum.total["a"], 6.0);
    }
}
