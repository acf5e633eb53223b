//! Validates the arguments of a recording.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::LevelFilter;

use super::args::{HostArgs, Record, Report, SampledArgs, WaitChoice};
use super::events::distinct;
use super::picture::Picture;
use crate::capture::wait_source::MAX_PERIOD;
use crate::failure::{Exit, Failure};
use crate::output::{
    BadOutput, Destination, Format, FormatRequirements, OutputTarget as Output, PictureOptions, page, svg,
};
use crate::process::container::Node;
use crate::process::group::NoGroup;
use crate::process::hierarchies::Hierarchies;
use crate::process::selection::{NoTarget, Selection};
use crate::profile::filter::Glob;
use crate::sample::unit::Unit;
use crate::sample::{Event, EventPeriod, ThreadState, TraceId};
use crate::serve::run::ServeConfig;
use crate::session::{PermanentRefusals, Settings, Target};
use crate::waits::WaitFilter;
use crate::waits::filter::UnknownName;

/// This binary, for child processes; works even if its file was moved or deleted.
pub const OWN_BINARY: &str = "/proc/self/exe";
/// Samples a second on each CPU: 99, not 100, so as not to run in step with timers that fire 100 times a second.
const DEFAULT_RATE: u64 = 99;
/// The highest rate: the shortest period of cpu-clock is 10 µs.
const MAX_RATE: u64 = 100_000;
/// JVMs that are attached to at the same time. Attaching costs a JVM some hundred milliseconds of one CPU.
const ATTACH_AT_ONCE: usize = 4;
/// Windows of the same time a week ago must still be stored.
const MAX_DURATION: Duration = Duration::from_secs(8 * 24 * 3600);

/// The arguments of a recording, validated.
#[derive(Clone, Debug)]
pub struct RecordConfig {
    /// Settings of the session.
    pub settings: Settings,
    /// Files to write, with their formats.
    pub outputs: Vec<Output>,
    /// Whether the report goes to standard error: an output is standard output, or a launched command writes there.
    pub report_to_stderr: bool,
    /// Title, narrowest frame and direction of flame graphs.
    pub picture_options: PictureOptions,
    /// Keep only stacks that match one of these patterns; empty: keep all.
    pub include: Vec<Glob>,
    /// Remove stacks that match one of these patterns.
    pub exclude: Vec<Glob>,
    /// Keep only samples with one of these states and reasons.
    pub waits: WaitFilter,
    /// Keep only samples of this trace.
    pub trace: Option<TraceId>,
    /// The form of the report.
    pub report: Report,
    /// Also write a file for each container.
    pub per_container: bool,
    /// Show methods by line in the report.
    pub lines: bool,
    /// The server of the page, if the user asks for one.
    pub serve: Option<ServeConfig>,
    /// Warnings to print before the session begins.
    pub warnings: Vec<String>,
    /// The least severe messages that go to standard error; by default none.
    pub log: LevelFilter,
}

/// Outputs, and whether one of them is standard output.
#[derive(Default)]
struct Outputs {
    targets: Vec<Output>,
    with_stdout: bool,
}

impl RecordConfig {
    pub(super) fn new(record: &Record) -> Result<RecordConfig, Failure> {
        let mut warnings = Vec::new();
        let sampled = settings(&record.sampled, &record.host, &record.launch, &mut warnings)?;
        let events: Vec<Event> = sampled.events.iter().map(|sampled| sampled.event).collect();
        let outputs = outputs(record, events.len())?;
        let picture_options = picture_options(&record.picture)?;
        let needs = |what: fn(&FormatRequirements) -> bool| {
            outputs.targets.iter().any(|target| what(&target.format.needs))
        };
        let is_served = record.serve.is_some();
        let settings = Settings {
            // The log and the progress bar would overwrite each other.
            progress: !record.quiet && log_level(record) == LevelFilter::Off,
            per_thread: record.per_thread || is_served || needs(|needs| needs.threads),
            seconds: is_served || needs(|needs| needs.seconds),
            raw_threads: record.raw_threads,
            raw_names: record.raw_names,
            trace_context: record.trace_context || record.trace.is_some(),
            ..sampled
        };
        let globs = |patterns: &[String]| patterns.iter().map(|p| Glob::new(p)).collect();
        Ok(RecordConfig {
            outputs: outputs.targets,
            report_to_stderr: outputs.with_stdout
                || (!record.launch.is_empty() && record.report == Report::Text),
            picture_options,
            include: globs(&record.include),
            exclude: globs(&record.exclude),
            waits: sampled_waits(&record.waits, &events)?,
            trace: record.trace,
            report: if record.quiet { Report::None } else { record.report },
            per_container: record.per_container,
            lines: record.lines,
            log: log_level(record),
            serve: super::serve::config(record, &settings)?,
            settings,
            warnings,
        })
    }
}

