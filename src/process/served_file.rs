//! Recognizes files on file systems that a program serves (FUSE). A reader of such a file waits for that program, which
//! may never answer. So an opener copies such files if they are mapped (`served.rs`), and refuses them otherwise.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::fs::{AtFlags, OFlags, StatxFlags, fstatfs, statx};
use rustix::io::Errno;

use super::ioctl::has_extents;
use super::procfs;

/// `FUSE_SUPER_MAGIC` of `include/uapi/linux/magic.h`; virtiofs has the same.
const FUSE: u64 = 0x6573_5546;
/// `OVERLAYFS_SUPER_MAGIC` of `include/uapi/linux/magic.h`.
pub(super) const OVERLAYFS: u64 = 0x794c_7630;

/// The magic number of the file system of a file, as statfs(2) has it.
pub(super) fn file_system(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    Ok(u64::try_from(fstatfs(file)?.f_type).unwrap_or(0))
}

/// Whether a program serves the file system of a file, open or `O_PATH`, or may serve one below it.
///
/// This asks the serving program. The program may fail, which counts as served, or never answer. So call this only in an
/// opener or a helper. The kernel's own file systems always answer.
pub fn is_served(file: BorrowedFd<'_>) -> bool {
    match file_system(file) {
        Ok(FUSE) => !is_of_hypervisor(file),
        Ok(OVERLAYFS) => may_be_above_served(file),
        Ok(_) => false,
        Err(_) => true,
    }
}

/// Whether the file of an overlay may be one of a served file system below: a user namespace can mount an overlay above its
/// own FUSE. A file with extents lies on a block device, since FUSE has no extents (`ovl_fiemap` asks the file below).
/// Overlays of the host's own mounts are root's: those of process 1, whose mounts another process cannot change.
fn may_be_above_served(file: BorrowedFd<'_>) -> bool {
    if procfs::reopen(file, OFlags::RDONLY).is_ok_and(|open| has_extents(open.as_fd())) {
        return false;
    }
    let mounts = procfs::read("/proc/1/mountinfo").unwrap_or_default();
    let number = procfs::read(&format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok();
    let number = number.as_deref().and_then(mount_number);
    let is_of_host = device(file).is_some_and(|device| has_mount(&mounts, "overlay", 2, &device))
        || number.is_some_and(|number| has_mount(&mounts, "overlay", 0, number));
    !is_of_host
}

/// The number of the mount in `/proc/PID/fdinfo/FD`.
fn mount_number(info: &[u8]) -> Option<&str> {
    let line = info.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"))?;
    std::str::from_utf8(line).ok().map(str::trim)
}

/// A file's device, `MAJOR:MINOR`.
fn device(file: BorrowedFd<'_>) -> Option<String> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(file, "", flags, StatxFlags::empty()).ok()?;
    Some(format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor))
}

/// Whether the hypervisor serves the file system, as for the root of virtual machines. Only the host's root can mount
/// that.
fn is_of_hypervisor(file: BorrowedFd<'_>) -> bool {
    let mounts = procfs::read("/proc/self/mountinfo").unwrap_or_default();
    device(file).is_some_and(|device| has_mount(&mounts, "virtiofs", 2, &device))
}

/// Whether `/proc/PID/mountinfo` (proc(5)) has a mount of this type with this value in a field: 0 its number, 2 its device.
fn has_mount(mounts: &[u8], kind: &str, field: usize, value: &str) -> bool {
    mounts.split(|&b| b == b'\n').any(|line| {
        let mut fields = line.split(|&b| b == b' ');
        fields.nth(field) == Some(value.as_bytes())
            && fields.skip_while(|field| *field != b"-").nth(1) == Some(kind.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_recognized_by_their_type() {
        let mounts = b"22 1 0:25 / / rw,relatime shared:1 - virtiofs root rw\n\
            23 22 0:26 / /mnt/- rw shared:2 master:1 - fuse.sshfs virtiofs rw\nodd\n\
            24 22 0:27 / /merged rw - overlay overlay rw,lowerdir=/fuse\n";
        let is_virtiofs = |device| has_mount(mounts, "virtiofs", 2, device);
        assert!(is_virtiofs("0:25") && !is_virtiofs("0:26") && !is_virtiofs("0:2"));
        assert!(has_mount(mounts, "overlay", 0, "24") && !has_mount(mounts, "overlay", 0, "22"));
        assert!(has_mount(mounts, "overlay", 2, "0:27") && !has_mount(b"", "overlay", 2, "0:27"));
        assert_eq!(mount_number(b"pos:\t0\nflags:\t02\nmnt_id:\t24\nino:\t7\n"), Some("24"));
    }
}
