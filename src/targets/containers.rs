//! The container of each sample, found by the number of its cgroup.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::plan::allowance::{TimeAllowance, cpu_time, next_cgroup_read};
use crate::process::cgroup::CgroupMembership;
use crate::process::container::{Container as Found, ContainerNames, Node};
use crate::process::hierarchies::Hierarchies;
use crate::process::hierarchy::Hierarchy;
use crate::process::{EventKind, ProcessEvent};
use crate::profile::labels::ContainerLabels;
use crate::sample::{MonoNs, ProcessInCgroup};

/// Cgroups that are remembered.
const MAX_KNOWN: usize = 65_536;
/// How long to ask for the name of a container in a pod: the kubelet writes the name after the container has begun.
const UNNAMED: Duration = Duration::from_secs(30);
/// Looking up the cgroups of programs that begin may take one part in this many of CPU time, and what was saved while
/// few began. When many begin, their cgroups are looked up at the end of the window instead.
const NOTICE_SHARE_DIVISOR: u32 = 300;
const NOTICE_SAVED: Duration = Duration::from_millis(20);
/// How often to look for cgroups that have gone. A cgroup is evicted at the second look that does not find it: by then
/// all stacks of its processes have been reported.
const LEAVE_EVERY: Duration = Duration::from_secs(300);
/// How often to ask for missing names.
const NAME_RETRY_INTERVAL: Duration = Duration::from_millis(900);

/// The containers of cgroups. A cgroup is looked up when a program begins or is sampled in it.
pub(crate) struct Containers {
    node: Node,
    naming: Hierarchy,
    hierarchies: Hierarchies,
    /// By number of the cgroup; `None` if it belongs to no container.
    known: HashMap<u64, Option<Arc<ContainerLabels>>>,
    /// Known cgroups that the last look for gone ones did not find.
    gone: HashSet<u64>,
    next_leave: Instant,
    /// Cgroups whose names are still missing: number, directory, and how long to ask.
    unnamed: Vec<(u64, PathBuf, Instant)>,
    next_cgroup_read: Instant,
    noticing: TimeAllowance,
    next_names: Instant,
}

impl Containers {
    /// `naming` is the hierarchy whose cgroup numbers stacks have.
    pub(crate) fn new(node: Node, naming: Hierarchy) -> Containers {
        let now = Instant::now();
        let mut containers = Containers {
            node,
            naming,
            hierarchies: Hierarchies::mounted(),
            known: HashMap::new(),
            gone: HashSet::new(),
            next_leave: now + LEAVE_EVERY,
            unnamed: Vec::new(),
            next_cgroup_read: now,
            noticing: TimeAllowance::new(NOTICE_SHARE_DIVISOR, NOTICE_SAVED, now),
            next_names: now,
        };
        let names = containers.node.names();
        containers.scan(&names);
        containers
    }

    /// Looks up the cgroups of programs that have just begun. A container may have gone when its first stack comes, at
    /// the end of the window.
    pub(crate) fn notice(&mut self, events: &[ProcessEvent]) {
        let began = cpu_time();
        let left = self.noticing.now(Instant::now());
        let mut names = None;
        // Most short programs have ended by now, and nothing is left to look up.
        let ends = |event: &&ProcessEvent| event.is_leader() && event.kind == EventKind::Exit;
        let ended: HashMap<u32, MonoNs> =
            events.iter().filter(ends).map(|event| (event.tgid, event.at)).collect();
        for event in events {
            let begins = matches!(event.kind, EventKind::Comm { exec: true, .. });
            // If a thread executes a program, the leader's exit comes before the exec.
            if !begins || ended.get(&event.tgid).is_some_and(|&end| end > event.at) {
                continue;
            }
            if cpu_time() - began >= left {
                break;
            }
            let Some((id, dir)) = self.group_of(event.tgid) else { continue };
            if !self.known.contains_key(&id) {
                let names = names.get_or_insert_with(|| self.node.names());
                self.learn(id, names, &dir);
            }
        }
        self.noticing.spend(cpu_time() - began);
    }

    /// Looks up the cgroups of the processes that ran, while they still exist.
    pub(crate) fn learn_new(&mut self, ran: &[ProcessInCgroup]) {
        self.ask_again();
        let now = Instant::now();
        if now >= self.next_leave {
            self.next_leave = now + LEAVE_EVERY;
            let there = self.hierarchies.dirs(self.naming);
            self.forget_gone(&there.iter().filter_map(|dir| number(dir)).collect());
        }
        let mut new: HashSet<u64> = HashSet::new();
        let mut unknown = ran.iter().filter(|of| !self.known.contains_key(&of.cgroup)).peekable();
        if unknown.peek().is_none() {
            return;
        }
        let names = self.node.names();
        let mut found = Vec::new();
        for ProcessInCgroup { process, cgroup } in unknown {
            match self.group_of(process.tgid).filter(|(id, _)| id == cgroup) {
                Some(group) => found.push(group),
                None => _ = new.insert(*cgroup),
            }
        }
        for (id, dir) in found {
            self.learn(id, &names, &dir);
        }
        new.retain(|id| !self.known.contains_key(id));
        if !new.is_empty() && Instant::now() >= self.next_cgroup_read {
            self.scan(&names);
        }
    }

