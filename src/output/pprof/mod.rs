//! pprof: the interchange format, `profile.proto` of google/pprof, gzipped.
//!
//! What a reader finds: sample types `samples/count` and `cpu/nanoseconds`; a function's `system_name` is the kind of
//! frame ([`kind_label`]); inlined frames are further lines of one location, innermost first; labels are named as in
//! OpenTelemetry's conventions; the accounts are comments. Bytecode indices have no place in the format and are left out.

mod proto;
mod read;
mod write;

pub use read::read;
pub use write::write;

use super::format::{Format, Reading};
use crate::profile::Kind;

/// pprof.
pub static FORMAT: Format = Format {
    names: &["pb.gz", "pprof"],
    media_type: "application/octet-stream",
    write: |view, _, out| write(view, out),
    read: Reading::By { magic: GZIP, read: |input| read(input) },
};

/// How what is gzipped begins.
const GZIP: &[u8] = &[0x1f, 0x8b];

pub(super) const LABEL_PID: &str = "process.pid";
pub(super) const LABEL_PROCESS: &str = "process.executable.name";
pub(super) const LABEL_THREAD: &str = "thread.name";
const LABEL_TID: &str = "thread.id";
const LABEL_CGROUP: &str = "process.linux.cgroup.id";
const LABEL_CONTAINER_ID: &str = "container.id";
const LABEL_CONTAINER_NAME: &str = "container.name";
const LABEL_CONTAINER: &str = "k8s.container.name";
const LABEL_POD: &str = "k8s.pod.name";
const LABEL_POD_UID: &str = "k8s.pod.uid";
const LABEL_NAMESPACE: &str = "k8s.namespace.name";

/// What the accounts' comments begin with; `name=number` follows.
const COMMENT: &str = "jbpf-prof.";

/// Kinds and how they are written as a function's `system_name`.
const KINDS: [(Kind, &str); 13] = [
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
fn inlined_into(inner: Kind, outer: Kind) -> bool {
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
