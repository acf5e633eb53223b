//! Loads unwind tables: which processes need which tables, in which order, and how to handle missing or wrong tables.

mod crowded;
mod file_tables;
mod left_by_fp;
mod missing;
mod moved;
mod outside;
mod replaced;
mod stage;
pub(crate) mod unwinding;
