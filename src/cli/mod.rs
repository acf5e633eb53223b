//! The command line: what was asked for, as valid data; and the exit codes.

mod args;
pub mod config;
pub mod exit;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

pub use args::Report;
pub use config::Config;
pub use exit::{Exit, Failure};

use crate::output::{Look, Target};

/// What the program is to do.
#[derive(Debug)]
pub enum Command {
    /// Sample.
    Record(Box<Config>),
    /// List JVMs.
    Jvms,
    /// Say what this host allows.
    Doctor,
    /// Convert a profile.
    Convert {
        /// From.
        input: PathBuf,
        /// To.
        output: Target,
        /// How a picture looks.
        look: Look,
    },
}

/// Reads the command line. Help, version and mistakes that clap finds are printed by it and give their exit code.
///
/// # Errors
/// What is wrong, and the exit code.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Failure> {
    let args = match args::Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Nobody may be reading.
            let _ = error.print();
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            return Err(Failure { exit, message: String::new() });
        }
    };
    match args.command {
        None => Config::new(args.record).map(|config| Command::Record(Box::new(config))),
        Some(args::Sub::Jvms) => Ok(Command::Jvms),
        Some(args::Sub::Doctor) => Ok(Command::Doctor),
        Some(args::Sub::Convert { input, output, picture }) => {
            let output = Target::parse(&output, None).map_err(|e| Failure::usage(e.to_string()))?;
            Ok(Command::Convert { input, output, look: config::look(&picture)? })
        }
    }
}
