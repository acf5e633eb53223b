//! Addresses of known functions, symbolized by the public symbolizer and the real worker process.

mod common;
mod hostile;
mod java;
mod kernel;
mod native;
mod perf_map;
