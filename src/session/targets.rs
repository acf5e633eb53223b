//! The chosen processes and threads: when the last of them has ended there is nothing more to sample.

use super::{Settings, Target};
use crate::process::{Processes, procfs};

/// The processes or threads that were named, if any were.
pub(super) struct Targets {
    tgids: Vec<u32>,
    tids: Vec<u32>,
    children: bool,
}

impl Targets {
    pub(super) fn of(settings: &Settings) -> Targets {
        let (tgids, tids) = match &settings.target {
            Target::Pids(tgids) => (tgids.clone(), Vec::new()),
            Target::Tids(tids) => (Vec::new(), tids.clone()),
            Target::All | Target::Groups(_) | Target::Launch(_) => Default::default(),
        };
        Targets { tgids, tids, children: settings.children }
    }

    /// Whether some were named and all of them have ended, with the descendants of processes if those are wanted.
    pub(super) fn have_ended(&self, processes: &Processes) -> bool {
        let named = !(self.tgids.is_empty() && self.tids.is_empty());
        let ended = |ids: &[u32], what| ids.iter().all(|&id| has_ended(id, what));
        if !named || !ended(&self.tgids, What::Process) || !ended(&self.tids, What::Thread) {
            return false;
        }
        !self.children || ended(&processes.descendants(&self.tgids), What::Process)
    }
}

/// The processes of threads, as far as they run.
pub(super) fn processes_of(tids: &[u32]) -> Vec<u32> {
    let tgid_of = |tid: &u32| {
        let status = procfs::read(&format!("/proc/{tid}/status")).ok()?;
        Some(procfs::parse_status(&status)?.tgid)
    };
    tids.iter().filter_map(tgid_of).collect()
}

/// What a number in `/proc` stands for: that of a process is its first thread's, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Process,
    Thread,
}

/// Whether it does not run any more; what nobody has waited for yet has ended as well.
fn has_ended(id: u32, what: What) -> bool {
    match procfs::read(&format!("/proc/{id}/stat")) {
        Ok(stat) => is_over(&stat, what),
        Err(error) => matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::SRCH),
    }
}

/// A process is over with the last of its threads: its first may have ended while others run on.
fn is_over(stat: &[u8], what: What) -> bool {
    procfs::parse_stat(stat)
        .is_some_and(|s| matches!(s.state, b'Z' | b'X') && (what == What::Thread || s.threads <= 1))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::{What, has_ended, is_over, processes_of};

    #[test]
    fn a_child_that_nobody_waited_for_has_ended() {
        assert!(!has_ended(std::process::id(), What::Process));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // Ended, but not reaped: WNOWAIT.
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
        assert!(has_ended(pid, What::Process));
        child.wait().unwrap();
        assert!(has_ended(pid, What::Process));
    }

    #[test]
    fn a_thread_ends_before_its_process() {
        let ((say, tid), (end, told)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            told.recv()
        });
        let tid = tid.recv().unwrap();
        assert!(!has_ended(tid, What::Thread));
        assert_eq!(processes_of(&[tid, u32::MAX]), [std::process::id()]);
        drop(end);
        thread.join().unwrap().unwrap_err();
        // Whoever joins a thread is woken a moment before the kernel forgets it.
        while !has_ended(tid, What::Thread) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_first_thread_may_end_alone() {
        let stat = |threads| {
            let text = std::fs::read_to_string("/proc/self/stat").unwrap();
            let (name, rest) = text.rsplit_once(')').unwrap();
            let mut words: Vec<&str> = rest.split_whitespace().collect();
            // Fields 3 and 20 of proc(5).
            (words[0], words[17]) = ("Z", threads);
            format!("{name}) {}", words.join(" "))
        };
        assert!(is_over(stat("2").as_bytes(), What::Thread) && !is_over(stat("2").as_bytes(), What::Process));
        assert!(is_over(stat("1").as_bytes(), What::Process));
    }
}
