//! Loading unwind tables: which processes need which, in which order, and what is done where they are missing or wrong.

mod crowded;
mod file_tables;
mod left_by_fp;
mod missing;
mod moved;
mod replaced;
mod stage;
pub(crate) mod unwinding;
