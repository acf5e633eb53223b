//! Empties a count map in batches. `unsafe` is allowed here because libbpf-rs 0.27 lacks a usable call: its batch
//! iterator stops after the first short batch.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::abi::{CountKey, CountValue};

/// Takes all entries out of a hash map that has no writers any more. `entries` is the map's size: a batch of that size
/// always has room for a whole bucket.
///
/// # Errors
/// The kernel's error; `EINVAL` before 5.6.
pub(super) fn take_all(map: BorrowedFd<'_>, entries: usize) -> io::Result<Vec<(CountKey, CountValue)>> {
    let mut keys = vec![CountKey::default(); entries];
    let mut values = vec![CountValue::default(); entries];
    let mut all = Vec::new();
    let (mut cursor, mut started) = (0u64, false);
    loop {
        let mut count = u32::try_from(entries).unwrap_or(u32::MAX);
        let from = if started { (&raw mut cursor).cast() } else { std::ptr::null_mut() };
        // SAFETY: `keys` and `values` have room for `count` entries of the map's key and value sizes (abi.rs); the
        // cursor is at least as large as the kernel's (u32).
        let rc = unsafe {
            libbpf_sys::bpf_map_lookup_and_delete_batch(
                map.as_raw_fd(),
                from,
                (&raw mut cursor).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        let error = (rc < 0).then(|| io::Error::from_raw_os_error(-rc));
        let ended = error.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::NotFound);
        if let Some(error) = error
            && !ended
        {
            return Err(error);
        }
        all.extend(keys.iter().copied().zip(values.iter().copied()).take(count as usize));
        if ended {
            return Ok(all);
        }
        started = true;
    }
}
