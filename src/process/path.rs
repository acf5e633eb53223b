//! Paths as bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

/// The path with these bytes, which may have any value: a process chose them.
#[must_use]
pub fn bytes_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Whether a path as the kernel shows it lies outside our cgroup namespace.
pub(super) fn is_outside(shown: &Path) -> bool {
    shown.components().any(|part| part == Component::ParentDir)
}
