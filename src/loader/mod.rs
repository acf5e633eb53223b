//! Loads unwind tables: which processes need which tables, in which order, and how to handle missing or wrong tables.

mod file_tables;
mod left_by_fp;
mod moved;
mod outside;
mod range_limit;
mod replaced;
mod stage;
mod table_retries;
mod table_source;
pub(crate) mod unwinding;
