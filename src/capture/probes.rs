//! The source of a probe: a BPF program at a tracepoint or a function, which the kernel runs at each occurrence.

use std::cell::Cell;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context;
use libbpf_rs::Link;

use super::controls::{ControlMap, EventControl};
use super::online::SampledCpus;
use super::source::{EventSource, ExpectedSamples, StopState};
use super::stats;
use crate::sample::Event;

/// A program that is attached to the places of a probe. It does nothing until the source starts.
pub(super) struct AttachedProbe {
    pub(super) program: OwnedFd,
    pub(super) _links: Vec<Link>,
    pub(super) control: ControlMap,
    /// The number of the system call, if the probe takes one.
    pub(super) call: u32,
}

/// The program of a probe.
pub struct ProbeSource {
    event: Event,
    attached: AttachedProbe,
    period: u64,
    /// Occurrences that the kernel counted and at which it did not run the program: before the start, and before the
    /// last change of the period.
    past: Cell<u64>,
    /// Samples that were missed before the last change of the period.
    missed: u64,
    cpus: SampledCpus,
}

impl ProbeSource {
    pub(super) fn new(
        event: Event,
        attached: AttachedProbe,
        period: u64,
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<ProbeSource> {
        let cpus = SampledCpus::open(chosen)?;
        Ok(ProbeSource { event, attached, period, past: Cell::new(0), missed: 0, cpus })
    }

    fn publish(&self, period: u64) -> anyhow::Result<()> {
        let AttachedProbe { control, call, .. } = &self.attached;
        control.publish(EventControl { period, number: *call, noting: 0 })
    }

    fn skipped(&self) -> anyhow::Result<u64> {
        stats::skipped(self.attached.program.as_fd()).context("statistics of the BPF program")
    }
}

impl EventSource for ProbeSource {
    fn event(&self) -> Event {
        self.event
    }

    fn period(&self) -> u64 {
        self.period
    }

    fn start(&self) -> anyhow::Result<()> {
        self.past.set(self.skipped()?);
        self.publish(self.period)
    }

    fn stop(&self) -> anyhow::Result<StopState> {
        self.publish(0)?;
        Ok(StopState::RunsPending)
    }

    fn follow_hotplug(&mut self, online: &[u32]) {
        self.cpus.follow(online);
    }

    fn set_period(&mut self, period: u64) -> anyhow::Result<()> {
        self.missed = self.elapsed()?.missed;
        self.past.set(self.skipped()?);
        self.period = period;
        self.publish(period)
    }

    fn cpus(&self) -> Vec<u32> {
        self.cpus.now()
    }

    fn elapsed(&self) -> anyhow::Result<ExpectedSamples> {
        let skipped = self.skipped()?.saturating_sub(self.past.get());
        Ok(ExpectedSamples { periods: 0, missed: self.missed + skipped / self.period })
    }
}
