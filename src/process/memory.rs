//! The memory of a living program, and whether its threads wait still, for a reader outside of it.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};

use super::Processes;
use super::process_dir::ProcessDir;
use super::procfs::{self, Stat};
use super::reading::ExpectedProgram;
use crate::sample::{MonoNs, ProcessId};

/// The memory of a program, open.
#[derive(Debug)]
pub struct ProgramMemory {
    /// `/proc/PID/mem`. The descriptor stays with this program, whatever the process executes later.
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
        self.patience.run(id.tgid, move || open(expected)).ok()?
    }
}

fn open(expected: ExpectedProgram) -> Option<ProgramMemory> {
    let process = ProcessDir::open(expected.tgid).ok()?;
    let running = process.running().ok()?;
    let fd = openat(&running.dir, "mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Read after the opening, because an exec meanwhile would change it.
    let now = process.running().ok()?.stat;
    let Stat { start_code, end_code, start_stack, .. } = now;
    let is_it = expected.is(&now) && expected.same_program(&now) && running.stat.start_stack == start_stack;
    is_it.then_some(ProgramMemory { fd, start_code, end_code, start_stack })
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
