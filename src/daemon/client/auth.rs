//! Credentials for HTTP requests: tokens and passwords from files. The files are read for each request, so that secrets
//! can be replaced.

use std::path::PathBuf;

use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::serve::secret;

/// The credentials of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// Requests have no header `Authorization`.
    #[default]
    None,
    /// The bearer token in a file.
    Bearer(PathBuf),
    /// A user name, and the password in a file.
    Basic(String, PathBuf),
    /// Headers with credentials, from a variable; values are never shown.
    Headers(HeaderMap),
}

impl Auth {
    /// Headers, each as `NAME=VALUE`. Their values are never shown.
    ///
    /// # Errors
    /// The name of the header that HTTP does not allow.
    pub fn with_headers(pairs: &[String]) -> Result<Auth, String> {
        let mut headers = HeaderMap::new();
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let parsed = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
            let (Ok(key), Ok(mut value)) = parsed else { return Err(name.to_owned()) };
            value.set_sensitive(true);
            headers.append(key, value);
        }
        Ok(Auth::Headers(headers))
    }

    /// The headers with the credentials, if there are credentials.
    ///
    /// # Errors
    /// A file cannot be read. The error never contains the secret.
    pub(super) fn headers(&self) -> anyhow::Result<HeaderMap> {
        let value = match self {
            Auth::None => return Ok(HeaderMap::new()),
            Auth::Headers(headers) => return Ok(headers.clone()),
            Auth::Bearer(file) => format!("Bearer {}", secret(file)?),
            Auth::Basic(user, file) => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{}", secret(file)?)))
            }
        };
        let mut value = HeaderValue::from_str(&value)
            .context("the token or password has characters that HTTP headers do not allow")?;
        value.set_sensitive(true);
        Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
    }
}

#[cfg(test)]
mod tests {
    use super::Auth;

    #[test]
    fn secrets_are_read_anew_and_never_shown() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("token");
        let auth = Auth::Bearer(file.clone());
        assert!(auth.headers().unwrap_err().to_string().contains("token"));
        for token in ["one\n", "two\r\n"] {
            std::fs::write(&file, token).unwrap();
            let header = &auth.headers().unwrap()["authorization"];
            assert_eq!(header.to_str().unwrap(), format!("Bearer {}", token.trim_end()));
            assert!(!format!("{header:?}").contains(token.trim_end()));
        }
        std::fs::write(&file, "\n").unwrap();
        assert!(auth.headers().is_err());
    }

    #[test]
    fn headers_are_checked_and_never_shown() {
        let auth = Auth::with_headers(&["x-scope=a=b".to_owned(), "x-token=secret".to_owned()]).unwrap();
        assert_eq!(auth.headers().unwrap()["x-scope"], "a=b");
        assert!(!format!("{auth:?}").contains("secret"), "{auth:?}");
        for bad in ["a b=secret", "a=secret\n"] {
            assert_eq!(Auth::with_headers(&[bad.to_owned()]), Err(bad.split('=').next().unwrap().to_owned()));
        }
    }
}
