//! The command line, validated.

mod args;
mod choice;
pub mod config;
pub mod daemon;
pub mod diff;
pub mod doctor;
pub mod event_list;
mod events;
mod explanation;
pub mod jvms;
pub mod log;
mod number;
mod pages;
mod picture;
mod serve;
pub mod top;
mod version;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

pub use args::Report;
pub use clap_complete::Shell;
pub use config::RecordConfig;
pub use explanation::with_host_cause;
pub use pages::{completions, write_man_pages};

use crate::failure::{Exit, Failure};
use crate::output::report::{ShowOptions, ShownTable, width_of};
use crate::output::{OutputTarget, PictureOptions};
use crate::profile::filter::Glob;
use crate::sample::TraceId;
use crate::serve::Address;
use crate::waits::WaitFilter;

/// The command that the user gave.
#[derive(Debug)]
pub enum Command {
    /// Record one profile (no subcommand).
    Record(Box<RecordConfig>),
    /// `daemon`: record profiles without an end.
    Daemon(Box<daemon::DaemonCommand>),
    /// `health`: ask a daemon for its health.
    Health {
        /// Where the daemon serves its health: its address of metrics, or else that of profiles.
        address: Address,
        /// Also check that the daemon produces windows.
        ready: bool,
    },
    /// `events`: list the events of this host.
    Events {
        /// A part of a name, or a pattern with `*`.
        pattern: Option<String>,
        /// For people or for programs.
        form: event_list::ListForm,
    },
    /// `jvms`: list the JVMs of this host.
    Jvms,
    /// `doctor`: report what this host allows.
    Doctor,
    /// `agent`: write the agent library to a file.
    Agent {
        /// The file to write.
        file: PathBuf,
    },
    /// `convert`: convert a profile to another format.
    Convert {
        /// The profile to read.
        input: PathBuf,
        /// The file to write, and its format.
        output: OutputTarget,
        /// Title, narrowest frame and direction, if the output is a flame graph.
        picture_options: PictureOptions,
        /// The only event to write; `None`: all.
        event: Option<String>,
        /// Which samples are converted.
        waits: WaitFilter,
        /// The only trace whose samples are converted; `None`: all samples.
        trace: Option<TraceId>,
    },
    /// `completions`: print a completion script.
    Completions(Shell),
    /// `man` (hidden): write the man pages to a directory.
    Man {
        /// An existing directory.
        directory: PathBuf,
    },
    /// `diff`: show which functions changed between two versions.
    Diff(Box<diff::DiffConfig>),
    /// `top`: show on the terminal where time goes now.
    Top(Box<top::TopConfig>),
    /// `show`: print a profile as a table or tree.
    Show {
        /// The profile to read.
        input: PathBuf,
        /// The only event to show; `None`: all.
        event: Option<String>,
        /// The only trace to show; `None`: all samples.
        trace: Option<TraceId>,
        /// The table to print, its depth and its width.
        options: ShowOptions,
    },
}

/// Parses the command line. clap itself prints help, version and syntax errors; their failure has no message.
///
/// # Errors
/// What is wrong, and the exit code.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Failure> {
    let args = match args::Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            let error = with_separator(error);
            // Standard output may be closed.
            let _ = error.print();
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            return Err(Failure { exit, message: String::new() });
        }
    };
    match args.command {
        None => RecordConfig::new(&args.record).map(|config| Command::Record(Box::new(config))),
        Some(args::Subcommands::Daemon(daemon)) => {
            daemon::DaemonCommand::new(&daemon).map(|job| Command::Daemon(Box::new(job)))
        }
        Some(args::Subcommands::Health { config, ready }) => {
            daemon::health_address(config.as_deref()).map(|address| Command::Health { address, ready })
        }
        Some(args::Subcommands::Jvms) => Ok(Command::Jvms),
        Some(args::Subcommands::Events { pattern, format }) => Ok(Command::Events { pattern, form: format }),
        Some(args::Subcommands::Doctor) => Ok(Command::Doctor),
        Some(args::Subcommands::Agent { file }) => Ok(Command::Agent { file }),
        Some(args::Subcommands::Convert { input, output, format, event, waits, trace, picture }) => {
            let output = config::output("output", &output, config::format(format.as_deref())?)?;
            let (picture_options, waits) = (config::picture_options(&picture)?, config::waits(&waits)?);
            Ok(Command::Convert { input, output, picture_options, event, waits, trace })
        }
        Some(args::Subcommands::Diff(args)) => {
            diff::DiffConfig::new(&args).map(|config| Command::Diff(Box::new(config)))
        }
        Some(args::Subcommands::Top(args)) => {
            top::TopConfig::new(&args).map(|config| Command::Top(Box::new(config)))
        }
        Some(args::Subcommands::Completions { shell }) => Ok(Command::Completions(shell)),
        Some(args::Subcommands::Man { directory }) => Ok(Command::Man { directory }),
        Some(args::Subcommands::Show { input, flat: _, tree, lines, event, trace, caller, depth }) => {
            let table = match (tree, lines) {
                (true, _) => ShownTable::Tree,
                (false, true) => ShownTable::Lines,
                (false, false) => ShownTable::Flat,
            };
            let caller = caller.as_deref().map(Glob::new);
            let out = std::io::stdout();
            // Programs that read the output search for names.
            let width = if out.is_terminal() { width_of(out) } else { ShowOptions::WHOLE };
            let options = ShowOptions { table, caller, depth, width };
            Ok(Command::Show { input, event, trace, options })
        }
    }
}

