//! A finished window: its time, and its packed profile as it is stored and served.

use std::time::{Duration, Instant};

use crate::output::pprof;
use crate::profile::Profile;

#[derive(Clone, Debug)]
pub(super) struct PackedWindow {
    pub(super) span: WindowSpan,
    /// When the window ended, by the monotonic clock.
    pub(super) ended: Instant,
    /// The profile as a pprof file, compressed by gzip.
    pub(super) bytes: Vec<u8>,
}

/// The time span of a window, by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WindowSpan {
    /// Begin of the window, in milliseconds since 1970.
    pub(super) start_ms: u64,
    pub(super) length_ms: u64,
}

impl PackedWindow {
    /// Packs the profile of a window that ended at `ended`.
    ///
    /// # Errors
    /// When the profile cannot be written as pprof, for example because it has no event.
    pub(super) fn pack(profile: &Profile, ended: Instant) -> anyhow::Result<PackedWindow> {
        let mut bytes = Vec::new();
        pprof::write(&profile.views(), &mut bytes)?;
        let span = WindowSpan {
            start_ms: profile.span.start_unix_ns / 1_000_000,
            length_ms: profile.span.duration_ns / 1_000_000,
        };
        Ok(PackedWindow { span, ended, bytes })
    }
}

impl WindowSpan {
    pub(super) fn end_ms(self) -> u64 {
        self.start_ms.saturating_add(self.length_ms)
    }

    /// Whether the span overlaps the given one.
    pub(super) fn overlaps(self, from_ms: u64, to_ms: u64) -> bool {
        self.start_ms < to_ms && self.end_ms() > from_ms
    }

    pub(super) fn age(self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.end_ms()))
    }
}

/// The current time in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}
