//! Process contexts as a stage of a session: what processes publish about themselves (OTEP 4719), such as the name of
//! their service.
//!
//! No event says that a process publishes, so the stage looks at the processes that ran in a window, in each later window
//! less often.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context_record::{self, PublishedAt};
use crate::limits::{Limit, ReachedLimits};
use crate::plan::allowance::TimeAllowance;
use crate::sample::{MonoNs, ProcessId};
use crate::world::{Stage, WindowEnd, WindowStacks, World};

/// Looking at processes may take one part in this many of all time in the long run.
const SHARE_DIVISOR: u32 = 50;
const MAX_SAVED: Duration = Duration::from_millis(500);
/// Processes that are known at a time.
const MAX_PROCESSES: usize = 4096;
/// Windows between two looks at a process: twice as many after each look, up to this power of two.
const MAX_PAUSE_LOG2: u32 = 6;
/// Windows after which a process that did not run is forgotten. Its samples have their names long before.
const FORGOTTEN_AFTER: u64 = 600;

/// A process that ran.
#[derive(Clone, Copy, Debug, Default)]
struct SeenProcess {
    reads: u32,
    /// Windows: when the process may be looked at again, and when it ran last.
    next: u64,
    last_ran: u64,
    published: Option<PublishedAt>,
}

/// Finds what processes publish about themselves, and keeps it in [`World::resources`].
pub(crate) struct ProcessContexts {
    seen: HashMap<ProcessId, SeenProcess>,
    allowance: TimeAllowance,
    /// Processes for which there was no room.
    refused: u64,
}

impl ProcessContexts {
    pub(crate) fn new() -> ProcessContexts {
        ProcessContexts {
            seen: HashMap::new(),
            allowance: TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now()),
            refused: 0,
        }
    }

    /// Notes that a process ran in a window. Returns whether to look at the process now.
    fn is_due(&mut self, id: ProcessId, window: u64) -> bool {
        if self.seen.len() >= MAX_PROCESSES && !self.seen.contains_key(&id) {
            self.refused += 1;
            return false;
        }
        let process = self.seen.entry(id).or_default();
        process.last_ran = window;
        process.next <= window
    }

    fn read_context(&mut self, world: &mut World, id: ProcessId, at: MonoNs) {
        let Some(process) = self.seen.get_mut(&id) else { return };
        process.next = world.window + (1 << process.reads.min(MAX_PAUSE_LOG2));
        process.reads += 1;
        let known = process.published;
        let read = move |memory: &_| context_record::read_record(memory, known);
        // Without a record, what the process published before still holds: the process may be changing its record.
        let Some(record) = world.processes.look_at_memory_of(id, at, read).flatten() else { return };
        process.published = Some(record.at);
        let Some(payload) = record.payload else { return };
        let resource = world.symbolizer.resource(payload).unwrap_or_default();
        log::debug!("process {} publishes {resource:?}", id.tgid);
        if resource.is_empty() {
            world.resources.remove(&id);
        } else {
            world.resources.insert(id, Arc::new(resource));
        }
    }

    fn forget(&mut self, world: &mut World) {
        let window = world.window;
        self.seen.retain(|_, process| process.last_ran + FORGOTTEN_AFTER > window);
        world.resources.retain(|id, _| self.seen.contains_key(id));
    }
}

impl Stage for ProcessContexts {
    fn name(&self) -> &'static str {
        "process contexts"
    }

    fn on_window(&mut self, world: &mut World, stacks: &mut WindowStacks<'_>, end: WindowEnd) {
        let now = Instant::now();
        let until = now + self.allowance.now(now);
        for runner in &stacks.ran {
            let id = runner.process;
            if !id.is_idle()
                && world.walks(id.tgid)
                && self.is_due(id, world.window)
                && Instant::now() < until
            {
                self.read_context(world, id, end.at);
            }
        }
        self.allowance.spend(now.elapsed());
        if world.window.is_multiple_of(FORGOTTEN_AFTER) {
            self.forget(world);
        }
    }

    fn on_end(&mut self, world: &mut World) {
        log::info!("process contexts: {} processes publish them", world.resources.len());
    }

    fn limits(&self, reached: &mut ReachedLimits) {
        reached.note(Limit::TracePrograms, "process contexts", self.refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(tgid: u32) -> ProcessId {
        ProcessId { tgid, start: 1, exec: 1 }
    }

    #[test]
    fn processes_beyond_the_limit_are_counted() {
        let mut contexts = ProcessContexts::new();
        let most = MAX_PROCESSES as u32;
        assert!((0..most).all(|tgid| contexts.is_due(process(tgid), 1)));
        assert!(!contexts.is_due(process(most), 1), "no room");
        assert!(contexts.is_due(process(0), 1), "a known process");
        assert_eq!(contexts.refused, 1);
    }
}
