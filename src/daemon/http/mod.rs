//! The HTTP server. Metrics and health are open to everyone who can reach their address; profiles need a local socket
//! or a token.

mod address;
mod answer;
mod answers;
mod query;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use super::client::secret;
use super::directory::make_private;
use super::state::State;

pub use address::Address;
use answer::{HttpResponse, say};

/// Maximum concurrent connections; others wait.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Timeout for a connection: the longest profile, and a slow reader.
const CONNECTION_LASTS: Duration = Duration::from_secs(900);

/// The endpoints of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    /// Metrics and health, without a token.
    Metrics,
    /// Metrics, health and profiles.
    Profiles,
}

pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens. Replaces the socket file of a daemon that was killed.
    ///
    /// # Errors
    /// One sentence: the address and what is wrong.
    pub(super) async fn bind(address: &Address) -> anyhow::Result<Listener> {
        let said = || format!("cannot listen at {address}");
        Ok(match address {
            Address::Tcp(at) => Listener::Tcp(TcpListener::bind(at).await.with_context(said)?),
            Address::Unix(path) => {
                if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
                    make_private(parent)?;
                }
                remove_socket(path).await.with_context(said)?;
                let listener = UnixListener::bind(path).with_context(said)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(said)?;
                Listener::Unix(listener)
            }
        })
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

/// The state that all connections share.
pub(super) struct Server {
    pub(super) state: Arc<State>,
    pub(super) token_file: Option<PathBuf>,
    /// Permits for profiles that are made at the same time.
    pub(super) profiles: Semaphore,
}

/// Accepts connections and serves each in its own task, at most [`MAX_CONNECTIONS`] at a time; never returns.
pub(super) async fn serve(listener: Listener, surface: Surface, server: Arc<Server>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let server = Arc::clone(&server);
        match &listener {
            Listener::Tcp(tcp) => match tcp.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(converse(stream, surface, server, permit)),
                Err(error) => pause_accepting(&error).await,
            },
            Listener::Unix(unix) => match unix.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(converse(stream, surface, server, permit)),
                Err(error) => pause_accepting(&error).await,
            },
        }
    }
}

/// Accepting fails when the process has no descriptors left; an immediate retry would keep a CPU busy.
async fn pause_accepting(error: &io::Error) {
    log::warn!("HTTP: no connection could be accepted: {error}");
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    surface: Surface,
    server: Arc<Server>,
    permit: tokio::sync::OwnedSemaphorePermit,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(surface, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), answer);
    // Errors and timeouts concern only the client.
    let _ = tokio::time::timeout(CONNECTION_LASTS, connection).await;
    drop(permit);
}

impl Server {
    async fn answer(&self, surface: Surface, request: &Request<Incoming>) -> HttpResponse {
        if request.method() != Method::GET {
            return say(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood");
        }
        let path = request.uri().path();
        match path {
            "/metrics" => return answers::metrics(&self.state),
            "/healthz" => return answers::health(&self.state),
            "/readyz" => return answers::ready(&self.state),
            _ => {}
        }
        if surface == Surface::Metrics {
            return say(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz");
        }
        if let Some(refusal) = self.refuse(request) {
            return refusal;
        }
        let query = request.uri().query();
        match path {
            "/windows" => answers::windows(&self.state, query),
            "/profile" | "/window" => {
                let Ok(_permit) = self.profiles.try_acquire() else {
                    return say(
                        StatusCode::TOO_MANY_REQUESTS,
                        "enough profiles are being made; ask again later",
                    );
                };
                if path == "/profile" {
                    answers::profile(&self.state, query).await
                } else {
                    answers::window(&self.state, query).await
                }
            }
            _ => say(
                StatusCode::NOT_FOUND,
                "here are /profile, /windows, /window, /metrics, /healthz and /readyz",
            ),
        }
    }

    /// The refusal if a token is required and the request has no valid one.
    fn refuse(&self, request: &Request<Incoming>) -> Option<HttpResponse> {
        let file = self.token_file.as_ref()?;
        let Ok(token) = secret(file) else {
            log::warn!("HTTP: the token file cannot be read; all requests for profiles are refused");
            return Some(say(StatusCode::FORBIDDEN, "there is no token that could be right"));
        };
        let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        if given.is_some_and(|given| equal(given.as_bytes(), token.as_bytes())) {
            return None;
        }
        let mut answer = say(StatusCode::UNAUTHORIZED, "this needs the token: Authorization: Bearer …");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        Some(answer)
    }
}

/// Compares in constant time, which does not reveal the position of the first difference.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}
