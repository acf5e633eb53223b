//! The ring buffer of a perf event, mapped into memory, which needs `unsafe`.
//!
//! Protocol (`include/uapi/linux/perf_event.h`, `struct perf_event_mmap_page`): the kernel moves `data_head`; the
//! reader copies the bytes between the two positions and then moves `data_tail`. Positions only grow; the index is
//! modulo the size.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped ring buffer.
#[derive(Debug)]
pub struct PerfRing {
    base: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the mapping is ours alone, is not bound to a thread, and is only touched through `&mut self`.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps a ring of `size` bytes (a power of two, at least a page) for an event without a ring.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` above `perf_event_mlock_kb` without `CAP_IPC_LOCK`, `ENOMEM`.
    pub fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<PerfRing> {
        let page = rustix::param::page_size();
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(ptr::null_mut(), page + size, prot, flags, event, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(PerfRing { base, page, size })
    }

    /// Appends all unread bytes to `out` and gives their space back to the kernel. Returns the number of bytes.
    ///
    /// # Errors
    /// If the kernel's positions are invalid.
    pub fn read(&mut self, out: &mut Vec<u8>) -> io::Result<usize> {
        let head = self.control(std::mem::offset_of!(perf_event_mmap_page, data_head));
        let tail = self.control(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        // Acquire: the records must be read after the position that covers them.
        let end = head.load(Ordering::Acquire);
        let begin = tail.load(Ordering::Relaxed);
        let len = usize::try_from(end.wrapping_sub(begin)).unwrap_or(usize::MAX);
        if len > self.size {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "perf ring: positions make no sense"));
        }
        let at = usize::try_from(begin % self.size as u64).unwrap_or(0);
        let first = len.min(self.size - at);
        out.reserve(len);
        // SAFETY: `at + first` and `len - first` are at most `size`, so both copies stay within the data part of the
        // mapping; `out` has room for `len` more bytes, which are written before its length covers them. The kernel
        // does not write between tail and head.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            let to = out.as_mut_ptr().add(out.len());
            ptr::copy_nonoverlapping(data.add(at), to, first);
            ptr::copy_nonoverlapping(data, to.add(first), len - first);
            out.set_len(out.len() + len);
        }
        // Release: the kernel may overwrite the records only after they have been copied.
        tail.store(end, Ordering::Release);
        Ok(len)
    }

    /// A position in the control page.
    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives, both fields lie within it and are aligned to 8,
        // and the kernel accesses them atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping with this address and length; nothing borrows from it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.page + self.size) };
    }
}
