//! Timelines that follow from events of the tests' own making.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use super::Vdso;
use super::code::CodeSource;
use super::event::{EventKind, Inode, MmapRecord, ProcessEvent};
use super::options::ProcessOptions;
use super::table::{Processes, ScanScope};
use super::{MappedLocation, Unlocated};
use crate::sample::{MonoNs, ProcessId};

/// A pid that no process has: above every `pid_max`.
const PID: u32 = 1 << 23;
const MS: u64 = 1_000_000;

struct EventScript {
    processes: Processes,
    begin: u64,
}

impl EventScript {
    fn new() -> EventScript {
        EventScript { processes: Processes::new(ProcessOptions::default()), begin: MonoNs::now().0 }
    }

    fn at(&self, ms: u64) -> MonoNs {
        MonoNs(self.begin + ms * MS)
    }

    fn apply(&mut self, ms: u64, tgid: u32, tid: u32, kind: EventKind) {
        let at = self.at(ms);
        self.processes.apply(&ProcessEvent { at, tgid, tid, kind });
    }

    fn fork(&mut self, ms: u64, parent: u32, tgid: u32) {
        self.apply(ms, tgid, tgid, EventKind::Fork { parent });
    }

    fn exec(&mut self, ms: u64, tgid: u32, name: &str) {
        self.apply(ms, tgid, tgid, EventKind::Comm { name: name.as_bytes().into(), exec: true });
    }

    fn exit(&mut self, ms: u64, tgid: u32, tid: u32) {
        self.apply(ms, tgid, tid, EventKind::Exit);
    }

    /// Maps a page of the file with this inode number at 0x1000.
    fn map(&mut self, ms: u64, tgid: u32, ino: u64) {
        let inode = Inode { major: 250, minor: 3, ino, generation: 1 };
        let path = Arc::from(Path::new("/nowhere/to/be/found"));
        let mapped = MmapRecord { start: 0x1000, len: 0x1000, offset: 0, inode, path };
        self.apply(ms, tgid, tgid, EventKind::Mmap(mapped));
    }

    /// The identity of a process that was forked at a time, after some execs.
    fn id(&self, forked: u64, tgid: u32, exec: u32) -> ProcessId {
        ProcessId { tgid, start: self.at(forked).0 + MonoNs::boot_offset() - 1000, exec }
    }

    /// Inode number of what is mapped at 0x1000.
    fn mapped(&mut self, ms: u64, id: ProcessId) -> Result<u64, Unlocated> {
        let at = self.at(ms);
        match self.processes.locate(id, at, 0x1800) {
            MappedLocation::File { file, offset: 0x800 } => Ok(file.inode.ino),
            MappedLocation::Unknown(why) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn comm(&mut self, ms: u64, id: ProcessId) -> String {
        let at = self.at(ms);
        String::from_utf8_lossy(&self.processes.info(id, at).unwrap().comm).into_owned()
    }
}

#[test]
fn exec_keeps_the_pid_and_changes_everything_else() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "sh");
    script.map(2, PID, 10);
    script.exec(5, PID, "java");
    script.map(6, PID, 20);
    let (sh, java) = (script.id(0, PID, 1), script.id(0, PID, 2));
    // Either may be asked first.
    assert_eq!(script.mapped(7, java), Ok(20));
    assert_eq!(script.mapped(4, sh), Ok(10));
    assert_eq!((script.comm(4, sh), script.comm(7, java)), ("sh".into(), "java".into()));
    // A sample within the exec: the new name was reported, but the number had not changed.
    assert_eq!(script.mapped(4, script.id(0, PID, 1)), Ok(10), "sh is known by its number");
}

