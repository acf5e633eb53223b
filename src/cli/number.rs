//! Numbers on the command line. Text that is not a number gives an error that says what is expected.

use std::str::FromStr;

type Parsed<T> = Result<T, String>;

fn number<T: FromStr>(text: &str, expected: &str) -> Parsed<T> {
    text.trim().parse().map_err(|_| format!("expected {expected}"))
}

pub(super) fn pid(text: &str) -> Parsed<u32> {
    number(text, "a process id, such as 4711")
}

pub(super) fn tid(text: &str) -> Parsed<u32> {
    number(text, "a thread id, such as 4711")
}

pub(super) fn rate(text: &str) -> Parsed<u64> {
    number(text, "a whole number of samples a second, such as 99")
}

pub(super) fn period(text: &str) -> Parsed<u64> {
    number(text, "a whole number of nanoseconds or events, such as 10000000")
}

pub(super) fn width(text: &str) -> Parsed<f64> {
    number(text, "a number of pixels, such as 0.5")
}

pub(super) fn daemon_rate(text: &str) -> Parsed<f64> {
    number(text, "a number of samples a second, such as 19")
}

pub(super) fn percent(text: &str) -> Parsed<f64> {
    number(text, "a percentage without its sign, such as 0.5")
}

pub(super) fn profiles(text: &str) -> Parsed<usize> {
    number(text, "a whole number of profiles, such as 2")
}
