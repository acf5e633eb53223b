//! Real processes, seen through the side-band and the table. Needs root; says so when it is not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jbpf_prof::capture::sideband::Sideband;
use jbpf_prof::process::{
    EventKind, Location, MappedFile, MonoNs, OpenRefusal, Options, Owner, ProcessEvent, ProcessId, Processes,
    TargetRoot, Unopened, Which, procfs,
};

fn sideband() -> Sideband {
    Sideband::open(0..num_cpus()).expect("the tests of processes need root (perf events of all CPUs)")
}

fn num_cpus() -> u32 {
    let online = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    online.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap() + 1
}

/// The identity that BPF would give, as near as `/proc` tells it.
fn identity(tgid: u32) -> ProcessId {
    let stat = procfs::parse_stat(&procfs::read(&format!("/proc/{tgid}/stat")).unwrap()).unwrap();
    ProcessId { tgid, start: stat.start_ticks * 10_000_000, exec: 0 }
}

/// Drains until the process has ended.
fn until_exit(sideband: &mut Sideband, tgid: u32) -> Vec<ProcessEvent> {
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

#[test]
fn a_short_process_is_seen_whole_and_in_order() {
    let mut sideband = sideband();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let tgid = child.id();
    child.wait().unwrap();
    let events = until_exit(&mut sideband, tgid);
    assert!(events.is_sorted_by_key(|event| event.at));
    let steps: Vec<String> = events
        .iter()
        .filter(|event| event.tgid == tgid)
        .map(|event| match &event.kind {
            EventKind::Fork { parent } => {
                assert_eq!(*parent, std::process::id());
                "fork".into()
            }
            EventKind::Comm { name, exec: true } => format!("exec {}", String::from_utf8_lossy(name)),
            EventKind::Mmap(mapped) => mapped.path.file_name().unwrap().to_string_lossy().into_owned(),
            EventKind::Exit => "exit".into(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(steps.first().unwrap(), "fork");
    assert_eq!(steps[1], "exec true");
    assert!(
        steps.iter().any(|step| step == "true") && steps.iter().any(|step| step.starts_with("libc")),
        "{steps:?}"
    );
    assert_eq!(steps.last().unwrap(), "exit");
    assert_eq!(sideband.bad(), 0);
}

#[test]
fn a_process_that_has_ended_is_located_and_its_files_are_opened() {
    let mut processes = Processes::new(Options::default());
    let mut sideband = sideband();
    processes.scan(&Which::Tgids(&[std::process::id()]));
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let tgid = child.id();
    let id = identity(tgid);
    child.wait().unwrap();
    let events = until_exit(&mut sideband, tgid);
    events.iter().for_each(|event| processes.apply(event));
    let exit = events.iter().rev().find(|e| e.tgid == tgid && e.kind == EventKind::Exit).unwrap().at;
    let mut named = 0;
    for event in events.iter().filter(|event| event.tgid == tgid) {
        let EventKind::Mmap(mapped) = &event.kind else { continue };
        let at = MonoNs(exit.0 - 1);
        match processes.locate(id, at, mapped.start + 16) {
            Location::File { file, offset } => {
                assert_eq!((&file.path, offset), (&mapped.path, mapped.offset + 16));
                let fd = file.fd().unwrap_or_else(|why| panic!("{}: {why}", file.path.display()));
                let mut magic = [0; 4];
                rustix::io::pread(&*fd, &mut magic, 0).unwrap();
                assert_eq!(&magic, b"\x7fELF");
                assert!(!file.deleted_or_replaced);
                named += 1;
            }
            Location::Vdso { offset } => assert_eq!(offset, 16),
            other => panic!("{mapped:?}: {other:?}"),
        }
    }
    assert!(named >= 3, "program, loader and libc: {named}");
    let info = processes.info(id, MonoNs(exit.0 - 1)).unwrap();
    assert_eq!(&*info.comm, b"true");
    assert_eq!(info.exited, Some(exit));
    processes.retire(MonoNs(exit.0 + 1));
    assert_eq!(processes.info(id, MonoNs(exit.0 - 1)), None, "forgotten");
}
