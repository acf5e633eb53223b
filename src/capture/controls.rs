//! What the loader writes to start, change and stop programs that are attached for the whole run: structures of `bpf/abi.h`.

use std::mem::size_of;

use anyhow::Context as _;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct jp_wait_control`: times in nanoseconds of `CLOCK_MONOTONIC`; 0 is not yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub(super) struct WaitControl {
    /// Length of a block of waiting time, which has one sample.
    pub(super) period: u64,
    /// Begin of sampling; before it the programs do nothing.
    pub(super) begin: u64,
    /// End of sampling; after it only the iterator takes samples.
    pub(super) end: u64,
    /// 1: the iterator only notes which threads wait, and in which state.
    pub(super) noting: u64,
}

/// `struct jp_event_control`: how an event is sampled whose programs are attached for the whole run.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub(super) struct EventControl {
    /// The occurrences or bytes for a sample; 0: none.
    pub(super) period: u64,
    /// The number of the system call, if a probe takes one; of `rss`, the bytes of a page.
    pub(super) number: u32,
    /// Of `rss`, 1: the programs only note which pages there are.
    pub(super) noting: u32,
}

const _: () = assert!(size_of::<EventControl>() == 16 && size_of::<WaitControl>() == 32);

/// The map of controls, at one event.
#[derive(Debug)]
pub(super) struct ControlMap {
    map: MapHandle,
    event: u32,
}

impl ControlMap {
    /// `event`: the event's number.
    pub(super) fn new(map: &MapMut<'_>, event: u32) -> anyhow::Result<ControlMap> {
        Ok(ControlMap { map: MapHandle::try_from(map).context("map of controls")?, event })
    }

    /// Changes how the event is sampled, from now on.
    pub(super) fn publish(&self, control: EventControl) -> anyhow::Result<()> {
        self.map
            .update(&self.event.to_ne_bytes(), control.as_bytes(), MapFlags::ANY)
            .context("control of an event")
    }
}
