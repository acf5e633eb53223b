//! The command line as text: clap's structs. `config.rs` makes valid data of them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::choice::{AllocChoice, JavaChoice, LogLevel};
use super::daemon::options::Daemon;
use super::diff::options::DiffArgs;
use super::event_list::ListForm;
use super::events::{self, NamedEvents};
use super::number;
use super::picture::Picture;
use crate::output::{FORMATS, Format};
use crate::sample::{Event, ThreadState, TraceId};

/// The end of `--help`.
const EXAMPLES: &str = "\
Examples:
  Profile the whole machine for 30 seconds:
    sudo jbpf-prof -d 30
  Profile one process and its descendants:
    sudo jbpf-prof -d 30 -p 4711 --children
  Profile one container, or all pods of a namespace:
    sudo jbpf-prof -d 30 --container 3f2a9c
    sudo jbpf-prof -d 30 --namespace prod
  Profile a command from its first instruction:
    sudo jbpf-prof -o build.svg -- sudo -u \"$USER\" make -j8
  Find what the threads of a process wait for:
    sudo jbpf-prof -d 30 -p 4711 -e wait -o waits.svg
  Watch a process in the browser while it runs:
    sudo jbpf-prof -p 4711 --serve 127.0.0.1:0
  Watch on the terminal which functions run now:
    sudo jbpf-prof top
  Write the picture and a file for 'go tool pprof':
    sudo jbpf-prof -d 30 -o cpu.svg -o cpu.pb.gz
  Find who causes page faults, one sample for 100 faults:
    sudo jbpf-prof -d 30 -e page-faults -c 100

Exit codes:
  0    done
  1    failed, for example an output file could not be written
  2    the command line or a settings file is invalid
  3    this host lacks a permission or a kernel feature (see 'jbpf-prof doctor')
  4    the target or a probed function does not exist, or the command could not be run
  5    'diff' found a change
  130  a second Ctrl-C or SIGTERM ended the program before it wrote its outputs

Coming from async-profiler: -a is --all and means processes, -d is --duration, -f is -o, -t is
--per-thread.";

/// Sample where a Linux machine spends its CPU time and draw a flame graph.
///
/// jbpf-prof samples every CPU from the kernel with eBPF. One picture shows kernel, native code, the JVM, and Java with its
/// inlined methods. Run it as root; 'jbpf-prof doctor' checks permissions.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "jbpf-prof",
    version,
    long_version = super::version::long_version(),
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = "Run 'jbpf-prof --help' for details and examples.",
    after_long_help = EXAMPLES
)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Subcommands>,
    #[command(flatten)]
    pub(super) record: Record,
}

/// What else the program does.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Subcommands {
    /// Run continuously: keep profiles on disk, serve them over HTTP, push them to Pyroscope or OpenTelemetry.
    Daemon(Box<Daemon>),
    /// Show on the terminal, each second, which functions, processes and containers use the machine now.
    Top(Box<TopArgs>),
    /// Check the health of the daemon on this host: exit code 0 if healthy, 1 if not.
    Health {
        /// Read the address of the daemon from this settings file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Check also that the daemon has stored a profile lately.
        #[arg(long)]
        ready: bool,
    },
    /// List the JVMs on this host and where their Java names would come from.
    Jvms,
    /// List the events that this host can sample, for --event.
    Events {
        /// List only events whose name contains this text; * matches any text.
        pattern: Option<String>,
        /// Write the list in this form.
        #[arg(long, value_enum, value_name = "FORM", default_value_t)]
        format: ListForm,
    },
    /// Check the permissions and kernel features of this host; include the output in bug reports.
    Doctor,
    /// Write the Java agent to a file, for JVMs that load it at startup with -agentpath:FILE.
    Agent {
        /// Write to this file, or to standard output if it is `-`. The user of the JVM must be able to read the file.
        file: PathBuf,
    },
    #[command(about = convert_help())]
    Convert {
        /// Read this profile.
        input: PathBuf,
        /// Write to this file, or to standard output if it is `-`. The extension selects the format.
        output: PathBuf,
        #[arg(long, value_name = "FORMAT", help_heading = "Output", help = format_help())]
        format: Option<String>,
        /// Write only this event of the profile [default: all].
        #[arg(short, long, value_name = "NAME")]
        event: Option<String>,
        #[command(flatten)]
        waits: WaitChoice,
        /// Keep only samples of this trace: 32 hexadecimal digits.
        #[arg(long, value_name = "ID", help_heading = "Output")]
        trace: Option<TraceId>,
        #[command(flatten)]
        picture: Picture,
    },
    /// Compare two profiles, or several runs of two versions, and say what changed by more than noise.
    Diff(Box<DiffArgs>),
    /// Print a script that completes commands and options in this shell.
    Completions {
        /// Complete in this shell.
        shell: Shell,
    },
    /// Write the man pages to a directory, for packages.
    #[command(hide = true)]
    Man {
        /// Write to this existing directory.
        directory: PathBuf,
    },
    #[command(about = show_help())]
    Show {
        /// Read this profile, or standard input if it is `-`.
        input: PathBuf,
        /// List functions with their own and their total samples. This is the default.
        #[arg(long, conflicts_with_all = ["tree", "lines"])]
        flat: bool,
        /// Print the call tree.
        #[arg(long, conflicts_with = "lines")]
        tree: bool,
        /// List lines of source.
        #[arg(long)]
        lines: bool,
        /// Show only this event of the profile [default: all].
        #[arg(short, long, value_name = "NAME")]
        event: Option<String>,
        /// Show only samples of this trace: 32 hexadecimal digits.
        #[arg(long, value_name = "ID")]
        trace: Option<TraceId>,
        /// Show only what this function calls; * matches any text.
        #[arg(long, value_name = "NAME")]
        caller: Option<String>,
        /// Print at most this many levels of the call tree [default: all].
        #[arg(long, value_name = "N", requires = "tree")]
        depth: Option<usize>,
    },
}

