//! The processes that publish trace contexts, and where their threads have them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::variable::{CLibrary, of_library};
use crate::capture::{ContextMap, ProgramAddresses, ThreadVariable};
use crate::limits::{Limit, ReachedLimits};
use crate::plan::allowance::TimeAllowance;
use crate::process::memory::LiveMemory;
use crate::process::{CodeRange, CodeSource, FileId, MappedFile, ProcessCode};
use crate::symbolize::{FileHandle, Symbolizer, ThreadLocal};
use crate::world::World;

/// The thread-local variable of OTEP 4947: a pointer to the record of the thread's trace context.
const VARIABLE: &str = "otel_thread_ctx_v1";

/// Looking at processes may take one part in this many of all time in the long run.
const SHARE_DIVISOR: u32 = 10;
const MAX_SAVED: Duration = Duration::from_secs(1);
/// How long it may delay the start of sampling, and each call after that.
const AT_START: Duration = Duration::from_secs(3);
const PER_CALL: Duration = Duration::from_millis(100);
/// Files of which it is known whether they define the variable.
const MAX_FILES: usize = 16_384;
/// A library that was just mapped is not linked yet: the pause before the second inspection, which doubles from one to the
/// next, and how many inspections.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_INSPECTIONS: u32 = 10;

/// A process in which a later inspection may find the variable: the dynamic linker has not linked a library yet, or a file
/// could not be read.
#[derive(Clone, Copy, Debug)]
struct Unlinked {
    inspections: u32,
    next: Instant,
}

/// The result of a look at a process.
#[derive(Clone, Copy, Debug)]
enum PlaceResult {
    /// The program publishes no traces, or has ended.
    None,
    Found(ProgramAddresses, ThreadVariable),
    /// A later look may find the variable.
    Later,
}

/// Finds where processes have their trace contexts, and keeps the BPF program's map of them.
pub(crate) struct ContextPlaces {
    map: ContextMap,
    files: HashMap<FileId, Option<Arc<ThreadLocal>>>,
    /// Processes to look at.
    due: BTreeSet<u32>,
    unlinked: BTreeMap<u32, Unlinked>,
    /// Processes in the map.
    published: BTreeSet<u32>,
    /// Processes that publish traces and for which the map had no room.
    refused: BTreeSet<u32>,
    allowance: TimeAllowance,
}

