//! Processes that only look like JVMs, and tricks with files: no process is harmed, no file outside is touched.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use jbpf_prof::jvm::{self, AttachOptions, ExpectedNameSource, Jvm, JvmRow, Refusal};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, Signal, kill_process};

use crate::java::{self, Java, a_jdk, attach, names_in, options, traces_in};
use testkit::nobody::as_nobody;

/// The program `fake_jvm.c`, compiled once for all tests.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("fake_jvm"))
}

fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let program = java::classes().join(name);
    let done = Command::new("cc")
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .arg("-ldl")
        .status();
    assert!(done.unwrap().success(), "cc");
    program
}

/// A process that imitates a JVM, killed on drop.
struct Fake(Child, Option<BufReader<ChildStdout>>);

impl Fake {
    fn start(mode: &str) -> (Fake, Jvm) {
        Fake::with(&a_jdk().join("lib/server/libjvm.so"), mode)
    }

    fn with(library: &Path, mode: &str) -> (Fake, Jvm) {
        let mut child = Command::new(program())
            .arg(library)
            .arg(mode)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{mode}");
        let jvm = jvm::find(child.id()).expect("it maps libjvm.so");
        (Fake(child, Some(said)), jvm)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", self.0.id()));
    }
}

#[test]
fn a_process_that_does_not_catch_sigquit_survives() {
    let (mut fake, jvm) = Fake::start("deaf");
    // The process is young, so it gets the whole timeout to start.
    assert_eq!(jvm::attach(&jvm, &options(4)).unwrap_err().refusal, Refusal::SignalNotCaught);
    assert!(fake.0.try_wait().unwrap().is_none(), "it was killed");
    assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
}

/// A program that loaded the library but made no JVM may use SIGQUIT for something else: nginx and gunicorn end on it.
#[test]
fn a_process_without_java_threads_is_not_sent_a_signal() {
    let (mut fake, jvm) = Fake::start("none");
    let begun = Instant::now();
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::NoThreads);
    assert!(begun.elapsed() < Duration::from_secs(8), "it was waited for: {:?}", begun.elapsed());
    assert_eq!(JvmRow::of(&jvm, &options(4).binary).refusal, Some(Refusal::NoThreads));
    fake.0.kill().unwrap();
    let mut said = String::new();
    fake.1.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "it got SIGQUIT");
    assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
}

#[test]
fn a_process_that_took_the_pid_of_a_jvm_is_left_alone() {
    let mut java = Java::start(&a_jdk(), &[]);
    let jvm = java.jvm();
    java.kill();
    drop(java);
    let tgid = jvm.process.tgid;
    // The program would die of SIGQUIT.
    let child =
        Command::new(compile("with_pid")).args([&tgid.to_string(), "/bin/sleep", "600"]).spawn().unwrap();
    let mut bystander = Fake(child, None);
    let comm = || fs::read_to_string(format!("/proc/{tgid}/comm")).unwrap_or_default();
    while comm() != "sleep\n" {
        assert!(bystander.0.try_wait().unwrap().is_none(), "the pid was not to be had");
        std::thread::yield_now();
    }
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::Exited);
    assert_eq!(comm(), "sleep\n", "it was killed");
    assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
}

#[test]
fn servers_that_never_finish_cost_the_deadline_and_no_more() {
    let cases = [
        ("mute", Refusal::TimedOut),
        ("silent", Refusal::TimedOut),
        ("drip", Refusal::TimedOut),
        ("flood", Refusal::NoAnswer),
        ("close", Refusal::NoAnswer),
        ("lie", Refusal::NoLog),
    ];
    for (mode, expected) in cases {
        let (mut fake, jvm) = Fake::start(mode);
        let begun = Instant::now();
        // A process that is younger than three seconds may still be starting, and gets that time.
        let seconds = if mode == "lie" { 6 } else { 2 };
        assert_eq!(jvm::attach(&jvm, &options(seconds)).unwrap_err().refusal, expected, "{mode}");
        // To part from the helper and to clean up may take some seconds more on a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(seconds + 4), "{mode}");
        assert!(fake.0.try_wait().unwrap().is_none());
        assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new(), "{mode}");
    }
}

/// The helper at work on a JVM: a child of this process that has the JVM's directory in `/proc` open.
fn helper_of(jvm: &Jvm) -> Option<Pid> {
    let its = PathBuf::from(format!("/proc/{}", jvm.process.tgid));
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let is_at_work = |pid: &&str| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        open.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|link| link == its))
    };
    let found = children.into_iter().find_map(|pids| pids.split_whitespace().find(is_at_work)?.parse().ok());
    Pid::from_raw(found?)
}