/// The settings of what is sampled; what the output needs beside it is off.
pub(super) fn settings(
    sampled: &SampledArgs,
    host: &HostArgs,
    launch: &[OsString],
    warnings: &mut Vec<String>,
) -> Result<Settings, Failure> {
    let events = events(sampled)?;
    let Rate { requested_hz, period_ns } = rate(sampled, &events, warnings)?;
    let target = match groups(sampled, host, warnings)? {
        Some(selection) => Target::Groups(selection),
        None => target(&sampled.pid, &sampled.tid, launch)?,
    };
    if events.contains(&Event::NativeAlloc) && matches!(target, Target::All) {
        return Err(Failure::usage(
            "native-alloc needs a target, because each malloc of a process takes about a microsecond more: choose processes \
             with --pid, --cgroup, --container, --pod or -- CMD",
        ));
    }
    Ok(Settings {
        binary: PathBuf::from(OWN_BINARY),
        children: sampled.children,
        cpus: sampled.cpu.as_deref().map(cpus).transpose()?,
        events: events.iter().map(|event| event_period(*event, sampled, period_ns)).collect(),
        requested_hz,
        part: None,
        duration: sampled.duration.as_deref().map(|d| duration("--duration", d)).transpose()?,
        user: !sampled.all_kernel,
        kernel: !sampled.all_user,
        idle: sampled.idle,
        idle_frames: sampled.idle_frame.clone(),
        wakers: sampled.wakers,
        java_allocations: sampled.alloc_by.map(Into::into).unwrap_or_default(),
        trace_context: false,
        include_self: sampled.include_self,
        per_thread: false,
        seconds: false,
        raw_threads: false,
        raw_names: false,
        java: host.java.into(),
        agent_for: Vec::new(),
        refused: PermanentRefusals::default(),
        attach_at_once: ATTACH_AT_ONCE,
        attach_timeout: duration("--attach-timeout", &host.attach_timeout)?,
        force_attach: host.force_attach,
        btf: host.btf_path.as_deref().map(btf).transpose()?,
        progress: false,
        target,
        node: Node::at(&host.node_root),
    })
}

/// The states and reasons that the user chose.
pub(super) fn waits(choice: &WaitChoice) -> Result<WaitFilter, Failure> {
    let mut filter = WaitFilter::default();
    let refused = |name: &str, why: UnknownName| Failure::usage(format!("--{} {name}: {why}", why.what));
    choice.state.iter().try_for_each(|name| filter.add_state(name).map_err(|why| refused(name, why)))?;
    choice.reason.iter().try_for_each(|name| filter.add_reason(name).map_err(|why| refused(name, why)))?;
    Ok(filter)
}

/// The states and reasons that the user chose. Only the event wait has threads that do not run.
fn sampled_waits(choice: &WaitChoice, events: &[Event]) -> Result<WaitFilter, Failure> {
    let filter = waits(choice)?;
    let (runs, waits) = (events.iter().any(|event| *event != Event::Wait), events.contains(&Event::Wait));
    if filter.has_reasons() && !waits {
        return Err(Failure::usage("--reason applies to waiting time; add -e wait or -e wall"));
    }
    let sampled = |state: &ThreadState| if *state == ThreadState::Running { runs } else { waits };
    match filter.states().iter().find(|state| !sampled(state)) {
        None => Ok(filter),
        Some(state) => Err(Failure::usage(format!(
            "--state {}: the events have no such samples; use -e wall",
            state.name()
        ))),
    }
}

