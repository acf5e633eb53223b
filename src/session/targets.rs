//! The chosen processes: when the last of them has ended there is nothing more to sample.

use super::{Settings, Target};
use crate::process::{Processes, procfs};

/// The processes that were named, if any were.
pub(super) struct Targets {
    tgids: Vec<u32>,
    children: bool,
}

impl Targets {
    pub(super) fn of(settings: &Settings) -> Targets {
        let tgids = if let Target::Pids(tgids) = &settings.target { tgids.clone() } else { Vec::new() };
        Targets { tgids, children: settings.children }
    }

    /// Whether processes were named and all of them have ended, with their descendants if those are wanted.
    pub(super) fn have_ended(&self, processes: &Processes) -> bool {
        if self.tgids.is_empty() || !self.tgids.iter().all(|&tgid| has_ended(tgid)) {
            return false;
        }
        !self.children || processes.descendants(&self.tgids).into_iter().all(has_ended)
    }
}

/// Whether nothing of a process runs any more; one that nobody has waited for yet has ended as well.
fn has_ended(tgid: u32) -> bool {
    match procfs::read(&format!("/proc/{tgid}/stat")) {
        // A leader may have ended while its threads run on.
        Ok(stat) => {
            procfs::parse_stat(&stat).is_some_and(|s| matches!(s.state, b'Z' | b'X') && s.threads <= 1)
        }
        Err(error) => matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::SRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::has_ended;

    #[test]
    fn a_child_that_nobody_waited_for_has_ended() {
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // Ended, but not reaped: WNOWAIT.
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
        assert!(has_ended(pid));
        child.wait().unwrap();
        assert!(has_ended(pid));
    }
}
