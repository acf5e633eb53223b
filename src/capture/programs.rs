//! Which BPF programs the events of a run have: before the load, to load no others, and after the load.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::Context;
use libbpf_rs::skel::OpenSkel as _;
use libbpf_rs::{Object, OpenProgramMut, ProgramMut};

use super::numbers::EventNumbers;
use super::skeleton::{OpenProfilerSkel, ProfilerSkel};
use super::switches::{SwitchHook, WaitPrograms};
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
    waits: Option<&WaitPrograms>,
) {
    for event in Event::FIXED {
        for program in before_load(open, event) {
            program.set_autoload(events.contains(&event));
        }
    }
    choose_wait_programs(open, waits);
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

/// The programs of an event before the load, but for those that run after a context switch.
fn before_load<'o, 'm>(open: &'o mut OpenProfilerSkel<'m>, event: Event) -> Vec<&'o mut OpenProgramMut<'m>> {
    let programs = &mut open.progs;
    match event {
        Event::Cpu => vec![&mut programs.on_cpu],
        Event::PageFaults => vec![&mut programs.on_page_faults],
        Event::MinorFaults => vec![&mut programs.on_minor_faults],
        Event::MajorFaults => vec![&mut programs.on_major_faults],
        Event::ContextSwitches => vec![&mut programs.on_context_switches],
        Event::Wait => {
            vec![
                &mut programs.on_switch,
                &mut programs.on_waking,
                &mut programs.on_wakeup,
                &mut programs.on_wakeup_new,
                &mut programs.on_exec,
            ]
        }
        Event::Dynamic(_) => Vec::new(),
    }
}

/// Chooses the programs of waits that this kernel can run; `None`: none.
fn choose_wait_programs(open: &mut OpenProfilerSkel<'_>, waits: Option<&WaitPrograms>) {
    let programs = &mut open.progs;
    let is = |wanted: fn(&WaitPrograms) -> bool| waits.is_some_and(wanted);
    programs.on_sched_exit.set_autoload(is(|waits| waits.hook == SwitchHook::SchedExit));
    programs.on_finish_switch.set_autoload(is(|waits| waits.hook != SwitchHook::SchedExit && waits.atomics));
    programs
        .on_finish_switch_plain
        .set_autoload(is(|waits| waits.hook != SwitchHook::SchedExit && !waits.atomics));
    programs.unfinished.set_autoload(is(|waits| waits.atomics));
    programs.unfinished_plain.set_autoload(is(|waits| !waits.atomics));
}

/// The programs of an event with a number of its own.
pub(super) fn of_fixed<'p>(
    skel: &'p ProfilerSkel<'_>,
    waits: Option<&WaitPrograms>,
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
            let at_end = match waits {
                Some(WaitPrograms { hook: SwitchHook::SchedExit, .. }) => &programs.on_sched_exit,
                Some(WaitPrograms { atomics: true, .. }) => &programs.on_finish_switch,
                _ => &programs.on_finish_switch_plain,
            };
            let begins = [
                &programs.on_switch,
                &programs.on_waking,
                &programs.on_wakeup,
                &programs.on_wakeup_new,
                &programs.on_exec,
            ];
            begins.into_iter().chain([at_end]).map(|program| program.as_fd()).collect()
        }
        Event::Dynamic(_) => Vec::new(),
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
