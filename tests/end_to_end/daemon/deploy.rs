//! The DaemonSet's container with the capabilities, settings and limits of `deploy/base`, made by runc: the daemon
//! names the Java frames of a JVM in another container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::busy::Busy;
use super::home;
use super::run::{folded, windows};
use testkit::claims::{at_least, prove, seen};
use testkit::folded::{Folded, is};
use testkit::java::{Jdk, Program, classes, in_container};
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
    args.extend(["--window", "1s", "--frequency", "499", "--max-cpu", "100"].map(str::to_owned));
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
    // Other tests make and remove the host's directories.
    for (logs, own) in [("/var/log/pods", "pods"), ("/var/log/containers", "containers")] {
        assert!(has(&format!("path: {logs}")));
        mounts.push(bind(home.join(own), logs, "ro"));
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

/// The name of the JVM's process, which no other process has.
const JVM: &str = "daemonset-jvm";

/// The JVM, in a container of its own.
fn start_java(jdk: &Jdk) -> Target {
    let line = Program::new("Shares").args(&["100"]).contained_command();
    let script = "ln -s \"$1\" \"/tmp/$0\" && shift && exec \"/tmp/$0\" \"$@\"";
    let mut command = ["/bin/sh", "-c", script, JVM].map(str::to_owned).to_vec();
    command.extend(line);
    container::start(jdk.root().unwrap(), &command, &[(classes(), "/tmp/classes")])
}

/// The stacks of the next stored window. `read`: windows that were read already; the first one is left out, because
/// sampling may have begun before the programs were known.
fn next_window(home: &Path, daemon: &mut Target, read: &mut usize) -> Folded {
    let directory = home.join("data/windows");
    for _ in 0..3_000 {
        assert!(daemon.is_alive(), "the container has ended: {:?}", daemon.lines());
        let files = if directory.exists() { windows(home) } else { Vec::new() };
        if let Some(file) = files.get(*read + 1) {
            *read += 1;
            return folded(file);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no window comes after {read}: {:?}", daemon.lines());
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
            ["settings", "data", "bundle", "pods", "containers", "root/proc", "root/dev", "root/sys"]
        {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        for directory in
            ["etc/jbpf-prof", "run/jbpf-prof", "var/lib/jbpf-prof", "var/log/pods", "var/log/containers"]
        {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        // The image has only the binary.
        native::copy(&binary(), &root.join("jbpf-prof"));
        fs::write(home.join("settings/settings.toml"), text("settings.toml")).unwrap();
        fs::write(bundle.join("config.json"), config(&root, &home).to_string()).unwrap();
        let _java = start_java(jdk);
        // A window is short, and Java alone may have no kernel sample in it.
        let kernel = Busy::start("kernel");
        let id = container::new_name();
        let runc = || {
            let mut runc = Command::new("runc");
            runc.arg("--root").arg(home.join("state"));
            runc
        };
        let mut daemon = Target::spawn(runc().args(["run", "--bundle"]).arg(&bundle).arg(&id));
        let has = |stack: &[String], method: &str| stack.iter().any(|frame| is(frame, method));
        let in_main = |stack: &[String]| stack[0] == JVM && has(stack, "Shares.main");
        let under_read =
            |stack: &[String]| stack.iter().any(|frame| frame.contains("read") && frame.ends_with("_[k]"));
        let claims = [
            seen(51, "samples of the Java program", in_main),
            at_least(0.9, "named Java methods", |stack| has(stack, "Shares.round")).among(in_main),
            seen(51, "samples of the kernel's program", |stack| kernel.has(stack)),
            at_least(0.5, "kernel functions under read", under_read).among(|stack| kernel.has(stack)),
        ];
        let mut read = 0;
        prove(|| next_window(&home, &mut daemon, &mut read), &claims);
        let stop = runc().args(["kill", &id, "TERM"]).status();
        assert!(stop.unwrap().success());
        assert_eq!(daemon.wait().code(), Some(0));
    });
}
