//! The agent's logs among a JVM's descriptors: memfds that nobody can cut short under a reader.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use jvm_symbols_log::header::{HEADER_LEN, MEMFD_NAME};
use jvm_symbols_log::log_file::Header;
use rustix::fs::{FileType, Mode, OFlags, SealFlags, fcntl_get_seals, fstat, fstatfs, openat};

use super::refusal::Refusal;
use super::target::{Target, reopen};

/// `TMPFS_MAGIC` of `linux/magic.h`: memfds live there.
const TMPFS: u64 = 0x0102_1994;
/// A JVM may show very many, if it wants to annoy us.
const MAX_LOGS: usize = 64;
/// Offsets grow while pages behind are freed; beyond this there is no log.
const MAX_SIZE: u64 = 1 << 42;

/// A log.
#[derive(Debug)]
pub(super) struct Found {
    /// To read, and to write the lease.
    pub(super) file: File,
    pub(super) header: Header,
}

/// Every log that a JVM has open. What looks like one and is none is left out.
pub(super) fn logs_of(target: &Target) -> Result<Vec<Found>, Refusal> {
    let directory = target.descriptors()?;
    let name = format!("/memfd:{MEMFD_NAME} (deleted)");
    let links = target.links()?;
    let named = links.iter().filter(|(_, link)| link == name.as_bytes()).take(MAX_LOGS);
    Ok(named.filter_map(|(number, _)| open_log(directory.as_fd(), number)).collect())
}

fn open_log(descriptors: BorrowedFd<'_>, number: &str) -> Option<Found> {
    // The link's text is no proof, and opening may have effects: look before.
    let found: OwnedFd = openat(descriptors, number, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = fstat(&found).ok()?;
    let size = u64::try_from(stat.st_size).ok()?;
    let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && fstatfs(&found).is_ok_and(|fs| fs.f_type as u64 == TMPFS)
        && (HEADER_LEN..=MAX_SIZE).contains(&size);
    if !fits {
        return None;
    }
    let file = File::from(reopen(found.as_fd(), OFlags::RDWR).ok()?);
    if !fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK) {
        return None;
    }
    let header = Header::read(&file).ok()?;
    Some(Found { file, header })
}
