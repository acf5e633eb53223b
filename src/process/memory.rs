//! The memory of a living program, and whether its threads are still waiting, for a reader outside of it.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Mode, OFlags, openat};

use super::Processes;
use super::maps::MapsText;
use super::process_dir::ProcessDir;
use super::procfs::{self, Stat};
use super::reading::ExpectedProgram;
use crate::sample::{MonoNs, ProcessId};

/// Bytes of a list of mappings that are searched for a file.
const MAX_MAPS: u64 = 4 << 20;

/// The memory of a program, open.
#[derive(Debug)]
pub struct ProgramMemory {
    /// `/proc/PID/mem`. The descriptor stays with this program, even if the process executes another one.
    pub fd: OwnedFd,
    /// First address of the program's own code.
    pub start_code: u64,
    /// Address after the last of the program's own code.
    pub end_code: u64,
    /// Address at which the stack begins.
    pub start_stack: u64,
}

impl Processes {
    /// Opens the memory of a program. `None` if the program has ended, or if the process holds up the opening.
    pub fn memory(&mut self, id: ProcessId, at: MonoNs) -> Option<ProgramMemory> {
        let index = self.select(id, at)?;
        let expected = self.program(id.tgid, index).filter(|program| program.is_alive())?.expected();
        self.timed_calls.run(id.tgid, move || open(expected)).ok()?
    }
}

fn open(expected: ExpectedProgram) -> Option<ProgramMemory> {
    let process = ProcessDir::open(expected.tgid).ok()?;
    let running = process.live_thread().ok()?;
    let fd = openat(&running.dir, "mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Read after the opening, because an exec meanwhile would change it.
    let now = process.live_thread().ok()?.stat;
    let Stat { start_code, end_code, start_stack, .. } = now;
    let is_it = expected.is(&now) && expected.same_program(&now) && running.stat.start_stack == start_stack;
    is_it.then_some(ProgramMemory { fd, start_code, end_code, start_stack })
}

/// The memory of the program that a process runs, for a reader that is called while it is open.
#[derive(Debug)]
pub struct LiveMemory {
    tgid: u32,
    /// The program's memory, and the addresses that identify the program.
    pub program: ProgramMemory,
}

impl LiveMemory {
    /// The word at an address; `None` if it cannot be read.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let read = rustix::io::pread(&self.program.fd, &mut bytes, address).ok()?;
        (read == bytes.len()).then(|| u64::from_ne_bytes(bytes))
    }

    /// A value of the auxiliary vector, with which the kernel began the program.
    #[must_use]
    pub fn auxiliary(&self, kind: u64) -> Option<u64> {
        let bytes = procfs::read(&format!("/proc/{}/auxv", self.tgid)).ok()?;
        let words: Vec<u64> =
            bytes.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_ne_bytes).collect();
        words.chunks_exact(2).find(|entry| entry[0] == kind).map(|entry| entry[1])
    }

    /// The bytes of a range, as far as they can be read; the caller bounds the length.
    #[must_use]
    pub fn bytes(&self, range: &Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
        let read = rustix::io::pread(&self.program.fd, &mut bytes, range.start).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// The range at which a file with such a path is mapped. `None`: there is none in the first `MAX_MAPS` bytes of the
    /// list of mappings. The process may choose any path: the range proves nothing.
    #[must_use]
    pub fn mapped_at(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Range<u64>> {
        self.mappings().find(|mapping| is_wanted(&mapping.name)).map(|mapping| mapping.range)
    }

    /// The mappings in the first `MAX_MAPS` bytes of the list of mappings, by address.
    pub fn mappings(&self) -> impl Iterator<Item = NamedMapping> + use<> {
        let maps = File::open(format!("/proc/{}/maps", self.tgid)).ok();
        let entries = maps.map(|maps| MapsText::of_all(BufReader::new(maps.take(MAX_MAPS))).flatten());
        entries.into_iter().flatten().map(|entry| NamedMapping {
            range: entry.start..entry.end,
            name: entry.path.as_os_str().as_bytes().to_vec(),
        })
    }
}

/// A mapping with its name, which the process may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedMapping {
    /// Addresses, the end excluded.
    pub range: Range<u64>,
    /// The path of a file, or another name that the kernel shows; empty without one.
    pub name: Vec<u8>,
}

impl Processes {
    /// Calls `look` with the memory of the program that a process runs now. The process can hold up any reading of its
    /// memory: then, or if the process has ended, the result is `None`.
    pub fn look_at_memory<T: Send + 'static>(
        &mut self,
        tgid: u32,
        look: impl FnOnce(&LiveMemory) -> T + Send + 'static,
    ) -> Option<T> {
        let index = self.timelines.get(&tgid)?.len().checked_sub(1)?;
        self.inspect(tgid, index, look)
    }

    /// The same with the memory of this program, of which there was a sample at time `at`.
    pub fn look_at_memory_of<T: Send + 'static>(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        look: impl FnOnce(&LiveMemory) -> T + Send + 'static,
    ) -> Option<T> {
        let index = self.select(id, at)?;
        self.inspect(id.tgid, index, look)
    }

    fn inspect<T: Send + 'static>(
        &mut self,
        tgid: u32,
        index: usize,
        look: impl FnOnce(&LiveMemory) -> T + Send + 'static,
    ) -> Option<T> {
        let expected = self.program(tgid, index).filter(|program| program.is_alive())?.expected();
        self.timed_calls.run(tgid, move || Some(look(&LiveMemory { tgid, program: open(expected)? }))).ok()?
    }
}

/// How often a thread has lost its CPU, of its own will or not; `None` if the thread has ended.
#[must_use]
pub fn switches(tgid: u32, tid: u32) -> Option<u64> {
    parse_switches(&procfs::read(&format!("/proc/{tgid}/task/{tid}/status")).ok()?)
}

/// The sum of both numbers in `/proc/PID/task/TID/status`. The name, which the process chooses, is escaped there and
/// stands in the first line.
fn parse_switches(status: &[u8]) -> Option<u64> {
    let number = |name: &[u8]| {
        let line = status.split(|&b| b == b'\n').skip(1).find_map(|line| line.strip_prefix(name))?;
        procfs::decimal(line.trim_ascii())
    };
    number(b"voluntary_ctxt_switches:")?.checked_add(number(b"nonvoluntary_ctxt_switches:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_both_kinds_count() {
        let text = b"Name:\tvoluntary_ctxt_switches:\\n7\nPid:\t9\nvoluntary_ctxt_switches:\t40\n\
            nonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse_switches(text), Some(42));
        assert_eq!(parse_switches(b"Name:\tx\nvoluntary_ctxt_switches:\t40\n"), None);
        assert_eq!(switches(std::process::id(), u32::MAX), None);
    }

    #[test]
    fn a_thread_that_waits_has_no_more_switches() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (say, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            ended.recv().unwrap_err();
        });
        let tid = said.recv().unwrap().cast_unsigned();
        let own = std::process::id();
        while !procfs::stat(tid).is_some_and(|stat| stat.sleeps()) {
            std::thread::yield_now();
        }
        let waits = switches(own, tid).unwrap();
        std::thread::yield_now();
        assert_eq!(switches(own, tid), Some(waits));
        drop(end);
        thread.join().unwrap();
    }
}
