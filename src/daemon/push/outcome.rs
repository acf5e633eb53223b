//! The result of an attempt to push a request.

use std::time::Duration;

use super::push_protocol::PushProtocol;
use crate::daemon::client::SinkResponse;

/// The result of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeliveryOutcome {
    Sent,
    /// The sink will never accept the request.
    Refused(String),
    /// The sink did not accept the request this time; the duration is the pause that it asked for.
    Failed(String, Option<Duration>),
    /// The sink did not answer, so the failure does not count against the request.
    Unreached(String),
}

/// Interprets a response. A failure counts as a refusal if the same request would fail again.
pub(super) fn classify(response: &SinkResponse, implementation: &dyn PushProtocol) -> DeliveryOutcome {
    let SinkResponse { status, grpc_status, retry_after, .. } = response;
    if !status.is_success() {
        let why = format!("HTTP status {status}");
        let retry = implementation.is_retryable(status.as_u16());
        return if retry {
            DeliveryOutcome::Failed(why, *retry_after)
        } else {
            DeliveryOutcome::Refused(why)
        };
    }
    match grpc_status.as_deref() {
        _ if !implementation.is_grpc() => DeliveryOutcome::Sent,
        Some("0") => DeliveryOutcome::Sent,
        Some(code) if is_retryable(code, retry_after.is_some()) => {
            DeliveryOutcome::Failed(format!("gRPC status {code}"), *retry_after)
        }
        Some(code) => DeliveryOutcome::Refused(format!("gRPC status {code}")),
        // The connection ended before the response did.
        None => DeliveryOutcome::Failed("gRPC status missing".to_owned(), *retry_after),
    }
}

/// Whether OTLP/gRPC lists a status as retryable: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE,
/// DATA_LOSS, and RESOURCE_EXHAUSTED only with a retry delay, because servers refuse too large messages by it.
/// PERMISSION_DENIED and UNAUTHENTICATED are retried all the same: an operator may renew an expired token.
fn is_retryable(grpc_status: &str, has_retry_delay: bool) -> bool {
    match grpc_status {
        "1" | "4" | "10" | "11" | "14" | "15" => true,
        "8" => has_retry_delay,
        "7" | "16" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use hyper::body::Bytes;

    use super::super::registry::Protocol;
    use super::*;

    const WAIT: Duration = Duration::from_secs(7);

    fn judged(protocol: Protocol, status: u16, grpc_status: Option<&str>, asks: bool) -> DeliveryOutcome {
        let response = SinkResponse {
            status: StatusCode::from_u16(status).unwrap(),
            grpc_status: grpc_status.map(str::to_owned),
            retry_after: asks.then_some(WAIT),
            body: Bytes::new(),
        };
        classify(&response, protocol.implementation())
    }

    /// The tables of the OTLP specification, and the two exceptions for credentials.
    #[test]
    fn statuses_are_retried_as_otlp_lists_them() {
        for status in 400..600 {
            let retried = [401, 403, 429, 502, 503, 504].contains(&status);
            for protocol in [Protocol::OtlpHttp, Protocol::OtlpGrpc] {
                let outcome = judged(protocol, status, None, true);
                let failed = matches!(outcome, DeliveryOutcome::Failed(_, shown) if shown == Some(WAIT));
                assert!(failed == retried, "{status}: {outcome:?}");
                assert!(failed || matches!(outcome, DeliveryOutcome::Refused(_)), "{status}: {outcome:?}");
            }
        }
        for status in 1..20 {
            let outcome = |asks| judged(Protocol::OtlpGrpc, 200, Some(&status.to_string()), asks);
            let (calm, asked) = (outcome(false), outcome(true));
            let retried = [1, 4, 7, 10, 11, 14, 15, 16].contains(&status);
            assert_eq!(matches!(calm, DeliveryOutcome::Failed(_, None)), retried, "{status}: {calm:?}");
            assert_eq!(matches!(asked, DeliveryOutcome::Failed(..)), retried || status == 8, "{status}");
        }
        assert!(matches!(judged(Protocol::OtlpGrpc, 200, None, false), DeliveryOutcome::Failed(..)));
        assert_eq!(judged(Protocol::OtlpGrpc, 200, Some("0"), false), DeliveryOutcome::Sent);
        assert_eq!(judged(Protocol::OtlpHttp, 200, None, false), DeliveryOutcome::Sent);
    }

    #[test]
    fn pyroscope_refuses_what_is_invalid_or_too_large() {
        for (status, retried) in
            [(400, false), (413, false), (422, false), (401, true), (429, true), (500, true)]
        {
            let outcome = judged(Protocol::Pyroscope, status, None, false);
            assert_eq!(matches!(outcome, DeliveryOutcome::Failed(..)), retried, "{status}: {outcome:?}");
        }
        assert_eq!(judged(Protocol::Pyroscope, 200, None, false), DeliveryOutcome::Sent);
    }
}
