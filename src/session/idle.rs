//! Process 0 runs when nothing else does: is a stack of it idleness, or work that an interrupt does there?

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

/// Whether a stack of process 0 with this leaf is idleness.
#[must_use]
pub(super) fn is_wait(leaf: &str) -> bool {
    WAITS.iter().any(|wait| leaf.starts_with(wait))
}

#[cfg(test)]
mod tests {
    use super::is_wait;

    #[test]
    fn halting_is_idle_and_interrupts_are_not() {
        assert!(is_wait("default_idle") && is_wait("pv_native_safe_halt") && is_wait("intel_idle_irq"));
        assert!(!is_wait("net_rx_action") && !is_wait("__do_softirq") && !is_wait("schedule_idle"));
    }
}