/// After an exec, a pid stands for the new program, although samples of the old one come with its own identity.
#[test]
fn a_program_that_executed_another_one_is_a_former_one() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    let (sh, java) = (script.id(0, PID, 0), script.id(0, PID, 1));
    script.map(2, PID, 10);
    assert_eq!(script.mapped(3, sh), Ok(10));
    assert!(!script.processes.is_former(sh));
    script.exec(5, PID, "java");
    script.map(6, PID, 20);
    assert!(
        script.processes.is_former(sh) && !script.processes.is_former(java),
        "before java was seen to run"
    );
    assert_eq!(script.mapped(7, java), Ok(20));
    assert!(script.processes.is_former(sh) && !script.processes.is_former(java));
}

#[test]
fn a_missed_exec_event_gives_no_wrong_names() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "sh");
    script.map(2, PID, 10);
    assert_eq!(script.mapped(3, script.id(0, PID, 7)), Ok(10));
    script.fork(4, PID, PID + 1);
    assert_eq!(script.mapped(5, script.id(4, PID + 1, 7)), Ok(10), "a fork has the number of its parent");
    script.fork(6, PID, PID + 2);
    script.apply(7, 0, 0, EventKind::Lost(3));
    // Another number means another program.
    assert_eq!(script.mapped(8, script.id(6, PID + 2, 8)), Err(Unlocated::ProcessGone));
    assert_eq!(script.mapped(8, script.id(0, PID, 8)), Err(Unlocated::ProcessGone));
}

#[test]
fn a_fork_has_what_its_parent_had() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "httpd");
    script.map(2, PID, 10);
    script.fork(3, PID, PID + 1);
    script.map(4, PID, 20);
    let child = script.id(3, PID + 1, 1);
    assert_eq!(script.mapped(5, child), Ok(10), "what the parent maps later is not the child's");
    let parent = script.id(0, PID, 1);
    assert_eq!(script.mapped(5, parent), Ok(20));
    assert_eq!(script.comm(5, child), "httpd");
    script.map(6, PID + 1, 30);
    assert_eq!((script.mapped(7, child), script.mapped(7, parent)), (Ok(30), Ok(20)));
    assert_eq!(script.mapped(5, child), Ok(10));
}

#[test]
fn code_is_an_ancestors_if_neither_an_exec_nor_a_mapping_has_come_since() {
    const LATE: u64 = 100_000_000;
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(0, PID, "php-fpm");
    script.map(0, PID, 0);
    script.fork(0, PID, PID + 1);
    // Long after the file was written.
    script.fork(LATE, PID, PID + 2);
    script.fork(LATE + 1, PID + 2, PID + 3);
    script.fork(LATE + 2, PID + 3, PID + 4);
    script.exec(LATE + 3, PID + 4, "sh");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let file = tempfile::tempfile().unwrap();
    let at = script.at(LATE + 4);
    let ids = [script.id(0, PID + 1, 1), script.id(LATE, PID + 2, 1), script.id(LATE + 1, PID + 3, 1)];
    let shell = script.id(LATE + 2, PID + 4, 2);
    let mut tgids = |id| script.processes.ancestors(id, at).iter().map(|a| a.tgid).collect::<Vec<_>>();
    assert_eq!(ids.map(&mut tgids), [vec![PID], vec![PID], vec![PID + 2, PID]]);
    assert_eq!(tgids(shell), [0; 0], "it has executed another program");
    let of = |script: &mut EventScript, id, ms| {
        let at = script.at(ms);
        let ancestor = *script.processes.ancestors(id, at).last().unwrap();
        script.processes.inherited(id, at, ancestor, file.as_fd(), &[0x1800, 0x9000])
    };
    assert_eq!(of(&mut script, ids[0], LATE + 4), [false, false], "the file was written since");
    for child in &ids[1..] {
        assert_eq!(of(&mut script, *child, LATE + 4), [true, false], "{child:?}");
    }
    script.map(LATE + 5, PID + 3, 10);
    script.map(LATE + 6, PID + 3, 0);
    assert_eq!(of(&mut script, ids[2], LATE + 7), [false, false], "it was mapped since");
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "first");
    script.map(2, PID, 10);
    script.exit(3, PID, PID);
    script.fork(100_000, 1, PID);
    script.exec(100_001, PID, "second");
    script.map(100_002, PID, 20);
    let (first, second) = (script.id(0, PID, 1), script.id(100_000, PID, 1));
    assert_eq!((script.mapped(2, first), script.mapped(100_003, second)), (Ok(10), Ok(20)));
    assert_eq!((script.comm(2, first), script.comm(100_003, second)), ("first".into(), "second".into()));
    // Their starts distinguish them even where the time does not.
    let stranger = script.id(50_000, PID, 1);
    assert_eq!(script.mapped(100_003, stranger), Err(Unlocated::ProcessGone));
}

