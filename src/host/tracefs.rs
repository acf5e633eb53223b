//! The tracepoints of the kernel, from tracefs.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where tracefs is mounted: since 4.1, and before.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const LIST: &str = "available_events";
/// Limit on the list's size, bytes: 2,000 tracepoints have 60 KB.
const MAX_BYTES: u64 = 16 << 20;

/// The names of all tracepoints, as `CATEGORY:NAME`, sorted.
///
/// # Errors
/// When tracefs is not mounted and this process may not look into it without a mount.
pub fn tracepoints() -> io::Result<Vec<String>> {
    let mounted = MOUNTS.iter().find_map(|mount| read(&Path::new(mount).join(LIST)).ok());
    let text = mounted.map_or_else(read_unmounted, Ok)?;
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads the list without a mount that others see (Linux 5.2): the file system is attached to a descriptor only.
fn read_unmounted() -> io::Result<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let root: OwnedFd = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    read(&Path::new("/proc/self/fd").join(root.as_raw_fd().to_string()).join(LIST))
}