/// A helper that notices the interrupt cleans up. If the helper is stopped, another one cleans up.
#[test]
fn an_attach_that_is_interrupted_ends_at_once_and_leaves_nothing() {
    for (mode, is_deaf) in [("mute", false), ("mute", true), ("silent", false), ("silent", true)] {
        let (mut fake, jvm) = Fake::start(mode);
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let options = AttachOptions { interrupt: Some(Arc::clone(&event)), ..options(60) };
        // The file that the helper makes before it waits forever; other tests make such files too.
        let made = if mode == "mute" { ".attach_pid" } else { ".jvm-symbols" };
        let before = names_in(Path::new("/tmp"), &jvm);
        let (failed, took) = thread::scope(|scope| {
            let attaching = scope.spawn(|| jvm::attach(&jvm, &options).unwrap_err());
            let helper = loop {
                assert!(!attaching.is_finished(), "{mode}");
                let names = names_in(Path::new("/tmp"), &jvm);
                let has_made = names.iter().any(|name| name.starts_with(made) && !before.contains(name));
                match helper_of(&jvm).filter(|_| has_made) {
                    Some(helper) => break helper,
                    None => thread::yield_now(),
                }
            };
            if is_deaf {
                kill_process(helper, Signal::STOP).unwrap();
            }
            let begun = Instant::now();
            rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap();
            (attaching.join().unwrap(), begun.elapsed())
        });
        assert_eq!(failed.refusal, Refusal::Interrupted, "{mode}");
        assert_eq!(failed.inspection.is_some(), !is_deaf, "{mode}: whether it said what it knows");
        assert!(took < Duration::from_secs(20), "{mode}: {took:?}");
        assert!(fake.0.try_wait().unwrap().is_none());
        assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new(), "{mode}");
        assert_eq!(jvm::attach(&jvm, &options).unwrap_err().refusal, Refusal::Interrupted, "it stays so");
    }
}

#[test]
fn a_silent_server_does_not_hold_up_others() {
    let (_fake, silent) = Fake::start("silent");
    let java = Java::start(&a_jdk(), &[]);
    let silence = thread::spawn(move || jvm::attach(&silent, &options(8)));
    let result = attach(&java.jvm());
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(silence.join().unwrap().unwrap_err().refusal, Refusal::TimedOut);
}

#[test]
fn a_file_called_libjvm_is_no_hotspot() {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("libjvm.so");
    let done =
        Command::new("cc").args(["-shared", "-o"]).arg(&library).args(["-x", "c", "/dev/null"]).status();
    assert!(done.unwrap().success());
    let (_fake, jvm) = Fake::with(&library, "mute");
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::NotHotSpot);
}

#[test]
fn who_made_a_jvm_is_read_beside_its_library_whatever_the_path() {
    let directory = tempfile::tempdir().unwrap();
    // Not UTF-8, not printable, and longer than the printed part of a path.
    let names: [&[u8]; 3] = [b"\xff\x1b[1m", &[b'x'; 250], &[b'y'; 250]];
    let home =
        names.iter().fold(directory.path().to_owned(), |path, name| path.join(OsStr::from_bytes(name)));
    let library = home.join("lib/server/libjvm.so");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    fs::copy(a_jdk().join("lib/server/libjvm.so"), &library).unwrap();
    fs::write(home.join("release"), "IMPLEMENTOR=\"Somebody\"\n").unwrap();
    let (_fake, jvm) = Fake::with(&library, "mute");
    assert_eq!(jvm::inspect(&jvm, &options(4).binary).unwrap().vendor, "Somebody");
}

/// A file to which a planted link leads.
struct Victim {
    directory: tempfile::TempDir,
}

impl Victim {
    fn new() -> Victim {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("victim"), b"precious").unwrap();
        Victim { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("victim")
    }

    fn assert_unharmed(&self) {
        assert_eq!(fs::read(self.path()).unwrap(), b"precious");
    }
}

