//! The agent as a file in the target's `/tmp`, for as long as loading it takes.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, StatVfsMountFlags, fchmod, fstat, fstatvfs, openat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::ids::as_target;
use super::listen::remove;
use super::refusal::Refusal;
use super::target::{AttachTarget, entry};
use crate::process::maps::MapsEntry;
use crate::process::{errno_of, procfs};

/// The agent library, as build.rs made it.
pub const AGENT: &[u8] = include_bytes!(env!("JVM_SYMBOLS_AGENT"));

/// Most entries of a `/tmp` that are read.
const MAX_ENTRIES: usize = 20_000;
const PREFIX: &str = ".jvm-symbols-";
const SUFFIX: &str = ".so";
const DIGITS: usize = 16;

/// The agent's file name. The maker's pid lets a later run recognise a leftover, the version distinguishes agents, and
/// the random number makes the name unique.
pub(super) fn name_for(maker: u32, random: u32) -> String {
    format!("{PREFIX}{maker}-{:08x}{random:08x}{SUFFIX}", version())
}

/// Distinguishes this agent from other builds: FNV-1a over its bytes.
fn version() -> u32 {
    AGENT.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The name under which this build of the agent was loaded before, if one of the mappings shows it.
pub(super) fn loaded_name(mut maps: impl Iterator<Item = MapsEntry>) -> Option<String> {
    let version = format!("-{:08x}", version());
    maps.find_map(|entry| {
        let path = entry.path.as_os_str().as_encoded_bytes();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let name = std::str::from_utf8(path.rsplit(|&b| b == b'/').next()?).ok()?;
        (maker_of(name).is_some() && name.contains(&version)).then(|| name.to_owned())
    })
}

/// The maker's pid, if `name` is an agent's file name.
pub(super) fn maker_of(name: &str) -> Option<u32> {
    let (maker, random) = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split_once('-')?;
    let hex = random.len() == DIGITS && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let digits = !maker.is_empty() && !maker.starts_with('0') && maker.bytes().all(|b| b.is_ascii_digit());
    if hex && digits { maker.parse().ok() } else { None }
}

/// The target's `/tmp`, if a library can be written there and loaded from there.
pub(super) fn usable_tmp(target: &AttachTarget) -> Result<OwnedFd, Refusal> {
    let tmp = target.directory("tmp").map_err(|errno| match errno {
        Errno::NOENT if target.has_exited() => Refusal::Exited,
        // A filter of system calls does not know openat2.
        Errno::PERM | Errno::NOSYS => Refusal::NotPermitted,
        _ => Refusal::TmpNotWritable,
    })?;
    let stat = fstatvfs(&tmp).map_err(|_| Refusal::TmpNotWritable)?;
    let flags = stat.f_flag;
    if flags.contains(StatVfsMountFlags::RDONLY) {
        return Err(Refusal::TmpNotWritable);
    }
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        return Err(Refusal::NoexecTmp);
    }
    // A tmpfs without a limit has no number of blocks.
    if stat.f_blocks > 0 && stat.f_bfree.saturating_mul(stat.f_frsize) < AGENT.len() as u64 {
        return Err(Refusal::TmpNotWritable);
    }
    Ok(tmp)
}

/// Writes the agent's file, calls `load`, and removes the file even if `load` fails.
pub(super) fn with_agent<T>(
    target: &AttachTarget,
    tmp: &OwnedFd,
    name: &str,
    parent: u32,
    load: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    // No other process can change root's file in between. Where root cannot write, the target's user makes the file: a
    // user namespace may not map root (EOVERFLOW), and a network file system may not trust root.
    let made = match make(tmp.as_fd(), name) {
        Err(Errno::OVERFLOW | Errno::ACCESS | Errno::PERM) => {
            as_target(target.ids(), parent, || Ok(make(tmp.as_fd(), name)))?
        }
        other => other,
    };
    let made =
        made.map_err(|errno| if errno == Errno::EXIST { Refusal::Blocked } else { Refusal::TmpNotWritable })?;
    let result = load();
    remove(tmp.as_fd(), name, &made);
    result
}

