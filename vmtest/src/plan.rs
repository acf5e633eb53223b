//! What the host asks of a guest, and what the guest answers: one line of JSON each.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Where the guest finds what the host gave it.
pub(crate) const PAYLOAD: &str = "/vmtest";
/// The plan's file within it.
pub(crate) const PLAN: &str = "plan.json";
/// Name of the port that results come through.
pub(crate) const PORT: &str = "vmtest";

/// What one boot is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// These cases, one after the other.
    Cases(Vec<Run>),
    /// A shell on the console.
    Shell,
    /// One command of the shell; its output comes through the port.
    Command(String),
}

/// One case on one JDK.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The case's name.
    pub(crate) case: String,
    /// The JDK's feature version, for cases that need one.
    pub(crate) jdk: Option<u32>,
    /// How many seconds it may take.
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
    /// A case begins.
    Begin(Run),
    /// A case has ended.
    Result(Outcome),
    /// A line of the command's output.
    Output(String),
    /// The command has ended with this exit code.
    Exit(i32),
    /// All is done; the guest powers off.
    Done,
}

/// How a case went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// What ran.
    pub(crate) run: Run,
    /// The guest kernel's release.
    pub(crate) kernel: String,
    /// Samples that the case judged.
    pub(crate) samples: u64,
    /// What else it measured.
    pub(crate) figures: BTreeMap<String, f64>,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Why it failed; none if it passed.
    pub(crate) error: Option<String>,
}

/// What a case found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Samples that the case judged.
    pub(crate) samples: u64,
    /// What else it measured, by name.
    pub(crate) figures: BTreeMap<String, f64>,
}

impl Found {
    /// Adds a figure.
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}
