//! The vdso: code that the kernel maps into every process, an ELF image without a file.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

const MAX_SIZE: u64 = 1 << 20;

/// The image of our own vdso, in a file in memory. All 64-bit processes of this kernel have the same one.
pub(crate) fn image() -> Option<OwnedFd> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let size = end.checked_sub(start).filter(|&size| size <= MAX_SIZE)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    let mut file = File::from(memfd_create("jbpf-prof-vdso", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(&bytes).ok()?;
    Some(file.into())
}
