//! `vmtest` boots real kernels in QEMU and checks that jbpf-prof's profiles are right on each: docs/vmtest.md.
//!
//! One static binary has three roles, which depend on how it is started. On the host it builds images, boots guests and
//! checks results. In a guest it is the first process, which mounts file systems and starts the binary again to run the
//! cases. Each case is a process of its own, so that a failing or hanging case does not affect the others.

mod arch;
mod distribution;
mod guest;
mod host;
mod matrix;
mod plan;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let result = match args.next().as_deref() {
        _ if std::process::id() == 1 => guest::init::main(),
        Some(guest::RUN) => guest::run::main(),
        Some(guest::CASE) => guest::case::main(&args.collect::<Vec<_>>()),
        _ => return host::main(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("vmtest: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line to standard error, which may be closed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
