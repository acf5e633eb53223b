//! The command line as text: clap's structs. `config.rs` makes valid data of them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use super::choice::{JavaChoice, LogLevel};
use super::daemon::options::Daemon;
use super::number;
use crate::output::{FORMATS, Format};
use crate::sample::Event;

/// Profiles a whole machine: kernel, native code, JVMs and Java with its inlined methods, in one picture.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "jbpf-prof",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 this host cannot, 4 the target is gone or refuses.\n\
                  Note for users of async-profiler: -a is --all (processes, not events), -d is --duration, \
                  -f does not exist, -t does not exist (see --per-thread)."
)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Sub>,
    #[command(flatten)]
    pub(super) record: Record,
}

/// What else the program does.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Sub {
    /// Sample for ever: keep the windows of the last hours, tell them by HTTP, push them to Pyroscope or OpenTelemetry.
    Daemon(Box<Daemon>),
    /// Ask the daemon of this host whether it is well.
    Health {
        /// Its file of settings.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Whether windows come, too.
        #[arg(long)]
        ready: bool,
    },
    /// List the JVMs of this host, and whether the agent can be attached to them.
    Jvms,
    /// Say what this host allows, in a form for bug reports.
    Doctor,
    /// Write the agent to a file, for JVMs that are to load it at their start (`-agentpath:FILE`).
    Agent {
        /// File to write, `-` for standard output; the JVM must be able to read the file.
        file: PathBuf,
    },
    #[command(about = convert_help())]
    Convert {
        /// Profile to read.
        input: PathBuf,
        /// File to write, `-` for standard output; the extension says the format.
        output: PathBuf,
        #[arg(long, value_name = "FORMAT", help_heading = "Output", help = format_help())]
        format: Option<String>,
        #[command(flatten)]
        picture: Picture,
    },
}

/// The main job.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Record {
    /// Seconds to sample (`30`, `30s`, `5m`, `1h`); until Ctrl-C if not given.
    #[arg(short, long, value_name = "TIME", help_heading = "When", allow_negative_numbers = true)]
    pub(super) duration: Option<String>,
    /// Samples a second on each CPU [default: 99].
    #[arg(
        short = 'F',
        long,
        value_name = "HZ",
        value_parser = number::rate,
        help_heading = "When",
        allow_negative_numbers = true
    )]
    pub(super) frequency: Option<u64>,
    /// Nanoseconds of CPU time between two samples, instead of a frequency; for events that are counted, one sample for
    /// so many of them [default: 1].
    #[arg(
        short,
        long,
        value_name = "N",
        value_parser = number::period,
        help_heading = "When",
        allow_negative_numbers = true
    )]
    pub(super) count: Option<u64>,

    #[arg(
        short,
        long,
        value_name = "EVENT",
        value_parser = event,
        value_delimiter = ',',
        default_value = "cpu",
        help_heading = "What",
        help = format!("What to sample, a comma list: {}", Event::names())
    )]
    pub(super) event: Vec<Event>,
    /// All processes; the default.
    #[arg(short, long, help_heading = "What", conflicts_with_all = ["pid", "tid"])]
    pub(super) all: bool,
    /// These processes only (a comma list, repeatable).
    #[arg(short, long, value_name = "PID", value_parser = number::pid, value_delimiter = ',', help_heading = "What")]
    pub(super) pid: Vec<u32>,
    /// With -p: the descendants of these processes too.
    #[arg(long, help_heading = "What", requires = "pid")]
    pub(super) children: bool,
    /// These threads only (a comma list, repeatable).
    #[arg(
        long,
        value_name = "TID",
        value_parser = number::tid,
        value_delimiter = ',',
        help_heading = "What",
        conflicts_with = "pid"
    )]
    pub(super) tid: Vec<u32>,
    /// This cgroup only, with all below it: its directory, or its path as in /proc/PID/cgroup; repeatable.
    #[arg(short = 'G', long, value_name = "PATH", help_heading = "What", conflicts_with_all = ["pid", "tid"])]
    pub(super) cgroup: Vec<PathBuf>,
    /// These containers only: ids, their beginnings, or names (a comma list, repeatable).
    #[arg(long, value_name = "ID|NAME", value_delimiter = ',', help_heading = "What", conflicts_with_all = ["pid", "tid"])]
    pub(super) container: Vec<String>,
    /// These pods only, or containers of these pods: names or uids.
    #[arg(long, value_name = "NAME|UID", value_delimiter = ',', help_heading = "What", conflicts_with_all = ["pid", "tid"])]
    pub(super) pod: Vec<String>,
    /// Pods and containers of these Kubernetes namespaces only.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "What", conflicts_with_all = ["pid", "tid"])]
    pub(super) namespace: Vec<String>,
    /// These CPUs only (a list such as 0-3,8).
    #[arg(short = 'C', long, value_name = "CPUS", help_heading = "What")]
    pub(super) cpu: Option<String>,
    /// User frames only.
    #[arg(short = 'U', long, help_heading = "What", conflicts_with = "all_kernel")]
    pub(super) all_user: bool,
    /// Kernel frames only.
    #[arg(short = 'K', long, help_heading = "What")]
    pub(super) all_kernel: bool,
    /// Show idle CPUs too.
    #[arg(long, help_heading = "What")]
    pub(super) idle: bool,
    /// Show the profiler itself too.
    #[arg(long, help_heading = "What")]
    pub(super) include_self: bool,
    /// Accepted and without effect: stacks are always recorded.
    #[arg(short = 'g', hide = true)]
    pub(super) call_graph: bool,

    #[arg(short, long, value_name = "FILE", help_heading = "Output", help = output_help())]
    pub(super) output: Vec<PathBuf>,
    #[arg(long, value_name = "FORMAT", help_heading = "Output", help = format_help())]
    pub(super) format: Option<String>,
    #[command(flatten)]
    pub(super) picture: Picture,
    /// Only stacks with a frame of this name; `*` stands for any text, repeatable.
    #[arg(short = 'I', long, value_name = "NAME", help_heading = "Output")]
    pub(super) include: Vec<String>,
    /// No stacks with a frame of this name; `*` stands for any text, repeatable.
    #[arg(short = 'X', long, value_name = "NAME", help_heading = "Output")]
    pub(super) exclude: Vec<String>,
    /// Beside each output file one for each container (FILE-CONTAINER.EXT), and one for what is in none.
    #[arg(long, help_heading = "Output")]
    pub(super) per_container: bool,
    /// A frame for each thread.
    #[arg(long, help_heading = "Output")]
    pub(super) per_thread: bool,
    /// Java names with their run-specific numbers (`Foo$$Lambda$17/0x…`).
    #[arg(long, help_heading = "Output")]
    pub(super) raw_names: bool,
    /// Thread names with their numbers instead of `pool-#-thread-#`.
    #[arg(long, help_heading = "Output")]
    pub(super) raw_threads: bool,
    /// The report, on standard output, or on standard error if a profile goes there; json is for machines.
    #[arg(long, value_enum, default_value = "text", help_heading = "Output")]
    pub(super) report: Report,
    /// Methods by line in the report: `Class.method @ (bci, line)`.
    #[arg(long, help_heading = "Output")]
    pub(super) lines: bool,

    /// Where Java names come from: `auto` attaches the agent to each profiled JVM and reads the memory of those that refuse
    /// it, `agent` only attaches, `vm` only reads and loads nothing into any JVM, `off` names no compiled code.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Java")]
    pub(super) java: JavaChoice,
    /// How long attaching to one JVM may take.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        help_heading = "Java",
        allow_negative_numbers = true
    )]
    pub(super) attach_timeout: String,
    /// Attach even to builds of HotSpot that are known to crash in the events that the agent uses.
    #[arg(long, help_heading = "Java")]
    pub(super) force_attach: bool,

    /// Kernel types (BTF) from this file, for kernels that have none; it must belong to root.
    #[arg(long, value_name = "FILE", help_heading = "Host")]
    pub(super) btf_path: Option<PathBuf>,
    /// Where the node's file system is mounted, for the names of containers and pods (/var/log/pods and their like).
    #[arg(long, value_name = "DIR", default_value = "/", help_heading = "Host")]
    pub(super) node_root: PathBuf,
    /// No progress and no report.
    #[arg(short, long, help_heading = "Host")]
    pub(super) quiet: bool,
    /// Tell what each stage does, on standard error; twice: of each window too.
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = "Host", conflicts_with = "quiet")]
    pub(super) verbose: u8,
    /// The same by name: -v is info, -vv is debug.
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Host", conflicts_with = "verbose")]
    pub(super) log_level: Option<LogLevel>,

    /// Start this command and profile it, with its descendants, from its first instruction.
    #[arg(last = true, value_name = "CMD",
        conflicts_with_all = ["pid", "tid", "cgroup", "container", "pod", "namespace"])]
    pub(super) launch: Vec<OsString>,
}

