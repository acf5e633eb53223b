//! The agent's reactions to the JVM's calls: load, attach, events.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use jvm_symbols_log::encode::{self, LoadHead, code_flag};
use jvm_symbols_log::header::{HeaderFields, LogKind, event};
use jvm_symbols_log::{Out, PcEncoder, RecordType};

use crate::allocations::{Allocations, SampledObject};
use crate::capabilities::Capabilities;
use crate::debug::Source;
use crate::handles::JvmHandles;
use crate::jvmti::{AllocationCallbacks, Callbacks, Env, Event, Jni, Vm};
use crate::method;
use crate::options::Options;
use crate::scratch::{Pool, Scratch};
use crate::slot::{Entered, LogSlot};
use crate::sys;

/// The log of `-agentpath`, and those of late attaches that can exist at the same time.
const LOGS: usize = 5;
/// The index of the log of `-agentpath`.
const START: usize = 0;
/// Events of a replay between two updates of the log's counters.
const PUBLISH_EVERY: u64 = 64;
/// Longest name of a stub, bytes.
const MAX_STUB_NAME: usize = 256;

/// All state. The JVM may send events until its process ends, so that the state is never torn down.
#[derive(Debug)]
pub struct Agent {
    jvm: JvmHandles,
    /// When the load event was first enabled, ns.
    enabled_at: AtomicU64,
    /// Bits of [`event`] that are enabled.
    events: AtomicU32,
    sequence: AtomicU64,
    /// The thread that replays (0: none), and the index of the log that receives the replay.
    replay_thread: AtomicU32,
    replay_log: AtomicUsize,
    logs: [LogSlot; LOGS],
    pool: Pool,
    /// The samples of allocations.
    pub allocations: Allocations,
}

/// Time and order of an event, and whether it comes from a replay.
#[derive(Clone, Copy, Debug)]
struct EventStamp {
    time: u64,
    sequence: u64,
    /// The index of the log that receives the replay.
    replay: Option<usize>,
}

impl EventStamp {
    fn flags(&self) -> u8 {
        if self.replay.is_some() { code_flag::REPLAYED } else { 0 }
    }
}

/// The logs that receive an event.
type Targets<'a> = [Option<Entered<'a>>; LOGS];

impl Agent {
    /// An agent that no JVM has called yet.
    #[must_use]
    pub const fn new() -> Agent {
        Agent {
            jvm: JvmHandles::new(),
            enabled_at: AtomicU64::new(0),
            events: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            replay_thread: AtomicU32::new(0),
            replay_log: AtomicUsize::new(0),
            logs: [const { LogSlot::new() }; LOGS],
            pool: Pool::new(),
            allocations: Allocations::new(),
        }
    }

    /// `Agent_OnLoad`: logs from the start of the JVM, for any reader.
    pub fn on_load(&self, vm: Option<Vm>, options: &Options<'_>, callbacks: &Callbacks) {
        if let Some(env) = vm.and_then(|vm| self.environment(vm, callbacks))
            && self.make_log(LogKind::Start, options).is_some()
        {
            self.enable(env, options);
        }
    }

    /// `Agent_OnAttach`: creates a log for the profiler that attaches, replays all existing code into the log, and samples
    /// allocations if the profiler asks for that.
    pub fn on_attach(
        &self,
        vm: Option<Vm>,
        options: &Options<'_>,
        callbacks: &Callbacks,
        allocations: &AllocationCallbacks,
    ) {
        if let Some(vm) = vm
            && let Some(env) = self.environment(vm, callbacks)
            && let Some(place) = self.make_log(LogKind::Attach, options)
        {
            self.stop_allocations_without_log(place);
            self.enable(env, options);
            self.replay(env, place, options);
            let sampling = (options.alloc, options.klass);
            if options.alloc > 0 && self.allocations.start(vm, place, sampling, allocations) {
                self.publish_events();
            }
        }
    }

