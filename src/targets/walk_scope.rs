//! The processes whose user stacks may be unwound.

use super::groups::Groups;
use super::processes::processes_of;
use crate::plan::{Settings, Target};
use crate::process::Processes;

/// Which processes' user stacks may be unwound.
#[derive(Clone, Debug)]
pub(crate) enum WalkScope {
    /// No user frames are wanted.
    None,
    All,
    /// Those in chosen cgroups.
    Groups,
    These(Vec<u32>),
    /// These processes and their descendants.
    Families(Vec<u32>),
}

impl WalkScope {
    /// `launched` is the process that was started to be profiled.
    pub(crate) fn of(settings: &Settings, launched: Option<u32>) -> WalkScope {
        match &settings.target {
            _ if !settings.user => WalkScope::None,
            Target::All => WalkScope::All,
            Target::Groups(_) => WalkScope::Groups,
            Target::Pids(tgids) if settings.children => WalkScope::Families(tgids.clone()),
            Target::Pids(tgids) => WalkScope::These(tgids.clone()),
            Target::Launch(_) => WalkScope::Families(launched.into_iter().collect()),
            Target::Tids(tids) => WalkScope::These(processes_of(tids)),
        }
    }

    /// Whether user stacks of this process may be unwound.
    pub(crate) fn includes(&self, tgid: u32, processes: &Processes, groups: &Groups) -> bool {
        match self {
            WalkScope::None => false,
            WalkScope::All => true,
            WalkScope::Groups => groups.contain(tgid),
            WalkScope::These(tgids) => tgids.contains(&tgid),
            WalkScope::Families(roots) => processes.descends(tgid, roots),
        }
    }
}
