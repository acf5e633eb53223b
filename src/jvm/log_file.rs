//! The agent's logs among a JVM's descriptors: memfds that are sealed, so that no process can truncate them under a
//! reader.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use jvm_symbols_log::header::{HEADER_LEN, MEMFD_NAME};
use jvm_symbols_log::log_file::Header;
use rustix::fs::{FileType, Mode, OFlags, SealFlags, fcntl_get_seals, fstat, fstatfs, openat};

use super::refusal::Refusal;
use super::target::AttachTarget;
use crate::process::procfs;

/// `TMPFS_MAGIC` of `linux/magic.h`: memfds live there.
const TMPFS: u64 = 0x0102_1994;
/// Most logs of one JVM: a hostile JVM may show very many.
const MAX_LOGS: usize = 64;
/// Largest offset of a log. Offsets grow while the pages before them are freed.
const MAX_SIZE: u64 = 1 << 42;

/// A log of the agent.
#[derive(Debug)]
pub(super) struct LogFile {
    /// Open for reading, and for writing the lease.
    pub(super) file: File,
    pub(super) header: Header,
}

/// All logs that a JVM has open. Files that only look like a log are left out.
pub(super) fn logs_of(target: &AttachTarget) -> Result<Vec<LogFile>, Refusal> {
    let directory = target.descriptors()?;
    let name = format!("/memfd:{MEMFD_NAME} (deleted)");
    let links = target.links()?;
    let named = links.iter().filter(|(_, link)| link == name.as_bytes()).take(MAX_LOGS);
    Ok(named.filter_map(|(number, _)| open_log(directory.as_fd(), number)).collect())
}

fn open_log(descriptors: BorrowedFd<'_>, number: &str) -> Option<LogFile> {
    // The link's text proves nothing, and opening may have side effects: check the file before opening it.
    let found: OwnedFd = openat(descriptors, number, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = fstat(&found).ok()?;
    let size = u64::try_from(stat.st_size).ok()?;
    let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && fstatfs(&found).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
        && (HEADER_LEN..=MAX_SIZE).contains(&size);
    if !fits {
        return None;
    }
    let file = File::from(procfs::reopen(found.as_fd(), OFlags::RDWR).ok()?);
    if !fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK) {
        return None;
    }
    let header = Header::read(&file).ok()?;
    Some(LogFile { file, header })
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd as _};
    use std::os::unix::fs::FileExt as _;

    use jvm_symbols_log::header::{HeaderFields, LogKind, MAGIC};
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    use super::*;

    /// A log as the agent makes it, with these seals.
    fn log(seals: SealFlags) -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create(MEMFD_NAME, flags).unwrap());
        let mut page = [0; HEADER_LEN as usize];
        HeaderFields {
            kind: LogKind::Attach,
            pid: 7,
            started: 1,
            nonce: [3; 16],
            cap: 1 << 20,
            enabled: 2,
            lease_until: 9,
            path: b"/tmp/agent.so",
        }
        .fill(&mut page);
        page[..8].copy_from_slice(&MAGIC);
        file.write_all_at(&page, 0).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    /// The log behind a descriptor of this process, whose file may have changed since its link was read.
    fn found(descriptor: impl AsFd) -> Option<LogFile> {
        let own = rustix::fs::open("/proc/self/fd", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        open_log(own.as_fd(), &descriptor.as_fd().as_raw_fd().to_string())
    }

    #[test]
    fn what_took_the_place_of_a_log_is_none() {
        let sealed = log(SealFlags::SHRINK);
        assert_eq!(found(&sealed).unwrap().header.nonce, [3; 16]);
        assert!(found(log(SealFlags::empty())).is_none(), "it may be cut short under a reader");
        let empty = File::from(memfd_create(MEMFD_NAME, MemfdFlags::CLOEXEC).unwrap());
        assert!(found(&empty).is_none());
        let garbage = log(SealFlags::empty());
        garbage.write_all_at(b"x", 0).unwrap();
        fcntl_add_seals(&garbage, SealFlags::SHRINK).unwrap();
        assert!(found(&garbage).is_none());
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(found(&pipe).is_none());
        // Opening a terminal could make it the controlling one. So no device is opened, and /dev/null stands for all.
        let device = rustix::fs::open("/dev/null", OFlags::PATH, Mode::empty()).unwrap();
        assert!(found(device).is_none());
        let on_disk = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(found(&on_disk).is_none());
        assert!(open_log(sealed.as_fd(), "0").is_none(), "no directory of descriptors");
    }
}
