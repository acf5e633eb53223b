//! The file or stream behind the name of an output. A file is replaced as a whole, a stream is written to.
//!
//! A program that runs as root, writes `NAME.tmp` and renames it over `/dev/stdout` destroys the machine's link
//! (netdata 18642). So this module follows links, and replaces only regular files.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::file::DirectoryEntry;
use super::stream::{OutputStream, STDERR, STDOUT};

/// Maximum number of links to follow, as in the kernel.
const MAX_LINKS: usize = 40;

/// The file or stream behind the name of an output.
#[derive(Debug)]
pub struct Destination(DestinationKind);

#[derive(Debug)]
enum DestinationKind {
    /// A regular file or a free name: its directory entry and its path.
    File(DirectoryEntry, PathBuf),
    /// An open descriptor, a pipe or a device.
    Stream(OutputStream),
}

/// Writes to a name that a user gave. `-` and `/dev/stdout` are standard output. Pipes and character devices are
/// written to directly, a file is replaced as a whole, and links are followed (see [`Destination::find`]).
///
/// # Errors
/// One sentence: the name and what is wrong. An existing file stays as it was.
pub fn write(name: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let destination = Destination::find(name)?;
    destination.write(write).with_context(|| format!("cannot write {destination}"))
}

impl Destination {
    /// Follows the links of a name. A link of a user other than root and this one is followed only into that user's own
    /// directories. Otherwise a link planted in `/tmp` could make root overwrite any of its files.
    ///
    /// # Errors
    /// One sentence: the name and why it cannot be written to.
    pub fn find(name: &Path) -> anyhow::Result<Destination> {
        follow(name).map(Destination).with_context(|| format!("cannot write {}", name.display()))
    }

    /// Checks that the destination could be written to, without changing it, so that the user sees the error before the
    /// work and not after it.
    ///
    /// # Errors
    /// One sentence: the name and what is wrong.
    pub fn check_writable(&self) -> anyhow::Result<()> {
        let probed = match &self.0 {
            DestinationKind::File(place, _) => place.check_writable(),
            DestinationKind::Stream(stream) => stream.check_writable(),
        };
        probed.with_context(|| format!("cannot write {self}"))
    }

    fn write(&self, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
        match &self.0 {
            DestinationKind::File(place, _) => place.replace(write, false),
            DestinationKind::Stream(stream) => stream.write(write),
        }
    }

    /// Whether output to this destination arrives where standard output does.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        matches!(&self.0, DestinationKind::Stream(stream) if stream.is_stdout())
    }

    /// Whether all that is written is thrown away.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.0, DestinationKind::Stream(stream) if stream.is_null())
    }

    /// The path of a file after following links; `None` for a stream.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            DestinationKind::File(_, path) => Some(path),
            DestinationKind::Stream(_) => None,
        }
    }

    /// Whether both are the same file or stream.
    #[must_use]
    pub fn is(&self, other: &Destination) -> bool {
        let inode =
            |place: &DirectoryEntry| fstat(&place.directory).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        match (&self.0, &other.0) {
            (DestinationKind::File(one, _), DestinationKind::File(two, _)) => {
                one.name == two.name && inode(one) == inode(two)
            }
            (DestinationKind::Stream(one), DestinationKind::Stream(two)) => {
                one.to_string() == two.to_string()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DestinationKind::File(_, path) => path.display().fmt(f),
            DestinationKind::Stream(stream) => stream.fmt(f),
        }
    }
}

fn follow(name: &Path) -> anyhow::Result<DestinationKind> {
    if name == Path::new("-") {
        return Ok(DestinationKind::Stream(OutputStream::descriptor(STDOUT)?));
    }
    // The path to open next, relative to the directory of the previous link, and the same path for messages.
    let (mut next, mut shown) = (name.to_owned(), name.to_owned());
    let mut before: Option<Link> = None;
    for _ in 0..=MAX_LINKS {
        let place = match &before {
            None => DirectoryEntry::open(CWD, &next),
            Some(link) => DirectoryEntry::open(link.directory.as_fd(), &next),
        };
        if let Some(link) = before.take_if(|link| !link.is_trusted()) {
            link.check_owner(place.as_ref().ok(), &shown)?;
        } else if let Some(number) = own_descriptor(&shown) {
            return Ok(DestinationKind::Stream(OutputStream::descriptor(number)?));
        }
        let place = place?;
        let Some(entry) = entry_of(&place)? else { return Ok(DestinationKind::File(place, shown)) };
        let stat = fstat(&entry).map_err(io::Error::from)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {}
            FileType::Fifo => {
                check_pipe(&place, &stat)?;
                return Ok(DestinationKind::Stream(OutputStream::Named(place, Box::new(stat), shown)));
            }
            FileType::CharacterDevice => {
                return Ok(DestinationKind::Stream(OutputStream::Named(place, Box::new(stat), shown)));
            }
            // Entries that cannot be replaced are refused later, by `probe` and `write`.
            _ => return Ok(DestinationKind::File(place, shown)),
        }
        if fstatfs(&entry).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC) {
            bail!("{} belongs to another process's descriptors: name the file itself", shown.display());
        }
        let text = readlinkat(&entry, "", Vec::new()).map_err(io::Error::from)?;
        next = PathBuf::from(OsStr::from_bytes(text.as_bytes()));
        shown = shown.parent().unwrap_or(Path::new("")).join(&next);
        before = Some(Link { directory: place.directory, owner: stat.st_uid });
    }
    bail!("its symbolic links form a loop, or there are more than {MAX_LINKS}")
}

