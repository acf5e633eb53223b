//! Addresses at which the daemon listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IP address and port.
    Tcp(SocketAddr),
    /// A socket in the file system that only its owner may use.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this host can reach the address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(at) => at.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// Parses `127.0.0.1:9919`, `[::1]:9919` or `unix:/run/jbpf-prof/api.sock`.
    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Address::Unix(path)) } else { Err(bad(text)) };
        }
        text.parse().map(Address::Tcp).map_err(|_| bad(text))
    }
}

fn bad(text: &str) -> String {
    format!("{text}: expected an address, such as 127.0.0.1:9919, [::]:9919 or unix:/run/jbpf-prof/api.sock")
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(at) => at.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn addresses_are_read_and_only_local_ones_are_local() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("unix:/run/x.sock", true),
            ("0.0.0.0:9919", false),
            ("[::]:9919", false),
            ("10.0.0.7:80", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.is_local(), address.to_string().as_str()), (local, text));
        }
        for bad in ["", "localhost:1", "unix:x", "127.0.0.1", ":9919"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
