//! Attaches the programs of allocations to the files of HotSpot that profiled processes map. One file serves all processes
//! that map it, now and later.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::agent_probes::{AgentProbeCause, AgentProbes};
use super::alloc_tracer::{TracerSite, sites};
use super::jvm_setup::is_libjvm;
use super::no_allocations::{MAX_FILES, NoAllocations, jvms};
use crate::capture::{AllocationLink, AllocationProbes};
use crate::jvm;
use crate::plan::allowance::TimeAllowance;
use crate::plan::{Control, JavaAllocations};
use crate::process::inode_traits::InodeTraits;
use crate::process::{CodeSource, EventKind, FileUse, MappedFile, ProcessEvent, TimedCalls};
use crate::sample::MonoNs;
use crate::symbolize::NoProbeSite;
use crate::text::clean;
use crate::world::{PartEnd, PartReport, Stage, WindowEnd, WindowStacks, World};

/// Timeout for reading the symbols of a file and attaching to it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Reading files may take one part in this many of all time, and so much at once.
const SHARE_DIVISOR: u32 = 10;
const MAX_SAVED: Duration = Duration::from_secs(1);
/// Longest path in a warning, characters.
const MAX_PATH: usize = 300;

/// The two programs of a file.
#[allow(dead_code, reason = "the probes last as long as this")]
struct TlabLinks {
    in_new_tlab: AllocationLink,
    outside_tlab: AllocationLink,
}

/// A file of HotSpot.
struct ProbedLibrary {
    path: String,
    usage: Option<FileUse>,
    attached: Result<TlabLinks, NoAllocations>,
    /// Processes that mapped the file since the last report.
    tgids: BTreeSet<u32>,
}

/// The stage of allocations.
struct AllocationStage {
    probes: AllocationProbes,
    sampled: JavaAllocations,
    /// Probes in the agents of JVMs that choose the objects.
    agents: AgentProbes,
    timed_calls: TimedCalls,
    /// Time for reading files. A tenant can make files whose symbols take seconds to read.
    allowance: TimeAllowance,
    /// When the JVMs that ran before sampling were looked for. Earlier events are older than what is known of them.
    discovered_at: MonoNs,
    /// Processes with HotSpot whose file is not probed yet.
    unprobed: BTreeSet<u32>,
    /// Those of them for which there was no time since the last report.
    postponed: BTreeSet<u32>,
    /// Processes whose file may be probed later: too many are probed now, or the calls of a tenant hang.
    refused: BTreeSet<u32>,
    libraries: BTreeMap<InodeTraits, ProbedLibrary>,
    /// Files that could not be opened or probed since the last report, by path.
    unprobeable: BTreeMap<String, ProbedLibrary>,
    /// Whether any JVM was found.
    found: bool,
}

pub(in crate::runtime) fn stage(probes: AllocationProbes, sampled: JavaAllocations) -> Box<dyn Stage> {
    Box::new(AllocationStage {
        probes,
        sampled,
        agents: AgentProbes::default(),
        timed_calls: TimedCalls::new(PROBE_TIMEOUT),
        allowance: TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now()),
        discovered_at: MonoNs::default(),
        unprobed: BTreeSet::new(),
        postponed: BTreeSet::new(),
        refused: BTreeSet::new(),
        libraries: BTreeMap::new(),
        unprobeable: BTreeMap::new(),
        found: false,
    })
}

