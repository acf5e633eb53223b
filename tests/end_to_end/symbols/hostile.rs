//! Files with false content, files that change while they are read, workers that die: all other names stay right.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jbpf_prof::profile::UnknownReason;
use jbpf_prof::sample::{StopReason, UserWord};
use jbpf_prof::symbolize::function::FunctionName;
use jbpf_prof::symbolize::native::Native;
use jbpf_prof::symbolize::{SymbolConfig, Symbolizer};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, kill_process};
use testkit::packed::Packed;

use super::common::{Space, address_of, chain, config, leaf, names, offset_of, run, stack, start};

/// A small generator that gives the same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn signal(symbolizer: &Symbolizer, signal: Signal) {
    let pid = i32::try_from(symbolizer.worker_pid().expect("a worker runs")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A good file beside the bad one, which must still be named.
struct Healthy {
    pc: u64,
}

impl Healthy {
    fn add(space: &mut Space, dir: &Path) -> Healthy {
        let binary = chain(dir, "healthy", &["-g"]);
        Healthy { pc: space.add(&binary) + offset_of(&binary, "at_helper") }
    }

    fn check(&self, symbolizer: &mut Symbolizer, space: &mut Space) {
        assert_eq!(names(&leaf(symbolizer, space, self.pc)), ["other_unit", "helper"]);
    }
}

fn damaged(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(24) {
        // Headers get as much damage as all the rest together.
        let (first, last) = (random.below(2) == 0, random.below(4) == 0);
        let within = if first { 1024 } else { bytes.len() as u64 };
        let from = if last { bytes.len() as u64 - 2048 } else { 0 };
        let at = usize::try_from(random.below(within.min(bytes.len() as u64 - from)) + from).unwrap();
        bytes[at] = u8::try_from(random.below(256)).unwrap();
    }
    if random.below(4) == 0 {
        bytes.truncate(usize::try_from(random.below(good.len() as u64)).unwrap());
    }
    bytes
}

/// Only blazesym's reader of lines panics on some of these: that costs a worker, and the second time the file's lines.
#[test]
fn random_damage_makes_no_reader_of_names_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad");
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut named = 0;
    for flags in [&["-g"][..], &["-g", "-gz", "-Wl,-z,lazy"], &["-s"]] {
        let good = fs::read(chain(dir.path(), "chain", flags)).unwrap();
        for _ in 0..400 {
            fs::write(&path, damaged(&good, &mut random)).unwrap();
            let Ok(native) = Native::open(File::open(&path).unwrap()) else { continue };
            let offsets: Vec<u64> = (0..96).map(|i| 0x1000 + i * 8).collect();
            named +=
                native.functions_at(&offsets, false).iter().filter(|functions| functions.is_ok()).count();
        }
    }
    assert!(named > 1000, "some files were damaged where it does not matter: {named}");
}

#[test]
fn random_damage_never_costs_more_than_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(chain(dir.path(), "chain", &["-g"])).unwrap();
    let (mut symbolizer, mut space) = (start(), Space::default());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let rounds = 100;
    let mut named = 0;
    for round in 0..rounds {
        let path = dir.path().join(format!("bad{round}"));
        fs::write(&path, damaged(&good, &mut random)).unwrap();
        let base = space.add(&path);
        let user: Vec<UserWord> = (0..64).map(|i| UserWord::Leaf(base + 0x1000 + i * 8)).collect();
        let frames =
            symbolizer.symbolize(&[stack(&user, &[], StopReason::Root)], &mut space).remove(0).frames;
        assert!(frames.len() >= user.len(), "round {round}");
        named += frames.iter().filter(|f| f.unknown.is_none()).count();
    }
    assert_eq!(symbolizer.stats().worker_lost, 0, "damage is an error, not a crash");
    assert!(named > 0, "some files were damaged where it does not matter");
    Healthy::add(&mut space, dir.path()).check(&mut symbolizer, &mut space);
}

