//! The interface of a protocol: the bodies of requests for a window, and their path, headers and framing.

use std::collections::BTreeMap;

use crate::output::otlp::Rejection;
use crate::profile::Profile;

/// The requests for a window.
#[derive(Debug, Default)]
pub(super) struct WindowRequests {
    /// The bodies, as the spool stores them.
    pub(super) bodies: Vec<Vec<u8>>,
    /// Stacks that were left out, because no request has room for one of them.
    pub(super) oversized: u64,
}

/// A protocol that pushes windows by HTTP requests.
pub(super) trait PushProtocol: Sync {
    /// The protocol's name in settings: the `type` of a sink.
    fn name(&self) -> &'static str;

    /// The requests for a window; `labels` are the sink's own.
    ///
    /// # Errors
    /// When the profile cannot be encoded or compressed.
    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<WindowRequests>;

    /// The format of the bodies. A request in the spool can be sent by each protocol of its format.
    fn format(&self) -> &'static str;

    /// The path of requests below the sink's URL.
    fn path(&self) -> &'static str;

    /// The headers of a request, including its content type.
    fn headers(&self) -> &'static [(&'static str, &'static str)];

    /// Converts a stored body to the form that is sent.
    fn framed(&self, body: Vec<u8>) -> Vec<u8> {
        body
    }

    /// Whether a request with this HTTP status may be accepted later, so that it is retried.
    fn is_retryable(&self, status: u16) -> bool;

    /// What the sink rejected of a request that it accepted, from the body of its response.
    fn rejection(&self, body: &[u8]) -> Option<Rejection> {
        let _ = body;
        None
    }

    /// Whether requests are gRPC calls: over HTTP/2, with a status in the trailers.
    fn is_grpc(&self) -> bool {
        false
    }
}
