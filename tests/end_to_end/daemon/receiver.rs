//! A sink, or a kubelet: accepts HTTP/1.1 or HTTP/2, with TLS or without, keeps the requests and answers.

use std::convert::Infallible;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use testkit::scratch;

/// A request that the server accepted.
pub(crate) struct Taken {
    pub(crate) path: String,
    /// The header lines, in lower case.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Taken {
    #[track_caller]
    pub(crate) fn assert_says(&self, line: &str) {
        assert!(self.head.iter().any(|head| head == line), "{line}: {:?}", self.head);
    }

    /// The one message of a gRPC call, compressed.
    pub(crate) fn message(&self) -> &[u8] {
        let (head, message) = self.body.split_at(5);
        assert_eq!(head[0], 1, "it is compressed");
        assert_eq!(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize, message.len());
        message
    }
}

/// A server's certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Identity {
    /// A new identity for an address or a host, such as `IP:127.0.0.1`, by `openssl`.
    pub(crate) fn new(name: &str, subject: &str) -> Identity {
        let home = scratch(name);
        let settings = format!(
            "[req]\ndistinguished_name=n\nx509_extensions=e\n[n]\n[e]\nbasicConstraints=critical,CA:FALSE\n\
             subjectAltName={subject}\n"
        );
        std::fs::write(home.join("settings"), settings).unwrap();
        let line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=sink \
                    -config settings -keyout key.pem -out certificate.pem";
        let output =
            Command::new("openssl").args(line.split_whitespace()).current_dir(&home).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read = |name: &str| std::fs::read(home.join(name)).unwrap();
        Identity { certificate: read("certificate.pem"), key: read("key.pem") }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_slice(&self.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&self.key).unwrap();
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The requests and the answers of a server.
#[derive(Clone, Default)]
struct Desk {
    taken: Arc<Mutex<Vec<Taken>>>,
    answer: Arc<Mutex<Bytes>>,
    refusal: Arc<Mutex<Option<Refusal>>>,
    failure: Arc<Mutex<Option<Failure>>>,
}

/// A gRPC status and its details.
type Refusal = (&'static str, &'static str);

/// An HTTP status with the header `Retry-After`.
#[derive(Clone, Copy)]
struct Failure {
    status: u16,
    retry_after: &'static str,
}

/// A server that listens until it is dropped.
pub(crate) struct Receiver {
    desk: Desk,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A port on which no server listens, and which nobody else takes until a server of the test does: it is below the
/// ports that Linux chooses for itself, and no other caller gets it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes of tests that run beside each other begin at different ports.
    let first = 20_000 + std::process::id() % 1000 * 10;
    loop {
        let port = u16::try_from(first).unwrap() + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

impl Receiver {
    pub(crate) fn listen(port: u16) -> Receiver {
        Receiver::start(port, None)
    }

    /// A server that speaks only TLS.
    pub(crate) fn listen_as(identity: &Identity, port: u16) -> Receiver {
        Receiver::start(port, Some(identity.acceptor()))
    }

    fn start(port: u16, tls: Option<TlsAcceptor>) -> Receiver {
        let desk = Desk::default();
        let (end, ended) = oneshot::channel();
        let (into, (ready, is_ready)) = (desk.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
                ready.send(()).unwrap();
                tokio::select! {
                    () = accept(listener, tls, into) => (),
                    _ = ended => (),
                }
            });
        });
        is_ready.recv().unwrap();
        Receiver { desk, end: Some(end), thread: Some(thread) }
    }

    /// Passes all accepted requests to `look`.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&[Taken]) -> T) -> T {
        look(&self.desk.taken.lock().unwrap())
    }

    /// From now on all requests get this answer.
    pub(crate) fn answer(&self, text: String) {
        self.answer_bytes(text.into_bytes());
    }

    /// The same, with bytes.
    pub(crate) fn answer_bytes(&self, bytes: Vec<u8>) {
        *self.desk.answer.lock().unwrap() = bytes.into();
    }

    /// From now on all requests get this HTTP status.
    pub(crate) fn fail(&self, status: u16, retry_after: &'static str) {
        *self.desk.failure.lock().unwrap() = Some(Failure { status, retry_after });
    }

    /// From now on all gRPC calls get this status.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        *self.desk.refusal.lock().unwrap() = Some(refusal);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().unwrap().join();
    }
}

async fn accept(listener: tokio::net::TcpListener, tls: Option<TlsAcceptor>, desk: Desk) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, desk) = (tls.clone(), desk.clone());
        tokio::spawn(async move {
            match tls {
                None => converse(stream, desk).await,
                // A client that does not trust the certificate closes the connection.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        converse(stream, desk).await;
                    }
                }
            }
        });
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, desk: Desk) {
    let service = service_fn(move |request| take(request, desk.clone()));
    // The client may end the connection in any way.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn take(
    request: Request<Incoming>,
    desk: Desk,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes().to_vec();
    let line =
        |name: &str, value: &[u8]| format!("{name}: {}", String::from_utf8_lossy(value)).to_lowercase();
    let lines = head.headers.iter().map(|(name, value)| line(name.as_str(), value.as_bytes()));
    desk.taken.lock().unwrap().push(Taken { path: head.uri.path().to_owned(), head: lines.collect(), body });
    let (status, details) = desk.refusal.lock().unwrap().unwrap_or(("0", ""));
    let trailers = [("grpc-status", status), ("grpc-status-details-bin", details)];
    let trailers = trailers.map(|(name, text)| (name.parse().unwrap(), text.parse().unwrap()));
    let trailers = HeaderMap::from_iter(trailers);
    let answer = desk.answer.lock().unwrap().clone();
    let mut response = Response::new(Full::new(answer).with_trailers(async move { Some(Ok(trailers)) }));
    if let Some(Failure { status, retry_after }) = *desk.failure.lock().unwrap() {
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert("retry-after", retry_after.parse().unwrap());
    }
    Ok(response)
}
