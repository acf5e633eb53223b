//! Atomic writing of files: whole or not at all.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};

/// Writes a file under a temporary name in the same directory and renames it. The final name always has the old file or
/// the whole new one, even after a loss of power.
///
/// A symbolic link of that name is replaced, not followed: this function is for names that the program chose in its own
/// directory. [`destination::write`](super::destination::write) is for names that a user gave.
///
/// # Errors
/// One sentence: the path and what is wrong. No temporary file remains.
pub fn replace_synced(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let place =
        DirectoryEntry::open(CWD, path).with_context(|| format!("cannot write {}", path.display()))?;
    place.replace(write, true).with_context(|| format!("cannot write {}", path.display()))
}

#[derive(Debug)]
pub(super) struct DirectoryEntry {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

impl DirectoryEntry {
    /// Opens the directory of a path; a relative path starts at `base`.
    pub(super) fn open(base: BorrowedFd<'_>, path: &Path) -> anyhow::Result<DirectoryEntry> {
        let Some(name) = path.file_name() else { bail!("it names no file") };
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(base, directory, flags, Mode::empty()) {
            Ok(directory) => Ok(DirectoryEntry { directory, name: name.to_owned() }),
            Err(Errno::NOENT) => bail!("there is no directory {}", directory.display()),
            Err(Errno::NOTDIR) => bail!("{} is no directory", directory.display()),
            Err(e) => Err(e).context("its directory cannot be opened"),
        }
    }

    /// Checks that a file could be written there, so that the user sees the error before the work and not after it.
    pub(super) fn check_writable(&self) -> anyhow::Result<()> {
        self.is_free()?;
        let (_, temporary) = self.create()?;
        self.remove(&temporary);
        Ok(())
    }

    /// Refuses entries that must not be replaced. (Renaming would turn `/dev/null` into a file.)
    fn is_free(&self) -> anyhow::Result<()> {
        let stat = match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e).context("the existing file cannot be examined"),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if self.is_mounted() => {
                bail!("this file is a mount point and cannot be replaced: mount its directory instead")
            }
            FileType::RegularFile | FileType::Symlink => Ok(()),
            FileType::Directory => bail!("it is a directory"),
            FileType::Socket => bail!("it is a socket"),
            FileType::BlockDevice => bail!("it is a disk or another block device"),
            _ => bail!("it is a device or pipe"),
        }
    }

    /// Whether the file itself is a mount point: containers mount single files of their host. A rename over a mount
    /// point fails with EBUSY.
    fn is_mounted(&self) -> bool {
        let statx = rustix::fs::statx(
            &self.directory,
            &self.name,
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::BASIC_STATS,
        );
        statx.is_ok_and(|statx| statx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    fn create(&self) -> anyhow::Result<(File, OsString)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..8 {
            let name = temporary_name(&self.name)?;
            match rustix::fs::openat(&self.directory, &name, flags, Mode::from_raw_mode(0o666)) {
                Ok(fd) => return Ok((fd.into(), name)),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(io::Error::from(e).into()),
            }
        }
        bail!("no temporary file name is available")
    }

    pub(super) fn replace(
        &self,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
        sync: bool,
    ) -> anyhow::Result<()> {
        self.is_free()?;
        let (file, temporary) = self.create()?;
        let done = fill(file, write, sync).and_then(|()| {
            rustix::fs::renameat(&self.directory, &temporary, &self.directory, &self.name)
                .map_err(|e| io::Error::from(e).into())
        });
        if done.is_err() {
            self.remove(&temporary);
        }
        done
    }

    /// Ignores errors: the caller reports the first error.
    fn remove(&self, temporary: &OsStr) {
        let _ = rustix::fs::unlinkat(self.directory.as_fd(), temporary, AtFlags::empty());
    }
}