#[test]
fn a_process_ends_with_its_last_thread() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "java");
    script.map(2, PID, 10);
    script.apply(3, PID, PID + 1, EventKind::Fork { parent: PID });
    script.apply(4, PID, PID + 2, EventKind::Fork { parent: PID });
    script.exit(5, PID, PID);
    script.exit(6, PID, PID + 2);
    let id = script.id(0, PID, 1);
    let exited = |script: &mut EventScript, ms| {
        let at = script.at(ms);
        script.processes.info(id, at).unwrap().exited
    };
    assert_eq!(exited(&mut script, 7), None, "one thread is left");
    script.processes.retire(script.at(1000));
    assert_eq!(script.mapped(8, id), Ok(10));
    script.exit(9, PID, PID + 1);
    let end = script.at(9);
    assert_eq!(exited(&mut script, 9), Some(end));
    script.processes.retire(script.at(9));
    assert_eq!(script.mapped(8, id), Ok(10), "its last stacks may still come");
    script.processes.retire(script.at(10));
    assert_eq!(script.mapped(8, id), Err(Unlocated::ProcessGone));
    assert_eq!(script.processes.counts().programs, 0);
}

#[test]
fn a_thread_that_execs_becomes_the_leader() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "a");
    script.apply(2, PID, PID + 1, EventKind::Fork { parent: PID });
    script.exit(3, PID, PID);
    script.exec(4, PID, "b");
    script.map(5, PID, 10);
    let id = script.id(0, PID, 2);
    assert_eq!(script.mapped(6, id), Ok(10));
    script.exit(7, PID, PID);
    let at = script.at(6);
    assert_eq!(script.processes.info(id, at).unwrap().exited, Some(script.at(7)));
}

#[test]
fn a_name_of_a_thread_is_not_the_process_s() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "java");
    script.apply(2, PID, PID + 1, EventKind::Fork { parent: PID });
    script.apply(3, PID, PID + 1, EventKind::Comm { name: b"GC Thread"[..].into(), exec: false });
    let id = script.id(0, PID, 1);
    assert_eq!(script.comm(4, id), "java");
    script.apply(5, PID, PID, EventKind::Comm { name: b"renamed"[..].into(), exec: false });
    assert_eq!(script.comm(6, id), "renamed");
}

#[test]
fn a_storm_of_short_processes_keeps_a_bounded_number() {
    let mut script = EventScript::new();
    for i in 0..50_000 {
        script.fork(u64::from(i), 1, PID + i);
        script.exec(u64::from(i), PID + i, "true");
        script.map(u64::from(i), PID + i, 10);
        script.exit(u64::from(i), PID + i, PID + i);
    }
    let counts = script.processes.counts();
    assert!(counts.programs <= 17_000, "{counts:?}");
    assert!(counts.forgotten >= 33_000, "{counts:?}");
    assert_eq!(counts.files, 1);
    script.processes.retire(script.at(60_000));
    let counts = script.processes.counts();
    assert_eq!((counts.programs, counts.mappings, counts.files), (0, 0, 0));
}

