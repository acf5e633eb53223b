//! OTLP profiles for an OpenTelemetry Collector, over HTTP and over gRPC.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::push_protocol::{PushProtocol, WindowRequests};
use crate::daemon::service::{self, Service};
use crate::output::otlp::{self, Rejection};
use crate::profile::Profile;

/// Maximum bytes of a request before compression. OTLP allows 64 MiB, but most gRPC servers refuse messages of more than
/// 4 MiB by default.
const MAX_BYTES: usize = 4 << 20;

/// Bytes of gRPC's header of a message: the compression flag and the length.
const MESSAGE_HEADER: usize = 5;

pub(super) struct OtlpHttp;

pub(super) struct OtlpGrpc;

impl PushProtocol for OtlpHttp {
    fn name(&self) -> &'static str {
        "otlp-http"
    }

    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<WindowRequests> {
        encode(profile, labels)
    }

    fn format(&self) -> &'static str {
        "otlp"
    }

    fn path(&self) -> &'static str {
        "/v1development/profiles"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/x-protobuf"), ("content-encoding", "gzip")]
    }

    fn is_retryable(&self, status: u16) -> bool {
        is_retryable(status)
    }

    fn rejection(&self, body: &[u8]) -> Option<Rejection> {
        Rejection::read(body)
    }
}

impl PushProtocol for OtlpGrpc {
    fn name(&self) -> &'static str {
        "otlp-grpc"
    }

    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<WindowRequests> {
        encode(profile, labels)
    }

    fn format(&self) -> &'static str {
        "otlp"
    }

    fn path(&self) -> &'static str {
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/grpc+proto"), ("grpc-encoding", "gzip"), ("te", "trailers")]
    }

    /// Adds gRPC's message header: the compression flag and the length.
    fn framed(&self, body: Vec<u8>) -> Vec<u8> {
        let mut message = vec![1];
        message.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
        message.extend(body);
        message
    }

    fn is_grpc(&self) -> bool {
        true
    }

    fn is_retryable(&self, status: u16) -> bool {
        is_retryable(status)
    }

    /// The response is one message, which is not compressed: requests do not say that it may be.
    fn rejection(&self, body: &[u8]) -> Option<Rejection> {
        let (header, message) = body.split_at_checked(MESSAGE_HEADER)?;
        (header[0] == 0).then(|| Rejection::read(message)).flatten()
    }
}

/// The statuses that OTLP/HTTP lists as retryable. The specification forbids to retry others; 401 and 403 are retried
/// all the same, because the next attempt has other credentials once an operator has renewed an expired token.
fn is_retryable(status: u16) -> bool {
    matches!(status, 401 | 403 | 429 | 502 | 503 | 504)
}

/// Compressed requests for a window: a profile for each service and each event.
fn encode(profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<WindowRequests> {
    let common: Vec<(String, String)> = labels.clone().into_iter().collect();
    let views = profile.views();
    let resources: Vec<otlp::ResourceView<'_>> = views
        .iter()
        .flat_map(|view| service::split(view, Service::as_resource))
        .map(|(Service { name, attributes, resource }, view)| {
            let published = resource.iter().flat_map(|resource| resource.iter());
            let published = published.map(|of| (of.key.to_string(), of.value.to_string()));
            let own = attributes.into_iter().map(|(key, text)| (key.to_owned(), text.to_string()));
            let name = ("service.name".to_owned(), name.to_string());
            let attributes = unique(published.chain(common.iter().cloned()).chain([name]).chain(own));
            otlp::ResourceView { attributes, view }
        })
        .collect();
    let otlp::Requests { bodies, oversized } = otlp::requests(&resources, MAX_BYTES);
    let pack = |request: &Vec<u8>| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(request)?;
        Ok(packed.finish()?)
    };
    let bodies = bodies.iter().map(pack).collect::<anyhow::Result<_>>()?;
    Ok(WindowRequests { bodies, oversized })
}

/// Attributes with unique keys, as OTLP demands. The last one wins: a service's own attribute over a label of the sink,
/// and both over what the process publishes.
fn unique(attributes: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    attributes.collect::<BTreeMap<_, _>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::profile::{Frame, Kind, Labels};

    #[test]
    fn what_is_too_large_for_a_request_goes_in_several() {
        let profile_of = |names: &[&str]| {
            let mut profile = Profile::new();
            for name in names {
                let labels = Labels { process: (*name).into(), ..Labels::default() };
                // A third of a request: a name has at most 4,096 characters.
                let text = name.repeat(4_000);
                let frame = |n| Arc::new(Frame::named(Kind::Native, format!("{n}{text}")));
                let stack: Vec<_> = (0..MAX_BYTES / 3 / text.len()).map(frame).collect();
                profile.add(&labels, &stack, 1, 1);
            }
            profile
        };
        let pushed = |names: &[&str]| {
            let bodies = OtlpGrpc.encode(&profile_of(names), &BTreeMap::new()).unwrap().bodies;
            let served = |body: &Vec<u8>| {
                let mut request = Vec::new();
                GzDecoder::new(body.as_slice()).read_to_end(&mut request).unwrap();
                assert!(request.len() <= MAX_BYTES);
                let text = String::from_utf8_lossy(&request);
                let has = |name: &&&str| text.contains(&name.repeat(9));
                names.iter().filter(has).copied().collect::<String>()
            };
            bodies.iter().map(served).collect::<Vec<_>>()
        };
        assert_eq!(pushed(&["a", "b"]), ["ab"]);
        assert_eq!(pushed(&["a", "b", "c", "d", "e"]), ["ab", "c", "de"]);
    }

    #[test]
    fn messages_of_grpc_have_their_length() {
        assert_eq!(OtlpGrpc.framed(b"abc".to_vec()), b"\x01\0\0\0\x03abc");
    }

    #[test]
    fn rejected_profiles_are_read_of_both_responses() {
        let body = b"\x0a\x02\x08\x02";
        let message = [b"\0\0\0\0\x04".as_slice(), body].concat();
        for rejection in [OtlpHttp.rejection(body), OtlpGrpc.rejection(&message)] {
            assert_eq!(rejection.map(|of| of.profiles), Some(2));
        }
        let compressed = [b"\x01\0\0\0\x04".as_slice(), body].concat();
        for nothing in [b"".as_slice(), b"\0\0\0\0\0", &compressed] {
            assert_eq!(OtlpGrpc.rejection(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn an_attribute_of_the_service_wins_over_a_label_of_the_sink() {
        let attributes = [("a", "1"), ("service.name", "all"), ("service.name", "java")];
        let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let expected = [("a", "1"), ("service.name", "java")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(unique(attributes.into_iter()), expected);
    }
}
