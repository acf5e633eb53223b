//! HTTP responses with the common headers.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

pub(crate) type HttpResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The policy of all responses but the page: a flame graph has inline scripts and needs no other source. Names in it come
/// from tenants, so it runs in a sandbox.
const POLICY: &str =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; sandbox allow-scripts";

/// A response with one sentence as plain text.
pub(crate) fn text_response(status: StatusCode, text: &str) -> HttpResponse {
    full_response(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

pub(crate) fn full_response(status: StatusCode, kind: &'static str, body: Bytes) -> HttpResponse {
    with_body(status, kind, Full::new(body))
}

/// A response whose body may still grow.
pub(crate) fn with_body(
    status: StatusCode,
    kind: &'static str,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> HttpResponse {
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
