//! Which BPF programs the events of a run have: before the load, to load no others, and after the load.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::Context;
use libbpf_rs::skel::OpenSkel as _;
use libbpf_rs::{Link, Object, OpenProgramMut, ProgramMut};

use super::allocations::AllocationArguments;
use super::kernel_support::{AvailableSwitches, KernelSupport};
use super::numbers::EventNumbers;
use super::skeleton::{OpenProfilerSkel, ProfilerSkel};
use super::wait_source::SwitchHook;
use crate::sample::dynamic_event::EventOrigin;
use crate::sample::probe::Probe;
use crate::sample::{DynamicEvent, Event};

/// The beginnings of the names of programs with a slot.
const KINDS: [&str; 4] = ["on_counter", "on_tracepoint", "on_system_call", "on_function"];

/// Chooses the programs to load: those of these events.
pub(super) fn choose(
    open: &mut OpenProfilerSkel<'_>,
    events: &[Event],
    numbers: &EventNumbers,
    available: &KernelSupport,
) {
    for event in Event::FIXED {
        for program in before_load(open, event) {
            program.set_autoload(events.contains(&event));
        }
    }
    choose_by_kernel(open, events, available);
    let wanted: Vec<String> =
        (0..).zip(numbers.slots()).filter_map(|(slot, event)| slot_name(*event, slot)).collect();
    let slots: Vec<String> = KINDS
        .iter()
        .flat_map(|kind| (0..DynamicEvent::AT_ONCE).map(move |n| format!("{kind}_{n}")))
        .collect();
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if slots.contains(&name) {
            program.set_autoload(wanted.contains(&name));
        }
    }
}

/// The programs of an event before the load, but for those that not each kernel needs.
fn before_load<'o, 'm>(open: &'o mut OpenProfilerSkel<'m>, event: Event) -> Vec<&'o mut OpenProgramMut<'m>> {
    let programs = &mut open.progs;
    match event {
        Event::Cpu => vec![&mut programs.on_cpu],
        Event::PageFaults => vec![&mut programs.on_page_faults],
        Event::MinorFaults => vec![&mut programs.on_minor_faults],
        Event::MajorFaults => vec![&mut programs.on_major_faults],
        Event::ContextSwitches => vec![&mut programs.on_context_switches],
        Event::Wait => {
            vec![&mut programs.on_switch, &mut programs.on_waking, &mut programs.on_wakeup_new]
        }
        Event::Alloc => vec![
            &mut programs.on_alloc,
            &mut programs.on_alloc_tlab,
            &mut programs.on_alloc_without_object,
            &mut programs.on_alloc_tlab_without_object,
            &mut programs.on_alloc_sampled,
        ],
        Event::Rss => vec![&mut programs.note_residents],
        Event::NativeAlloc => vec![
            &mut programs.on_malloc,
            &mut programs.on_calloc,
            &mut programs.on_realloc,
            &mut programs.on_reallocarray,
            &mut programs.on_posix_memalign,
            &mut programs.on_memalign,
            &mut programs.on_valloc,
        ],
        Event::Dynamic(_) => Vec::new(),
    }
}

/// Chooses the programs that come in several kinds: those of waits and of resident memory.
fn choose_by_kernel(open: &mut OpenProfilerSkel<'_>, events: &[Event], available: &KernelSupport) {
    let programs = &mut open.progs;
    let KernelSupport { atomics, switches } = available;
    let (waits, rss) = (switches.is_some(), events.contains(&Event::Rss));
    let by_tracepoint = switches.as_ref().is_some_and(|switches| switches.hook == SwitchHook::SchedExit);
    programs.on_sched_exit.set_autoload(waits && by_tracepoint);
    programs.on_finish_switch.set_autoload(waits && !by_tracepoint && *atomics);
    programs.on_finish_switch_plain.set_autoload(waits && !by_tracepoint && !atomics);
    let throttled_queues = switches.as_ref().is_some_and(|switches| switches.throttled_queues);
    programs.on_wakeup.set_autoload(throttled_queues);
    programs.unfinished.set_autoload(waits && *atomics);
    programs.unfinished_plain.set_autoload(waits && !atomics);
    programs.on_rss.set_autoload(rss && *atomics);
    programs.on_rss_plain.set_autoload(rss && !atomics);
}

/// The programs of an event with a number of its own.
pub(super) fn of_fixed<'p>(
    skel: &'p ProfilerSkel<'_>,
    available: &'p KernelSupport,
    event: Event,
) -> Vec<BorrowedFd<'p>> {
    let programs = &skel.progs;
    match event {
        Event::Cpu => vec![programs.on_cpu.as_fd()],
        Event::PageFaults => vec![programs.on_page_faults.as_fd()],
        Event::MinorFaults => vec![programs.on_minor_faults.as_fd()],
        Event::MajorFaults => vec![programs.on_major_faults.as_fd()],
        Event::ContextSwitches => vec![programs.on_context_switches.as_fd()],
        Event::Wait => {
            let switches = available.switches.iter();
            let programs = switches.flat_map(|switches| of_waits(skel, switches, available.atomics));
            programs.map(|(_, program)| program.as_fd()).collect()
        }
        Event::Alloc | Event::NativeAlloc => {
            of_allocations(skel, event).into_iter().map(|(_, program)| program).collect()
        }
        Event::Rss if available.atomics => vec![programs.on_rss.as_fd()],
        Event::Rss => vec![programs.on_rss_plain.as_fd()],
        Event::Dynamic(_) => Vec::new(),
    }
}

