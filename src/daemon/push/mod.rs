//! Sinks. Each window goes to them through a spool on disk, so that no sink delays sampling.

mod otlp;
mod outcome;
mod push_protocol;
mod pyroscope;
mod registry;
mod retry;
mod spool;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request};
use tokio::sync::Notify;

use super::client::{Auth, Client, ResponseTooLarge, Trust};
use crate::output::otlp::Rejection;
use crate::profile::Profile;
use outcome::{DeliveryOutcome, classify};
pub use registry::Protocol;
use retry::Retry;
use spool::{Spool, SpoolStats, SpooledRequest};

/// The validated configuration of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkConfig {
    /// Unique name of the sink: for metrics, the log, and the directory of its spool.
    pub name: String,
    /// The protocol of the sink.
    pub protocol: Protocol,
    /// Base URL, without the path of the call.
    pub url: String,
    /// Credentials for the sink.
    pub auth: Auth,
    /// Certificates that TLS trusts.
    pub trust: Trust,
    /// The tenant (`X-Scope-OrgID`), for servers with several tenants.
    pub tenant: Option<String>,
    /// Labels or resource attributes to add to every profile.
    pub labels: BTreeMap<String, String>,
    /// Maximum bytes in the spool.
    pub spool_bytes: u64,
}

/// Counters of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PushStats {
    /// Requests that the sink accepted.
    pub(super) sent: u64,
    /// Attempts that failed and were retried.
    pub(super) failed: u64,
    /// Requests that were given up because the sink refused them.
    pub(super) refused: u64,
    /// Bytes that the sink accepted.
    pub(super) bytes: u64,
    /// Bytes in the spool.
    pub(super) spooled: u64,
    /// Requests that were dropped before the sink accepted them.
    pub(super) dropped: u64,
    /// Stacks that were not sent, because each is larger than a request may be.
    pub(super) oversized: u64,
    /// Profiles that the sink rejected of requests that it accepted.
    pub(super) rejected: u64,
}

/// A sink with its spool.
pub(super) struct Sink {
    config: SinkConfig,
    spool: Spool,
    client: Client,
    stats: Mutex<PushStats>,
    new_window: Notify,
}

