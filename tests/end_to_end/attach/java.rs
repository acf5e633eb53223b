//! JVMs to attach to.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use jbpf_prof::jvm::{self, AttachFailure, AttachOptions, Attached, Jvm};
use jbpf_prof::process::procfs;
use rustix::process::{Pid, Signal, kill_process};
use testkit::nobody::AS_NOBODY;
use testkit::profiler::binary;

/// The timeout for all waits: on a busy machine too, everything that makes progress at all is faster.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The JDKs of this machine, each once, in the directory where distributions install them.
pub(super) fn jdks() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/jvm")
        .expect("JDKs below /usr/lib/jvm")
        .filter_map(|entry| entry.unwrap().path().canonicalize().ok())
        .filter(|jdk| jdk.join("bin/java").exists() && jdk.join("lib/server/libjvm.so").exists())
        .collect();
    found.sort();
    found.dedup();
    assert!(!found.is_empty(), "no JDK below /usr/lib/jvm");
    found
}

/// The JDK for tests that do not depend on the version.
pub(super) fn a_jdk() -> PathBuf {
    jdks().swap_remove(0)
}

/// Runs a test for several things at once. Most of the time it waits until a JVM is old enough, or for a deadline.
pub(super) fn at_once<T: Send>(things: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        let running: Vec<_> = things.into_iter().map(|thing| scope.spawn(move || test(thing))).collect();
        for one in running {
            if let Err(panic) = one.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Runs a test on all JDKs at once.
pub(super) fn on_each_jdk(test: impl Fn(&Path) + Sync) {
    at_once(jdks(), |jdk| test(&jdk));
}

/// The directory with the compiled program, readable by all users. A static is never dropped: the next run removes it.
pub(super) fn classes() -> &'static Path {
    static CLASSES: OnceLock<tempfile::TempDir> = OnceLock::new();
    CLASSES
        .get_or_init(|| {
            assert!(rustix::process::geteuid().is_root(), "these tests need root");
            remove_those_of_earlier_runs();
            let prefix = format!("{DIRECTORY}{}-", std::process::id());
            let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in("/tmp").unwrap();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let program = testkit::java::classes().join("Spin.class");
            fs::copy(program, directory.path().join("Spin.class")).unwrap();
            directory
        })
        .path()
}

/// The beginning of the directories' names; the pid of the run follows.
const DIRECTORY: &str = "jbpf-attach-";

fn remove_those_of_earlier_runs() {
    for entry in fs::read_dir("/tmp").unwrap().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY)?.split_once('-'));
        if run.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

/// A running JVM, killed on drop.
pub(super) struct Java {
    child: Child,
    lines: Receiver<String>,
    /// Lines that were read while waiting for `ready`.
    seen: Vec<String>,
}

impl Java {
    /// Starts `java` with these flags and waits until it is ready.
    pub(super) fn start(jdk: &Path, flags: &[&str]) -> Java {
        Java::under(&[], jdk, flags)
    }

    /// The same by a command that ends in exec (or fork and exec) of the words that follow it.
    pub(super) fn under(wrapper: &[&str], jdk: &Path, flags: &[&str]) -> Java {
        let mut java = Java::launch(wrapper, jdk, flags);
        java.wait_for("ready");
        java
    }

    pub(super) fn of_nobody(jdk: &Path) -> Java {
        Java::under(&AS_NOBODY, jdk, &[])
    }

    /// A JVM whose `/tmp` no other test sees.
    pub(super) fn in_own_tmp(jdk: &Path) -> Java {
        let script = script("mount -t tmpfs tmp /tmp", "true");
        Java::under(&["unshare", "--mount", "sh", "-c", &script], jdk, &[])
    }

    /// As `under`, without waiting.
    pub(super) fn launch(wrapper: &[&str], jdk: &Path, flags: &[&str]) -> Java {
        let java = jdk.join("bin/java");
        let mut words: Vec<&OsStr> = wrapper.iter().map(OsStr::new).collect();
        words.push(java.as_os_str());
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-Xshare:auto"])
            .args(flags)
            .args([OsStr::new("-cp"), classes().as_os_str(), OsStr::new("Spin")])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (say, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| say.send(line).map_err(drop))
        });
        Java { child, lines, seen: Vec::new() }
    }

    fn wait_for(&mut self, wanted: &str) {
        while self.seen.last().is_none_or(|line| line != wanted) {
            let line = self.lines.recv_timeout(PATIENCE).expect("the JVM gets ready");
            self.seen.push(line);
        }
    }

    /// The pid of the started process: the JVM, or the wrapper that forked the JVM.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// This JVM as the product finds it: the started process, or the process that it has forked.
    pub(super) fn jvm(&self) -> Jvm {
        let until = Instant::now() + PATIENCE;
        loop {
            let family = std::iter::once(self.pid()).chain(children_of(self.pid()));
            if let Some(jvm) = family.into_iter().find_map(jvm::find) {
                return jvm;
            }
            assert!(Instant::now() < until, "no JVM found for {}", self.pid());
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills the JVM and returns the lines that it printed after `ready`.
    pub(super) fn output_since_ready(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        // A change of ids made the kernel forget the parent death signal, so the wrapper's end does not end the JVM.
        for child in children_of(self.pid()).into_iter().filter_map(|pid| Pid::from_raw(pid.try_into().ok()?))
        {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A killed JVM leaves its socket, which another user's JVM with the same pid could not replace.
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", self.pid()));
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub(super) fn options(seconds: u64) -> AttachOptions {
    AttachOptions { timeout: Duration::from_secs(seconds), ..AttachOptions::new(binary()) }
}

pub(super) fn attach(jvm: &Jvm) -> Result<Attached, AttachFailure> {
    jvm::attach(jvm, &options(PATIENCE.as_secs()))
}

/// Names of files in a directory that an attach makes, by this test or by a test beside it.
pub(super) fn names_in(directory: &Path, jvm: &Jvm) -> Vec<String> {
    let trigger = trigger_of(jvm);
    let mine = format!(".jvm-symbols-{}-", std::process::id());
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|name| *name == trigger || name.starts_with(&mine)).collect()
}

fn trigger_of(jvm: &Jvm) -> String {
    format!(".attach_pid{}", jvm.ns_pid)
}

/// Names of files that an attach left in a directory. Files of tests that run in parallel disappear meanwhile: this
/// process is the maker of all of them.
pub(super) fn traces_in(directory: &Path, jvm: &Jvm) -> Vec<String> {
    let mut left = names_in(directory, jvm);
    let until = Instant::now() + PATIENCE;
    while !left.is_empty() && !left.contains(&trigger_of(jvm)) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
        let now = names_in(directory, jvm);
        left.retain(|name| now.contains(name));
    }
    left
}

/// The target's `/tmp` as seen from this process.
pub(super) fn tmp_of(jvm: &Jvm) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/tmp", jvm.process.tgid))
}

/// A shell script for a mount namespace: `mount` covers `/tmp`, the classes appear there under their old path, `then`
/// is done, and the command that follows is executed.
pub(super) fn script(mount: &str, then: &str) -> String {
    let classes = classes().display();
    format!(
        "mount --bind {classes} /mnt && {mount} && mkdir -p {classes} && mount --bind /mnt {classes} && {then} && \
         exec \"$0\" \"$@\""
    )
}

/// The letter of a process's state in proc(5).
pub(super) fn state_of(pid: u32) -> u8 {
    procfs::stat(pid).unwrap().state
}
