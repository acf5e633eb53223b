//! `jbpf-prof`: see the library crate for the layout.

use std::io::Write;
use std::process::ExitCode;

use jbpf_prof::cli::{self, Command, Config, Exit};
use jbpf_prof::{output, session, symbolize};

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let own = args.next().unwrap_or_default();
    let first = args.next();
    // Child processes are this binary again, told by a hidden first argument.
    let child = match first.as_ref().and_then(|a| a.to_str()) {
        Some("__worker") => Some(symbolize::worker::main()),
        Some(session::launch::ARGUMENT) => Some(session::launch::child_main(args.by_ref())),
        _ => None,
    };
    if let Some(code) = child {
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let exit = match cli::parse(std::iter::once(own).chain(first).chain(args)) {
        Ok(command) => run(command).unwrap_or_else(|error| {
            say(&format!("{error:#}"));
            cli::exit::code_of(&error)
        }),
        Err(failure) => {
            if !failure.message.is_empty() {
                say(&failure.message);
            }
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Record(config) => record(&config),
        Command::Jvms | Command::Doctor | Command::Convert { .. } => Ok(Exit::Usage),
    }
}

fn record(config: &Config) -> anyhow::Result<Exit> {
    for warning in &config.warnings {
        say(warning);
    }
    let mut outcome = session::run(&config.settings)?;
    outcome.profile.filter(&config.include, &config.exclude);
    for target in &config.outputs {
        output::write(&outcome.profile, target, &config.look)?;
    }
    if config.report == cli::Report::Json {
        output::file::to_stdout(|out| Ok(serde_json::to_writer_pretty(out, &outcome.report)?))?;
    }
    Ok(Exit::Done)
}

/// One line for the user; standard error may be closed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "jbpf-prof: {text}");
}