#[test]
fn links_planted_where_the_trigger_belongs_lead_nowhere() {
    let victim = Victim::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let cd = format!("cd {} && exec \"$0\" \"$@\"", elsewhere.path().display());
    let mut java = Java::under(&["sh", "-c", &cd], &a_jdk(), &[]);
    let jvm = java.jvm();
    let name = format!(".attach_pid{}", jvm.ns_pid);
    for directory in [Path::new("/tmp"), elsewhere.path()] {
        let link = directory.join(&name);
        for target in [victim.path(), elsewhere.path().join("new")] {
            symlink(&target, &link).unwrap();
            let refusal = attach(&jvm).unwrap_err().refusal;
            let still_there = fs::symlink_metadata(&link).is_ok_and(|m| m.is_symlink());
            fs::remove_file(&link).unwrap();
            assert_eq!((refusal, still_there), (Refusal::Blocked, true), "{link:?}");
        }
    }
    victim.assert_unharmed();
    assert!(!elsewhere.path().join("new").exists());
    assert!(java.is_alive());
    assert!(attach(&jvm).is_ok(), "without them it works");
    assert_eq!(java.output_since_ready(), Vec::<String>::new(), "no signal came without a trigger");
}

/// The socket of a JVM that had the same pid: in a sticky `/tmp` another user's JVM cannot replace it.
#[test]
fn what_a_killed_jvm_of_root_left_is_named() {
    let java = Java::of_nobody(&a_jdk());
    let jvm = java.jvm();
    drop(UnixListener::bind(format!("/tmp/.java_pid{}", jvm.ns_pid)).unwrap());
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::Blocked);
}

#[test]
fn what_stands_in_place_of_the_socket_is_not_talked_to() {
    let java = Java::start(&a_jdk(), &[]);
    let jvm = java.jvm();
    let socket = PathBuf::from(format!("/tmp/.java_pid{}", jvm.ns_pid));
    let foreign = tempfile::tempdir().unwrap();
    let foreign_socket = foreign.path().join("socket");
    let listener = UnixListener::bind(&foreign_socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    // A link to a foreign socket, a foreign socket itself, a FIFO, a file.
    let plant: [&dyn Fn(); 4] = [
        &|| symlink(&foreign_socket, &socket).unwrap(),
        &|| fs::hard_link(&foreign_socket, &socket).unwrap(),
        &|| assert!(Command::new("mkfifo").arg(&socket).status().unwrap().success()),
        &|| fs::write(&socket, b"x").unwrap(),
    ];
    for (number, plant) in plant.into_iter().enumerate() {
        plant();
        let refusal = attach(&jvm).unwrap_err().refusal;
        fs::remove_file(&socket).unwrap();
        assert_eq!(refusal, Refusal::Blocked, "{number}");
    }
    // A connection may have been made, and closed when its peer was known; nothing was sent on it.
    while let Ok((mut client, _)) = listener.accept() {
        let mut said = Vec::new();
        client.set_nonblocking(false).unwrap();
        std::io::Read::read_to_end(&mut client, &mut said).unwrap();
        assert_eq!(said, b"");
    }
    assert!(attach(&jvm).is_ok());
}

#[test]
fn a_link_at_the_agents_name_is_not_followed() {
    let victim = Victim::new();
    let java = Java::start(&a_jdk(), &[]);
    let jvm = java.jvm();
    let first = attach(&jvm).unwrap();
    // The name is random but known after its first use, and the next attach would use it again.
    let header = jvm_symbols_log::Header::read(&first.log).unwrap();
    let path = PathBuf::from(String::from_utf8(header.path).unwrap());
    assert!(path.starts_with("/tmp") && !path.exists());
    symlink(victim.path(), &path).unwrap();
    let second = attach(&jvm);
    let still_there = fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink());
    fs::remove_file(&path).unwrap();
    assert!(second.is_ok() && still_there, "{second:?}");
    victim.assert_unharmed();
}

/// Always tries to change or replace the agent's file in `/tmp`; at its end prints its failed and successful attempts.
const RACER: &str = r#"
import ctypes, errno, os, sys, threading
libc, ended = ctypes.CDLL(None, use_errno=True), []
threading.Thread(target=lambda: (sys.stdin.read(), ended.append(1)), daemon=True).start()
own = "/tmp/.racer-%d" % os.getpid()
open(own, "w").close()
print("ready", flush=True)

def exchange(path):
    if libc.renameat2(-100, own.encode(), -100, path.encode(), 2):
        raise OSError(ctypes.get_errno(), "renameat2")

