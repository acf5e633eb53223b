//! The chosen cgroups of a session: whether BPF and `/proc` agree about them, containers that begin and end, and how
//! much each cgroup was throttled.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::time::Instant;

use crate::capture::{CgroupMap, CgroupMember, Cgroups};
use crate::failure::Failure;
use crate::plan::allowance::{cpu_time, next_cgroup_read};
use crate::plan::{Settings, Target};
use crate::process::cgroup::CgroupMembership;
use crate::process::group::Group;
use crate::process::hierarchies::Hierarchies;
use crate::process::hierarchy::Hierarchy;
use crate::process::selection::{NoTarget, Selection};
use crate::process::throttling::CpuSnapshot;
use crate::profile::frame::clean;
use crate::profile::report::GroupReport;

/// Processes that are compared, besides those in chosen groups.
const MAX_COMPARED: usize = 64;
/// Longest path in the report, characters.
const MAX_PATH: usize = 300;

/// The error if BPF and `/proc` do not agree, so that the wrong processes would be sampled.
fn disagreement_error(hierarchy: Hierarchy, wrong: usize, compared: usize) -> Failure {
    Failure::host(format!(
        "BPF and /proc disagree about cgroups in {hierarchy}: {wrong} of {compared} processes differ; select the same \
         group in another hierarchy, or use -p"
    ))
}

/// A chosen cgroup, and the CPU counters from which its report counts.
struct Chosen {
    group: Group,
    cpu: CpuSnapshot,
}

pub(crate) struct Groups {
    hierarchies: Hierarchies,
    selection: Option<Selection>,
    /// Cgroups that existed at the start.
    first: Vec<Group>,
    chosen: Vec<Chosen>,
    /// Reports of cgroups that have ended.
    ended: Vec<GroupReport>,
    map: Option<CgroupMap>,
    next_cgroup_read: Instant,
}

impl Groups {
    /// # Errors
    /// When a cgroup, container or pod that was asked for does not exist.
    pub(crate) fn new(settings: &Settings) -> Result<Groups, NoTarget> {
        let hierarchies = Hierarchies::mounted();
        let selection =
            if let Target::Groups(selection) = &settings.target { Some(selection.clone()) } else { None };
        let found = selection.as_ref().map(|selection| selection.groups(&hierarchies)).transpose()?;
        let first = found.unwrap_or_default();
        let (chosen, ended, map) = (Vec::new(), Vec::new(), None);
        let mut groups =
            Groups { hierarchies, selection, first, chosen, ended, map, next_cgroup_read: Instant::now() };
        groups.first.clone().into_iter().for_each(|group| groups.add(group));
        Ok(groups)
    }

    /// The cgroups that the capture is to sample; `None` if no cgroups are chosen.
    pub(crate) fn cgroups(&self) -> Option<Cgroups> {
        let selection = self.selection.as_ref()?;
        let levels: Option<Vec<u32>> = self.chosen.iter().map(|chosen| chosen.group.level).collect();
        let levels = levels.filter(|_| !selection.is_by_name()).unwrap_or_default();
        Some(Cgroups { chosen: self.chosen.iter().map(|chosen| chosen.group.id).collect(), levels })
    }

