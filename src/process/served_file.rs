//! Recognizes files on file systems that a program serves (FUSE). A reader of such a file waits for that program, which
//! may never answer. So an opener copies such files if they are mapped (`served.rs`), and refuses them otherwise.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};

use super::procfs;

/// `FUSE_SUPER_MAGIC` of `include/uapi/linux/magic.h`; virtiofs has the same.
const FUSE: u64 = 0x6573_5546;

/// Whether a program serves the file system of a file, open or `O_PATH`.
///
/// `fstatfs` asks the serving program. The program may fail, which counts as served, or never answer. So call this only
/// in an opener. The kernel's own file systems always answer.
pub(super) fn is_served(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).map_or(true, |fs| u64::try_from(fs.f_type) == Ok(FUSE)) && !is_of_hypervisor(file)
}

/// Whether the hypervisor serves the file system, as for the root of virtual machines. Only the host's root can mount
/// that.
fn is_of_hypervisor(file: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(stat) = statx(file, "", flags, StatxFlags::empty()) else { return false };
    let mounts = procfs::read("/proc/self/mountinfo").unwrap_or_default();
    has_virtiofs(&mounts, &format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor))
}

/// Whether a device is a virtiofs in `/proc/PID/mountinfo` (proc(5)).
fn has_virtiofs(mounts: &[u8], device: &str) -> bool {
    mounts.split(|&b| b == b'\n').any(|line| {
        let mut fields = line.split(|&b| b == b' ');
        fields.nth(2) == Some(device.as_bytes())
            && fields.skip_while(|field| *field != b"-").nth(1) == Some(b"virtiofs")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtiofs_is_recognized_by_its_mount_type() {
        let mounts = b"22 1 0:25 / / rw,relatime shared:1 - virtiofs root rw\n\
            23 22 0:26 / /mnt/- rw shared:2 master:1 - fuse.sshfs virtiofs rw\nodd\n";
        assert!(has_virtiofs(mounts, "0:25"));
        assert!(!has_virtiofs(mounts, "0:26") && !has_virtiofs(mounts, "0:2") && !has_virtiofs(b"", "0:25"));
    }
}
