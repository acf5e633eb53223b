//! Real processes, seen through the side-band and the table. Needs root; says so when it is not.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jbpf_prof::capture::sideband::Sideband;
use jbpf_prof::process::{
    EventKind, Location, MappedFile, MonoNs, OpenRefusal, Options, Owner, ProcessEvent, ProcessId, Processes,
    TargetRoot, Unopened, Which, procfs,
};
use tempfile::TempDir;

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

/// A directory with `mapper`, `mapper-static`, `one.so` and `two.so`, whose contents differ.
fn programs() -> TempDir {
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

/// A `mapper` that has said where its code is.
struct Mapper {
    child: Child,
    /// Thread group; not the child's if another program started it.
    tgid: u32,
    id: ProcessId,
    address: u64,
}

impl Mapper {
    fn start(command: &mut Command) -> Mapper {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("READY ").unwrap_or_else(|| panic!("mapper said {line:?}"));
        let tgid = child.id();
        Mapper { tgid, id: identity(tgid), address: u64::from_str_radix(address, 16).unwrap(), child }
    }

    fn end(&mut self) {
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

fn file_at(processes: &mut Processes, mapper: &Mapper, at: MonoNs) -> std::sync::Arc<MappedFile> {
    match processes.locate(mapper.id, at, mapper.address) {
        Location::File { file, .. } => file,
        other => panic!("{other:?}"),
    }
}

fn content(file: &MappedFile) -> Vec<u8> {
    let fd = file.fd().unwrap_or_else(|why| panic!("{}: {why}", file.path.display()));
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(rustix::io::pread(&*fd, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// A table that has heard all of a mapper's life so far.
struct Heard {
    processes: Processes,
    sideband: Sideband,
}

impl Heard {
    fn new() -> Heard {
        let sideband = sideband();
        let mut processes = Processes::new(Options::default());
        processes.scan(&Which::Tgids(&[std::process::id()]));
        Heard { processes, sideband }
    }

    fn listen(&mut self) {
        self.sideband.drain().iter().for_each(|event| self.processes.apply(event));
    }

    fn listen_to_the_end_of(&mut self, tgid: u32) {
        until_exit(&mut self.sideband, tgid).iter().for_each(|event| self.processes.apply(event));
    }
}

#[test]
fn a_deleted_or_replaced_library_is_read_as_it_was_mapped() {
    let dir = programs();
    let library = dir.path().join("mapped.so");
    let one = fs::read(dir.path().join("one.so")).unwrap();
    for replace in [false, true] {
        for heard in [false, true] {
            fs::copy(dir.path().join("one.so"), &library).unwrap();
            let mut table = Heard::new();
            let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
            fs::remove_file(&library).unwrap();
            if replace {
                fs::copy(dir.path().join("two.so"), &library).unwrap();
            }
            if heard {
                table.listen();
            } else {
                table.processes.scan(&Which::Tgids(&[mapper.tgid]));
            }
            let file = file_at(&mut table.processes, &mapper, MonoNs::now());
            assert_eq!(file.path, library.as_path().into());
            assert!(file.deleted_or_replaced);
            assert!(content(&file) == one, "the file that was mapped, not the one that is there now");
        }
    }
}

#[test]
fn after_the_end_another_file_at_the_path_is_refused() {
    let dir = programs();
    let library = dir.path().join("mapped.so");
    let two = fs::read(dir.path().join("two.so")).unwrap();
    type Change = fn(&Path, &[u8]);
    let changes: [(Change, Unopened); 4] = [
        (|path, _| fs::remove_file(path).unwrap(), OpenRefusal::Missing.into()),
        (|path, new| fs::write(path, new).unwrap(), Unopened::Replaced),
        (
            |path, new| {
                // As likely as not the same inode number is used again.
                fs::remove_file(path).unwrap();
                fs::write(path, new).unwrap();
            },
            Unopened::Replaced,
        ),
        (
            |path, _| {
                fs::remove_file(path).unwrap();
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
                    .unwrap();
            },
            OpenRefusal::NotRegular.into(),
        ),
    ];
    for (change, why) in changes {
        fs::copy(dir.path().join("one.so"), &library).unwrap();
        let mut table = Heard::new();
        let mut mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
        let at = MonoNs::now();
        mapper.end();
        // The kernel stamps files with the time of its last tick; the slack for that is 20 ms.
        std::thread::sleep(Duration::from_millis(100));
        change(&library, &two);
        table.listen_to_the_end_of(mapper.tgid);
        let file = file_at(&mut table.processes, &mapper, at);
        assert_eq!(file.fd().unwrap_err(), why);
        fs::remove_file(&library).ok();
    }
}

#[test]
fn an_unchanged_file_is_opened_after_the_end_and_shared() {
    let dir = programs();
    let library = dir.path().join("one.so");
    let mut table = Heard::new();
    let mut found = Vec::new();
    for _ in 0..2 {
        let mut mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
        let at = MonoNs::now();
        mapper.end();
        table.listen_to_the_end_of(mapper.tgid);
        let file = file_at(&mut table.processes, &mapper, at);
        assert!(content(&file) == fs::read(&library).unwrap() && !file.deleted_or_replaced);
        found.push(file);
    }
    assert_eq!(found[0].id, found[1].id);
    // Written over between two programs that map it: another content, under the same inode number.
    fs::copy(dir.path().join("two.so"), &library).unwrap();
    let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
    table.listen();
    let file = file_at(&mut table.processes, &mapper, MonoNs::now());
    assert_ne!(file.id, found[0].id);
    assert!(content(&file) == fs::read(dir.path().join("two.so")).unwrap());
}

/// A process in a mount namespace of its own, made by a script, as a container's first process is.
fn mount_namespace(dir: &Path, script: &str) -> Mapper {
    let script = format!("cd \"$0\" && {script} && echo READY 0 && exec cat");
    Mapper::start(Command::new("unshare").args(["-m", "sh", "-c", &script]).arg(dir))
}

/// A command that runs in that namespace, but as our child.
fn entering(namespace: &Mapper, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount=/proc/{}/ns/mnt", namespace.tgid)).arg(program);
    command
}

#[test]
fn a_path_means_what_it_means_in_the_process_s_own_mount_namespace() {
    let dir = programs();
    let (mapper, one) = (dir.path().join("mapper"), dir.path().join("one.so"));
    let two = fs::read(dir.path().join("two.so")).unwrap();
    let container = mount_namespace(dir.path(), "mount --bind two.so one.so");
    let start = || Mapper::start(entering(&container, &mapper).arg(&one));
    // Alive, seen in /proc.
    let living = start();
    let mut processes = Processes::new(Options::default());
    processes.scan(&Which::Tgids(&[living.tgid]));
    let file = file_at(&mut processes, &living, MonoNs::now());
    assert!(content(&file) == two && *file.path == *one && !file.deleted_or_replaced);
    // Ended, and nothing is known of the namespace: our own file at that path is not taken for it.
    let mut table = Heard::new();
    let mut ended = start();
    let at = MonoNs::now();
    ended.end();
    table.listen_to_the_end_of(ended.tgid);
    assert_eq!(file_at(&mut table.processes, &ended, at).fd().unwrap_err(), Unopened::Replaced);
    // Ended, but its namespace is known from another process of it.
    let mut table = Heard::new();
    table.processes.scan(&Which::Tgids(&[container.tgid]));
    let root = table.processes.root(container.id, MonoNs::now()).unwrap();
    assert_ne!(root.mount_ns, TargetRoot::of(std::process::id()).unwrap().mount_ns);
    let mut ended = start();
    let at = MonoNs::now();
    ended.end();
    table.listen_to_the_end_of(ended.tgid);
    assert!(content(&file_at(&mut table.processes, &ended, at)) == two);
}

#[test]
fn in_a_chroot() {
    let dir = programs();
    let jail = dir.path().join("jail");
    fs::create_dir(&jail).unwrap();
    fs::copy(dir.path().join("mapper-static"), jail.join("prog")).unwrap();
    let start = || Mapper::start(Command::new("chroot").arg(&jail).arg("/prog"));
    let program = fs::read(jail.join("prog")).unwrap();
    // Found in /proc, which shows the path as seen from our root.
    let mapper = start();
    let mut processes = Processes::new(Options::default());
    processes.scan(&Which::Tgids(&[mapper.tgid]));
    let file = file_at(&mut processes, &mapper, MonoNs::now());
    assert!(content(&file) == program && !file.deleted_or_replaced, "{file:?}");
    // Heard of, and ended.
    let mut table = Heard::new();
    let mut mapper = start();
    table.listen();
    let at = MonoNs::now();
    assert!(table.processes.root(mapper.id, at).is_some());
    mapper.end();
    table.listen_to_the_end_of(mapper.tgid);
    let file = file_at(&mut table.processes, &mapper, at);
    assert_eq!(*file.path, *Path::new("/prog"));
    assert!(content(&file) == program);
}

#[test]
fn on_overlayfs() {
    let dir = programs();
    fs::create_dir(dir.path().join("merged")).unwrap();
    fs::create_dir(dir.path().join("tmpfs")).unwrap();
    // An upper directory may not lie on overlayfs itself.
    let script = "mount -t tmpfs tmpfs tmpfs && mkdir tmpfs/upper tmpfs/work && mount -t overlay overlay -o \
        lowerdir=.,upperdir=tmpfs/upper,workdir=tmpfs/work merged && cp one.so merged/upper.so";
    let container = mount_namespace(dir.path(), script);
    let merged = dir.path().join("merged");
    let one = fs::read(dir.path().join("one.so")).unwrap();
    for library in ["one.so", "upper.so"] {
        let mut table = Heard::new();
        table.processes.scan(&Which::Tgids(&[container.tgid]));
        assert!(table.processes.root(container.id, MonoNs::now()).is_some());
        let start = || Mapper::start(entering(&container, &merged.join("mapper")).arg(merged.join(library)));
        let living = start();
        table.listen();
        let file = file_at(&mut table.processes, &living, MonoNs::now());
        assert!(content(&file) == one && !file.deleted_or_replaced, "{library}: {file:?}");
        drop((file, table));
        let mut table = Heard::new();
        table.processes.scan(&Which::Tgids(&[container.tgid]));
        assert!(table.processes.root(container.id, MonoNs::now()).is_some());
        let mut ended = start();
        let at = MonoNs::now();
        ended.end();
        table.listen_to_the_end_of(ended.tgid);
        assert!(content(&file_at(&mut table.processes, &ended, at)) == one, "{library}");
    }
}

#[test]
fn a_process_whose_main_thread_has_ended() {
    let dir = programs();
    let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg("leave"));
    let maps = fs::read(format!("/proc/{}/maps", mapper.tgid)).unwrap_or_default();
    assert!(maps.is_empty(), "the leader has no memory any more");
    let mut processes = Processes::new(Options::default());
    processes.scan(&Which::Tgids(&[mapper.tgid]));
    let file = file_at(&mut processes, &mapper, MonoNs::now());
    assert!(content(&file) == fs::read(dir.path().join("mapper")).unwrap());
}

#[test]
fn descriptors_are_few_and_files_keep_their_identity() {
    let dir = programs();
    let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(dir.path().join("one.so")));
    let mut processes = Processes::new(Options { max_open_files: 2, ..Options::default() });
    processes.scan(&Which::Tgids(&[mapper.tgid]));
    let (maps, _) = procfs::parse_maps(&procfs::read(&format!("/proc/{}/maps", mapper.tgid)).unwrap());
    let starts: Vec<u64> =
        maps.iter().filter(|entry| entry.inode.ino != 0).map(|entry| entry.start).collect();
    assert!(starts.len() >= 4, "{maps:?}");
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let mut ids = Vec::new();
        for &start in &starts {
            let Location::File { file, .. } = processes.locate(mapper.id, MonoNs::now(), start) else {
                panic!()
            };
            file.fd().unwrap();
            ids.push(file.id);
            assert!(processes.counts().open_files <= 2);
        }
        rounds.push(ids);
    }
    assert_eq!(rounds[0], rounds[1]);
    assert_eq!(rounds[0].iter().collect::<HashSet<_>>().len(), starts.len());
}

#[test]
fn paths_of_tenants_lead_nowhere_else() {
    let dir = programs();
    let jail = dir.path().join("jail");
    fs::create_dir_all(jail.join("tmp")).unwrap();
    fs::copy(dir.path().join("mapper-static"), jail.join("prog")).unwrap();
    fs::write(dir.path().join("secret"), "host").unwrap();
    let secret = dir.path().join("secret");
    fs::write(jail.join("tmp/own"), "tenant").unwrap();
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, jail.join("tmp").join(name)).unwrap();
    link(&secret, "absolute");
    link(Path::new("../../../../../../../../../../../../etc/passwd"), "up");
    link(Path::new("/proc/self/root/etc/passwd"), "magic");
    link(Path::new("/tmp/own"), "own-link");
    fs::create_dir(jail.join("tmp/dir")).unwrap();
    let fifo = jail.join("tmp/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    fs::write(jail.join("tmp/foreign"), "x").unwrap();
    std::os::unix::fs::chown(jail.join("tmp/foreign"), Some(12345), None).unwrap();
    let mapper = Mapper::start(Command::new("chroot").arg(&jail).arg("/prog"));
    let root = TargetRoot::of(mapper.tgid).unwrap();
    let open = |name: &str, owner| root.open_regular(&PathBuf::from("/tmp").join(name), owner);
    for name in ["absolute", "up", "magic", "fifo", "dir", "none"] {
        let why = open(name, Owner::Any).unwrap_err();
        let right = match name {
            "fifo" | "dir" => why == OpenRefusal::NotRegular,
            _ => why == OpenRefusal::Missing,
        };
        assert!(right, "{name}: {why}");
    }
    let ino = |fd: std::os::fd::OwnedFd| rustix::fs::fstat(fd.as_fd()).unwrap().st_ino;
    let own = fs::metadata(jail.join("tmp/own")).unwrap().ino();
    assert_eq!(ino(open("own", Owner::TargetOrRoot).unwrap()), own);
    assert_eq!(ino(open("own-link", Owner::Any).unwrap()), own);
    assert_eq!(open("own-link", Owner::TargetOrRoot).unwrap_err(), OpenRefusal::NotRegular);
    assert_eq!(open("foreign", Owner::TargetOrRoot).unwrap_err(), OpenRefusal::ForeignOwner);
    drop(mapper);
    assert_eq!(TargetRoot::of(1 << 23).unwrap_err(), OpenRefusal::ProcessGone);
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
        Heard { processes: Processes::new(Options::default()), sideband: Sideband::open([0]).unwrap() };
    // Nobody reads: 2,000 processes of more than 600 bytes each fill 512 KiB, and what comes then has no room.
    on_cpu_0(&["sh", "-c", "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done"]);
    let mapper = dir.path().join("mapper");
    let mapper =
        Mapper::start(Command::new("taskset").args(["-c", "0"]).arg(mapper).arg(dir.path().join("one.so")));
    table.listen();
    // The kernel says how many were lost when it has room again, with the next record on that CPU.
    on_cpu_0(&["true"]);
    table.listen();
    assert!(table.sideband.lost() > 1000, "{}", table.sideband.lost());
    assert_eq!(table.processes.counts().events_lost, table.sideband.lost());
    let file = file_at(&mut table.processes, &mapper, MonoNs::now());
    assert!(content(&file) == fs::read(dir.path().join("one.so")).unwrap());
    // Those whose end was lost are forgotten too.
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
    const EACH: usize = 1250;
    let mut table = Heard::new();
    let spawners: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(|| {
                let spawn = |_| {
                    let mut child = Command::new("/bin/true").spawn().unwrap();
                    child.wait().unwrap();
                    child.id()
                };
                (0..EACH).map(spawn).collect::<Vec<u32>>()
            })
        })
        .collect();
    let own = std::process::id();
    let (mut forked, mut executed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    let mut early = None;
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut done = false;
    while !done {
        assert!(Instant::now() < deadline, "{} of {} ended", ended.len(), 2 * EACH);
        // Looked at before the rings are emptied: then they hold all of it.
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
        if early.is_none() && ended.len() > EACH {
            early = Some(resident());
        }
    }
    let mut spawned: Vec<u32> = spawners.into_iter().flat_map(|spawner| spawner.join().unwrap()).collect();
    assert_eq!(table.sideband.lost(), 0, "the rings were emptied in time");
    assert_eq!(table.sideband.bad(), 0);
    let ours: HashSet<u32> = spawned.iter().copied().collect();
    // Other tests of this process fork, too.
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
    assert!(table.processes.counts().programs < 2 * EACH, "{:?}", table.processes.counts());
}
