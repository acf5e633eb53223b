//! The header `Retry-After` (RFC 9110, 10.2.3): seconds, or a date.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

/// The pause that a server asks for. A date counts from the server's own `Date`, if the response has one, so that
/// clocks that differ do no harm. A date that is over is no pause.
pub(super) fn pause(value: &str, date: Option<&str>) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = timestamp(value)?;
    let now = date.and_then(timestamp).unwrap_or_else(Timestamp::now);
    Some(until.duration_since(now).try_into().unwrap_or_default())
}

/// HTTP's preferred format of dates is that of mail (RFC 9110, 5.6.7).
fn timestamp(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_seconds_or_ends_at_a_date() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        for (value, seconds) in [
            ("120", Some(120)),
            ("0", Some(0)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", Some(120)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(pause(value, date), seconds.map(Duration::from_secs), "{value}");
        }
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:37 GMT", None), Some(Duration::ZERO), "it is long over");
        assert!(pause("Fri, 01 Jan 2100 00:00:00 GMT", None).unwrap() > Duration::from_secs(1 << 30));
    }
}
