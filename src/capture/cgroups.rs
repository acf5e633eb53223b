//! The filter of cgroups: which are chosen, and what it sees of the processes that there are.

use std::io::Read as _;

use anyhow::Context;
use libbpf_rs::{Iter, MapCore, MapFlags, MapHandle, ProgramMut};
use zerocopy::IntoBytes as _;

use super::abi::{self, Cgroup};
use crate::process::group::{GroupId, MAX_LEVEL};

/// Chosen cgroups.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// The groups; what lies below them is chosen with them.
    pub chosen: Vec<GroupId>,
    /// Their levels, as far as they are known; empty if groups at other levels may be chosen later.
    pub levels: Vec<u32>,
}

impl Cgroups {
    /// A bit for each hierarchy in which groups are chosen.
    pub(super) fn hierarchies(&self) -> u32 {
        self.chosen.iter().fold(0, |bits, group| bits | 1 << group.hierarchy.number())
    }

    /// A bit for each level at which chosen groups may lie.
    pub(super) fn levels(&self) -> u64 {
        if self.levels.is_empty() {
            return u64::MAX;
        }
        self.levels.iter().filter(|level| **level <= MAX_LEVEL).fold(0, |bits, level| bits | 1 << level)
    }
}

/// Chosen groups, as the running program reads them.
pub struct CgroupMap(MapHandle);

impl CgroupMap {
    pub(super) fn new(map: MapHandle) -> CgroupMap {
        CgroupMap(map)
    }

    /// Adds a group.
    ///
    /// # Errors
    /// When there are 4,096 already.
    pub fn choose(&self, group: GroupId) -> anyhow::Result<()> {
        self.0
            .update(Cgroup::of(group).as_bytes(), &[1], MapFlags::ANY)
            .context("at most 4,096 cgroups can be selected")
    }

    /// Removes a group that is gone.
    pub fn forget(&self, group: GroupId) {
        // It need not be there.
        let _ = self.0.delete(Cgroup::of(group).as_bytes());
    }
}

/// What the filter sees of a process in one hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The process, in the initial pid namespace.
    pub tgid: u32,
    /// Its group.
    pub group: GroupId,
    /// Whether that is a chosen one or lies below one.
    pub wanted: bool,
}

/// Runs the program that tells of each process what the filter sees.
pub(super) fn members(program: &ProgramMut<'_>) -> anyhow::Result<Vec<Member>> {
    let link = program.attach().context("attaching the iterator of tasks")?;
    let mut iterator = Iter::new(&link).context("the iterator of tasks")?;
    let mut bytes = Vec::new();
    iterator.read_to_end(&mut bytes).context("reading the iterator of tasks")?;
    Ok(abi::parse_members(&bytes).map(|(tgid, group, wanted)| Member { tgid, group, wanted }).collect())
}
