//! Why the allocations of a JVM are not sampled.

/// Files with programs at a time. Each takes two descriptors.
pub(super) const MAX_FILES: usize = 256;

/// Why the allocations of a JVM are not sampled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum NoAllocations {
    #[error(
        "it has no symbols of the functions AllocTracer::send_allocation_*: install a JDK whose libjvm.so is not \
         stripped"
    )]
    Stripped,
    #[error("its symbols cannot be read: {0}")]
    Unreadable(String),
    #[error("a program serves its file system, and the kernel places no uprobe in the profiler's copy")]
    Served,
    #[error("the file cannot be opened: {0}")]
    Unopened(String),
    #[error("its file system did not answer in time")]
    TooSlow,
    #[error("the kernel refused a uprobe: {0}")]
    Refused(String),
    #[error("{MAX_FILES} other files of HotSpot are probed already")]
    TooMany,
}

/// Process ids of JVMs in a sentence: `JVM 7`, `JVMs 7, 8`.
pub(super) fn jvms<'a>(tgids: impl IntoIterator<Item = &'a u32>) -> String {
    let tgids: Vec<String> = tgids.into_iter().map(u32::to_string).collect();
    format!("JVM{} {}", if tgids.len() == 1 { "" } else { "s" }, tgids.join(", "))
}
