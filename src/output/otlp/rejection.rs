//! Profiles that a Collector rejected, although it accepted their request.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message;

use crate::profile::frame::clean;

/// Maximum characters of the Collector's reason.
const MAX_REASON: usize = 512;

/// What a Collector reports about a request that it accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Number of rejected profiles. 0: the Collector accepted all, and `reason` is a warning.
    pub profiles: u64,
    /// The Collector's reason or warning, without control characters.
    pub reason: String,
}

impl Rejection {
    /// Reads the response to an export request; `None` if the Collector rejected nothing and warns of nothing.
    #[must_use]
    pub fn read(response: &[u8]) -> Option<Rejection> {
        let partial = ExportProfilesServiceResponse::decode(response).ok()?.partial_success?;
        let profiles = u64::try_from(partial.rejected_profiles).unwrap_or(0);
        let reason = clean(partial.error_message.as_bytes(), MAX_REASON);
        (profiles > 0 || !reason.is_empty()).then_some(Rejection { profiles, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_collector_rejects_is_a_rejection() {
        // Assembled by hand from collector/profiles/v1development: field 1 has the fields 1, a number, and 2, a text.
        let some = b"\x0a\x08\x08\x03\x12\x04f\nll";
        assert_eq!(Rejection::read(some), Some(Rejection { profiles: 3, reason: "f?ll".to_owned() }));
        let warning = b"\x0a\x05\x12\x03old";
        assert_eq!(Rejection::read(warning), Some(Rejection { profiles: 0, reason: "old".to_owned() }));
        for nothing in [b"".as_slice(), b"\x0a\x00", b"\xff\xff", b"<html>"] {
            assert_eq!(Rejection::read(nothing), None, "{nothing:?}");
        }
    }
}
