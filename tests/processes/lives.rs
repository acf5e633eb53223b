//! Real processes, from fork to exit, through the sideband and the table.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::mapper::{
    Mapper, TrackedProcesses, content, file_at, identity, options, programs, sideband, until_exit,
};
use jbpf_prof::capture::sideband::Sideband;
use jbpf_prof::process::cgroup::CgroupMembership;
use jbpf_prof::process::{EventKind, MappedLocation, ProcessRoot, Processes, ScanScope, Vdso};
use jbpf_prof::sample::MonoNs;

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
    let mut processes = Processes::new(options());
    let mut sideband = sideband();
    processes.scan(&ScanScope::Tgids(&[std::process::id()]));
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
            MappedLocation::File { file, offset } => {
                assert_eq!((&file.path, offset), (&mapped.path, mapped.offset + 16));
                let fd = file.fd().unwrap_or_else(|why| panic!("{}: {why}", file.path.display()));
                let mut magic = [0; 4];
                rustix::io::pread(&*fd, &mut magic, 0).unwrap();
                assert_eq!(&magic, b"\x7fELF");
                assert!(!file.deleted_or_replaced);
                named += 1;
            }
            MappedLocation::Vdso { offset, vdso } => assert_eq!((offset, vdso), (16, Vdso::Native)),
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

#[test]
fn a_process_whose_main_thread_has_ended() {
    let dir = programs();
    let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg("leave"));
    let maps = fs::read(format!("/proc/{}/maps", mapper.tgid)).unwrap_or_default();
    assert!(maps.is_empty(), "the leader has no memory any more");
    let mut processes = Processes::new(options());
    processes.scan(&ScanScope::Tgids(&[mapper.tgid]));
    let file = file_at(&mut processes, &mapper, MonoNs::now());
    assert!(content(&file) == fs::read(dir.path().join("mapper")).unwrap());
    let code = processes.code(mapper.tgid).expect("a thread runs it");
    assert!(code.start_stack != 0);
    assert!(code.ranges.iter().any(|range| (range.start..range.end).contains(&mapper.address)));
    // The other facts are read as for any other process.
    let (its, own) = (ProcessRoot::of(mapper.tgid).unwrap(), ProcessRoot::of(std::process::id()).unwrap());
    assert_eq!((its.identity, its.mount_ns, its.uid), (own.identity, own.mount_ns, own.uid));
    assert_eq!((its.start_ticks, its.ns_pid), (mapper.id.start / 10_000_000, mapper.tgid));
    assert_eq!(CgroupMembership::of(mapper.tgid), CgroupMembership::of(std::process::id()));
}

#[test]
fn a_cpu_that_comes_and_goes_is_followed() {
    let mut sideband = Sideband::open([0]).unwrap();
    for _ in 0..50 {
        sideband.close_cpu(0);
        sideband.close_cpu(0);
        sideband.open_cpu(0).unwrap();
        sideband.open_cpu(0).unwrap();
    }
    let tgid = on_cpu_0(&["true"]);
    let seen = until_exit(&mut sideband, tgid);
    assert!(seen.iter().any(|event| event.tgid == tgid && matches!(event.kind, EventKind::Mmap(_))));
}

/// Runs a program to its end, on CPU 0 only.
fn on_cpu_0(program: &[&str]) -> u32 {
    let mut child = Command::new("taskset").args(["-c", "0"]).args(program).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    child.id()
}

#[test]
fn a_full_ring_is_counted_and_what_lives_is_still_known() {
    let dir = programs();
    let mut table =
        TrackedProcesses { processes: Processes::new(options()), sideband: Sideband::open([0]).unwrap() };
    // The ring is not read: 2,000 processes of more than 600 bytes each fill 512 KiB, and later records have no room.
    on_cpu_0(&["sh", "-c", "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done"]);
    let mapper = dir.path().join("mapper");
    let mapper =
        Mapper::start(Command::new("taskset").args(["-c", "0"]).arg(mapper).arg(dir.path().join("one.so")));
    table.apply_events();
    // Once there is room again, the kernel reports the number of lost records with the next record on that CPU.
    on_cpu_0(&["true"]);
    table.apply_events();
    assert!(table.sideband.lost() > 1000, "{}", table.sideband.lost());
    assert_eq!(table.processes.counts().events_lost, table.sideband.lost());
    let file = file_at(&mut table.processes, &mapper, MonoNs::now());
    assert!(content(&file) == fs::read(dir.path().join("one.so")).unwrap());
    // Processes whose end was lost are forgotten too.
    table.processes.retire(MonoNs(0));
    table.processes.retire(MonoNs(MonoNs::now().0 + 1));
    assert!(table.processes.counts().programs < 500, "{:?}", table.processes.counts());
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[test]
fn a_storm_of_processes_is_seen_whole_in_flat_memory() {
    const PROCESSES: usize = 1250;
    let mut table = TrackedProcesses::new();
    let spawners: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(|| {
                let spawn = |_| {
                    let mut child = Command::new("/bin/true").spawn().unwrap();
                    child.wait().unwrap();
                    child.id()
                };
                (0..PROCESSES).map(spawn).collect::<Vec<u32>>()
            })
        })
        .collect();
    let own = std::process::id();
    let (mut forked, mut executed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let mut early = None;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut done = false;
    while !done {
        assert!(Instant::now() < deadline, "{} of {} ended", ended.len(), 2 * PROCESSES);
        // The check comes before the rings are emptied: then they hold everything.
        done = spawners.iter().all(|spawner| spawner.is_finished());
        table.sideband.wait(Duration::from_millis(50)).unwrap();
        for event in table.sideband.drain() {
            table.processes.apply(&event);
            match event.kind {
                EventKind::Fork { parent } if parent == own && event.is_leader() => forked.push(event.tgid),
                EventKind::Comm { ref name, exec: true } if **name == *b"true" => executed.push(event.tgid),
                EventKind::Exit if event.is_leader() => ended.push(event.tgid),
                _ => {}
            }
        }
        table.processes.retire(MonoNs(MonoNs::now().0 - 200_000_000));
        if early.is_none() && ended.len() > PROCESSES {
            early = Some(resident());
        }
    }
    let mut spawned: Vec<u32> = spawners.into_iter().flat_map(|spawner| spawner.join().unwrap()).collect();
    assert_eq!(table.sideband.lost(), 0, "the rings were emptied in time");
    assert_eq!(table.sideband.bad(), 0);
    let ours: HashSet<u32> = spawned.iter().copied().collect();
    // Other tests of this process fork too.
    for seen in [&mut forked, &mut executed, &mut ended] {
        seen.retain(|tgid| ours.contains(tgid));
        seen.sort_unstable();
    }
    spawned.sort_unstable();
    assert!(
        forked == spawned && executed == spawned,
        "{} {} of {}",
        forked.len(),
        executed.len(),
        spawned.len()
    );
    let grown = resident().saturating_sub(early.expect("the storm has a second half"));
    assert!(grown < 8 << 20, "resident memory grew by {grown} bytes in the second half");
    assert!(table.processes.counts().programs < 2 * PROCESSES, "{:?}", table.processes.counts());
}
