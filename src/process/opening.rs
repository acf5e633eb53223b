//! Finds and opens the file of a mapping, through the process that has it mapped or else by its path in a root. Proves
//! that the file is the mapped one. Runs in the [opener](super::opener).

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, Stat, StatxFlags, fstat, major, makedev, minor, openat, statx};
use rustix::io::{Errno, pread};
use serde::{Deserialize, Serialize};

use super::event::Inode;
use super::file::{ContentKey, FoundFile, Unopened};
use super::ioctl;
use super::maps::{Maps, MapsEntry};
use super::process_dir::ProcessDir;
use super::procfs;
use super::root::{self, FileOwner, OpenRefusal};
use super::served_file::{OVERLAYFS, file_system, is_served};

/// File systems on which `stat` gives another device than mappings do: `include/uapi/linux/magic.h`.
const BTRFS: u64 = 0x9123_683e;

/// Tolerance, nanoseconds: the kernel stamps files with the time of the last tick, and our two clocks are not read at
/// once.
const STAMP_SLACK: i128 = 20_000_000;

/// A range in which a living process has a file mapped.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LiveMapping {
    pub(super) tgid: u32,
    pub(super) start: u64,
    /// Address after the last.
    pub(super) end: u64,
}

/// Which file is wanted, and where it may be found.
#[derive(Debug)]
pub(super) struct FileQuery {
    pub(super) inode: Inode,
    pub(super) path: Arc<Path>,
    pub(super) named_deleted: bool,
    /// A mapping of the file, if its process is alive.
    pub(super) live: Option<LiveMapping>,
    /// Root directories in which the path may lead to the file, the likeliest first.
    pub(super) roots: Vec<Arc<OwnedFd>>,
    /// When the file was mapped at the latest, nanoseconds since the epoch.
    pub(super) mapped_at: i128,
}

pub(super) fn open_wanted(wanted: &FileQuery) -> Result<FoundFile, Unopened> {
    let mut refused = Unopened::ProcessGone;
    if let Some(live) = wanted.live {
        match through_process(wanted, live) {
            Ok(found) => return Ok(found),
            Err(why) => refused = why,
        }
    }
    if wanted.named_deleted {
        return Err(refused);
    }
    for dir in &wanted.roots {
        match by_path(wanted, dir.as_fd()) {
            Ok(found) => return Ok(found),
            // Only the first refusal is reported: what another root has at that path says nothing about the likeliest
            // one.
            Err(why) if refused == Unopened::ProcessGone => refused = why,
            Err(_) => {}
        }
    }
    Err(refused)
}

/// The identity of a descriptor's content now. Does not wait for the file system's server.
pub(super) fn content_key(fd: BorrowedFd<'_>) -> Option<ContentKey> {
    let flags = rustix::fs::AtFlags::EMPTY_PATH | rustix::fs::AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, "", flags, StatxFlags::BASIC_STATS).ok()?;
    Some(ContentKey {
        dev: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        size: stat.stx_size,
        ctime: (stat.stx_ctime.tv_sec, i64::from(stat.stx_ctime.tv_nsec)),
    })
}

/// Opens a file through `/proc/PID/map_files`, which leads to the mapped file itself, deleted or not.
fn through_process(
    wanted: &FileQuery,
    LiveMapping { tgid, start, end }: LiveMapping,
) -> Result<FoundFile, Unopened> {
    let process = ProcessDir::open(tgid).map_err(OpenRefusal::from)?;
    // If the first thread has ended, this is another thread's directory.
    let task = process.live_thread().map_err(OpenRefusal::from)?.dir;
    let fd = match map_file(task.as_fd(), start, end) {
        // What we know as one mapping may be several for the kernel, or a part of one.
        Err(Errno::NOENT) => {
            let inode = Inode { generation: 0, ..wanted.inode };
            // If a file's code was moved into anonymous memory, other mappings of the file are still there.
            let mut maps = Maps::open_all(task.as_fd()).map_err(OpenRefusal::from)?.map_while(Result::ok);
            let entry = maps.find(|entry| entry.inode == inode).ok_or(Unopened::ProcessGone)?;
            map_file(task.as_fd(), entry.start, entry.end)
        }
        other => other,
    };
    let fd = fd.map_err(OpenRefusal::from)?;
    let stat = fstat(&fd).map_err(OpenRefusal::from)?;
    regular(&stat)?;
    if !is_inode(wanted.inode, &stat, fd.as_fd()) {
        return Err(Unopened::Replaced);
    }
    let (file, served) = readable(fd)?;
    let at_path = |dir: &Arc<OwnedFd>| {
        root::find(dir.as_fd(), &wanted.path, FileOwner::Any)
            .is_ok_and(|(_, there)| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino))
    };
    let deleted_or_replaced = wanted.named_deleted || !wanted.roots.iter().any(at_path);
    let key = content_key(file.as_fd()).ok_or(OpenRefusal::Missing)?;
    let program_in_memory = is_program_in_memory(wanted, &file);
    Ok(FoundFile { fd: file, served, key, deleted_or_replaced, program_in_memory })
}