    /// Disables samples of allocations whose log has ended. `new` is the index of a log that was just made: an earlier log
    /// there has ended.
    fn stop_allocations_without_log(&self, new: usize) {
        if let Some(place) = self.allocations.log()
            && (place == new || !self.has_lease(place))
        {
            self.allocations.stop();
        }
    }

    fn has_lease(&self, place: usize) -> bool {
        self.logs.get(place).is_some_and(|log| log.enter(sys::monotonic()).is_some())
    }

    /// The environment, created at the first call: first capabilities, then callbacks.
    fn environment(&self, vm: Vm, callbacks: &Callbacks) -> Option<Env> {
        if let Some(env) = self.jvm.env() {
            return Some(env);
        }
        let env = vm.jvmti()?;
        if !env.add_capabilities(Capabilities::Code) || !env.set_callbacks(callbacks) {
            return None;
        }
        self.jvm.set(vm, env);
        Some(env)
    }

    /// Creates a log at a free index, after ending those whose lease is over.
    fn make_log(&self, kind: LogKind, options: &Options<'_>) -> Option<usize> {
        let now = sys::monotonic();
        for log in &self.logs {
            drop(log.enter(now));
        }
        let _ = self.enabled_at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let fields = HeaderFields {
            kind,
            pid: sys::pid(),
            started: now,
            nonce: options.nonce,
            cap: options.cap,
            enabled: self.enabled_at.load(Ordering::Relaxed),
            lease_until: now.saturating_add(options.lease),
            path: options.path,
        };
        let for_start = kind == LogKind::Start;
        let mut places = self.logs.iter().enumerate().filter(|(place, _)| (*place == START) == for_start);
        places.find(|(_, log)| log.create(&fields)).map(|(place, _)| place)
    }

    /// Enables the events until the JVM ends: code that is compiled without any lease then has all debug records, too.
    fn enable(&self, env: Env, options: &Options<'_>) {
        for (bit, which, wanted) in [
            (event::UNLOAD, Event::Unload, true),
            (event::LOAD, Event::Load, true),
            (event::STUB, Event::Stub, options.stubs),
        ] {
            if wanted && env.enable(which) {
                self.events.fetch_or(bit, Ordering::Relaxed);
            }
        }
        self.publish_events();
    }

    /// Writes to each log which events are enabled.
    fn publish_events(&self) {
        let events = self.events.load(Ordering::Relaxed);
        let sampled = self.allocations.log();
        for (place, log) in self.targets(sys::monotonic(), None).iter().enumerate() {
            if let Some(log) = log {
                let own = if sampled == Some(place) { event::ALLOCATION } else { 0 };
                log.set_events(events | own);
            }
        }
    }

    /// Makes the JVM report all code that exists already, into one log only.
    fn replay(&self, env: Env, place: usize, options: &Options<'_>) {
        let now = sys::monotonic();
        for log in self.targets(now, Some(place)).iter().flatten() {
            log.replay_begins(now);
        }
        self.replay_log.store(place, Ordering::Relaxed);
        self.replay_thread.store(sys::tid(), Ordering::Release);
        // Stubs first: a method that has the address of a former stub must come later in the log.
        let stubs = !options.stubs || env.generate(Event::Stub);
        let loads = env.generate(Event::Load);
        self.replay_thread.store(0, Ordering::Release);
        let now = sys::monotonic();
        for log in self.targets(now, Some(place)).iter().flatten() {
            log.replay_ends(now, self.next_sequence(), stubs && loads);
        }
    }

    /// Enters the logs that receive an event.
    fn targets(&self, now: u64, replay: Option<usize>) -> Targets<'_> {
        let mut targets = [const { None }; LOGS];
        for (place, (target, log)) in targets.iter_mut().zip(&self.logs).enumerate() {
            if replay.is_none_or(|only| only == place) {
                *target = log.enter(now);
            }
        }
        targets
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    fn moment(&self) -> EventStamp {
        let thread = self.replay_thread.load(Ordering::Acquire);
        let replaying = thread != 0 && thread == sys::tid();
        EventStamp {
            time: sys::monotonic(),
            sequence: self.next_sequence(),
            replay: replaying.then(|| self.replay_log.load(Ordering::Relaxed)),
        }
    }

