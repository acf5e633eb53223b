//! Sinks: each window goes to them by way of a spool on disk, so that none of them ever holds up sampling.

mod pyroscope;
mod spool;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header;
use hyper::{Method, Request};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::Notify;

use super::client::{Answer, Auth, Client, Trust};
use super::service::{self, Service};
use crate::output::otlp;
use crate::profile::Profile;
use spool::Spool;

/// The first wait after a failure, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What a sink speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Grafana Pyroscope's push API.
    Pyroscope,
    /// OTLP profiles over HTTP.
    OtlpHttp,
    /// OTLP profiles over gRPC.
    OtlpGrpc,
}

/// A sink: plain data, valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it is, without the path of the call.
    pub url: String,
    /// Who we are to it.
    pub auth: Auth,
    /// Whom TLS is to trust.
    pub trust: Trust,
    /// The tenant (`X-Scope-OrgID`), where there are several.
    pub tenant: Option<String>,
    /// Labels, or resource attributes, of everything that goes there.
    pub labels: BTreeMap<String, String>,
    /// Bytes that may wait for it.
    pub spool_bytes: u64,
}

/// How a sink does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PushStats {
    /// Requests that it took.
    pub(super) sent: u64,
    /// Attempts that failed and were tried again.
    pub(super) failed: u64,
    /// Requests that it will never take.
    pub(super) refused: u64,
    /// Bytes that it took.
    pub(super) bytes: u64,
    /// Bytes that wait.
    pub(super) spooled: u64,
    /// Requests that were dropped before it took them.
    pub(super) dropped: u64,
}

/// A sink with what waits for it.
pub(super) struct Sink {
    config: SinkConfig,
    spool: Spool,
    client: Client,
    stats: Mutex<PushStats>,
    news: Notify,
}

impl Sink {
    /// Opens a sink; what waits for it lies below `directory`. `binary` is this one.
    ///
    /// # Errors
    /// One sentence: the directory and what is wrong with it.
    pub(super) fn open(config: SinkConfig, directory: &Path, binary: &Path) -> anyhow::Result<Sink> {
        let spool = Spool::open(&directory.join(config.protocol.name()), config.spool_bytes)?;
        let http2 = config.protocol == Protocol::OtlpGrpc;
        let client = Client::new(binary.to_owned(), config.trust.clone(), http2);
        let (stats, news) = (Mutex::default(), Notify::new());
        Ok(Sink { config, spool, client, stats, news })
    }

