//! Labels: the process, thread and container of a sample.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use serde::{Deserialize, Serialize};

use super::resource::ResourceAttributes;
use crate::sample::{SpanContext, ThreadState};

/// The name of a container that ended before its labels were read.
const GONE: &str = "[gone]";

/// Properties of samples; samples with equal labels share a row. A profile replaces control characters in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Labels {
    /// Process id in the initial pid namespace; 0 if it is unknown or processes of one name are summed.
    pub pid: u32,
    /// The comm of the group leader.
    pub process: Arc<str>,
    /// The thread's name; empty unless threads are separate.
    pub thread: Arc<str>,
    /// Thread id in the initial pid namespace; 0 unless threads are separate.
    pub tid: u32,
    /// kernfs id of the cgroup in the hierarchy that identifies containers; 0 if unknown.
    pub cgroup: u64,
    /// The container; `None` outside of containers.
    pub container: Option<Arc<ContainerLabels>>,
    /// What the thread did: it runs in samples of all events but waiting time.
    pub state: ThreadState,
    /// The span that the thread worked for; `None` without one, and in profiles without trace contexts.
    pub span: Option<SpanContext>,
    /// What the process publishes about itself; `None` without it, and in profiles without trace contexts.
    pub resource: Option<Arc<ResourceAttributes>>,
}

/// A container, or only its pod; unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerLabels {
    /// Kubernetes namespace of the pod; empty outside of pods.
    pub namespace: Arc<str>,
    /// Name of the pod; empty outside of pods.
    pub pod: Arc<str>,
    /// The container's name in its pod.
    pub container: Arc<str>,
    /// The container's name outside of pods.
    pub name: Arc<str>,
    /// The container's id: 64 hexadecimal digits.
    pub id: Arc<str>,
    /// Kubernetes uid of the pod; empty outside of pods.
    pub pod_uid: Arc<str>,
}

impl ContainerLabels {
    /// A container that ended before its labels were read.
    #[must_use]
    pub fn gone() -> ContainerLabels {
        ContainerLabels { name: GONE.into(), ..ContainerLabels::default() }
    }

    /// Whether the container ended before its labels were read.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        &*self.name == GONE && self.id.is_empty()
    }

    pub(super) fn map(&self, mut text: impl FnMut(&Arc<str>) -> Arc<str>) -> ContainerLabels {
        let ContainerLabels { namespace, pod, container, name, id, pod_uid } = self;
        ContainerLabels {
            namespace: text(namespace),
            pod: text(pod),
            container: text(container),
            name: text(name),
            id: text(id),
            pod_uid: text(pod_uid),
        }
    }

    /// A title for display: `namespace/pod/container`, a name, or the first digits of the id.
    #[must_use]
    pub fn title(&self) -> String {
        let ContainerLabels { namespace, pod, container, name, .. } = self;
        match (pod.is_empty(), name.is_empty()) {
            (false, _) if container.is_empty() => format!("{namespace}/{pod}"),
            (false, _) => format!("{namespace}/{pod}/{container}"),
            (true, false) => name.to_string(),
            (true, true) => self.short_id().to_owned(),
        }
    }

    /// The first 12 digits of its id, or else of its pod's uid, as container tools show them.
    #[must_use]
    pub fn short_id(&self) -> &str {
        let id = if self.id.is_empty() { &self.pod_uid } else { &self.id };
        id.get(..12).unwrap_or(id)
    }
}

/// Number of labels in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelsId(pub(super) u32);

#[derive(Clone, Debug, Default)]
pub(super) struct LabelTable {
    list: Vec<Arc<Labels>>,
    ids: HashMap<Arc<Labels>, u32, RandomState>,
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &Labels> {
        self.list.iter().map(|labels| &**labels)
    }
}
