//! Outputs that are written to directly: descriptors, named pipes, terminals and other devices.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, fcntl_getfl, fstat, makedev};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use rustix::stdio::{stderr, stdout};

use super::file::{DirectoryEntry, buffered};

/// How long to wait for a reader of a named pipe before the write fails.
const READER_WAIT: Duration = Duration::from_secs(10);
pub(super) const STDOUT: i32 = 1;
pub(super) const STDERR: i32 = 2;

/// An output that is written to directly.
#[derive(Debug)]
pub(super) enum OutputStream {
    /// A descriptor inherited at start: its number and a duplicate.
    Descriptor(i32, OwnedFd),
    /// A named pipe or a character device: its directory entry, its file status when it was found, its path.
    Named(DirectoryEntry, Box<Stat>, PathBuf),
}

impl OutputStream {
    /// Duplicates a descriptor of this process.
    pub(super) fn descriptor(number: i32) -> anyhow::Result<OutputStream> {
        let held = match number {
            STDOUT => fcntl_dupfd_cloexec(stdout(), 3),
            STDERR => fcntl_dupfd_cloexec(stderr(), 3),
            // Opening /proc/self/fd/N would start at the beginning of a file instead of its current offset, and fails
            // for a socket.
            _ => pidfd_open(getpid(), PidfdFlags::empty())
                .and_then(|own| pidfd_getfd(own, number, PidfdGetfdFlags::empty())),
        };
        let held = match held {
            Ok(held) => held,
            Err(Errno::BADF) => bail!("descriptor {number} is not open"),
            Err(e) => {
                return Err(io::Error::from(e))
                    .with_context(|| format!("descriptor {number} cannot be duplicated"));
            }
        };
        let mode = fcntl_getfl(&held).map_err(io::Error::from)? & OFlags::RWMODE;
        if mode == OFlags::RDONLY {
            bail!("descriptor {number} is open for reading only");
        }
        Ok(OutputStream::Descriptor(number, held))
    }

    /// Checks the permission to write. The pipe must not be opened: its reader would read end-of-file.
    pub(super) fn check_writable(&self) -> anyhow::Result<()> {
        let OutputStream::Named(place, ..) = self else { return Ok(()) };
        let allowed = rustix::fs::accessat(&place.directory, &place.name, Access::WRITE_OK, AtFlags::empty());
        Ok(allowed.map_err(io::Error::from)?)
    }

    /// Writes. A closed reader is not an error.
    pub(super) fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let file = match self {
            OutputStream::Descriptor(_, held) => File::from(held.try_clone()?),
            OutputStream::Named(place, stat, _) => open(place, stat, READER_WAIT)?,
        };
        match buffered(BlockingWriter(file), write) {
            Err(e) if is_broken_pipe(&e) => Ok(()),
            done => done.map(|_| ()),
        }
    }

    /// Whether all that is written is thrown away: `/dev/null`.
    pub(super) fn is_null(&self) -> bool {
        self.stat().is_some_and(|stat| is_device(&stat) && stat.st_rdev == makedev(1, 3))
    }

    /// Its file status; `None` if it cannot be read.
    fn stat(&self) -> Option<Stat> {
        match self {
            OutputStream::Descriptor(_, held) => fstat(held).ok(),
            OutputStream::Named(_, stat, _) => Some(**stat),
        }
    }

    /// Whether output arrives where standard output does: in the same descriptor, pipe, file or socket.
    pub(super) fn is_stdout(&self) -> bool {
        if matches!(self, OutputStream::Descriptor(STDOUT, _)) {
            return true;
        }
        let (Some(own), Ok(stdout)) = (self.stat(), fstat(stdout())) else { return false };
        // A report beside the profile does no harm on a terminal or in /dev/null.
        !is_device(&own) && (own.st_dev, own.st_ino) == (stdout.st_dev, stdout.st_ino)
    }
}

impl fmt::Display for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputStream::Descriptor(STDOUT, _) => f.write_str("standard output"),
            OutputStream::Descriptor(STDERR, _) => f.write_str("standard error"),
            OutputStream::Descriptor(number, _) => write!(f, "descriptor {number}"),
            OutputStream::Named(.., path) => path.display().fmt(f),
        }
    }
}

fn is_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
}

/// Opens a named pipe or a device if it is still the same file. Waits for the reader of a pipe.
fn open(place: &DirectoryEntry, seen: &Stat, reader_wait: Duration) -> anyhow::Result<File> {
    // Without O_NONBLOCK opening a pipe without a reader would block forever.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_pipe = FileType::from_raw_mode(seen.st_mode) == FileType::Fifo;
    let begun = Instant::now();
    let opened = loop {
        match rustix::fs::openat(&place.directory, &place.name, flags, Mode::empty()) {
            Ok(opened) => break opened,
            Err(Errno::NXIO) if is_pipe && begun.elapsed() < reader_wait => sleep(Duration::from_millis(50)),
            Err(Errno::NXIO) if is_pipe => {
                bail!("no process reads this pipe after {} s: start the reader first", reader_wait.as_secs())
            }
            Err(e) => return Err(io::Error::from(e).into()),
        }
    };
    let stat = fstat(&opened).map_err(io::Error::from)?;
    if (stat.st_dev, stat.st_ino, stat.st_mode) != (seen.st_dev, seen.st_ino, seen.st_mode) {
        bail!("another file has replaced it");
    }
    Ok(opened.into())
}

/// Waits for buffer space where the descriptor is non-blocking.
struct BlockingWriter(File);

impl Write for BlockingWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes to standard output. A closed reader is not an error.
///
/// # Errors
/// The error of `write`, or of standard output.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    OutputStream::descriptor(STDOUT)
        .and_then(|stream| stream.write(write))
        .context("cannot write to standard output")
}

#[must_use]
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::fs::{CWD, FileType, Mode, mknodat, stat};

    use super::{DirectoryEntry, OutputStream, is_broken_pipe, open};

    #[test]
    fn a_socket_that_does_not_block_is_written_to() {
        let (own, mut other) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            other.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        let stream = OutputStream::descriptor(own.as_raw_fd()).unwrap();
        stream.write(|out| Ok(out.write_all(&[7; 4 << 20])?)).unwrap();
        drop((stream, own));
        assert_eq!(reader.join().unwrap(), 4 << 20);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let (own, other) = UnixStream::pair().unwrap();
        drop(other);
        let stream = OutputStream::descriptor(own.as_raw_fd()).unwrap();
        stream.write(|out| Ok(out.write_all(b"text")?)).unwrap();
        let gone = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("drawing");
        assert!(is_broken_pipe(&gone));
        assert!(!is_broken_pipe(&io::Error::from(io::ErrorKind::StorageFull).into()));
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_after_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let seen = stat(&path).unwrap();
        let place = DirectoryEntry::open(CWD, &path).unwrap();
        let said = open(&place, &seen, Duration::ZERO).unwrap_err();
        assert!(said.to_string().starts_with("no process reads this pipe"), "{said}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another's").unwrap();
        assert_eq!(
            open(&place, &seen, Duration::ZERO).unwrap_err().to_string(),
            "another file has replaced it"
        );
    }
}
