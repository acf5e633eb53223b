//! Constants and names that the writer and the reader of pprof share.

use crate::profile::pauses::PauseTotals;
use crate::sample::Event;

/// The meaning of one value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueColumn {
    /// Number of samples of the event.
    Samples,
    /// The number of allocated objects that the samples stand for.
    Objects,
    /// The amount that the samples stand for.
    Value,
}

impl ValueColumn {
    /// The end of the type of [`Samples`](ValueColumn::Samples) of all events but `cpu`.
    pub(super) const OF_EVENT: &str = " samples";

    /// Type and unit in the file: for the `cpu` event `samples/count` and `cpu/nanoseconds`. `alloc` has
    /// `alloc_objects/count` and `alloc_space/bytes`, as Go's profiler, and `native-alloc` the same with `native_`.
    pub(super) fn name(self, event: Event) -> (String, &'static str) {
        match (self, event) {
            (ValueColumn::Samples, Event::Cpu) => ("samples".to_owned(), "count"),
            (ValueColumn::Samples, _) => (format!("{}{}", event.name(), Self::OF_EVENT), "count"),
            (ValueColumn::Objects, Event::NativeAlloc) => ("native_alloc_objects".to_owned(), "count"),
            (ValueColumn::Objects, _) => ("alloc_objects".to_owned(), "count"),
            (ValueColumn::Value, Event::Alloc) => ("alloc_space".to_owned(), "bytes"),
            (ValueColumn::Value, Event::NativeAlloc) => ("native_alloc_space".to_owned(), "bytes"),
            (ValueColumn::Value, _) => (event.name().to_owned(), event.unit().name()),
        }
    }
}

/// Magic bytes of gzip.
pub(super) const GZIP: &[u8] = &[0x1f, 0x8b];

pub(in crate::output) const LABEL_PID: &str = "process.pid";
pub(in crate::output) const LABEL_PROCESS: &str = "process.executable.name";
pub(in crate::output) const LABEL_THREAD: &str = "thread.name";
pub(super) const LABEL_TID: &str = "thread.id";
/// Label of samples of `wait`: `ThreadState::name`.
pub(in crate::output) const LABEL_STATE: &str = "thread.state";
pub(super) const LABEL_TRACE: &str = "trace_id";
pub(super) const LABEL_SPAN: &str = "span_id";
pub(super) const LABEL_CGROUP: &str = "process.linux.cgroup.id";
pub(super) const LABEL_CONTAINER_ID: &str = "container.id";
pub(super) const LABEL_CONTAINER_NAME: &str = "container.name";
pub(super) const LABEL_CONTAINER: &str = "k8s.container.name";
pub(super) const LABEL_POD: &str = "k8s.pod.name";
pub(super) const LABEL_POD_UID: &str = "k8s.pod.uid";
pub(super) const LABEL_NAMESPACE: &str = "k8s.namespace.name";

/// Prefix of the accounts' comments; `name=number` follows.
pub(super) const COMMENT: &str = "jbpf-prof.";
/// Behind [`COMMENT`], of the pauses of a JVM: `PID.NAME=number` follows, with the names of [`pause_numbers`].
pub(super) const PAUSES: &str = "pauses.";

/// The numbers of a JVM's pauses, with their names in comments.
pub(super) fn pause_numbers(totals: &mut PauseTotals) -> [(&'static str, &mut u64); 4] {
    let PauseTotals { safepoints, safepoint_usec, collections, collection_usec } = totals;
    [
        ("safepoints", safepoints),
        ("safepoint_usec", safepoint_usec),
        ("collections", collections),
        ("collection_usec", collection_usec),
    ]
}
