//! Unwinds threads that are still waiting, from outside: the unwinder of `bpf/`, compiled for user space (`walker.c`), on
//! the memory of their process.
#![allow(unsafe_code)] // calls of the unwinder, and its calls back

use std::ffi::{c_long, c_void};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::lock::LockNumbers;
use crate::sample::{Leaf, Lock, SavedRegisters, StillWaiting, StopReason, UserWord};
use crate::sample::{LockKind, LockOwner};

/// The most words of a user stack: `JP_MAX_USER_WORDS` of `bpf/abi.h`.
const MAX_WORDS: usize = 2048;
/// Failed read of user memory, for the unwinder.
const EFAULT: c_long = -14;

/// The pages of one process's unwind tables and address space, numbered from 0. Page 0 is not used.
pub struct OutsidePages {
    /// The pages, as words: the unwinder reads aligned structs.
    words: Vec<u64>,
    /// The page where the address space begins; 0: the process has none.
    space: u32,
}

impl fmt::Debug for OutsidePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutsidePages").field("words", &self.words.len()).field("space", &self.space).finish()
    }
}

impl OutsidePages {
    /// Pages of these bytes, with the address space from page `space` on.
    #[must_use]
    pub fn new(bytes: &[u8], space: u32) -> OutsidePages {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        OutsidePages { words, space }
    }
}

/// The user stack of a thread that is still waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideStack {
    /// User frames, leaf first.
    pub user: Vec<UserWord>,
    /// Why the unwinder stopped.
    pub stop_reason: StopReason,
    /// The Java lock for which the thread waits.
    pub lock: Option<Lock>,
    /// Whether a collection hides the lock now: the heap's objects are moving.
    pub lock_is_hidden: bool,
}

/// `struct jp_outside` of `walker.c`.
#[repr(C)]
struct RawOutside {
    pages: *const u8,
    size: u64,
    space: u32,
    pad: u32,
    read: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, u32) -> c_long,
    memory: *mut c_void,
}

/// `struct jp_waiting` of `bpf/abi.h`.
#[repr(C)]
struct RawWaiting {
    ip: u64,
    sp: u64,
    fp: u64,
    ax: u64,
    bx: u64,
    r13: u64,
    switches: u64,
    tid: u32,
    own_tid: u32,
    i386: u64,
}

unsafe extern "C" {
    fn jp_walk_outside(
        from: *const RawOutside,
        start: *const RawWaiting,
        leaf: u32,
        words: *mut u64,
        count: *mut u32,
        lock: *mut LockNumbers,
        hidden: *mut u32,
    ) -> u32;
}

/// Reads memory of the process: fills the whole buffer from an address, or returns false.
pub type ReadMemory<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// Unwinds the user stack of a thread. The number of reads is bounded for every content of memory. `leaf`: how the thread
/// left user mode. `None` if the unwinder's words make no sense, which only a fault of its own could cause.
pub fn unwind(
    pages: &OutsidePages,
    thread: &StillWaiting,
    leaf: Leaf,
    read: &mut ReadMemory<'_>,
) -> Option<OutsideStack> {
    let mut reader: &mut ReadMemory<'_> = read;
    let outside = RawOutside {
        pages: pages.words.as_ptr().cast(),
        size: size_of_val(&*pages.words) as u64,
        space: pages.space,
        pad: 0,
        read: read_memory,
        memory: (&raw mut reader).cast(),
    };
    let SavedRegisters { ip, sp, fp, ax, bx, r13, i386 } = thread.registers;
    let StillWaiting { tid, own_tid, switches, .. } = *thread;
    let start = RawWaiting { ip, sp, fp, ax, bx, r13, switches, tid, own_tid, i386: i386.into() };
    let leaf = match leaf {
        Leaf::User => 0,
        Leaf::Syscall => 1,
        Leaf::Fault => 2,
        Leaf::None => 3,
    };
    let (mut words, mut count, mut lock, mut hidden) = (vec![0; MAX_WORDS], 0, LockNumbers::default(), 0);
    // SAFETY: all pointers are valid during the call. `words` has room for the most words that the unwinder writes. It
    // reads `pages` within their size only, and passes `memory` to `read_memory` only.
    let stop_reason = unsafe {
        jp_walk_outside(
            &raw const outside,
            &raw const start,
            leaf,
            words.as_mut_ptr(),
            &raw mut count,
            &raw mut lock,
            &raw mut hidden,
        )
    };
    words.truncate(count as usize);
    Some(OutsideStack {
        user: UserWord::parse(words.into_iter())?,
        stop_reason: StopReason::ALL.get(stop_reason as usize).copied()?,
        lock: lock.lock().map(|lock| of_waiter(lock, own_tid)),
        lock_is_hidden: hidden != 0,
    })
}

