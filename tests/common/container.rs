//! A program in a container made by runc: another root file system, read-only but for /tmp, another user, its own pid,
//! mount, network and host-name namespaces.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::scratch;
use super::target::Target;

/// Any user that is nobody on the host.
pub(crate) const USER: u32 = 48_321;

/// Whether containers can be made here.
pub(crate) fn available() -> bool {
    Command::new("runc").arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Starts a command in a container and waits until it prints `ready`. `binds` are directories of the host and where
/// they are seen inside, read-only: below /tmp, since no mount point can be made elsewhere.
pub(crate) fn start(root: &Path, command: &[String], binds: &[(&Path, &str)]) -> Target {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("jbpf-prof-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let bundle = scratch(&id);
    std::fs::write(bundle.join("config.json"), config(root, command, binds).to_string()).unwrap();
    let pid_file = bundle.join("pid");
    Target::start_contained(
        Command::new("runc")
            .arg("--root")
            .arg(bundle.join("state"))
            .args(["run", "--bundle"])
            .arg(&bundle)
            .arg("--pid-file")
            .arg(&pid_file)
            .arg(&id),
        &pid_file,
    )
}

fn config(root: &Path, command: &[String], binds: &[(&Path, &str)]) -> serde_json::Value {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
        json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "nodev", "mode=1777", "size=65536k"]}),
    ];
    for (from, to) in binds {
        mounts.push(json!({"destination": to, "type": "bind", "source": from,
            "options": ["bind", "ro", "nosuid", "nodev"]}));
    }
    let namespaces: Vec<_> =
        ["pid", "ipc", "uts", "mount", "network"].iter().map(|kind| json!({ "type": kind })).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": USER, "gid": USER},
            "args": command,
            "env": ["PATH=/usr/bin:/bin", "HOME=/tmp"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": root, "readonly": true},
        "hostname": "contained",
        "mounts": mounts,
        "linux": {"namespaces": namespaces},
    })
}
