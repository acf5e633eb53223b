//! Opens, configures, sizes and loads the BPF program and its maps.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, bail};
use libbpf_rs::skel::{OpenSkel, Skel as _, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use zerocopy::FromBytes;

use super::abi::{AllocationTotals, CountKey, CountValue, Counters, CpuSwitches, WaitTotals};
use super::allocations::{AllocationProbes, AllocationSource};
use super::cgroups::{CgroupMap, CgroupMember};
use super::contexts::{self, ContextMap};
use super::controls::ControlMap;
use super::denied_syscall::DeniedSyscall;
use super::filter::Filter;
use super::idle_addresses::IdleAddressMap;
use super::kernel_support::KernelSupport;
use super::library::log_messages;
use super::map::{create, typed};
use super::numbers::EventNumbers;
use super::probe_place::{FunctionPlace, ProbePlace};
use super::probes::{AttachedProbe, ProbeSource};
use super::programs;
use super::rss_source::RssSource;
use super::skeleton::{OpenProfilerSkel, ProfilerSkel, ProfilerSkelBuilder};
use super::unwind::UnwindMemory;
use super::wait_source::{self, WaitSource};
use crate::sample::Event;
use crate::sample::dynamic_event::EventOrigin;

/// Minimum and maximum entries of a count map.
const COUNT_ENTRIES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 20;
/// Minimum and maximum bytes of the ring of new stacks.
const RING_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;

/// `JP_NESTING`: how many programs can take a sample on one CPU at a time.
const NESTING: u32 = 4;

/// The events to load, and the highest rate of samples, which determines the sizes of maps.
#[derive(Clone, Debug)]
pub struct ExpectedLoad {
    /// The events that are sampled.
    pub events: Vec<Event>,
    /// Samples a second on one CPU, of all events.
    pub rate: u64,
    /// Number of CPUs that can be online.
    pub cpus: u64,
}

/// The loaded BPF program.
pub struct BpfProgram {
    skel: ProfilerSkel<'static>,
    counts: [MapHandle; 2],
    parity: u32,
    by_cgroup: bool,
    events: Vec<Event>,
    numbers: EventNumbers,
    /// The program of each event that has a slot.
    slots: Vec<OwnedFd>,
    available: KernelSupport,
}

impl BpfProgram {
    /// Loads the program for windows of one second.
    ///
    /// # Errors
    /// When bpf(2) is [`DeniedSyscall`], or the kernel has no BTF, rejects the program, or has no memory for the maps.
    pub fn load(filter: &Filter, load: &ExpectedLoad, btf: Option<&PathBuf>) -> anyhow::Result<BpfProgram> {
        check_bpf()?;
        // Leaked, because the skeleton borrows the storage and lives in the same struct. A process loads one program.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut builder = ProfilerSkelBuilder::default();
        if let Some(path) = btf {
            builder.obj_builder.btf_custom_path(path).context("--btf-path")?;
        }
        let mut open = builder.open(storage).context("the BPF object inside this binary")?;

        let waits = load.events.contains(&Event::Wait);
        // At the end of a profile each thread that waits may add a stack.
        let threads = if waits { wait_source::threads() } else { 0 };
        let samples = load.rate.saturating_mul(load.cpus).saturating_add(threads);
        let entries = u32::try_from((2 * samples).clamp(*COUNT_ENTRIES.start(), *COUNT_ENTRIES.end()))?;
        let ring = (samples * 1024).next_power_of_two().clamp(*RING_BYTES.start(), *RING_BYTES.end());
        open.maps.stacks.set_max_entries(u32::try_from(ring)?)?;
        let numbers = EventNumbers::of(&load.events);
        let has_cpus = size_by_events(&mut open, load)?;
        if filter.traces {
            open.maps.context_places.set_max_entries(contexts::PLACES)?;
        }

        let mut seed = [0u8; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).context("random seed")?;
        let config = &mut open.maps.rodata_data.as_mut().context("the BPF object has no rodata")?.config;
        config.seed = u64::from_ne_bytes(seed);
        config.ring_half = ring / 2;
        config.own_tgid = if filter.include_self { 0 } else { std::process::id() };
        config.naming = filter.naming.number();
        if let Some(cgroups) = &filter.cgroups {
            (config.cgroups, config.cgroup_levels) = (cgroups.hierarchies(), cgroups.levels());
        }
        open.progs.members.set_autoload(filter.cgroups.is_some());
        let available = KernelSupport::of(&load.events, btf)?;
        programs::choose(&mut open, &load.events, &numbers, &available);
        let config = &mut open.maps.rodata_data.as_mut().context("the BPF object has no rodata")?.config;
        config.switch_state = u8::from(available.switches.as_ref().is_some_and(|switches| switches.state));
        filter.configure(config);

        let mut skel = open.load().map_err(typed).context("loading the BPF program")?;
        let slots = programs::of_slots(skel.object_mut(), &numbers)?;
        let counts = [count_map(entries)?, count_map(entries)?];
        let program = BpfProgram {
            skel,
            counts,
            parity: 0,
            by_cgroup: filter.cgroups.is_some(),
            events: load.events.clone(),
            numbers,
            slots,
            available,
        };
        (0..2).try_for_each(|parity| program.publish(parity))?;
        for tgid in filter.tgids.iter().chain(&filter.launched) {
            program.want(*tgid)?;
        }
        let chosen = filter.cgroups.iter().flat_map(|cgroups| &cgroups.chosen);
        let map = program.cgroups()?;
        chosen.into_iter().try_for_each(|group| map.choose(*group))?;
        if has_cpus {
            filter.cpus.iter().flatten().try_for_each(|cpu| program.want_cpu(*cpu))?;
        }
        for tid in &filter.tids {
            program
                .skel
                .maps
                .wanted_tids
                .update(&tid.to_ne_bytes(), &[1], MapFlags::ANY)
                .with_context(|| format!("thread {tid}: at most 4,096 threads can be selected"))?;
        }
        Ok(program)
    }

    /// The program of an event that perf events run.
    #[must_use]
    pub fn fd(&self, event: Event) -> BorrowedFd<'_> {
        self.fds(event)[0]
    }

    /// All programs of an event that run while it is sampled.
    #[must_use]
    pub fn fds(&self, event: Event) -> Vec<BorrowedFd<'_>> {
        match self.numbers.slot(event) {
            Some(slot) => vec![self.slots[slot].as_fd()],
            None => programs::of_fixed(&self.skel, &self.available, event),
        }
    }

    /// Attaches the program of a probe, which begins with the source's start. `functions`: where a function or a marker
    /// of a file lies.
    ///
    /// # Errors
    /// A [`Failure`](crate::failure::Failure) of the host or the target if there is no such place.
    pub fn attach_probe(
        &mut self,
        event: Event,
        period: u64,
        functions: &[FunctionPlace],
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<ProbeSource> {
        let (Some(slot), Some(EventOrigin::Probe(probe))) = (self.numbers.slot(event), event.origin()) else {
            bail!("{} is not a probe", event.name());
        };
        let program =
            programs::of_slot(self.skel.object_mut(), event, slot).context("a program of a probe")?;
        log_messages();
        let place = ProbePlace::of(probe, functions)?;
        let attached = place.attach(&program)?;
        let control = self.control(event)?;
        let program = self.slots[slot].try_clone().context("a program of a probe")?;
        let probe = AttachedProbe { program, _links: attached, control, call: place.system_call() };
        ProbeSource::new(event, probe, period, chosen)
    }

    /// Attaches the programs of waits, which begin with the source's start.
    ///
    /// # Errors
    /// When the kernel refuses to attach a program or the iterator.
    pub fn attach_wait(&self, period: u64, chosen: Option<Vec<u32>>) -> anyhow::Result<WaitSource> {
        let programs = &self.skel.progs;
        let attached = programs::attach_waits(&self.skel, &self.available)?;
        let unfinished =
            if self.available.atomics { &programs.unfinished } else { &programs.unfinished_plain };
        let unfinished = unfinished.attach().context("the iterator of waits")?;
        let control = MapHandle::try_from(&self.skel.maps.wait_control).context("times of waits")?;
        WaitSource::new(control, attached, unfinished, period, chosen)
    }

    /// Attaches the programs of `rss`, which begin with the source's start.
    ///
    /// # Errors
    /// When the kernel refuses to attach the program or the iterator.
    pub fn attach_rss(&self, period: u64, chosen: Option<Vec<u32>>) -> anyhow::Result<RssSource> {
        RssSource::attach(&self.skel, self.control(Event::Rss)?, self.available.atomics, period, chosen)
    }

    /// The source of an event of allocations. Its programs are not attached to anything yet.
    ///
    /// # Errors
    /// When the kernel has no uprobes.
    pub fn allocations(
        &self,
        event: Event,
        interval: u64,
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<AllocationSource> {
        AllocationSource::new(self.allocation_probes(event)?, self.control(event)?, interval, chosen)
    }

    /// The programs of an event of allocations, to attach them.
    ///
    /// # Errors
    /// When the kernel has no uprobes.
    pub fn allocation_probes(&self, event: Event) -> anyhow::Result<AllocationProbes> {
        AllocationProbes::new(event, programs::of_allocations(&self.skel, event))
    }

    fn control(&self, event: Event) -> anyhow::Result<ControlMap> {
        let number = self.numbers.number(event).context("an event without number")?;
        ControlMap::new(&self.skel.maps.event_controls, number)
    }

    /// The events whose programs are loaded.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The numbers of the events in the program.
    #[must_use]
    pub fn numbers(&self) -> &EventNumbers {
        &self.numbers
    }

    /// The ring buffer of new stacks.
    #[must_use]
    pub fn ring(&self) -> &dyn MapCore {
        &self.skel.maps.stacks
    }

    /// The maps of unwind tables.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn unwind_memory(&self) -> anyhow::Result<UnwindMemory> {
        let handle = |map| MapHandle::try_from(map).context("maps of unwind tables");
        let maps = &self.skel.maps;
        Ok(UnwindMemory::new(handle(&maps.chunks)?, handle(&maps.spaces)?))
    }

    /// The map of trace contexts, which is empty at first.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn contexts(&self) -> anyhow::Result<ContextMap> {
        let map = MapHandle::try_from(&self.skel.maps.context_places).context("map of trace contexts")?;
        Ok(ContextMap::new(map))
    }

    /// The map of chosen cgroups, which can change while the program runs.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn cgroups(&self) -> anyhow::Result<CgroupMap> {
        let map = MapHandle::try_from(&self.skel.maps.chosen_cgroups).context("map of cgroups")?;
        Ok(CgroupMap::new(map))
    }

    /// The map of addresses of idle CPUs, which is empty at first.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn idle_addresses(&self) -> anyhow::Result<IdleAddressMap> {
        let map = MapHandle::try_from(&self.skel.maps.idle_addresses).context("map of idle addresses")?;
        Ok(IdleAddressMap::new(map))
    }

    /// The groups of all processes, as the cgroup filter sees them; empty without a cgroup filter.
    ///
    /// # Errors
    /// When the BPF iterator of tasks cannot be attached or read.
    pub fn members(&self) -> anyhow::Result<Vec<CgroupMember>> {
        if self.by_cgroup { super::cgroups::members(&self.skel.progs.members) } else { Ok(Vec::new()) }
    }

    /// Adds a process to the wanted ones.
    ///
    /// # Errors
    /// When 16,384 processes are wanted already.
    pub fn want(&self, tgid: u32) -> anyhow::Result<()> {
        let key = tgid.to_ne_bytes();
        self.skel
            .maps
            .wanted_tgids
            .update(&key, &[1], MapFlags::ANY)
            .with_context(|| format!("process {tgid}"))
    }

    /// Adds a CPU to those whose waits and probes are wanted.
    fn want_cpu(&self, cpu: u32) -> anyhow::Result<()> {
        let map = &self.skel.maps.wanted_cpus;
        map.update(&cpu.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY)
            .with_context(|| format!("CPU {cpu}"))
    }

    /// Removes a process or thread that has ended.
    pub fn forget(&self, id: u32) {
        // The maps may lack the id.
        let _ = self.skel.maps.wanted_tgids.delete(&id.to_ne_bytes());
        let _ = self.skel.maps.wanted_tids.delete(&id.to_ne_bytes());
    }

    /// Starts the next window. Returns the old window's parity.
    ///
    /// # Errors
    /// When bpf(2) cannot write the new parity.
    pub fn flip(&mut self) -> anyhow::Result<u32> {
        let old = self.parity;
        self.parity ^= 1;
        let zero = 0u32.to_ne_bytes();
        self.skel
            .maps
            .bss
            .update(&zero, &self.parity.to_ne_bytes(), MapFlags::ANY)
            .context("flipping the window")?;
        Ok(old)
    }

    /// Waits until all runs of the program have ended that began before now: a grace period, up to some tenths of a
    /// second.
    ///
    /// # Errors
    /// When bpf(2) cannot update the map of count maps.
    pub fn wait_for_runs(&self) -> anyhow::Result<()> {
        // An update of a map of maps returns only after all programs have ended that could have seen the old state
        // (kernel/bpf/syscall.c: maybe_wait_bpf_programs).
        self.publish(0)
    }

    /// Takes the counts of a window that has ended.
    ///
    /// # Errors
    /// When bpf(2) cannot take a batch from the count map: `EINVAL` before Linux 5.6.
    pub fn take_counts(&self, parity: u32) -> anyhow::Result<Vec<(CountKey, CountValue)>> {
        let map = &self.counts[(parity & 1) as usize];
        super::batch::take_all(map.as_fd(), map.max_entries() as usize).context("draining the counts")
    }

    /// Takes an event's counters of a window that has ended, summed over CPUs.
    ///
    /// # Errors
    /// When bpf(2) cannot read or reset the map of counters.
    pub fn take_counters(&self, parity: u32, event: Event) -> anyhow::Result<Counters> {
        let mut sum = Counters::default();
        let key = self.numbers.key(parity, event)?;
        take_per_cpu(&self.skel.maps.counters, key, "counters")?.iter().for_each(|one| sum.add(one));
        Ok(sum)
    }

    /// Takes the waiting time of a window that has ended, summed over CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn take_waited(&self, parity: u32) -> anyhow::Result<WaitTotals> {
        let mut sum = WaitTotals::default();
        take_per_cpu(&self.skel.maps.waited, parity, "waiting time")?.iter().for_each(|one| sum.add(one));
        Ok(sum)
    }

    /// Context switches of all CPUs while the programs of waits are attached.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub(super) fn switches(&self) -> anyhow::Result<u64> {
        let of_cpus: Vec<CpuSwitches> = read_per_cpu(&self.skel.maps.switches, 0, "switches")?;
        Ok(of_cpus.iter().map(|one| one.number).sum())
    }

    /// Takes what was allocated in a window that has ended, of an event of allocations, summed over CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn take_allocated(&self, parity: u32, event: Event) -> anyhow::Result<AllocationTotals> {
        let key = self.numbers.key(parity, event)?;
        let mut sum = AllocationTotals::default();
        take_per_cpu(&self.skel.maps.allocated, key, "allocated bytes")?.iter().for_each(|one| sum.add(one));
        Ok(sum)
    }

    /// Approximate bytes of kernel memory that the maps hold, which count against a pod's memory limit.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1) as u64;
        // A preallocated hash entry costs its key, value and about 64 bytes.
        let counts = self.counts.iter().map(|m| u64::from(m.max_entries()) * (48 + 16 + 64)).sum::<u64>();
        let scratch = &self.skel.maps.scratch;
        let scratch = cpus * u64::from(scratch.max_entries()) * u64::from(scratch.value_size());
        let waits = &self.skel.maps.thread_waits;
        let waits = u64::from(waits.max_entries()) * (u64::from(waits.value_size()) + 72);
        let residents = &self.skel.maps.residents;
        let residents = u64::from(residents.max_entries()) * (u64::from(residents.value_size()) + 72);
        let steps = u64::from(self.skel.maps.steps.max_entries() * self.skel.maps.steps.value_size());
        u64::from(self.skel.maps.stacks.max_entries())
            + counts
            + scratch
            + steps
            + waits
            + residents
            + (16_384 + 4_096 + 8_192) * 80
            + u64::from(self.skel.maps.context_places.max_entries()) * 120
    }

    /// The number of distinct stacks that the count map of a window can hold.
    #[must_use]
    pub fn room_for_stacks(&self) -> u32 {
        self.counts[0].max_entries()
    }

    fn publish(&self, parity: u32) -> anyhow::Result<()> {
        let fd = self.counts[(parity & 1) as usize].as_fd().as_raw_fd().to_ne_bytes();
        let counts = &self.skel.maps.counts;
        counts.update(&parity.to_ne_bytes(), &fd, MapFlags::ANY).context("publishing the count maps")
    }
}

