//! Attaches the programs of native allocations to each profiled process: to the functions of its own allocator, and only
//! there, so that other processes pay nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::c_library;
use super::choice::{self, CandidateFile, ChosenFunction};
use super::functions::{FileFunctions, FileRole, FunctionSite, functions_of};
use super::link_order::LinkOrder;
use super::process::{NoAllocator, ProbedProcess};
use crate::capture::{AllocationLink, AllocationProbes};
use crate::plan::Control;
use crate::plan::allowance::TimeAllowance;
use crate::process::inode_traits::InodeTraits;
use crate::process::{self, EventKind, FileId, ProcessEvent, TimedCalls};
use crate::text::clean;
use crate::world::{PartEnd, PartReport, Stage, WindowEnd, WindowStacks, World};

/// How long reading the symbols of a file may take, and attaching to a process.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Processes with programs at a time. Each takes up to nine descriptors.
const MAX_PROCESSES: usize = 256;
/// Files whose functions are known.
const MAX_FILES: usize = 16_384;
/// Longest path in a warning, characters.
const MAX_PATH: usize = 300;
/// Processes that a warning lists.
const MAX_LISTED: usize = 20;
/// A process that has just begun is looked at again after this time, which doubles each time, until its libraries are
/// linked.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_INSPECTIONS: u32 = 8;
/// Looking at processes may take one part in this many of all time in the long run.
const SHARE_DIVISOR: u32 = 10;
const MAX_SAVED: Duration = Duration::from_secs(1);

/// When to look at a process.
#[derive(Clone, Copy, Debug)]
struct NextInspection {
    inspections: u32,
    at: Instant,
}

/// The result of a look at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InspectionResult {
    Done,
    /// A later look may find another allocator.
    Later,
    /// The process is not profiled. A later change of its cgroup may change that.
    Outside,
}

/// The stage of native allocations.
pub(super) struct NativeAllocations {
    probes: AllocationProbes,
    /// The process that waits to execute the command.
    launched: Option<u32>,
    timed_calls: TimedCalls,
    /// The functions that a file defines, for each role.
    files: HashMap<(FileId, bool), FileFunctions>,
    due: BTreeMap<u32, NextInspection>,
    outside: BTreeSet<u32>,
    processes: BTreeMap<u32, ProbedProcess>,
    /// Profiled processes that ended before a look, since the last report.
    unseen: u64,
    /// Processes that lost the thread by which the programs were attached, since the last report.
    moved: u64,
    /// Whether events of processes were lost since the last report.
    has_lost_events: bool,
    allowance: TimeAllowance,
}

/// The beginnings of warnings about processes.
const NOT_SAMPLED: &str = "native allocations are not sampled in";
const MAY_BE_MISSING: &str = "native allocations may be missing of";

