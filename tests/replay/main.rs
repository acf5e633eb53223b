//! The unwinder's own code in user space, without root, on recordings of programs that ran one instruction at a time.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod hostile;
mod java;
mod native;
mod recording;
