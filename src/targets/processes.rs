//! Follows the chosen processes and threads, with the descendants of processes if wanted. When the last of them has
//! ended, there is nothing more to sample.

use std::collections::{HashMap, HashSet};

use crate::capture::Filter;
use crate::process::procfs::Stat;
use crate::process::{EventKind, ProcessEvent, procfs};

/// The chosen processes or threads that have not ended. A number is no identity: the kernel gives it to another process
/// later.
pub(crate) struct Targets {
    what: TaskKind,
    children: bool,
    /// Start times in clock ticks since boot. Descendants have `None`: only events identify them.
    running: HashMap<u32, Option<u64>>,
    /// Ids with an exit event. The first thread of a process may end alone, and `/proc` shows the end a moment later.
    leaving: HashSet<u32>,
}

/// A change of the BPF program's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterChange {
    /// From now on the id belongs to a wanted process.
    Want(u32),
    /// The id belongs to no wanted process.
    Forget(u32),
}

impl Targets {
    /// The targets that the filter names; `None` if it names none.
    pub(crate) fn of(filter: &Filter) -> Option<Targets> {
        let (what, ids) = match (&filter.tgids[..], &filter.tids[..]) {
            ([], []) => return None,
            ([], tids) => (TaskKind::Thread, tids),
            (tgids, _) => (TaskKind::Process, tgids),
        };
        let began = |id: &u32| (*id, procfs::stat(*id).map(|stat| stat.start_ticks));
        let running = ids.iter().map(began).collect();
        Some(Targets { what, children: filter.children, running, leaving: HashSet::new() })
    }

    /// Adds the descendants that exist, and applies what has happened since the targets were named.
    pub(crate) fn begin(&mut self, descendants: &[u32], events: &[ProcessEvent]) -> Vec<FilterChange> {
        let mut changes: Vec<FilterChange> = descendants.iter().copied().map(FilterChange::Want).collect();
        for &id in descendants {
            self.running.entry(id).or_insert(None);
        }
        changes.extend(self.follow(events));
        // Some may have ended before the first event.
        changes.extend(self.ask(self.running.keys().copied().collect()));
        changes
    }

    /// Applies events, which must be in the order of time. The BPF program recognises a descendant by its ancestors
    /// when it is sampled. This method also finds descendants whose parents have ended.
    pub(crate) fn follow(&mut self, events: &[ProcessEvent]) -> Vec<FilterChange> {
        let mut changes: Vec<FilterChange> = events.iter().filter_map(|event| self.on_event(event)).collect();
        let unsure = events.iter().any(|event| match event.kind {
            // A lost event may have been an exit.
            EventKind::Lost(_) => true,
            // A thread that executes a program goes on under the number of the first one. No event reports the end of
            // its own number.
            EventKind::Comm { exec, .. } => exec && self.what == TaskKind::Thread,
            _ => false,
        });
        let doubtful = if unsure { self.running.keys().copied().collect() } else { self.leaving.clone() };
        changes.extend(self.ask(doubtful));
        changes
    }

    /// Whether all targets have ended.
    pub(crate) fn have_ended(&self) -> bool {
        self.running.is_empty()
    }

    fn on_event(&mut self, event: &ProcessEvent) -> Option<FilterChange> {
        let id = match self.what {
            TaskKind::Process => event.is_leader().then_some(event.tgid)?,
            TaskKind::Thread => event.tid,
        };
        match event.kind {
            // The process that had the number before has ended.
            EventKind::Fork { parent } => {
                self.leaving.remove(&id);
                let known = self.running.remove(&id).is_some();
                if self.children && self.running.contains_key(&parent) {
                    self.running.insert(id, None);
                    return Some(FilterChange::Want(id));
                }
                (known || self.children).then_some(FilterChange::Forget(id))
            }
            EventKind::Exit if self.running.contains_key(&id) => {
                self.leaving.insert(id);
                None
            }
            // The BPF program finds descendants by itself, also those whose fork event was lost.
            EventKind::Exit => self.children.then_some(FilterChange::Forget(id)),
            _ => None,
        }
    }

    /// Removes the targets among `ids` that have ended.
    fn ask(&mut self, mut ids: HashSet<u32>) -> Vec<FilterChange> {
        ids.retain(|id| self.running.get(id).is_some_and(|began| has_ended(*id, *began, self.what)));
        for id in &ids {
            self.running.remove(id);
            self.leaving.remove(id);
        }
        ids.into_iter().map(FilterChange::Forget).collect()
    }
}

/// The processes of these threads, as far as they run.
pub(crate) fn processes_of(tids: &[u32]) -> Vec<u32> {
    let tgid_of = |tid: &u32| {
        let status = procfs::read(&format!("/proc/{tid}/status")).ok()?;
        Some(procfs::parse_status(&status)?.tgid)
    };
    tids.iter().filter_map(tgid_of).collect()
}

/// What a number in `/proc` stands for: the number of a process is also that of its first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskKind {
    Process,
    Thread,
}

/// Whether the process or thread has ended. A zombie has ended, and another start time means that the number was
/// reused.
fn has_ended(id: u32, began: Option<u64>, what: TaskKind) -> bool {
    match procfs::read(&format!("/proc/{id}/stat")) {
        Ok(stat) => procfs::parse_stat(&stat)
            .is_some_and(|stat| is_over(&stat, what) || began.is_some_and(|began| began != stat.start_ticks)),
        Err(error) => matches!(error, rustix::io::Errno::NOENT | rustix::io::Errno::SRCH),
    }
}

