//! Addresses of known functions, symbolized by the public symbolizer and the real worker process.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

mod common;
mod hostile;
mod java;
mod kernel;
mod native;
mod perf_map;