impl Stage for AllocationStage {
    fn name(&self) -> &'static str {
        "allocations"
    }

    fn on_prepare(&mut self, world: &mut World, _: &Control) {
        self.discovered_at = MonoNs::now();
        // If /proc cannot be read, the stage of JVMs reports it.
        let jvms = jvm::discover().unwrap_or_default();
        let wanted = jvms.iter().map(|jvm| jvm.process.tgid).filter(|tgid| world.walks(*tgid));
        self.unprobed.extend(wanted);
        // The stage of JVMs asks an agent for samples only when it attaches the agent: soon.
        self.probe_within(world, Duration::MAX);
    }

    fn on_begin(&mut self, world: &mut World) {
        self.agents.attach(world, &self.probes, &mut self.timed_calls);
    }

    fn on_events(&mut self, world: &mut World, events: &[ProcessEvent]) {
        for event in events {
            let is_new_program = match event.kind {
                EventKind::Comm { exec, .. } => exec,
                EventKind::Fork { .. } => event.is_leader(),
                _ => false,
            };
            if is_new_program && event.at >= self.discovered_at {
                self.agents.forget(event.tgid, &world.agent_sampling);
            }
            if let EventKind::Mmap(mapped) = &event.kind
                && is_libjvm(&mapped.path)
            {
                self.unprobed.insert(event.tgid);
            }
        }
        self.probe_waiting(world);
    }

    fn on_window(&mut self, world: &mut World, _: &mut WindowStacks<'_>, _: WindowEnd) {
        self.retry_refused();
        self.probe_waiting(world);
    }

    fn on_tick(&mut self, world: &mut World) {
        self.agents.attach(world, &self.probes, &mut self.timed_calls);
    }

    fn report(&mut self, world: &mut World, _: &PartEnd<'_>, report: &mut PartReport) {
        if !self.found {
            report.warnings.push("alloc has no samples: no JVM ran".to_owned());
        }
        let all = self.libraries.values_mut().chain(self.unprobeable.values_mut());
        report.warnings.extend(all.filter_map(ProbedLibrary::take_warning));
        report.warnings.extend(self.agents.report(world));
        if !self.postponed.is_empty() {
            report.warnings.push(format!(
                "allocations are not sampled in {}: reading the files of others took all the time that is allowed",
                jvms(&self.postponed)
            ));
        }
        self.unprobeable.clear();
    }
}

impl AllocationStage {
    /// Attaches the programs to the files of the processes that wait for it, as long as the allowance permits.
    fn probe_waiting(&mut self, world: &mut World) {
        let begin = Instant::now();
        let allowed = self.allowance.now(begin);
        self.probe_within(world, allowed);
        self.allowance.spend(begin.elapsed());
    }

    fn probe_within(&mut self, world: &mut World, allowed: Duration) {
        let begin = Instant::now();
        for tgid in std::mem::take(&mut self.unprobed) {
            if world.processes.has_ended(tgid) {
                self.postponed.remove(&tgid);
                continue;
            }
            // A process that the filter includes later, as a descendant or by its cgroup, is probed then.
            match world.walks(tgid).then(|| library_of(world, tgid)).flatten() {
                Some(file) if self.sampled == JavaAllocations::Objects || begin.elapsed() < allowed => {
                    self.postponed.remove(&tgid);
                    self.probe_library(world, tgid, &file);
                }
                Some(_) => {
                    self.postponed.insert(tgid);
                    self.unprobed.insert(tgid);
                }
                None => drop(self.unprobed.insert(tgid)),
            }
        }
    }

    /// Tries again to probe the files that were refused, if there is room now.
    fn retry_refused(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        self.forget_unmapped();
        if self.libraries.len() < MAX_FILES {
            self.unprobed.append(&mut self.refused);
        }
    }

    fn forget_unmapped(&mut self) {
        if self.libraries.len() >= MAX_FILES {
            self.libraries.retain(|_, library| library.usage.as_ref().is_some_and(FileUse::is_mapped));
        }
    }

    fn probe_library(&mut self, world: &World, tgid: u32, file: &MappedFile) {
        self.found = true;
        let path = clean(file.path.as_os_str().as_bytes(), MAX_PATH);
        if self.sampled == JavaAllocations::Objects {
            return self.agents.want(tgid, AgentProbeCause::Chosen, &world.agent_sampling);
        }
        let library = match self.probed(tgid, file, &path) {
            Ok(traits) => {
                let Some(library) = self.libraries.get_mut(&traits) else { return };
                library
            }
            Err(why) => {
                if matches!(why, NoAllocations::TooMany | NoAllocations::TooSlow) {
                    self.refused.insert(tgid);
                }
                let library = || ProbedLibrary::new(path.clone(), file, Err(why));
                self.unprobeable.entry(path.clone()).or_insert_with(library)
            }
        };
        if library.attached.as_ref().is_err_and(|why| *why == NoAllocations::Stripped) {
            self.agents.want(tgid, AgentProbeCause::Stripped(path), &world.agent_sampling);
        } else {
            library.tgids.insert(tgid);
        }
    }