/// Reads memory for the unwinder. `memory` is the reader of `unwind`.
///
/// # Safety
/// `memory` is the pointer that `unwind` passed on, and `to` has room for `size` bytes.
unsafe extern "C" fn read_memory(memory: *mut c_void, address: u64, to: *mut c_void, size: u32) -> c_long {
    // SAFETY: `unwind` borrows the reader for as long as the unwinder runs, and nothing else uses it meanwhile.
    let reader = unsafe { &mut *memory.cast::<&mut ReadMemory<'_>>() };
    // SAFETY: the unwinder gives room for this many bytes, which it has set to 0 and does not use meanwhile.
    let buffer = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), size as usize) };
    if reader(address, buffer) { 0 } else { EFAULT }
}

/// A monitor whose owner the unwinder does not know: the JVM's threads may say who it is, as long as this one waits.
fn of_waiter(lock: Lock, own_tid: u32) -> Lock {
    let owner = lock.owner.or((lock.kind == LockKind::Monitor).then_some(LockOwner::OfWaiter(own_tid)));
    Lock { owner, ..lock }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::PAGE;

    /// A stack of frame pointers: frame `n` is at `BASE + 32 * n`.
    const BASE: u64 = 0x7f00_0000_1000;

    fn chain(address: u64, frames: u64) -> Option<u64> {
        let at = address.checked_sub(BASE)?;
        let frame = at / 32;
        match at % 32 {
            _ if frame > frames => None,
            0 if frame == frames => Some(0),
            0 => Some(BASE + 32 * (frame + 1)),
            8 => Some(0x40_0000 + frame),
            _ => Some(0),
        }
    }

    fn thread() -> StillWaiting {
        let registers =
            SavedRegisters { ip: 0x40_1000, sp: BASE - 64, fp: BASE, ..SavedRegisters::default() };
        StillWaiting { tid: 1, own_tid: 1, switches: 1, registers }
    }

    fn walked(frames: u64) -> (OutsideStack, u32) {
        let mut reads = 0;
        let mut read = |address: u64, buffer: &mut [u8]| {
            reads += 1;
            for (word, at) in buffer.chunks_mut(8).zip((address..).step_by(8)) {
                let Some(value) = chain(at, frames) else { return false };
                word.copy_from_slice(&value.to_ne_bytes()[..word.len()]);
            }
            true
        };
        let stack = unwind(&OutsidePages::new(&[], 0), &thread(), Leaf::Syscall, &mut read).unwrap();
        (stack, reads)
    }

    #[test]
    fn frame_pointers_are_followed_without_a_table() {
        let (stack, _) = walked(200);
        assert_eq!(stack.user[..2], [UserWord::Return(0x40_1000), UserWord::Followed(0x40_0000)]);
        assert!(stack.user.len() > 100, "{stack:?}");
    }

    #[test]
    fn a_chain_without_end_is_cut() {
        let (stack, reads) = walked(u64::MAX >> 8);
        assert_eq!((stack.user.len(), stack.stop_reason), (1024, StopReason::Depth));
        assert!(reads < 8 * 1024);
    }

    #[test]
    fn unreadable_memory_ends_the_stack() {
        let mut nothing = |_: u64, _: &mut [u8]| false;
        let stack = unwind(&OutsidePages::new(&[], 0), &thread(), Leaf::Fault, &mut nothing).unwrap();
        assert_eq!(stack.user, [UserWord::Leaf(0x40_1000)]);
        assert!(matches!(stack.stop_reason, StopReason::BadRead | StopReason::NoTable), "{stack:?}");
    }

    #[test]
    fn pages_that_are_missing_are_no_pages() {
        // The address space would be beyond the last page; then one with ranges that lead to missing tables.
        let mut wild = vec![0_u8; 2 * PAGE];
        wild[PAGE..].fill(0xff);
        for (bytes, space) in [(&wild[..PAGE], 7), (&wild, 1), (&wild[..PAGE + 40], 1)] {
            let mut nothing = |_: u64, _: &mut [u8]| false;
            let stack = unwind(&OutsidePages::new(bytes, space), &thread(), Leaf::Syscall, &mut nothing);
            assert_eq!(stack.unwrap().user, [UserWord::Return(0x40_1000)]);
        }
    }
}