impl Stage for NativeAllocations {
    fn name(&self) -> &'static str {
        "native allocations"
    }

    fn on_prepare(&mut self, world: &mut World, control: &Control) {
        if let Some(tgid) = self.launched {
            self.expect(tgid);
        }
        let now = Instant::now();
        let touched = world.processes.touched().iter().copied();
        let touched = touched.filter(|tgid| Some(*tgid) != self.launched);
        self.due.extend(touched.map(|tgid| (tgid, NextInspection { inspections: 0, at: now })));
        while let Some(tgid) = self.next_due(now).filter(|_| !control.is_stopped()) {
            self.inspect_or_retry(world, tgid);
        }
    }

    fn on_events(&mut self, world: &mut World, events: &[ProcessEvent]) {
        let at = Instant::now();
        for event in events {
            let is_change = match &event.kind {
                EventKind::Fork { .. } => event.is_leader(),
                EventKind::Comm { exec, .. } => *exec,
                EventKind::Mmap(mapped) => mapped.inode.ino != 0,
                EventKind::Exit => self.processes.get_mut(&event.tgid).is_some_and(|process| {
                    let is_target = process.thread == Some(event.tid);
                    if is_target {
                        process.thread = None;
                    }
                    is_target || event.is_leader()
                }),
                EventKind::Lost(_) => {
                    self.note_lost(at);
                    false
                }
            };
            if is_change {
                self.due.insert(event.tgid, NextInspection { inspections: 0, at });
            }
        }
        self.inspect_due(world);
    }

    fn on_window(&mut self, world: &mut World, _: &mut WindowStacks<'_>, _: WindowEnd) {
        let at = Instant::now();
        self.outside.retain(|tgid| !world.processes.has_ended(*tgid));
        let joined = self.outside.iter().copied().filter(|tgid| world.walks(*tgid));
        self.due.extend(joined.map(|tgid| (tgid, NextInspection { inspections: 0, at })));
        for (tgid, process) in &mut self.processes {
            if !process.has_ended && world.processes.has_ended(*tgid) {
                *process = ProbedProcess {
                    has_ended: true,
                    refused: process.refused.take(),
                    doubt: process.doubt.take(),
                    ..ProbedProcess::default()
                };
            }
        }
        self.processes
            .retain(|_, process| !process.has_ended || process.refused.is_some() || process.doubt.is_some());
        self.inspect_due(world);
    }

    fn on_tick(&mut self, world: &mut World) {
        self.inspect_due(world);
    }

    fn report(&mut self, _: &mut World, _: &PartEnd<'_>, report: &mut PartReport) {
        report.warnings.extend(self.warnings(NOT_SAMPLED, |process| process.refused.as_ref()));
        report.warnings.extend(self.warnings(MAY_BE_MISSING, |process| process.doubt.as_ref()));
        if self.unseen > 0 {
            report.warnings.push(format!(
                "{} ended before jbpf-prof found the allocator: their native allocations are not counted",
                processes(self.unseen)
            ));
        }
        if self.moved > 0 {
            report.warnings.push(format!(
                "the thread to which jbpf-prof had attached its programs ended in {}: native allocations are not \
                 counted from then on until the programs were attached to another thread",
                processes(self.moved)
            ));
        }
        if self.has_lost_events {
            report.warnings.push(
                "events of processes were lost: native allocations of processes that began then may be missing"
                    .to_owned(),
            );
        }
        (self.unseen, self.moved, self.has_lost_events) = (0, 0, false);
        self.processes.retain(|_, process| !process.has_ended);
    }

    fn has_work(&self) -> bool {
        !self.due.is_empty()
    }
}

