//! A file system for one test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A tmpfs, unmounted on drop.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a tmpfs over a directory, with options for `mount`.
    #[track_caller]
    pub(crate) fn at(place: &Path, options: &str) -> Mounted {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(place).status();
        assert!(mount.unwrap().success(), "{}", place.display());
        Mounted(place.to_owned())
    }

    /// Tries to unmount; `false` if a file there is open.
    pub(crate) fn unmount(&self) -> bool {
        Command::new("umount").arg(&self.0).output().unwrap().status.success()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}
