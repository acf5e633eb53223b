//! A process that maps code, prints where, and waits; and a process table that follows it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use jbpf_prof::capture::sideband::Sideband;
use jbpf_prof::process::{
    EventKind, MappedFile, MappedLocation, ProcessEvent, ProcessOptions, Processes, ScanScope, procfs,
};
use jbpf_prof::sample::{MonoNs, ProcessId};
use tempfile::TempDir;
use testkit::native::copy;
use testkit::profiler::binary;
use testkit::{scratch, sources};

/// The usual limits, with the product's binary.
pub(super) fn options() -> ProcessOptions {
    ProcessOptions { binary: binary(), ..ProcessOptions::default() }
}

/// The sideband has the events of the whole machine, and most tests read it only after something has happened.
/// Thousands of processes would fill its rings until then. Tests that start these run while no other test has a
/// sideband.
static STORM: RwLock<()> = RwLock::new(());

/// While this lives, no other test has a sideband.
pub(super) fn begin_storm() -> RwLockWriteGuard<'static, ()> {
    STORM.write().unwrap_or_else(PoisonError::into_inner)
}

/// A sideband while no storm goes on. A test has one at a time: a second one would wait for a storm that waits for the
/// first.
pub(super) struct CalmSideband {
    pub(super) events: Sideband,
    _calm: RwLockReadGuard<'static, ()>,
}

impl CalmSideband {
    pub(super) fn open(cpus: Range<u32>) -> CalmSideband {
        let calm = STORM.read().unwrap_or_else(PoisonError::into_inner);
        CalmSideband { events: open_sideband(cpus), _calm: calm }
    }

    pub(super) fn of_all_cpus() -> CalmSideband {
        CalmSideband::open(all_cpus())
    }
}

pub(super) fn open_sideband(cpus: Range<u32>) -> Sideband {
    Sideband::open(cpus).expect("the tests of processes need root (perf events of all CPUs)")
}

pub(super) fn all_cpus() -> Range<u32> {
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    0..possible.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap() + 1
}

/// The identity that the BPF program would report, as exactly as `/proc` gives it.
pub(super) fn identity(tgid: u32) -> ProcessId {
    let stat = procfs::stat(tgid).unwrap();
    ProcessId { tgid, start: stat.start_ticks * 10_000_000, exec: 0 }
}

/// Drains until the process has ended.
pub(super) fn until_exit(sideband: &mut Sideband, tgid: u32) -> Vec<ProcessEvent> {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut events = Vec::new();
    loop {
        events.extend(sideband.drain());
        if events.iter().any(|e| e.tgid == tgid && e.tid == tgid && e.kind == EventKind::Exit) {
            return events;
        }
        assert!(Instant::now() < deadline, "the exit of {tgid} does not come; {} lost", sideband.lost());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory with `mapper`, `mapper-static`, `one.so` and `two.so`, whose contents differ.
pub(super) fn programs() -> TempDir {
    static COMPILED: OnceLock<[PathBuf; 4]> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| {
        let dir = scratch("mapper");
        let compile = |source: &str, out: &str, options: &[&str]| {
            let out = dir.join(out);
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-o"]).arg(&out).arg(sources().join(source)).args(options);
            assert!(cc.status().unwrap().success(), "{source}");
            out
        };
        [
            compile("mapper.c", "mapper", &["-ldl", "-pthread"]),
            compile("mapper.c", "mapper-static", &["-static", "-DSTATIC", "-pthread"]),
            compile("library.c", "one.so", &["-shared", "-fPIC", "-DWHICH=1"]),
            compile("library.c", "two.so", &["-shared", "-fPIC", "-DWHICH=2222"]),
        ]
    });
    // Tests replace these files.
    let dir = tempfile::tempdir().unwrap();
    for file in compiled {
        copy(file, &dir.path().join(file.file_name().unwrap()));
    }
    dir
}

/// A `mapper` that has printed where its code is.
pub(super) struct Mapper {
    pub(super) child: Child,
    /// The thread group, which is not the child's if another program started the mapper.
    pub(super) tgid: u32,
    pub(super) id: ProcessId,
    pub(super) address: u64,
}

impl Mapper {
    pub(super) fn start(command: &mut Command) -> Mapper {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("READY ").unwrap_or_else(|| panic!("mapper said {line:?}"));
        let tgid = child.id();
        Mapper { tgid, id: identity(tgid), address: u64::from_str_radix(address, 16).unwrap(), child }
    }

    pub(super) fn end(&mut self) {
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

pub(super) fn file_at(processes: &mut Processes, mapper: &Mapper, at: MonoNs) -> Arc<MappedFile> {
    match processes.locate(mapper.id, at, mapper.address) {
        MappedLocation::File { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

pub(super) fn content(file: &MappedFile) -> Vec<u8> {
    let fd = file.fd().unwrap_or_else(|why| panic!("{}: {why}", file.path.display()));
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(rustix::io::pread(&*fd, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// A process table that has received all events of a mapper's life so far.
pub(super) struct TrackedProcesses {
    pub(super) processes: Processes,
    pub(super) sideband: CalmSideband,
}

impl TrackedProcesses {
    pub(super) fn new() -> TrackedProcesses {
        let sideband = CalmSideband::of_all_cpus();
        let mut processes = Processes::new(options());
        processes.scan(&ScanScope::Tgids(&[std::process::id()]));
        TrackedProcesses { processes, sideband }
    }

    pub(super) fn apply_events(&mut self) {
        self.sideband.events.drain().iter().for_each(|event| self.processes.apply(event));
    }

    pub(super) fn listen_to_the_end_of(&mut self, tgid: u32) {
        until_exit(&mut self.sideband.events, tgid).iter().for_each(|event| self.processes.apply(event));
    }
}
