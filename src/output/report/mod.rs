//! The report of a run, for terminals and for machines.

mod allocations;
mod detail;
mod event;
mod json;
mod layout;
mod sections;
mod show;
mod text;
mod waits;

pub use detail::{Detail, width_of};
pub use json::json;
pub(super) use layout::{ColumnAlignment, every, table, wrap};
pub(crate) use layout::{percent, share, thousands};
pub use show::{ShowOptions, ShownTable, show};
pub use text::text;
