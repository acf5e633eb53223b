//! The DaemonSet's container with the capabilities, settings and limits of `deploy/base`, made by runc: the daemon
//! names the Java frames of a JVM in another container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::home;
use crate::run::{folded, windows};
use testkit::folded::Folded;
use testkit::java::{Program, in_container};
use testkit::manifest::{has, listed, text};
use testkit::profiler::binary;
use testkit::target::Target;
use testkit::{container, is_root, native};

/// The configuration that the kubelet and its runtime make of the manifest.
fn config(root: &Path, home: &Path) -> Value {
    assert!(has("hostPID: true") && has("readOnlyRootFilesystem: true") && has("runAsUser: 0"));
    assert!(has("allowPrivilegeEscalation: false") && has("drop: [\"ALL\"]") && has("memory: 256Mi"));
    let capabilities: Vec<String> = listed("add").iter().map(|name| format!("CAP_{name}")).collect();
    let mut args = vec!["/jbpf-prof".to_owned()];
    args.extend(listed("args").into_iter().map(|arg| arg.replace("$(NODE_NAME)", "n1")));
    args.extend(["--window", "2s", "--frequency", "99", "--max-cpu", "100"].map(str::to_owned));
    let bind = |from: PathBuf, to: &str, way: &str| json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", way]});
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid"]}),
        bind("/sys/fs/cgroup".into(), "/sys/fs/cgroup", "ro"),
        bind(home.join("settings"), "/etc/jbpf-prof", "ro"),
        bind(home.join("data"), "/var/lib/jbpf-prof", "rw"),
        json!({"destination": "/run/jbpf-prof", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m"]}),
    ];
    for logs in ["/var/log/pods", "/var/log/containers"] {
        assert!(has(&format!("path: {logs}")));
        if Path::new(logs).exists() {
            mounts.push(bind(logs.into(), logs, "ro"));
        }
    }
    let namespaces: Vec<_> =
        ["ipc", "uts", "mount", "network", "cgroup"].iter().map(|kind| json!({"type": kind})).collect();
    let sets = json!({"bounding": capabilities, "effective": capabilities, "permitted": capabilities});
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false, "user": {"uid": 0, "gid": 0}, "args": args, "env": [], "cwd": "/",
            "capabilities": sets, "noNewPrivileges": true,
        },
        "root": {"path": root, "readonly": true},
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "resources": {"memory": {"limit": 256 << 20}},
            "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

#[test]
fn the_daemon_set_names_java_in_another_container() {
    if !is_root() || !container::available() {
        return;
    }
    in_container(21, |jdk| {
        let home = home("daemonset");
        let (root, bundle) = (home.join("root"), home.join("bundle"));
        for directory in
            ["settings", "data", "bundle", "root/proc", "root/dev", "root/sys", "root/etc/jbpf-prof"]
        {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        for directory in ["run/jbpf-prof", "var/lib/jbpf-prof", "var/log/pods", "var/log/containers"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        // The image has only the binary.
        fs::copy(binary(), root.join("jbpf-prof")).unwrap();
        fs::write(home.join("settings/settings.toml"), text("settings.toml")).unwrap();
        fs::write(bundle.join("config.json"), config(&root, &home).to_string()).unwrap();
        // Other JVMs may run on this host; this one is known by its main method, which few tests run.
        let java = Program::new("InlinedShares").start(jdk);
        // A window is short, and Java alone may have no kernel sample in it.
        let kernel = native::start("kernel");
        let id = format!("jbpf-prof-daemonset-{}", std::process::id());
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(home.join("state")).args(["run", "--bundle"]).arg(&bundle).arg(&id);
        let mut daemon = Target::spawn(&mut runc);
        let named = wait_for_java(&home, &mut daemon);
        let stop =
            Command::new("runc").arg("--root").arg(home.join("state")).args(["kill", &id, "TERM"]).status();
        assert!(stop.unwrap().success());
        assert_eq!(daemon.wait().code(), Some(0));
        let own = named.within("InlinedShares.main");
        let methods = own.within("InlinedShares.round").total();
        assert!(methods * 10 > own.total() * 9, "{methods} of {}:\n{}", own.total(), own.top(9));
        let kernels = named.within("kernel");
        let under_read =
            kernels.count(|stack| stack.iter().any(|f| f.contains("read") && f.ends_with("_[k]")));
        assert!(under_read * 2 > kernels.total(), "{under_read} of {}:\n{}", kernels.total(), kernels.top(9));
        drop((java, kernel));
    });
}

/// The first window with enough samples of the programs.
fn wait_for_java(home: &Path, daemon: &mut Target) -> Folded {
    let directory = home.join("data/windows");
    for _ in 0..3_000 {
        assert!(daemon.is_alive(), "the container has ended: {:?}", daemon.lines());
        let files = if directory.exists() { windows(home) } else { Vec::new() };
        for file in files.iter().skip(1) {
            let stacks = folded(file);
            if ["InlinedShares.main", "kernel"].iter().all(|program| stacks.within(program).total() > 50) {
                return stacks;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("no window has the programs");
}