/// A symbolic link: its directory and its owner.
struct Link {
    directory: OwnedFd,
    owner: u32,
}

impl Link {
    fn is_trusted(&self) -> bool {
        self.owner == 0 || self.owner == geteuid().as_raw()
    }

    /// Refuses to follow a link of another user out of that user's directories.
    fn check_owner(&self, to: Option<&DirectoryEntry>, shown: &Path) -> anyhow::Result<()> {
        let owner = to.and_then(|place| fstat(&place.directory).ok()).map(|stat| stat.st_uid);
        if owner == Some(self.owner) {
            return Ok(());
        }
        bail!(
            "a symbolic link of user {} leads to {}, which is not in a directory of theirs: name that file itself, or \
             remove the link",
            self.owner,
            shown.display()
        )
    }
}

/// The number of the descriptor of this process that a path names, if it names one.
fn own_descriptor(path: &Path) -> Option<i32> {
    if path == Path::new("/dev/stdout") {
        return Some(STDOUT);
    }
    if path == Path::new("/dev/stderr") {
        return Some(STDERR);
    }
    let own = format!("/proc/{}/fd", std::process::id());
    let directories = ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd", &own];
    let number = directories.iter().find_map(|directory| path.strip_prefix(directory).ok())?;
    number.to_str()?.parse().ok().filter(|number| *number >= 0)
}

/// Opens the entry without following a link; `None` if the name is free.
fn entry_of(place: &DirectoryEntry) -> anyhow::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&place.directory, &place.name, flags, Mode::empty()) {
        Ok(entry) => Ok(Some(entry)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(io::Error::from(e)).context("the existing file cannot be examined"),
    }
}