#[test]
fn mappings_are_limited_and_it_is_said() {
    let options = ProcessOptions { max_mappings: 100, ..ProcessOptions::default() };
    let mut script = EventScript { processes: Processes::new(options), begin: MonoNs::now().0 };
    script.fork(0, 1, PID);
    script.exec(1, PID, "hoarder");
    script.map(1, PID, 10);
    for i in 1..1000 {
        let path = Arc::from(Path::new(""));
        let mapped = MmapRecord {
            start: 0x10_000 + i * 0x2000,
            len: 0x1000,
            offset: 0,
            inode: Inode::default(),
            path,
        };
        script.apply(2, PID, PID, EventKind::Mmap(mapped));
    }
    assert_eq!(script.processes.counts().mappings_refused, 900);
    let id = script.id(0, PID, 1);
    assert_eq!(script.mapped(3, id), Ok(10));
    let at = script.at(3);
    let beyond = script.processes.locate(id, at, 0x10_000 + 999 * 0x2000);
    assert!(matches!(beyond, MappedLocation::Unknown(Unlocated::TooManyMappings)), "{beyond:?}");
}

#[test]
fn forks_of_a_hoarder_do_not_multiply_what_is_kept() {
    let options = ProcessOptions { max_mappings_in_all: 5_000, ..ProcessOptions::default() };
    let mut script = EventScript { processes: Processes::new(options), begin: MonoNs::now().0 };
    script.fork(0, 1, PID);
    script.exec(1, PID, "hoarder");
    let anonymous = |i: u64| {
        let path = Arc::from(Path::new(""));
        let start = 0x10_000 + i * 0x2000;
        EventKind::Mmap(MmapRecord { start, len: 0x1000, offset: 0, inode: Inode::default(), path })
    };
    (0..1000).for_each(|i| script.apply(2, PID, PID, anonymous(i)));
    for child in 1..1000 {
        script.fork(3, PID, PID + child);
        script.apply(4, PID + child, PID + child, anonymous(5000));
    }
    script.processes.retire(script.at(0));
    let counts = script.processes.counts();
    assert!(counts.mappings <= 5_000 && counts.mappings_refused >= 990, "{counts:?}");
}

#[test]
fn after_a_loss_processes_that_are_gone_are_forgotten() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.exec(1, PID, "java");
    script.apply(2, 0, 0, EventKind::Lost(5));
    // Its exit was among the lost events.
    script.processes.retire(script.at(0));
    script.processes.retire(script.at(60_000));
    let counts = script.processes.counts();
    assert_eq!((counts.programs, counts.events_lost), (0, 5));
}

#[test]
fn what_was_seen_in_proc_is_not_overwritten_by_older_events() {
    let mut script = EventScript::new();
    let own = std::process::id();
    assert_eq!(script.processes.scan(&ScanScope::Tgids(&[own])), 1);
    let id =
        ProcessId { tgid: own, start: super::procfs::stat(own).unwrap().start_ticks * 10_000_000, exec: 1 };
    // This event comes late: it happened before the scan.
    script.processes.apply(&ProcessEvent {
        at: MonoNs(1),
        tgid: own,
        tid: own,
        kind: EventKind::Comm { name: b"before"[..].into(), exec: true },
    });
    let now = MonoNs::now();
    let here = our_own_function as *const () as u64;
    let location = script.processes.locate(id, now, here);
    assert!(matches!(location, MappedLocation::File { .. }), "{location:?}");
    assert_ne!(script.comm(0, id), "before");
    assert!(matches!(script.processes.locate(id, now, 0x10), MappedLocation::Unknown(Unlocated::NotMapped)));
    assert!(matches!(script.processes.locate(id, now, 0xffff_ffff_ff60_0400), MappedLocation::Vsyscall));
}

