//! A process that maps code, prints where, and waits; and a process table that follows it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jbpf_prof::capture::sideband::Sideband;
use jbpf_prof::process::{
    EventKind, MappedFile, MappedLocation, ProcessEvent, ProcessOptions, Processes, ScanScope, procfs,
};
use jbpf_prof::sample::{MonoNs, ProcessId};
use tempfile::TempDir;

/// The usual limits, with the product's binary.
pub fn options() -> ProcessOptions {
    ProcessOptions { binary: PathBuf::from(env!("CARGO_BIN_EXE_jbpf-prof")), ..ProcessOptions::default() }
}

pub fn sideband() -> Sideband {
    Sideband::open(0..num_cpus()).expect("the tests of processes need root (perf events of all CPUs)")
}

pub fn num_cpus() -> u32 {
    let online = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    online.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap() + 1
}

/// The identity that the BPF program would report, as exactly as `/proc` gives it.
pub fn identity(tgid: u32) -> ProcessId {
    let stat = procfs::stat(tgid).unwrap();
    ProcessId { tgid, start: stat.start_ticks * 10_000_000, exec: 0 }
}

/// Drains until the process has ended.
pub fn until_exit(sideband: &mut Sideband, tgid: u32) -> Vec<ProcessEvent> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    loop {
        events.extend(sideband.drain());
        if events.iter().any(|e| e.tgid == tgid && e.tid == tgid && e.kind == EventKind::Exit) {
            return events;
        }
        assert!(Instant::now() < deadline, "the exit of {tgid} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory with `mapper`, `mapper-static`, `one.so` and `two.so`, whose contents differ.
pub fn programs() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let compile = |source: &str, out: &str, options: &[&str]| {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-o"]).arg(dir.path().join(out)).arg(sources.join(source)).args(options);
        assert!(cc.status().unwrap().success(), "{source}");
    };
    compile("mapper.c", "mapper", &["-ldl", "-pthread"]);
    compile("mapper.c", "mapper-static", &["-static", "-DSTATIC", "-pthread"]);
    compile("library.c", "one.so", &["-shared", "-fPIC", "-DWHICH=1"]);
    compile("library.c", "two.so", &["-shared", "-fPIC", "-DWHICH=2222"]);
    dir
}

/// A `mapper` that has printed where its code is.
pub struct Mapper {
    pub child: Child,
    /// The thread group, which is not the child's if another program started the mapper.
    pub tgid: u32,
    pub id: ProcessId,
    pub address: u64,
}

impl Mapper {
    pub fn start(command: &mut Command) -> Mapper {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("READY ").unwrap_or_else(|| panic!("mapper said {line:?}"));
        let tgid = child.id();
        Mapper { tgid, id: identity(tgid), address: u64::from_str_radix(address, 16).unwrap(), child }
    }

    pub fn end(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

pub fn file_at(processes: &mut Processes, mapper: &Mapper, at: MonoNs) -> Arc<MappedFile> {
    match processes.locate(mapper.id, at, mapper.address) {
        MappedLocation::File { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

pub fn content(file: &MappedFile) -> Vec<u8> {
    let fd = file.fd().unwrap_or_else(|why| panic!("{}: {why}", file.path.display()));
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(rustix::io::pread(&*fd, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// A process table that has received all events of a mapper's life so far.
pub struct TrackedProcesses {
    pub processes: Processes,
    pub sideband: Sideband,
}

impl TrackedProcesses {
    pub fn new() -> TrackedProcesses {
        let sideband = sideband();
        let mut processes = Processes::new(options());
        processes.scan(&ScanScope::Tgids(&[std::process::id()]));
        TrackedProcesses { processes, sideband }
    }

    pub fn apply_events(&mut self) {
        self.sideband.drain().iter().for_each(|event| self.processes.apply(event));
    }

    pub fn listen_to_the_end_of(&mut self, tgid: u32) {
        until_exit(&mut self.sideband, tgid).iter().for_each(|event| self.processes.apply(event));
    }
}
