//! The profiler's writes to a JVM's log: the lease, and how much of the log was consumed.

use std::fs::File;
use std::io;

use jvm_symbols_log::header::HEADER_LEN;
use jvm_symbols_log::log_file::{write_consumed, write_lease};
use rustix::fs::{FallocateFlags, fallocate};

/// Frees the JVM's memory below `offset`: everything there has been read (see `CodeTimeline::read_to`) and is not
/// needed again. A reader that starts later misses it. Not for logs from the start: they have other readers.
///
/// # Errors
/// As of `pwrite` and `fallocate`.
pub fn release(log: &File, offset: u64) -> io::Result<()> {
    write_consumed(log, offset)?;
    punch(log, offset)
}

/// Ends the lease and empties the log; the agent closes it at its next event.
///
/// # Errors
/// As of `pwrite` and `fallocate`.
pub fn end(log: &File) -> io::Result<()> {
    write_lease(log, 0)?;
    punch(log, i64::MAX as u64)
}

fn punch(log: &File, to: u64) -> io::Result<()> {
    let len = to.saturating_sub(HEADER_LEN);
    if len > 0 {
        fallocate(log, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, HEADER_LEN, len)?;
    }
    Ok(())
}