/// Makes the whole file, or leaves nothing behind.
fn make(tmp: BorrowedFd<'_>, name: &str) -> Result<Stat, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o555);
    let mut file = File::from(openat(tmp, name, flags, mode)?);
    let stat = fstat(&file)?;
    let written = file.write_all(AGENT).map_err(|e| errno_of(&e));
    // The umask may have removed read permission.
    if let Err(errno) = written.and_then(|()| fchmod(&file, mode)) {
        remove(tmp, name, &stat);
        return Err(errno);
    }
    Ok(stat)
}

/// Removes the file of that name, if the profiler made it.
pub(super) fn remove_named(target: &AttachTarget, tmp: BorrowedFd<'_>, name: &str) -> Result<(), Refusal> {
    if maker_of(name).is_some()
        && let Some(stat) = entry(tmp, name)?.filter(|stat| is_ours(target, stat))
    {
        remove(tmp, name, &stat);
    }
    Ok(())
}

/// Removes the files of profilers that were killed. Files of profilers that still run stay.
pub(super) fn remove_leftovers(target: &AttachTarget, tmp: BorrowedFd<'_>) -> Result<(), Refusal> {
    let Ok(directory) = procfs::reopen(tmp, OFlags::RDONLY | OFlags::DIRECTORY) else { return Ok(()) };
    let Ok(entries) = Dir::new(directory) else { return Ok(()) };
    for found in entries.take(MAX_ENTRIES).filter_map(Result::ok) {
        let Some((name, maker)) = found.file_name().to_str().ok().and_then(|n| Some((n, maker_of(n)?)))
        else {
            continue;
        };
        if let Some(stat) = entry(tmp, name)?.filter(|stat| is_ours(target, stat))
            && !lived_at(maker, stat.st_mtime)
        {
            remove(tmp, name, &stat);
        }
    }
    Ok(())
}

fn is_ours(target: &AttachTarget, stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && (stat.st_uid == 0 || stat.st_uid == target.uid)
        && stat.st_nlink == 1
}

/// Whether the process that has this pid now already ran at `time` (seconds since the epoch).
fn lived_at(pid: u32, time: i64) -> bool {
    let Some(stat) = procfs::stat(pid) else { return false };
    let seconds_since_boot =
        i64::try_from(procfs::clock_ticks(stat.start_ticks).as_secs()).unwrap_or(i64::MAX);
    let boot = clock_gettime(ClockId::Realtime).tv_sec - clock_gettime(ClockId::Boottime).tv_sec;
    // Each of these times is rounded to a second.
    boot.saturating_add(seconds_since_boot) <= time.saturating_add(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps::parse_maps;

    #[test]
    fn only_our_own_names_are_recognised() {
        let name = name_for(4711, 0xabc);
        assert_eq!(maker_of(&name), Some(4711));
        assert!(name.starts_with(".jvm-symbols-4711-") && name.ends_with("00000abc.so"), "{name}");
        for foreign in [
            "",
            ".jvm-symbols-.so",
            ".jvm-symbols-1-2.so",
            ".jvm-symbols--0000000000000abc.so",
            ".jvm-symbols-x-0000000000000abc.so",
            ".jvm-symbols-1-0000000000000abG.so",
            ".jvm-symbols-1-../../../../etc.so",
            ".jvm-symbols-+1-0000000000000abc.so",
            ".jvm-symbols-1-0000000000000abc.so.bak",
        ] {
            assert_eq!(maker_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn only_this_agent_is_found_loaded() {
        let name = name_for(4711, 0xabc);
        let loaded_name = |name: &str| {
            let text = format!("1-2 r-xp 0 0:1 2 /x.so\n3-4 r-xp 0 0:1 3 /tmp/{name} (deleted)\n");
            loaded_name(parse_maps(text.as_bytes()).entries.into_iter())
        };
        assert_eq!(loaded_name(&name), Some(name));
        for foreign in ["x.so", ".jvm-symbols-1-0123456789abcdef.so", ".jvm-symbols-1-../x.so"] {
            assert_eq!(loaded_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_process_lived_since_its_start() {
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        assert!(lived_at(std::process::id(), now));
        assert!(!lived_at(std::process::id(), now - 1_000_000_000));
        assert!(!lived_at(u32::MAX, now));
    }
}
