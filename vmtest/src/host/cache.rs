//! The cache of downloaded kernels and root file systems: `$JBPF_PROF_CACHE/vmtest`, by default in
//! `~/.cache/jbpf-prof`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};

#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// The cache of this user, created if it does not exist.
    pub(super) fn open() -> anyhow::Result<Cache> {
        let dir = match std::env::var_os("JBPF_PROF_CACHE") {
            Some(dir) => PathBuf::from(dir),
            None => std::env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(std::env::home_dir()?.join(".cache")))
                .context("neither JBPF_PROF_CACHE nor HOME says where kernels may be kept")?
                .join("jbpf-prof"),
        }
        .join("vmtest");
        fs::create_dir_all(&dir).with_context(|| format!("the cache {} cannot be made", dir.display()))?;
        Ok(Cache { dir })
    }

    /// The directory of this name, created by `make` if it does not exist. `make` fills a new directory, which gets the
    /// name when it is complete; other processes that need an entry wait meanwhile.
    pub(super) fn entry(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let whole = self.dir.join(name);
        if whole.exists() {
            return Ok(whole);
        }
        let lock = File::create(self.dir.join("lock")).context("the cache's lock")?;
        flock(&lock, FlockOperation::LockExclusive).context("the cache's lock")?;
        if whole.exists() {
            return Ok(whole);
        }
        let part = self.dir.join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| format!("the half-made {}", part.display()))?;
        }
        fs::create_dir_all(&part).with_context(|| format!("making {}", part.display()))?;
        make(&part)?;
        fs::rename(&part, &whole).with_context(|| format!("naming {}", whole.display()))?;
        Ok(whole)
    }
}
