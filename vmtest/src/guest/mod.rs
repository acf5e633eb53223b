//! The guest's part: the first process, the runner of cases, and the cases.

pub(crate) mod case;
mod cases;
pub(crate) mod init;
mod java;
mod kmsg;
mod profiler;
mod program;
pub(crate) mod run;
mod share;

// What the end-to-end tests read profiles and start programs with. It fails by panicking, as tests do: each case is a
// process of its own.
use testkit::{folded, target};

/// The argument with which the first process starts the runner.
pub(crate) const RUN: &str = "guest-run";
/// The argument with which the runner starts a case; the case's name and perhaps a JDK follow.
pub(crate) const CASE: &str = "guest-case";
/// Where programs are in the guest.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
