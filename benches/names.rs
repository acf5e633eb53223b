//! Symbolizes native code of this machine: 200 addresses in each of its executables and libraries, with the symbolizer
//! and its worker. Prints the time and the peak memory of the worker. With `NAMES_LIST=FILE`, writes each address with
//! its frames to that file, so that two binaries can be compared:
//!
//! ```text
//! JBPF_PROF_BINARY=before NAMES_LIST=before.txt cargo bench --bench names
//! JBPF_PROF_BINARY=after  NAMES_LIST=after.txt  cargo bench --bench names
//! diff before.txt after.txt
//! ```
//!
//! `NAMES_FILES` is a file with paths, one a line; `NAMES_EACH` is the number of addresses in each.
#![allow(clippy::print_stdout, clippy::panic, clippy::unwrap_used)] // prints for a person at a terminal

#[allow(dead_code)] // the tests use more of it
#[path = "../tests/end_to_end/symbols/common.rs"]
mod common;

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jbpf_prof::profile::{Frame, UnknownReason};
use jbpf_prof::sample::{Stack, StopReason, UserWord};
use jbpf_prof::symbolize::elf::Elf;
use jbpf_prof::symbolize::{SymbolConfig, Symbolizer};

use common::{Space, stack};

const EACH: u64 = 200;
/// Addresses in one stack.
const DEPTH: usize = 100;
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec"];

/// The executables and libraries of this machine, each once.
fn files() -> Vec<PathBuf> {
    if let Some(list) = env::var_os("NAMES_FILES") {
        return fs::read_to_string(list).unwrap().lines().map(PathBuf::from).collect();
    }
    let (mut files, mut seen) = (Vec::new(), std::collections::HashSet::new());
    let mut directories: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, Ok(metadata)) = (entry.path(), entry.path().symlink_metadata()) else { continue };
            if metadata.is_dir() && !path.ends_with("debug") {
                directories.push(path);
            } else if metadata.is_file() && seen.insert(metadata.ino()) && is_program(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Whether the file is an ELF executable or library.
fn is_program(path: &Path) -> bool {
    let mut magic = [0; 18];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic[..4] == *b"\x7fELF" && matches!(magic[16], 2 | 3)
}

/// Random offsets in the code of a file; the same in each run.
fn offsets(elf: &Elf, each: u64) -> Vec<u64> {
    let code = elf.code_ranges();
    let size: u64 = code.iter().map(|range| range.end - range.start).sum();
    let mut random = 12_345_u64;
    let mut offset = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut at = (random >> 16) % size.max(1);
        code.iter().find_map(|range| {
            let length = range.end - range.start;
            let found = (at < length).then_some(range.start + at);
            at = at.saturating_sub(length);
            found
        })
    };
    (0..each).filter_map(|_| offset()).collect()
}

/// A stack that has only leaves.
fn leaves(words: &[u64]) -> Stack {
    let words: Vec<UserWord> = words.iter().map(|&pc| UserWord::Leaf(pc)).collect();
    stack(&words, &[], StopReason::Root)
}

fn line(frames: &[Arc<Frame>]) -> String {
    let mut line = String::new();
    for frame in frames {
        let name = match frame.unknown {
            Some(UnknownReason::NoSymbol) => "?".into(),
            Some(why) => format!("?{why:?}"),
            None => frame.name.to_string(),
        };
        write!(line, " {name}").unwrap();
        if frame.line > 0 {
            write!(line, "@{}:{}", frame.file.as_deref().unwrap_or(""), frame.line).unwrap();
        }
    }
    line
}

fn peak_kib(pid: Option<u32>) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.unwrap_or(0))).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|peak| peak.parse().ok()).unwrap_or(0)
}

fn main() {
    let binary = env::var_os("JBPF_PROF_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_jbpf-prof").into());
    let each = env::var("NAMES_EACH").map_or(EACH, |each| each.parse().unwrap());
    let (mut space, mut paths, mut stacks) = (Space::default(), Vec::new(), Vec::new());
    for path in files() {
        let Ok(elf) = File::open(&path).map_err(drop).and_then(|file| Elf::read(file).map_err(drop)) else {
            continue;
        };
        let base = space.add(&path);
        let words: Vec<u64> = offsets(&elf, each).into_iter().map(|offset| base + offset).collect();
        paths.push((path, words.clone()));
        stacks.extend(words.chunks(DEPTH).map(leaves));
    }
    let mut symbolizer = Symbolizer::start(SymbolConfig::new(binary.into())).unwrap();
    let addresses: usize = stacks.iter().map(|stack| stack.user.len()).sum();
    let begin = Instant::now();
    let mut peak = 0;
    for stacks in stacks.chunks(200) {
        symbolizer.symbolize(stacks, &mut space);
        peak = peak.max(peak_kib(symbolizer.worker_pid()));
    }
    let took = begin.elapsed();
    let stats = symbolizer.stats();
    println!(
        "{addresses} addresses of {} files: {:.2} s, worker {:.2} s of CPU, {} MiB at most; {} lost, {} replaced",
        paths.len(),
        took.as_secs_f64(),
        stats.worker.cpu.as_secs_f64(),
        peak >> 10,
        stats.worker_lost,
        stats.worker_evicted
    );
    if let Some(list) = env::var_os("NAMES_LIST") {
        let mut text = String::new();
        for (path, words) in &paths {
            for &word in words {
                let frames = symbolizer.symbolize(&[leaves(&[word])], &mut space).remove(0).frames;
                let offset = word & u64::from(u32::MAX);
                writeln!(text, "{} {offset:#x}{}", path.display(), line(&frames)).unwrap();
            }
        }
        fs::write(list, text).unwrap();
    }
}
