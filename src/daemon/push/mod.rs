//! Sinks: each window goes to them by way of a spool on disk, so that none of them ever holds up sampling.

mod outcome;
mod pyroscope;
mod retry;
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
use tokio::sync::Notify;

use super::client::{Auth, Client, Trust};
use super::service::{self, Service};
use crate::output::otlp;
use crate::profile::Profile;
use outcome::{Outcome, judge};
use retry::Retry;
use spool::Spool;

/// Bytes of a request to a Collector before it is compressed: more is refused by gRPC's servers, if they are not told
/// to take it.
const MOST_BYTES: usize = 4 << 20;

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
        let bodies = match self.config.protocol {
            Protocol::Pyroscope => vec![pyroscope::request(profile, &self.config.labels)?],
            Protocol::OtlpHttp | Protocol::OtlpGrpc => self.otlp(profile)?,
        };
        bodies.iter().for_each(|body| self.spool.put(body));
        self.news.notify_one();
        Ok(())
    }

    /// Sends what waits, for ever.
    pub(super) async fn run(&self) {
        let mut retry = Retry::default();
        loop {
            let Some((number, body)) = self.spool.take() else {
                self.news.notified().await;
                continue;
            };
            let bytes = body.len() as u64;
            let outcome = self.attempt(body).await;
            if let Some(wait) = self.settle(&mut retry, number, bytes, outcome) {
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Takes in what came of an attempt; how long to wait before the next one, if at all.
    fn settle(&self, retry: &mut Retry, number: u64, bytes: u64, of_attempt: Outcome) -> Option<Duration> {
        let (why, retry_after) = match retry.outcome(number, of_attempt) {
            Outcome::Sent => {
                retry.begin_anew();
                self.spool.done(number);
                let mut stats = self.counted();
                (stats.sent, stats.bytes) = (stats.sent + 1, stats.bytes + bytes);
                return None;
            }
            Outcome::Refused(why) => {
                log::warn!("{}: a window was refused: {why}", self.name());
                self.spool.done(number);
                self.counted().refused += 1;
                return None;
            }
            Outcome::Failed(why, retry_after) => (why, retry_after),
            Outcome::Unreached(why) => (why, None),
        };
        log::info!("{}: not taken, to be tried again: {why}", self.name());
        self.spool.put_back();
        self.counted().failed += 1;
        Some(retry.pause(retry_after))
    }

    fn otlp(&self, profile: &Profile) -> anyhow::Result<Vec<Vec<u8>>> {
        let common = self.config.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
        let common: Vec<(String, String)> = common.collect();
        let views = profile.views();
        let parts: Vec<otlp::Part<'_>> = views
            .iter()
            .flat_map(|view| service::split(view, Service::as_resource))
            .map(|(Service { name, attributes }, part)| {
                let own = attributes.into_iter().map(|(key, text)| (key.to_owned(), text.to_string()));
                let name = ("service.name".to_owned(), name.to_string());
                (common.iter().cloned().chain([name]).chain(own).collect(), part)
            })
            .collect();
        let pack = |request: Vec<u8>| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&request)?;
            Ok(packed.finish()?)
        };
        requests(&parts).into_iter().map(pack).collect()
    }

    async fn attempt(&self, body: Vec<u8>) -> Outcome {
        let request = match self.request(body) {
            Ok(request) => request,
            Err(error) => return Outcome::Unreached(format!("{error:#}")),
        };
        match self.client.push(request).await {
            Ok(answer) => judge(&answer, self.config.protocol == Protocol::OtlpGrpc),
            Err(error) => Outcome::Unreached(format!("{error:#}")),
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

/// Requests of at most [`MOST_BYTES`] each that tell of these services together. A service is not divided.
fn requests(services: &[otlp::Part<'_>]) -> Vec<Vec<u8>> {
    let request = otlp::request(services);
    if request.len() <= MOST_BYTES || services.len() < 2 {
        return vec![request];
    }
    let (these, others) = services.split_at(services.len() / 2);
    [requests(these), requests(others)].concat()
}

/// A message of gRPC: compressed, with its length.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut message = vec![1];
    message.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::profile::{Frame, Kind, Labels};

    fn sink(spool: &Path, spool_bytes: u64) -> Sink {
        let config = SinkConfig {
            protocol: Protocol::OtlpGrpc,
            url: "http://127.0.0.1:9".to_owned(),
            auth: Auth::None,
            trust: Trust::default(),
            tenant: None,
            labels: BTreeMap::new(),
            spool_bytes,
        };
        Sink::open(config, spool, Path::new("/nowhere")).unwrap()
    }

    fn failed() -> Outcome {
        Outcome::Failed("gRPC status 13".to_owned(), None)
    }

    /// Attempts at all that waits, until it is sent or refused; `most` of them.
    fn attempt_all(sink: &Sink, most: usize, mut outcome: impl FnMut(&[u8]) -> Outcome) -> usize {
        let mut retry = Retry::default();
        for attempts in 0..most {
            let Some((number, body)) = sink.spool.take() else { return attempts };
            sink.settle(&mut retry, number, body.len() as u64, outcome(&body));
        }
        most
    }

    #[test]
    fn a_request_at_which_the_sink_fails_each_time_does_not_hold_up_others_for_ever() {
        let root = tempfile::tempdir().unwrap();
        let sink = sink(root.path(), 100);
        ["one", "bad", "bad", "two"].iter().for_each(|body| sink.spool.put(body.as_bytes()));
        let fails_at_bad = |body: &[u8]| if body == b"bad" { failed() } else { Outcome::Sent };
        assert_eq!(attempt_all(&sink, 100, fails_at_bad), 34);
        let stats = PushStats { sent: 2, failed: 30, refused: 2, bytes: 6, spooled: 0, dropped: 0 };
        assert_eq!(sink.stats(), stats);
    }

    #[test]
    fn a_sink_that_is_away_costs_no_request_but_for_want_of_room() {
        let root = tempfile::tempdir().unwrap();
        let sink = sink(root.path(), 6);
        ["one", "two"].iter().for_each(|body| sink.spool.put(body.as_bytes()));
        assert_eq!(attempt_all(&sink, 100, |_| Outcome::Unreached("nobody is there".to_owned())), 100);
        assert_eq!(sink.stats(), PushStats { failed: 100, spooled: 6, ..PushStats::default() });
        sink.spool.put(b"new");
        let mut taken = Vec::new();
        attempt_all(&sink, 100, |body| {
            taken.push(body.to_vec());
            Outcome::Sent
        });
        assert_eq!(taken, [*b"two", *b"new"], "the oldest went, although it had been tried");
        assert_eq!(sink.stats().dropped, 1);
    }

    #[test]
    fn what_is_too_large_for_a_request_goes_in_several() {
        let profile_of = |names: &[&str]| {
            let mut profile = Profile::new();
            for name in names {
                let labels = Labels { process: (*name).into(), ..Labels::default() };
                // A third of a request: a name has 4,096 bytes at most.
                let text = name.repeat(4_000);
                let frame = |n| Arc::new(Frame::named(Kind::Native, format!("{n}{text}")));
                let stack: Vec<_> = (0..MOST_BYTES / 3 / text.len()).map(frame).collect();
                profile.add(&labels, &stack, 1, 1);
            }
            profile
        };
        let root = tempfile::tempdir().unwrap();
        let sink = sink(root.path(), 1 << 30);
        let pushed = |names: &[&str]| {
            sink.offer(&profile_of(names)).unwrap();
            let mut requests = Vec::new();
            attempt_all(&sink, 100, |body| {
                let mut request = Vec::new();
                GzDecoder::new(body).read_to_end(&mut request).unwrap();
                assert!(request.len() <= MOST_BYTES);
                let text = String::from_utf8_lossy(&request);
                let has = |name: &&&str| text.contains(&name.repeat(9));
                requests.push(names.iter().filter(has).copied().collect::<String>());
                Outcome::Sent
            });
            requests
        };
        assert_eq!(pushed(&["a", "b"]), ["ab"]);
        assert_eq!(pushed(&["a", "b", "c", "d", "e"]), ["ab", "c", "de"]);
    }

    #[test]
    fn messages_of_grpc_have_their_length() {
        assert_eq!(framed(b"abc"), b"\x01\0\0\0\x03abc");
    }
}
