//! `jbpf-prof top`: a terminal page that shows each second where the last seconds went.
//!
//! [`LiveWindow`] keeps the last seconds. [`TopState`] is what the user chose; a key changes it. `draw`
//! draws both. None of the three knows a terminal; only `screen` and `terminal` do.

mod choice;
mod draw;
mod keys;
mod live;
mod row;
mod screen;
mod state;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

pub use live::{LiveWindow, MAX_SECONDS};
pub use screen::{TopScreen, TopSetup};
pub use state::TopState;
pub use terminal::restore as restore_terminal;
