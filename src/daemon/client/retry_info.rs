//! The retry delay in a gRPC status: `google.rpc.RetryInfo` among its details.

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message;

/// Accepts base64 with and without padding: gRPC headers whose names end with `-bin` have either (grpc/grpc,
/// `doc/PROTOCOL-HTTP2.md`).
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The type URL of `RetryInfo` in the details.
const TYPE: &str = "type.googleapis.com/google.rpc.RetryInfo";

// The messages below have only the fields that are read here.

/// `google.rpc.Status` (google/rpc/status.proto).
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any` (google/protobuf/any.proto).
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo` (google/rpc/error_details.proto).
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration` (google/protobuf/duration.proto).
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Parses the delay before a retry from the header or trailer `grpc-status-details-bin`. `None` without `RetryInfo`:
/// gRPC status 8 then means that the request is too large (`push/outcome.rs`). A `RetryInfo` without a delay is zero.
pub(super) fn delay(details: &str) -> Option<Duration> {
    let status = RpcStatus::decode(ANY_PADDING.decode(details).ok()?.as_slice()).ok()?;
    let info = status.details.iter().find(|any| any.type_url == TYPE)?;
    let Delay { seconds, nanos } =
        RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    let nanos = Duration::from_nanos(nanos.try_into().unwrap_or(0));
    Duration::from_secs(seconds.try_into().unwrap_or(0)).checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(type_url: &str, retry_delay: Option<Delay>) -> String {
        let any = |type_url: &str, value| Any { type_url: type_url.to_owned(), value };
        let other = any("type.googleapis.com/google.rpc.DebugInfo", vec![0xff]);
        let info = any(type_url, RetryInfo { retry_delay }.encode_to_vec());
        ANY_PADDING.encode(RpcStatus { details: vec![other, info] }.encode_to_vec())
    }

    #[test]
    fn a_delay_is_read_and_nonsense_is_none() {
        let of = |seconds, nanos| delay(&details(TYPE, Some(Delay { seconds, nanos })));
        assert_eq!(of(90, 500_000_000), Some(Duration::from_millis(90_500)));
        assert_eq!(of(-1, -1), Some(Duration::ZERO));
        assert_eq!(of(i64::MAX, i32::MAX).map(|delay| delay.as_secs() > 1 << 62), Some(true));
        assert_eq!(
            delay(&details(TYPE, None)),
            Some(Duration::ZERO),
            "it may come again, and when is not said"
        );
        assert_eq!(delay(&details("another", Some(Delay { seconds: 1, nanos: 0 }))), None);
        for nonsense in ["", "!", "////", "Gg=="] {
            assert_eq!(delay(nonsense), None, "{nonsense}");
        }
    }

    /// Status 8, "busy", with a delay of 30 s; assembled by hand from the format.
    #[test]
    fn what_a_server_writes_is_read() {
        let status = "CAgSBGJ1c3kaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIHg";
        assert_eq!(delay(status), Some(Duration::from_secs(30)));
    }
}
