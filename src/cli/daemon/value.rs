//! Values in daemon settings: URLs, pairs, sizes.

use crate::daemon::client::is_url;
use crate::failure::Failure;

/// The value of a setting that has a default.
pub(super) fn given<T>(name: &str, value: Option<T>) -> Result<T, Failure> {
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
    const UNITS: [(&str, u64); 6] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
        .unwrap_or((text, 1));
    let bytes = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0);
    bytes.ok_or_else(|| Failure::usage(format!("{name} {text}: expected a size, such as 128MiB or 1GiB")))
}
