//! A cgroup with little memory in which JVMs start.

use std::fs;
use std::path::Path;

use testkit::cgroup::Group;

/// A group below the root, with this limit in bytes; `None` where no hierarchy has the memory controller.
pub(crate) fn with_memory(limit: u64) -> Option<Group> {
    let places = [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
        ("/sys/fs/cgroup/unified", "memory.max"),
    ];
    let (mount, file) = places.into_iter().find(|(mount, file)| {
        // The root of v2 has no limit file, but lists the controllers of its children.
        let children = fs::read_to_string(Path::new(mount).join("cgroup.subtree_control"));
        Path::new(mount).join(file).exists()
            || children.is_ok_and(|children| children.split_whitespace().any(|name| name == "memory"))
    })?;
    let group = Group::own(Path::new(mount), "attach");
    fs::write(group.path().join(file), limit.to_string()).unwrap();
    Some(group)
}
