//! The HTTP server that the daemon and a run with `--serve` share: addresses, connections, who may read profiles, the page
//! for browsers, and its live feed.

mod address;
pub(crate) mod browser_page;
mod connection;
pub(crate) mod feed;
mod guard;
mod listener;
pub(crate) mod response;
pub mod run;
mod secret;

pub use address::Address;
pub(crate) use connection::{ConnectionCloser, RequestHandler, serve};
pub use feed::FeedStats;
pub(crate) use guard::AccessCheck;
pub(crate) use listener::Listener;
pub(crate) use secret::secret;
