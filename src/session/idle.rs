//! Decides whether a stack shows idleness: of a CPU (or an interrupt on an idle one), or of a thread that waits for work.

use std::sync::Arc;

use crate::capture::IdleAddressMap;
use crate::profile::Frame;
use crate::sample::Stack;
use crate::waits::{IdleRules, WaitView, WaitingThread};

/// Ticks of one stack in one window from which its address is worth one of the few slots in the BPF program's map.
const OFTEN: u64 = 8;

/// Prefixes of functions in which a CPU waits for work: the halting instruction of each idle driver, and the loop
/// around it (kernel/sched/idle.c, drivers/cpuidle, arch/*/kernel/process.c; kernels 5.10 to 6.18).
const IDLE_FUNCTIONS: &[&str] = &[
    "acpi_idle_",
    "acpi_processor_ffh_cstate_enter",
    "acpi_safe_halt",
    "arch_cpu_idle",
    "cpu_do_idle",
    "cpu_idle_poll",
    "cpu_startup_entry",
    "cpuidle_",
    "call_cpuidle",
    "default_idle",
    "do_idle",
    "haltpoll_",
    "intel_idle",
    "mwait_idle",
    "native_safe_halt",
    "poll_idle",
    "psci_enter_idle",
    "psci_cpu_suspend_enter",
    "pv_native_safe_halt",
    "tick_nohz_idle_",
    "xen_safe_halt",
];

pub(super) struct IdleDetector {
    /// Idle stacks are in the profile (`--idle`).
    pub(super) shown: bool,
    idle_addresses: IdleAddressMap,
    /// Which waiting threads are idle.
    rules: IdleRules,
}

impl IdleDetector {
    pub(super) fn new(idle_addresses: IdleAddressMap, shown: bool, rules: IdleRules) -> IdleDetector {
        IdleDetector { shown, idle_addresses, rules }
    }

    /// How a stack of a wait is shown, whose frames are `frames`, root first.
    pub(super) fn wait(&self, stack: &Stack, frames: &[Arc<Frame>]) -> WaitView {
        // Each exec changes the number: a thread of the kernel never had one.
        let is_kernel = stack.key.process.exec == 0;
        let thread =
            WaitingThread { comm: &stack.comm, is_kernel, state: stack.key.state, lock: stack.lock.as_ref() };
        WaitView::of(frames, thread, &self.rules)
    }

    /// Whether the CPU was idle. If idle stacks are hidden and this one is frequent, sends its address to the BPF
    /// program, which from then on only counts ticks there. On a mostly idle machine these stacks would cost more than
    /// all others.
    pub(super) fn is_idle(&mut self, stack: &Stack, frames: &[Arc<Frame>], samples: u64) -> bool {
        if !stack.key.process.is_idle() || frames.last().is_some_and(|leaf| !is_idle_function(&leaf.name)) {
            return false;
        }
        if let Some(ip) = new_idle_address(self.shown, &stack.kernel, samples)
            && let Err(error) = self.idle_addresses.add(ip)
        {
            log::debug!("idle: {error:#}");
        }
        true
    }
}

/// The address of an idle stack's leaf, if such stacks are hidden and this one is frequent.
fn new_idle_address(shown: bool, kernel: &[u64], samples: u64) -> Option<u64> {
    if shown || samples < OFTEN { None } else { kernel.first().copied() }
}

/// Whether a stack of process 0 with this leaf is idle.
fn is_idle_function(leaf: &str) -> bool {
    IDLE_FUNCTIONS.iter().any(|wait| leaf.starts_with(wait))
}

#[cfg(test)]
mod tests {
    use super::{OFTEN, is_idle_function, new_idle_address};

    #[test]
    fn halting_is_idle_and_interrupts_are_not() {
        assert!(
            is_idle_function("default_idle")
                && is_idle_function("pv_native_safe_halt")
                && is_idle_function("intel_idle_irq")
        );
        assert!(
            !is_idle_function("net_rx_action")
                && !is_idle_function("__do_softirq")
                && !is_idle_function("schedule_idle")
        );
    }

    #[test]
    fn places_are_learned_where_idleness_is_hidden() {
        let kernel = [0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020];
        assert_eq!(new_idle_address(false, &kernel, OFTEN), Some(kernel[0]));
        assert_eq!(new_idle_address(false, &kernel, OFTEN - 1), None, "by chance");
        assert_eq!(new_idle_address(true, &kernel, OFTEN), None, "its stack is shown");
        assert_eq!(new_idle_address(false, &[], OFTEN), None);
    }
}
