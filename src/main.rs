//! The binary `jbpf-prof`. `docs/architecture.md` describes the source.

use std::ffi::CStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use jbpf_prof::cli::diff::DiffConfig;
use jbpf_prof::cli::doctor::DoctorReport;
use jbpf_prof::cli::log::Level;
use jbpf_prof::cli::{self, Command, RecordConfig};
use jbpf_prof::compare::{self, Comparison, ProfilePair};
use jbpf_prof::failure::{Exit, Failure, exit_of};
use jbpf_prof::output::PictureOptions;
use jbpf_prof::output::difference::Difference;
use jbpf_prof::output::report::Detail;
use jbpf_prof::profile::Profile;
use jbpf_prof::sample::TraceId;
use jbpf_prof::serve::run::RunServer;
use jbpf_prof::top::{TopScreen, restore_terminal};
use jbpf_prof::{daemon, host, jvm, output, process, session, symbolize};

fn main() -> ExitCode {
    end_on_panic();
    let mut args = std::env::args_os();
    let own = args.next().unwrap_or_default();
    let first = args.next();
    // Child processes are this binary with a hidden first argument.
    let child = match first.as_ref().and_then(|a| a.to_str()) {
        Some("__worker") => Some(named(c"jbpf-worker", symbolize::worker::main)),
        Some(process::opener::ARGUMENT) => Some(named(c"jbpf-opener", process::opener::main)),
        Some(jvm::helper::ARGUMENT) => Some(named(c"jbpf-helper", jvm::helper::main)),
        Some(daemon::client::resolve::ARGUMENT) => Some(daemon::client::resolve::child_main(args.by_ref())),
        Some(session::launch::ARGUMENT) => Some(session::launch::child_main(args.by_ref())),
        _ => None,
    };
    if let Some(code) = child {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let exit = match cli::parse(std::iter::once(own).chain(first).chain(args)) {
        Ok(command) => run(command).unwrap_or_else(|error| {
            say(Level::Error, &format!("{error:#}"));
            exit_of(&error)
        }),
        Err(failure) => {
            if !failure.message.is_empty() {
                say(Level::Error, &failure.message);
            }
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

/// Makes a panic of any thread end the process, also in builds that unwind: without the thread the others would wait for ever.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Runs a child process under a name of its own: started as `/proc/self/exe`, process lists would show `exe`.
fn named(name: &CStr, main: impl FnOnce() -> i32) -> i32 {
    // An error is ignored: the name only helps people.
    _ = rustix::thread::set_name(name);
    main()
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Record(config) => record(&config),
        Command::Top(config) => top(&config),
        Command::Daemon(job) => always_on(&job),
        Command::Health { address, ready } => {
            print(&format!("{}\n", daemon::health::ask(&address, ready)?))?;
            Ok(Exit::Done)
        }
        Command::Jvms => {
            print(&cli::jvms::table(&cli::jvms::rows(Path::new(cli::config::OWN_BINARY))?))?;
            Ok(Exit::Done)
        }
        Command::Events { pattern, form } => {
            print(&cli::event_list::list(pattern.as_deref(), form)?)?;
            Ok(Exit::Done)
        }
        Command::Doctor => {
            let jvms = cli::jvms::rows(Path::new(cli::config::OWN_BINARY))?;
            let DoctorReport { text, exit } =
                cli::doctor::diagnose(&jvms.iter().map(cli::jvms::line).collect::<Vec<_>>());
            print(&text)?;
            Ok(exit)
        }
        Command::Agent { file } => {
            output::destination::write(&file, |out| Ok(out.write_all(jvm::AGENT)?))?;
            Ok(Exit::Done)
        }
        Command::Convert { input, output, picture_options, event, waits, trace } => {
            let mut profile = read(&input, event.as_deref(), trace)?;
            waits.apply(&mut profile);
            if !waits.is_all() && profile.samples().is_empty() {
                say(
                    Level::Warn,
                    &format!("{}: no sample has one of these states and reasons", input.display()),
                );
            }
            output::write(&profile.views(), &output, &picture_options)?;
            Ok(Exit::Done)
        }
        Command::Diff(config) => diff(&config),
        Command::Completions(shell) => {
            output::stream::to_stdout(|out| Ok(out.write_all(&cli::completions(shell))?))?;
            Ok(Exit::Done)
        }
        Command::Man { directory } => {
            cli::write_man_pages(&directory)?;
            Ok(Exit::Done)
        }
        Command::Show { input, event, trace, options } => {
            print(&output::report::show(&read(&input, event.as_deref(), trace)?, &options))?;
            Ok(Exit::Done)
        }
    }
}

/// Reads a profile, or one event and one trace of it.
fn read(file: &Path, event: Option<&str>, trace: Option<TraceId>) -> anyhow::Result<Profile> {
    let mut profile = output::read(file)?;
    if let Some(event) = event {
        profile.keep_event(event).with_context(|| file.display().to_string())?;
    }
    if let Some(trace) = trace {
        profile.keep_trace(trace);
        if profile.samples().is_empty() {
            say(Level::Warn, &format!("{}: no sample has the trace {trace}", file.display()));
        }
    }
    Ok(profile)
}

/// Compares profiles; the exit code is the verdict.
fn diff(config: &DiffConfig) -> anyhow::Result<Exit> {
    let event = config.event.as_deref();
    let read = |files: &[PathBuf]| -> anyhow::Result<Vec<Profile>> {
        files.iter().map(|file| read(file, event, None)).collect()
    };
    let (before, after) = (read(&config.before)?, read(&config.after)?);
    let mut events = compare::common_events(&before, &after).into_iter();
    let Some(event) = events.next() else {
        anyhow::bail!("the profiles before and after have no event in common");
    };
    for other in events {
        say(Level::Warn, &format!("only {} is compared, and not {}", event.title(), other.title()));
    }
    let pair = ProfilePair::of(&before, &after, event);
    drop((before, after));
    let comparison = Comparison::of(&pair, config.options.clone())?;
    let names = |files: &[PathBuf]| files.iter().map(|file| file.display().to_string()).collect();
    let [before, after]: [Vec<String>; 2] = [names(&config.before), names(&config.after)];
    let difference = Difference { pair: &pair, comparison: &comparison, before: &before, after: &after };
    for target in &config.outputs {
        output::difference::write(&difference, target, &config.picture_options)?;
    }
    if config.prints_text {
        print(&output::difference::text(&difference, config.width))?;
    }
    Ok(if comparison.is_changed() { Exit::Changed } else { Exit::Done })
}

fn always_on(job: &cli::daemon::DaemonCommand) -> anyhow::Result<Exit> {
    if let Some(settings) = &job.printed {
        print(settings)?;
        return Ok(Exit::Done);
    }
    if job.check {
        print("the settings are valid\n")?;
        return Ok(Exit::Done);
    }
    cli::log::begin(job.log);
    let refusals = may_sample(false)?;
    let read = || {
        let job = job.read_again()?;
        cli::log::set_level(job.log);
        Ok(job.config)
    };
    daemon::run(&job.config, &read).map_err(|error| cli::with_host_cause(error, &refusals))?;
    Ok(Exit::Done)
}

/// Checks this host and prints its refusals. An error if nothing can be sampled at all.
fn may_sample(own_btf: bool) -> anyhow::Result<Vec<host::HostRefusal>> {
    let refusals = host::check(own_btf);
    for refusal in &refusals {
        if refusal.is_fatal() {
            return Err(Failure::from(*refusal).into());
        }
        say(Level::Warn, &format!("{refusal}; {}", refusal.hint()));
    }
    Ok(refusals)
}

fn record(config: &RecordConfig) -> anyhow::Result<Exit> {
    cli::log::begin(config.log);
    config.warnings.iter().for_each(|warning| say(Level::Warn, warning));
    let refusals = may_sample(config.settings.btf.is_some())?;
    let control = session::Control::default();
    session::install_signal_handlers(&control, || {})?;
    let mut server = config.serve.clone().map(RunServer::start).transpose()?;
    if let Some(server) = &server {
        say(Level::Info, &format!("the page is at {} until Ctrl-C", server.place()));
    }
    let mut add = |mut fresh: Profile| {
        fresh.filter(&config.include, &config.exclude);
        config.waits.apply(&mut fresh);
        config.trace.into_iter().for_each(|trace| fresh.keep_trace(trace));
        server.iter_mut().for_each(|server| server.add(std::mem::take(&mut fresh)));
    };
    let fresh = config.serve.is_some().then_some(&mut add as &mut dyn FnMut(Profile));
    let session::SampledRun { mut outcome, end } = session::run(&config.settings, &control, fresh)
        .map_err(|error| cli::with_host_cause(error, &refusals))?;
    outcome.filter(&config.include, &config.exclude, &config.waits, config.trace);
    let picture_options =
        PictureOptions { report: Some(Arc::new(outcome.report.clone())), ..config.picture_options.clone() };
    if let Some(server) = &mut server
        && let Err(error) = server.end(&outcome.views(), &picture_options)
    {
        say(Level::Warn, &format!("the page does not show the end of the run: {error:#}"));
    }
    let written = write(config, outcome, &picture_options);
    if let Some(server) = &server {
        if !control.is_interrupted() {
            say(Level::Info, &format!("the run has ended; {} stays until Ctrl-C", server.place()));
        }
        control.wait_for_interrupt();
        server.drain();
    }
    written?;
    end.map(|()| Exit::Done)
}

/// Shows the page of `top` until the user quits.
fn top(config: &cli::top::TopConfig) -> anyhow::Result<Exit> {
    cli::top::check_terminal()?;
    config.warnings.iter().for_each(|warning| say(Level::Warn, warning));
    let refusals = may_sample(config.settings.btf.is_some())?;
    let control = session::Control::default();
    session::install_signal_handlers(&control, restore_terminal)?;
    let mut screen = TopScreen::start(&config.setup, &control)?;
    let sampled =
        session::run_parts(&config.settings, &control, |part| screen.push(part.profile, part.report));
    let shown = screen.end();
    sampled.map_err(|error| cli::with_host_cause(error, &refusals))?;
    shown?;
    print(&screen.account())?;
    Ok(Exit::Done)
}

/// Writes the outputs of a run and its report.
fn write(
    config: &RecordConfig,
    mut outcome: session::Outcome,
    picture_options: &PictureOptions,
) -> anyhow::Result<()> {
    for target in &config.outputs {
        let began = std::time::Instant::now();
        let written = output::write(&outcome.views(), target, picture_options)?;
        log::info!("output: {target} written in {:.0?}", began.elapsed());
        outcome.report.outputs.extend(written.iter().map(ToString::to_string));
        if config.per_container {
            let written = output::write_each(&outcome.views(), target, picture_options)?;
            outcome.report.outputs.extend(written.iter().map(ToString::to_string));
        }
    }
    let detail = Detail {
        width: output::report::width_of(std::io::stdout()),
        lines: config.lines,
        ..Detail::default()
    };
    let text = match config.report {
        cli::Report::Text => output::report::text(&outcome.report, &outcome.profile, detail),
        cli::Report::Json => output::report::json(&outcome.report, &outcome.profile, config.lines)?,
        cli::Report::None => return Ok(()),
    };
    if config.report_to_stderr {
        // Standard error may be closed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        print(&text)?;
    }
    Ok(())
}

fn print(text: &str) -> anyhow::Result<()> {
    output::stream::to_stdout(|out| Ok(out.write_all(text.as_bytes())?))
}

/// Prints a line to standard error, which may be closed.
fn say(level: Level, text: &str) {
    let _ = writeln!(std::io::stderr(), "{}jbpf-prof: {text}", cli::log::journal_priority(level));
}
