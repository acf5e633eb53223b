//! The interface of event sources, independent of the kernel's mechanism.

use crate::sample::Event;

/// What a source has counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedSamples {
    /// Whole periods: the number of expected samples. 0 of a source whose programs count them.
    pub periods: u64,
    /// Samples that such a source knows to be missing.
    pub missed: u64,
}

/// Whether a program of a source may still run after the source stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopState {
    /// No program runs any more, and all their writes are visible.
    Quiescent,
    /// A program that had begun may still run; a grace period waits for it.
    RunsPending,
}

/// A source of samples of one event. Its BPF program is loaded before; sampling begins with `start`.
pub trait EventSource {
    /// The event that is sampled.
    fn event(&self) -> Event;

    /// What a sample stands for, in the event's unit.
    fn period(&self) -> u64;

    /// Starts sampling.
    ///
    /// # Errors
    /// When the kernel refuses to start one of the source's events.
    fn start(&self) -> anyhow::Result<()>;

    /// Stops sampling.
    ///
    /// # Errors
    /// When the kernel refuses to stop one of the source's events.
    fn stop(&self) -> anyhow::Result<StopState>;

    /// Takes the samples of what began and is not over, at the end of a profile. Events without a length have none.
    ///
    /// # Errors
    /// When the kernel's iterator cannot be read.
    fn sample_unfinished(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Follows CPUs that went online or offline: `online` are online now.
    fn follow_hotplug(&mut self, online: &[u32]);

    /// Samples at another period from now on.
    ///
    /// # Errors
    /// The kernel's error, when no CPU can be sampled at this period. Then nothing is sampled any more.
    fn set_period(&mut self, period: u64) -> anyhow::Result<()>;

    /// The CPUs that are sampled now.
    fn cpus(&self) -> Vec<u32>;

    /// What the source has counted since the start.
    ///
    /// # Errors
    /// When the count of one of the source's events cannot be read.
    fn elapsed(&self) -> anyhow::Result<ExpectedSamples>;
}