#[test]
fn call_frame_information_that_lies_names_only_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let binary = chain(dir.path(), "good", &["-s"]);
    let good = fs::read(&binary).unwrap();
    let sections = run(Command::new("readelf").args(["-SW"]).arg(&binary));
    let line = sections.lines().find(|l| l.contains(" .eh_frame ")).unwrap();
    let fields: Vec<&str> = line.split("PROGBITS").nth(1).unwrap().split_ascii_whitespace().collect();
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let (from, size) = (number(fields[1]), number(fields[2]));
    let mut random = Random(0x0123_4567_89ab_cdef);
    let mut named = 0;
    for round in 0..600 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(16) {
            let at = from + usize::try_from(random.below(size as u64)).unwrap();
            bytes[at] = [0, 0xff, 0x7f, 0x1b, u8::try_from(random.below(256)).unwrap()]
                [usize::try_from(random.below(5)).unwrap()];
        }
        let path = dir.path().join("bad");
        fs::write(&path, bytes).unwrap();
        let native = Native::open(File::open(&path).unwrap()).unwrap();
        let starts = (0..96).filter_map(|i| {
            let offset = 0x1000 + i * 8;
            let called = native.functions_at(&[offset], true).remove(0).ok()?.remove(0).called;
            let FunctionName::Start(start) = called else { return None };
            // A description may be wrong about a function's end, but must not put its beginning behind the address.
            assert!((0x1000..=offset).contains(&start), "round {round}: {start:#x} for {offset:#x}");
            Some(start)
        });
        named += starts.count();
    }
    assert!(named > 1000, "some were damaged where it does not matter: {named}");
}

#[test]
fn a_debug_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let full = chain(dir.path(), "full", &["-g"]);
    let (mut symbolizer, mut space) = (start(), Space::default());
    // A file beside it, one with an absolute name, one upwards. A tenant writes the link, which may lead to any user's
    // file. Debug files are found by their build id only.
    let absolute = full.to_str().unwrap().to_owned();
    for (nr, link) in ["full", &absolute, &format!("../../../../../../..{absolute}")].iter().enumerate() {
        let (linked, section) = (dir.path().join(format!("linked{nr}")), dir.path().join("section"));
        let mut content = link.as_bytes().to_vec();
        content.resize((link.len() + 4) & !3, 0);
        // The checksum that readers of debug links check.
        let mut checksum = flate2::Crc::new();
        checksum.update(&fs::read(&full).unwrap());
        content.extend(checksum.sum().to_le_bytes());
        fs::write(&section, content).unwrap();
        let add = format!(".gnu_debuglink={}", section.display());
        run(Command::new("objcopy").args(["-S", "--add-section", &add]).arg(&full).arg(&linked));
        let base = space.add(&linked);
        let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&full, "at_innermost"));
        assert_eq!(names(&frames), [format!("linked{nr}!fun_{:x}", address_of(&full, " outer"))], "{link}");
    }
    assert_eq!(symbolizer.stats().worker_lost, 0);
}

/// Packs the debug information of a file; each packed section then states this size, in bytes.
fn promising(dir: &Path, packed: Packed, size: u64) -> PathBuf {
    let (binary, file) = (chain(dir, "plain", &["-g3"]), dir.join(format!("{}-{size:x}", packed.name())));
    let pack = format!("--compress-debug-sections={}", packed.name());
    run(Command::new("objcopy").arg(pack).args([&binary, &file]));
    let mut bytes = fs::read(&file).unwrap();
    packed.promise(&mut bytes, size);
    fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn a_section_that_promises_2_to_the_60_bytes_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    for packed in [Packed::Zlib, Packed::ZlibGnu, Packed::Zstd] {
        // Also a size that could be allocated but is false, and one that is too small.
        for size in [1 << 60, u64::MAX, 400 << 20, 1] {
            let file = promising(dir.path(), packed, size);
            let (mut symbolizer, mut space) = (start(), Space::default());
            let base = space.add(&file);
            // Names come from the symbol table, which is not packed.
            let frames = leaf(
                &mut symbolizer,
                &mut space,
                base + offset_of(&dir.path().join("plain"), "at_innermost"),
            );
            assert_eq!(names(&frames), ["outer"], "{packed:?} {size:#x}");
            assert_eq!(symbolizer.stats().worker_lost, 0, "{packed:?} {size:#x}");
        }
    }
}

