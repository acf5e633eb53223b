//! What several commands let users choose, by its name on the command line and in the file of settings.

use clap::ValueEnum;
use log::LevelFilter;
use serde::{Deserialize, Serialize};

use crate::session;

/// `--log-level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogLevel {
    Off,
    Warn,
    Info,
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Off => LevelFilter::Off,
            LogLevel::Warn => LevelFilter::Warn,
            LogLevel::Info => LevelFilter::Info,
            LogLevel::Debug => LevelFilter::Debug,
        }
    }
}

/// `--java`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Java {
    Auto,
    Agent,
    Vm,
    Off,
}

impl From<Java> for session::Java {
    fn from(java: Java) -> session::Java {
        match java {
            Java::Auto => session::Java::Auto,
            Java::Agent => session::Java::Agent,
            Java::Vm => session::Java::Vm,
            Java::Off => session::Java::Off,
        }
    }
}
