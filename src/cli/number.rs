//! Numbers on the command line. Text that is not a number gives an error that says what is expected.

use std::str::FromStr;

use crate::capture::MAX_INTERVAL;

type ParseResult<T> = Result<T, String>;

fn number<T: FromStr>(text: &str, expected: &str) -> ParseResult<T> {
    text.trim().parse().map_err(|_| format!("expected {expected}"))
}

pub(super) fn pid(text: &str) -> ParseResult<u32> {
    number(text, "a process id, such as 4711")
}

pub(super) fn tid(text: &str) -> ParseResult<u32> {
    number(text, "a thread id, such as 4711")
}

pub(super) fn rate(text: &str) -> ParseResult<u64> {
    number(text, "a whole number of samples a second, such as 99")
}

pub(super) fn period(text: &str) -> ParseResult<u64> {
    number(text, "a whole number of nanoseconds or events, such as 10000000")
}

/// Bytes between two samples of allocations.
pub(super) fn alloc_interval(text: &str) -> ParseResult<u64> {
    let bytes = size(text).filter(|bytes| (1..=MAX_INTERVAL).contains(bytes));
    bytes.ok_or_else(|| "expected a size up to 4GiB, such as 64KiB or 2MiB".to_owned())
}

/// A size: `128MiB`, `1GiB`, `500MB`, or a number of bytes.
pub(super) fn size(text: &str) -> Option<u64> {
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
    number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0)
}

pub(super) fn width(text: &str) -> ParseResult<f64> {
    number(text, "a number of pixels, such as 0.5")
}

pub(super) fn daemon_rate(text: &str) -> ParseResult<f64> {
    number(text, "a number of samples a second, such as 19")
}

pub(super) fn percent(text: &str) -> ParseResult<f64> {
    number(text, "a percentage without its sign, such as 0.5")
}

pub(super) fn profiles(text: &str) -> ParseResult<usize> {
    number(text, "a whole number of profiles, such as 2")
}
