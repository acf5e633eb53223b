//! Grafana Pyroscope's push API: `push.v1.PusherService/Push`, a unary call of the Connect protocol with a protocol
//! buffer. (`/ingest` takes one profile per request and has labels within the application's name; `Push` takes all
//! services of a window at once.)

use std::collections::BTreeMap;

use prost::Message;

use super::push_protocol::{PushProtocol, WindowRequests};
use crate::daemon::service::{self, Service};
use crate::output::pprof;
use crate::profile::Profile;
use crate::sample::Event;

pub(super) struct Pyroscope;

impl PushProtocol for Pyroscope {
    fn name(&self) -> &'static str {
        "pyroscope"
    }

    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<WindowRequests> {
        Ok(WindowRequests { bodies: vec![request(profile, labels)?], oversized: 0 })
    }

    fn format(&self) -> &'static str {
        "pyroscope"
    }

    fn path(&self) -> &'static str {
        "/push.v1.PusherService/Push"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/proto"), ("connect-protocol-version", "1")]
    }

    /// Only an invalid or too large request will fail again.
    fn is_retryable(&self, status: u16) -> bool {
        !matches!(status, 400 | 411 | 413 | 415 | 422)
    }
}

/// Pyroscope's name for profiles of an event: `process_cpu`, as for CPU profiles of all languages, or the event's own
/// name.
fn profile_name(event: Event) -> String {
    if event == Event::Cpu {
        return "process_cpu".to_owned();
    }
    // A colon separates the parts of a series' name.
    event.name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The messages of push/v1/push.proto and types/v1/types.proto (grafana/pyroscope, 1.x), with their names and tags.
#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, Message)]
struct RawSample {
    /// A pprof file, compressed by gzip.
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The request for a window: a profile for each service. Samples have no labels, because each label would be a series.
///
/// # Errors
/// When a profile cannot be written as pprof.
fn request(profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<Vec<u8>> {
    let mut series = Vec::new();
    let views = profile.views();
    let parts = views.iter().flat_map(|view| service::split(view, Service::as_series));
    for (service, part) in parts {
        let mut of = labels.clone();
        of.insert("__name__".to_owned(), profile_name(part.event()));
        of.insert("service_name".to_owned(), service.name.to_string());
        of.extend(service.attributes.iter().map(|(name, text)| ((*name).to_owned(), text.to_string())));
        let mut raw_profile = Vec::new();
        pprof::write(&[part.without_labels()], &mut raw_profile)?;
        let labels = of.into_iter().map(|(name, value)| LabelPair { name, value }).collect();
        series.push(RawProfileSeries { labels, samples: vec![RawSample { raw_profile }] });
    }
    Ok(PushRequest { series }.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use prost::Message;

    use super::{PushRequest, request};
    use crate::output::pprof;
    use crate::profile::{Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    #[test]
    fn a_series_is_a_service_and_nothing_is_lost() {
        let mut profile = Profile::new();
        for (pid, process, ticks) in [(1, "java", 5), (2, "java", 6), (3, "nginx", 7)] {
            let labels = Labels { pid, process: process.into(), thread: "t".into(), ..Labels::default() };
            profile.add(&labels, &[Arc::new(Frame::named(Kind::Native, "main"))], ticks, ticks * 10);
        }
        let accounts = profile.accounts_mut(Event::Cpu);
        (accounts.kept, accounts.taken, accounts.period_ns) = (18, 20, 10);
        accounts.lose("ring full", 2);
        let cluster = BTreeMap::from([("cluster".to_owned(), "a".to_owned())]);
        let read = PushRequest::decode(request(&profile, &cluster).unwrap().as_slice()).unwrap();
        let found: Vec<(String, u64, usize)> = read
            .series
            .iter()
            .map(|series| {
                let labels: Vec<String> =
                    series.labels.iter().map(|l| format!("{}={}", l.name, l.value)).collect();
                let part = pprof::read(&mut series.samples[0].raw_profile.as_slice()).unwrap();
                (labels.join(","), part.accounts(Event::Cpu).shown(), part.samples().len())
            })
            .collect();
        let of = |service: &str| format!("__name__=process_cpu,cluster=a,service_name={service}");
        assert_eq!(found, [(of("java"), 11, 1), (of("nginx"), 7, 1), (of("jbpf-prof"), 2, 0)]);
    }
}