/// The programs of waits with the names of their hooks. The last one runs after a switch.
fn of_waits<'p, 'm>(
    skel: &'p ProfilerSkel<'m>,
    switches: &'p AvailableSwitches,
    atomics: bool,
) -> Vec<(&'p str, &'p ProgramMut<'m>)> {
    let programs = &skel.progs;
    let at_end = match &switches.hook {
        SwitchHook::SchedExit => ("sched_exit_tp", &programs.on_sched_exit),
        SwitchHook::FinishSwitch(function) if atomics => (function.as_str(), &programs.on_finish_switch),
        SwitchHook::FinishSwitch(function) => (function.as_str(), &programs.on_finish_switch_plain),
    };
    let mut all = vec![
        ("sched_switch", &programs.on_switch),
        ("sched_waking", &programs.on_waking),
        ("sched_wakeup_new", &programs.on_wakeup_new),
    ];
    all.extend(switches.throttled_queues.then_some(("sched_wakeup", &programs.on_wakeup)));
    all.push(at_end);
    all
}

/// Attaches the programs of waits.
///
/// # Errors
/// When the kernel refuses to attach a program.
pub(super) fn attach_waits(skel: &ProfilerSkel<'_>, available: &KernelSupport) -> anyhow::Result<Vec<Link>> {
    let switches = available.switches.as_ref().context("waits are not sampled")?;
    let mut programs = of_waits(skel, switches, available.atomics);
    let at_end = programs.pop().map(|(hook, program)| match &switches.hook {
        SwitchHook::SchedExit => program.attach().context(hook.to_owned()),
        SwitchHook::FinishSwitch(function) => program.attach_kprobe(false, function).context(hook.to_owned()),
    });
    let begins = programs.into_iter().map(|(hook, program)| program.attach().context(hook.to_owned()));
    begins.chain(at_end).collect()
}

/// The programs of an event of allocations, by the arguments of the functions to which they are attached.
pub(super) fn of_allocations<'p>(
    skel: &'p ProfilerSkel<'_>,
    event: Event,
) -> Vec<(AllocationArguments, BorrowedFd<'p>)> {
    use AllocationArguments::*;
    let programs = &skel.progs;
    match event {
        Event::Alloc => vec![
            (ClassObjectBytes, programs.on_alloc.as_fd()),
            (ClassObjectTlabBytes, programs.on_alloc_tlab.as_fd()),
            (ClassBytes, programs.on_alloc_without_object.as_fd()),
            (ClassTlabBytes, programs.on_alloc_tlab_without_object.as_fd()),
            (SampledObject, programs.on_alloc_sampled.as_fd()),
        ],
        Event::NativeAlloc => vec![
            (Malloc, programs.on_malloc.as_fd()),
            (Calloc, programs.on_calloc.as_fd()),
            (Realloc, programs.on_realloc.as_fd()),
            (Reallocarray, programs.on_reallocarray.as_fd()),
            (PosixMemalign, programs.on_posix_memalign.as_fd()),
            (Memalign, programs.on_memalign.as_fd()),
            (Valloc, programs.on_valloc.as_fd()),
        ],
        _ => Vec::new(),
    }
}

/// The loaded program of an event in a slot.
pub(super) fn of_slot(object: &mut Object, event: Event, slot: usize) -> Option<ProgramMut<'_>> {
    let name = slot_name(event, slot)?;
    object.progs_mut().find(|program| program.name() == name.as_str())
}

/// The loaded programs of all slots, by slot.
pub(super) fn of_slots(object: &mut Object, numbers: &EventNumbers) -> anyhow::Result<Vec<OwnedFd>> {
    let program = |(slot, event): (usize, &Event)| {
        let program =
            of_slot(object, *event, slot).with_context(|| format!("no program for {}", event.name()))?;
        program.as_fd().try_clone_to_owned().context("the BPF program")
    };
    numbers.slots().iter().enumerate().map(program).collect()
}

/// The name of the program of an event in a slot; `None` if the event cannot be sampled, or there is no such slot.
fn slot_name(event: Event, slot: usize) -> Option<String> {
    let [counter, tracepoint, system_call, function] = KINDS;
    let kind = match event.origin()? {
        EventOrigin::Counter(_) => counter,
        EventOrigin::Probe(Probe::Tracepoint { .. }) => tracepoint,
        EventOrigin::Probe(Probe::SystemCall { .. }) => system_call,
        EventOrigin::Probe(Probe::Function { .. } | Probe::Marker { .. } | Probe::KernelFunction(_)) => {
            function
        }
        EventOrigin::File => return None,
    };
    (slot < DynamicEvent::AT_ONCE).then(|| format!("{kind}_{slot}"))
}
