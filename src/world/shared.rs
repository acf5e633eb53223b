//! The state that the stages of a session share: the processes, the names of their code, and what one stage leaves for
//! another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;

use super::agent_sampling::AgentSamplingRequests;
use super::readiness::Readiness;
use super::whole_names::FullThreadNames;
use super::window::{WindowPauses, WindowStacks};
use crate::limits::ReachedLimits;
use crate::plan::{Settings, Target};
use crate::process::opener::OpenersCost;
use crate::process::{self, Processes, ScanScope, comm};
use crate::profile::resource::ResourceAttributes;
use crate::sample::{CountedStack, ProcessId, ProcessInCgroup, Stack};
use crate::symbolize::{self, Stats, Symbolizer};
use crate::targets::WalkScope;
use crate::targets::containers::Containers;
use crate::targets::groups::Groups;
use crate::unwind::HotSpotUnwindInfo;

/// The work and the cost of the symbol workers and openers so far.
pub(crate) struct ChildStats {
    pub(crate) symbols: Stats,
    pub(crate) openers: OpenersCost,
}

pub(crate) struct World {
    pub(crate) processes: Processes,
    pub(crate) symbolizer: Symbolizer,
    pub(crate) groups: Groups,
    pub(crate) containers: Containers,
    /// Processes whose user stacks are unwound.
    pub(crate) scope: WalkScope,
    /// Number of the current window, or between windows of the next one; the first is 1.
    pub(crate) window: u64,
    /// JVMs that choose the samples of their allocations themselves.
    pub(crate) agent_sampling: AgentSamplingRequests,
    /// From runtimes, for the unwinder: descriptions of the code that they generate, by process.
    pub(crate) described: Vec<(u32, HotSpotUnwindInfo)>,
    /// From runtimes, for the aggregator: processes whose names come late. Made anew for each window.
    pub(crate) readiness: Readiness,
    /// From runtimes, for the aggregator: full names of threads whose names the kernel cuts.
    pub(crate) thread_names: FullThreadNames,
    /// From the stage of process contexts, for the aggregator: what processes publish about themselves.
    pub(crate) resources: HashMap<ProcessId, Arc<ResourceAttributes>>,
    /// From runtimes, for pages that are open while the session goes on: the pauses of JVMs that the pages do not have.
    /// `None` if the session shows no page.
    pub(crate) new_pauses: Option<Vec<WindowPauses>>,
    /// From the aggregator, for runtimes: processes whose stacks still wait for their names.
    pub(crate) awaiting_names: HashSet<ProcessId>,
}

impl World {
    /// Starts the symbol worker and reads the processes for the first time. `launched` is the process that the profiler
    /// started.
    pub(crate) fn start(settings: &Settings, groups: Groups, launched: Option<u32>) -> anyhow::Result<World> {
        let symbols = symbolize::SymbolConfig {
            raw_names: settings.raw_names,
            ..symbolize::SymbolConfig::new(settings.binary.clone())
        };
        let began = Instant::now();
        let symbolizer = Symbolizer::start(symbols).context("starting the symbol worker")?;
        log::info!("symbols: worker started and kernel symbols read in {:.0?}", began.elapsed());
        let began = Instant::now();
        let options =
            process::ProcessOptions { binary: settings.binary.clone(), ..process::ProcessOptions::default() };
        let mut processes = Processes::new(options);
        let found = match &settings.target {
            Target::Pids(tgids) if !settings.children => processes.scan(&ScanScope::Tgids(tgids)),
            _ => processes.scan(&ScanScope::All),
        };
        log::info!("processes: {found} found in {:.0?}", began.elapsed());
        Ok(World {
            processes,
            symbolizer,
            containers: Containers::new(settings.node.clone(), groups.naming()),
            groups,
            scope: WalkScope::of(settings, launched),
            window: 1,
            agent_sampling: AgentSamplingRequests::default(),
            described: Vec::new(),
            readiness: Readiness::default(),
            thread_names: FullThreadNames::default(),
            resources: HashMap::new(),
            new_pauses: None,
            awaiting_names: HashSet::new(),
        })
    }

    /// Whether user stacks of this process may be unwound.
    pub(crate) fn walks(&self, tgid: u32) -> bool {
        self.scope.includes(tgid, &self.processes, &self.groups)
    }

    /// Goes once through a window's stacks and collects for all stages who ran. Sorts the stacks by time: the first
    /// stack with a process identity decides which program has the identity. The last stacks of a program, from within
    /// its exec, may already fall into the time of the next one.
    pub(crate) fn register_window<'a>(&mut self, stacks: &'a mut Vec<CountedStack>) -> WindowStacks<'a> {
        stacks.sort_by_key(|one| one.stack.at);
        let (mut ran, mut seen) = (Vec::new(), HashSet::new());
        for CountedStack { stack, .. } in stacks.iter() {
            let key = &stack.key;
            self.processes.mark_seen(key.process, stack.at);
            let runner = ProcessInCgroup { process: key.process, cgroup: key.cgroup };
            if seen.insert(runner) {
                ran.push(runner);
            }
        }
        WindowStacks { stacks, ran }
    }

    /// Name of the group leader; of a process that was never seen, the name of the thread.
    pub(crate) fn process_name(&mut self, stack: &Stack) -> String {
        let known = self.processes.info(stack.key.process, stack.at).map(|info| Arc::clone(&info.comm));
        let name = comm::text(known.as_deref().unwrap_or(&stack.comm));
        if name.is_empty() { format!("[pid {}]", stack.key.process.tgid) } else { name }
    }

    pub(crate) fn child_stats(&self) -> ChildStats {
        ChildStats { symbols: self.symbolizer.stats(), openers: self.processes.openers_cost() }
    }

    /// What limits left out of processes and files.
    pub(crate) fn limits(&self) -> ReachedLimits {
        let mut reached = self.processes.limits();
        reached.merge(self.symbolizer.limits());
        reached
    }
}
