//! The symbolizer: stacks of addresses in, stacks of frames out.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Result;

use super::address_cache::{
    AddressCache, KnownAddress, LookupAddress, SpaceNumber, TimedAddress, TimedResult, ValidTimes,
};
use super::cache::Cache;
use super::child::{MAX_DIVISOR, WorkerProcess};
use super::config::SymbolConfig;
use super::eviction::WorkerReplacement;
use super::files::NativeFiles;
use super::followed::{JvmLog, JvmMemory};
use super::frames::{FrameChain, interpreter, is_lasting, unknown, vsyscall};
use super::jit::JitMaps;
use super::jvms::{JavaLeafCounts, JvmNames};
use super::live_kernel::Kernel;
use super::lookup::{BatchAnswer, Slot, WantedFile, WantedMethods, WordLookup, WordQuery, WorkerBatch};
use super::message::{ProcessLogStats, ThreadToUnwind};
use super::method_cache::InterpretedFrame;
use super::outside::{OutsideProcess, OutsideWorker};
use super::place::{AddressSpaces, CodePlace, IdentifiedFile};
use super::stack_lookup::{InlineExpansion, LastLookup, NamedStack, StackLookup};
use super::stats::Stats;
use super::vdso;
use crate::limits::ReachedLimits;
use crate::outside::OutsideStack;
use crate::process::FileId;
use crate::profile::frame::HIDDEN_KERNEL;
use crate::profile::{Frame, Kind, UnknownReason};
use crate::sample::{MonoNs, ProcessId, Stack, StopReason, UserWord};

/// Stacks in one batch. The size bounds the memory for pending lookups, and for frames if the caller takes as many at a
/// time.
pub const CHUNK: usize = 512;
/// The most JVMs without an agent that are remembered.
const MAX_WITHOUT_AGENT: usize = 4096;
/// No file of a process has this number.
pub(super) const VDSO: FileId = FileId(u64::MAX);
pub(super) const COMPAT_VDSO: FileId = FileId(u64::MAX - 1);

/// Names addresses and owns the worker processes.
#[derive(Debug)]
pub struct Symbolizer {
    pub(super) child: WorkerProcess,
    kernel: Kernel,
    pub(super) files: NativeFiles,
    pub(super) jit: JitMaps,
    pub(super) jvms: JvmNames,
    pub(super) outside: OutsideWorker,
    /// JVMs without an agent.
    pub(super) jvms_without_agent: HashSet<ProcessId>,
    pub(super) java_leaves: HashMap<ProcessId, JavaLeafCounts>,
    pub(super) known: AddressCache,
    pub(super) native: Cache<(FileId, u64), FrameChain>,
    pub(super) vdso: Option<Arc<OwnedFd>>,
    pub(super) compat_vdso: OnceLock<Option<Arc<OwnedFd>>>,
    pub(super) eviction: WorkerReplacement,
    unknown: HashMap<UnknownReason, u64>,
}

impl Symbolizer {
    /// Starts the worker and reads the kernel's symbols.
    ///
    /// # Errors
    /// If the worker cannot be started.
    pub fn start(config: SymbolConfig) -> Result<Symbolizer> {
        let child = WorkerProcess::start(config.binary.clone(), config.timeout, MAX_DIVISOR)?;
        Ok(Symbolizer {
            child,
            kernel: Kernel::read(),
            files: NativeFiles::new(config.debug_dir),
            jit: JitMaps::new(config.raw_names, config.perf_map_interval),
            outside: OutsideWorker::new(config.binary.clone()),
            jvms: JvmNames::new(config.binary, config.raw_names, config.cached),
            jvms_without_agent: HashSet::new(),
            java_leaves: HashMap::new(),
            known: AddressCache::new(config.cached),
            native: Cache::new(config.cached),
            vdso: vdso::image().map(Arc::new),
            compat_vdso: OnceLock::new(),
            eviction: WorkerReplacement::new(config.worker_memory, Instant::now()),
            unknown: HashMap::new(),
        })
    }

    /// Adds the log of a JVM's agent as a symbol source. Returns false if no further JVM can be followed.
    pub fn add_agent_log(&mut self, process: ProcessId, log: JvmLog) -> bool {
        self.jvms_without_agent.remove(&process);
        self.known.forget(process);
        self.jvms.follow(process, log)
    }

