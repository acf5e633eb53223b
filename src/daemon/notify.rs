//! Notifications to the service manager, systemd: ready, status, watchdog, stopping (sd_notify(3)).

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The socket of the service manager, if a service manager started the daemon.
pub(super) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The pause between two signs of life; a quarter of the time after which systemd ends a service.
    pause: Option<Duration>,
    alive: Option<Instant>,
    status: String,
}

impl ServiceManager {
    /// The service manager that the environment names.
    pub(super) fn of_environment() -> ServiceManager {
        let own = |name: &str| std::env::var(name).ok();
        let for_this_process = own("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let timeout = own("WATCHDOG_USEC").filter(|_| for_this_process).and_then(|text| text.parse().ok());
        ServiceManager::new(std::env::var_os("NOTIFY_SOCKET"), timeout.map(Duration::from_micros))
    }

    fn new(name: Option<OsString>, timeout: Option<Duration>) -> ServiceManager {
        let socket = name.and_then(|name| Some((UnixDatagram::unbound().ok()?, address(&name)?)));
        if let Some((socket, _)) = &socket {
            // A service manager that does not read must not stall the daemon.
            _ = socket.set_nonblocking(true);
        }
        ServiceManager { socket, pause: timeout.map(|time| time / 4), alive: None, status: String::new() }
    }

    /// The daemon serves HTTP, and sampling begins.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// The daemon reads its settings again; [`ServiceManager::ready`] follows. A service with `Type=notify-reload` needs
    /// the time of this message (sd_notify(3), systemd 253).
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The daemon is about to end.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends a changed status, and a sign of life if one is due. An unhealthy daemon sends none, so that systemd starts
    /// another one.
    pub(super) fn report(&mut self, health: Result<&'static str, String>) {
        let due = self.pause.is_some_and(|pause| self.alive.is_none_or(|last| last.elapsed() >= pause));
        if due && health.is_ok() {
            self.alive = Some(Instant::now());
            self.send("WATCHDOG=1");
        }
        let status = health.map_or_else(|why| why, str::to_owned);
        if self.status != status {
            self.send(&format!("STATUS={}", status.replace('\n', " ")));
            self.status = status;
        }
    }

    /// A lost notification is no error of the daemon: systemd judges the service by its own timeouts.
    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

/// An absolute path, or `@` with a name in the abstract namespace.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes().split_first()? {
        (b'@', name) => SocketAddr::from_abstract_name(name).ok(),
        (b'/', _) => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Vec<String> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        std::iter::from_fn(|| {
            socket.recv(&mut buffer).ok().map(|n| String::from_utf8_lossy(&buffer[..n]).into())
        })
        .collect()
    }

    #[test]
    fn a_service_manager_receives_state_and_signs_of_life() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let mut manager = ServiceManager::new(Some(path.into()), Some(Duration::from_secs(4000)));
        manager.ready();
        manager.report(Ok("starting"));
        // Nothing changed, and no sign of life is due.
        manager.report(Ok("starting"));
        manager.report(Err("no profile\nwas stored".to_owned()));
        manager.stopping();
        let expected =
            ["READY=1", "WATCHDOG=1", "STATUS=starting", "STATUS=no profile was stored", "STOPPING=1"];
        assert_eq!(received(&socket), expected);
    }

    #[test]
    fn an_unhealthy_daemon_sends_no_sign_of_life() {
        let name = format!("jbpf-prof-test-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let mut manager = ServiceManager::new(Some(format!("@{name}").into()), Some(Duration::ZERO));
        manager.report(Err("stalled".to_owned()));
        assert_eq!(received(&socket), ["STATUS=stalled"]);
        manager.report(Ok("sampling"));
        assert_eq!(received(&socket), ["WATCHDOG=1", "STATUS=sampling"]);
    }

    #[test]
    fn without_a_service_manager_nothing_is_sent() {
        for name in [None, Some("".into()), Some("relative".into()), Some("/nowhere/notify".into())] {
            let mut manager = ServiceManager::new(name, None);
            manager.ready();
            manager.report(Ok("sampling"));
        }
    }
}
