//! Real processes, from fork to exit, through the sideband and the table.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use super::mapper::{
    CalmSideband, Mapper, all_cpus, begin_storm, content, file_at, identity, open_sideband, options,
    programs, until_exit,
};
use jbpf_prof::process::cgroup::CgroupMembership;
use jbpf_prof::process::{EventKind, MappedLocation, ProcessRoot, Processes, ScanScope, Vdso};
use jbpf_prof::sample::MonoNs;

#[test]
fn a_short_process_is_seen_whole_and_in_order() {
    let mut sideband = CalmSideband::of_all_cpus();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let tgid = child.id();
    child.wait().unwrap();
    let events = until_exit(&mut sideband.events, tgid);
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
    assert_eq!(sideband.events.bad(), 0);
}

#[test]
fn a_process_that_has_ended_is_located_and_its_files_are_opened() {
    let mut processes = Processes::new(options());
    let mut sideband = CalmSideband::of_all_cpus();
    processes.scan(&ScanScope::Tgids(&[std::process::id()]));
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let tgid = child.id();
    let id = identity(tgid);
    child.wait().unwrap();
    let events = until_exit(&mut sideband.events, tgid);
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
    // The second thread knows that the leader ends a moment before the kernel takes the leader's memory away.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read(format!("/proc/{}/maps", mapper.tgid)).unwrap_or_default().is_empty() {
        assert!(Instant::now() < deadline, "the leader still has memory");
        std::thread::yield_now();
    }
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
    let mut sideband = CalmSideband::open(0..1);
    for _ in 0..50 {
        sideband.events.close_cpu(0);
        sideband.events.close_cpu(0);
        sideband.events.open_cpu(0).unwrap();
        sideband.events.open_cpu(0).unwrap();
    }
    let tgid = on_cpu_0(&["true"]);
    let seen = until_exit(&mut sideband.events, tgid);
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
    let _storm = begin_storm();
    let dir = programs();
    let (mut processes, mut sideband) = (Processes::new(options()), open_sideband(0..1));
    // The ring is not read: 900 processes of more than 600 bytes each fill 512 KiB, and later records have no room.
    on_cpu_0(&["sh", "-c", "i=0; while [ $i -lt 1300 ]; do /bin/true; i=$((i+1)); done"]);
    let mapper = dir.path().join("mapper");
    let mapper =
        Mapper::start(Command::new("taskset").args(["-c", "0"]).arg(mapper).arg(dir.path().join("one.so")));
    sideband.drain().iter().for_each(|event| processes.apply(event));
    // Once there is room again, the kernel reports the number of lost records with the next record on that CPU.
    on_cpu_0(&["true"]);
    sideband.drain().iter().for_each(|event| processes.apply(event));
    assert!(sideband.lost() > 1000, "{}", sideband.lost());
    assert_eq!(processes.counts().events_lost, sideband.lost());
    let file = file_at(&mut processes, &mapper, MonoNs::now());
    assert!(content(&file) == fs::read(dir.path().join("one.so")).unwrap());
    // Processes whose end was lost are forgotten too.
    processes.retire(MonoNs(0));
    processes.retire(MonoNs(MonoNs::now().0 + 1));
    assert!(processes.counts().programs < 500, "{:?}", processes.counts());
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

/// Names the process that runs the storm.
const RUNS_STORM: &str = "JBPF_PROF_TEST_STORM";

/// The test is a process of its own: only it uses that process's memory.
#[test]
fn a_storm_of_processes_is_seen_whole_in_flat_memory() {
    let _storm = begin_storm();
    let (_crate, module) = module_path!().split_once("::").unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", &format!("{module}::storm")])
        .env(RUNS_STORM, "1")
        .output()
        .unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

/// Not a test: what the test above runs.
#[test]
#[ignore = "started by another test"]
fn storm() {
    if std::env::var_os(RUNS_STORM).is_none() {
        return;
    }
    // On a busy machine the rings may overflow before this process gets a CPU. Then the storm was not seen.
    assert!((0..20).any(|_| storm_is_seen_whole()), "events were lost each time");
}

/// Whether no event of a storm of processes was lost. Then all its processes have been seen, in flat memory.
fn storm_is_seen_whole() -> bool {
    const PROCESSES: usize = 1250;
    let (mut processes, mut sideband) = (Processes::new(options()), open_sideband(all_cpus()));
    processes.scan(&ScanScope::Tgids(&[std::process::id()]));
    let spawn = |_| {
        let mut child = Command::new("/bin/true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    };
    let spawners =
        [(); 2].map(|()| std::thread::spawn(move || (0..PROCESSES).map(spawn).collect::<Vec<u32>>()));
    let own = std::process::id();
    let (mut forked, mut executed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let mut early = None;
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut done = false;
    while !done {
        assert!(Instant::now() < deadline, "{} of {} ended", ended.len(), 2 * PROCESSES);
        // The check comes before the rings are emptied: then they hold everything.
        done = spawners.iter().all(|spawner| spawner.is_finished());
        sideband.wait(Duration::from_millis(50)).unwrap();
        for event in sideband.drain() {
            processes.apply(&event);
            match event.kind {
                EventKind::Fork { parent } if parent == own && event.is_leader() => forked.push(event.tgid),
                EventKind::Comm { ref name, exec: true } if **name == *b"true" => executed.push(event.tgid),
                EventKind::Exit if event.is_leader() => ended.push(event.tgid),
                _ => {}
            }
        }
        processes.retire(MonoNs(MonoNs::now().0 - 200_000_000));
        if early.is_none() && ended.len() > PROCESSES {
            early = Some(resident());
        }
    }
    let mut spawned: Vec<u32> = spawners.into_iter().flat_map(|spawner| spawner.join().unwrap()).collect();
    if sideband.lost() > 0 {
        eprintln!("{} events were lost", sideband.lost());
        return false;
    }
    assert_eq!(sideband.bad(), 0);
    let ours: HashSet<u32> = spawned.iter().copied().collect();
    // Other tests fork too.
    for seen in [&mut forked, &mut executed, &mut ended] {
        seen.retain(|tgid| ours.contains(tgid));
        seen.sort_unstable();
    }
    spawned.sort_unstable();
    let numbers = format!("{} {} of {}", forked.len(), executed.len(), spawned.len());
    assert!(forked == spawned && executed == spawned, "{numbers}");
    let grown = resident().saturating_sub(early.expect("the storm has a second half"));
    assert!(grown < 8 << 20, "resident memory grew by {grown} bytes in the second half");
    assert!(processes.counts().programs < 2 * PROCESSES, "{:?}", processes.counts());
    true
}
