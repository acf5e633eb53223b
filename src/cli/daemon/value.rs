//! Values in daemon settings: URLs, pairs, sizes.

use crate::cli::number;
use crate::daemon::client::is_url;
use crate::failure::Failure;

/// The value of a setting that has a default.
pub(super) fn require<T>(name: &str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::usage(format!("{name}: set a value")))
}

/// Checks the URL of the setting `name`.
pub(super) fn valid_url(name: &str, url: &str) -> Result<String, Failure> {
    if is_url(url) {
        return Ok(url.to_owned());
    }
    Err(Failure::usage(format!("{name} {url}: expected a URL, such as https://host:port")))
}

/// Splits `NAME=VALUE` at the first `=`; NAME must not be empty.
pub(super) fn pair(name: &str, text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("{name} {text}: expected NAME=VALUE"))),
    }
}

/// Reads `128MiB`, `1GiB`, `500MB`, or a number of bytes.
pub(super) fn size(name: &str, text: &str) -> Result<u64, Failure> {
    let bytes = number::size(text);
    bytes.ok_or_else(|| Failure::usage(format!("{name} {text}: expected a size, such as 128MiB or 1GiB")))
}
