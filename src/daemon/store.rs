//! The windows of the last hours on disk: one file each, limited by size and age.
//!
//! Every file is complete or absent, even after a loss of power. Its name contains only the window's time, and no text
//! that a tenant chose.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::directory::{self, StoredFile, is_full};
use super::window::{PackedWindow, WindowSpan};
use crate::output::file;

const EXTENSION: &str = ".pb.gz";

/// Limits on the stored windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Total bytes of all files.
    pub bytes: u64,
    /// Maximum age, counted from the end of a window.
    pub age: Duration,
}

/// Totals of the stored windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreTotals {
    pub(super) windows: usize,
    pub(super) bytes: u64,
    /// Windows that were removed because they were too old or space was needed.
    pub(super) removed: u64,
    /// Windows that could not be written.
    pub(super) lost: u64,
}

/// A window of the store, and the size of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredWindow {
    pub(super) span: WindowSpan,
    pub(super) bytes: u64,
}

#[derive(Debug, Default)]
struct WindowIndex {
    /// By start, in milliseconds.
    windows: BTreeMap<u64, StoredWindow>,
    bytes: u64,
    removed: u64,
    lost: u64,
    /// The number of the window that was added last.
    newest: u64,
}

/// The windows since a time.
#[derive(Debug, Default)]
pub(super) struct LatestWindows {
    /// The oldest first.
    pub(super) spans: Vec<WindowSpan>,
    /// The number of the newest window of the store; 0: there is none since the daemon's start.
    pub(super) newest: u64,
}

/// A directory of windows. One thread adds to it; all threads may read.
#[derive(Debug)]
pub(super) struct WindowStore {
    directory: PathBuf,
    limits: Mutex<StoreLimits>,
    index: Mutex<WindowIndex>,
}

impl WindowStore {
    /// Opens the directory, creates it if necessary, and removes temporary files of a killed daemon.
    ///
    /// # Errors
    /// One sentence: the directory and what is wrong with it.
    pub(super) fn open(directory: &Path, limits: StoreLimits) -> anyhow::Result<WindowStore> {
        let mut index = WindowIndex::default();
        for StoredFile { stem, bytes } in directory::files(directory, EXTENSION, "windows")? {
            if let Some(span) = parse_name(&stem) {
                index.insert(span, bytes);
            }
        }
        Ok(WindowStore {
            directory: directory.to_owned(),
            limits: Mutex::new(limits),
            index: Mutex::new(index),
        })
    }