    /// Adds a JVM's memory as a symbol source: of interpreted methods, and of compiled code if `memory.code` is set.
    /// Returns false if no further JVM can be followed.
    pub fn add_jvm_memory(&mut self, process: ProcessId, memory: JvmMemory) -> bool {
        if memory.code {
            self.jvms_without_agent.remove(&process);
            self.known.forget(process);
        }
        self.jvms.watch(process, memory)
    }

    /// Marks a process as a JVM without an agent. Frames of its JIT code are [`UnknownReason::NoAgent`] instead of
    /// [`UnknownReason::AnonymousCode`].
    pub fn mark_without_agent(&mut self, process: ProcessId) {
        if !self.jvms.follows(process) && self.jvms_without_agent.len() < MAX_WITHOUT_AGENT {
            self.jvms_without_agent.insert(process);
        }
    }

    /// Reads the new records of the followed JVMs' logs, and checks the known code in the memory of JVMs that `ran`.
    /// Call this after each window, before [`symbolize`](Self::symbolize): `ran` are all processes that the stacks
    /// belong to. Their agents must have had time to log their code.
    pub fn refresh_jvm_sources(&mut self, ran: &HashSet<ProcessId>) -> Vec<ProcessLogStats> {
        self.jvms.refresh_sources(ran)
    }

    /// The followed JVMs, whose memory also has the names of their threads.
    pub(crate) fn jvms(&mut self) -> &mut JvmNames {
        &mut self.jvms
    }

    /// Reloads the kernel's symbols if modules were loaded or unloaded. Call this for each window, before its stacks
    /// are symbolized.
    pub fn follow_kernel(&mut self) {
        self.kernel.follow_modules();
    }

    /// Returns the frames of each stack, root first: user frames with inlined functions unfolded, then kernel frames. A
    /// `[truncated]` marker stands at the root if the stack was cut at the depth limit. Process and thread are not
    /// included. Frames shared with the previous stack are returned once, so stacks that are sorted from their roots
    /// cost least.
    ///
    /// In code without frame pointers, the unwinder can follow an invalid frame pointer to a false return address. If no
    /// code is mapped at a return address, all words beyond it are dropped, and the frame of that address
    /// ([`UnknownReason::NotMapped`]) becomes the root.
    pub fn symbolize(&mut self, stacks: &[Stack], spaces: &mut impl AddressSpaces) -> Vec<NamedStack> {
        let frames = stacks.chunks(CHUNK).flat_map(|chunk| self.symbolize_chunk(chunk, spaces)).collect();
        if self.eviction.is_due(Instant::now()) {
            self.evict();
        }
        frames
    }

    /// Unwinds threads of one process that are still waiting, by the memory of the process. A stack is right only if the
    /// thread has not run since its registers were saved, which the caller checks afterwards. `None` for threads that
    /// could not be unwound: the process blocks the reading of its memory, say.
    pub fn unwind_outside(
        &mut self,
        process: &OutsideProcess,
        threads: &[ThreadToUnwind],
    ) -> Vec<Option<OutsideStack>> {
        self.outside.unwind(process, threads)
    }

