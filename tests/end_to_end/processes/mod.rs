//! Real processes: their events in the sideband, and their files. Needs root.

mod files;
mod lives;
mod mapper;