    /// Sets other limits, which hold from the next window on.
    pub(super) fn set_limits(&self, limits: StoreLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Stores a window, which is the `number`th of this daemon. Removes the oldest windows if the disk is full.
    ///
    /// # Errors
    /// The window cannot be written, even after all others were removed.
    pub(super) fn add(&self, window: &PackedWindow, number: u64, now_ms: u64) -> anyhow::Result<()> {
        let mut span = window.span;
        // The clock may have been set back: an existing window must not be overwritten.
        while self.with(|index| index.windows.contains_key(&span.start_ms)) {
            span.start_ms += 1;
        }
        let written = loop {
            let path = self.path(span);
            match file::replace_synced(&path, |out| Ok(out.write_all(&window.bytes)?)) {
                Err(error) if is_full(&error) && self.remove(|index| index.oldest(now_ms, None)) => {}
                written => break written,
            }
        };
        match written {
            Ok(()) => self.with(|index| {
                index.insert(span, window.bytes.len() as u64);
                index.newest = number;
            }),
            Err(error) => {
                self.count_lost();
                return Err(error);
            }
        }
        self.remove_expired(now_ms, span);
        Ok(())
    }

    /// Counts a window that could not be written.
    pub(super) fn count_lost(&self) {
        self.with(|index| index.lost += 1);
    }

    /// Removes windows beyond the limits of age and size; the one that was just added stays.
    fn remove_expired(&self, now_ms: u64, added: WindowSpan) {
        let limits = *self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        while self.remove(|index| index.expired(limits, now_ms, added)) {}
    }

    /// Removes the window that `find` returns. Returns whether there was one.
    fn remove(&self, find: impl FnOnce(&WindowIndex) -> Option<WindowSpan>) -> bool {
        let removed = self.with(|index| {
            let span = find(index)?;
            index.bytes -= index.windows.remove(&span.start_ms)?.bytes;
            index.removed += 1;
            Some(span)
        });
        let Some(span) = removed else { return false };
        // The file may be gone already. If it stays, the next start of the daemon finds it again.
        let _ = fs::remove_file(self.path(span));
        true
    }

    /// The windows that overlap a time span, the oldest first.
    pub(super) fn list(&self, from_ms: u64, to_ms: u64) -> Vec<StoredWindow> {
        self.with(|index| {
            let all = index.windows.values().copied();
            all.filter(|window| window.span.overlaps(from_ms, to_ms)).collect()
        })
    }

    /// The windows that overlap the time from `from_ms` on, together with the number of the newest one.
    pub(super) fn latest(&self, from_ms: u64) -> LatestWindows {
        self.with(|index| {
            let spans = index.spans().filter(|span| span.overlaps(from_ms, u64::MAX)).collect();
            LatestWindows { spans, newest: index.newest }
        })
    }

    pub(super) fn path(&self, span: WindowSpan) -> PathBuf {
        self.directory.join(file_stem(span) + EXTENSION)
    }

    pub(super) fn kept(&self) -> StoreTotals {
        self.with(|index| StoreTotals {
            windows: index.windows.len(),
            bytes: index.bytes,
            removed: index.removed,
            lost: index.lost,
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut WindowIndex) -> T) -> T {
        // A panic leaves the index consistent: no change to it is interrupted.
        work(&mut self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WindowIndex {
    fn spans(&self) -> impl DoubleEndedIterator<Item = WindowSpan> {
        self.windows.values().map(|window| window.span)
    }

    fn others(&self, but: Option<WindowSpan>) -> impl DoubleEndedIterator<Item = WindowSpan> {
        self.spans().filter(move |span| Some(span.start_ms) != but.map(|but| but.start_ms))
    }

    /// A window beyond the limits of age and size, other than the one that was just added.
    fn expired(&self, limits: StoreLimits, now_ms: u64, added: WindowSpan) -> Option<WindowSpan> {
        let is_too_old = |span: &WindowSpan| span.age(now_ms) > limits.age;
        let oldest = || self.oldest(now_ms, Some(added)).filter(|_| self.bytes > limits.bytes);
        self.others(Some(added)).next().filter(is_too_old).or_else(oldest)
    }

    /// The window to remove first for its space, other than `but`: one that starts later than now, because the clock was
    /// ahead when it was stored, or else the oldest one.
    fn oldest(&self, now_ms: u64, but: Option<WindowSpan>) -> Option<WindowSpan> {
        let ahead = self.others(but).next_back().filter(|span| span.start_ms > now_ms);
        ahead.or_else(|| self.others(but).next())
    }

    fn insert(&mut self, span: WindowSpan, bytes: u64) {
        let replaced = self.windows.insert(span.start_ms, StoredWindow { span, bytes });
        self.bytes = self.bytes + bytes - replaced.map_or(0, |window| window.bytes);
    }
}

/// Parses a file's name without its extension.
fn parse_name(name: &str) -> Option<WindowSpan> {
    let (start, length) = name.split_once('-')?;
    let number = |digits: &str| {
        let fine = (1..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        if fine { digits.parse().ok() } else { None }
    };
    let span = WindowSpan { start_ms: number(start)?, length_ms: number(length)? };
    // A file with another name for the same time could be listed, but neither read nor removed.
    (file_stem(span) == name).then_some(span)
}

fn file_stem(span: WindowSpan) -> String {
    format!("{:015}-{:07}", span.start_ms, span.length_ms)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LIMITS: StoreLimits = StoreLimits { bytes: 1000, age: Duration::from_secs(100) };

    fn window(start_ms: u64, bytes: usize) -> PackedWindow {
        let span = WindowSpan { start_ms, length_ms: 10_000 };
        PackedWindow { span, ended: Instant::now(), bytes: vec![7; bytes] }
    }

    fn starts(store: &WindowStore) -> Vec<u64> {
        store.list(0, u64::MAX).iter().map(|window| window.span.start_ms).collect()
    }

    #[test]
    fn windows_survive_and_junk_does_not() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("windows");
        let store = WindowStore::open(&directory, LIMITS).unwrap();
        for (number, start) in (1..).zip([20_000, 30_000, 20_000]) {
            store.add(&window(start, 100), number, 40_000).unwrap();
        }
        let latest = store.latest(0);
        assert_eq!(
            (latest.spans.len(), latest.newest),
            (3, 3),
            "the third one, though it is not the last in time"
        );
        assert_eq!(starts(&store), [20_000, 20_001, 30_000], "nothing is written over");
        for junk in [".000000000020000-0010000.pb.gz.0011.tmp", "note.txt", "1-x.pb.gz", "25000-10000.pb.gz"]
        {
            fs::write(directory.join(junk), "junk").unwrap();
        }
        let again = WindowStore::open(&directory, LIMITS).unwrap();
        assert_eq!(starts(&again), starts(&store));
        assert_eq!(again.kept(), StoreTotals { windows: 3, bytes: 300, removed: 0, lost: 0 });
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, 6, "what is not ours stays");
        assert_eq!(again.list(29_999, 30_001).len(), 3, "20,001 ends at 30,001");
        assert_eq!(again.list(40_000, 50_000).len(), 0);
    }

    #[test]
    fn the_oldest_go_first_by_size_and_by_age() {
        let root = tempfile::tempdir().unwrap();
        let store = WindowStore::open(root.path(), LIMITS).unwrap();
        for start in 1..=12 {
            store.add(&window(start * 10_000, 300), start, start * 10_000).unwrap();
        }
        assert_eq!(starts(&store), [100_000, 110_000, 120_000]);
        store.add(&window(300_000, 10), 13, 310_000).unwrap();
        assert_eq!(starts(&store), [300_000]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        store.add(&window(310_000, 5000), 14, 320_000).unwrap();
        assert_eq!(starts(&store), [310_000], "the newest stays, even if it is too large");
    }
    #[test]
    fn windows_of_a_clock_that_was_ahead_make_room_for_those_of_now() {
        let root = tempfile::tempdir().unwrap();
        let store = WindowStore::open(root.path(), LIMITS).unwrap();
        for number in 1..=3 {
            let start = 1_000_000 + number * 10_000;
            store.add(&window(start, 300), number, start + 10_000).unwrap();
        }
        // The clock is set back.
        for number in 4..=6 {
            let start = number * 10_000;
            store.add(&window(start, 300), number, start + 10_000).unwrap();
            assert!(starts(&store).contains(&start), "{:?}", starts(&store));
        }
        assert_eq!(starts(&store), [40_000, 50_000, 60_000]);
        // One of the future does not keep those that are too old.
        store.add(&window(900_000, 10), 7, 910_000).unwrap();
        store.add(&window(70_000, 10), 8, 80_000).unwrap();
        store.add(&window(200_000, 10), 9, 210_000).unwrap();
        assert_eq!(starts(&store), [200_000, 900_000]);
    }
}
