//! HotSpot's attach protocol, version 1: the request is `1\0load\0path\0true\0options\0`, the reply a status line and
//! text (`attachListener` of JDK 8 to 25). A listener serves one client after the other; a silent client blocks all
//! others.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};

use super::deadline::Deadline;
use super::peer::listener_of;
use super::refusal::Refusal;
use super::target::{AttachTarget, refusal};
use crate::text::clean;

/// How long a JVM that hung up may take to exit. A large heap takes some tenths of a second.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Longest reply that is read, bytes.
const MAX_REPLY: usize = 64 << 10;
/// Longest argument that HotSpot takes, bytes (`AttachOperation::arg_length_max`).
const MAX_ARGUMENT: usize = 1024;

/// Connects to the JVM's socket in its `tmp`; `None` if there is no socket, or no process listens on it.
pub(super) fn connect_to(
    target: &AttachTarget,
    tmp: &OwnedFd,
    deadline: Deadline,
) -> Result<Option<OwnedFd>, Refusal> {
    // O_PATH: the checks and the connection use the same file, even if its name leads elsewhere a moment later.
    let name = format!(".java_pid{}", target.ns_pid);
    let found = match openat(tmp, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(refusal(errno)),
    };
    let stat = fstat(&found).map_err(refusal)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket
        || (stat.st_uid != target.uid && stat.st_uid != 0)
    {
        return Err(Refusal::Blocked);
    }
    // The path in the process's own root may be too long for a socket address; this path never is.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(refusal)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(refusal)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            // The listener's queue of clients is full.
            Err(Errno::AGAIN) => deadline.pause(target.pidfd(), Duration::from_millis(20))?,
            Err(Errno::INTR) => deadline.check()?,
            Err(Errno::CONNREFUSED | Errno::NOENT) => return Ok(None),
            // The socket is root's, of a JVM that had this pid and was killed; a sticky /tmp keeps the next JVM from
            // replacing it.
            Err(Errno::ACCESS) => return Err(Refusal::Blocked),
            Err(errno) => return Err(refusal(errno)),
        }
    }
    if listener_of(socket.as_fd()) == Some(target.tgid) { Ok(Some(socket)) } else { Err(Refusal::Blocked) }
}

/// The request to load the library at `path`, a path in the JVM's own root.
pub(super) fn load_request(path: &str, options: &str) -> Result<Vec<u8>, Refusal> {
    if [path, options].iter().any(|text| text.len() > MAX_ARGUMENT || text.contains('\0')) {
        return Err(Refusal::HelperFailed("an argument of the request is too long".into()));
    }
    Ok(format!("1\0load\0{path}\0true\0{options}\0").into_bytes())
}

/// Sends a request and reads the whole reply.
pub(super) fn exchange(
    target: &AttachTarget,
    socket: &OwnedFd,
    request: &[u8],
    deadline: Deadline,
) -> Result<Vec<u8>, Refusal> {
    let mut rest = request;
    while !rest.is_empty() {
        deadline.ready(target.pidfd(), socket.as_fd(), PollFlags::OUT)?;
        match send(socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Err(unanswered(target, deadline)),
        }
    }
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        deadline.ready(target.pidfd(), socket.as_fd(), PollFlags::IN)?;
        match recv(socket, &mut chunk, RecvFlags::empty()) {
            Ok((_, 0)) => break,
            Ok((_, got)) => reply.extend_from_slice(chunk.get(..got).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A JVM that dies resets the connection; the reply so far may be whole.
            Err(_) => break,
        }
        if reply.len() > MAX_REPLY {
            return Err(Refusal::NoAnswer);
        }
        // A peer that sends without a pause must not outrun the deadline.
        deadline.check()?;
    }
    if reply.is_empty() { Err(unanswered(target, deadline)) } else { Ok(reply) }
}

/// Why the JVM hung up. A process that exits closes its files first; its end shows only when its memory is freed.
fn unanswered(target: &AttachTarget, deadline: Deadline) -> Refusal {
    match deadline.pause(target.pidfd(), ENDS_WITHIN) {
        Err(Refusal::Exited) => Refusal::Exited,
        _ => Refusal::NoAnswer,
    }
}

/// Parses the reply to `load`. The first line is the status of the command; the agent's return value follows. JDK 8
/// writes a bare number, 9 and later `return code: N`. Since 21 a failed `dlopen` gives a status of 0 and a text.
pub(super) fn parse_reply(reply: &[u8]) -> Result<(), Refusal> {
    let text = String::from_utf8_lossy(reply);
    let (status, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let status: i64 = status.trim().parse().map_err(|_| Refusal::NoAnswer)?;
    let rest = rest.trim();
    let returned = rest.strip_prefix("return code:").unwrap_or(rest).trim().parse::<i64>();
    if status == 0 && (rest.is_empty() || returned == Ok(0)) {
        return Ok(());
    }
    if rest.contains("Dynamic agent loading is not enabled") {
        return Err(Refusal::AgentLoadingDisabled);
    }
    // What dlopen says of a noexec file system.
    if rest.contains("failed to map segment") || rest.contains("Operation not permitted") {
        return Err(Refusal::NoexecTmp);
    }
    let words = if rest.is_empty() { format!("status {status}") } else { clean(rest.as_bytes(), 200) };
    Err(Refusal::NotLoaded(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_all_versions_are_understood() {
        for good in ["0\n0\n", "0\nreturn code: 0\n", "0\n", "0", "0\nreturn code: 0"] {
            assert_eq!(parse_reply(good.as_bytes()), Ok(()), "{good:?}");
        }
        let not_loaded = |words: &str| Err(Refusal::NotLoaded(words.into()));
        let refused = [
            ("0\nreturn code: 100\n", not_loaded("return code: 100")),
            ("0\n-1\n", not_loaded("-1")),
            ("-1\n", not_loaded("status -1")),
            ("101\n", not_loaded("status 101")),
            (
                "0\n/tmp/x.so was not loaded.\nno such file\n",
                not_loaded("/tmp/x.so was not loaded.?no such file"),
            ),
            ("-1\nDynamic agent loading is not enabled. Use -XX:+E", Err(Refusal::AgentLoadingDisabled)),
            ("0\n/tmp/x.so: failed to map segment from shared object\n", Err(Refusal::NoexecTmp)),
            ("", Err(Refusal::NoAnswer)),
            ("hello\n", Err(Refusal::NoAnswer)),
            ("99999999999999999999\n", Err(Refusal::NoAnswer)),
            ("\u{fffd}\0\n0", Err(Refusal::NoAnswer)),
        ];
        for (reply, expected) in refused {
            assert_eq!(parse_reply(reply.as_bytes()), expected, "{reply:?}");
        }
    }

    #[test]
    fn a_request_has_five_strings_and_no_more() {
        let request = load_request("/tmp/a.so", "nonce=00").expect("short");
        assert_eq!(request, b"1\0load\0/tmp/a.so\0true\0nonce=00\0");
        assert!(load_request("/tmp/a\0b", "").is_err());
        assert!(load_request("/tmp/a", &"x".repeat(1025)).is_err());
    }
}
