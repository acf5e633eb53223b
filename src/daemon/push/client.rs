//! HTTP to a sink, with TLS where its URL says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::resolve::Resolver;

/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// Where distributions keep the certificates that a host trusts.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

type Connections = Pool<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// What a sink answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The status that gRPC gives in a header or trailer.
    pub(super) grpc_status: Option<String>,
    /// Seconds to wait, if it said so.
    pub(super) retry_after: Option<Duration>,
}

/// A client of one sink; connections are kept.
pub(super) struct Client {
    binary: PathBuf,
    roots: Option<PathBuf>,
    http2: bool,
    /// With the time at which the file of roots was changed last.
    connections: Mutex<Option<(Option<SystemTime>, Connections)>>,
}

impl Client {
    /// `roots`: the only certificates that are trusted, instead of the host's. `http2`: nothing else is spoken.
    pub(super) fn new(binary: PathBuf, roots: Option<PathBuf>, http2: bool) -> Client {
        Client { binary, roots, http2, connections: Mutex::new(None) }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When no answer came in time.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        let secure = request.uri().scheme_str() == Some("https");
        let connections = self.connections(secure)?;
        let exchange = async {
            let response = connections.request(request).await.map_err(anyhow::Error::from)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER)
                .collect()
                .await
                .map_err(|e| anyhow::anyhow!("reading the answer: {e}"))?;
            let text = |headers: &hyper::HeaderMap, name: &str| {
                headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
            };
            let trailer = body.trailers().and_then(|trailers| text(trailers, "grpc-status"));
            let retry_after = text(&head.headers, "retry-after").and_then(|seconds| seconds.parse().ok());
            anyhow::Ok(Answer {
                status: head.status,
                grpc_status: trailer.or_else(|| text(&head.headers, "grpc-status")),
                retry_after: retry_after.map(Duration::from_secs),
            })
        };
        match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(answer) => answer,
            Err(_) => bail!("no answer within {} s", DEADLINE.as_secs()),
        }
    }

    /// The connections, made anew when the file of roots has changed.
    fn connections(&self, secure: bool) -> anyhow::Result<Connections> {
        let changed = self.roots.as_ref().and_then(|file| fs::metadata(file).ok()?.modified().ok());
        let mut held = self.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((then, connections)) = &*held
            && *then == changed
        {
            return Ok(connections.clone());
        }
        let mut http = HttpConnector::new_with_resolver(Resolver { binary: self.binary.clone() });
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT));
        let roots = if secure { trusted(self.roots.as_deref())? } else { RootCertStore::empty() };
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("TLS")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = if self.http2 {
            builder.enable_http2().wrap_connector(http)
        } else {
            builder.enable_http1().wrap_connector(http)
        };
        let connections = Pool::builder(TokioExecutor::new())
            .http2_only(self.http2)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(connector);
        *held = Some((changed, connections.clone()));
        Ok(connections)
    }
}

/// The certificates of a file, or those that the host trusts.
fn trusted(file: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let system = || SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists());
    let Some(file) = file.or_else(system) else {
        bail!("there is no file of trusted certificates on this host; name one (ca-file)");
    };
    let said = || format!("cannot read certificates from {}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).with_context(said)? {
        // A host's bundle may hold some that rustls does not take.
        let _ = roots.add(certificate.with_context(said)?);
    }
    if roots.is_empty() {
        bail!("{} holds no certificate", file.display());
    }
    Ok(roots)
}
