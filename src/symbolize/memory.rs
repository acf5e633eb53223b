//! The worker's own memory: libraries do not report how much they hold.
#![allow(unsafe_code)] // calls of glibc, advice on mappings

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, madvise};

/// The kernel's data on this process, opened early: the worker may open nothing later.
static KERNEL: OnceLock<ProcSelf> = OnceLock::new();
/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;
/// Bytes of files that may be resident before they are given back, after a request and during one.
const MAX_RESIDENT_FILE_BYTES: u64 = 4 << 20;
const MAX_BUSY_RESIDENT_FILE_BYTES: u64 = 64 << 20;
/// Permissions of a file that a library has mapped to read it: Rust's and C's own mappings of files are private.
const MAPPED: &str = "r--s";
/// Prefix of the names of files in memory: their pages stay if they are given back.
const IN_MEMORY: &str = "/memfd:";

struct ProcSelf {
    mappings: File,
    sizes: File,
    /// Bytes of files that stay resident after giving back: this program's own, and those in memory.
    baseline: AtomicU64,
}

impl ProcSelf {
    /// Resident bytes of files: the third field of `statm`, proc_pid_statm(5).
    fn files(&self) -> u64 {
        let mut text = [0; 128];
        let got = self.sizes.read_at(&mut text, 0).unwrap_or(0);
        let pages =
            std::str::from_utf8(&text[..got]).ok().and_then(|text| text.split(' ').nth(2)?.parse().ok());
        pages.map_or(0, |pages: u64| pages * rustix::param::page_size() as u64)
    }

    fn mappings(&self) -> Vec<u8> {
        let (mut text, mut buffer) = (Vec::new(), vec![0; CHUNK]);
        while let Ok(got @ 1..) = self.mappings.read_at(&mut buffer, text.len() as u64) {
            text.extend_from_slice(&buffer[..got]);
        }
        text
    }
}

/// Prepares [`give_back_files`]. Must be called before the sandbox is entered.
pub(super) fn prepare() -> io::Result<()> {
    let [mappings, sizes] = ["maps", "statm"].map(|name| File::open(format!("/proc/self/{name}")));
    let kernel = ProcSelf { mappings: mappings?, sizes: sizes?, baseline: AtomicU64::new(0) };
    kernel.baseline.store(kernel.files(), Ordering::Relaxed);
    KERNEL.get_or_init(|| kernel);
    Ok(())
}

/// Bytes allocated on the heap.
pub(super) fn in_use() -> usize {
    // SAFETY: takes nothing and gives numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Gives free memory of the heap back to the kernel.
pub(super) fn give_back_heap() {
    // SAFETY: takes a number; what is allocated stays where it is.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Gives the pages of mapped files back to the kernel, if there are many. The kernel takes them from its cache again
/// when they are needed.
pub(super) fn give_back_files() {
    give_back_files_above(MAX_RESIDENT_FILE_BYTES);
}

/// Like `give_back_files`, with the bound that applies during a request.
pub(super) fn bound_files() {
    give_back_files_above(MAX_BUSY_RESIDENT_FILE_BYTES);
}

fn give_back_files_above(bound: u64) {
    let Some(kernel) = KERNEL.get() else { return };
    if kernel.files() < kernel.baseline.load(Ordering::Relaxed).saturating_add(bound) {
        return;
    }
    for line in kernel.mappings().split(|&byte| byte == b'\n') {
        let Some((start, len)) = std::str::from_utf8(line).ok().and_then(mapped) else { continue };
        // SAFETY: the range is a shared mapping of a file that is only read, so what is read again is what the file
        // has. Nothing else changes this process's mappings meanwhile, since it has one thread.
        let _ = unsafe { madvise(std::ptr::with_exposed_provenance_mut(start), len, Advice::LinuxDontNeed) };
    }
    kernel.baseline.store(kernel.files(), Ordering::Relaxed);
}

/// Address and length of a file that a library has mapped.
fn mapped(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    if permissions != MAPPED || line.contains(IN_MEMORY) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).ok());
    Some((start?, end?.checked_sub(start?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_libraries_map_are_given_back_and_nothing_else() {
        let line =
            |permissions: &str, path: &str| format!("7f10-8f10 {permissions} 00000000 08:01 77   {path}");
        assert_eq!(mapped(&line("r--s", "/usr/lib/libc.so.6")), Some((0x7f10, 0x1000)));
        for line in [
            line("r--p", "/usr/bin/own"),
            line("rw-s", "/dev/shm/a"),
            line("r--s", "/memfd:symbols (deleted)"),
        ] {
            assert_eq!(mapped(&line), None, "{line}");
        }
    }

    #[test]
    fn what_is_allocated_is_counted() {
        // Other tests allocate at the same time, but less than half of this.
        const MUCH: usize = 1 << 30;
        let before = in_use();
        let bytes = vec![0_u8; MUCH];
        assert!(in_use() > before + MUCH / 2);
        drop(bytes);
        give_back_heap();
        assert!(in_use() < before + MUCH / 2);
    }
}