tricks = [exchange, os.unlink, lambda path: open(path, "r+"), lambda path: os.chmod(path, 0o777)]
tried = won = 0
while not ended:
    for name in os.listdir("/tmp"):
        for trick in tricks if name.startswith(f".jvm-symbols-{sys.argv[1]}-") else []:
            try:
                trick("/tmp/" + name)
                won += 1
            except OSError as error:
                tried += error.errno != errno.ENOENT
os.unlink(own)
print(tried, won)
"#;

#[test]
fn another_user_of_its_tmp_cannot_change_the_agent() {
    // The system's own Python: another one may lie in a home directory.
    let python = "/usr/bin/python3";
    // The racer ignores the agents of other tests, which may attach to JVMs of the same user.
    let own = std::process::id().to_string();
    let mut racer = as_nobody()
        .args([python, "-c", RACER, &own])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(racer.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().as_deref(), Some("ready"));
    let java = Java::start(&a_jdk(), &[]);
    let jvm = java.jvm();
    // A JVM may have this many logs at once.
    for _ in 0..4 {
        attach(&jvm).unwrap();
    }
    drop(racer.stdin.take());
    assert!(racer.wait().unwrap().success());
    let numbers: Vec<u64> = said.next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    assert!(numbers[0] > 10, "it tried {} times only: this test did not test", numbers[0]);
    assert_eq!(numbers[1], 0, "it changed the agent");
}

#[test]
fn a_tmp_that_cannot_take_the_agent_is_named() {
    let cases = [
        ("mount -t tmpfs -o noexec tmp /tmp", "true", Refusal::NoexecTmp),
        ("mount -t tmpfs tmp /tmp", "mount -o remount,bind,ro /tmp", Refusal::TmpNotWritable),
        ("mount -t tmpfs -o size=8k tmp /tmp", "true", Refusal::TmpNotWritable),
    ];
    for (mount, then, expected) in cases {
        let script = java::script(mount, then);
        let wrapper = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", &script];
        let java = Java::under(&wrapper, &a_jdk(), &["-XX:-UsePerfData"]);
        let jvm = java.jvm();
        assert_foreseen(&jvm, &expected);
        assert_eq!(attach(&jvm).unwrap_err().refusal, expected, "{mount}");
        assert_eq!(traces_in(&java::tmp_of(&jvm), &jvm), Vec::<String>::new(), "{mount}");
    }
}

/// Asserts that `jbpf-prof jvms` predicts the refusal before any attach, and that the JVM's memory has the names.
fn assert_foreseen(jvm: &Jvm, refusal: &Refusal) {
    let row = JvmRow::of(jvm, &options(4).binary);
    assert_eq!((row.refusal.as_ref(), row.names), (Some(refusal), ExpectedNameSource::Memory));
}

/// Two pods can share a `/tmp` like this. The socket's name contains the pid, which is 1 in both.
#[test]
fn of_two_jvms_that_share_a_tmp_and_a_pid_only_the_one_that_has_the_socket_is_attached_to() {
    let wrapper = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let socket = Path::new("/tmp/.java_pid1");
    let _ = fs::remove_file(socket);
    let [first, second] = [(); 2].map(|()| Java::under(&wrapper, &a_jdk(), &["-XX:-UsePerfData"]));
    let (has_it, lacks_it) = (first.jvm(), second.jvm());
    let attached = attach(&has_it);
    let refused = attach(&lacks_it);
    assert_foreseen(&lacks_it, &Refusal::Blocked);
    let row = JvmRow::of(&has_it, &options(4).binary);
    let _ = fs::remove_file(socket);
    assert_eq!((has_it.ns_pid, lacks_it.ns_pid), (1, 1), "this test did not test");
    assert!(attached.is_ok(), "{attached:?}");
    assert_eq!(refused.unwrap_err().refusal, Refusal::Blocked);
    assert_eq!((row.refusal, row.names), (None, ExpectedNameSource::Agent));
}

#[test]
fn an_absolute_link_in_the_targets_tmp_stays_in_its_root() {
    let script = java::script("mount -t tmpfs tmp /tmp", "true");
    let wrapper = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", &script];
    let java = Java::under(&wrapper, &a_jdk(), &[]);
    let jvm = java.jvm();
    let victim = Victim::new();
    // Seen from here the link leads to a file of the host; in the target's root it dangles.
    let link = java::tmp_of(&jvm).join(format!(".attach_pid{}", jvm.ns_pid));
    symlink(victim.path(), &link).unwrap();
    assert_foreseen(&jvm, &Refusal::Blocked);
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::Blocked);
    victim.assert_unharmed();
}
