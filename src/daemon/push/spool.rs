//! The spool of a sink: a bounded queue of requests on disk, one file each. When it is full, the oldest requests are
//! dropped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::daemon::directory::{self, is_full};
use crate::output::file;

const EXTENSION: &str = ".request";

#[derive(Debug, Default)]
struct Index {
    /// Bytes of each request by its number.
    waiting: BTreeMap<u64, u64>,
    bytes: u64,
    dropped: u64,
    /// The request that is being sent; it is never dropped.
    sending: Option<u64>,
    next: u64,
}

/// A directory of requests. One thread adds requests, another one takes them.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    most: u64,
    index: Mutex<Index>,
}

impl Spool {
    /// Opens the directory and creates it if necessary. `most` is the capacity in bytes.
    ///
    /// # Errors
    /// One sentence: the directory and what is wrong with it.
    pub(super) fn open(directory: &Path, most: u64) -> anyhow::Result<Spool> {
        let mut index = Index::default();
        for (name, bytes) in directory::files(directory, EXTENSION, "requests")? {
            if let Ok(number) = name.parse::<u64>() {
                index.waiting.insert(number, bytes);
                index.bytes += bytes;
                index.next = index.next.max(number.saturating_add(1));
            }
        }
        Ok(Spool { directory: directory.to_owned(), most, index: Mutex::new(index) })
    }

    /// Appends a request. Drops the oldest requests to make space; drops the request itself if it exceeds the capacity
    /// or cannot be written.
    pub(super) fn put(&self, request: &[u8]) {
        let bytes = request.len() as u64;
        if bytes > self.most {
            log::warn!(
                "spool {}: a profile of {bytes} bytes is dropped; the spool has room for {}",
                self.directory.display(),
                self.most
            );
            self.with(|index| index.dropped += 1);
            return;
        }
        while self.with(|index| index.bytes + bytes > self.most) && self.drop_oldest() {}
        let number = self.with(|index| {
            index.next += 1;
            index.next - 1
        });
        let written = loop {
            match file::replace_synced(&self.path(number), |out| Ok(out.write_all(request)?)) {
                Err(error) if is_full(&error) && self.drop_oldest() => {}
                written => break written,
            }
        };
        if let Err(error) = &written {
            log::warn!("spool {}: a profile is dropped: {error:#}", self.directory.display());
        }
        self.with(|index| match written {
            Ok(()) => {
                index.waiting.insert(number, bytes);
                index.bytes += bytes;
            }
            Err(_) => index.dropped += 1,
        });
    }

    /// The oldest request. The caller must call [`Spool::done`] or [`Spool::put_back`] for it.
    pub(super) fn take(&self) -> Option<(u64, Vec<u8>)> {
        loop {
            let number = self.with(|index| {
                index.sending = index.waiting.keys().next().copied();
                index.sending
            })?;
            match fs::read(self.path(number)) {
                Ok(request) => return Some((number, request)),
                // Another program has removed the file.
                Err(_) => self.done(number),
            }
        }
    }

    /// Removes a request that was sent or refused.
    pub(super) fn done(&self, number: u64) {
        self.with(|index| {
            index.sending = None;
            index.bytes -= index.waiting.remove(&number).unwrap_or(0);
        });
        // The next daemon sends a request again whose file could not be removed.
        let _ = fs::remove_file(self.path(number));
    }

    /// Returns the taken request to the queue. Like any other, it may then be dropped for newer requests.
    pub(super) fn put_back(&self) {
        self.with(|index| index.sending = None);
    }

    /// Bytes in the spool, and number of dropped requests.
    pub(super) fn state(&self) -> (u64, u64) {
        self.with(|index| (index.bytes, index.dropped))
    }

    fn drop_oldest(&self) -> bool {
        let oldest = self.with(|index| {
            let oldest = index.waiting.keys().copied().find(|number| Some(*number) != index.sending)?;
            index.bytes -= index.waiting.remove(&oldest).unwrap_or(0);
            index.dropped += 1;
            Some(oldest)
        });
        let Some(oldest) = oldest else { return false };
        let _ = fs::remove_file(self.path(oldest));
        true
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number:016}{EXTENSION}"))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Index) -> T) -> T {
        // A panic leaves the index consistent: no change to it is interrupted.
        work(&mut self.index.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::Spool;

    #[test]
    fn requests_come_in_order_and_survive() {
        let root = tempfile::tempdir().unwrap();
        let spool = Spool::open(&root.path().join("sink"), 100).unwrap();
        spool.put(b"one");
        spool.put(b"two");
        let (number, request) = spool.take().unwrap();
        assert_eq!(request, b"one");
        let again = Spool::open(&root.path().join("sink"), 100).unwrap();
        assert_eq!(again.take().unwrap().1, b"one", "it was not done");
        spool.done(number);
        assert_eq!(spool.take().unwrap().1, b"two");
        assert_eq!(spool.state(), (3, 0));
    }

    #[test]
    fn the_oldest_go_but_not_the_one_that_is_being_sent() {
        let root = tempfile::tempdir().unwrap();
        let spool = Spool::open(root.path(), 30).unwrap();
        (0..3u8).for_each(|n| spool.put(&[n; 10]));
        let (first, _) = spool.take().unwrap();
        spool.put(&[3; 10]);
        spool.put(&[9; 31]);
        assert_eq!(spool.state(), (30, 2));
        spool.done(first);
        let left: Vec<u8> = std::iter::from_fn(|| {
            let (number, request) = spool.take()?;
            spool.done(number);
            Some(request[0])
        })
        .collect();
        assert_eq!(left, [2, 3]);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
