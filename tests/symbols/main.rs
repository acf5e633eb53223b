//! Addresses of known functions through the public symbolizer and the real worker process.

mod common;
mod hostile;
mod kernel;
mod native;
mod perf_map;
