//! The windows of the last hours on disk: one file each, limited by size and age.
//!
//! Every file is complete or absent, even after a loss of power. Its name contains only the window's time, and no text
//! that a tenant chose.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::directory::{self, is_full};
use super::window::{PackedWindow, Span};
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

#[derive(Debug, Default)]
struct Index {
    /// By start in milliseconds: length in milliseconds and bytes.
    windows: BTreeMap<u64, (u64, u64)>,
    bytes: u64,
    removed: u64,
    lost: u64,
}

/// A directory of windows. One thread adds to it; all threads may read.
#[derive(Debug)]
pub(super) struct WindowStore {
    directory: PathBuf,
    limits: Mutex<StoreLimits>,
    index: Mutex<Index>,
}

impl WindowStore {
    /// Opens the directory, creates it if necessary, and removes temporary files of a killed daemon.
    ///
    /// # Errors
    /// One sentence: the directory and what is wrong with it.
    pub(super) fn open(directory: &Path, limits: StoreLimits) -> anyhow::Result<WindowStore> {
        let mut index = Index::default();
        for (name, bytes) in directory::files(directory, EXTENSION, "windows")? {
            if let Some(span) = parse_name(&name) {
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

    /// Stores a window and returns its place in time. Removes the oldest windows if the disk is full.
    ///
    /// # Errors
    /// The window cannot be written, even after all others were removed.
    pub(super) fn add(&self, window: &PackedWindow, now_ms: u64) -> anyhow::Result<Span> {
        let mut span = window.span;
        // The clock may have been set back: an existing window must not be overwritten.
        while self.with(|index| index.windows.contains_key(&span.start_ms)) {
            span.start_ms += 1;
        }
        let written = loop {
            let path = self.path(span);
            match file::replace_synced(&path, |out| Ok(out.write_all(&window.bytes)?)) {
                Err(error) if is_full(&error) && self.remove_oldest() => {}
                written => break written,
            }
        };
        match written {
            Ok(()) => self.with(|index| index.insert(span, window.bytes.len() as u64)),
            Err(error) => {
                self.with(|index| index.lost += 1);
                return Err(error);
            }
        }
        self.remove_expired(now_ms);
        Ok(span)
    }

    /// Removes windows beyond the limits of age and size; the newest window stays.
    fn remove_expired(&self, now_ms: u64) {
        let limits = *self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let due = self.with(|index| {
                let Some((&start_ms, &(length_ms, _))) = index.windows.first_key_value() else {
                    return false;
                };
                let span = Span { start_ms, length_ms };
                index.windows.len() > 1 && (index.bytes > limits.bytes || span.age(now_ms) > limits.age)
            });
            if !due || !self.remove_oldest() {
                return;
            }
        }
    }

    /// Returns whether there was a window to remove.
    fn remove_oldest(&self) -> bool {
        let Some((start_ms, (length_ms, bytes))) = self.with(|index| index.windows.pop_first()) else {
            return false;
        };
        self.with(|index| {
            index.bytes -= bytes;
            index.removed += 1;
        });
        // The file may be gone already. If it stays, the next start of the daemon finds it again.
        let _ = fs::remove_file(self.path(Span { start_ms, length_ms }));
        true
    }

    /// The windows that overlap a time span, the oldest first, each with its bytes.
    pub(super) fn list(&self, from_ms: u64, to_ms: u64) -> Vec<(Span, u64)> {
        self.with(|index| {
            let all = index
                .windows
                .iter()
                .map(|(&start_ms, &(length_ms, bytes))| (Span { start_ms, length_ms }, bytes));
            all.filter(|(span, _)| span.touches(from_ms, to_ms)).collect()
        })
    }

    pub(super) fn path(&self, span: Span) -> PathBuf {
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

    fn with<T>(&self, work: impl FnOnce(&mut Index) -> T) -> T {
        // A panic leaves the index consistent: no change to it is interrupted.
        work(&mut self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Index {
    fn insert(&mut self, span: Span, bytes: u64) {
        let replaced = self.windows.insert(span.start_ms, (span.length_ms, bytes));
        self.bytes = self.bytes + bytes - replaced.map_or(0, |(_, bytes)| bytes);
    }
}

/// Parses a file's name without its extension.
fn parse_name(name: &str) -> Option<Span> {
    let (start, length) = name.split_once('-')?;
    let number = |digits: &str| {
        let fine = (1..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        if fine { digits.parse().ok() } else { None }
    };
    let span = Span { start_ms: number(start)?, length_ms: number(length)? };
    // A file with another name for the same time could be listed, but neither read nor removed.
    (file_stem(span) == name).then_some(span)
}

fn file_stem(span: Span) -> String {
    format!("{:015}-{:07}", span.start_ms, span.length_ms)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LIMITS: StoreLimits = StoreLimits { bytes: 1000, age: Duration::from_secs(100) };

    fn window(start_ms: u64, bytes: usize) -> PackedWindow {
        let span = Span { start_ms, length_ms: 10_000 };
        PackedWindow { span, ended: Instant::now(), bytes: vec![7; bytes] }
    }

    fn starts(store: &WindowStore) -> Vec<u64> {
        store.list(0, u64::MAX).iter().map(|(span, _)| span.start_ms).collect()
    }

    #[test]
    fn windows_survive_and_junk_does_not() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("windows");
        let store = WindowStore::open(&directory, LIMITS).unwrap();
        for start in [20_000, 30_000, 20_000] {
            store.add(&window(start, 100), 40_000).unwrap();
        }
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
            store.add(&window(start * 10_000, 300), start * 10_000).unwrap();
        }
        assert_eq!(starts(&store), [100_000, 110_000, 120_000]);
        store.add(&window(300_000, 10), 310_000).unwrap();
        assert_eq!(starts(&store), [300_000]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        store.add(&window(310_000, 5000), 320_000).unwrap();
        assert_eq!(starts(&store), [310_000], "the newest stays, whatever its size");
    }
}