/// An event by its name.
pub(super) fn event(name: &str) -> Result<Event, String> {
    Event::named(name).ok_or_else(|| format!("no event is called so; there are {}", Event::names()))
}

/// The extensions of formats, for people: `.a, .b or .c`.
fn extensions(which: impl Fn(&Format) -> bool) -> String {
    let known = FORMATS.iter().filter(|format| which(format));
    let known: Vec<String> = known.map(|format| format!(".{}", format.extension())).collect();
    match known.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        few => few.concat(),
    }
}

/// What `--output` says of itself: the formats are those that there are.
fn output_help() -> String {
    format!(
        "File to write, repeatable; {} by its extension. `-` is standard output; pipes and devices are written to; \
         without an extension they get folded stacks [default: an SVG named by date and time]",
        extensions(|_| true)
    )
}

fn convert_help() -> String {
    format!("Convert a profile: {} to {}", extensions(Format::is_read), extensions(|_| true))
}

fn format_help() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.extension()).collect();
    format!("Format of the output, whatever its name: {}", names.join(", "))
}

/// How a flame graph looks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Picture {
    /// Title of the flame graph.
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub(super) title: Option<String>,
    /// Leave out frames narrower than this many pixels.
    #[arg(
        long,
        value_name = "PX",
        value_parser = number::width,
        default_value_t = 0.1,
        help_heading = "Output",
        allow_negative_numbers = true
    )]
    pub(super) minwidth: f64,
    /// Stacks from the leaf: who calls it.
    #[arg(long, help_heading = "Output")]
    pub(super) reverse: bool,
    /// The root on top (an icicle graph).
    #[arg(long, help_heading = "Output")]
    pub(super) inverted: bool,
}

/// `--report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// For people.
    Text,
    /// For machines.
    Json,
    /// None.
    None,
}

#[cfg(test)]
mod tests {
    use super::Args;

    #[test]
    fn clap_accepts_its_own_definition() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
