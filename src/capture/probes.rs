//! The source of a probe: a BPF program at a tracepoint or a function, which the kernel runs at each occurrence.

use std::cell::Cell;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context;
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use zerocopy::IntoBytes as _;

use super::abi::ProbeControl;
use super::online::{Online, among};
use super::source::{Elapsed, EventSource, Stopped};
use super::stats;
use crate::sample::Event;

/// A program that is attached to the places of a probe. It does nothing until the source starts.
pub(super) struct AttachedProbe {
    pub(super) program: OwnedFd,
    pub(super) _links: Vec<Link>,
    /// The map of probes by slot.
    pub(super) control: MapHandle,
    pub(super) slot: usize,
    /// The number of the system call, if the probe takes one.
    pub(super) call: u32,
}

/// The program of a probe.
pub struct Probes {
    event: Event,
    attached: AttachedProbe,
    period: u64,
    /// Occurrences that the kernel counted and at which it did not run the program: before the start, and before the
    /// last change of the period.
    past: Cell<u64>,
    /// Samples that were missed before the last change of the period.
    missed: u64,
    /// Only occurrences on these CPUs; `None`: on all.
    chosen: Option<Vec<u32>>,
    cpus: Vec<u32>,
}

impl Probes {
    pub(super) fn new(
        event: Event,
        attached: AttachedProbe,
        period: u64,
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<Probes> {
        let cpus = Online::open()?.chosen(chosen.as_deref())?;
        Ok(Probes { event, attached, period, past: Cell::new(0), missed: 0, chosen, cpus })
    }

    fn publish(&self, period: u64) -> anyhow::Result<()> {
        let AttachedProbe { control, slot, call, .. } = &self.attached;
        let slot = u32::try_from(*slot).context("a slot")?;
        control
            .update(&slot.to_ne_bytes(), ProbeControl::new(period, *call).as_bytes(), MapFlags::ANY)
            .context("map of probes")
    }

    fn skipped(&self) -> anyhow::Result<u64> {
        stats::skipped(self.attached.program.as_fd()).context("statistics of the BPF program")
    }
}

impl EventSource for Probes {
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

    fn stop(&self) -> anyhow::Result<Stopped> {
        self.publish(0)?;
        Ok(Stopped::ButForRuns)
    }

    fn follow_hotplug(&mut self, online: &[u32]) {
        self.cpus = among(online, self.chosen.as_deref());
    }

    fn set_period(&mut self, period: u64) -> anyhow::Result<()> {
        self.missed = self.elapsed()?.missed;
        self.past.set(self.skipped()?);
        self.period = period;
        self.publish(period)
    }

    fn cpus(&self) -> Vec<u32> {
        self.cpus.clone()
    }

    fn elapsed(&self) -> anyhow::Result<Elapsed> {
        let skipped = self.skipped()?.saturating_sub(self.past.get());
        Ok(Elapsed { periods: 0, missed: self.missed + skipped / self.period })
    }
}
