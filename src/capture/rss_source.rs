//! The source of the growth of resident memory: a BPF program at the tracepoint `rss_stat`, and an iterator that notes
//! which memory there is at the start.

use std::io::Read as _;

use anyhow::Context;
use libbpf_rs::{Iter, Link};

use super::controls::{ControlMap, EventControl};
use super::online::SampledCpus;
use super::skeleton::ProfilerSkel;
use super::source::{EventSource, ExpectedSamples, StopState};
use crate::sample::Event;

/// The programs that sample growth.
pub struct RssSource {
    control: ControlMap,
    /// The attached program. It does nothing until `start`.
    _attached: Link,
    /// The iterator over the memory at the start.
    noting: Link,
    period: u64,
    cpus: SampledCpus,
}

impl RssSource {
    /// Attaches the programs. `atomics`: whether this kernel has the operations of the better one.
    ///
    /// # Errors
    /// When the kernel refuses to attach the program or the iterator.
    pub(super) fn attach(
        skel: &ProfilerSkel<'_>,
        control: ControlMap,
        atomics: bool,
        period: u64,
        chosen: Option<Vec<u32>>,
    ) -> anyhow::Result<RssSource> {
        let program = if atomics { &skel.progs.on_rss } else { &skel.progs.on_rss_plain };
        let attached = program.attach().context("the tracepoint rss_stat")?;
        let noting = skel.progs.note_residents.attach().context("the iterator of address spaces")?;
        let cpus = SampledCpus::open(chosen)?;
        Ok(RssSource { control, _attached: attached, noting, period, cpus })
    }

    fn publish(&self, period: u64, noting: bool) -> anyhow::Result<()> {
        let number = u32::try_from(rustix::param::page_size()).context("the size of a page")?;
        self.control.publish(EventControl { period, number, noting: u32::from(noting) })
    }
}

impl EventSource for RssSource {
    fn event(&self) -> Event {
        Event::Rss
    }

    fn period(&self) -> u64 {
        self.period
    }

    fn start(&self) -> anyhow::Result<()> {
        self.publish(self.period, true)?;
        let mut iterator = Iter::new(&self.noting).context("the iterator of address spaces")?;
        iterator.read_to_end(&mut Vec::new()).context("reading the iterator of address spaces")?;
        self.publish(self.period, false)
    }

    fn stop(&self) -> anyhow::Result<StopState> {
        self.publish(0, false)?;
        Ok(StopState::RunsPending)
    }

    fn follow_hotplug(&mut self, online: &[u32]) {
        self.cpus.follow(online);
    }

    fn set_period(&mut self, period: u64) -> anyhow::Result<()> {
        self.period = period;
        self.publish(period, false)
    }

    fn cpus(&self) -> Vec<u32> {
        self.cpus.now()
    }

    /// The sample of the next change has what changed while the kernel skipped the program: nothing is missing.
    fn elapsed(&self) -> anyhow::Result<ExpectedSamples> {
        Ok(ExpectedSamples::default())
    }
}
