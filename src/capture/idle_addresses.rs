//! Kernel addresses at which idle CPUs wait for work. The BPF program only counts ticks there.

use anyhow::Context;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use zerocopy::IntoBytes as _;

use super::abi::IdleAddresses;

/// The map of these addresses, which the running program reads; usable from any thread.
#[derive(Debug)]
pub struct IdleAddressMap {
    map: MapHandle,
    known: IdleAddresses,
}

impl IdleAddressMap {
    pub(super) fn new(map: MapHandle) -> IdleAddressMap {
        IdleAddressMap { map, known: IdleAddresses::default() }
    }

    /// Adds an address at which process 0 only waits for work. Ignores the address if the map is full: ticks there
    /// still have stacks.
    ///
    /// # Errors
    /// When bpf(2) cannot update the map; a later call with the same address tries again.
    pub fn add(&mut self, ip: u64) -> anyhow::Result<()> {
        let mut known = self.known;
        if known.0.contains(&ip) {
            return Ok(());
        }
        let Some(free) = known.0.iter_mut().find(|known| **known == 0) else { return Ok(()) };
        *free = ip;
        let zero = 0u32.to_ne_bytes();
        self.map.update(&zero, known.as_bytes(), MapFlags::ANY).context("where CPUs wait for work")?;
        self.known = known;
        Ok(())
    }
}