/// Targets other than processes. clap does not enforce `requires` if another argument conflicts with the required one.
const OTHER_TARGETS: [&str; 5] = ["tid", "cgroup", "container", "pod", "namespace"];

/// What is sampled, and how often: the same for a run and for `top`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SampledArgs {
    /// Sample for this time: 30, 30s, 5m, 1h [default: until Ctrl-C].
    #[arg(short, long, value_name = "TIME", help_heading = "Sampling", allow_negative_numbers = true)]
    pub(super) duration: Option<String>,
    /// Take this many samples a second on each CPU [default: 99].
    ///
    /// For the events cpu and wait. For wait, a thread that waits for one second gets HZ samples.
    #[arg(
        short = 'F',
        long,
        value_name = "HZ",
        value_parser = number::rate,
        help_heading = "Sampling",
        allow_negative_numbers = true
    )]
    pub(super) frequency: Option<u64>,
    /// Take one sample for each N events [default: 1].
    ///
    /// For the events cpu and wait, N is the CPU time or waiting time between two samples, in nanoseconds, and replaces
    /// --frequency.
    #[arg(
        short,
        long,
        value_name = "N",
        value_parser = number::period,
        help_heading = "Sampling",
        allow_negative_numbers = true
    )]
    pub(super) count: Option<u64>,
    /// For the events alloc and native-alloc: take one sample for each SIZE of allocated bytes [default: 512KiB].
    #[arg(long, value_name = "SIZE", value_parser = number::alloc_interval, help_heading = "Sampling")]
    pub(super) alloc_interval: Option<u64>,
    /// For the event alloc: 'buffer' samples the objects for which threads take new buffers, 'object' lets the JVM choose
    /// objects at random distances [default: buffer].
    ///
    /// 'buffer' has the exact sum of bytes. The shares of classes can be wrong if a program allocates objects in a fixed
    /// order. 'object' has the right shares and an estimated sum. It needs JDK 11 or later, and an agent that is attached.
    #[arg(long, value_name = "WAY", value_enum, hide_possible_values = true, help_heading = "Sampling")]
    pub(super) alloc_by: Option<AllocChoice>,

    #[arg(
        short,
        long,
        value_name = "EVENT",
        value_parser = events::named,
        value_delimiter = ',',
        default_value = "cpu",
        help_heading = "Sampling",
        help = format!("Sample these events (comma-separated): {}", Event::names())
    )]
    pub(super) event: Vec<NamedEvents>,
    /// Profile all processes. This is the default.
    #[arg(short, long, help_heading = "Target", conflicts_with_all = ["pid", "tid"])]
    pub(super) all: bool,
    /// Profile only these process ids (comma-separated, repeatable).
    #[arg(short, long, value_name = "PID", value_parser = number::pid, value_delimiter = ',', help_heading = "Target")]
    pub(super) pid: Vec<u32>,
    /// Profile the descendants of the processes of --pid, too.
    #[arg(long, help_heading = "Target", requires = "pid", conflicts_with_all = OTHER_TARGETS)]
    pub(super) children: bool,
    /// Profile only these thread ids (comma-separated, repeatable).
    #[arg(
        long,
        value_name = "TID",
        value_parser = number::tid,
        value_delimiter = ',',
        help_heading = "Target",
        conflicts_with = "pid"
    )]
    pub(super) tid: Vec<u32>,
    /// Profile only this cgroup and the cgroups below it (repeatable).
    ///
    /// PATH is a directory below /sys/fs/cgroup, or a path as in /proc/PID/cgroup.
    #[arg(short = 'G', long, value_name = "PATH", help_heading = "Target", conflicts_with_all = ["pid", "tid"])]
    pub(super) cgroup: Vec<PathBuf>,
    /// Profile only these containers (comma-separated, repeatable).
    ///
    /// A container is named by its id, the first characters of its id, or its name.
    #[arg(long, value_name = "ID|NAME", value_delimiter = ',', help_heading = "Target", conflicts_with_all = ["pid", "tid"])]
    pub(super) container: Vec<String>,
    /// Profile only the containers of these pods (comma-separated, repeatable).
    #[arg(long, value_name = "NAME|UID", value_delimiter = ',', help_heading = "Target", conflicts_with_all = ["pid", "tid"])]
    pub(super) pod: Vec<String>,
    /// Profile only these Kubernetes namespaces (comma-separated, repeatable).
    ///
    /// With --pod or --container, both must match.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Target", conflicts_with_all = ["pid", "tid"])]
    pub(super) namespace: Vec<String>,
    /// Sample only these CPUs, for example 0-3,8.
    ///
    /// A wait belongs to the CPU on which its thread runs again.
    #[arg(short = 'C', long, value_name = "CPUS", help_heading = "Target")]
    pub(super) cpu: Option<String>,
    /// Record only user frames.
    #[arg(short = 'U', long, help_heading = "Target", conflicts_with = "all_kernel")]
    pub(super) all_user: bool,
    /// Record only kernel frames.
    #[arg(short = 'K', long, help_heading = "Target")]
    pub(super) all_kernel: bool,
    /// Include idle time: of CPUs, and of threads that only wait for work.
    #[arg(long, help_heading = "Target")]
    pub(super) idle: bool,
    /// Treat threads that sleep in this function or its callees as idle; * matches any text (repeatable).
    ///
    /// For the event wait. jbpf-prof knows thread pools, event loops and other waits for work; --idle-frame adds to them.
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub(super) idle_frame: Vec<String>,
    /// Put the stack that ended a wait on top of the wait's own stack.
    ///
    /// For the event wait. The frame -- stands between them; the waker's stack is upside down, with its process last.
    #[arg(long, help_heading = "Target", conflicts_with = "all_user")]
    pub(super) wakers: bool,
    /// Include the profiler itself.
    #[arg(long, help_heading = "Target")]
    pub(super) include_self: bool,
    /// Accepted and without effect: stacks are always recorded.
    #[arg(short = 'g', hide = true)]
    pub(super) call_graph: bool,
}