/// The log level: off unless the user asks for a log.
fn log_level(record: &Record) -> LevelFilter {
    match (record.log_level, record.verbose) {
        (Some(by_name), _) => by_name.into(),
        (None, 0) => LevelFilter::Off,
        (None, 1) => LevelFilter::Info,
        (None, 2..) => LevelFilter::Debug,
    }
}

/// The sampled events, each once. `--frequency` is for time. `--count` is for counted events, or for time without
/// those.
fn events(sampled: &SampledArgs) -> Result<Vec<Event>, Failure> {
    let events = distinct(&sampled.event).map_err(|why| Failure::usage(format!("--event: {why}")))?;
    let allocates = events.iter().find(|event| event.allocates()).map(|event| event.name());
    if sampled.wakers && !events.contains(&Event::Wait) {
        return Err(Failure::usage("--wakers applies to waiting time; add -e wait or -e wall"));
    }
    if sampled.alloc_by.is_some() && !events.contains(&Event::Alloc) {
        return Err(Failure::usage("--alloc-by applies to the event alloc; add it to --event"));
    }
    if sampled.alloc_interval.is_some() && allocates.is_none() {
        return Err(Failure::usage(
            "--alloc-interval applies to the events alloc and native-alloc; add one of them to --event",
        ));
    }
    if let Some(event) = events.iter().find(|event| sampled.all_kernel && event.is_in_user_mode()) {
        let name = event.name();
        return Err(Failure::usage(format!("--all-kernel: the event {name} has frames of processes only")));
    }
    let no_others = events.iter().all(|event| event.allocates());
    if let Some(name) =
        allocates.filter(|_| no_others && (sampled.frequency.is_some() || sampled.count.is_some()))
    {
        return Err(Failure::usage(format!(
            "--frequency and --count do not apply to {name}; use --alloc-interval"
        )));
    }
    let counted = events.iter().find(|event| is_counted(**event));
    let is_time = events.iter().any(|event| event.unit() == Unit::Nanoseconds);
    match (sampled.frequency, sampled.count, counted) {
        (Some(_), Some(_), None) => Err(Failure::usage("--frequency and --count: use only one of them")),
        (Some(_), _, Some(event)) if !is_time => Err(Failure::usage(format!(
            "--frequency applies to the events cpu and wait; for {0} use --count N, which samples each Nth of the {0}",
            event.name()
        ))),
        (_, Some(0), Some(event)) => {
            Err(Failure::usage(format!("--count 0: use 1 or more; 1 samples all {}", event.name())))
        }
        _ => Ok(events),
    }
}

fn event_period(event: Event, sampled: &SampledArgs, period_ns: u64) -> EventPeriod {
    let period = match event {
        Event::Cpu | Event::Wait => period_ns,
        event if event.allocates() => sampled.alloc_interval.unwrap_or(event.usual_period()),
        _ => sampled.count.unwrap_or(event.usual_period()),
    };
    EventPeriod { event, period }
}

/// Whether `--count` says how many occurrences, or bytes, of the event have a sample.
fn is_counted(event: Event) -> bool {
    !matches!(event, Event::Cpu | Event::Wait) && !event.allocates()
}

/// The requested rate, and the resulting period in nanoseconds.
struct Rate {
    requested_hz: f64,
    period_ns: u64,
}

