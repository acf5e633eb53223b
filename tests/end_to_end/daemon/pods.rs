//! Pods as their node sees them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use testkit::cgroup::Group;

/// The directory of the log directories of all pods.
const ALL_LOGS: &str = "/var/log/pods";

/// The tests that have pods now.
struct LogUsers {
    pods: u32,
    /// Whether there was no directory before them.
    made: bool,
}

static USERS: Mutex<LogUsers> = Mutex::new(LogUsers { pods: 0, made: false });

/// The log directory of a pod, which the kubelet keeps while the pod runs.
struct Logs(PathBuf);

impl Logs {
    fn make(name: &str) -> Logs {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        if users.pods == 0 {
            users.made = !Path::new(ALL_LOGS).exists();
        }
        users.pods += 1;
        let logs = Path::new(ALL_LOGS).join(name);
        fs::create_dir_all(&logs).unwrap();
        Logs(logs)
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = fs::remove_dir(&self.0);
        users.pods -= 1;
        if users.pods == 0 && users.made {
            let _ = fs::remove_dir(ALL_LOGS);
        }
    }
}

/// A pod: its cgroup, and its log directory on the node.
pub(crate) struct Pod {
    pub(crate) group: Group,
    _logs: Logs,
}

impl Pod {
    /// `name` has the form `NAMESPACE_NAME`.
    pub(crate) fn make(pods: &Group, name: &str, uid: &str) -> Pod {
        let logs = Logs::make(&format!("{name}_{uid}"));
        Pod { group: Group::make(pods.path(), &format!("pod{uid}")), _logs: logs }
    }
}

/// A uid that no other pod has.
pub(crate) fn new_uid() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}-0000-1111-2222-{number:012x}", std::process::id())
}