    /// The processes in the chosen cgroups now.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.chosen.iter().flat_map(|chosen| chosen.group.processes()).collect()
    }

    /// The hierarchy that distinguishes containers.
    pub(crate) fn naming(&self) -> Hierarchy {
        self.hierarchies.naming()
    }

    /// Compares what BPF sees of processes with what `/proc` says. From then on the BPF program's filter follows
    /// changes.
    ///
    /// # Errors
    /// When they differ for more than half of a hierarchy's compared processes.
    pub(crate) fn begin(&mut self, map: CgroupMap, members: &[CgroupMember]) -> Result<(), Failure> {
        self.map = Some(map);
        self.compare(members)
    }

    fn compare(&self, members: &[CgroupMember]) -> Result<(), Failure> {
        let inside: HashSet<u32> = self.chosen.iter().flat_map(|chosen| chosen.group.processes()).collect();
        let (mine, others): (Vec<&CgroupMember>, Vec<&CgroupMember>) =
            members.iter().partition(|member| member.wanted || inside.contains(&member.tgid));
        let mut hierarchies: Vec<Hierarchy> = members.iter().map(|member| member.group.hierarchy).collect();
        hierarchies.sort_unstable();
        hierarchies.dedup();
        for hierarchy in hierarchies {
            let of = |m: &&&CgroupMember| m.group.hierarchy == hierarchy;
            let compared = mine.iter().filter(of).chain(others.iter().filter(of).take(MAX_COMPARED));
            let same: Vec<bool> = compared.filter_map(|member| self.agrees(member)).collect();
            let wrong = same.iter().filter(|same| !**same).count();
            // A process may have moved, or executed another program, between the two readings.
            if wrong * 2 > same.len() {
                return Err(disagreement_error(hierarchy, wrong, same.len()));
            }
        }
        Ok(())
    }

    /// Whether a process is where BPF sees it; `None` if it has gone, or `/proc` does not show where it is.
    fn agrees(&self, member: &CgroupMember) -> Option<bool> {
        let of = CgroupMembership::of(member.tgid).ok()?;
        let dir = self.hierarchies.dir(member.group.hierarchy, &of)?;
        let same = std::fs::metadata(dir).ok()?.ino() == member.group.id;
        let mut own = self.chosen.iter().filter(|c| c.group.id.hierarchy == member.group.hierarchy);
        Some(same && own.any(|chosen| chosen.group.holds(&of)) == member.wanted)
    }

    /// Whether a process is in a chosen cgroup, according to `/proc`.
    pub(crate) fn contain(&self, tgid: u32) -> bool {
        CgroupMembership::of(tgid).is_ok_and(|of| self.chosen.iter().any(|chosen| chosen.group.holds(&of)))
    }

    /// Follows containers that begin, and cgroups that were removed and made again.
    pub(crate) fn follow(&mut self) {
        let Some(selection) = &self.selection else { return };
        let now = Instant::now();
        if now < self.next_cgroup_read {
            return;
        }
        let began = cpu_time();
        let groups = selection.groups_again(&self.hierarchies, &self.first);
        let (stay, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.chosen)
            .into_iter()
            .partition(|chosen| groups.iter().any(|group| group.id == chosen.group.id));
        self.chosen = stay;
        for chosen in gone {
            log::info!("cgroups: {} is gone", chosen.group.dir.display());
            self.map.iter().for_each(|map| map.forget(chosen.group.id));
            self.ended.push(self.report_of(&chosen));
        }
        for group in groups {
            if !self.chosen.iter().any(|chosen| chosen.group.id == group.id) {
                self.add(group);
            }
        }
        self.next_cgroup_read = next_cgroup_read(now, began);
    }

    /// Excludes from the report what throttled the chosen cgroups until now.
    pub(crate) fn measure_from_now(&mut self) {
        for Chosen { group, cpu } in &mut self.chosen {
            *cpu = self.hierarchies.snapshot_of(group);
        }
    }

    /// A report for each chosen cgroup, ended ones included.
    pub(crate) fn report(&self) -> Vec<GroupReport> {
        self.ended.iter().cloned().chain(self.chosen.iter().map(|chosen| self.report_of(chosen))).collect()
    }

    fn add(&mut self, group: Group) {
        log::info!("cgroups: {} ({}) is chosen", group.dir.display(), group.id.hierarchy);
        let chosen = self.map.as_ref().map_or(Ok(()), |map| map.choose(group.id));
        if let Err(error) = chosen {
            log::warn!("cgroups: {}: {error:#}", group.dir.display());
            return;
        }
        let cpu = self.hierarchies.snapshot_of(&group);
        self.chosen.push(Chosen { group, cpu });
    }

    fn report_of(&self, Chosen { group, cpu }: &Chosen) -> GroupReport {
        let spent = self.hierarchies.snapshot_of(group).since(cpu);
        GroupReport {
            path: clean(group.path.as_os_str().as_encoded_bytes(), MAX_PATH),
            hierarchy: group.id.hierarchy.to_string(),
            limit_cpus: spent.limit_cpus,
            periods: spent.periods,
            throttled_periods: spent.throttled_periods,
            throttled_usec: spent.throttled_usec(),
            pressure_usec: spent.pressure_usec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::group::GroupId;

    #[test]
    fn what_bpf_sees_elsewhere_is_refused() {
        let hierarchies = Hierarchies::mounted();
        let hierarchy = hierarchies.naming();
        let own = std::process::id();
        let Some(group) = hierarchies.group_of(hierarchy, own) else {
            println!("SKIP: the cgroup of this test is not to be seen from here");
            return;
        };
        let (chosen, first, ended, map) = (Vec::new(), Vec::new(), Vec::new(), None);
        let next_cgroup_read = Instant::now();
        let mut groups = Groups { hierarchies, selection: None, first, chosen, ended, map, next_cgroup_read };
        groups.add(group.clone());
        let member = |id, wanted| CgroupMember { tgid: own, group: GroupId { hierarchy, id }, wanted };
        assert_eq!(groups.compare(&[member(group.id.id, true)]), Ok(()));
        let elsewhere = groups.compare(&[member(group.id.id + 1, true)]).unwrap_err();
        assert!(elsewhere.to_string().contains("1 of 1 processes"), "{elsewhere}");
        assert!(groups.compare(&[member(group.id.id, false)]).is_err(), "the filter leaves it out");
        assert_eq!(groups.compare(&[]), Ok(()));
    }
}