#[allow(clippy::cast_precision_loss, reason = "frequencies and periods have few digits")]
fn rate(sampled: &SampledArgs, events: &[Event], warnings: &mut Vec<String>) -> Result<Rate, Failure> {
    if let Some(count) = sampled.count.filter(|_| !events.iter().any(|event| is_counted(*event))) {
        let (fastest, longest) = (1_000_000_000 / MAX_RATE, MAX_DURATION.as_nanos() as u64);
        if events.contains(&Event::Wait) && count > MAX_PERIOD {
            return Err(Failure::usage(format!(
                "--count {count}: use at most {MAX_PERIOD} ns of waiting time"
            )));
        }
        return match count {
            0 => Err(Failure::usage("--count 0: use at least 1 ns of CPU time")),
            count if count < fastest => {
                warnings.push(format!(
                    "--count {count}: cpu-clock ticks at most every {fastest} ns; using {fastest}"
                ));
                Ok(Rate { requested_hz: 1e9 / count as f64, period_ns: fastest })
            }
            count if count > longest => {
                Err(Failure::usage(format!("--count {count}: use at most 7 days of CPU time")))
            }
            count => Ok(Rate { requested_hz: 1e9 / count as f64, period_ns: count }),
        };
    }
    let requested = sampled.frequency.unwrap_or(DEFAULT_RATE);
    let mut rate = requested;
    if rate == 0 {
        return Err(Failure::usage("--frequency 0: use at least 1 sample a second"));
    }
    let path = "/proc/sys/kernel/perf_event_max_sample_rate";
    let allowed = std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(MAX_RATE);
    let most = allowed.clamp(1, MAX_RATE);
    if rate > most {
        warnings.push(format!(
            "--frequency {rate}: this host allows {most} samples a second ({path}); using {most}"
        ));
        rate = most;
    }
    if rate.is_multiple_of(50) {
        warnings.push(format!(
            "--frequency {rate} may run in step with timers, and then the shares are wrong; use {}",
            rate - 1
        ));
    }
    Ok(Rate { requested_hz: requested as f64, period_ns: 1_000_000_000 / rate })
}

fn target(pids: &[u32], tids: &[u32], launch: &[OsString]) -> Result<Target, Failure> {
    let exists = |what: &str, id: u32| {
        if id != 0 && Path::new(&format!("/proc/{id}")).exists() {
            return Ok(());
        }
        Err(Failure::target(format!("{what} {id} does not exist; `ps` lists what runs")))
    };
    pids.iter().try_for_each(|&pid| exists("process", pid))?;
    tids.iter().try_for_each(|&tid| exists("thread", tid))?;
    Ok(match (pids, tids, launch) {
        (_, _, [_, ..]) => Target::Launch(launch.to_vec()),
        ([_, ..], _, _) => Target::Pids(pids.to_vec()),
        (_, [_, ..], _) => Target::Tids(tids.to_vec()),
        _ => Target::All,
    })
}

/// The chosen cgroups, if there are any. Each must exist.
fn groups(
    sampled: &SampledArgs,
    host: &HostArgs,
    warnings: &mut Vec<String>,
) -> Result<Option<Selection>, Failure> {
    let selection = Selection {
        paths: sampled.cgroup.clone(),
        containers: sampled.container.clone(),
        pods: sampled.pod.clone(),
        namespaces: sampled.namespace.clone(),
        node: Node::at(&host.node_root),
    };
    if selection.paths.is_empty() && !selection.is_by_name() {
        return Ok(None);
    }
    match selection.groups(&Hierarchies::mounted()) {
        Ok(groups) => {
            let empty = groups.iter().filter(|group| !group.is_populated());
            warnings.extend(empty.map(|group| {
                format!(
                    "cgroup {} has no process now; processes that join it are profiled",
                    group.dir.display()
                )
            }));
            Ok(Some(selection))
        }
        Err(why) => {
            let exit = match why {
                NoTarget::Group(NoGroup::Missing(_)) | NoTarget::Unknown { .. } => Exit::Target,
                NoTarget::Group(_) | NoTarget::Ambiguous { .. } => Exit::Usage,
            };
            Err(Failure { exit, message: why.to_string() })
        }
    }
}

fn outputs(record: &Record, events: usize) -> Result<Outputs, Failure> {
    let format = format(record.format.as_deref())?;
    let names = if record.output.is_empty() {
        vec![default_name(format, record.serve.is_some())]
    } else {
        record.output.clone()
    };
    let mut outputs = Outputs::default();
    let mut known: Vec<Destination> = Vec::new();
    for name in names {
        let output = output("--output", &name, format)?;
        let failed = |e: anyhow::Error| Failure { exit: Exit::Failed, message: format!("{e:#}") };
        let destination = Destination::find(&name).map_err(failed)?;
        destination.check_writable().map_err(failed)?;
        if record.per_container && destination.file().is_none() {
            return Err(Failure::usage(format!(
                "--per-container writes several files, but {destination} is no file"
            )));
        }
        if let Some(why) = output.lacks_room(&destination, events) {
            return Err(Failure::usage(format!("--output {why}")));
        }
        if known.iter().any(|other| other.is(&destination)) {
            return Err(Failure::usage(format!("--output {output} is given twice")));
        }
        outputs.with_stdout |= destination.is_stdout();
        known.push(destination);
        outputs.targets.push(output);
    }
    Ok(outputs)
}

