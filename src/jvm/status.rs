//! The parts of `/proc/PID/status` and `/proc/PID/timens_offsets` that attaching needs.

/// Bits of SIGQUIT and SIGTERM in the signal masks: signals 3 and 15.
const SIGQUIT_BIT: u64 = 1 << 2;
const SIGTERM_BIT: u64 = 1 << 14;

/// Whether a process has a handler for SIGQUIT, by the text of `/proc/PID/status`. Without a handler SIGQUIT kills it.
#[must_use]
pub(super) fn catches_sigquit(status: &[u8]) -> bool {
    signals(status).is_some_and(|masks| masks.caught & !masks.ignored & SIGQUIT_BIT != 0)
}

/// Whether a JVM runs Java by now: attaching is possible and its tables are complete. Since JDK 19 and 17.0.3 SIGQUIT
/// is caught long before that (JDK-8279124, JDK-8292695). On all JDKs `java.lang.Terminator` sets a handler for
/// SIGTERM, unless SIGTERM was ignored from the start. Always false with `-Xrs`.
#[must_use]
pub(super) fn runs_java(status: &[u8]) -> bool {
    catches_sigquit(status)
        && signals(status).is_some_and(|masks| (masks.caught | masks.ignored) & SIGTERM_BIT != 0)
}

/// What a process does with signals, one bit a signal.
struct SignalMasks {
    caught: u64,
    ignored: u64,
}

fn signals(status: &[u8]) -> Option<SignalMasks> {
    let mask = |name: &[u8]| {
        let line = status.split(|&b| b == b'\n').skip(1).find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(std::str::from_utf8(line.trim_ascii()).ok()?, 16).ok()
    };
    Some(SignalMasks { caught: mask(b"SigCgt:")?, ignored: mask(b"SigIgn:")? })
}

/// How far a process's `CLOCK_MONOTONIC` is ahead of the host's, nanoseconds, by the text of `/proc/PID/timens_offsets`
/// (time_namespaces(7)). 0 where there are no time namespaces.
#[must_use]
pub(super) fn monotonic_offset(offsets: &[u8]) -> i64 {
    let read = || {
        let text = std::str::from_utf8(offsets).ok()?;
        // Linux before 5.7 wrote the clock's number, which is 1.
        let line = text.lines().find(|l| l.starts_with("monotonic") || l.starts_with("1 "))?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let seconds: i64 = words.next()?.parse().ok()?;
        let nanoseconds: i64 = words.next()?.parse().ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
    };
    read().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigquit_is_caught_only_if_the_mask_says_so() {
        let status = |caught: &str, ignored: &str| {
            format!("Name:\tSigCgt:\t4\nSigBlk:\t0\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let catches = |caught, ignored| catches_sigquit(status(caught, ignored).as_bytes());
        assert!(catches("2000000181005ccf", "0000000000000000"));
        assert!(!catches("0000000000000000", "0000000000000000"));
        assert!(!catches("fffffffffffffffb", "0000000000000000"));
        assert!(!catches("0000000000000004", "0000000000000004"));
        assert!(!catches("nonsense", "0"));
        assert!(!catches_sigquit(b"Name:\tSigCgt:\t4\n"), "the name is no mask");
        assert!(!catches_sigquit(b""));
    }

    #[test]
    fn a_jvm_that_catches_sigquit_alone_is_still_starting() {
        let runs = |caught: &str, ignored: &str| {
            runs_java(format!("Name:\tjava\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n").as_bytes())
        };
        assert!(runs("2000000181005ccf", "0000000000000000"));
        assert!(!runs("0000000101001ccc", "0000000080000000"), "JDK 25, before it has an interpreter");
        assert!(runs("2000000181001ccc", "0000000000004003"), "nohup and more");
        assert!(!runs("0000000000004000", "0000000000000000"), "SIGTERM alone");
        assert!(!runs_java(b""));
    }

    #[test]
    fn clock_offsets_are_read() {
        assert_eq!(monotonic_offset(b"monotonic           2         5\nboottime   7  0\n"), 2_000_000_005);
        assert_eq!(monotonic_offset(b"monotonic          -1 999999999\nboottime   0  0\n"), -1);
        assert_eq!(monotonic_offset(b"monotonic 99999999999999 0\n"), 0);
        assert_eq!(monotonic_offset(b""), 0);
    }
}
