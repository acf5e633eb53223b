//! The HTTP client for sinks and the kubelet, with TLS for `https` URLs.

mod auth;
pub mod resolve;
mod retry_after;
mod retry_info;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::body::{Buf, Bytes};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode, Uri, header};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use resolve::Resolver;

pub use auth::Auth;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("jbpf-prof/", env!("CARGO_PKG_VERSION"));
/// Maximum bytes of the response to a push: what OTLP recommends.
const MAX_ANSWER: usize = 4 << 20;
/// Where distributions store the host's trusted certificates.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

type Connections = Pool<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// Whether a text is a valid base URL: `https://host:port` or `http://host:port`, optionally with a path.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
    })
}

/// The certificates that TLS trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// A file with the only trusted certificates, instead of the host's.
    pub ca_file: Option<PathBuf>,
    /// The name that the server's certificate must have, instead of the URL's.
    pub name: Option<String>,
}

/// The response of a sink.
#[derive(Debug)]
pub(super) struct SinkResponse {
    pub(super) status: StatusCode,
    /// The gRPC status from a header or trailer.
    pub(super) grpc_status: Option<String>,
    /// The pause that the sink asked for: `Retry-After`, or gRPC's `RetryInfo`.
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

/// The body of a response is larger than its limit.
#[derive(Debug, thiserror::Error)]
#[error("the answer has more than {0} bytes")]
pub(super) struct ResponseTooLarge(usize);

/// A client of one server, with a pool of connections.
pub(super) struct Client {
    binary: PathBuf,
    trust: Trust,
    http2: bool,
    /// The modification time of the certificate file, and the connections made with it.
    connections: Mutex<Option<(Option<SystemTime>, Connections)>>,
}

impl Client {
    /// `binary` is the path of this binary. `http2` allows HTTP/2 only.
    pub(super) fn new(binary: PathBuf, trust: Trust, http2: bool) -> Client {
        Client { binary, trust, http2, connections: Mutex::new(None) }
    }

    /// Sends a request to a sink.
    ///
    /// # Errors
    /// No response in time.
    pub(super) async fn push(&self, request: Request<Full<Bytes>>) -> anyhow::Result<SinkResponse> {
        let (head, body) = self.exchange(request, MAX_ANSWER).await?.into_parts();
        let text = |headers: &hyper::HeaderMap, name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let header = |name: &str| text(&head.headers, name);
        // A gRPC response without a body has the trailers in its head.
        let trailer = |name: &str| body.trailers().and_then(|all| text(all, name)).or_else(|| header(name));
        let pause = || retry_after::pause(&header("retry-after")?, header("date").as_deref());
        let details = trailer("grpc-status-details-bin");
        Ok(SinkResponse {
            status: head.status,
            grpc_status: trailer("grpc-status"),
            retry_after: details.and_then(|details| retry_info::delay(&details)).or_else(pause),
            body: body.to_bytes(),
        })
    }

    /// Begins a request with the common headers; the caller adds the body.
    ///
    /// # Errors
    /// The credentials cannot be read.
    pub(super) fn request(method: Method, uri: &str, auth: &Auth) -> anyhow::Result<Builder> {
        let mut request = Request::builder().method(method).uri(uri).header(header::USER_AGENT, USER_AGENT);
        for (name, value) in &auth.headers()? {
            request = request.header(name, value);
        }
        Ok(request)
    }

    /// Reads the resource at `uri`, at most `most` bytes.
    ///
    /// # Errors
    /// The status is not 200, the body is too large, or there is no response in time.
    pub(super) async fn get(&self, uri: &str, auth: &Auth, most: usize) -> anyhow::Result<impl Buf> {
        let request = Client::request(Method::GET, uri, auth)?;
        let request = request.body(Full::default()).context("making a request")?;
        let (head, body) = self.exchange(request, most).await?.into_parts();
        anyhow::ensure!(head.status == StatusCode::OK, "HTTP status {}", head.status);
        Ok(body.aggregate())
    }

    /// Sends a request and reads the whole response.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        most: usize,
    ) -> anyhow::Result<Response<Collected<Bytes>>> {
        let secure = request.uri().scheme_str() == Some("https");
        let connections = self.connections(secure)?;
        let exchange = async {
            let (head, body) = connections.request(request).await?.into_parts();
            let body = Limited::new(body, most).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => ResponseTooLarge(most).into(),
                false => anyhow::anyhow!("reading the answer: {error}"),
            })?;
            Ok(Response::from_parts(head, body))
        };
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => bail!("no answer within {} s", TIMEOUT.as_secs()),
        }
    }

    /// The connections; made anew when the certificate file has changed.
    fn connections(&self, secure: bool) -> anyhow::Result<Connections> {
        let changed = self.trust.ca_file.as_ref().and_then(|file| fs::metadata(file).ok()?.modified().ok());
        let mut held = self.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((then, connections)) = &*held
            && *then == changed
        {
            return Ok(connections.clone());
        }
        let mut http = HttpConnector::new_with_resolver(Resolver { binary: self.binary.clone() });
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let roots = if secure { trusted(self.trust.ca_file.as_deref())? } else { RootCertStore::empty() };
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .context("TLS")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        if let Some(name) = &self.trust.name {
            let name =
                ServerName::try_from(name.clone()).with_context(|| format!("{name} is not a host name"))?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
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

/// The certificates of a file, or the host's trusted certificates.
fn trusted(file: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let system = || SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists());
    let Some(file) = file.or_else(system) else {
        bail!("this host has no file of trusted CA certificates; set ca-file");
    };
    let said = || format!("cannot read certificates from {}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).with_context(said)? {
        // A host's bundle may contain certificates that rustls does not accept.
        let _ = roots.add(certificate.with_context(said)?);
    }
    if roots.is_empty() {
        bail!("{} contains no certificate", file.display());
    }
    Ok(roots)
}
