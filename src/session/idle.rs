//! Process 0 runs when nothing else does: is a stack of it idleness, or work that an interrupt does there?

use std::sync::Arc;

use crate::capture::WaitMap;
use crate::profile::Frame;
use crate::sample::Stack;

/// Ticks of one stack in one window that make its place worth one of the few that the capture can know.
const OFTEN: u64 = 8;

/// Functions in which a CPU waits for work, by prefix: the halting instruction of each idle driver, and the loop
/// around it (kernel/sched/idle.c, drivers/cpuidle, arch/*/kernel/process.c; kernels 5.10 to 6.18).
const WAITS: &[&str] = &[
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

/// What becomes of idleness.
pub(super) struct Idle {
    /// It is shown.
    pub(super) shown: bool,
    waits: WaitMap,
}

impl Idle {
    pub(super) fn new(waits: WaitMap, shown: bool) -> Idle {
        Idle { shown, waits }
    }

    /// Whether nothing ran. Where that is hidden, and was so more than by chance, the capture learns the place: of the
    /// next ticks there it makes no stacks, which cost a sleepy machine more than all others.
    pub(super) fn is_idle(&mut self, stack: &Stack, frames: &[Arc<Frame>], ticks: u64) -> bool {
        if !stack.key.process.is_idle() || frames.last().is_some_and(|leaf| !is_wait(&leaf.name)) {
            return false;
        }
        if let Some(ip) = place_to_learn(self.shown, &stack.kernel, ticks)
            && let Err(error) = self.waits.add(ip)
        {
            log::debug!("idle: {error:#}");
        }
        true
    }
}

/// The address of an idle stack's leaf, where no such stack is wanted any more.
fn place_to_learn(shown: bool, kernel: &[u64], ticks: u64) -> Option<u64> {
    if shown || ticks < OFTEN { None } else { kernel.first().copied() }
}

/// Whether a stack of process 0 with this leaf is idleness.
fn is_wait(leaf: &str) -> bool {
    WAITS.iter().any(|wait| leaf.starts_with(wait))
}

#[cfg(test)]
mod tests {
    use super::{OFTEN, is_wait, place_to_learn};

    #[test]
    fn halting_is_idle_and_interrupts_are_not() {
        assert!(is_wait("default_idle") && is_wait("pv_native_safe_halt") && is_wait("intel_idle_irq"));
        assert!(!is_wait("net_rx_action") && !is_wait("__do_softirq") && !is_wait("schedule_idle"));
    }

    #[test]
    fn places_are_learned_where_idleness_is_hidden() {
        let kernel = [0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020];
        assert_eq!(place_to_learn(false, &kernel, OFTEN), Some(kernel[0]));
        assert_eq!(place_to_learn(false, &kernel, OFTEN - 1), None, "by chance");
        assert_eq!(place_to_learn(true, &kernel, OFTEN), None, "its stack is shown");
        assert_eq!(place_to_learn(false, &[], OFTEN), None);
    }
}
