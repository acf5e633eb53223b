//! Perf maps as another runtime would write them: opened safely, and read even if lines are bad or cut.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jbpf_prof::process::Unopened;
use jbpf_prof::profile::{Frame, Kind, UnknownReason};
use jbpf_prof::sample::{MonoNs, ProcessId, StopReason, UserWord};
use jbpf_prof::symbolize::{AddressSpaces, CodePlace, Symbolizer};

use super::common::{GENERATED, Space, config, leaf, names, stack};

/// A process with a perf map; both are removed on drop.
struct Runtime {
    process: Child,
    map: PathBuf,
}

impl Runtime {
    fn start() -> (Runtime, Symbolizer, Space) {
        let process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let map = PathBuf::from(format!("/tmp/perf-{}.map", process.id()));
        let _ = fs::remove_file(&map);
        let mut space = Space::default();
        space.perf_map_pid = Some(process.id());
        let mut config = config();
        config.perf_map_interval = Duration::ZERO;
        (Runtime { process, map }, Symbolizer::start(config).unwrap(), space)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.map);
    }
}

fn is_anonymous(frames: &[std::sync::Arc<Frame>]) -> bool {
    frames.len() == 1 && frames[0].unknown == Some(UnknownReason::AnonymousCode)
}

#[test]
fn a_growing_map_with_bad_lines_names_what_it_can() {
    let (runtime, mut symbolizer, mut space) = Runtime::start();
    assert!(is_anonymous(&leaf(&mut symbolizer, &mut space, GENERATED)));
    let mut map = File::create(&runtime.map).unwrap();
    writeln!(map, "{GENERATED:x} 10 LazyCompile:*fib /app.js:1:2\nnonsense").unwrap();
    map.write_all(&[b'x'; 1 << 20]).unwrap();
    write!(map, "\n0x{:x} 0x10 py::main:/app.py\n{:x} 10 cut of", GENERATED + 0x10, GENERATED + 0x20)
        .unwrap();
    let frames = leaf(&mut symbolizer, &mut space, GENERATED + 15);
    assert_eq!((names(&frames), frames[0].kind), (vec!["LazyCompile:fib /app.js:1:2"], Kind::Jit));
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED + 0x10)), ["py::main:/app.py"]);
    assert!(is_anonymous(&leaf(&mut symbolizer, &mut space, GENERATED + 0x20)));
    writeln!(map, "f and more").unwrap();
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED + 0x20)), ["cut off and more"]);
    let stats = symbolizer.stats();
    assert_eq!((stats.perf_maps.lines, stats.perf_maps.rejected, stats.worker_lost), (3, 2, 0));
}

#[test]
fn a_map_that_begins_anew_is_asked_again() {
    let (runtime, mut symbolizer, mut space) = Runtime::start();
    fs::write(&runtime.map, format!("{GENERATED:x} 10 the-first-of-them\n")).unwrap();
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED)), ["the-first-of-them"]);
    // The new map is shorter than the old one and has as many lines.
    fs::write(&runtime.map, format!("{:x} 10 the-second\n", GENERATED + 0x10)).unwrap();
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED + 0x10)), ["the-second"]);
    assert_eq!(symbolizer.stats().perf_maps.lines, 1);
}

#[test]
fn a_killed_worker_reads_the_map_again() {
    let (runtime, mut symbolizer, mut space) = Runtime::start();
    fs::write(&runtime.map, format!("{GENERATED:x} 10 one\n")).unwrap();
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED)), ["one"]);
    let pid = i32::try_from(symbolizer.worker_pid().unwrap()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED + 1)), ["one"]);
    assert_eq!(symbolizer.stats().worker_lost, 1);
}

#[test]
fn the_map_of_a_process_that_is_gone_is_closed() {
    let (runtime, mut symbolizer, mut space) = Runtime::start();
    fs::write(&runtime.map, format!("{GENERATED:x} 10 one\n")).unwrap();
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED)), ["one"]);
    let worker = symbolizer.worker_pid().unwrap();
    let is_open = |pid: u32| {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        links.filter_map(|link| fs::read_link(link.unwrap().path()).ok()).any(|to| to == runtime.map)
    };
    symbolizer.evict_unused(&space);
    assert!(is_open(worker) && is_open(std::process::id()));
    space.perf_map_pid = None;
    symbolizer.evict_unused(&space);
    assert!(!is_open(worker) && !is_open(std::process::id()));
    assert_eq!((symbolizer.worker_pid(), symbolizer.stats().worker_lost), (Some(worker), 0));
}

