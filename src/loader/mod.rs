//! Loads unwind tables: which processes need which tables, in which order, and how to handle missing or wrong tables.

mod file_tables;
mod loaded_tables;
mod moved;
mod range_limit;
mod replaced;
mod stage;
pub(crate) mod table_loader;
mod table_retries;
mod table_source;
mod unfinished;
mod wrong_fp_step;