/// Adds what to do if the user gave a command to profile without `--` before it, or a process without `-p`. Drops clap's tip
/// to pass an unknown option behind `--`: there stands the command to profile.
fn with_separator(mut error: clap::Error) -> clap::Error {
    let word = error.get(ContextKind::InvalidSubcommand).or_else(|| error.get(ContextKind::InvalidArg));
    let Some(ContextValue::String(word)) = word else { return error };
    let hint = if word.starts_with('-') {
        error.remove(ContextKind::Suggested);
        return error;
    } else if word.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("to profile process {word}, use '-p {word}'")
    } else {
        format!("to start and profile a command, write '--' before the command: 'jbpf-prof -- {word} ...'")
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    error
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Command, Exit, Failure, RecordConfig, ShownTable, parse};
    use crate::sample::{Event, EventPeriod};
    use crate::session::Target;

    fn ask(line: &str) -> Result<Command, Failure> {
        parse(std::iter::once("jbpf-prof").chain(line.split_whitespace()).map(OsString::from))
    }

    fn config(line: &str) -> RecordConfig {
        match ask(line) {
            Ok(Command::Record(config)) => *config,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// The failure of a line that clap accepts.
    fn refused(line: &str) -> (Exit, String) {
        match ask(line) {
            Err(Failure { exit, message }) => (exit, message),
            Ok(command) => panic!("{line}: {command:?}"),
        }
    }

    #[test]
    fn no_target_is_all_and_needs_no_subcommand() {
        let main_job = config("--duration 30 --all -o -");
        assert_eq!(main_job.settings.target, Target::All);
        assert_eq!(main_job.settings.duration.map(|d| d.as_secs()), Some(30));
        let nothing = config("-o - -g");
        assert_eq!((nothing.settings.target, nothing.settings.duration), (Target::All, None));
        assert_eq!(nothing.settings.events, [EventPeriod { event: Event::Cpu, period: 1_000_000_000 / 99 }]);
        assert!(nothing.warnings.is_empty(), "{:?}", nothing.warnings);
    }

    #[test]
    fn targets_are_parsed() {
        let own = std::process::id();
        let pids = config(&format!("-p {own},1 -p {own} -o -")).settings.target;
        assert!(matches!(&pids, Target::Pids(pids) if pids.contains(&1) && pids.contains(&own)), "{pids:?}");
        assert_eq!(config(&format!("--tid {own} -o -")).settings.target, Target::Tids(vec![own]));
        let launch = config("-o - -- sleep -p 5").settings.target;
        assert_eq!(launch, Target::Launch(vec!["sleep".into(), "-p".into(), "5".into()]));
        for line in [
            "-a -p 1 -o -",
            "-p 1 --tid 1 -o -",
            "-p 1 -o - -- sleep 1",
            "--children -o -",
            "-U -K",
            "-F 9 -c 9",
        ] {
            assert_eq!(refused(line).0, Exit::Usage, "{line}");
        }
    }

    #[test]
    fn children_belong_to_processes_only() {
        use clap::Parser;
        use clap::error::ErrorKind;
        for command in ["", "top "] {
            for target in ["--tid 1", "-G x", "--container x", "--pod x", "--namespace x"] {
                let line = format!("jbpf-prof {command}{target} --children");
                let error = super::args::Args::try_parse_from(line.split_whitespace()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}: {error}");
            }
            let line = format!("jbpf-prof {command}-p 1 --children");
            assert!(super::args::Args::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
    }

    #[test]
    fn bad_input_has_one_sentence_and_its_exit_code() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(dir.path().join("d.svg")).unwrap();
        let cases = [
            ("-F 0 -o -".to_owned(), Exit::Usage, "--frequency 0"),
            ("-c 0 -o -".to_owned(), Exit::Usage, "--count 0"),
            ("-e wait -c 5000000000 -o -".to_owned(), Exit::Usage, "--count 5000000000"),
            (
                "--state sleping -o -".to_owned(),
                Exit::Usage,
                "--state sleping: unknown state; did you mean sleeping?",
            ),
            ("-e wall --reason monitr -o /dev/null".to_owned(), Exit::Usage, "did you mean monitor?"),
            ("--reason monitor -o -".to_owned(), Exit::Usage, "--reason applies to waiting time"),
            ("--wakers -o -".to_owned(), Exit::Usage, "--wakers applies to waiting time"),
            ("--alloc-by object -o -".to_owned(), Exit::Usage, "--alloc-by applies to the event alloc"),
            (
                "--state sleeping -o -".to_owned(),
                Exit::Usage,
                "--state sleeping: the events have no such samples",
            ),
            ("-e wait --state running -o -".to_owned(), Exit::Usage, "--state running"),
            ("convert a.folded b.svg --reason x".to_owned(), Exit::Usage, "--reason x: unknown reason"),
            ("-d x -o -".to_owned(), Exit::Usage, "--duration x"),
            ("-d 0 -o -".to_owned(), Exit::Usage, "--duration 0"),
            ("-C 3-x -o -".to_owned(), Exit::Usage, "--cpu 3-x"),
            ("-p 4194999 -o -".to_owned(), Exit::Target, "process 4194999"),
            ("-p 0 -o -".to_owned(), Exit::Target, "process 0"),
            ("--tid 4194999 -o -".to_owned(), Exit::Target, "thread 4194999"),
            ("-o x.png".to_owned(), Exit::Usage, "x.png"),
            ("-o x --format png".to_owned(), Exit::Usage, "--format png"),
            ("--minwidth -1 -o -".to_owned(), Exit::Usage, "--minwidth -1"),
            (format!("-o {0} -o {0}", at("a.svg")), Exit::Usage, "twice"),
            (format!("-o {}", at("d.svg")), Exit::Failed, "d.svg"),
            (format!("-o {}", at("none/a.svg")), Exit::Failed, "there is no directory"),
            ("--btf-path /tmp -o -".to_owned(), Exit::Host, "--btf-path"),
            ("--btf-path /nowhere -o -".to_owned(), Exit::Host, "--btf-path"),
            ("convert a.folded b.png".to_owned(), Exit::Usage, "b.png"),
            ("-o - -o /dev/stdout".to_owned(), Exit::Usage, "standard output is given twice"),
            ("--per-container -o /dev/null".to_owned(), Exit::Usage, "/dev/null is no file"),
            ("diff a -- b -o".to_owned(), Exit::Usage, "-o stands behind '--'"),
            ("-e wall -o -".to_owned(), Exit::Usage, "standard output takes one event in the format folded"),
            ("-o /dev/fd/999999".to_owned(), Exit::Failed, "descriptor 999999 is not open"),
        ];
        for (line, exit, part) in cases {
            let (was, message) = refused(&line);
            assert_eq!(was, exit, "{line}: {message}");
            assert!(message.contains(part) && !message.contains('\n'), "{line}: {message}");
        }
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["d.svg"], "checking an output leaves nothing behind");
    }

    #[test]
    fn what_is_no_number_is_refused_in_words() {
        use clap::Parser;
        for (line, said) in [
            ("-p abc", "'abc' for '--pid <PID>': expected a process id, such as 4711"),
            ("-p 1,,2", "'--pid <PID>"),
            ("-p 99999999999", "expected a process id"),
            ("--tid 1-3", "'1-3' for '--tid <TID>': expected a thread id"),
            ("-F 9.5", "'9.5' for '--frequency <HZ>': expected a whole number of samples a second"),
            ("-c 1ms", "'1ms' for '--count <N>': expected a whole number of nanoseconds or events"),
            ("--minwidth 2px", "'2px' for '--minwidth <PX>': expected a number of pixels"),
            ("daemon -F x", "'x' for '--frequency <HZ>': expected a number of samples a second"),
            ("daemon --max-cpu 1%", "'1%' for '--max-cpu <PERCENT>': expected a percentage without its sign"),
            ("daemon --concurrent-profiles -", "expected a whole number of profiles"),
        ] {
            let words = std::iter::once("jbpf-prof").chain(line.split_whitespace());
            let error = super::args::Args::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn a_command_without_its_separator_has_a_hint() {
        use clap::Parser;
        let error = super::args::Args::try_parse_from(["jbpf-prof", "openssl", "speed"]).unwrap_err();
        let text = super::with_separator(error).to_string();
        assert!(text.contains("'jbpf-prof -- openssl ...'"), "{text}");
    }

    #[test]
    fn a_report_goes_where_no_profile_goes() {
        for (line, report_to_stderr) in [
            ("-o -", true),
            ("-o /dev/stdout", true),
            ("-o /dev/null", false),
            ("-o /proc/self/fd/1", true),
            ("-o /dev/null -- true", true),
            ("-o /dev/null --report json -- true", false),
        ] {
            assert_eq!(config(line).report_to_stderr, report_to_stderr, "{line}");
        }
    }

    #[test]
    fn rates_that_run_in_step_are_a_warning() {
        let hundred = config("-F 100 -o -");
        assert_eq!(hundred.settings.events, [EventPeriod { event: Event::Cpu, period: 10_000_000 }]);
        assert!(hundred.warnings.iter().any(|w| w.contains("use 99")), "{:?}", hundred.warnings);
        let absurd = config("-F 4000000000 -o -");
        assert!(absurd.settings.events[0].period >= 10_000 && !absurd.warnings.is_empty());
    }

    #[test]
    fn other_jobs() {
        assert!(matches!(ask("jvms"), Ok(Command::Jvms)));
        assert!(matches!(ask("doctor"), Ok(Command::Doctor)));
        assert!(matches!(ask("agent /tmp/a.so"), Ok(Command::Agent { file }) if file.ends_with("a.so")));
        assert!(
            matches!(ask("convert a.folded b.svg --inverted"), Ok(Command::Convert { picture_options, .. }) if picture_options.inverted)
        );
        let tree = ask("show a.pb.gz --tree --depth 3 --caller Shop.*");
        assert!(
            matches!(tree, Ok(Command::Show { options, .. }) if options.table == ShownTable::Tree && options.depth == Some(3))
        );
        assert!(ask("show a.pb.gz --tree --lines").is_err() && ask("show a.pb.gz --depth 3").is_err());
    }

    /// Help is part of the interface, so that a change needs new golden files: `UPDATE_GOLDEN=1` writes them.
    #[test]
    fn help_is_what_it_was() {
        use clap::CommandFactory;
        let mut all = super::args::Args::command().term_width(100).max_term_width(100);
        all.build();
        let names = all.get_subcommands().map(|command| command.get_name().to_owned());
        let names: Vec<String> = names.filter(|name| name != "help").collect();
        let commands = names.iter().map(|name| (name.as_str(), all.find_subcommand(name).unwrap().clone()));
        for (name, command) in commands.chain([("jbpf-prof", all.clone())]) {
            let mut command = command.term_width(100).max_term_width(100);
            for (length, help) in [("short", command.render_help()), ("long", command.render_long_help())] {
                let file = format!("{}/src/cli/help/{name}-{length}.txt", env!("CARGO_MANIFEST_DIR"));
                let help: Vec<String> =
                    help.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
                let help = help.join("\n").trim_end().to_owned() + "\n";
                if std::env::var_os("UPDATE_GOLDEN").is_some() {
                    std::fs::write(&file, &help).unwrap();
                }
                assert_eq!(help, std::fs::read_to_string(&file).unwrap_or_default(), "{file}");
            }
        }
    }
}