    pub(super) fn name(&self) -> &'static str {
        self.config.protocol.name()
    }

    pub(super) fn stats(&self) -> PushStats {
        let (spooled, dropped) = self.spool.state();
        PushStats { spooled, dropped, ..*self.counted() }
    }

    /// Puts a window into the spool.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub(super) fn offer(&self, profile: &Profile) -> anyhow::Result<()> {
        let body = match self.config.protocol {
            Protocol::Pyroscope => pyroscope::request(profile, &self.config.labels)?,
            Protocol::OtlpHttp | Protocol::OtlpGrpc => self.otlp(profile)?,
        };
        self.spool.put(&body);
        self.news.notify_one();
        Ok(())
    }

    /// Sends what waits, for ever.
    pub(super) async fn run(&self) {
        let mut wait = FIRST_WAIT;
        loop {
            let Some((number, body)) = self.spool.take() else {
                self.news.notified().await;
                continue;
            };
            let bytes = body.len() as u64;
            let outcome = self.attempt(body).await;
            match &outcome {
                Outcome::Sent => {
                    wait = FIRST_WAIT;
                    self.spool.done(number);
                    let mut stats = self.counted();
                    (stats.sent, stats.bytes) = (stats.sent + 1, stats.bytes + bytes);
                }
                Outcome::Refused(why) => {
                    log::warn!("{}: a window was refused: {why}", self.name());
                    self.spool.done(number);
                    self.counted().refused += 1;
                }
                Outcome::Failed(why, told) => {
                    log::info!("{}: not reached, to be tried again: {why}", self.name());
                    self.counted().failed += 1;
                    tokio::time::sleep(told.unwrap_or(wait).min(LONGEST_WAIT).mul_f64(jitter())).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    fn otlp(&self, profile: &Profile) -> anyhow::Result<Vec<u8>> {
        let common = self.config.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
        let common: Vec<(String, String)> = common.collect();
        let parts: Vec<otlp::Part> = service::split(profile, Service::as_resource, Clone::clone)
            .into_iter()
            .map(|(Service { name, attributes }, part)| {
                let own = attributes.into_iter().map(|(key, text)| (key.to_owned(), text.to_string()));
                let name = ("service.name".to_owned(), name.to_string());
                (common.iter().cloned().chain([name]).chain(own).collect(), part)
            })
            .collect();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&otlp::request(&parts))?;
        Ok(packed.finish()?)
    }

    async fn attempt(&self, body: Vec<u8>) -> Outcome {
        let request = match self.request(body) {
            Ok(request) => request,
            Err(error) => return Outcome::Failed(format!("{error:#}"), None),
        };
        match self.client.push(request).await {
            Ok(answer) => judge(&answer, self.config.protocol == Protocol::OtlpGrpc),
            Err(error) => Outcome::Failed(format!("{error:#}"), None),
        }
    }

    fn request(&self, body: Vec<u8>) -> anyhow::Result<Request<Full<Bytes>>> {
        let SinkConfig { protocol, url, auth, tenant, .. } = &self.config;
        let uri = format!("{}{}", url.trim_end_matches('/'), protocol.path());
        let mut request = Client::request(Method::POST, &uri, auth)?;
        request = request.header(header::CONTENT_TYPE, protocol.content_type());
        let body = match protocol {
            Protocol::Pyroscope => {
                request = request.header("connect-protocol-version", "1");
                body
            }
            Protocol::OtlpHttp => {
                request = request.header(header::CONTENT_ENCODING, "gzip");
                body
            }
            Protocol::OtlpGrpc => {
                request = request.header("grpc-encoding", "gzip").header(header::TE, "trailers");
                framed(&body)
            }
        };
        if let Some(tenant) = tenant {
            request = request.header("x-scope-orgid", tenant);
        }
        request.body(Full::new(body.into())).context("making a request")
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, PushStats> {
        self.stats.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Protocol {
    /// Its name: in metrics, and of its directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Pyroscope => "pyroscope",
            Protocol::OtlpHttp | Protocol::OtlpGrpc => "otlp",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Protocol::Pyroscope => pyroscope::PATH,
            Protocol::OtlpHttp => "/v1development/profiles",
            Protocol::OtlpGrpc => {
                "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
            }
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Protocol::Pyroscope => pyroscope::CONTENT_TYPE,
            Protocol::OtlpHttp => "application/x-protobuf",
            Protocol::OtlpGrpc => "application/grpc+proto",
        }
    }
}

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    /// It will not be taken at any time.
    Refused(String),
    /// It may be taken another time; how long to wait, if we were told.
    Failed(String, Option<Duration>),
}

/// A message of gRPC: compressed, with its length.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut message = vec![1];
    message.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// What an answer means. That we are not known, or that there is too much, may be otherwise the next time; that the
/// request makes no sense stays so.
fn judge(answer: &Answer, grpc: bool) -> Outcome {
    let Answer { status, grpc_status, retry_after } = answer;
    if grpc && status.is_success() {
        return match grpc_status.as_deref() {
            Some("0") => Outcome::Sent,
            // INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED, DATA_LOSS.
            Some(code @ ("3" | "11" | "12" | "15")) => Outcome::Refused(format!("gRPC status {code}")),
            code => Outcome::Failed(format!("gRPC status {}", code.unwrap_or("missing")), *retry_after),
        };
    }
    match status.as_u16() {
        200..=299 => Outcome::Sent,
        400 | 411 | 413 | 415 | 422 => Outcome::Refused(format!("HTTP status {status}")),
        _ => Outcome::Failed(format!("HTTP status {status}"), *retry_after),
    }
}

/// A factor between a half and one and a half: thousands of nodes must not come back at the same time.
fn jitter() -> f64 {
    let mut random = [0u8; 2];
    // Without random numbers there is no jitter.
    let filled = getrandom(&mut random, GetRandomFlags::empty()).is_ok();
    if filled { 0.5 + f64::from(u16::from_ne_bytes(random)) / 65_536.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::{Answer, Outcome, framed, jitter, judge};

    #[test]
    fn answers_are_understood() {
        let answer = |status: u16, grpc: Option<&str>| Answer {
            status: StatusCode::from_u16(status).unwrap(),
            grpc_status: grpc.map(str::to_owned),
            retry_after: None,
        };
        assert_eq!(judge(&answer(200, None), false), Outcome::Sent);
        assert_eq!(judge(&answer(200, Some("0")), true), Outcome::Sent);
        for (status, grpc) in [(400, None), (413, None), (200, Some("3")), (200, Some("12"))] {
            let outcome = judge(&answer(status, grpc), grpc.is_some());
            assert!(matches!(outcome, Outcome::Refused(_)), "{status} {grpc:?}: {outcome:?}");
        }
        for (status, grpc, of_grpc) in [
            (503, None, false),
            (401, None, false),
            (429, None, false),
            (200, Some("14"), true),
            (200, None, true),
        ] {
            let outcome = judge(&answer(status, grpc), of_grpc);
            assert!(matches!(outcome, Outcome::Failed(..)), "{status} {grpc:?}: {outcome:?}");
        }
    }

    #[test]
    fn messages_of_grpc_have_their_length() {
        assert_eq!(framed(b"abc"), b"\x01\0\0\0\x03abc");
        assert!((0..100).all(|_| (0.5..1.5).contains(&jitter())));
    }
}