    /// Counters since the symbolizer began, and the present size of the cache.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            worker_lost: self.files.lost + self.jit.lost + self.jvms.lost + self.outside.lost,
            worker_evicted: self.eviction.count,
            worker: self.child.cost().plus(self.outside.cost()),
            files_poisoned: self.files.poisoned,
            cached: self.native.len(),
            unknown: self.unknown.clone(),
            perf_maps: self.jit.stats(),
            kernel_reads: self.kernel.reads,
            java_worker: self.jvms.cost(),
            java_leaves: self.java_leaves.clone(),
        }
    }

    /// Limits that were reached, and how much was left out, for processes that are still known.
    #[must_use]
    pub fn limits(&self) -> ReachedLimits {
        self.jit.limits()
    }

    /// Process id of the worker for files, for accounts and tests.
    #[must_use]
    pub fn worker_pid(&self) -> Option<u32> {
        self.child.pid()
    }

    /// Process id of a worker that reads JVMs' logs or memory, if one was started. Only tests call this.
    #[must_use]
    pub fn java_worker_pid(&self) -> Option<u32> {
        self.jvms.pid()
    }

    fn symbolize_chunk(&mut self, stacks: &[Stack], spaces: &mut impl AddressSpaces) -> Vec<NamedStack> {
        let mut wanted = WorkerBatch::default();
        let mut last = LastLookup::default();
        let lookups: Vec<StackLookup> =
            stacks.iter().map(|stack| self.look_up(stack, &mut last, spaces, &mut wanted)).collect();
        let found = self.ask_workers(wanted, spaces);
        let mut last = InlineExpansion::default();
        let looked_up = stacks.iter().zip(lookups);
        looked_up.map(|(stack, lookup)| self.assemble(stack, lookup, &mut last, &found)).collect()
    }

    /// Finds where a stack's user addresses lead. `last` is the stack that was looked up before.
    fn look_up<'s>(
        &mut self,
        stack: &'s Stack,
        last: &mut LastLookup<'s>,
        spaces: &mut impl AddressSpaces,
        wanted: &mut WorkerBatch,
    ) -> StackLookup {
        let id = stack.key.process;
        let at = stack.at;
        let space = spaces.mapped_since(id, at).and_then(|mapped| self.known.space(id, at, mapped));
        let shared = last.shared_with(stack, space);
        let mut steps = Vec::with_capacity(stack.user.len() - shared);
        for (depth, word) in stack.user.iter().take(stack.user.len() - shared).enumerate() {
            let seen = match WordQuery::from(*word) {
                WordQuery::Code(seen) => seen,
                WordQuery::Method(method) => {
                    let known = self.interpreted(id, at, method, wanted);
                    steps.push(known.map(|slot| WordLookup { slot, astray: false, new_in: None }));
                    continue;
                }
            };
            if let Some(known) = self.cached(id, at, space, seen) {
                steps.push(known.map(|slot| WordLookup { slot, astray: false, new_in: None }));
                continue;
            }
            let place = spaces.place(id, at, seen.lookup_pc());
            let nowhere = matches!(place, CodePlace::Unknown(UnknownReason::NotMapped));
            let astray = depth > 0 && nowhere;
            let slot = self.look_up_code(id, at, seen, place, wanted);
            let stack_ends_here = astray && matches!(slot, Slot::Known(_));
            let times = match slot {
                // The same address may end another stack, in which it is a return address.
                _ if nowhere => ValidTimes::NONE,
                Slot::Java { .. } => ValidTimes::NONE,
                // New memory without a file is not reported, so earlier samples may have seen other code.
                Slot::Jit { .. } => ValidTimes { from: at.0, ..ValidTimes::ALL },
                _ => ValidTimes::ALL,
            };
            steps.push(TimedResult { result: WordLookup { slot, astray, new_in: space }, times });
            if stack_ends_here {
                break;
            }
        }
        last.advance(stack, space, shared, steps)
    }

    /// A cached address.
    fn cached(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        space: Option<SpaceNumber>,
        seen: LookupAddress,
    ) -> Option<TimedResult<Slot>> {
        let known = self.known.get(space?, seen, at, self.jvms.changes(id))?;
        Some(known.map(|address| match address {
            KnownAddress::Code(frames) => Slot::Known(frames),
            KnownAddress::Java(frames) => Slot::JavaKnown(frames),
        }))
    }

    /// Looks up the address `seen`, which leads to `place`.
    fn look_up_code(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        seen: LookupAddress,
        place: CodePlace,
        wanted: &mut WorkerBatch,
    ) -> Slot {
        let pc = seen.lookup_pc();
        let (file_id, file, offset) = match place {
            CodePlace::File { id, file, offset } => (id, file, offset),
            CodePlace::Vdso { vdso, offset } => match self.vdso(vdso) {
                Some(IdentifiedFile { id, handle }) => (id, handle, offset),
                None => return Slot::Known(unknown(UnknownReason::FileUnavailable, None, offset)),
            },
            CodePlace::Generated => {
                return self.generated(id, at, seen, wanted);
            }
            CodePlace::Vsyscall => return Slot::Known(vsyscall(pc)),
            // The code cache grows all the time, so its mapping may be unknown. The JVM itself knows its code.
            CodePlace::Unknown(UnknownReason::NotMapped) if self.jvms.follows(id) => {
                return self.generated(id, at, seen, wanted);
            }
            CodePlace::Unknown(why) => return Slot::Known(unknown(why, None, pc)),
        };
        match self.native.get(&(file_id, offset)) {
            Some(frames) => Slot::Known(frames),
            None => {
                let first = || WantedFile { file, mapped_by: id, mapped_at: at, offsets: Vec::new() };
                wanted.native.entry(file_id).or_insert_with(first).offsets.push(offset);
                Slot::Native { file: file_id, offset }
            }
        }
    }

    /// Looks up code without a file, which belongs to a JVM or to another runtime.
    fn generated(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        seen: LookupAddress,
        wanted: &mut WorkerBatch,
    ) -> Slot {
        if self.jvms.follows(id) {
            let times = wanted.java.entry(id).or_default().entry(seen).or_default();
            if times.last() != Some(&at.0) {
                times.push(at.0);
            }
            return Slot::Java { process: id, address: seen, at_ns: at.0 };
        }
        let pc = seen.lookup_pc();
        if self.jvms_without_agent.contains(&id) {
            return Slot::Known(unknown(UnknownReason::NoAgent, None, pc));
        }
        wanted.jit.entry(id).or_default().push(TimedAddress { pc, at });
        Slot::Jit { process: id, pc }
    }

    /// Looks up a method that a JVM's interpreter ran.
    fn interpreted(
        &mut self,
        id: ProcessId,
        at: MonoNs,
        method: InterpretedFrame,
        wanted: &mut WorkerBatch,
    ) -> TimedResult<Slot> {
        if method.method == 0 || !self.jvms.reads_memory(id) {
            return TimedResult { result: Slot::Known(interpreter()), times: ValidTimes::ALL };
        }
        if let Some(known) = self.jvms.known_method(id, method, at) {
            return known.map(Slot::Known);
        }
        let first = wanted.interpreted.entry(id).or_default().entry(method).or_insert(at.0);
        *first = at.0.min(*first);
        TimedResult { result: Slot::Interpreted { process: id, frame: method }, times: ValidTimes::NONE }
    }

    /// Names the interpreted methods in these stacks ahead of symbolization. Stacks may wait until their JVM has
    /// reported its compiled code, and methods can be gone by then.
    pub fn prefetch_interpreted<'a>(&mut self, stacks: impl Iterator<Item = &'a Stack>) {
        let mut wanted = WorkerBatch::default();
        for stack in stacks {
            for word in &stack.user {
                if let UserWord::Interpreted { method, bcp } = *word {
                    self.interpreted(
                        stack.key.process,
                        stack.at,
                        InterpretedFrame { method, bcp },
                        &mut wanted,
                    );
                }
            }
        }
        self.ask_interpreted(wanted.interpreted, &mut BatchAnswer::default());
    }

    fn ask_interpreted(&mut self, wanted: WantedMethods, found: &mut BatchAnswer) {
        for (id, wanted) in wanted {
            let wanted: Vec<(InterpretedFrame, u64)> = wanted.into_iter().collect();
            let frames = self.jvms.methods(id, &wanted);
            found.interpreted.extend(wanted.iter().map(|&(at, _)| (id, at)).zip(frames));
        }
    }

    fn ask_workers(&mut self, wanted: WorkerBatch, spaces: &mut impl AddressSpaces) -> BatchAnswer {
        let mut found = BatchAnswer::default();
        let lost = self.jvms.lost;
        for (id, mut wanted) in wanted.native {
            wanted.offsets.sort_unstable();
            wanted.offsets.dedup();
            let frames = self.files.frames(&mut self.child, spaces, id, &wanted);
            for (frames, offset) in frames.into_iter().zip(wanted.offsets) {
                if is_lasting(&frames) {
                    self.native.insert((id, offset), Arc::clone(&frames));
                }
                found.native.insert((id, offset), frames);
            }
            // Several large files in one batch must not add up.
            self.evict();
        }
        for (id, mut seen) in wanted.jit {
            // Keep the first time at which each address was seen.
            seen.sort_unstable();
            seen.dedup_by_key(|address| address.pc);
            let frames = self.jit.frames(&mut self.child, spaces, id, &seen);
            found.jit.extend(seen.iter().map(|address| (id, address.pc)).zip(frames));
        }
        for (id, wanted) in wanted.java {
            let mut wanted: Vec<(LookupAddress, Vec<u64>)> = wanted.into_iter().collect();
            // Sorted by address, because a method's debug records are read from its beginning on.
            wanted.sort_unstable_by_key(|(seen, _)| (seen.pc, seen.leaf));
            for ((seen, times), frames) in wanted.iter().zip(self.jvms.frames(id, &wanted)) {
                found.java.extend(times.iter().map(|&at| (id, *seen, at)).zip(frames));
            }
        }
        self.ask_interpreted(wanted.interpreted, &mut found);
        if self.jvms.lost > lost {
            // The next worker does not check the code behind a lost worker's answers, so do not cache them.
            found.java.values_mut().for_each(|java| java.lasting = false);
        }
        found
    }

    /// The frames of a stack. `last` is the stack that was unfolded before.
    fn assemble(
        &mut self,
        stack: &Stack,
        lookup: StackLookup,
        last: &mut InlineExpansion,
        found: &BatchAnswer,
    ) -> NamedStack {
        self.count_java_leaf(stack, &lookup.steps, found);
        let StackLookup { steps, mut shared } = lookup;
        let mut cut = stack.stop_reason == StopReason::Depth;
        let mut own = Vec::with_capacity(steps.len());
        for (WordLookup { slot, astray, new_in }, word) in steps.into_iter().zip(&stack.user) {
            let frames = found.frames(&slot);
            if let (Some(space), WordQuery::Code(seen)) = (new_in, WordQuery::from(*word))
                && let Some(answer) = found.lasting(&slot, &frames)
            {
                self.known.insert(space, seen, stack.at, answer, self.jvms.changes(stack.key.process));
            }
            // A JVM's log may know of code before its mapping is known.
            let nowhere = |f: &&Arc<Frame>| {
                matches!(f.unknown, Some(UnknownReason::NotMapped | UnknownReason::NotLogged))
            };
            if let Some(nothing) = frames.iter().find(nowhere).filter(|_| astray) {
                own.push(unknown(UnknownReason::NotMapped, None, nothing.address));
                // The frames beyond it do not belong to this stack.
                (shared, cut) = (0, false);
                break;
            }
            own.push(frames);
        }
        let mut named = last.begin(shared, cut);
        last.extend(&mut named, &own);
        let kernel = self.kernel_frames(stack);
        let unknown = last.unknown().chain(kernel.iter().filter_map(|frame| frame.unknown));
        unknown.for_each(|why| *self.unknown.entry(why).or_default() += 1);
        named.frames.extend(kernel.into_iter().rev());
        named
    }

    /// Counts how much of the time in Java falls into code with coarse debug records.
    fn count_java_leaf(&mut self, stack: &Stack, steps: &[WordLookup], found: &BatchAnswer) {
        let java = match steps.first().map(|step| &step.slot) {
            Some(Slot::JavaKnown(java)) => java,
            Some(&Slot::Java { process, address, at_ns }) => match found.java.get(&(process, address, at_ns))
            {
                Some(java) => java,
                None => return,
            },
            _ => return,
        };
        let is_method = |f: &Arc<Frame>| matches!(f.kind, Kind::Java | Kind::JavaInlined);
        if stack.kernel.is_empty() && java.chain.last().is_some_and(is_method) {
            let leaves = self.java_leaves.entry(stack.key.process).or_default();
            leaves.all += 1;
            leaves.before_attach += u64::from(java.before_attach);
        }
    }

    /// Kernel frames, leaf first. If the kernel hides its symbols, one frame stands for all.
    fn kernel_frames(&mut self, stack: &Stack) -> Vec<Arc<Frame>> {
        let mut frames = Vec::with_capacity(stack.kernel.len());
        for address in stack.kernel_probes() {
            match self.kernel.frame(address, stack.at) {
                Ok(frame) => frames.push(frame),
                Err(UnknownReason::KernelHidden) => {
                    *self.unknown.entry(UnknownReason::KernelHidden).or_default() += 1;
                    return vec![Arc::new(Frame::named(Kind::Kernel, HIDDEN_KERNEL))];
                }
                Err(why) => frames.push(Arc::new(Frame::unknown(why, None, address))),
            }
        }
        frames
    }
}