#[test]
fn what_took_long_to_read_is_read_again_seldom() {
    let own = std::process::id();
    let mut processes = Processes::new(ProcessOptions::default());
    assert_eq!(processes.scan(&ScanScope::Tgids(&[own])), 1);
    let start = super::procfs::stat(own).unwrap().start_ticks * 10_000_000;
    let id = ProcessId { tgid: own, start, exec: 1 };
    let mut is_read = |took: u64, ago: u64| {
        let now = MonoNs::now();
        let before = MonoNs(now.0 - ago);
        if let Some(program) = processes.program(own, 0) {
            (program.read_took, program.reread) = (took, before);
        }
        let nowhere = processes.locate(id, now, 0x10);
        assert!(matches!(nowhere, MappedLocation::Unknown(Unlocated::NotMapped)), "{nowhere:?}");
        processes.program(own, 0).unwrap().reread != before
    };
    assert!(is_read(0, 2000 * MS), "for the first time");
    assert!(!is_read(MS, 900 * MS) && is_read(MS, 1100 * MS), "a second has passed");
    assert!(!is_read(200 * MS, 19_000 * MS) && is_read(200 * MS, 21_000 * MS), "a quarter of a million");
}

#[test]
fn a_process_ends_with_the_last_of_its_threads() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.apply(1, PID, PID + 1, EventKind::Fork { parent: PID });
    script.exit(2, PID, PID);
    assert!(!script.processes.has_ended(PID), "another thread runs");
    script.exit(3, PID, PID + 1);
    assert!(script.processes.has_ended(PID) && !script.processes.has_ended(PID + 1));
}

fn our_own_function() {}

#[test]
fn descendants() {
    let mut script = EventScript::new();
    script.fork(0, 1, PID);
    script.fork(1, PID, PID + 1);
    script.fork(2, PID + 1, PID + 2);
    script.fork(2, 1, PID + 3);
    script.fork(3, PID, PID + 4);
    script.exit(4, PID + 4, PID + 4);
    assert_eq!(script.processes.descendants(&[PID]), [PID, PID + 1, PID + 2]);
    assert_eq!(script.processes.descendants(&[7]), [7]);
}

#[test]
fn the_code_of_a_process_is_known_before_it_is_sampled() {
    let own = std::process::id();
    let mut processes = Processes::new(ProcessOptions::default());
    assert_eq!(processes.scan(&ScanScope::Tgids(&[own])), 1);
    assert_eq!(processes.take_changed_processes(), [own].into());
    let code = processes.code(own).unwrap();
    let here = the_code_of_a_process_is_known_before_it_is_sampled as fn() as usize as u64;
    let range = code.ranges.iter().find(|range| range.start <= here && here < range.end).unwrap();
    assert!(matches!(range.code, CodeSource::File(_)));
    assert!(range.start <= code.start_code && code.start_code < range.end);
    assert!(code.ranges.iter().any(|range| matches!(range.code, CodeSource::Vdso(Vdso::Native))));
    assert!(code.ranges.is_sorted_by(|a, b| a.end <= b.start));
    processes.take_changed_processes();
    processes.code(own);
    assert!(processes.take_changed_processes().is_empty(), "asking changes nothing");
    // PID is no process, and 2 is a kernel thread.
    assert!(processes.code(PID).is_none() && processes.code(2).is_none());
}

#[test]
fn what_happens_to_a_process_is_noted() {
    let mut script = EventScript::new();
    script.fork(1, 1, PID);
    script.fork(2, PID, PID + 1);
    assert_eq!(script.processes.take_changed_processes(), [PID, PID + 1].into());
    assert!(script.processes.descends(PID + 1, &[PID]) && !script.processes.descends(PID, &[PID + 1]));
    script.map(3, PID + 1, 7);
    assert_eq!(script.processes.take_changed_processes(), [PID + 1].into());
    script.exec(4, PID, "new");
    assert_eq!(script.processes.take_changed_processes(), [PID].into());
    script.exit(5, PID, PID);
    assert_eq!(script.processes.take_changed_processes(), [PID].into());
    assert!(!script.processes.is_alive(PID) && script.processes.is_alive(PID + 1));
}
