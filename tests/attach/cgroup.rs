//! A cgroup with little memory, to start JVMs in.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A memory cgroup below the root one; removed at the end.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// With that limit, bytes; `None` where no hierarchy has the memory controller.
    pub(crate) fn make(limit: u64) -> Option<MemoryGroup> {
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/unified", "memory.max"),
        ];
        places.into_iter().find_map(|(mount, file)| {
            let group = MemoryGroup(Path::new(mount).join(format!("jbpf-attach-{}", std::process::id())));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join(file), limit.to_string()).ok().map(|()| group)
        })
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that was killed leaves its cgroup a moment later.
        let until = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.0).is_err_and(|e| e.kind() == std::io::ErrorKind::ResourceBusy)
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
