//! What several commands let users choose, by its name on the command line and in the file of settings.

use clap::ValueEnum;
use log::LevelFilter;
use serde::{Deserialize, Serialize};

use crate::session;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JavaChoice {
    Auto,
    Agent,
    Vm,
    Off,
}

/// Which Java objects have samples of `alloc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AllocChoice {
    Buffer,
    Object,
}

impl From<AllocChoice> for session::JavaAllocations {
    fn from(by: AllocChoice) -> session::JavaAllocations {
        match by {
            AllocChoice::Buffer => session::JavaAllocations::Buffers,
            AllocChoice::Object => session::JavaAllocations::Objects,
        }
    }
}

impl From<JavaChoice> for session::JavaNaming {
    fn from(java: JavaChoice) -> session::JavaNaming {
        match java {
            JavaChoice::Auto => session::JavaNaming::Auto,
            JavaChoice::Agent => session::JavaNaming::Agent,
            JavaChoice::Vm => session::JavaNaming::Vm,
            JavaChoice::Off => session::JavaNaming::Off,
        }
    }
}
