//! Making a JVM listen: the file `.attach_pidN` and SIGQUIT, on which HotSpot starts its attach listener.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::deadline::Deadline;
use super::ids::as_target;
use super::inspection::Inspection;
use super::protocol::connect_to;
use super::refusal::Refusal;
use super::status::catches_sigquit;
use super::target::{AttachTarget, entry};

/// How often the socket is looked for.
const PAUSE: Duration = Duration::from_millis(10);
/// How old a JVM must be to be sent a signal.
const SETTLED: Duration = Duration::from_secs(1);

/// What a JVM's listener is known to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// It starts on SIGQUIT; with `-Xrs` it runs from the start.
    pub(super) starts_on_signal: bool,
    /// SIGQUIT also makes a listener whose socket file is gone start anew (JDK-8225690, in all since 14); others
    /// print a thread dump.
    pub(super) starts_anew: bool,
}

impl Habits {
    pub(super) fn of(inspection: &Inspection) -> Habits {
        Habits {
            starts_on_signal: inspection.flags.reduce_signal_usage != Some(true),
            starts_anew: inspection.version.is_some_and(|version| version.feature >= 14),
        }
    }
}

/// A connection to the JVM's attach listener, which is started if it does not run.
pub(super) fn connection(
    target: &AttachTarget,
    tmp: &OwnedFd,
    parent: u32,
    habits: Habits,
    deadline: Deadline,
) -> Result<OwnedFd, Refusal> {
    // HotSpot before 11 wants its own effective ids at the other end, and within a user namespace every version does.
    let look = || as_target(target.ids(), parent, || connect_to(target, tmp, deadline));
    loop {
        if let Some(socket) = look()? {
            return Ok(socket);
        }
        // The file of a listener that starts early is removed again by the rest of HotSpot's start.
        if target.age() >= SETTLED {
            break;
        }
        deadline.pause(target.pidfd(), PAUSE)?;
    }
    if target.is_stopped()? {
        return Err(Refusal::Stopped);
    }
    check_start(target, habits)?;
    let made = as_target(target.ids(), parent, || set_trigger(target, tmp))?;
    let socket = target.quit_if_caught(parent).and_then(|()| {
        let (mut looks, mut again) = (0_u32, habits.starts_anew);
        loop {
            deadline.pause(target.pidfd(), PAUSE)?;
            if let Some(socket) = look()? {
                return Ok(socket);
            }
            looks += 1;
            // A second signal only if the listener runs and lacks its file: else it prints a thread dump.
            if again && looks.is_multiple_of(100) && listens_without_file(target)? {
                again = false;
                target.quit_if_caught(parent)?;
            }
        }
    });
    if let Some(made) = made {
        as_target(target.ids(), parent, || {
            remove(tmp.as_fd(), &trigger_name(target), &made);
            Ok(())
        })?;
    }
    match socket {
        Err(Refusal::TimedOut) if target.is_stopped()? => Err(Refusal::Stopped),
        other => other,
    }
}

/// Refuses a JVM that would not begin to listen when it is asked to.
fn check_start(target: &AttachTarget, habits: Habits) -> Result<(), Refusal> {
    if !habits.starts_on_signal {
        return Err(Refusal::SignalNotCaught);
    }
    if !habits.starts_anew && listens_without_file(target)? {
        return Err(Refusal::NoAnswer);
    }
    Ok(())
}

/// Why [`connection`] would fail, as far as it can be told without a signal.
pub(super) fn foresee(
    target: &AttachTarget,
    tmp: &OwnedFd,
    parent: u32,
    habits: Habits,
    deadline: Deadline,
) -> Result<(), Refusal> {
    if as_target(target.ids(), parent, || connect_to(target, tmp, deadline))?.is_some() {
        return Ok(());
    }
    check_start(target, habits)?;
    if !catches_sigquit(&target.proc_file("status")?) {
        return Err(Refusal::SignalNotCaught);
    }
    let name = trigger_name(target);
    let is_blocked = |stat: Stat| !is_believed(target, &stat);
    if has_trigger_in_cwd(target, tmp, &name)? || !entry(tmp.as_fd(), &name)?.is_some_and(is_blocked) {
        Ok(())
    } else {
        Err(Refusal::Blocked)
    }
}

