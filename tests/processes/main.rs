//! Real processes: their events in the sideband, and their files. Needs root.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod files;
mod lives;
mod mapper;
