//! Labels: whose sample it is.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Whose samples: equal labels are one row. Names are fit to print once they are in a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Labels {
    /// Process id in the initial pid namespace; 0 if it is not known or processes of one name are summed.
    pub pid: u32,
    /// The comm of the group leader.
    pub process: Arc<str>,
    /// The thread's name; empty unless threads are told apart.
    pub thread: Arc<str>,
    /// Thread id in the initial pid namespace; 0 unless threads are told apart.
    pub tid: u32,
    /// kernfs id of the cgroup in the default hierarchy; 0 if it is not known.
    pub cgroup: u64,
}

/// Labels of a profile, told apart by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelsId(pub(super) u32);

/// Distinct labels, numbered.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelTable {
    list: Vec<Arc<Labels>>,
    ids: HashMap<Arc<Labels>, u32>,
}

impl LabelTable {
    pub(super) fn find(&self, labels: &Labels) -> Option<LabelsId> {
        self.ids.get(labels).copied().map(LabelsId)
    }

    pub(super) fn insert(&mut self, labels: Labels) -> LabelsId {
        if let Some(id) = self.find(&labels) {
            return id;
        }
        let id = self.list.len() as u32;
        let labels = Arc::new(labels);
        self.list.push(Arc::clone(&labels));
        self.ids.insert(labels, id);
        LabelsId(id)
    }

    pub(super) fn get(&self, id: LabelsId) -> &Labels {
        &self.list[id.0 as usize]
    }
}