impl Sink {
    /// Opens a sink with a spool below `directory`. `binary` is the path of this binary.
    ///
    /// # Errors
    /// One sentence: the directory and what is wrong with it.
    pub(super) fn open(config: SinkConfig, directory: &Path, binary: &Path) -> anyhow::Result<Sink> {
        let spool = Spool::open(
            &directory.join(&config.name),
            config.protocol.implementation().format(),
            config.spool_bytes,
        )?;
        let client =
            Client::new(binary.to_owned(), config.trust.clone(), config.protocol.implementation().is_grpc());
        let (stats, new_window) = (Mutex::default(), Notify::new());
        Ok(Sink { config, spool, client, stats, new_window })
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Whether these are the settings of the sink.
    pub(super) fn has(&self, config: &SinkConfig) -> bool {
        self.config == *config
    }

    pub(super) fn stats(&self) -> PushStats {
        let SpoolStats { bytes: spooled, dropped } = self.spool.stats();
        let counted = *self.counted();
        PushStats { spooled, dropped: counted.dropped + dropped, ..counted }
    }

    /// Continues the counters of the sink that had the name before.
    pub(super) fn continue_counting(&self, before: PushStats) {
        *self.counted() = before;
    }

    /// Puts a window into the spool.
    ///
    /// # Errors
    /// The window cannot be encoded.
    pub(super) fn offer(&self, profile: &Profile) -> anyhow::Result<()> {
        let requests = self.config.protocol.implementation().encode(profile, &self.config.labels)?;
        if requests.oversized > 0 {
            log::warn!(
                "{}: {} stacks are too large for a request and are not sent",
                self.name(),
                requests.oversized
            );
            self.counted().oversized += requests.oversized;
        }
        requests.bodies.iter().for_each(|body| self.spool.append(body));
        self.new_window.notify_one();
        Ok(())
    }

    /// Sends the requests of the spool, forever.
    pub(super) async fn run(&self) {
        let mut retry = Retry::default();
        loop {
            let SpooledRequest { number, body } = match self.spool.take_oldest() {
                Ok(Some(request)) => request,
                Ok(None) => {
                    self.new_window.notified().await;
                    continue;
                }
                Err(error) => {
                    log::warn!(
                        "{}: a profile cannot be read from the spool, will retry: {error}",
                        self.name()
                    );
                    tokio::time::sleep(retry.pause(None)).await;
                    continue;
                }
            };
            let bytes = body.len() as u64;
            let outcome = self.attempt(body).await;
            if let Some(wait) = self.record_result(&mut retry, number, bytes, outcome) {
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Records the result of an attempt. Returns the pause before the next attempt; `None` to go on at once.
    fn record_result(
        &self,
        retry: &mut Retry,
        number: u64,
        bytes: u64,
        of_attempt: DeliveryOutcome,
    ) -> Option<Duration> {
        let (why, retry_after) = match retry.record_attempt(number, of_attempt) {
            DeliveryOutcome::Sent => {
                retry.begin_anew();
                self.spool.remove(number);
                let mut stats = self.counted();
                (stats.sent, stats.bytes) = (stats.sent + 1, stats.bytes + bytes);
                return None;
            }
            DeliveryOutcome::Refused(why) => {
                log::warn!("{}: a profile was refused: {why}", self.name());
                self.spool.remove(number);
                self.counted().refused += 1;
                return None;
            }
            DeliveryOutcome::Failed(why, retry_after) => (why, retry_after),
            DeliveryOutcome::Unreached(why) => (why, None),
        };
        log::info!("{}: push failed, will retry: {why}", self.name());
        self.spool.put_back();
        self.counted().failed += 1;
        Some(retry.pause(retry_after))
    }

    async fn attempt(&self, body: Vec<u8>) -> DeliveryOutcome {
        let request = match self.request(body) {
            Ok(request) => request,
            Err(error) => return DeliveryOutcome::Unreached(format!("{error:#}")),
        };
        let response = match self.client.push(request).await {
            Ok(response) => response,
            // Another attempt would have the same response.
            Err(error) if error.is::<ResponseTooLarge>() => {
                return DeliveryOutcome::Refused(format!("{error:#}"));
            }
            Err(error) => return DeliveryOutcome::Unreached(format!("{error:#}")),
        };
        let implementation = self.config.protocol.implementation();
        let outcome = classify(&response, implementation);
        if outcome == DeliveryOutcome::Sent
            && let Some(rejection) = implementation.rejection(&response.body)
        {
            self.record_rejection(&rejection);
        }
        outcome
    }

    /// Records what the sink rejected of a request that it accepted. Such a request must not be sent again.
    fn record_rejection(&self, rejection: &Rejection) {
        let Rejection { profiles, reason } = rejection;
        match profiles {
            0 => log::warn!("{}: the sink warns: {reason}", self.name()),
            profiles => {
                log::warn!("{}: {profiles} profiles of a request were rejected: {reason}", self.name());
            }
        }
        self.counted().rejected += profiles;
    }

    fn request(&self, body: Vec<u8>) -> anyhow::Result<Request<Full<Bytes>>> {
        let SinkConfig { protocol, url, auth, tenant, .. } = &self.config;
        let implementation = protocol.implementation();
        let uri = format!("{}{}", url.trim_end_matches('/'), implementation.path());
        let mut request = Client::request(Method::POST, &uri, auth)?;
        for (name, value) in implementation.headers() {
            request = request.header(*name, *value);
        }
        if let Some(tenant) = tenant {
            request = request.header("x-scope-orgid", tenant);
        }
        request.body(Full::new(implementation.framed(body).into())).context("making a request")
    }

    fn counted(&self) -> std::sync::MutexGuard<'_, PushStats> {
        self.stats.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(spool: &Path, spool_bytes: u64) -> Sink {
        let config = SinkConfig {
            name: "central".to_owned(),
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

    fn failed() -> DeliveryOutcome {
        DeliveryOutcome::Failed("gRPC status 13".to_owned(), None)
    }

    /// Attempts requests until the spool is empty, at most `most` times. Returns the number of attempts.
    fn attempt_all(sink: &Sink, most: usize, mut outcome: impl FnMut(&[u8]) -> DeliveryOutcome) -> usize {
        let mut retry = Retry::default();
        for attempts in 0..most {
            let Some(SpooledRequest { number, body }) = sink.spool.take_oldest().unwrap() else {
                return attempts;
            };
            sink.record_result(&mut retry, number, body.len() as u64, outcome(&body));
        }
        most
    }

    #[test]
    fn a_request_at_which_the_sink_fails_each_time_does_not_hold_up_others_for_ever() {
        let root = tempfile::tempdir().unwrap();
        let sink = sink(root.path(), 100);
        ["one", "bad", "bad", "two"].iter().for_each(|body| sink.spool.append(body.as_bytes()));
        let fails_at_bad = |body: &[u8]| if body == b"bad" { failed() } else { DeliveryOutcome::Sent };
        assert_eq!(attempt_all(&sink, 100, fails_at_bad), 34);
        let stats = PushStats { sent: 2, failed: 30, refused: 2, bytes: 6, ..PushStats::default() };
        assert_eq!(sink.stats(), stats);
    }

    #[test]
    fn an_unreachable_sink_drops_requests_only_when_the_spool_is_full() {
        let root = tempfile::tempdir().unwrap();
        let sink = sink(root.path(), 6);
        ["one", "two"].iter().for_each(|body| sink.spool.append(body.as_bytes()));
        assert_eq!(
            attempt_all(&sink, 100, |_| DeliveryOutcome::Unreached("connection refused".to_owned())),
            100
        );
        assert_eq!(sink.stats(), PushStats { failed: 100, spooled: 6, ..PushStats::default() });
        sink.spool.append(b"new");
        let mut taken = Vec::new();
        attempt_all(&sink, 100, |body| {
            taken.push(body.to_vec());
            DeliveryOutcome::Sent
        });
        assert_eq!(taken, [*b"two", *b"new"], "the oldest went, although it had been tried");
        assert_eq!(sink.stats().dropped, 1);
    }
}
