//! The result of an attempt to push a request.

use std::time::Duration;

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

/// Interprets a response. A request is refused only if it will fail again, because it is invalid or too large. Other
/// failures are retried, even some that OTLP calls permanent: for example, an operator may renew an expired token.
pub(super) fn judge(answer: &SinkResponse, grpc: bool) -> DeliveryOutcome {
    let SinkResponse { status, grpc_status, retry_after } = answer;
    if grpc && status.is_success() {
        return match (grpc_status.as_deref(), retry_after) {
            (Some("0"), _) => DeliveryOutcome::Sent,
            // INVALID_ARGUMENT, UNIMPLEMENTED, and RESOURCE_EXHAUSTED without a retry delay: servers use it to refuse a
            // message that is too large.
            (Some(code @ ("3" | "12")), _) | (Some(code @ "8"), None) => {
                DeliveryOutcome::Refused(format!("gRPC status {code}"))
            }
            (code, _) => {
                DeliveryOutcome::Failed(format!("gRPC status {}", code.unwrap_or("missing")), *retry_after)
            }
        };
    }
    match status.as_u16() {
        200..=299 => DeliveryOutcome::Sent,
        400 | 411 | 413 | 415 | 422 => DeliveryOutcome::Refused(format!("HTTP status {status}")),
        _ => DeliveryOutcome::Failed(format!("HTTP status {status}"), *retry_after),
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    fn judged(
        status: u16,
        grpc_status: Option<&str>,
        retry_after: Option<Duration>,
        grpc: bool,
    ) -> DeliveryOutcome {
        let status = StatusCode::from_u16(status).unwrap();
        judge(&SinkResponse { status, grpc_status: grpc_status.map(str::to_owned), retry_after }, grpc)
    }

    #[test]
    fn what_was_taken_and_what_never_will_be() {
        assert_eq!(judged(200, None, None, false), DeliveryOutcome::Sent);
        assert_eq!(judged(200, Some("0"), None, true), DeliveryOutcome::Sent);
        for (status, grpc) in
            [(400, None), (413, None), (200, Some("3")), (200, Some("12")), (200, Some("8"))]
        {
            let outcome = judged(status, grpc, None, grpc.is_some());
            assert!(matches!(outcome, DeliveryOutcome::Refused(_)), "{status} {grpc:?}: {outcome:?}");
        }
    }

    #[test]
    fn what_may_be_taken_another_time() {
        for (status, grpc, of_grpc) in [
            (503, None, false),
            (401, None, false),
            (429, None, false),
            (200, Some("14"), true),
            // OTLP lists OUT_OF_RANGE and DATA_LOSS as retryable.
            (200, Some("11"), true),
            (200, Some("15"), true),
            (200, Some("8"), true),
            (200, None, true),
        ] {
            let wait = Some(Duration::from_secs(7));
            let outcome = judged(status, grpc, wait, of_grpc);
            assert!(
                matches!(outcome, DeliveryOutcome::Failed(_, told) if told == wait),
                "{status} {grpc:?}: {outcome:?}"
            );
        }
    }
}
