//! Connections: each is served in its own task, within limits on their number and time.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::listener::Listener;
use super::response::HttpResponse;

/// Maximum concurrent connections; others wait.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a connection: the longest profile, and a slow reader. The page opens its live feed again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(900);
/// Bytes that the kernel keeps for a client that does not read. Linux doubles the number.
const SEND_BUFFER: usize = 128 << 10;

/// A server's content: it answers the requests of all connections.
pub(crate) trait RequestHandler: Send + Sync + 'static {
    /// `hang_up` closes the connection of the request.
    fn respond(
        &self,
        request: &Request<Incoming>,
        hang_up: &ConnectionCloser,
    ) -> impl Future<Output = HttpResponse> + Send;
}

/// Closes a connection, also if the client does not read what was sent.
#[derive(Clone, Default)]
pub(crate) struct ConnectionCloser(Arc<Notify>);

impl ConnectionCloser {
    pub(crate) fn now(&self) {
        self.0.notify_one();
    }
}

/// Accepts connections and serves each in its own task, at most [`MAX_CONNECTIONS`] at a time; never returns.
pub(crate) async fn serve(listener: Listener, site: Arc<impl RequestHandler>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let site = Arc::clone(&site);
        match &listener {
            Listener::Tcp(tcp) => match tcp.accept().await {
                Ok((stream, _)) => {
                    // An error is ignored: the kernel's own limit holds then.
                    _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
                    tokio::spawn(serve_connection(stream, site, permit));
                }
                Err(error) => pause_accepting(&error).await,
            },
            Listener::Unix(unix) => match unix.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(serve_connection(stream, site, permit)),
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

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    site: Arc<impl RequestHandler>,
    permit: OwnedSemaphorePermit,
) {
    let hang_up = ConnectionCloser::default();
    let closes = hang_up.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        let (site, hang_up) = (Arc::clone(&site), hang_up.clone());
        async move { Ok::<_, Infallible>(site.respond(&request, &hang_up).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), answer);
    // Errors and timeouts concern only the client.
    tokio::select! {
        _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection) => {}
        () = closes.0.notified() => {}
    }
    drop(permit);
}
