//! Making a JVM listen: the file `.attach_pidN` and SIGQUIT make HotSpot start its attach listener.

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

/// Pause between two checks for the socket.
const PAUSE: Duration = Duration::from_millis(10);
/// Minimum age of a JVM that is sent a signal.
const MIN_AGE_FOR_SIGNAL: Duration = Duration::from_secs(1);

/// What a JVM's attach listener is known to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerBehaviour {
    /// The listener starts on SIGQUIT; with `-Xrs` it runs from the start.
    pub(super) starts_on_signal: bool,
    /// SIGQUIT also restarts a listener whose socket file is gone (JDK-8225690). All releases since 14 do so, and later
    /// updates of 8 and 11, which this does not distinguish; a release without it prints a thread dump.
    pub(super) starts_anew: bool,
    /// A trigger file may belong to root, too; before 11 only to the JVM's user.
    accepts_root: bool,
}

impl ListenerBehaviour {
    pub(super) fn of(inspection: &Inspection) -> ListenerBehaviour {
        ListenerBehaviour {
            starts_on_signal: inspection.flags.reduce_signal_usage != Some(true),
            starts_anew: inspection.version.is_some_and(|version| version.feature >= 14),
            accepts_root: inspection.version.is_some_and(|version| version.feature >= 11),
        }
    }
}

/// A connection to the JVM's attach listener, which is started if it does not run.
pub(super) fn connection(
    target: &AttachTarget,
    tmp: &OwnedFd,
    parent: u32,
    habits: ListenerBehaviour,
    deadline: Deadline,
) -> Result<OwnedFd, Refusal> {
    // HotSpot before 11 requires its own effective ids at the other end; within a user namespace every version does.
    let look = || as_target(target.ids(), parent, || connect_to(target, tmp, deadline));
    loop {
        if let Some(socket) = look()? {
            return Ok(socket);
        }
        // HotSpot's startup removes the socket file of a listener that starts early.
        if target.age() >= MIN_AGE_FOR_SIGNAL {
            break;
        }
        deadline.pause(target.pidfd(), PAUSE)?;
    }
    if target.is_stopped()? {
        return Err(Refusal::Stopped);
    }
    check_start(target, habits)?;
    // The link to it may be followed by those only who may trace the target.
    let cwd = target.working_directory().ok();
    let made = as_target(target.ids(), parent, || set_trigger(target, tmp, cwd.as_ref(), habits))?;
    let socket = target.quit_if_caught(parent).and_then(|()| {
        let (mut looks, mut again) = (0_u32, habits.starts_anew);
        loop {
            deadline.pause(target.pidfd(), PAUSE)?;
            if let Some(socket) = look()? {
                return Ok(socket);
            }
            looks += 1;
            // A second signal is safe only if the listener runs without its file: otherwise it prints a thread dump.
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

/// Refuses a JVM that would not begin to listen on a signal.
fn check_start(target: &AttachTarget, habits: ListenerBehaviour) -> Result<(), Refusal> {
    if !habits.starts_on_signal {
        return Err(Refusal::SignalNotCaught);
    }
    if !habits.starts_anew && listens_without_file(target)? {
        return Err(Refusal::NoAnswer);
    }
    Ok(())
}

/// Why [`connection`] would fail, as far as that is known without a signal.
pub(super) fn check_listener(
    target: &AttachTarget,
    tmp: &OwnedFd,
    parent: u32,
    habits: ListenerBehaviour,
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
    let is_blocked = |stat: Stat| !is_believed(target, habits, &stat);
    let cwd = target.working_directory().ok();
    if has_trigger_in_cwd(target, tmp, cwd.as_ref(), habits)?
        || !entry(tmp.as_fd(), &name)?.is_some_and(is_blocked)
    {
        Ok(())
    } else {
        Err(Refusal::Blocked)
    }
}

/// Whether the JVM has its listener's socket open although the socket's file is gone (a cleaner of `/tmp` removed it).
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

/// Removes what a killed helper left: an empty `.attach_pidN` of the target's user that is closed to all others.
pub(super) fn remove_stale_trigger(target: &AttachTarget, tmp: BorrowedFd<'_>) -> Result<(), Refusal> {
    let name = trigger_name(target);
    if let Some(stat) = entry(tmp, &name)?.filter(|stat| is_ours(stat) && stat.st_uid == target.uid) {
        remove(tmp, &name, &stat);
    }
    Ok(())
}

/// Makes sure that the JVM finds a trigger that it accepts. Returns the file if this call made it. HotSpot looks in its
/// working directory first and, if it finds a file there, nowhere else; then in `/tmp`. The file must belong to the
/// JVM's user; since JDK 11 root's is accepted, too.
fn set_trigger(
    target: &AttachTarget,
    tmp: &OwnedFd,
    cwd: Option<&OwnedFd>,
    habits: ListenerBehaviour,
) -> Result<Option<Stat>, Refusal> {
    let name = trigger_name(target);
    if has_trigger_in_cwd(target, tmp, cwd, habits)? {
        return Ok(None);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(tmp, &name, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => fstat(&file).map(Some).map_err(|_| Refusal::TmpNotWritable),
        Err(Errno::EXIST) => match entry(tmp.as_fd(), &name)? {
            // The file of another client at work now, or a leftover of a killed one, which this call may remove.
            Some(stat) if is_believed(target, habits, &stat) => Ok(is_ours(&stat).then_some(stat)),
            _ => Err(Refusal::Blocked),
        },
        Err(_) => Err(Refusal::TmpNotWritable),
    }
}

/// Whether the JVM's working directory has a trigger that it accepts; a file that it does not accept is in the way.
fn has_trigger_in_cwd(
    target: &AttachTarget,
    tmp: &OwnedFd,
    cwd: Option<&OwnedFd>,
    habits: ListenerBehaviour,
) -> Result<bool, Refusal> {
    let name = trigger_name(target);
    // A working directory that the JVM's own user may not search hides the file from the JVM, too.
    let in_cwd = cwd.and_then(|cwd| entry(cwd.as_fd(), &name).unwrap_or(None));
    let Some(stat) = in_cwd else { return Ok(false) };
    let is_it = |other: Stat| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino);
    if entry(tmp.as_fd(), &name)?.is_some_and(is_it) {
        return Ok(false);
    }
    if is_believed(target, habits, &stat) { Ok(true) } else { Err(Refusal::Blocked) }
}

/// Whether the JVM accepts a trigger file.
fn is_believed(target: &AttachTarget, habits: ListenerBehaviour, stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && (stat.st_uid == target.uid || stat.st_uid == 0 && habits.accepts_root)
}

fn trigger_name(target: &AttachTarget) -> String {
    format!(".attach_pid{}", target.ns_pid)
}

/// Whether the profiler made the file: jcmd's files have the permissions of jcmd's umask.
fn is_ours(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_size == 0
        && Mode::from_raw_mode(stat.st_mode) == Mode::RUSR | Mode::WUSR
}

/// Removes the file at a name, if it is still the same file.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &str, meant: &Stat) {
    let same = |there: &Stat| (there.st_dev, there.st_ino) == (meant.st_dev, meant.st_ino);
    if entry(directory, name).is_ok_and(|there| there.as_ref().is_some_and(same)) {
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
}