impl NativeAllocations {
    pub(super) fn new(probes: AllocationProbes, launched: Option<u32>) -> NativeAllocations {
        NativeAllocations {
            probes,
            launched,
            timed_calls: TimedCalls::new(CALL_TIMEOUT),
            files: HashMap::new(),
            due: BTreeMap::new(),
            outside: BTreeSet::new(),
            processes: BTreeMap::new(),
            unseen: 0,
            moved: 0,
            has_lost_events: false,
            allowance: TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now()),
        }
    }

    /// One warning for each reason, with its processes.
    fn warnings(
        &self,
        beginning: &str,
        why_of: impl Fn(&ProbedProcess) -> Option<&NoAllocator>,
    ) -> Vec<String> {
        let mut tgids: BTreeMap<&NoAllocator, Vec<u32>> = BTreeMap::new();
        for (tgid, process) in &self.processes {
            if let Some(why) = why_of(process) {
                tgids.entry(why).or_default().push(*tgid);
            }
        }
        tgids.into_iter().map(|(why, tgids)| warning(beginning, why, &tgids)).collect()
    }

    /// After lost events, a known process may have mapped another allocator.
    fn note_lost(&mut self, at: Instant) {
        self.has_lost_events = true;
        let known = self.processes.keys().chain(&self.outside);
        self.due.extend(known.map(|tgid| (*tgid, NextInspection { inspections: 0, at })));
    }

    fn next_due(&self, now: Instant) -> Option<u32> {
        self.due.iter().find(|(_, next)| next.at <= now).map(|(tgid, _)| *tgid)
    }

    /// Looks at the processes that changed, as long as the allowance permits.
    fn inspect_due(&mut self, world: &mut World) {
        let begin = Instant::now();
        let allowed = self.allowance.now(begin);
        while let Some(tgid) = self.next_due(begin).filter(|_| begin.elapsed() < allowed) {
            self.inspect_or_retry(world, tgid);
        }
        self.allowance.spend(begin.elapsed());
    }

    fn inspect_or_retry(&mut self, world: &mut World, tgid: u32) {
        let inspections = self.due.remove(&tgid).map_or(0, |next| next.inspections) + 1;
        match self.inspect(world, tgid) {
            InspectionResult::Done => {}
            InspectionResult::Later if inspections < MAX_INSPECTIONS => {
                let at = Instant::now() + FIRST_PAUSE * (1 << (inspections - 1));
                self.due.insert(tgid, NextInspection { inspections, at });
            }
            InspectionResult::Later if !self.processes.contains_key(&tgid) => {
                self.refuse(tgid, NoAllocator::NotReadable);
            }
            InspectionResult::Later => {}
            InspectionResult::Outside => drop(self.outside.insert(tgid)),
        }
    }

    fn inspect(&mut self, world: &mut World, tgid: u32) -> InspectionResult {
        self.outside.remove(&tgid);
        let is_profiled = world.walks(tgid);
        if world.processes.has_ended(tgid) {
            self.unseen += u64::from(is_profiled && !self.processes.contains_key(&tgid));
            return InspectionResult::Done;
        }
        if !is_profiled {
            self.processes.remove(&tgid);
            return InspectionResult::Outside;
        }
        let Some(code) = world.processes.code(tgid) else { return InspectionResult::Later };
        let order = world.processes.look_at_memory(tgid, LinkOrder::read).flatten();
        let is_linked = order.as_ref().is_some_and(|order| order.is_complete);
        let candidates = choice::candidates(&code, order.as_ref());
        let Functions { of_files, fds, unread, unread_before } = self.functions(tgid, &candidates);
        let chosen = choice::choose(&of_files);
        let is_sampled = self.processes.get(&tgid).is_some_and(ProbedProcess::is_sampled);
        if !chosen.is_empty() {
            self.processes.entry(tgid).or_default().doubt = unread_before;
            self.replace(tgid, &chosen, &fds);
        } else if is_linked || candidates.len() == 1 || !is_sampled {
            // Else a program was just executed, and its libraries are not linked yet.
            self.refuse(tgid, unread.unwrap_or(NoAllocator::NoFunction));
        }
        if is_linked { InspectionResult::Done } else { InspectionResult::Later }
    }

    /// The functions that have programs keep them: the process may execute another program that uses them.
    fn refuse(&mut self, tgid: u32, why: NoAllocator) {
        log::info!("native allocations: process {tgid}: {why}");
        self.processes.entry(tgid).or_default().refuse(why);
    }

    /// Attaches the programs to these functions of a process, and to no others.
    fn replace(
        &mut self,
        tgid: u32,
        chosen: &BTreeSet<ChosenFunction>,
        fds: &BTreeMap<InodeTraits, Arc<OwnedFd>>,
    ) {
        let sampled =
            self.processes.iter().filter(|(other, process)| **other != tgid && process.is_sampled());
        if sampled.count() >= MAX_PROCESSES {
            return self.refuse(tgid, NoAllocator::TooMany(MAX_PROCESSES));
        }
        let process = self.processes.entry(tgid).or_default();
        let Some(thread) = process::running_thread(tgid) else {
            // All threads are ending.
            self.unseen += u64::from(!process.is_sampled());
            return;
        };
        if process.thread.replace(thread) != Some(thread) && process.is_sampled() {
            process.links.clear();
            self.moved += 1;
        }
        let place = |function: &ChosenFunction| Some((*function, Arc::clone(fds.get(&function.file)?)));
        let missing: Vec<_> = chosen
            .iter()
            .filter(|function| !process.links.contains_key(function))
            .filter_map(place)
            .collect();
        let probes = self.probes.clone();
        let attach = move || -> io::Result<Vec<(ChosenFunction, AllocationLink)>> {
            let link = |(function, file): &(ChosenFunction, Arc<OwnedFd>)| {
                let FunctionSite { offset, arguments } = function.site;
                Ok((*function, probes.attach(file, offset, arguments, Some(thread))?))
            };
            missing.iter().map(link).collect()
        };
        let why = match self.timed_calls.run(tgid, attach) {
            Ok(Ok(links)) => {
                log::debug!(
                    "native allocations: process {tgid}: {} more functions of {}",
                    links.len(),
                    chosen.len()
                );
                process.links.extend(links);
                process.links.retain(|function, _| chosen.contains(function));
                process.refused = None;
                return;
            }
            Ok(Err(error)) => NoAllocator::Refused(error.to_string()),
            Err(_) => NoAllocator::TooSlow(format!("process {tgid}")),
        };
        self.refuse(tgid, why);
    }

    /// Attaches the programs to the C libraries of this host, for a command that has not begun.
    fn expect(&mut self, tgid: u32) {
        let (mut chosen, mut fds) = (BTreeSet::new(), BTreeMap::new());
        for fd in c_library::files() {
            let Ok(own) = fd.try_clone() else { continue };
            if let Ok(functions) = functions_of(own, FileRole::Library) {
                chosen.extend(choice::choose(&[functions]));
                fds.insert(functions.file, Arc::new(fd));
            }
        }
        self.replace(tgid, &chosen, &fds);
    }

    fn functions(&mut self, tgid: u32, candidates: &[CandidateFile]) -> Functions {
        let mut all = Functions::default();
        for candidate in candidates {
            match self.functions_of(tgid, candidate) {
                Ok(found) if found.sites.iter().all(Option::is_none) => {}
                Ok(found) => match candidate.file.fd() {
                    Ok(_) if candidate.file.is_copy() => all.refuse(NoAllocator::Served(path_of(candidate))),
                    Ok(fd) => {
                        all.of_files.push(found);
                        all.fds.insert(found.file, fd);
                    }
                    Err(why) => all.refuse(NoAllocator::unopened(&path_of(candidate), why)),
                },
                Err(why) => all.refuse(why),
            }
        }
        all
    }

    fn functions_of(&mut self, tgid: u32, candidate: &CandidateFile) -> Result<FileFunctions, NoAllocator> {
        let key = (candidate.file.id, candidate.role == FileRole::Program);
        if let Some(known) = self.files.get(&key) {
            return Ok(*known);
        }
        let path = path_of(candidate);
        let fd = candidate.file.fd().map_err(|why| NoAllocator::unopened(&path, why))?;
        let role = candidate.role;
        let read = self.timed_calls.run(tgid, move || {
            let own = fd.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            functions_of(own, role).map_err(|why| why.to_string())
        });
        let found = match read {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => return Err(NoAllocator::Unreadable { path, why }),
            Err(_) => return Err(NoAllocator::TooSlow(path)),
        };
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        self.files.insert(key, found);
        Ok(found)
    }
}