fn temporary_name(name: &OsStr) -> anyhow::Result<OsString> {
    let mut random = [0u8; 8];
    getrandom(&mut random, GetRandomFlags::empty()).context("random numbers")?;
    let mut text = OsString::from(".");
    // The final name may have up to 255 bytes; the temporary name must not exceed them.
    if name.len() < 200 {
        text.push(name);
    }
    text.push(format!(".{:016x}.tmp", u64::from_ne_bytes(random)));
    Ok(text)
}

fn fill(
    file: File,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    sync: bool,
) -> anyhow::Result<()> {
    let room = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let limited = buffered(SizeLimitedFile { file, room }, write)?;
    if sync {
        limited.file.sync_all()?;
    }
    Ok(())
}

/// Writes with a buffer and returns the inner writer.
pub(super) fn buffered<W: Write>(
    to: W,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<W> {
    let mut out = BufWriter::with_capacity(1 << 16, to);
    let done = write(&mut out).and_then(|()| Ok(out.flush()?));
    // `BufWriter` would retry the failed write when it is dropped.
    let (to, _) = out.into_parts();
    done.map(|()| to)
}

/// Stops before RLIMIT_FSIZE does: beyond that limit the kernel sends SIGXFSZ, which kills the process.
struct SizeLimitedFile {
    file: File,
    room: u64,
}

impl Write for SizeLimitedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.room {
            return Err(Errno::FBIG.into());
        }
        let written = self.file.write(bytes)?;
        self.room -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use anyhow::bail;

    use super::{CWD, DirectoryEntry, SizeLimitedFile, replace_synced};

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_there_whole_or_the_old_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        replace_synced(&path, |out| Ok(out.write_all(b"one")?)).unwrap();
        let failed = replace_synced(&path, |out| {
            out.write_all(&[b'x'; 1 << 20])?;
            bail!("no more")
        });
        let said = format!("{:#}", failed.unwrap_err());
        assert_eq!(said, format!("cannot write {}: no more", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        replace_synced(&path, |out| Ok(out.write_all(b"two")?)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        DirectoryEntry::open(CWD, &path).unwrap().check_writable().unwrap();
        assert_eq!(names(directory.path()), ["a.svg"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7111, 0);
    }

    #[test]
    fn a_planted_link_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("a.svg"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        replace_synced(&path, |out| Ok(out.write_all(b"picture")?)).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_to_string(&path).unwrap(), "picture");
    }

    #[test]
    fn what_cannot_be_a_file_is_refused_in_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        fs::create_dir(inside("folder.svg")).unwrap();
        fs::write(inside("file"), "").unwrap();
        let _socket = UnixListener::bind(inside("socket.svg")).unwrap();
        let long = "x".repeat(300);
        for (path, why) in [
            (inside("folder.svg"), "it is a directory"),
            (inside("socket.svg"), "it is a socket"),
            ("/dev/null".into(), "it is a device or pipe"),
            (inside("none/a.svg"), "there is no directory"),
            (inside("file/a.svg"), "is no directory"),
            (inside(&long), "File name too long"),
            ("/".into(), "it names no file"),
            ("..".into(), "it names no file"),
        ] {
            let said = format!("{:#}", replace_synced(&path, |_| Ok(())).unwrap_err());
            assert!(
                said.starts_with("cannot write ") && said.contains(why) && !said.contains('\n'),
                "{said}"
            );
            let probed = DirectoryEntry::open(CWD, &path).and_then(|place| place.check_writable());
            assert!(said.ends_with(&format!("{:#}", probed.unwrap_err())), "{said}");
        }
        assert_eq!(names(directory.path()), ["file", "folder.svg", "socket.svg"]);
    }

    #[test]
    fn the_limit_of_file_sizes_is_an_error_not_a_signal() {
        let mut out = SizeLimitedFile { file: tempfile::tempfile().unwrap(), room: 10 };
        out.write_all(b"12345678").unwrap();
        let said = out.write_all(b"901").unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::FileTooLarge);
    }
}
