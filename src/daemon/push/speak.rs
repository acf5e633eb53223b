//! What a kind of sink must say: how a window becomes the bodies of its requests, and what is around them.

use std::collections::BTreeMap;

use crate::profile::Profile;

/// How windows are told to a sink by requests of HTTP.
pub(super) trait Speak: Sync {
    /// Its name in settings: the `type` of a sink.
    fn name(&self) -> &'static str;

    /// The bodies of requests that tell a window together, as they wait in the spool; `labels` are the sink's own.
    ///
    /// # Errors
    /// What the encoder says.
    fn encode(&self, profile: &Profile, labels: &BTreeMap<String, String>) -> anyhow::Result<Vec<Vec<u8>>>;

    /// Where requests go, below the sink's URL.
    fn path(&self) -> &'static str;

    /// The headers of a request, that of its type among them.
    fn headers(&self) -> &'static [(&'static str, &'static str)];

    /// A body as it is sent.
    fn framed(&self, body: Vec<u8>) -> Vec<u8> {
        body
    }

    /// Whether requests are calls of gRPC: by HTTP/2, with a status behind the answer.
    fn is_grpc(&self) -> bool {
        false
    }
}
