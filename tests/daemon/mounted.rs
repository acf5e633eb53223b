//! A file system of a test's own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Memory with files in it; gone when it is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts it over a directory, with `mount`'s options.
    #[track_caller]
    pub(crate) fn at(place: &Path, options: &str) -> Mounted {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(place).status();
        assert!(mount.unwrap().success(), "{}", place.display());
        Mounted(place.to_owned())
    }

    /// Whether it could be unmounted: nobody has anything open there.
    pub(crate) fn unmount(&self) -> bool {
        Command::new("umount").arg(&self.0).output().unwrap().status.success()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}
