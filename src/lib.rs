//! jbpf-prof, an eBPF whole-system profiler with first-class Java.
//!
//! `docs/architecture.md` shows the way of a sample and the rooms of the source; `tests/layers` holds the imports to it. The library
//! exists so that tests and fuzz targets reach the parsers; the product is the binary.

pub mod backoff;
pub mod capture;
pub mod cli;
pub mod daemon;
pub mod failure;
pub mod host;
pub mod jvm;
pub mod limits;
mod loader;
pub mod output;
pub mod plan;
pub mod process;
pub mod profile;
mod runtime;
pub mod sample;
pub mod session;
pub mod symbolize;
mod targets;
pub mod text;
pub mod unwind;
mod world;
