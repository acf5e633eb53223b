//! The page for browsers, without data: its script reads the live feed.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::{self, HeaderName, HeaderValue};
use serde::Serialize;

use super::response::{HttpResponse, full_response, text_response};
use crate::output::page;

/// What the page's script must know about the server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PageServer {
    /// Who serves the page.
    pub(crate) of: ServedBy,
    /// Length of a window in milliseconds.
    pub(crate) window_ms: u64,
    /// Whether the page needs a token for its data.
    pub(crate) token: bool,
}

/// Who serves the page.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServedBy {
    /// A run with `--serve`.
    Run,
    /// The daemon.
    Daemon,
}

/// Only the own script and style run, and they reach only this server.
static POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let policy = format!("{}; connect-src 'self'; frame-ancestors 'none'", page::policy());
    HeaderValue::try_from(policy).ok()
});

/// The page. It has no data, so that everyone who reaches the server may have it.
pub(crate) fn respond(server: &PageServer) -> HttpResponse {
    let made = serde_json::to_string(&serde_json::json!({ "live": server }));
    let (Ok(settings), Some(policy)) = (made, &*POLICY) else {
        return text_response(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made");
    };
    let mut response =
        full_response(StatusCode::OK, "text/html; charset=utf-8", page::shell(&settings).into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    response
}
