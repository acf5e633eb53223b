//! Processes that only look like JVMs, and tricks with files: no process is harmed, no file outside is touched.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jbpf_prof::jvm::{self, AttachOptions, ExpectedNameSource, Jvm, JvmRow, Refusal};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, Signal, kill_process};

use super::java::{Java, PATIENCE, a_jdk, at_once, attach, names_in, options, script, tmp_of, traces_in};
use testkit::native;
use testkit::nobody::as_nobody;
use testkit::target::Target;

/// A process that imitates a JVM, killed on drop.
struct Fake(Child, Option<BufReader<ChildStdout>>);

impl Fake {
    /// A process with its own `/tmp`, in which no other test leaves files.
    fn start(mode: &str) -> (Fake, Jvm) {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs tmp /tmp && exec \"$0\" \"$@\""]);
        command.arg(native::program("fake_jvm"));
        Fake::by(&mut command, &a_jdk().join("lib/server/libjvm.so"), mode)
    }

    /// A process in the host's `/tmp`.
    fn with(library: &Path, mode: &str) -> (Fake, Jvm) {
        Fake::by(&mut Command::new(native::program("fake_jvm")), library, mode)
    }

    fn by(command: &mut Command, library: &Path, mode: &str) -> (Fake, Jvm) {
        command.arg(library).arg(mode).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
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
    assert_eq!(traces_in(&tmp_of(&jvm), &jvm), Vec::<String>::new());
}

/// A program that loaded the library but made no JVM may use SIGQUIT for something else: nginx and gunicorn end on it.
#[test]
fn a_process_without_java_threads_is_not_sent_a_signal() {
    let (mut fake, jvm) = Fake::start("none");
    let begun = Instant::now();
    assert_eq!(jvm::attach(&jvm, &options(600)).unwrap_err().refusal, Refusal::NoThreads);
    assert!(begun.elapsed() < Duration::from_secs(300), "it was waited for: {:?}", begun.elapsed());
    assert_eq!(JvmRow::of(&jvm, &options(4).binary).refusal, Some(Refusal::NoThreads));
    assert_eq!(traces_in(&tmp_of(&jvm), &jvm), Vec::<String>::new());
    fake.0.kill().unwrap();
    let mut said = String::new();
    fake.1.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "it got SIGQUIT");
}

#[test]
fn a_process_that_took_the_pid_of_a_jvm_is_left_alone() {
    // A process of another test may be quicker to take the pid.
    let (jvm, _bystander) = (0..20).find_map(|_| taken_pid()).expect("a pid is to be had");
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::Exited);
    assert_eq!(comm_of(&jvm), "sleep\n", "it was killed");
    assert_eq!(traces_in(Path::new("/tmp"), &jvm), Vec::<String>::new());
}

/// A JVM that has ended, and a process that has its pid now and would die of SIGQUIT; `None` if another process has it.
fn taken_pid() -> Option<(Jvm, Fake)> {
    let mut java = Java::start(&a_jdk(), &[]);
    let jvm = java.jvm();
    java.kill();
    drop(java);
    let pid = jvm.process.tgid.to_string();
    let child = Command::new(native::program("with_pid")).args([&pid, "/bin/sleep", "600"]).spawn().unwrap();
    let mut bystander = Fake(child, None);
    while comm_of(&jvm) != "sleep\n" {
        if bystander.0.try_wait().unwrap().is_some() {
            return None;
        }
        thread::yield_now();
    }
    Some((jvm, bystander))
}

