//! Resolves host names to addresses, by the C library in a process of its own.
//!
//! The binary is static. A static C library loads the modules that `nsswitch.conf` names from the host, and they may be
//! incompatible. A crash then ends only that process, and the name counts as not found.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::process::Command;

/// The hidden first argument of the process.
pub const ARGUMENT: &str = "__resolve";
/// Timeout of the process.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Resolves names for hyper.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    /// Path of this binary.
    pub(super) binary: PathBuf,
}

impl tower_service::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let mut command = Command::new(&self.binary);
        command.arg(ARGUMENT).arg(name.as_str()).stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::piped()).kill_on_drop(true);
        Box::pin(async move {
            let output = tokio::time::timeout(TIMEOUT, command.output()).await??;
            let text = String::from_utf8_lossy(&output.stdout);
            // The caller sets the port.
            let found: Vec<SocketAddr> = text
                .lines()
                .filter_map(|line| line.parse::<IpAddr>().ok())
                .map(|address| SocketAddr::new(address, 0))
                .collect();
            if found.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name of the host is not known"));
            }
            Ok(found.into_iter())
        })
    }
}

/// Main function of the process: prints the addresses of a name, one per line. Returns the exit code.
#[must_use]
pub fn child_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    use std::io::Write;
    let Some(name) = args.next().and_then(|name| name.into_string().ok()) else { return 2 };
    let Ok(found) = (name.as_str(), 0).to_socket_addrs() else { return 1 };
    let text: String = found.map(|address| format!("{}\n", address.ip())).collect();
    // A write fails only if the parent no longer reads.
    i32::from(io::stdout().write_all(text.as_bytes()).is_err())
}
