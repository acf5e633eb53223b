//! OTLP profiles for an OpenTelemetry Collector, over HTTP and over gRPC.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::speak::Speak;
use crate::daemon::service::{self, Service};
use crate::output::otlp;
use crate::profile::Profile;

/// Maximum bytes of a request before compression. gRPC servers refuse larger messages by default.
const MOST_BYTES: usize = 4 << 20;

pub(super) struct OtlpHttp;

pub(super) struct OtlpGrpc;

impl Speak for OtlpHttp {
    fn name(&self) -> &'static str {
        "otlp-http"
    }

    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<Vec<Vec<u8>>> {
        encode(profile, labels)
    }

    fn path(&self) -> &'static str {
        "/v1development/profiles"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/x-protobuf"), ("content-encoding", "gzip")]
    }
}

impl Speak for OtlpGrpc {
    fn name(&self) -> &'static str {
        "otlp-grpc"
    }

    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<Vec<Vec<u8>>> {
        encode(profile, labels)
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
}

/// Compressed requests for a window: a profile for each service and each event.
fn encode(profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<Vec<Vec<u8>>> {
    let common: Vec<(String, String)> = labels.clone().into_iter().collect();
    let views = profile.views();
    let parts: Vec<otlp::ResourceView<'_>> = views
        .iter()
        .flat_map(|view| service::split(view, Service::as_resource))
        .map(|(Service { name, attributes }, view)| {
            let own = attributes.into_iter().map(|(key, text)| (key.to_owned(), text.to_string()));
            let name = ("service.name".to_owned(), name.to_string());
            otlp::ResourceView { attributes: common.iter().cloned().chain([name]).chain(own).collect(), view }
        })
        .collect();
    let pack = |request: Vec<u8>| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&request)?;
        Ok(packed.finish()?)
    };
    requests(&parts).into_iter().map(pack).collect()
}

/// Encodes services into requests of at most [`MOST_BYTES`] each. A single service is not divided, so its request may
/// be larger.
fn requests(services: &[otlp::ResourceView<'_>]) -> Vec<Vec<u8>> {
    let request = otlp::request(services);
    if request.len() <= MOST_BYTES || services.len() < 2 {
        return vec![request];
    }
    let (these, others) = services.split_at(services.len() / 2);
    [requests(these), requests(others)].concat()
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
                let stack: Vec<_> = (0..MOST_BYTES / 3 / text.len()).map(frame).collect();
                profile.add(&labels, &stack, 1, 1);
            }
            profile
        };
        let pushed = |names: &[&str]| {
            let bodies = OtlpGrpc.encode(&profile_of(names), &BTreeMap::new()).unwrap();
            let served = |body: &Vec<u8>| {
                let mut request = Vec::new();
                GzDecoder::new(body.as_slice()).read_to_end(&mut request).unwrap();
                assert!(request.len() <= MOST_BYTES);
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
}
