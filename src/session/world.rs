//! What the stages share: the processes, and what names their code.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;

use crate::limits::LimitsMet;
use crate::plan::{Settings, Target};
use crate::process::opener::OpenersCost;
use crate::process::{self, Processes, Which};
use crate::runtime::hotspot::thread_name;
use crate::sample::{Count, ProcessId, Stack};
use crate::symbolize::{self, LogStats, Stats, Symbolizer};

/// The processes of the machine, and their code's names.
pub(super) struct World {
    pub(super) processes: Processes,
    pub(super) symbolizer: Symbolizer,
}

impl World {
    /// The first look at all processes.
    pub(super) fn look(settings: &Settings) -> anyhow::Result<World> {
        let symbols = symbolize::Config {
            raw_names: settings.raw_names,
            ..symbolize::Config::new(settings.binary.clone())
        };
        let began = Instant::now();
        let symbolizer = Symbolizer::start(symbols).context("starting the symbol worker")?;
        log::info!("symbols: worker started and kernel symbols read in {:.0?}", began.elapsed());
        let began = Instant::now();
        let options = process::Options { binary: settings.binary.clone(), ..process::Options::default() };
        let mut processes = Processes::new(options);
        let found = match &settings.target {
            Target::Pids(tgids) if !settings.children => processes.scan(&Which::Tgids(tgids)),
            _ => processes.scan(&Which::All),
        };
        log::info!("processes: {found} found in {:.0?}", began.elapsed());
        Ok(World { processes, symbolizer })
    }

    /// Reads what JVMs say of their code. Those of these stacks have run, and so have those that wait for their names.
    pub(super) fn read_logs(
        &mut self,
        stacks: &[(Stack, Count)],
        waiting: HashSet<ProcessId>,
    ) -> Vec<(ProcessId, LogStats)> {
        let mut ran = waiting;
        ran.extend(stacks.iter().map(|(stack, _)| stack.key.process));
        self.symbolizer.read_logs(&ran)
    }

    /// The name of the group leader; of a process that was never seen, that of the thread.
    pub(super) fn process_name(&mut self, stack: &Stack) -> String {
        let comm = self.processes.info(stack.key.process, stack.at).map(|info| Arc::clone(&info.comm));
        let name = thread_name::text(comm.as_deref().unwrap_or(&stack.comm));
        if name.is_empty() { format!("[pid {}]", stack.key.process.tgid) } else { name }
    }

    /// What symbolizing did, and what it and opening files cost so far.
    pub(super) fn costs(&self) -> (Stats, OpenersCost) {
        (self.symbolizer.stats(), self.processes.openers_cost())
    }

    /// What was left out of processes and files.
    pub(super) fn limits(&self) -> LimitsMet {
        let mut met = self.processes.limits();
        met.merge(self.symbolizer.limits());
        met
    }
}