    /// The container of a cgroup. A cgroup that had gone before it was looked up gives a container without names.
    pub(crate) fn of(&self, cgroup: u64) -> Option<Arc<ContainerLabels>> {
        match self.known.get(&cgroup) {
            Some(known) => known.clone(),
            None => Some(Arc::new(ContainerLabels::gone())),
        }
    }

    /// Looks up all cgroups that exist.
    fn scan(&mut self, names: &ContainerNames) {
        let (now, began) = (Instant::now(), cpu_time());
        for dir in self.hierarchies.dirs(self.naming).into_iter().take(MAX_KNOWN) {
            if let Some(id) = number(&dir).filter(|id| !self.known.contains_key(id)) {
                self.learn(id, names, &dir);
            }
        }
        self.next_cgroup_read = next_cgroup_read(now, began);
    }

    /// Evicts cgroups that the last look did not find either, and notes those that are missing for the first time.
    fn forget_gone(&mut self, there: &HashSet<u64>) {
        let gone = std::mem::take(&mut self.gone);
        self.known.retain(|id, _| there.contains(id) || !gone.contains(id));
        self.gone = self.known.keys().filter(|&id| !there.contains(id)).copied().collect();
    }

    /// The cgroup of a process, by number and directory.
    fn group_of(&self, tgid: u32) -> Option<(u64, PathBuf)> {
        let dir = self.hierarchies.dir(self.naming, &CgroupMembership::of(tgid).ok()?)?;
        Some((number(&dir)?, dir))
    }

    fn learn(&mut self, id: u64, names: &ContainerNames, dir: &Path) {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
            self.unnamed.clear();
        }
        let container = container(names, dir);
        if container.as_deref().is_some_and(is_unnamed) || names.is_maybe_nested(dir) {
            self.unnamed.push((id, dir.to_owned(), Instant::now() + UNNAMED));
        }
        self.known.insert(id, container);
    }

    /// Asks again for names that were missing when their containers began.
    fn ask_again(&mut self) {
        let now = Instant::now();
        if self.unnamed.is_empty() || now < self.next_names {
            return;
        }
        self.next_names = now + NAME_RETRY_INTERVAL;
        let names = self.node.names();
        let known = &mut self.known;
        self.unnamed.retain(|(id, dir, until)| {
            // A cgroup that has gone keeps the names that it had.
            let Some(found) = container(&names, dir).filter(|_| number(dir) == Some(*id)) else {
                return false;
            };
            let still = (is_unnamed(&found) || names.is_maybe_nested(dir)) && now < *until;
            known.insert(*id, Some(found));
            still
        });
    }
}

/// Whether the container is in a pod and has no name there: it has just begun, or it holds the pod's namespaces.
fn is_unnamed(container: &ContainerLabels) -> bool {
    !container.pod_uid.is_empty() && container.container.is_empty()
}

fn number(dir: &Path) -> Option<u64> {
    std::fs::metadata(dir).ok().map(|meta| meta.ino())
}

fn container(names: &ContainerNames, dir: &Path) -> Option<Arc<ContainerLabels>> {
    let Found { id, name, container, pod, pod_uid, namespace } = names.container(dir)?;
    Some(Arc::new(ContainerLabels {
        id: id.into(),
        name: name.into(),
        container: container.into(),
        pod: pod.into(),
        pod_uid: pod_uid.into(),
        namespace: namespace.into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::MonoNs;

    #[test]
    fn an_exec_shows_a_new_cgroup_at_once() {
        let mut containers = Containers::new(Node::at("/nowhere"), Hierarchies::mounted().naming());
        let Some((own, _)) = containers.group_of(std::process::id()) else {
            println!("SKIP: the cgroup of this test is not to be seen from here");
            return;
        };
        containers.known.clear();
        assert!(containers.of(own).unwrap().is_gone());
        let tgid = std::process::id();
        let kind = EventKind::Comm { name: b"test"[..].into(), exec: true };
        containers.notice(&[ProcessEvent { at: MonoNs::default(), tgid, tid: tgid, kind }]);
        assert!(containers.of(own).is_none_or(|of| !of.is_gone()));
    }

    #[test]
    fn a_group_that_has_gone_is_forgotten_later() {
        let mut containers = Containers::new(Node::at("/nowhere"), Hierarchies::mounted().naming());
        containers.known = HashMap::from([(1, None), (2, None)]);
        let knows = |containers: &Containers| [1, 2].map(|id| containers.known.contains_key(&id));
        let both = HashSet::from([1, 2]);
        for there in [&both, &HashSet::from([2]), &both, &HashSet::from([2])] {
            containers.forget_gone(there);
            assert_eq!(knows(&containers), [true, true], "its last window may still be to come");
        }
        containers.forget_gone(&HashSet::from([2]));
        assert_eq!((knows(&containers), containers.gone.len()), ([false, true], 0));
    }
}
