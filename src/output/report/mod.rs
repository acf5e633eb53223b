//! The run report: for the terminal and for machines.

mod json;
mod layout;
mod sections;
mod text;

pub use json::json;
pub use text::{Detail, text};
