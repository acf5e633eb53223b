//! The spool of a sink: a bounded queue of requests on disk, one file each. When it is full, the oldest requests are
//! dropped.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::daemon::directory::{self, StoredFile, is_full};
use crate::output::file;

const EXTENSION: &str = ".request";

#[derive(Debug, Default)]
struct RequestIndex {
    /// Bytes of each request by its number.
    waiting: BTreeMap<u64, u64>,
    bytes: u64,
    dropped: u64,
    /// The request that is being sent; it is never dropped.
    sending: Option<u64>,
    next: u64,
}

/// The oldest request of a spool.
pub(super) struct SpooledRequest {
    pub(super) number: u64,
    pub(super) body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SpoolStats {
    /// Size of the waiting requests.
    pub(super) bytes: u64,
    /// Number of dropped requests.
    pub(super) dropped: u64,
}

/// A directory of requests. One thread adds requests, another one takes them.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    /// The format of the requests, a part of their files' names.
    format: &'static str,
    most: u64,
    index: Mutex<RequestIndex>,
}

impl Spool {
    /// Opens the directory and creates it if necessary. `most` is the capacity in bytes. Requests in another format are
    /// dropped: they are of a sink of this name whose protocol was another one.
    ///
    /// # Errors
    /// One sentence: the directory and what is wrong with it.
    pub(super) fn open(directory: &Path, format: &'static str, most: u64) -> anyhow::Result<Spool> {
        let mut index = RequestIndex::default();
        for StoredFile { stem, bytes } in directory::files(directory, EXTENSION, "requests")? {
            let Some((number, its_format)) = stem.split_once('.') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            index.next = index.next.max(number.saturating_add(1));
            if its_format == format {
                index.waiting.insert(number, bytes);
                index.bytes += bytes;
            } else {
                index.dropped += 1;
                // A file that stays is dropped again by the next daemon.
                let _ = fs::remove_file(directory.join(format!("{stem}{EXTENSION}")));
            }
        }
        if index.dropped > 0 {
            let (directory, dropped) = (directory.display(), index.dropped);
            log::warn!("spool {directory}: {dropped} profiles for another type of sink are dropped");
        }
        Ok(Spool { directory: directory.to_owned(), format, most, index: Mutex::new(index) })
    }

    /// Appends a request. Drops the oldest requests to make space; drops the request itself if it exceeds the capacity
    /// or cannot be written.
    pub(super) fn append(&self, request: &[u8]) {
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

    /// The oldest request. The caller must call [`Spool::remove`] or [`Spool::put_back`] for it.
    ///
    /// # Errors
    /// The file of the oldest request cannot be read. The request stays in the queue.
    pub(super) fn take_oldest(&self) -> io::Result<Option<SpooledRequest>> {
        loop {
            let oldest = self.with(|index| {
                index.sending = index.waiting.keys().next().copied();
                index.sending
            });
            let Some(number) = oldest else { return Ok(None) };
            match fs::read(self.path(number)) {
                Ok(body) => return Ok(Some(SpooledRequest { number, body })),
                // Another program has removed the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.remove(number);
                    self.with(|index| index.dropped += 1);
                }
                Err(error) => {
                    self.put_back();
                    return Err(error);
                }
            }
        }
    }

    /// Removes a request that was sent or refused.
    pub(super) fn remove(&self, number: u64) {
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

    pub(super) fn stats(&self) -> SpoolStats {
        self.with(|index| SpoolStats { bytes: index.bytes, dropped: index.dropped })
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
        self.directory.join(format!("{number:016}.{}{EXTENSION}", self.format))
    }

    fn with<T>(&self, work: impl FnOnce(&mut RequestIndex) -> T) -> T {
        // A panic leaves the index consistent: no change to it is interrupted.
        work(&mut self.index.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::{Spool, SpoolStats, SpooledRequest};

    fn open(directory: &std::path::Path, most: u64) -> Spool {
        Spool::open(directory, "otlp", most).unwrap()
    }

    /// The oldest request, which must be there.
    fn take(spool: &Spool) -> SpooledRequest {
        spool.take_oldest().unwrap().unwrap()
    }

    #[test]
    fn requests_come_in_order_and_survive() {
        let root = tempfile::tempdir().unwrap();
        let spool = open(&root.path().join("sink"), 100);
        spool.append(b"one");
        spool.append(b"two");
        let SpooledRequest { number, body } = take(&spool);
        assert_eq!(body, b"one");
        let again = open(&root.path().join("sink"), 100);
        assert_eq!(take(&again).body, b"one", "it was not done");
        spool.remove(number);
        assert_eq!(take(&spool).body, b"two");
        assert_eq!(spool.stats(), SpoolStats { bytes: 3, dropped: 0 });
    }

    #[test]
    fn a_request_that_cannot_be_read_stays_and_one_that_was_removed_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let spool = open(root.path(), 100);
        spool.append(b"first");
        spool.append(b"second");
        // A directory can be opened, but not be read.
        let path = spool.path(0);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(spool.take_oldest().is_err());
        assert_eq!(spool.stats(), SpoolStats { bytes: 11, dropped: 0 });
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(take(&spool).body, b"second");
        assert_eq!(spool.stats(), SpoolStats { bytes: 6, dropped: 1 });
    }

    #[test]
    fn requests_of_another_protocol_are_dropped() {
        let root = tempfile::tempdir().unwrap();
        open(root.path(), 100).append(b"for OTLP");
        let other = Spool::open(root.path(), "pyroscope", 100).unwrap();
        assert!(other.take_oldest().unwrap().is_none());
        assert_eq!(other.stats(), SpoolStats { bytes: 0, dropped: 1 });
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_oldest_go_but_not_the_one_that_is_being_sent() {
        let root = tempfile::tempdir().unwrap();
        let spool = open(root.path(), 30);
        (0..3u8).for_each(|n| spool.append(&[n; 10]));
        let first = take(&spool).number;
        spool.append(&[3; 10]);
        spool.append(&[9; 31]);
        assert_eq!(spool.stats(), SpoolStats { bytes: 30, dropped: 2 });
        spool.remove(first);
        let left: Vec<u8> = std::iter::from_fn(|| {
            let SpooledRequest { number, body } = spool.take_oldest().unwrap()?;
            spool.remove(number);
            Some(body[0])
        })
        .collect();
        assert_eq!(left, [2, 3]);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