impl ContextPlaces {
    pub(crate) fn new(map: ContextMap) -> ContextPlaces {
        ContextPlaces {
            map,
            files: HashMap::new(),
            due: BTreeSet::new(),
            unlinked: BTreeMap::new(),
            published: BTreeSet::new(),
            refused: BTreeSet::new(),
            allowance: TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now()),
        }
    }

    /// Looks at the processes that exist before sampling begins.
    pub(super) fn begin(&mut self, world: &mut World) {
        self.note_changes(world);
        self.inspect_until(world, Instant::now() + AT_START);
    }

    /// Looks at some of the processes that changed, as long as the allowance permits.
    pub(super) fn inspect_due(&mut self, world: &mut World) {
        let now = Instant::now();
        let waited = self.unlinked.iter().filter(|(_, process)| process.next <= now);
        self.due.extend(waited.map(|(tgid, _)| *tgid));
        let allowed = self.allowance.now(now).min(PER_CALL);
        if !allowed.is_zero() {
            self.inspect_until(world, now + allowed);
            self.allowance.spend(now.elapsed());
        }
    }

    /// Notes which processes began, ended or mapped something. Call this before the loader of unwind tables takes the
    /// list.
    pub(super) fn note_changes(&mut self, world: &World) {
        for tgid in world.processes.touched() {
            self.unlinked.remove(tgid);
            self.due.insert(*tgid);
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !(self.due.is_empty() && self.unlinked.is_empty())
    }

    pub(super) fn limits(&self, reached: &mut ReachedLimits) {
        reached.note(Limit::TracePrograms, "", self.refused.len() as u64);
    }

    pub(super) fn published(&self) -> usize {
        self.published.len()
    }

    fn inspect_until(&mut self, world: &mut World, deadline: Instant) {
        while let Some(tgid) = self.due.pop_first() {
            let wanted = world.walks(tgid) && world.processes.is_alive(tgid);
            let found = if wanted { self.inspect(world, tgid) } else { PlaceResult::None };
            self.apply_result(tgid, found);
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    fn apply_result(&mut self, tgid: u32, found: PlaceResult) {
        let before = self.unlinked.remove(&tgid);
        match found {
            PlaceResult::Found(program, variable) => match self.map.publish(tgid, program, variable) {
                Ok(()) => {
                    log::debug!("process {tgid} publishes trace contexts: {variable:?}");
                    self.published.insert(tgid);
                }
                Err(error) => {
                    log::debug!("{error:#}");
                    self.refused.insert(tgid);
                }
            },
            PlaceResult::None => {
                if self.published.remove(&tgid) {
                    self.map.withdraw(tgid);
                }
            }
            PlaceResult::Later => {
                let inspections = before.map_or(0, |process| process.inspections) + 1;
                if inspections < MAX_INSPECTIONS {
                    let next = Instant::now() + FIRST_PAUSE * (1 << (inspections - 1));
                    self.unlinked.insert(tgid, Unlinked { inspections, next });
                }
            }
        }
    }

    fn inspect(&mut self, world: &mut World, tgid: u32) -> PlaceResult {
        let World { processes, symbolizer, .. } = world;
        let Some(code) = processes.code(tgid) else { return PlaceResult::None };
        let (start_code, end_code) = (code.start_code, code.end_code);
        let program = ProgramAddresses { start_code, end_code, start_stack: code.start_stack };
        let (mut is_whole, mut in_library) = (true, None);
        let mut last = None;
        for range in &code.ranges {
            let CodeSource::File(file) = &range.code else { continue };
            // The parts of a file mostly follow each other.
            if last.replace(file.id) == Some(file.id) {
                continue;
            }
            match self.variable(symbolizer, file) {
                Ok(None) => {}
                // The dynamic linker takes the program's own variable first.
                Ok(Some(variable)) if (range.start..range.end).contains(&start_code) => {
                    let offset = variable.in_program;
                    return PlaceResult::Found(program, ThreadVariable::Static { offset });
                }
                Ok(Some(variable)) if in_library.is_none() => {
                    in_library = variable.moved(range.start, range.offset).map(|moved| (variable, moved));
                }
                Ok(Some(_)) => {}
                Err(()) => is_whole = false,
            }
        }
        let Some((variable, moved)) = in_library else {
            return if is_whole { PlaceResult::None } else { PlaceResult::Later };
        };
        let library = c_library(&code);
        let read = move |memory: &LiveMemory| of_library(&variable, moved, library, |at| memory.word(at));
        match processes.look_at_memory(tgid, read).flatten() {
            Some(variable) => PlaceResult::Found(program, variable),
            None => PlaceResult::Later,
        }
    }

    /// The variable of a file, if the file defines it; an error if that is not known now.
    fn variable(
        &mut self,
        symbolizer: &mut Symbolizer,
        file: &Arc<MappedFile>,
    ) -> Result<Option<Arc<ThreadLocal>>, ()> {
        if let Some(known) = self.files.get(&file.id) {
            return Ok(known.clone());
        }
        let handle = FileHandle::Mapped(Arc::clone(file));
        let found = symbolizer.thread_local(&handle, VARIABLE).map_err(|_| ())?.map(Arc::new);
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        self.files.insert(file.id, found.clone());
        Ok(found)
    }
}

fn c_library(code: &ProcessCode) -> CLibrary {
    let is_musl = |range: &CodeRange| {
        let CodeSource::File(file) = &range.code else { return false };
        let name = file.path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(b"ld-musl-") || name.starts_with(b"libc.musl-")
    };
    if code.ranges.iter().any(is_musl) { CLibrary::Musl } else { CLibrary::Glibc }
}
