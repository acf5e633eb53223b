//! jbpf-prof, an eBPF whole-system profiler with first-class Java.
//!
//! `docs/architecture.md` describes the way of a sample and the rooms of the source; `tests/unprivileged/layers` checks
//! the imports.
//! The product is the binary. The library lets tests and fuzz targets reach the parsers.

// Fuzz targets name the library by its name, in unit tests too.
#[cfg(test)]
extern crate self as jbpf_prof;

mod allocators;
pub mod backoff;
pub mod capture;
pub mod cli;
pub mod compare;
pub mod daemon;
pub mod failure;
#[cfg(test)]
mod fuzz_seeds;
#[cfg(test)]
#[path = "../fuzz/targets/mod.rs"]
mod fuzz_targets;
pub mod host;
pub mod jvm;
pub mod limits;
mod loader;
#[cfg(test)]
mod manual;
pub mod output;
pub mod outside;
pub mod plan;
pub mod process;
pub mod profile;
mod runtime;
pub mod sample;
pub mod serve;
pub mod session;
pub mod suggestion;
pub mod symbolize;
mod targets;
pub mod text;
pub mod top;
mod trace;
pub mod unwind;
#[cfg(test)]
mod variants;
pub mod waits;
mod world;