/// The functions of a process's files, in the order of the search.
#[derive(Default)]
struct Functions {
    of_files: Vec<FileFunctions>,
    fds: BTreeMap<InodeTraits, Arc<OwnedFd>>,
    /// Why a file could not be read.
    unread: Option<NoAllocator>,
    /// The same, of a file before the one with the first `malloc`: the process calls the functions of that file, if it
    /// has them.
    unread_before: Option<NoAllocator>,
}

impl Functions {
    fn refuse(&mut self, why: NoAllocator) {
        log::debug!("native allocations: {why}");
        if !self.of_files.iter().any(FileFunctions::has_malloc) {
            self.unread_before.get_or_insert_with(|| why.clone());
        }
        self.unread.get_or_insert(why);
    }
}

fn path_of(candidate: &CandidateFile) -> String {
    clean(candidate.file.path.as_os_str().as_bytes(), MAX_PATH)
}

fn processes(number: u64) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{number} processes") }
}

fn warning(beginning: &str, why: &NoAllocator, tgids: &[u32]) -> String {
    let listed: Vec<String> = tgids.iter().take(MAX_LISTED).map(u32::to_string).collect();
    let more = tgids.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if tgids.len() == 1 { "process" } else { "processes" };
    format!("{beginning} {what} {}{more}: {why}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_lists_some_processes() {
        let why = NoAllocator::Refused("EPERM".to_owned());
        assert_eq!(
            warning(NOT_SAMPLED, &why, &[7]),
            "native allocations are not sampled in process 7: the kernel refused a uprobe: EPERM"
        );
        let many: Vec<u32> = (1..=22).collect();
        let text = warning(NOT_SAMPLED, &why, &many);
        assert!(text.contains("in processes 1, 2, 3, ") && text.contains(", 20 and 2 more: "), "{text}");
    }
}
