//! The run report: for the terminal and for machines.

mod detail;
mod event;
mod json;
mod layout;
mod sections;
mod text;

pub use detail::{Detail, width_of};
pub use json::json;
pub(super) use layout::thousands;
pub use text::text;
