//! The protocols of sinks. Each has a module that implements [`PushProtocol`], and an entry here.

use super::otlp::{OtlpGrpc, OtlpHttp};
use super::push_protocol::PushProtocol;
use super::pyroscope::Pyroscope;

/// The protocol of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Grafana Pyroscope's push API.
    Pyroscope,
    /// OTLP profiles over HTTP.
    OtlpHttp,
    /// OTLP profiles over gRPC.
    OtlpGrpc,
}

impl Protocol {
    /// Every protocol that the `type` of a sink may name.
    pub const ALL: [Protocol; 3] = [Protocol::Pyroscope, Protocol::OtlpHttp, Protocol::OtlpGrpc];

    pub(super) fn implementation(self) -> &'static dyn PushProtocol {
        match self {
            Protocol::Pyroscope => &Pyroscope,
            Protocol::OtlpHttp => &OtlpHttp,
            Protocol::OtlpGrpc => &OtlpGrpc,
        }
    }

    /// The protocol's name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.implementation().name()
    }

    /// The protocol with this name; `None` if there is no such protocol.
    #[must_use]
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}