    /// `CompiledMethodLoad`: writes the code and its debug records to each log that has a lease.
    pub fn on_compiled(&self, source: &Source<'_>) {
        let moment = self.moment();
        let targets = self.targets(moment.time, moment.replay);
        if targets.iter().flatten().next().is_none() {
            return;
        }
        let (Some(mut lent), Some(env)) = (self.pool.borrow(), self.jvm.env()) else {
            targets.iter().flatten().for_each(Entered::drop_event);
            return;
        };
        let scratch = lent.get();
        let mut debug = Out::new(&mut scratch.debug);
        let encoder = PcEncoder::new(&mut debug, &mut scratch.nodes);
        let flags = moment.flags() | source.encode(&mut scratch.methods, encoder);
        let used = debug.len();
        let head = LoadHead {
            flags,
            time: moment.time,
            sequence: moment.sequence,
            start: source.start as u64,
            size: source.size,
        };
        let jni = self.jvm.vm().and_then(Vm::jni);
        for log in targets.iter().flatten() {
            load(log, (env, jni), &head, used, scratch);
            Self::publish(log, &moment);
        }
        lent.trim(used);
    }

    /// `CompiledMethodUnload`. Its class may be unloaded already, so that only the address is used and not the
    /// jmethodID.
    pub fn on_unload(&self, start: usize) {
        let mut body = [0; 40];
        let moment = self.moment();
        let mut out = Out::new(&mut body);
        encode::unload(&mut out, moment.time, moment.sequence, start as u64);
        self.write(RecordType::Unload, &out, &moment);
    }

    /// `DynamicCodeGenerated`: writes a stub record. Names longer than 256 bytes are cut.
    pub fn on_stub(&self, name: &[u8], start: usize, size: u32) {
        let mut body = [0; MAX_STUB_NAME + 64];
        let moment = self.moment();
        let mut out = Out::new(&mut body);
        let head = LoadHead {
            flags: moment.flags(),
            time: moment.time,
            sequence: moment.sequence,
            start: start as u64,
            size,
        };
        encode::stub(&mut out, &head, name.get(..MAX_STUB_NAME).unwrap_or(name));
        self.write(RecordType::Stub, &out, &moment);
    }

    /// `SampledObjectAlloc`: what the object stands for; `None` if no profiler wants to know.
    pub fn on_allocation(&self, size: u64) -> Option<SampledObject> {
        let place = self.allocations.log()?;
        if !self.has_lease(place) {
            self.allocations.stop();
            return None;
        }
        Some(self.allocations.sampled(size))
    }

    fn write(&self, kind: RecordType, out: &Out<'_>, moment: &EventStamp) {
        for log in self.targets(moment.time, moment.replay).iter().flatten() {
            let _ = log.append(kind, out.written(), &[]);
            Self::publish(log, moment);
        }
    }

    fn publish(log: &Entered<'_>, moment: &EventStamp) {
        if moment.replay.is_none() || moment.sequence.is_multiple_of(PUBLISH_EVERY) {
            log.publish();
        }
    }
}

impl Default for Agent {
    fn default() -> Agent {
        Agent::new()
    }
}

/// Writes a load record, after records of its methods that are not in the log yet.
fn load(
    log: &Entered<'_>,
    (env, jni): (Env, Option<Jni>),
    head: &LoadHead,
    used: usize,
    scratch: &mut Scratch,
) {
    let Scratch { methods, head: buffer, names, debug, .. } = scratch;
    let mut out = Out::new(buffer);
    head.write(&mut out);
    out.varint(methods.ids().len() as u64);
    for &id in methods.ids() {
        let offset = method::logged(env, jni, log, id, names);
        out.varint(offset / jvm_symbols_log::record::ALIGN);
    }
    if out.overflowed() {
        log.drop_event();
    } else {
        let _ = log.append(RecordType::Load, out.written(), debug.get(..used).unwrap_or_default());
    }
}
