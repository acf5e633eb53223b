//! `jbpf-prof health`: asks a daemon for its health, for probes in images that contain no other program.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::serve::Address;
use crate::text::clean;

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER: u64 = 4096;

/// Asks the daemon at an address for its health; with `ready`, also whether it produces windows. Returns its answer.
///
/// # Errors
/// No daemon listens there, or the daemon reports a problem.
pub fn ask(address: &Address, ready: bool) -> anyhow::Result<String> {
    let path = if ready { "/readyz" } else { "/healthz" };
    let said = || {
        format!(
            "no answer from a daemon at {address}; does one run, and is this its address ('metrics' in its settings, or \
             'api' if 'metrics' is off)?"
        )
    };
    let answer = match address {
        Address::Tcp(at) => {
            let stream = TcpStream::connect_timeout(&reachable(*at), TIMEOUT).with_context(said)?;
            stream.set_read_timeout(Some(TIMEOUT)).with_context(said)?;
            talk(stream, path)
        }
        Address::Unix(file) => {
            let stream = UnixStream::connect(file).with_context(said)?;
            stream.set_read_timeout(Some(TIMEOUT)).with_context(said)?;
            talk(stream, path)
        }
    };
    let answer = answer.with_context(said)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(said)?;
    let body = clean(body.trim().as_bytes(), 500);
    if head.split(' ').nth(1) != Some("200") {
        let state = if ready { "ready" } else { "healthy" };
        bail!("the daemon at {address} is not {state}: {body}");
    }
    Ok(body)
}

fn talk(mut stream: impl Read + Write, path: &str) -> std::io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Replaces an unspecified address (`0.0.0.0`, `::`) by the loopback address.
fn reachable(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}