/// Whether the JVM has a socket open that it bound as its listener's, though there is no file to connect to (a cleaner
/// of `/tmp` took it).
fn listens_without_file(target: &AttachTarget) -> Result<bool, Refusal> {
    let name = format!("/tmp/.java_pid{}", target.ns_pid);
    let sockets = target.proc_file("net/unix")?;
    // Number, count, protocol, flags, type, state, inode, path. Containers that share a network share the names, too.
    let inode_of = |line: &[u8]| {
        let mut fields = line.split(|&b| b == b' ').filter(|field| !field.is_empty());
        let (inode, path) = (fields.nth(6)?, fields.next()?);
        let its = path.strip_suffix(b".tmp").unwrap_or(path) == name.as_bytes();
        its.then(|| [b"socket:[", inode, b"]"].concat())
    };
    let bound: Vec<Vec<u8>> = sockets.split(|&b| b == b'\n').filter_map(inode_of).collect();
    Ok(!bound.is_empty() && target.links()?.iter().any(|(_, link)| bound.contains(link)))
}

/// Removes what a killed helper left: an empty `.attach_pidN` of the target's user and closed to all others.
pub(super) fn remove_stale_trigger(target: &AttachTarget, tmp: BorrowedFd<'_>) -> Result<(), Refusal> {
    let name = trigger_name(target);
    if let Some(stat) = entry(tmp, &name)?.filter(|stat| is_ours(stat) && stat.st_uid == target.uid) {
        remove(tmp, &name, &stat);
    }
    Ok(())
}

/// Sees to it that the JVM finds a trigger that it believes in; the file, if it was made here. HotSpot looks in its
/// working directory first and, if it finds a file there, nowhere else; then in `/tmp`. It must belong to its user or
/// root.
fn set_trigger(target: &AttachTarget, tmp: &OwnedFd) -> Result<Option<Stat>, Refusal> {
    let name = trigger_name(target);
    if has_trigger_in_cwd(target, tmp, &name)? {
        return Ok(None);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(tmp, &name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => fstat(&file).map(Some).map_err(|_| Refusal::TmpNotWritable),
        Err(Errno::EXIST) => match entry(tmp.as_fd(), &name)? {
            // Another client's, at work now; or what a killed one left, which is ours to remove.
            Some(stat) if is_believed(target, &stat) => Ok(is_ours(&stat).then_some(stat)),
            _ => Err(Refusal::Blocked),
        },
        Err(_) => Err(Refusal::TmpNotWritable),
    }
}

/// Whether the JVM finds a trigger in its working directory that it believes in; one that it does not is in the way.
fn has_trigger_in_cwd(target: &AttachTarget, tmp: &OwnedFd, name: &str) -> Result<bool, Refusal> {
    // A working directory that its own user may not look into hides the file from the JVM, too.
    let in_cwd = target.working_directory().and_then(|cwd| entry(cwd.as_fd(), name)).unwrap_or(None);
    let Some(stat) = in_cwd else { return Ok(false) };
    let is_it = |other: Stat| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino);
    if entry(tmp.as_fd(), name)?.is_some_and(is_it) {
        return Ok(false);
    }
    if is_believed(target, &stat) { Ok(true) } else { Err(Refusal::Blocked) }
}

/// Whether the JVM believes a trigger.
fn is_believed(target: &AttachTarget, stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && (stat.st_uid == target.uid || stat.st_uid == 0)
}

fn trigger_name(target: &AttachTarget) -> String {
    format!(".attach_pid{}", target.ns_pid)
}

/// As we make them; jcmd's have the permissions of its umask.
fn is_ours(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_size == 0
        && Mode::from_raw_mode(stat.st_mode) == Mode::RUSR | Mode::WUSR
}

/// Removes the file at a name, if it is still the one that is meant.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &str, meant: &Stat) {
    let same = |there: &Stat| (there.st_dev, there.st_ino) == (meant.st_dev, meant.st_ino);
    if entry(directory, name).is_ok_and(|there| there.as_ref().is_some_and(same)) {
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
}
