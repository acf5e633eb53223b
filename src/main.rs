//! `jbpf-prof`: see the library crate for the layout.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(arg) if arg == "__worker" => {
            ExitCode::from(u8::try_from(jbpf_prof::symbolize::worker::main()).unwrap_or(1))
        }
        _ => ExitCode::SUCCESS,
    }
}