/// Refuses a pipe that another user created in a directory where everyone may write, as the kernel does with
/// `fs.protected_fifos`. The owner of the pipe could read the profile, or block the writer forever.
fn check_pipe(place: &DirectoryEntry, pipe: &Stat) -> anyhow::Result<()> {
    let directory = fstat(&place.directory).map_err(io::Error::from)?;
    let everybody = Mode::from_raw_mode(directory.st_mode).contains(Mode::SVTX | Mode::WOTH);
    let owner = pipe.st_uid;
    if everybody && owner != directory.st_uid && owner != geteuid().as_raw() {
        bail!("this pipe of user {owner} is in a world-writable directory: create it elsewhere");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::{Path, PathBuf};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{Destination, own_descriptor, write};

    const PICTURE: &[u8] = b"picture";

    fn put(path: &Path) -> Result<(), String> {
        let probed = Destination::find(path).and_then(|destination| destination.check_writable());
        let written = write(path, |out| Ok(out.write_all(PICTURE)?));
        let said = |done: anyhow::Result<()>| done.map_err(|e| format!("{e:#}"));
        let (probed, written) = (said(probed), said(written));
        assert_eq!(probed, written, "{}", path.display());
        written
    }

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    }

    #[test]
    fn a_link_of_ones_own_stays_and_leads_to_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        fs::create_dir(inside("runs")).unwrap();
        fs::write(inside("runs/old.svg"), "old").unwrap();
        symlink("latest", inside("x.svg")).unwrap();
        for target in ["runs/old.svg", "runs/new.svg"] {
            _ = fs::remove_file(inside("latest"));
            symlink(target, inside("latest")).unwrap();
            put(&inside("x.svg")).unwrap();
            assert_eq!(fs::read(inside(target)).unwrap(), PICTURE, "{target}");
            assert_eq!(fs::read_link(inside("latest")).unwrap(), Path::new(target));
            assert!(inside("x.svg").is_symlink());
            assert_eq!(Destination::find(&inside("x.svg")).unwrap().file(), Some(&*inside(target)));
        }
        assert_eq!(fs::read_dir(inside("runs")).unwrap().count(), 2);
        symlink("circle", inside("circle")).unwrap();
        assert!(put(&inside("circle")).unwrap_err().ends_with("form a loop, or there are more than 40"));
        symlink("none/a.svg", inside("nowhere")).unwrap();
        assert!(put(&inside("nowhere")).unwrap_err().contains("there is no directory none"));
    }

    /// Needs root, to create links of another user.
    #[test]
    fn a_planted_link_is_followed_to_its_makers_own_files_only() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let inside = |name: &str| directory.path().join(name);
        let (roots, theirs) = (inside("root"), inside("theirs"));
        fs::create_dir(&roots).unwrap();
        fs::create_dir(&theirs).unwrap();
        chown(&theirs, Some(4711), Some(4711)).unwrap();
        fs::write(roots.join("victim"), "precious").unwrap();
        let plant = |to: &Path, name: &str| {
            symlink(to, inside(name)).unwrap();
            std::os::unix::fs::lchown(inside(name), Some(4711), Some(4711)).unwrap();
            inside(name)
        };
        for (name, to) in [
            ("a.svg", roots.join("victim")),
            ("b.svg", roots.join("new")),
            ("c.svg", "/dev/stdout".into()),
            ("d.svg", "/proc/self/fd/1".into()),
            ("e.svg", "/dev/null".into()),
            ("f.svg", theirs.join("on")),
        ] {
            _ = plant(&roots.join("victim"), "theirs/on");
            let said = put(&plant(&to, name)).unwrap_err();
            assert!(said.contains("a symbolic link of user 4711 leads to "), "{said}");
            assert!(inside(name).is_symlink(), "{name}");
            fs::remove_file(theirs.join("on")).unwrap();
        }
        assert_eq!(fs::read(roots.join("victim")).unwrap(), b"precious");
        assert!(!roots.join("new").exists());
        put(&plant(&theirs.join("own.svg"), "own.svg")).unwrap();
        assert_eq!(fs::read(theirs.join("own.svg")).unwrap(), PICTURE);
        let pipe = inside("pipe");
        fifo(&pipe);
        chown(&pipe, Some(4711), Some(4711)).unwrap();
        assert!(put(&pipe).unwrap_err().contains("this pipe of user 4711 is in a world-writable directory"));
    }

    #[test]
    fn pipes_and_devices_are_written_to_and_stay() {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        fifo(&inside("pipe"));
        symlink("pipe", inside("link")).unwrap();
        for name in ["pipe", "link"] {
            let path = inside("pipe");
            let reader = std::thread::spawn(move || fs::read(path).unwrap());
            write(&inside(name), |out| Ok(out.write_all(&PICTURE.repeat(100_000))?)).unwrap();
            assert_eq!(reader.join().unwrap().len(), PICTURE.len() * 100_000, "{name}");
        }
        assert!(!fs::symlink_metadata(inside("pipe")).unwrap().is_file());
        // No process reads the pipe, and `probe` needs no reader.
        Destination::find(&inside("pipe")).unwrap().check_writable().unwrap();
        let before = fs::symlink_metadata("/dev/null").unwrap();
        put(Path::new("/dev/null")).unwrap();
        assert_eq!(fs::symlink_metadata("/dev/null").unwrap().ino(), before.ino());
    }

    #[test]
    fn a_descriptor_is_written_to_where_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"first, ").unwrap();
        let number = file.as_raw_fd();
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink(format!("/dev/fd/{number}"), &link).unwrap();
        for name in [
            format!("/proc/self/fd/{number}").into(),
            PathBuf::from("/dev/fd").join(number.to_string()),
            link,
        ] {
            put(&name).unwrap();
        }
        file.write_all(b", last").unwrap();
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "first, picturepicturepicture, last");
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of_other = |name: &str| format!("/proc/{}/{name}", other.id());
        for (name, why) in [
            ("/dev/fd/1000000".to_owned(), "descriptor 1000000 is not open"),
            (of_other("fd/1"), "belongs to another process"),
            (of_other("exe"), "belongs to another process"),
        ] {
            let said = put(Path::new(&name)).unwrap_err();
            assert!(said.starts_with("cannot write ") && said.contains(why), "{said}");
        }
        other.kill().unwrap();
        other.wait().unwrap();
        let own = std::process::id();
        for (name, number) in [
            ("/dev/stdout", Some(1)),
            ("/dev/stderr", Some(2)),
            ("/dev/fd/63", Some(63)),
            ("/proc/thread-self/fd/5", Some(5)),
            (&format!("/proc/{own}/fd/7"), Some(7)),
            ("/proc/1/fd/1", None),
            ("/dev/fd/-1", None),
            ("/dev/fd", None),
            ("/dev/fd/1/2", None),
        ] {
            assert_eq!(own_descriptor(Path::new(name)), number, "{name}");
        }
    }
}
