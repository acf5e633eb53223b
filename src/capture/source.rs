//! What every source of an event can do, whatever the kernel has for it.

use crate::sample::Event;

/// What a source itself has counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Whole periods: the samples that there should have been.
    pub periods: u64,
}

/// Whether a program may still run when its source has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// None runs any more, and what the last one wrote is seen.
    Wholly,
    /// One that had begun may be on its way: a grace period waits for it.
    ButForRuns,
}

/// Where samples of one event come from. Made with its BPF program loaded; nothing is sampled before `start`.
pub trait EventSource {
    /// Of what.
    fn event(&self) -> Event;

    /// What a sample stands for, in the event's unit.
    fn period(&self) -> u64;

    /// Begins.
    ///
    /// # Errors
    /// What the kernel says.
    fn start(&self) -> anyhow::Result<()>;

    /// Ends.
    ///
    /// # Errors
    /// What the kernel says.
    fn stop(&self) -> anyhow::Result<Stopped>;

    /// Follows CPUs that came or went: `online` are there now.
    fn follow_hotplug(&mut self, online: &[u32]);

    /// Samples at another period from now on.
    ///
    /// # Errors
    /// When no CPU can be sampled so: what the kernel says. Nothing is sampled any more then.
    fn set_period(&mut self, period: u64) -> anyhow::Result<()>;

    /// CPUs that are sampled now.
    fn cpus(&self) -> Vec<u32>;

    /// What the source has counted.
    ///
    /// # Errors
    /// What the kernel says.
    fn elapsed(&self) -> anyhow::Result<Elapsed>;
}
