//! The interface of a protocol: the bodies of requests for a window, and their path, headers and framing.

use std::collections::BTreeMap;

use crate::profile::Profile;

/// A protocol that pushes windows by HTTP requests.
pub(super) trait Speak: Sync {
    /// The protocol's name in settings: the `type` of a sink.
    fn name(&self) -> &'static str;

    /// The bodies of the requests for a window, as the spool stores them; `labels` are the sink's own.
    ///
    /// # Errors
    /// When the profile cannot be encoded or compressed.
    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<Vec<Vec<u8>>>;

    /// The path of requests below the sink's URL.
    fn path(&self) -> &'static str;

    /// The headers of a request, including its content type.
    fn headers(&self) -> &'static [(&'static str, &'static str)];

    /// Converts a stored body to the form that is sent.
    fn framed(&self, body: Vec<u8>) -> Vec<u8> {
        body
    }

    /// Whether requests are gRPC calls: over HTTP/2, with a status in the trailers.
    fn is_grpc(&self) -> bool {
        false
    }
}