/// Sections that are small while they are packed, and together exceed the limit of unpacked bytes for one file.
#[test]
fn a_bomb_costs_the_lines_of_its_file_and_no_more() {
    const UNPACKED_BYTES: u64 = 450 << 20;
    let dir = tempfile::tempdir().unwrap();
    let inside = |name: &str| dir.path().join(name);
    let (binary, bomb) = (chain(dir.path(), "plain", &["-g"]), inside("bomb"));
    // GNU's older form, whose header is part of the content.
    let mut packed = b"ZLIB".to_vec();
    packed.extend(UNPACKED_BYTES.to_be_bytes());
    let mut zlib = flate2::write::ZlibEncoder::new(packed, flate2::Compression::best());
    std::io::copy(&mut std::io::repeat(0).take(UNPACKED_BYTES), &mut zlib).unwrap();
    fs::write(inside("packed"), zlib.finish().unwrap()).unwrap();
    let mut objcopy = Command::new("objcopy");
    for section in ["str", "line_str"] {
        objcopy.arg("--update-section").arg(format!(".debug_{section}={}", inside("packed").display()));
        objcopy.arg("--rename-section").arg(format!(".debug_{section}=.zdebug_{section}"));
    }
    run(objcopy.args([&binary, &bomb]));
    assert!(fs::metadata(&bomb).unwrap().len() < 4 << 20, "it is small");
    let sections = run(Command::new("readelf").arg("-SW").arg(&bomb));
    assert!(sections.contains(".zdebug_line_str"), "{sections}");
    // The worker of a debug build unpacks slowly, and only its crash matters here.
    let patient = SymbolConfig { timeout: Duration::from_secs(60), ..config() };
    let (mut symbolizer, mut space) = (Symbolizer::start(patient).unwrap(), Space::default());
    let base = space.add(&bomb);
    let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&binary, "at_innermost"));
    assert_eq!(names(&frames), ["outer"]);
    assert_eq!(symbolizer.stats().worker_lost, 0);
    Healthy::add(&mut space, dir.path()).check(&mut symbolizer, &mut space);
}

#[test]
fn a_file_truncated_while_it_is_mapped_costs_a_worker_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (mut symbolizer, mut space) = (start(), Space::default());
    let binary = chain(dir.path(), "shrinks", &["-g"]);
    let base = space.add(&binary);
    let (inner, helper) = (offset_of(&binary, "at_innermost"), offset_of(&binary, "at_helper"));
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, base + inner)), ["outer", "middle", "innermost"]);
    File::options().write(true).open(&binary).unwrap().set_len(0).unwrap();
    let frames = leaf(&mut symbolizer, &mut space, base + helper);
    assert!(
        matches!(frames[0].unknown, Some(UnknownReason::BadFile | UnknownReason::WorkerFailed)),
        "{frames:?}"
    );
    assert_eq!(symbolizer.stats().worker_lost, 1);
    Healthy::add(&mut space, dir.path()).check(&mut symbolizer, &mut space);
    assert_eq!(symbolizer.stats().worker_lost, 1);
}

