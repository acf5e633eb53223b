//! Sockets that listen at an address.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;
use tokio::net::{TcpListener, UnixListener};

use super::Address;

pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens. Replaces the socket file of a process that was killed. The directory of the socket must exist.
    ///
    /// # Errors
    /// One sentence: the address and what is wrong.
    pub(crate) async fn bind(address: &Address) -> anyhow::Result<Listener> {
        let said = || format!("cannot listen at {address}");
        Ok(match address {
            Address::Tcp(at) => Listener::Tcp(TcpListener::bind(at).await.with_context(said)?),
            Address::Unix(path) => {
                remove_socket(path).await.with_context(said)?;
                let listener = UnixListener::bind(path).with_context(said)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(said)?;
                Listener::Unix(listener)
            }
        })
    }

    /// The address, with the port that the kernel chose for port 0.
    pub(super) fn address(&self, asked: &Address) -> Address {
        match self {
            Listener::Tcp(tcp) => tcp.local_addr().map_or_else(|_| asked.clone(), Address::Tcp),
            Listener::Unix(_) => asked.clone(),
        }
    }
}

/// Removes a socket without a listener. Any other file stays, and the bind that follows fails.
async fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {
            if tokio::net::UnixStream::connect(path).await.is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process already listens there",
                ));
            }
            fs::remove_file(path)
        }
        _ => Ok(()),
    }
}