/// The command line of `top`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TopArgs {
    /// Show the samples of the last TIME: whole seconds, at most 60.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        help_heading = "Page",
        allow_negative_numbers = true
    )]
    pub(super) window: String,
    #[command(flatten)]
    pub(super) sampled: SampledArgs,
    #[command(flatten)]
    pub(super) host: HostArgs,
}

/// Arguments of the default command: record a profile.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Record {
    #[command(flatten)]
    pub(super) sampled: SampledArgs,

    #[arg(short, long, value_name = "FILE", help_heading = "Output", help = output_help())]
    pub(super) output: Vec<PathBuf>,
    #[arg(long, value_name = "FORMAT", help_heading = "Output", help = format_help())]
    pub(super) format: Option<String>,
    /// Serve the page at this address while the run goes on, for example 127.0.0.1:0.
    ///
    /// Open the printed address in a browser: the page grows each second. The page stays until Ctrl-C, also after the end of
    /// the run. Port 0 is any free port. An address that other hosts can reach needs --token-file. With --serve, the
    /// default output is the page as a file.
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    pub(super) serve: Option<String>,
    /// Serve profiles only to requests with the bearer token in this file; the page asks for the token.
    #[arg(long, value_name = "FILE", help_heading = "Output", requires = "serve")]
    pub(super) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) picture: Picture,
    /// Keep only stacks with a frame of this name; * matches any text (repeatable).
    ///
    /// Samples that -I, -X, --state or --reason leave out count as 'not asked for' in the report. Its table 'waits for'
    /// still counts them.
    #[arg(short = 'I', long, value_name = "NAME", help_heading = "Output")]
    pub(super) include: Vec<String>,
    /// Drop stacks with a frame of this name; * matches any text (repeatable).
    #[arg(short = 'X', long, value_name = "NAME", help_heading = "Output")]
    pub(super) exclude: Vec<String>,
    #[command(flatten)]
    pub(super) waits: WaitChoice,
    /// Record the trace and the span that each thread works for, where programs publish them.
    ///
    /// Programs publish them by OpenTelemetry's OTEP 4947. pprof has the labels trace_id and span_id. With --trace, or with
    /// 'convert --trace' later, only one trace is kept.
    #[arg(long, help_heading = "Target", conflicts_with = "all_kernel")]
    pub(super) trace_context: bool,
    /// Keep only samples of this trace: 32 hexadecimal digits. Implies --trace-context.
    #[arg(long, value_name = "ID", help_heading = "Output", conflicts_with = "all_kernel")]
    pub(super) trace: Option<TraceId>,
    /// Write one more file for each container, FILE-CONTAINER.EXT.
    ///
    /// One further file has the processes that are in no container.
    #[arg(long, help_heading = "Output")]
    pub(super) per_container: bool,
    /// Add a frame for each thread above its process.
    #[arg(long, help_heading = "Output")]
    pub(super) per_thread: bool,
    /// Keep the numbers in Java names that change from run to run, as in Foo$$Lambda$17/0x….
    #[arg(long, help_heading = "Output")]
    pub(super) raw_names: bool,
    /// Keep the numbers in thread names instead of pool-#-thread-#.
    #[arg(long, help_heading = "Output")]
    pub(super) raw_threads: bool,
    /// Print the report as text, as JSON for programs, or not at all.
    ///
    /// The report goes to standard output, or to standard error if a profile goes to standard output. With -- CMD the
    /// text report goes to standard error, too.
    #[arg(long, value_enum, default_value = "text", help_heading = "Output")]
    pub(super) report: Report,
    /// List methods by line in the report: Class::method @ (bci, line).
    #[arg(long, help_heading = "Output")]
    pub(super) lines: bool,

    #[command(flatten)]
    pub(super) host: HostArgs,
    /// Print neither progress nor report.
    #[arg(short, long, help_heading = "Host")]
    pub(super) quiet: bool,
    /// Log what jbpf-prof does to standard error; -vv logs each window, too.
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = "Host", conflicts_with = "quiet")]
    pub(super) verbose: u8,
    /// Set the log level; -v is info, -vv is debug.
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Host", conflicts_with = "verbose")]
    pub(super) log_level: Option<LogLevel>,

    /// Start this command and profile it and its descendants from the first instruction.
    #[arg(last = true, value_name = "CMD",
        conflicts_with_all = ["pid", "tid", "cgroup", "container", "pod", "namespace"])]
    pub(super) launch: Vec<OsString>,
}

