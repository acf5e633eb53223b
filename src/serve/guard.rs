//! Decides who may read profiles. With a token: clients that send it. Without a token: programs of this host, but no web
//! site that a browser of this host shows.

use std::path::{Path, PathBuf};

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{StatusCode, Uri};

use super::response::{HttpResponse, text_response};
use super::secret::secret;

/// Browsers say by it which kind of page made a request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) struct AccessCheck {
    token_file: Option<PathBuf>,
}

impl AccessCheck {
    pub(crate) fn new(token_file: Option<PathBuf>) -> AccessCheck {
        AccessCheck { token_file }
    }

    pub(crate) fn needs_token(&self) -> bool {
        self.token_file.is_some()
    }

    /// The refusal of a request for profiles, if it must not be answered.
    pub(crate) fn refuse(&self, headers: &HeaderMap) -> Option<HttpResponse> {
        let Some(file) = &self.token_file else {
            return foreign(headers).map(|why| text_response(StatusCode::FORBIDDEN, why));
        };
        refuse_token(file, headers)
    }
}

/// The refusal if the request has no valid token.
fn refuse_token(file: &Path, headers: &HeaderMap) -> Option<HttpResponse> {
    let Ok(token) = secret(file) else {
        log::warn!("HTTP: the token file cannot be read; all requests for profiles are refused");
        return Some(text_response(StatusCode::FORBIDDEN, "there is no token that could be right"));
    };
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    if given.is_some_and(|given| equal(given.as_bytes(), token.as_bytes())) {
        return None;
    }
    let mut answer = text_response(StatusCode::UNAUTHORIZED, "this needs the token: Authorization: Bearer …");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Some(answer)
}

/// Compares in constant time, which does not reveal the position of the first difference.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y)) == 0
}

/// Why a request comes from a web site, if it does. A site can make a browser of this host connect to a local address: by a
/// request from its own page, or by a name of its own that resolves to the local address (DNS rebinding).
fn foreign(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(&HOST).unwrap_or_default();
    if !is_local_name(host) {
        return Some(
            "without a token, requests need a Host that is an IP address, localhost or a name without a dot",
        );
    }
    let own = |origin: &str| origin.split_once("://").is_some_and(|(_, from)| from == host);
    let is_foreign_origin = text(&ORIGIN).is_some_and(|origin| !own(origin));
    let is_foreign_site = text(&FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    (is_foreign_origin || is_foreign_site).then_some("another web site must not read profiles")
}

/// Whether no public DNS name has this form.
fn is_local_name(host: &str) -> bool {
    if host.is_empty() {
        return true;
    }
    let Some(authority) = host.parse::<Uri>().ok().and_then(|uri| uri.into_parts().authority) else {
        return false;
    };
    let name = authority.host();
    name.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok() || !name.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(guard: &AccessCheck, headers: &[(&str, &str)]) -> u16 {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        guard.refuse(&headers.collect()).map_or(200, |refusal| refusal.status().as_u16())
    }

    #[test]
    fn web_sites_are_refused_and_local_programs_are_not() {
        let guard = AccessCheck::new(None);
        for host in ["127.0.0.1:9919", "[::1]:9919", "localhost:9919", "localhost", "x", "10.0.0.7", ""] {
            assert_eq!(status(&guard, &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example:9919", "localhost.evil:80", "a b", "/", "evil.", "x@y.z"]
        {
            assert_eq!(status(&guard, &[("host", host)]), 403, "{host}");
        }
        let local = ("host", "127.0.0.1:9919");
        for (name, value, wanted) in [
            ("origin", "http://127.0.0.1:9919", 200),
            ("origin", "http://127.0.0.1:80", 403),
            ("origin", "https://evil.example", 403),
            ("origin", "null", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            assert_eq!(status(&guard, &[local, (name, value)]), wanted, "{name}: {value}");
        }
    }

    #[test]
    fn with_a_token_only_the_token_counts() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let guard = AccessCheck::new(Some(file.clone()));
        let host = ("host", "profiles.example");
        assert_eq!(status(&guard, &[host, ("authorization", "Bearer right")]), 403, "no file");
        std::fs::write(&file, "right\n").unwrap();
        assert_eq!(status(&guard, &[host, ("authorization", "Bearer right")]), 200);
        for wrong in ["Bearer wrong", "Bearer righ", "Bearer ", "Basic right", "right"] {
            assert_eq!(status(&guard, &[host, ("authorization", wrong)]), 401, "{wrong}");
        }
        assert_eq!(status(&guard, &[("host", "127.0.0.1")]), 401);
    }
}
