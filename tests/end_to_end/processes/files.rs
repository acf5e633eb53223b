//! The files that real processes map are opened as they were mapped; another file is never opened instead.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::mapper::{Mapper, TrackedProcesses, content, file_at, options, programs};
use jbpf_prof::process::{
    FileOwner, MappedLocation, OpenRefusal, ProcessOptions, ProcessRoot, Processes, ScanScope, Unopened,
    maps, procfs,
};
use jbpf_prof::sample::MonoNs;
use testkit::native::copy;

#[test]
fn a_deleted_or_replaced_library_is_read_as_it_was_mapped() {
    let dir = programs();
    let library = dir.path().join("mapped.so");
    let one = fs::read(dir.path().join("one.so")).unwrap();
    for replace in [false, true] {
        for by_events in [false, true] {
            fs::copy(dir.path().join("one.so"), &library).unwrap();
            let mut table = TrackedProcesses::new();
            let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
            fs::remove_file(&library).unwrap();
            if replace {
                fs::copy(dir.path().join("two.so"), &library).unwrap();
            }
            if by_events {
                table.apply_events();
            } else {
                table.processes.scan(&ScanScope::Tgids(&[mapper.tgid]));
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
                // The new file probably gets the same inode number.
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
        let mut table = TrackedProcesses::new();
        let mut mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
        let at = MonoNs::now();
        mapper.end();
        // The kernel stamps files with the time of its last tick; 20 ms are tolerated for that.
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
    let mut table = TrackedProcesses::new();
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
    // The file is overwritten between two programs that map it: other content, same inode number.
    fs::copy(dir.path().join("two.so"), &library).unwrap();
    let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(&library));
    table.apply_events();
    let file = file_at(&mut table.processes, &mapper, MonoNs::now());
    assert_ne!(file.id, found[0].id);
    assert!(content(&file) == fs::read(dir.path().join("two.so")).unwrap());
}

/// A process in its own mount namespace, prepared by a script, like a container's first process.
fn mount_namespace(dir: &Path, script: &str) -> Mapper {
    let script = format!("cd \"$0\" && {script} && echo READY 0 && exec cat");
    Mapper::start(Command::new("unshare").args(["-m", "sh", "-c", &script]).arg(dir))
}

/// A command that runs in that namespace but is a child of this process.
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
    // The process lives and is found in /proc.
    let living = start();
    let mut processes = Processes::new(options());
    processes.scan(&ScanScope::Tgids(&[living.tgid]));
    let file = file_at(&mut processes, &living, MonoNs::now());
    assert!(content(&file) == two && *file.path == *one && !file.deleted_or_replaced);
    // The process has ended in an unknown namespace: the file at that path in our namespace is not used.
    let mut table = TrackedProcesses::new();
    let mut ended = start();
    let at = MonoNs::now();
    ended.end();
    table.listen_to_the_end_of(ended.tgid);
    assert_eq!(file_at(&mut table.processes, &ended, at).fd().unwrap_err(), Unopened::Replaced);
    drop(table);
    // The process has ended, but another process of its namespace is known.
    let mut table = TrackedProcesses::new();
    table.processes.scan(&ScanScope::Tgids(&[container.tgid]));
    let root = table.processes.root(container.id, MonoNs::now()).unwrap();
    assert_ne!(root.mount_ns, ProcessRoot::of(std::process::id()).unwrap().mount_ns);
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
    copy(&dir.path().join("mapper-static"), &jail.join("prog"));
    let start = || Mapper::start(Command::new("chroot").arg(&jail).arg("/prog"));
    let program = fs::read(jail.join("prog")).unwrap();
    // The process is found in /proc, which shows the path as seen from our root.
    let mapper = start();
    let mut processes = Processes::new(options());
    processes.scan(&ScanScope::Tgids(&[mapper.tgid]));
    let file = file_at(&mut processes, &mapper, MonoNs::now());
    assert!(content(&file) == program && !file.deleted_or_replaced, "{file:?}");
    // The process is known from events, and has ended.
    let mut table = TrackedProcesses::new();
    let mut mapper = start();
    table.apply_events();
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
    // The upper directory of an overlay cannot be on overlayfs itself.
    let script = "mount -t tmpfs tmpfs tmpfs && mkdir tmpfs/upper tmpfs/work && mount -t overlay overlay -o \
        lowerdir=.,upperdir=tmpfs/upper,workdir=tmpfs/work merged && cp one.so merged/upper.so";
    let container = mount_namespace(dir.path(), script);
    let merged = dir.path().join("merged");
    let one = fs::read(dir.path().join("one.so")).unwrap();
    for library in ["one.so", "upper.so"] {
        let mut table = TrackedProcesses::new();
        table.processes.scan(&ScanScope::Tgids(&[container.tgid]));
        assert!(table.processes.root(container.id, MonoNs::now()).is_some());
        let start = || Mapper::start(entering(&container, &merged.join("mapper")).arg(merged.join(library)));
        let living = start();
        table.apply_events();
        let file = file_at(&mut table.processes, &living, MonoNs::now());
        assert!(content(&file) == one && !file.deleted_or_replaced, "{library}: {file:?}");
        drop((file, table));
        let mut table = TrackedProcesses::new();
        table.processes.scan(&ScanScope::Tgids(&[container.tgid]));
        assert!(table.processes.root(container.id, MonoNs::now()).is_some());
        let mut ended = start();
        let at = MonoNs::now();
        ended.end();
        table.listen_to_the_end_of(ended.tgid);
        assert!(content(&file_at(&mut table.processes, &ended, at)) == one, "{library}");
    }
}

/// Containers come and go: their file systems reuse the numbers of earlier ones, and so do the files in them.
#[test]
fn numbers_of_files_that_are_used_again_name_other_files() {
    let dir = programs();
    let mounted = dir.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    // The files have one size, so that only their content differs.
    let contents = ["one.so", "two.so"].map(|name| {
        let mut bytes = fs::read(dir.path().join(name)).unwrap();
        bytes.resize(1 << 17, 0);
        fs::write(dir.path().join(name), &bytes).unwrap();
        bytes
    });
    // An open file keeps its inode number, so only one may stay open.
    let mut processes = Processes::new(ProcessOptions { max_open_files: 1, ..options() });
    let (mut seen, mut again, mut round) = (Vec::new(), 0, 0);
    // Tests beside this one mount file systems, too, and so take numbers.
    while round < 20 || again <= 5 {
        assert!(round < 400, "numbers were used again only {again} times: this test did not test");
        let library = ["one.so", "two.so"][round % 2];
        let script = format!("mount -t tmpfs tmpfs mounted && cp {library} mounted/mapped.so");
        let container = mount_namespace(dir.path(), &script);
        let mapper = dir.path().join("mapper");
        let mapper = Mapper::start(entering(&container, &mapper).arg(mounted.join("mapped.so")));
        processes.scan(&ScanScope::Tgids(&[mapper.tgid]));
        let file = file_at(&mut processes, &mapper, MonoNs::now());
        assert!(content(&file) == contents[round % 2], "round {round}: another file's content");
        let number = (file.inode.major, file.inode.minor, file.inode.ino);
        again += usize::from(seen.iter().any(|(known, _)| *known == number));
        assert!(seen.iter().all(|(_, id)| *id != file.id), "round {round}: another file's identity");
        seen.push((number, file.id));
        round += 1;
    }
}

#[test]
fn a_memfd_program_is_not_jit_code() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    let dir = programs();
    let program = fs::read(dir.path().join("mapper")).unwrap();
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut memory = fs::File::from(memory);
    memory.write_all(&program).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    for by_events in [false, true] {
        let mut table = TrackedProcesses::new();
        let executed = Mapper::start(&mut Command::new(&path));
        let generates = Mapper::start(Command::new(dir.path().join("mapper")).arg("memory"));
        if by_events {
            table.apply_events();
        } else {
            table.processes.scan(&ScanScope::Tgids(&[executed.tgid, generates.tgid]));
        }
        let file = file_at(&mut table.processes, &executed, MonoNs::now());
        assert_eq!(*file.path, *Path::new("/memfd:program"));
        assert!(file.is_program_in_memory() && content(&file) == program);
        let file = file_at(&mut table.processes, &generates, MonoNs::now());
        assert_eq!(*file.path, *Path::new("/memfd:doublemapper"));
        assert!(!file.is_program_in_memory() && file.fd().is_ok());
    }
}

