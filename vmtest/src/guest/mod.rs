//! The guest's side: the first process, the runner of cases, and the cases.

pub(crate) mod case;
mod cases;
pub(crate) mod init;
mod java;
mod kmsg;
mod profiler;
mod program;
pub(crate) mod run;
mod share;

// The same code reads profiles and starts programs in the end-to-end tests. This code panics on errors, like tests:
// each case has its own process.
use testkit::{folded, target};

/// The argument with which the first process starts the runner.
pub(crate) const RUN: &str = "guest-run";
/// The argument with which the runner starts a case, before the case's name and, for some, a JDK.
pub(crate) const CASE: &str = "guest-case";
/// `PATH` in the guest.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