/// The name of the process that has a JVM's pid, as a line.
fn comm_of(jvm: &Jvm) -> String {
    fs::read_to_string(format!("/proc/{}/comm", jvm.process.tgid)).unwrap_or_default()
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
    at_once(cases, |(mode, expected)| {
        let (mut fake, jvm) = Fake::start(mode);
        let begun = Instant::now();
        // The others end by themselves. A process that is younger than three seconds may still be starting, and gets
        // that time.
        let seconds = if expected == Refusal::TimedOut { 2 } else { PATIENCE.as_secs() };
        assert_eq!(jvm::attach(&jvm, &options(seconds)).unwrap_err().refusal, expected, "{mode}");
        // To part from the helper and to clean up takes some seconds more on a busy machine.
        assert!(begun.elapsed() < PATIENCE, "{mode}");
        assert!(fake.0.try_wait().unwrap().is_none());
        assert_eq!(traces_in(&tmp_of(&jvm), &jvm), Vec::<String>::new(), "{mode}");
    });
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
    at_once([("mute", false), ("mute", true), ("silent", false), ("silent", true)], |(mode, is_deaf)| {
        let (mut fake, jvm) = Fake::start(mode);
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let options = AttachOptions { interrupt: Some(Arc::clone(&event)), ..options(600) };
        // The file that the helper makes before it waits forever.
        let made = if mode == "mute" { ".attach_pid" } else { ".jvm-symbols" };
        let has_made = || names_in(&tmp_of(&jvm), &jvm).iter().any(|name| name.starts_with(made));
        let (failed, took) = thread::scope(|scope| {
            let attaching = scope.spawn(|| jvm::attach(&jvm, &options).unwrap_err());
            let helper = loop {
                assert!(!attaching.is_finished(), "{mode}");
                match helper_of(&jvm).filter(|_| has_made()) {
                    Some(helper) => break helper,
                    None => thread::sleep(Duration::from_millis(1)),
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
        // A helper that gets no CPU for a second is given up like one that is stopped.
        let says = failed.inspection.is_some();
        assert!(if is_deaf { !says } else { says || took > Duration::from_secs(1) }, "{mode}: what it knows");
        // The timeout is not waited for.
        assert!(took < Duration::from_secs(300), "{mode}: {took:?}");
        assert!(fake.0.try_wait().unwrap().is_none());
        assert_eq!(traces_in(&tmp_of(&jvm), &jvm), Vec::<String>::new(), "{mode}");
        assert_eq!(jvm::attach(&jvm, &options).unwrap_err().refusal, Refusal::Interrupted, "it stays so");
    });
}

#[test]
fn a_silent_server_does_not_hold_up_others() {
    let (_fake, silent) = Fake::start("silent");
    let java = Java::start(&a_jdk(), &[]);
    let silence = thread::spawn(move || jvm::attach(&silent, &options(4)));
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

/// A directory that becomes the `/tmp` of several processes, and the script that does so.
fn shared_tmp() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let script = script(&format!("mount --bind {} /tmp", directory.path().display()), "true");
    (directory, script)
}

/// Always tries to change or replace the agent's file in a directory, until it reads a line. Prints when it has tried
/// often, and at its end the numbers of failed and successful attempts.
const RACER: &str = r#"
import ctypes, errno, os, sys, threading
libc, ended = ctypes.CDLL(None, use_errno=True), []
threading.Thread(target=lambda: (sys.stdin.readline(), ended.append(1)), daemon=True).start()
os.chdir(sys.argv[1])
own = ".racer"
open(own, "w").close()
print("ready", flush=True)

def exchange(name):
    if libc.renameat2(-100, own.encode(), -100, name.encode(), 2):
        raise OSError(ctypes.get_errno(), "renameat2")

tricks = [exchange, os.unlink, lambda name: open(name, "r+"), lambda name: os.chmod(name, 0o777)]
tried = won = 0
is_said = False
while not ended:
    for name in os.listdir("."):
        for trick in tricks if name.startswith(".jvm-symbols-") else []:
            try:
                trick(name)
                won += 1
            except OSError as error:
                tried += error.errno != errno.ENOENT
    if tried > 10 and not is_said:
        is_said = True
        print("often", flush=True)
print(tried, won)
"#;

#[test]
fn another_user_of_its_tmp_cannot_change_the_agent() {
    let (directory, script) = shared_tmp();
    // The system's own Python: another one may lie in a home directory.
    let mut racer = as_nobody();
    let mut racer = Target::start(racer.args(["/usr/bin/python3", "-c", RACER]).arg(directory.path()));
    let java = Java::under(&["unshare", "--mount", "sh", "-c", &script], &a_jdk(), &[]);
    let jvm = java.jvm();
    let mut attaches = 0;
    while attaches < 4 || !racer.lines().iter().any(|line| line == "often") {
        // A JVM may have few logs at once.
        attach(&jvm).unwrap().end_lease().unwrap();
        attaches += 1;
        assert!(attaches < 1000, "it tried a few times only: this test did not test");
    }
    racer.write(b"end\n");
    let (status, lines) = racer.finish();
    assert!(status.success());
    let numbers: Vec<u64> = lines.last().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers[1], 0, "it changed the agent: {numbers:?}");
}

#[test]
fn a_tmp_that_cannot_take_the_agent_is_named() {
    let cases = [
        ("mount -t tmpfs -o noexec tmp /tmp", "true", Refusal::NoexecTmp),
        ("mount -t tmpfs tmp /tmp", "mount -o remount,bind,ro /tmp", Refusal::TmpNotWritable),
        ("mount -t tmpfs -o size=8k tmp /tmp", "true", Refusal::TmpNotWritable),
    ];
    for (mount, then, expected) in cases {
        let script = script(mount, then);
        let wrapper = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", &script];
        let java = Java::under(&wrapper, &a_jdk(), &["-XX:-UsePerfData"]);
        let jvm = java.jvm();
        assert_foreseen(&jvm, &expected);
        assert_eq!(attach(&jvm).unwrap_err().refusal, expected, "{mount}");
        assert_eq!(traces_in(&tmp_of(&jvm), &jvm), Vec::<String>::new(), "{mount}");
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
    let (_directory, script) = shared_tmp();
    let unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let wrapper = [&unshare[..], &["sh", "-c", &script]].concat();
    let [first, second] = [(); 2].map(|()| Java::under(&wrapper, &a_jdk(), &["-XX:-UsePerfData"]));
    let (has_it, lacks_it) = (first.jvm(), second.jvm());
    let attached = attach(&has_it);
    let refused = attach(&lacks_it);
    assert_foreseen(&lacks_it, &Refusal::Blocked);
    let row = JvmRow::of(&has_it, &options(4).binary);
    assert_eq!((has_it.ns_pid, lacks_it.ns_pid), (1, 1), "this test did not test");
    assert!(attached.is_ok(), "{attached:?}");
    assert_eq!(refused.unwrap_err().refusal, Refusal::Blocked);
    assert_eq!((row.refusal, row.names), (None, ExpectedNameSource::Agent));
}

#[test]
fn an_absolute_link_in_the_targets_tmp_stays_in_its_root() {
    let script = script("mount -t tmpfs tmp /tmp", "true");
    let wrapper = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c", &script];
    let java = Java::under(&wrapper, &a_jdk(), &[]);
    let jvm = java.jvm();
    let victim = Victim::new();
    // Seen from here the link leads to a file of the host; in the target's root it dangles.
    let link = tmp_of(&jvm).join(format!(".attach_pid{}", jvm.ns_pid));
    symlink(victim.path(), &link).unwrap();
    assert_foreseen(&jvm, &Refusal::Blocked);
    assert_eq!(attach(&jvm).unwrap_err().refusal, Refusal::Blocked);
    victim.assert_unharmed();
}
