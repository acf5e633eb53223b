//! Stacks of threads that are still waiting: unwound by the memory of their process, as soon as their samples have come.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use crate::outside::OutsideStack;
use crate::process::Processes;
use crate::process::memory::{ProgramMemory, switches};
use crate::sample::{CountedStack, MonoNs, ProcessId, Stack};
use crate::symbolize::{OutsideProcess, Symbolizer, ThreadToUnwind};
use crate::unwind::{ProgramLayout, SpaceImage, TableMemory, TableStore};

/// How long unwinding may take for one window. Threads that come later keep the one frame that is known.
const UNWIND_TIMEOUT: Duration = Duration::from_secs(3);

/// One wait of a thread. The number of switches is the same as long as the wait lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WaitId {
    process: ProcessId,
    tid: u32,
    switches: u64,
}

impl WaitId {
    fn of(stack: &Stack) -> Option<WaitId> {
        let waiting = stack.waiting.as_ref()?;
        Some(WaitId { process: stack.key.process, tid: waiting.tid, switches: waiting.switches })
    }

    fn lasts(&self) -> bool {
        switches(self.process.tgid, self.tid) == Some(self.switches)
    }
}

/// The threads of a process that are to be unwound.
struct WaitingProcess {
    /// When one of them was sampled.
    at: MonoNs,
    threads: HashMap<WaitId, ThreadToUnwind>,
}

/// Unwinds each wait once, for as many windows as it lasts.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedUnwinder {
    /// Stacks of waits that the last window with such samples had.
    known: HashMap<WaitId, OutsideStack>,
}

impl UnfinishedUnwinder {
    /// Unwinds the stacks of a window whose threads are still waiting.
    pub(crate) fn unwind<M: TableMemory>(
        &mut self,
        stacks: &mut [CountedStack],
        store: &TableStore<M>,
        processes: &mut Processes,
        symbolizer: &mut Symbolizer,
    ) {
        if stacks.iter().all(|one| one.stack.waiting.is_none()) {
            return;
        }
        let deadline = Instant::now() + UNWIND_TIMEOUT;
        for (id, process) in self.take_new(stacks) {
            if Instant::now() >= deadline {
                log::info!("unwinding: no time was left for the waits of process {} and others", id.tgid);
                break;
            }
            self.unwind_process(id, process, store, processes, symbolizer);
        }
        for CountedStack { stack, .. } in stacks {
            if let Some(known) = WaitId::of(stack).and_then(|wait| self.known.get(&wait)) {
                let OutsideStack { user, stop_reason, lock, lock_is_hidden: _ } = known.clone();
                (stack.user, stack.stop_reason, stack.lock, stack.waiting) = (user, stop_reason, lock, None);
            }
        }
    }

    /// Keeps what is known of these waits, and returns the others.
    fn take_new(&mut self, stacks: &[CountedStack]) -> BTreeMap<ProcessId, WaitingProcess> {
        let mut before = std::mem::take(&mut self.known);
        let mut new = BTreeMap::new();
        for CountedStack { stack, .. } in stacks {
            let (Some(wait), Some(waiting)) = (WaitId::of(stack), &stack.waiting) else { continue };
            if self.known.contains_key(&wait) {
                continue;
            }
            if let Some(known) = before.remove(&wait) {
                self.known.insert(wait, known);
                continue;
            }
            let first = || WaitingProcess { at: stack.at, threads: HashMap::new() };
            let thread = ThreadToUnwind { waiting: **waiting, leaf: stack.leaf };
            new.entry(wait.process).or_insert_with(first).threads.insert(wait, thread);
        }
        new
    }

    fn unwind_process<M: TableMemory>(
        &mut self,
        id: ProcessId,
        process: WaitingProcess,
        store: &TableStore<M>,
        processes: &mut Processes,
        symbolizer: &mut Symbolizer,
    ) {
        let Some(ProgramMemory { fd, start_code, end_code, start_stack }) = processes.memory(id, process.at)
        else {
            return;
        };
        let image = store.copy_space(id.tgid, ProgramLayout { start_code, end_code, start_stack });
        // Without tables, frame pointers are followed, as in the kernel.
        let SpaceImage { pages, space } = image.unwrap_or_default();
        let outside = OutsideProcess { tgid: id.tgid, memory: fd, pages, space };
        let (waits, threads): (Vec<WaitId>, Vec<ThreadToUnwind>) = process.threads.into_iter().unzip();
        let unwound = symbolizer.unwind_outside(&outside, &threads);
        for (wait, stack) in waits.into_iter().zip(unwound) {
            // A thread that has run meanwhile had another stack in between.
            if let Some(stack) = stack.filter(|_| wait.lasts()) {
                self.known.insert(wait, stack);
            }
        }
    }
}
