//! How long names take: a benchmark, not a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jbpf_prof::sample::{End, UserWord};

use crate::common::{Space, run, stack, start};

/// ELF files of this machine, the largest first; or those that `SPEED_FILES` names.
fn large_files() -> Vec<PathBuf> {
    if let Some(files) = std::env::var_os("SPEED_FILES") {
        return std::env::split_paths(&files).collect();
    }
    let mut files = Vec::new();
    let mut dirs: Vec<PathBuf> = ["/usr/lib", "/usr/bin"].iter().map(PathBuf::from).collect();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let (Ok(meta), path) = (entry.path().symlink_metadata(), entry.path()) else { continue };
            if meta.is_dir() {
                dirs.push(path);
            } else if meta.is_file() && meta.len() > 100_000 && is_program(&path) {
                files.push((meta.len(), path));
            }
        }
    }
    files.sort();
    files.into_iter().rev().map(|(_, path)| path).collect()
}

fn is_program(path: &Path) -> bool {
    let mut magic = [0; 18];
    let read = fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut magic));
    read.is_ok() && magic[..5] == *b"\x7fELF\x02" && matches!(magic[16], 2 | 3)
}

/// File offset and size of `.text`.
fn text(path: &Path) -> Option<(u64, u64)> {
    let sections = run(std::process::Command::new("readelf").arg("-SW").arg(path));
    let line = sections.lines().find_map(|l| l.split_once("] .text "))?.1.to_owned();
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    Some((u64::from_str_radix(fields[2], 16).ok()?, u64::from_str_radix(fields[3], 16).ok()?))
}

#[test]
#[ignore = "a benchmark: cargo test --release --test symbols speed -- --ignored --nocapture"]
fn a_hundred_thousand_addresses_in_fifty_files() {
    const FILES: usize = 50;
    const EACH: u64 = 2000;
    let begin = Instant::now();
    let mut symbolizer = start();
    println!("start with kallsyms: {:?}", begin.elapsed());
    let mut space = Space::default();
    let mut words = Vec::new();
    for (path, (offset, size)) in
        large_files().into_iter().filter_map(|p| Some((text(&p)?, p)).map(|(t, p)| (p, t))).take(FILES)
    {
        let base = space.add(&path);
        words.extend((0..EACH).map(|i| UserWord::Leaf(base + offset + size * i / EACH)));
    }
    // Spread over stacks as deep as real ones.
    let stacks: Vec<_> = (0..words.len() / 50)
        .map(|s| {
            let picked: Vec<UserWord> = words.iter().skip(s).step_by(words.len() / 50).copied().collect();
            stack(&picked, &[], End::Root)
        })
        .collect();
    let begin = Instant::now();
    let named = symbolizer.symbolize(&stacks, &mut space);
    println!("{} addresses, first time: {:?}", words.len(), begin.elapsed());
    let begin = Instant::now();
    symbolizer.symbolize(&stacks, &mut space);
    println!("again: {:?}", begin.elapsed());
    let all = named.iter().map(|n| n.frames.len()).sum::<usize>();
    let unknown = named.iter().flat_map(|n| &n.frames).filter(|f| f.unknown.is_some()).count();
    println!("{all} frames, {unknown} unknown; {:?}", symbolizer.stats());
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    println!("broker resident: {} MiB", (pages * 4096) >> 20);
    assert_eq!(symbolizer.stats().worker_lost, 0);
}