#[test]
fn a_killed_worker_is_replaced_and_nothing_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut symbolizer, mut space) = (start(), Space::default());
    let healthy = Healthy::add(&mut space, dir.path());
    let first = symbolizer.worker_pid();
    // A stopped worker cannot answer before it is killed, whether the question or the signal comes first.
    signal(&symbolizer, Signal::STOP);
    let pid = Pid::from_raw(i32::try_from(first.unwrap()).unwrap()).unwrap();
    let killer = std::thread::spawn(move || kill_process(pid, Signal::KILL).unwrap());
    healthy.check(&mut symbolizer, &mut space);
    killer.join().unwrap();
    let stats = symbolizer.stats();
    assert_eq!((stats.worker_lost, stats.files_poisoned), (1, 0));
    assert_ne!(symbolizer.worker_pid(), first);
}

#[test]
fn a_worker_that_does_not_answer_is_given_up_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config();
    // The worker that replaces this one has half of the deadline.
    config.timeout = Duration::from_secs(2);
    let (mut symbolizer, mut space) = (Symbolizer::start(config).unwrap(), Space::default());
    let slow = chain(dir.path(), "slow", &["-g"]);
    let base = space.add(&slow);
    let [inner, helper] = ["at_innermost", "at_helper"].map(|name| base + offset_of(&slow, name));
    let healthy = Healthy::add(&mut space, dir.path());
    // The file's DWARF may be what takes long, so the file loses only its lines and inlined functions.
    signal(&symbolizer, Signal::STOP);
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, inner)), ["outer"]);
    let stats = symbolizer.stats();
    assert_eq!((stats.worker_lost, stats.files_poisoned), (1, 0));
    signal(&symbolizer, Signal::STOP);
    assert_eq!(leaf(&mut symbolizer, &mut space, helper)[0].unknown, Some(UnknownReason::WorkerFailed));
    let stats = symbolizer.stats();
    assert_eq!((stats.worker_lost, stats.files_poisoned), (2, 1));
    healthy.check(&mut symbolizer, &mut space);
}

#[test]
fn what_is_no_elf_file_is_a_bad_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut symbolizer, mut space) = (start(), Space::default());
    let huge = tempfile::tempfile().unwrap();
    huge.write_all_at(b"\x7fELF\x02\x01\x01", 0).unwrap();
    huge.set_len(1 << 42).unwrap();
    let (reader, _writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let files: Vec<(&str, OwnedFd)> = vec![
        ("empty", tempfile::tempfile().unwrap().into()),
        ("text", File::open(super::common::source("chain.c")).unwrap().into()),
        ("sparse", huge.into()),
        ("pipe", reader),
        ("null", File::open("/dev/null").unwrap().into()),
        ("directory", File::open(dir.path()).unwrap().into()),
    ];
    let bases: Vec<u64> = files.into_iter().map(|(name, fd)| space.add_open(name, fd)).collect();
    for base in bases {
        let frames = leaf(&mut symbolizer, &mut space, base + 0x1040);
        assert!(
            matches!(frames[0].unknown, Some(UnknownReason::BadFile | UnknownReason::NoSymbol)),
            "{frames:?}"
        );
    }
    assert_eq!(symbolizer.stats().worker_lost, 0);
    Healthy::add(&mut space, dir.path()).check(&mut symbolizer, &mut space);
}

#[test]
fn the_worker_has_no_rights() {
    let symbolizer = start();
    // The worker answers its first question only after it has entered its sandbox.
    let (mut symbolizer, mut space) = (symbolizer, Space::default());
    let dir = tempfile::tempdir().unwrap();
    Healthy::add(&mut space, dir.path()).check(&mut symbolizer, &mut space);
    let status = fs::read_to_string(format!("/proc/{}/status", symbolizer.worker_pid().unwrap())).unwrap();
    let field = |name: &str| {
        let line =
            status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {status}"));
        line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"]);
    if rustix::process::getuid().is_root() {
        assert_eq!(field("CapBnd:"), ["0000000000000000"]);
        assert_eq!(field("Uid:"), ["65534"; 4]);
        assert_eq!(field("Gid:"), ["65534"; 4]);
        assert!(field("Groups:").is_empty());
    }
}