/// The format that `--format` names.
pub(super) fn format(name: Option<&str>) -> Result<Option<&'static Format>, Failure> {
    let format = name.map(Format::named).transpose();
    format.map_err(|e| Failure::usage(format!("--format {e}")))
}

/// An output from its name. `option`: the option that had the name, for messages.
pub(super) fn output(option: &str, name: &Path, format: Option<&'static Format>) -> Result<Output, Failure> {
    Output::parse(name, format).map_err(|error| match error {
        BadOutput::Format(unknown) => {
            Failure::usage(format!("{option} {unknown} (or name it with --format)"))
        }
        BadOutput::Name(_) => Failure { exit: Exit::Failed, message: error.to_string() },
    })
}

/// `jbpf-prof-20261121-093000.svg` in the current directory; who looks at the page gets the page.
fn default_name(format: Option<&Format>, is_served: bool) -> PathBuf {
    let extension = format.unwrap_or(if is_served { &page::FORMAT } else { &svg::FORMAT }).extension();
    let now = jiff::Zoned::now();
    PathBuf::from(format!("jbpf-prof-{}.{extension}", now.strftime("%Y%m%d-%H%M%S")))
}

pub(super) fn picture_options(picture: &Picture) -> Result<PictureOptions, Failure> {
    if !(0.0..=1200.0).contains(&picture.minwidth) {
        return Err(Failure::usage(format!("--minwidth {}: use 0 to 1200 pixels", picture.minwidth)));
    }
    let mut picture_options = PictureOptions { min_width: picture.minwidth, ..PictureOptions::default() };
    if let Some(title) = &picture.title {
        picture_options.title = Some(title.clone());
    }
    (picture_options.reverse, picture_options.inverted) = (picture.reverse, picture.inverted);
    Ok(picture_options)
}

/// Reads `30`, `30s`, `1.5s`, `500ms`, `5m`, `1h`.
pub(super) fn duration(flag: &str, text: &str) -> Result<Duration, Failure> {
    let bad =
        || Failure::usage(format!("{flag} {text}: expected a time in ms, s, m or h, such as 30s, 5m or 1h"));
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))
        .unwrap_or((text, 1.0));
    let seconds = number.parse::<f64>().map_err(|_| bad())? * unit;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time.is_zero() || time > MAX_DURATION => {
            Err(Failure::usage(format!("{flag} {text}: use more than 0 and at most 8 days (192h)")))
        }
        Ok(time) => Ok(time),
        Err(_) => Err(bad()),
    }
}

fn cpus(text: &str) -> Result<Vec<u32>, Failure> {
    match crate::capture::online::parse_ranges(text) {
        Some(cpus) if !cpus.is_empty() => Ok(cpus),
        _ => Err(Failure::usage(format!("--cpu {text}: expected a list of CPUs, such as 0-3,8"))),
    }
}

/// Checks that only root can have written the file, because libbpf trusts its contents.
fn btf(path: &Path) -> Result<PathBuf, Failure> {
    let refused = |why: String| Failure::host(format!("--btf-path {}: {why}", path.display()));
    let meta = std::fs::metadata(path).map_err(|e| refused(e.to_string()))?;
    if !meta.is_file() || meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        return Err(refused("must be a regular file that root owns and no other user can write".into()));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let time = |t| duration("-d", t).map_err(|e| e.message);
        assert_eq!(time("30"), Ok(Duration::from_secs(30)));
        assert_eq!(time("30s"), time("30"));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(time("1.5s"), time("1500ms"));
        for bad in ["", "x", "-1", "0", "8h30", "1e99", "nan", "inf", "1000h"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn default_output_has_date_and_time() {
        let name = default_name(None, false).display().to_string();
        assert!(name.starts_with("jbpf-prof-20") && name.ends_with(".svg"), "{name}");
        assert!(default_name(None, true).display().to_string().ends_with(".html"));
    }
}