/// Sets the sizes of maps that only some events need. Returns whether the program needs the map of wanted CPUs.
fn size_by_events(open: &mut OpenProfilerSkel<'_>, load: &ExpectedLoad) -> anyhow::Result<bool> {
    let [waits, rss] = [Event::Wait, Event::Rss].map(|event| load.events.contains(&event));
    let is_probe = |event: &Event| event.allocates() || matches!(event.origin(), Some(EventOrigin::Probe(_)));
    let probes = load.events.iter().any(is_probe);
    open.maps.scratch.set_max_entries(scratch_slots(probes || rss, waits))?;
    let native = load.events.contains(&Event::NativeAlloc);
    let maps = &mut open.maps;
    // Instead of a map that is not made, libbpf holds another descriptor.
    maps.outer_calls.set_autocreate(native)?;
    let by_thread =
        [(waits, &mut maps.thread_waits), (rss, &mut maps.residents), (native, &mut maps.outer_calls)];
    for (_, map) in by_thread.into_iter().filter(|(is_needed, _)| *is_needed) {
        map.set_max_entries(wait_source::room_for_threads())?;
    }
    let has_cpus = waits || probes || rss;
    if has_cpus {
        open.maps.wanted_cpus.set_max_entries(u32::try_from(load.cpus)?)?;
    }
    Ok(has_cpus)
}

