//! Which file systems answer by themselves, and which only when somebody's server does.

use std::collections::HashMap;

use super::event::Inode;
use super::procfs;
use super::{MonoNs, Patience};

/// File systems of the kernel itself that have no block device of their own. On a block device, only root can mount.
const IN_KERNEL: [&[u8]; 10] = [
    b"overlay",
    b"tmpfs",
    b"ramfs",
    b"btrfs",
    b"zfs",
    b"bcachefs",
    b"devtmpfs",
    b"hugetlbfs",
    b"rootfs",
    b"aufs",
];

/// Numbers of devices are used again after an unmount: what is known of them is kept only for so long, nanoseconds.
const KEPT: u64 = 10_000_000_000;

/// What is known of devices.
#[derive(Debug, Default)]
pub(super) struct Filesystems {
    in_kernel: HashMap<(u32, u32), bool>,
    since: MonoNs,
}

impl Filesystems {
    /// Whether the file system of an inode that this process has mapped answers by itself.
    pub(super) fn answer(&mut self, inode: Inode, tgid: u32, now: MonoNs, patience: &mut Patience) -> bool {
        if inode.major != 0 {
            return true;
        }
        if now.0.saturating_sub(self.since.0) > KEPT {
            self.in_kernel.clear();
            self.since = now;
        }
        let device = (inode.major, inode.minor);
        if let Some(&known) = self.in_kernel.get(&device) {
            return known;
        }
        for mounts in [format!("/proc/{tgid}/mountinfo"), "/proc/self/mountinfo".into()] {
            let read = patience.run(move || procfs::read(&mounts).map(|bytes| parse_mountinfo(&bytes)));
            self.in_kernel.extend(read.ok().and_then(Result::ok).unwrap_or_default());
            if let Some(&known) = self.in_kernel.get(&device) {
                return known;
            }
        }
        self.in_kernel.insert(device, false);
        false
    }
}

/// Devices of a mountinfo file (`proc_pid_mountinfo(5)`), and whether their file system is the kernel's own.
fn parse_mountinfo(bytes: &[u8]) -> Vec<((u32, u32), bool)> {
    let line = |line: &[u8]| {
        let mut fields = line.split(|&b| b == b' ');
        let device = fields.nth(2)?;
        let colon = device.iter().position(|&b| b == b':')?;
        let number = |digits: &[u8]| u32::try_from(procfs::decimal(digits)?).ok();
        let device = (number(&device[..colon])?, number(&device[colon + 1..])?);
        // Optional fields end with a lone dash; blanks within fields are escaped.
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some((device, IN_KERNEL.contains(&kind)))
    };
    bytes.split(|&b| b == b'\n').filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            40 36 0:52 / /a\\040b rw - fuse.sshfs x:/ rw\n41 36 0:53 / /o rw shared:3 propagate_from:2 - overlay o rw\n\
            42 36 0:x / /o rw - overlay\n43 36\n44 36 0:54 / /o rw shared:3 -";
        assert_eq!(parse_mountinfo(text), [((98, 0), false), ((0, 52), false), ((0, 53), true)]);
    }
}
