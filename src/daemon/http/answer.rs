//! HTTP responses with the common headers.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode, header};

pub(super) type HttpResponse = Response<Full<Bytes>>;

/// A response with one sentence as plain text.
pub(super) fn say(status: StatusCode, text: &str) -> HttpResponse {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

pub(super) fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    // A flame graph has inline scripts and needs no other source. Names in it come from tenants, so it runs in a
    // sandbox.
    let policy =
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; sandbox allow-scripts";
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(policy));
    answer
}
