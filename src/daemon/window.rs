//! A window that is over: its time, and its profile as it is kept and sent.

use std::time::{Duration, Instant};

use crate::output::pprof;
use crate::profile::Profile;

/// A window, packed.
#[derive(Clone, Debug)]
pub(super) struct PackedWindow {
    pub(super) span: Span,
    /// When it ended, by a clock that nobody sets.
    pub(super) ended: Instant,
    /// Compressed pprof.
    pub(super) bytes: Vec<u8>,
}

/// When a window was, by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    /// Milliseconds since 1970.
    pub(super) start_ms: u64,
    pub(super) length_ms: u64,
}

impl PackedWindow {
    /// Packs the profile of a window that ended at this moment.
    ///
    /// # Errors
    /// What the encoder says.
    pub(super) fn pack(profile: &Profile, ended: Instant) -> anyhow::Result<PackedWindow> {
        let mut bytes = Vec::new();
        pprof::write(&profile.views(), &mut bytes)?;
        let span = Span {
            start_ms: profile.span.start_unix_ns / 1_000_000,
            length_ms: profile.span.duration_ns / 1_000_000,
        };
        Ok(PackedWindow { span, ended, bytes })
    }
}

impl Span {
    pub(super) fn end_ms(self) -> u64 {
        self.start_ms.saturating_add(self.length_ms)
    }

    /// Whether any moment of it lies between two times.
    pub(super) fn touches(self, from_ms: u64, to_ms: u64) -> bool {
        self.start_ms < to_ms && self.end_ms() > from_ms
    }

    /// How old it is.
    pub(super) fn age(self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.end_ms()))
    }
}

/// Milliseconds since 1970, now.
pub(super) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}