/// Opens for reading the regular file of a mapping of the process with this directory in `/proc`; `None` if a program
/// serves the file.
pub(super) fn open_entry(task: BorrowedFd<'_>, entry: &MapsEntry) -> Option<OwnedFd> {
    let fd = map_file(task, entry.start, entry.end).ok()?;
    let stat = fstat(&fd).ok()?;
    regular(&stat).ok()?;
    let (file, served) = readable(fd).ok().filter(|(fd, _)| is_inode(entry.inode, &stat, fd.as_fd()))?;
    (!served).then_some(file)
}

/// Opens the file of an `O_PATH` descriptor, unless a program serves it. Returns whether one does.
fn readable(found: OwnedFd) -> Result<(OwnedFd, bool), OpenRefusal> {
    match is_served(found.as_fd()) {
        true => Ok((found, true)),
        false => Ok((procfs::reopen(found.as_fd(), OFlags::RDONLY)?, false)),
    }
}

/// Whether a file is a program in memory. Code of a memfd may come from a runtime that generates it (.NET maps the
/// memfd twice, to write and to run). Or a program was put into memory to be executed or loaded. Only a program begins
/// with the head of an ELF file. Nothing else of a file's content is read here.
fn is_program_in_memory(wanted: &FileQuery, file: &OwnedFd) -> bool {
    let mut head = [0; 4];
    wanted.path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:")
        && pread(file, &mut head, 0).is_ok_and(|read| read == head.len())
        && head == *b"\x7fELF"
}

fn map_file(task: BorrowedFd<'_>, start: u64, end: u64) -> Result<OwnedFd, Errno> {
    openat(task, format!("map_files/{start:x}-{end:x}"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a file by its path below a root. Its process may have ended, so the file must be proven to be the mapped one.
fn by_path(wanted: &FileQuery, root: BorrowedFd<'_>) -> Result<FoundFile, Unopened> {
    let (fd, stat) = root::find(root, &wanted.path, FileOwner::Any)?;
    regular(&stat)?;
    if !is_inode(wanted.inode, &stat, fd.as_fd()) {
        return Err(Unopened::Replaced);
    }
    let (file, served) = readable(fd)?;
    let stamp = |sec: i64, nsec: i128| i128::from(sec) * 1_000_000_000 + nsec;
    let limit = wanted.mapped_at + STAMP_SLACK;
    let same_inode = match (wanted.inode.generation, ioctl::inode_generation(file.as_fd())) {
        (known @ 1.., Some(version)) => known == u64::from(version),
        // Without generations, a reused inode number shows in the change time of the new file.
        _ => stamp(stat.st_ctime, i128::from(stat.st_ctime_nsec)) <= limit,
    };
    if !same_inode || stamp(stat.st_mtime, i128::from(stat.st_mtime_nsec)) > limit {
        return Err(Unopened::Replaced);
    }
    let key = content_key(file.as_fd()).ok_or(OpenRefusal::Missing)?;
    Ok(FoundFile { fd: file, served, key, deleted_or_replaced: false, program_in_memory: false })
}

fn regular(stat: &Stat) -> Result<(), OpenRefusal> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(OpenRefusal::NotRegular),
    }
}

/// Whether a file is the one that a mapping names.
fn is_inode(inode: Inode, stat: &Stat, fd: BorrowedFd<'_>) -> bool {
    if stat.st_ino != inode.ino {
        return false;
    }
    let same_device = (major(stat.st_dev), minor(stat.st_dev)) == (inode.major, inode.minor);
    same_device || matches!(file_system(fd), Ok(BTRFS | OVERLAYFS))
}
