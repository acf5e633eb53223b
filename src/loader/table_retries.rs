//! Retries with backoff for unwind tables that were unavailable, or for which there was no room.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::process::FileId;

/// The first pause. Each further pause is twice as long, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const LAST_PAUSE: Duration = Duration::from_secs(64);
const MAX_FILES: usize = 16_384;

/// Files whose tables are missing, and processes that need those tables.
#[derive(Debug, Default)]
pub(super) struct TableRetries {
    files: HashMap<FileId, RetryState>,
    /// Processes whose code lacks a table, and when to load them again.
    processes: HashMap<u32, Instant>,
}

#[derive(Clone, Copy, Debug)]
struct RetryState {
    next: Instant,
    pause: Duration,
}

impl TableRetries {
    /// When to request a file's table again; `None`: now.
    pub(super) fn until(&self, file: FileId, now: Instant) -> Option<Instant> {
        self.files.get(&file).map(|tried| tried.next).filter(|next| *next > now)
    }

    /// A request for a file's table failed.
    pub(super) fn add(&mut self, file: FileId, now: Instant) {
        if self.files.len() >= MAX_FILES {
            self.files.retain(|_, tried| tried.next > now);
        }
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        let pause = self.files.get(&file).map_or(FIRST_PAUSE, |tried| (tried.pause * 2).min(LAST_PAUSE));
        self.files.insert(file, RetryState { next: now + pause, pause });
    }

    /// A file's table is loaded, or the file is known to have no table.
    pub(super) fn remove(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// Schedules a process for `until`; `None`: the process misses no table.
    pub(super) fn wait(&mut self, tgid: u32, until: Option<Instant>) {
        match until {
            Some(until) => drop(self.processes.insert(tgid, until)),
            None => drop(self.processes.remove(&tgid)),
        }
    }

    /// Takes the processes whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> impl Iterator<Item = u32> {
        self.processes.extract_if(move |_, until| *until <= now).map(|(tgid, _)| tgid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tables_are_retried_with_backoff() {
        let (begin, file) = (Instant::now(), FileId(7));
        let (mut missing, mut now, mut pauses) = (TableRetries::default(), begin, Vec::new());
        for _ in 0..10 {
            assert_eq!(missing.until(file, now), None);
            missing.add(file, now);
            let next = missing.until(file, now).unwrap();
            pauses.push((next - now).as_secs());
            assert!(missing.until(file, next - Duration::from_nanos(1)).is_some());
            now = next;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
        missing.remove(file);
        missing.add(file, now);
        assert_eq!(missing.until(file, now), Some(now + FIRST_PAUSE), "it was there meanwhile");
        (0..3 * MAX_FILES as u64).for_each(|file| missing.add(FileId(file), now));
        assert!(missing.files.len() <= MAX_FILES);
    }

    #[test]
    fn processes_come_again_once_each_time_that_they_miss_something() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut missing = TableRetries::default();
        missing.wait(1, Some(now + second));
        missing.wait(2, Some(now + second));
        missing.wait(3, Some(now + 3 * second));
        missing.wait(2, None);
        let mut due = |at: Instant| missing.take_due(at).collect::<Vec<_>>();
        assert_eq!((due(now), due(now + second), due(now + 2 * second)), (vec![], vec![1], vec![]));
        assert_eq!(due(now + 3 * second), [3]);
    }
}
