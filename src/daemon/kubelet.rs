//! Polls the kubelet of this node for the pods that opt in to the agent by an annotation. The daemon does so only if
//! access to the kubelet is configured.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::body::Buf as _;
use serde::Deserialize;

use super::client::{Auth, Client, Trust};
use crate::session::OptedInPods;

/// The interval of polls while no JVM waits for an answer, and the shortest interval.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of a poll: JVMs that have started may wait for it.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time between restarts of sampling that annotations of running pods cause. Users who may annotate pods must
/// not be able to prevent sampling.
const MIN_RESTART_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum bytes of an answer: some hundred pods with all their data.
const MAX_ANSWER: usize = 32 << 20;

/// How to reach the kubelet, and which annotations to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletConfig {
    /// The kubelet's URL: `https://NODE:10250`.
    pub url: String,
    /// Credentials for the kubelet.
    pub auth: Auth,
    /// Certificates that TLS trusts.
    pub trust: Trust,
    /// Annotations and their values: a pod with at least one of them opts in.
    pub annotations: Vec<(String, String)>,
    /// Receives the pods that opt in.
    pub opted_in: OptedInPods,
}

/// Results of the polls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KubeletPolls {
    /// Polls with an answer.
    pub(super) answered: u64,
    /// Polls without an answer.
    pub(super) failed: u64,
    /// Pods that opt in now.
    pub(super) opted_in: usize,
}

pub(super) struct Kubelet {
    config: KubeletConfig,
    client: Client,
    polls: Mutex<KubeletPolls>,
}

/// The part of the kubelet's pod list that is read.
#[derive(Deserialize)]
struct Pods {
    items: Vec<KubeletPod>,
}

#[derive(Deserialize)]
struct KubeletPod {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

impl Kubelet {
    /// `binary` is the path of this binary.
    pub(super) fn new(config: KubeletConfig, binary: &Path) -> Kubelet {
        let client = Client::new(binary.to_owned(), config.trust.clone(), false);
        Kubelet { config, client, polls: Mutex::default() }
    }

    pub(super) fn polls(&self) -> KubeletPolls {
        KubeletPolls { opted_in: self.config.opted_in.count(), ..*self.lock_polls() }
    }

    /// Polls forever. Calls `anew` when an answer that a JVM's pod got in this session is no longer true.
    pub(super) async fn run(&self, anew: impl Fn()) {
        let opted_in = &self.config.opted_in;
        let (mut begun_anew, mut fails): (Option<Instant>, bool) = (None, false);
        loop {
            opted_in.begin_poll();
            let pods = tokio::time::timeout(TIMEOUT, self.pods()).await;
            let pods = pods.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {TIMEOUT:?}")));
            let pods = self.note(pods, fails);
            fails = pods.is_none();
            let changed = opted_in.end_poll(pods);
            if changed && begun_anew.is_none_or(|then| then.elapsed() >= MIN_RESTART_INTERVAL) {
                begun_anew = Some(Instant::now());
                anew();
            }
            tokio::time::sleep(MIN_POLL_INTERVAL).await;
            let _ =
                tokio::time::timeout(POLL_INTERVAL - MIN_POLL_INTERVAL, opted_in.wait_for_question()).await;
        }
    }

    /// All pods by uid, and whether they opt in.
    async fn pods(&self) -> anyhow::Result<HashMap<String, bool>> {
        let KubeletConfig { url, auth, annotations, .. } = &self.config;
        let uri = format!("{}/pods", url.trim_end_matches('/'));
        let answer = self.client.get(&uri, auth, MAX_ANSWER).await?;
        opted_in(answer.reader(), annotations)
    }

    /// Counts a poll and logs its error. `again`: the previous poll failed too, and a warning was logged.
    fn note(
        &self,
        pods: anyhow::Result<HashMap<String, bool>>,
        again: bool,
    ) -> Option<HashMap<String, bool>> {
        let mut polls = self.lock_polls();
        match pods {
            Ok(pods) => {
                polls.answered += 1;
                Some(pods)
            }
            Err(error) => {
                let level = if again { log::Level::Info } else { log::Level::Warn };
                log::log!(level, "the kubelet does not list the pods that opt in; retrying: {error:#}");
                polls.failed += 1;
                None
            }
        }
    }

    fn lock_polls(&self) -> MutexGuard<'_, KubeletPolls> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn opted_in(answer: impl Read, annotations: &[(String, String)]) -> anyhow::Result<HashMap<String, bool>> {
    let pods: Pods = serde_json::from_reader(answer).context("the answer is not a list of pods")?;
    let pods = pods.items.into_iter().map(|KubeletPod { metadata }| {
        let has = metadata.annotations.unwrap_or_default();
        let wants = annotations.iter().any(|(name, value)| has.get(name) == Some(value));
        (metadata.uid, wants)
    });
    Ok(pods.collect())
}

#[cfg(test)]
mod tests {
    use super::opted_in;

    #[test]
    fn a_pod_opts_in_by_the_whole_value_of_one_of_the_annotations() {
        let list = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
            {"metadata":{"name":"a","uid":"1","annotations":{"jbpf-prof/agent":"true","x":"y"}},"spec":{},"status":{}},
            {"metadata":{"name":"b","uid":"2","annotations":{"jbpf-prof/agent":"false"}}},
            {"metadata":{"name":"c","uid":"3","annotations":{"team/profile":"deep"}}},
            {"metadata":{"name":"d","uid":"4","annotations":null}},{"metadata":{"uid":"5"}}]}"#;
        let wanted = [("jbpf-prof/agent", "true"), ("team/profile", "deep")];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut pods: Vec<_> = opted_in(&list[..], &wanted).unwrap().into_iter().collect();
        pods.sort();
        let uids: Vec<_> = pods.iter().map(|(uid, has)| (uid.as_str(), *has)).collect();
        assert_eq!(uids, [("1", true), ("2", false), ("3", true), ("4", false), ("5", false)]);
        for bad in ["", "{}", "Unauthorized", "{\"items\":[{}]}", "{\"items\":[{\"metadata\":{\"uid\":1}}]}"]
        {
            assert!(opted_in(bad.as_bytes(), &wanted).is_err(), "{bad}");
        }
    }
}
