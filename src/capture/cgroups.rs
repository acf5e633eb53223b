//! The cgroup filter: the chosen groups, and the groups that the filter sees for each process.

use std::io::Read as _;

use anyhow::Context;
use libbpf_rs::{Iter, MapCore, MapFlags, MapHandle, ProgramMut};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::abi::{Cgroup, MemberRecord};
use crate::process::group::{GroupId, MAX_LEVEL};
use crate::process::hierarchy::Hierarchy;

/// The cgroups to which a filter limits the samples.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// The groups; all groups below them are chosen too.
    pub chosen: Vec<GroupId>,
    /// The levels at which the filter compares groups; empty: all levels, because other groups may be chosen later.
    pub levels: Vec<u32>,
}

impl Cgroups {
    /// Bit mask of the hierarchies in which groups are chosen.
    pub(super) fn hierarchies(&self) -> u32 {
        self.chosen.iter().fold(0, |bits, group| bits | 1 << group.hierarchy.number())
    }

    /// Bit mask of the levels at which chosen groups may lie.
    pub(super) fn levels(&self) -> u64 {
        if self.levels.is_empty() {
            return u64::MAX;
        }
        self.levels.iter().filter(|level| **level <= MAX_LEVEL).fold(0, |bits, level| bits | 1 << level)
    }
}

/// The map of chosen groups, which the running program reads.
pub struct CgroupMap(MapHandle);

impl CgroupMap {
    pub(super) fn new(map: MapHandle) -> CgroupMap {
        CgroupMap(map)
    }

    /// Adds a group.
    ///
    /// # Errors
    /// When 4,096 groups are chosen already.
    pub fn choose(&self, group: GroupId) -> anyhow::Result<()> {
        self.0
            .update(Cgroup::of(group).as_bytes(), &[1], MapFlags::ANY)
            .context("at most 4,096 cgroups can be selected")
    }

    /// Removes a group that no longer exists.
    pub fn forget(&self, group: GroupId) {
        // The map may lack the group.
        let _ = self.0.delete(Cgroup::of(group).as_bytes());
    }
}

/// The group of a process in one hierarchy, as the filter sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupMember {
    /// The process, in the initial pid namespace.
    pub tgid: u32,
    /// The process's cgroup, and the hierarchy of that cgroup.
    pub group: GroupId,
    /// Whether the group is a chosen one or lies below one.
    pub wanted: bool,
}

/// Runs the iterator program, which lists the groups that the filter sees for each process.
pub(super) fn members(program: &ProgramMut<'_>) -> anyhow::Result<Vec<CgroupMember>> {
    let link = program.attach().context("attaching the iterator of tasks")?;
    let mut iterator = Iter::new(&link).context("the iterator of tasks")?;
    let mut bytes = Vec::new();
    iterator.read_to_end(&mut bytes).context("reading the iterator of tasks")?;
    Ok(parse_members(&bytes).collect())
}

/// Parses the output of the BPF program `members`: a process, its group, and whether the process is wanted. Skips
/// invalid records.
fn parse_members(bytes: &[u8]) -> impl Iterator<Item = CgroupMember> + '_ {
    bytes.chunks_exact(size_of::<MemberRecord>()).filter_map(|bytes| {
        let member = MemberRecord::read_from_bytes(bytes).ok()?;
        let hierarchy = Hierarchy::numbered(member.hierarchy)?;
        let group = GroupId { hierarchy, id: member.id };
        Some(CgroupMember { tgid: member.tgid, group, wanted: member.wanted != 0 })
    })
}
