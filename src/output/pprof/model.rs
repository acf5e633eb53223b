//! What writer and reader of the format agree on.

use crate::profile::Kind;
use crate::sample::Event;

/// What one value of a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// How many samples of the event.
    Samples,
    /// What they stand for.
    Value,
}

impl Column {
    /// Type and unit in the file: of time on a CPU `samples/count` and `cpu/nanoseconds`, as Go's profiler has them.
    pub(super) fn name(self, event: Event) -> (String, &'static str) {
        match (self, event) {
            (Column::Samples, Event::Cpu) => ("samples".to_owned(), "count"),
            (Column::Samples, _) => (format!("{} samples", event.name()), "count"),
            (Column::Value, _) => (event.name().to_owned(), event.unit().name()),
        }
    }
}

/// How what is gzipped begins.
pub(super) const GZIP: &[u8] = &[0x1f, 0x8b];

pub(in crate::output) const LABEL_PID: &str = "process.pid";
pub(in crate::output) const LABEL_PROCESS: &str = "process.executable.name";
pub(in crate::output) const LABEL_THREAD: &str = "thread.name";
pub(super) const LABEL_TID: &str = "thread.id";
pub(super) const LABEL_CGROUP: &str = "process.linux.cgroup.id";
pub(super) const LABEL_CONTAINER_ID: &str = "container.id";
pub(super) const LABEL_CONTAINER_NAME: &str = "container.name";
pub(super) const LABEL_CONTAINER: &str = "k8s.container.name";
pub(super) const LABEL_POD: &str = "k8s.pod.name";
pub(super) const LABEL_POD_UID: &str = "k8s.pod.uid";
pub(super) const LABEL_NAMESPACE: &str = "k8s.namespace.name";

/// What the accounts' comments begin with; `name=number` follows.
pub(super) const COMMENT: &str = "jbpf-prof.";

/// Kinds and how they are written as a function's `system_name`.
pub(super) const KINDS: [(Kind, &str); 13] = [
    (Kind::Process, "process"),
    (Kind::Thread, "thread"),
    (Kind::Kernel, "kernel"),
    (Kind::Cpp, "c++"),
    (Kind::Native, "native"),
    (Kind::NativeInlined, "native inlined"),
    (Kind::Java, "java"),
    (Kind::JavaInlined, "java inlined"),
    (Kind::JavaInterpreted, "java interpreted"),
    (Kind::JvmStub, "jvm stub"),
    (Kind::Jit, "jit"),
    (Kind::Marker, "marker"),
    (Kind::Unknown, "unknown"),
];

/// The `system_name` of functions of a kind.
#[must_use]
pub fn kind_label(kind: Kind) -> &'static str {
    KINDS.iter().find(|(k, _)| *k == kind).map_or("", |(_, label)| label)
}

/// Whether a frame of kind `inner` is part of the same location as one of kind `outer` that called it.
pub(super) fn inlined_into(inner: Kind, outer: Kind) -> bool {
    match inner {
        Kind::JavaInlined => matches!(outer, Kind::Java | Kind::JavaInlined),
        Kind::NativeInlined => matches!(outer, Kind::Native | Kind::Cpp | Kind::Kernel | Kind::NativeInlined),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{KINDS, kind_label};

    #[test]
    fn every_kind_has_a_label_of_its_own() {
        let labels: HashSet<_> = KINDS.iter().map(|&(kind, _)| kind_label(kind)).collect();
        assert_eq!(labels.len(), KINDS.len());
        assert!(!labels.contains(""));
    }
}
