//! JVMs for tests of the agent: finds JDKs, starts a small program, ends it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

use jvm_symbols_log::{Header, LogKind};
use testkit::java::classes;
use testkit::{profiler, scratch, skip};

/// The agent's file, as the profiler writes it.
pub(super) fn agent() -> &'static str {
    static AGENT: OnceLock<String> = OnceLock::new();
    AGENT.get_or_init(|| {
        let file = scratch("agent").join("agent.so").into_os_string().into_string().unwrap();
        profiler::run(["agent", &file]).success();
        file
    })
}

#[derive(Debug)]
pub(super) struct Jdk {
    home: PathBuf,
    /// From the JDK's file `release`, for example `17.0.1`.
    pub(super) version: String,
}

impl Jdk {
    /// One JDK of each version in Debian's directory, and that of `JAVA_HOME`.
    pub(super) fn all() -> Vec<Jdk> {
        let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
        let installed = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
        homes.extend(installed.map(|entry| entry.path()));
        let mut jdks: Vec<Jdk> = homes.into_iter().filter_map(Jdk::at).collect();
        jdks.sort_by(|a, b| a.version.cmp(&b.version));
        jdks.dedup_by(|a, b| a.version == b.version);
        if jdks.is_empty() {
            skip("there is no JDK here");
        }
        jdks
    }

    fn at(home: PathBuf) -> Option<Jdk> {
        let release = fs::read_to_string(home.join("release")).ok()?;
        let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
        let tools = ["java", "javac", "jcmd"].iter().all(|tool| home.join("bin").join(tool).exists());
        tools.then(|| Jdk { version: version.trim_matches('"').to_owned(), home })
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(self.home.join("bin").join(name))
    }

    /// Starts a program of `tests/programs` and waits until it prints `ready`.
    pub(super) fn start(&self, name: &str, flags: &[&str]) -> Jvm {
        let mut child = self
            .tool("java")
            .args(flags)
            .arg("-cp")
            .arg(classes())
            .arg(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut jvm = Jvm { child, stdin: Some(stdin), stdout, said: String::new() };
        jvm.wait_for("ready");
        jvm
    }

    /// Loads the agent as any user could: by `jcmd`.
    pub(super) fn attach(&self, jvm: &Jvm, options: &str) {
        self.attach_file(jvm, agent(), options);
    }

    /// The same with this copy of the agent.
    pub(super) fn attach_file(&self, jvm: &Jvm, agent: &str, options: &str) {
        let Output { status, stdout, stderr } = self
            .tool("jcmd")
            // Quoted, because jcmd takes the text before a `=` for the name of an argument of its own.
            .args([&jvm.pid().to_string(), "JVMTI.agent_load", agent, &format!("\"{options}\"")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&stdout);
        assert!(status.success(), "{text} {}", String::from_utf8_lossy(&stderr));
        assert!(text.contains("return code: 0"), "{text}");
    }
}

/// A running JVM; killed on drop.
#[derive(Debug)]
pub(super) struct Jvm {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    said: String,
}

impl Jvm {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_for(&mut self, word: &str) {
        let from = self.said.len();
        while !self.said[from..].lines().any(|line| line == word) {
            let read = self.stdout.read_line(&mut self.said).unwrap();
            assert!(read > 0, "the program ended: {}", self.said);
        }
    }

    /// Makes the program run its loop once more.
    pub(super) fn again(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        self.wait_for("again");
    }

    /// Lets the program end by itself; returns what it and the JVM printed to both channels.
    pub(super) fn finish(mut self) -> String {
        drop(self.stdin.take());
        let mut said = std::mem::take(&mut self.said);
        self.stdout.read_to_string(&mut said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// The agent's logs, by descriptor number, opened for reading and writing.
    pub(super) fn logs(&self) -> Vec<File> {
        let dir = format!("/proc/{}/fd", self.pid());
        let mut found: Vec<(u32, PathBuf)> = fs::read_dir(dir)
            .unwrap()
            .flatten()
            .filter(|entry| {
                fs::read_link(entry.path()).is_ok_and(|to| to.starts_with("/memfd:jvm-symbols (deleted)"))
            })
            .map(|entry| (entry.file_name().to_str().unwrap().parse().unwrap(), entry.path()))
            .collect();
        found.sort();
        found.iter().map(|(_, path)| OpenOptions::new().read(true).write(true).open(path).unwrap()).collect()
    }

    /// The log of the attach with this nonce.
    pub(super) fn log(&self, nonce: u8) -> Option<File> {
        self.logs().into_iter().find(|log| {
            let header = Header::read(log).unwrap();
            header.kind == LogKind::Attach && header.nonce[0] == nonce
        })
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // See `tests/kit/src/target.rs`: nothing could attach to the next JVM with this pid.
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", self.child.id()));
    }
}
