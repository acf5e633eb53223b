//! Messages between host and guest, each one line of JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The payload's directory in the guest.
pub(crate) const PAYLOAD: &str = "/vmtest";
/// The plan's file in the payload.
pub(crate) const PLAN: &str = "plan.json";
/// The name of the port for results.
pub(crate) const PORT: &str = "vmtest";

/// What to do in one boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// Run these cases in turn.
    Cases(Vec<Run>),
    /// Run a shell on the console.
    Shell,
    /// Run one shell command, whose output goes to the port.
    Command(String),
}

/// One case on one JDK.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) case: String,
    /// The JDK's feature version, for cases that need a JDK.
    pub(crate) jdk: Option<u32>,
    /// How many seconds the case may take.
    pub(crate) patience: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.case)?;
        self.jdk.map_or(Ok(()), |jdk| write!(f, " on JDK {jdk}"))
    }
}

/// A line from the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Begin(Run),
    Result(Outcome),
    Output(String),
    /// The command has ended with this exit code.
    Exit(i32),
    /// All runs are over; the guest powers off.
    Done,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) run: Run,
    /// The release of the guest's kernel.
    pub(crate) kernel: String,
    /// Samples that the case checked.
    pub(crate) samples: u64,
    /// Further measurements, by name.
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) seconds: f64,
    /// Why the case failed; `None` if it passed.
    pub(crate) error: Option<String>,
}

/// What a case measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Samples that the case checked.
    pub(crate) samples: u64,
    /// Further measurements, by name.
    pub(crate) figures: BTreeMap<String, f64>,
}

impl Found {
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}
