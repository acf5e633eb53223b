//! The run report: for the terminal and for machines.

mod json;
mod layout;
mod sections;
mod text;

pub use json::json;
pub(super) use layout::thousands;
pub use text::{Detail, text, width_of};