/// Processes with a map each, and how often each map was opened.
#[derive(Default)]
struct Many(HashMap<u32, u32>);

impl AddressSpaces for Many {
    fn place(&mut self, _: ProcessId, _: MonoNs, _: u64) -> CodePlace {
        CodePlace::Generated
    }

    fn mapped_since(&mut self, _: ProcessId, _: MonoNs) -> Option<MonoNs> {
        Some(MonoNs(0))
    }

    fn is_known(&self, _: ProcessId) -> bool {
        true
    }

    fn perf_map(&mut self, id: ProcessId, _: MonoNs) -> Result<OwnedFd, Unopened> {
        *self.0.entry(id.tgid).or_default() += 1;
        let mut map = tempfile::tempfile().unwrap();
        writeln!(map, "{GENERATED:x} 1000 of-{}", id.tgid).unwrap();
        Ok(map.into())
    }
}

#[test]
fn one_process_too_many_costs_the_map_that_was_not_used_for_longest() {
    const MAX_MAPS: u32 = 256;
    let (mut symbolizer, mut many) = (Symbolizer::start(config()).unwrap(), Many::default());
    let mut pcs = GENERATED..;
    let mut assert_named = |many: &mut Many, tgid| {
        // An address that was symbolized before needs no map.
        let mut asked = stack(&[UserWord::Leaf(pcs.next().unwrap())], &[], StopReason::Root);
        asked.key.process = ProcessId { tgid, start: 1, exec: 1 };
        let frames = symbolizer.symbolize(&[asked], many).remove(0).frames;
        assert_eq!(names(&frames), [format!("of-{tgid}")]);
        symbolizer.stats().perf_maps.maps
    };
    (1..=MAX_MAPS).for_each(|tgid| assert_eq!(assert_named(&mut many, tgid), u64::from(tgid)));
    // The first map is used again, one more map comes, then those follow that were used last before it.
    for tgid in [1, MAX_MAPS + 1, 1, MAX_MAPS] {
        assert_eq!(assert_named(&mut many, tgid), u64::from(MAX_MAPS));
    }
    assert!(many.0.values().all(|&opened| opened == 1), "{:?}", many.0);
    assert_named(&mut many, 2);
    assert_eq!(many.0[&2], 2, "its map was closed");
}

#[test]
fn what_could_be_a_trap_is_refused() {
    let (runtime, mut symbolizer, mut space) = Runtime::start();
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, format!("{GENERATED:x} 10 canary-of-the-host\n")).unwrap();

    symlink(&secret, &runtime.map).unwrap();
    assert!(is_anonymous(&leaf(&mut symbolizer, &mut space, GENERATED)), "a symlink");
    assert_eq!(symbolizer.stats().perf_maps.refused, 1);
    fs::remove_file(&runtime.map).unwrap();

    rustix::fs::mknodat(
        rustix::fs::CWD,
        &runtime.map,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    assert!(is_anonymous(&leaf(&mut symbolizer, &mut space, GENERATED)), "a FIFO");
    assert_eq!(symbolizer.stats().perf_maps.refused, 1);
    fs::remove_file(&runtime.map).unwrap();

    if rustix::process::getuid().is_root() {
        fs::copy(&secret, &runtime.map).unwrap();
        chown(&runtime.map, Some(12345), None).unwrap();
        assert!(is_anonymous(&leaf(&mut symbolizer, &mut space, GENERATED)), "another user's");
        assert_eq!(symbolizer.stats().perf_maps.refused, 1);
        chown(&runtime.map, Some(0), None).unwrap();
        assert_eq!(names(&leaf(&mut symbolizer, &mut space, GENERATED)), ["canary-of-the-host"]);
    } else {
        testkit::skip("only root gives a file to another user");
    }
}
