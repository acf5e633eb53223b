//! Addresses of known functions through the public symbolizer and the real worker process.

mod common;
mod native;
