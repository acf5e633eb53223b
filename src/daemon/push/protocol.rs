//! The kinds of sinks: each has a file that implements [`Speak`], and a line here.

use super::otlp::{OtlpGrpc, OtlpHttp};
use super::pyroscope::Pyroscope;
use super::speak::Speak;

/// A protocol.
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
    /// Every protocol.
    pub const ALL: [Protocol; 3] = [Protocol::Pyroscope, Protocol::OtlpHttp, Protocol::OtlpGrpc];

    pub(super) fn spoken(self) -> &'static dyn Speak {
        match self {
            Protocol::Pyroscope => &Pyroscope,
            Protocol::OtlpHttp => &OtlpHttp,
            Protocol::OtlpGrpc => &OtlpGrpc,
        }
    }

    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spoken().name()
    }

    /// The protocol of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}