#[test]
fn descriptors_are_few_and_files_keep_their_identity() {
    let dir = programs();
    let mapper = Mapper::start(Command::new(dir.path().join("mapper")).arg(dir.path().join("one.so")));
    let mut processes = Processes::new(ProcessOptions { max_open_files: 2, ..options() });
    processes.scan(&ScanScope::Tgids(&[mapper.tgid]));
    let maps = maps::parse_maps(&procfs::read(&format!("/proc/{}/maps", mapper.tgid)).unwrap()).entries;
    let starts: Vec<u64> =
        maps.iter().filter(|entry| entry.inode.ino != 0).map(|entry| entry.start).collect();
    assert!(starts.len() >= 4, "{maps:?}");
    let mut rounds = Vec::new();
    for _ in 0..2 {
        let mut ids = Vec::new();
        for &start in &starts {
            let MappedLocation::File { file, .. } = processes.locate(mapper.id, MonoNs::now(), start) else {
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
    copy(&dir.path().join("mapper-static"), &jail.join("prog"));
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
    let root = ProcessRoot::of(mapper.tgid).unwrap();
    let open = |name: &str, owner| root.open_regular(&PathBuf::from("/tmp").join(name), owner);
    for name in ["absolute", "up", "magic", "fifo", "dir", "none"] {
        let why = open(name, FileOwner::Any).unwrap_err();
        let right = match name {
            "fifo" | "dir" => why == OpenRefusal::NotRegular,
            _ => why == OpenRefusal::Missing,
        };
        assert!(right, "{name}: {why}");
    }
    let ino = |fd: std::os::fd::OwnedFd| rustix::fs::fstat(fd.as_fd()).unwrap().st_ino;
    let own = fs::metadata(jail.join("tmp/own")).unwrap().ino();
    assert_eq!(ino(open("own", FileOwner::ProcessUserOrRootUser).unwrap()), own);
    assert_eq!(ino(open("own-link", FileOwner::Any).unwrap()), own);
    assert_eq!(open("own-link", FileOwner::ProcessUserOrRootUser).unwrap_err(), OpenRefusal::NotRegular);
    assert_eq!(open("foreign", FileOwner::ProcessUserOrRootUser).unwrap_err(), OpenRefusal::ForeignOwner);
    drop(mapper);
    assert_eq!(ProcessRoot::of(1 << 23).unwrap_err(), OpenRefusal::ProcessGone);
}