/// Where names come from on this host: the same for a run and for `top`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct HostArgs {
    /// Choose the source of Java names.
    ///
    /// auto attaches the agent to each profiled JVM, and reads the memory of JVMs that refuse the agent. agent only
    /// attaches. vm only reads memory and loads nothing into any JVM. off names no compiled Java code.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Java")]
    pub(super) java: JavaChoice,
    /// Stop waiting for a JVM that does not answer the attach request after this time.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        help_heading = "Java",
        allow_negative_numbers = true
    )]
    pub(super) attach_timeout: String,
    /// Attach the agent even to HotSpot builds with known crashes in JVMTI.
    #[arg(long, help_heading = "Java")]
    pub(super) force_attach: bool,

    /// Read kernel types (BTF) from this file, for kernels without /sys/kernel/btf/vmlinux.
    ///
    /// The file must belong to root and must not be writable by other users.
    #[arg(long, value_name = "FILE", help_heading = "Host")]
    pub(super) btf_path: Option<PathBuf>,
    /// Read the names of containers and pods from the node's file system mounted here.
    #[arg(long, value_name = "DIR", default_value = "/", help_heading = "Host")]
    pub(super) node_root: PathBuf,
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

/// The help of `--output`, with all extensions of `FORMATS`.
fn output_help() -> String {
    format!(
        "Write the profile to this file (repeatable): {} by its extension, - for standard output \
         [default: an SVG named by date and time]",
        extensions(|_| true)
    )
}

fn convert_help() -> String {
    format!("Convert a profile from {} to {}", extensions(Format::is_read), extensions(|_| true))
}

fn show_help() -> String {
    format!("Print functions, lines or the call tree of a profile from {}", extensions(Format::is_read))
}

fn format_help() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.extension()).collect();
    format!("Write this format, regardless of the file's extension: {}", names.join(", "))
}

/// Which waits are kept.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WaitChoice {
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        help_heading = "Output",
        help = state_help()
    )]
    pub(super) state: Vec<String>,
    /// Keep only waits with these reasons; * matches any text (comma-separated): monitor, 'disk *'.
    #[arg(long, value_name = "REASON", value_delimiter = ',', help_heading = "Output")]
    pub(super) reason: Vec<String>,
}

fn state_help() -> String {
    let names = ThreadState::ALL.map(ThreadState::name).join(", ");
    format!("Keep only samples of threads in these states (comma-separated): {names}")
}

/// The form of the run report: the value of `--report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// A text for people.
    Text,
    /// A document for programs.
    Json,
    /// No report.
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