/// How many programs can take a sample on one CPU at a time. The kernel does not run two programs of perf events on one
/// CPU at a time. Waits have a program at switches, which a tick can interrupt, and an iterator, which both can
/// interrupt. A probe can interrupt all of these.
fn scratch_slots(probes: bool, waits: bool) -> u32 {
    match (probes, waits) {
        (true, _) => NESTING,
        (false, true) => 3,
        (false, false) => 1,
    }
}

/// Reads the values of all CPUs.
fn read_per_cpu<T: FromBytes>(map: &impl MapCore, key: u32, what: &'static str) -> anyhow::Result<Vec<T>> {
    let per_cpu = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY).context(what)?.context(what)?;
    // The kernel rounds the size of a value up to words.
    let values = per_cpu.iter().map(|bytes| T::read_from_prefix(bytes).ok().map(|(value, _)| value));
    values.collect::<Option<Vec<T>>>().with_context(|| format!("{what} of another size"))
}

/// Takes the values of all CPUs out of a map: they are zero afterwards.
fn take_per_cpu<T: FromBytes>(map: &impl MapCore, key: u32, what: &'static str) -> anyhow::Result<Vec<T>> {
    let values = read_per_cpu(map, key, what)?;
    let zeros = vec![vec![0u8; size_of::<T>()]; values.len()];
    map.update_percpu(&key.to_ne_bytes(), &zeros, MapFlags::ANY).context(what)?;
    Ok(values)
}

/// Creates the smallest map: a host that denies this call denies all of bpf(2).
fn check_bpf() -> anyhow::Result<()> {
    create(MapType::Array, "jp_probe", size_of::<u32>(), size_of::<u32>(), 1)
        .map_err(|error| DeniedSyscall::of("bpf", error))
        .context("the first BPF map")?;
    Ok(())
}

fn count_map(entries: u32) -> anyhow::Result<MapHandle> {
    create(MapType::Hash, "jp_counts", size_of::<CountKey>(), size_of::<CountValue>(), entries)
        .with_context(|| format!("count map of {entries} entries"))
}
