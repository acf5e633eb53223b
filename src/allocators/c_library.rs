//! The C libraries of this host. A command that starts uses one of them from its first instruction on, before jbpf-prof can
//! look at it.

use std::fs::File;
use std::os::fd::OwnedFd;

/// Where distributions have glibc, and musl.
const PATHS: [&str; 7] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib/libc.so.6",
    "/lib/libc.so.6",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

/// The files that exist; several paths can lead to one file.
pub(super) fn files() -> impl Iterator<Item = OwnedFd> {
    PATHS.into_iter().filter_map(|path| File::open(path).ok()).map(OwnedFd::from)
}