/// A process is over when its last thread is: its first thread may have ended while others run on.
fn is_over(stat: &Stat, what: TaskKind) -> bool {
    matches!(stat.state, b'Z' | b'X') && (what == TaskKind::Thread || stat.threads <= 1)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::FilterChange::{Forget, Want};
    use super::*;
    use crate::sample::MonoNs;

    /// No process has this number.
    const UNUSED_PID: u32 = 1 << 23;

    fn event(tgid: u32, tid: u32, kind: EventKind) -> ProcessEvent {
        ProcessEvent { at: MonoNs(1), tgid, tid, kind }
    }

    fn fork(parent: u32, tgid: u32) -> ProcessEvent {
        event(tgid, tgid, EventKind::Fork { parent })
    }

    fn exit(tgid: u32) -> ProcessEvent {
        event(tgid, tgid, EventKind::Exit)
    }

    fn targets(tgids: &[u32], children: bool) -> Targets {
        Targets::of(&Filter { tgids: tgids.to_vec(), children, ..Filter::default() }).unwrap()
    }

    /// Waits until the child has ended, without reaping it.
    fn wait_for_end(child: &std::process::Child) {
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::Pid::from_child(child);
        rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
    }

    #[test]
    fn a_zombie_has_ended() {
        let own = std::process::id();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let mut targets = targets(&[own, pid], false);
        wait_for_end(&child);
        assert_eq!(targets.follow(&[]), [], "no event arrived");
        assert_eq!(targets.follow(&[exit(pid), exit(own)]), [Forget(pid)], "we still run");
        child.wait().unwrap();
        assert!(!targets.have_ended() && Targets::of(&Filter::default()).is_none());
    }

    #[test]
    fn a_reused_pid_is_not_profiled() {
        let own = std::process::id();
        let mut shown = targets(&[own, 1], false);
        // An exit event does not count as long as we exist; an event that gives our number to another process does.
        assert_eq!(shown.follow(&[exit(own)]), []);
        assert_eq!(shown.follow(&[fork(UNUSED_PID, own)]), [Forget(own)]);
        assert_eq!(shown.follow(&[exit(own), fork(1, own), exit(own)]), [], "its children are not wanted");
        // Without such an event, the other start time shows the reuse.
        let mut unheard = targets(&[own, 1], false);
        let began = unheard.running.insert(own, Some(1)).flatten();
        assert_eq!(began, procfs::stat(own).map(|stat| stat.start_ticks));
        assert_eq!(unheard.follow(&[]), []);
        assert_eq!(unheard.follow(&[event(0, 0, EventKind::Lost(1))]), [Forget(own)]);
        assert_eq!(unheard.running.len(), 1);
    }

    #[test]
    fn processes_that_ended_before_the_first_event_are_found() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let mut targets = targets(&[child.id(), UNUSED_PID], true);
        child.wait().unwrap();
        let mut changes = targets.begin(&[UNUSED_PID + 1], &[]);
        changes[1..].sort_unstable_by_key(|change| matches!(change, Forget(id) if *id >= UNUSED_PID));
        assert_eq!(changes[..2], [Want(UNUSED_PID + 1), Forget(child.id())]);
        assert!(targets.have_ended() && changes.len() == 4);
    }

    #[test]
    fn descendants_go_on_when_their_parents_have_ended() {
        let (root, there) = (UNUSED_PID, UNUSED_PID + 1);
        let mut targets = targets(&[root], true);
        // `there` existed before, has a child, and ends. Its child has a child, too: this test process, which runs.
        let own = std::process::id();
        let events = [fork(there, UNUSED_PID + 2), exit(there), exit(root), fork(UNUSED_PID + 2, own)];
        let changes = targets.begin(&[root, there], &events);
        assert_eq!(changes[..4], [Want(root), Want(there), Want(UNUSED_PID + 2), Want(own)]);
        assert_eq!(targets.running.keys().collect::<Vec<_>>(), [&own]);
        assert!(!targets.have_ended());
        // A thread of it, and an unrelated process.
        let thread = event(own, own + 1, EventKind::Fork { parent: own });
        assert_eq!(targets.follow(&[thread, fork(1, 7)]), [Forget(7)]);
        assert_eq!(targets.follow(&[exit(8)]), [Forget(8)], "the BPF program may have its pid");
    }

    #[test]
    fn a_thread_ends_before_its_process() {
        let ((say, tid), (end, shown)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            shown.recv()
        });
        let (own, tid) = (std::process::id(), tid.recv().unwrap());
        let mut targets = Targets::of(&Filter { tids: vec![tid], ..Filter::default() }).unwrap();
        assert_eq!(processes_of(&[tid, u32::MAX]), [own]);
        assert_eq!(targets.follow(&[event(own, tid, EventKind::Exit), exit(own)]), []);
        drop(end);
        thread.join().unwrap().unwrap_err();
        // A thread that joins another is woken a moment before the kernel forgets the other.
        while targets.follow(&[]) != [Forget(tid)] {
            std::thread::yield_now();
        }
        assert!(targets.have_ended());
    }

    #[test]
    fn a_first_thread_may_end_alone() {
        let stat = |threads| Stat { state: b'Z', threads, ..Stat::default() };
        assert!(is_over(&stat(2), TaskKind::Thread) && !is_over(&stat(2), TaskKind::Process));
        assert!(is_over(&stat(1), TaskKind::Process));
    }
}
