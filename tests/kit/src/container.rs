//! A program in a container made by runc, or by Podman with runc below it: its own root file system, read-only except
//! for /tmp, another user, and its own PID, mount, network and host-name namespaces.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::scratch;
use crate::target::Target;

/// A uid that belongs to no user of the host.
pub const USER: u32 = 48_321;

/// Whether containers can be made here.
pub fn available() -> bool {
    Command::new("runc").arg("--version").output().is_ok_and(|o| o.status.success())
}

/// Starts a command in a container and waits until it prints `ready`. `binds` are directories of the host and their
/// read-only places inside: below /tmp, since mount points cannot be made elsewhere.
pub fn start(root: &Path, command: &[String], binds: &[(&Path, &str)]) -> Target {
    start_named(&new_name(), &config(root, command, binds))
}

/// A name that no other container has.
pub fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("jbpf-prof-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The same in a user namespace: root inside is [`USER`] outside.
pub fn in_user_namespace(mut config: serde_json::Value) -> serde_json::Value {
    let ids = json!([{"containerID": 0, "hostID": USER, "size": 1}]);
    config["linux"]["uidMappings"] = ids.clone();
    config["linux"]["gidMappings"] = ids;
    config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({"type": "user"}));
    config["process"]["user"] = json!({"uid": 0, "gid": 0});
    config
}

/// The file in which runc keeps the state of a container that [`start_named`] has started.
pub fn state_file(id: &str) -> PathBuf {
    scratch(id).join("state").join(id).join("state.json")
}

/// A directory for a container's files, without those of a container that an earlier run with this pid has left.
fn bundle_of(id: &str) -> PathBuf {
    let _ = std::fs::remove_dir_all(scratch(id));
    scratch(id)
}

/// Starts a container with this name and configuration, and waits until it prints `ready`.
pub fn start_named(id: &str, config: &serde_json::Value) -> Target {
    let mut config = config.clone();
    let bundle = bundle_of(id);
    let mut runc = Command::new("runc");
    if config["linux"]["uidMappings"].is_array() {
        runc = at_mnt(config["root"]["path"].as_str().unwrap(), "runc");
        config["root"]["path"] = json!("/mnt");
    }
    std::fs::write(bundle.join("config.json"), config.to_string()).unwrap();
    let pid_file = bundle.join("pid");
    runc.arg("--root").arg(bundle.join("state")).args(["run", "--bundle"]).arg(&bundle);
    runc.arg("--pid-file").arg(&pid_file).arg(id);
    Target::start_contained(&mut runc, &pid_file)
}

/// A command that sees a root file system at `/mnt`: root in a user namespace must be able to reach the file system,
/// which may be in a private directory.
fn at_mnt(root: &str, program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /mnt && exec \"$@\"", root, program]);
    command
}

/// The same by Podman: in a user namespace, read-only except for /tmp and /run. `more` goes to `podman run`.
pub fn start_by_podman(
    name: &str,
    root: &Path,
    command: &[String],
    (from, to): (&Path, &str),
    more: &[&str],
) -> Target {
    let pid_file = bundle_of(name).join("pid");
    let mut podman = at_mnt(root.to_str().unwrap(), "podman");
    // crun does not support hybrid cgroups. This user has no right to the limits and directory copies that are off.
    let line = "--runtime runc run --rm --interactive --network none --no-hosts --read-only --read-only-tmpfs=false --tmpfs /tmp:notmpcopyup \
                --tmpfs /run:notmpcopyup --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 --pids-limit 0";
    podman.args(line.split_whitespace());
    for map in ["--uidmap", "--gidmap"] {
        podman.arg(map).arg(format!("0:{USER}:1"));
    }
    podman.args(["--name", name, "--pidfile"]).arg(&pid_file);
    podman.arg("--volume").arg(format!("{}:{to}:ro", from.display()));
    podman.args(more).args(["--rootfs", "/mnt"]).args(command);
    Target::start_contained(&mut podman, &pid_file)
}

/// The configuration of the container that [`start`] runs.
pub fn config(root: &Path, command: &[String], binds: &[(&Path, &str)]) -> serde_json::Value {
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