    /// The traits of a file in `libraries`, which is probed now if it is new. An error may have gone later.
    fn probed(&mut self, tgid: u32, file: &MappedFile, path: &str) -> Result<InodeTraits, NoAllocations> {
        if file.is_copy() {
            return Err(NoAllocations::Served);
        }
        let fd = file.fd().map_err(|why| NoAllocations::Unopened(why.to_string()))?;
        let traits = self.timed_calls.run(tgid, {
            let fd = Arc::clone(&fd);
            move || InodeTraits::of(fd.as_fd())
        });
        let traits = traits
            .map_err(|_| NoAllocations::TooSlow)?
            .map_err(|error| NoAllocations::Unopened(error.to_string()))?;
        if !self.libraries.contains_key(&traits) {
            let attached = self.attach_timed(tgid, fd);
            match &attached {
                Ok(_) => log::info!("allocations: {path} of process {tgid} is probed"),
                Err(NoAllocations::Stripped) => {
                    log::info!("allocations: {path} of process {tgid} has no symbols: its agent is asked");
                }
                Err(why) => log::info!("allocations: {path} of process {tgid}: {why}"),
            }
            if let Err(why @ (NoAllocations::TooMany | NoAllocations::TooSlow)) = attached {
                return Err(why);
            }
            self.libraries.insert(traits, ProbedLibrary::new(path.to_owned(), file, attached));
        }
        Ok(traits)
    }

    fn attach_timed(&mut self, tgid: u32, file: Arc<OwnedFd>) -> Result<TlabLinks, NoAllocations> {
        self.forget_unmapped();
        if self.libraries.len() >= MAX_FILES {
            return Err(NoAllocations::TooMany);
        }
        let probes = self.probes.clone();
        let attached = self.timed_calls.run(tgid, move || attach(&probes, &file));
        attached.unwrap_or(Err(NoAllocations::TooSlow))
    }
}

impl ProbedLibrary {
    fn new(path: String, file: &MappedFile, attached: Result<TlabLinks, NoAllocations>) -> ProbedLibrary {
        ProbedLibrary { path, usage: file.usage(), attached, tgids: BTreeSet::new() }
    }

    /// The warning about the JVMs that mapped the file since the last one; `None` if their allocations are sampled.
    fn take_warning(&mut self) -> Option<String> {
        let tgids = std::mem::take(&mut self.tgids);
        let why = self.attached.as_ref().err().filter(|_| !tgids.is_empty())?;
        Some(format!("allocations are not sampled in {}: {}: {why}", jvms(&tgids), self.path))
    }
}

/// The file of HotSpot that a process maps.
fn library_of(world: &mut World, tgid: u32) -> Option<Arc<MappedFile>> {
    let code = world.processes.code(tgid)?;
    code.ranges.into_iter().find_map(|range| match range.code {
        CodeSource::File(file) if is_libjvm(&file.path) => Some(file),
        _ => None,
    })
}

/// Reads the symbols of the file, and attaches the programs. The kernel reads the file, too.
fn attach(probes: &AllocationProbes, file: &OwnedFd) -> Result<TlabLinks, NoAllocations> {
    let own = file.try_clone().map_err(|error| NoAllocations::Unopened(error.to_string()))?;
    let [in_new_tlab, outside_tlab] = sites(own).map_err(|why| match why {
        NoProbeSite::Function => NoAllocations::Stripped,
        why => NoAllocations::Unreadable(why.to_string()),
    })?;
    let link = |TracerSite { offset, arguments }| {
        probes
            .attach(file, offset, arguments, None)
            .map_err(|error| NoAllocations::Refused(error.to_string()))
    };
    Ok(TlabLinks { in_new_tlab: link(in_new_tlab)?, outside_tlab: link(outside_tlab)? })
}
