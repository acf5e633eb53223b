//! `vmtest` boots real kernels in QEMU and proves that jbpf-prof's profiles are right on each: docs/vmtest.md.
//!
//! One static binary plays three parts, told apart by how it is started: on the host it makes images, boots and judges;
//! in a guest it is the first process, which mounts things and starts itself again to run the cases; and each case is a
//! process of its own, so that one that fails or hangs harms no other.

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

/// One line for people; standard error may be closed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
