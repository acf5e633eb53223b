//! Runs the seeds of the fuzz targets (`fuzz/seeds`) as unit tests: without libFuzzer, and without another build.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, panic};

use crate::fuzz_targets::TARGETS;

/// The paths of a directory below `fuzz/`, sorted.
fn entries(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(directory);
    let entries = fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The name of a directory, or of a file without its extension.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(OsStr::to_str).unwrap()
}

/// The names of the targets that have seeds. Others begin with a valid input of their own.
fn seeded() -> BTreeSet<String> {
    let directories = entries("seeds").into_iter().filter(|path| path.is_dir());
    directories.map(|path| stem(&path).to_owned()).collect()
}

/// The parts of a seed that are inputs: all of it, its halves, and all but one byte at each end.
fn parts(length: usize) -> [Range<usize>; 5] {
    let half = length / 2;
    [0..length, 0..half, half..length, 0..length.saturating_sub(1), length.min(1)..length]
}

#[test]
fn every_seed_passes_its_target() {
    let seeded = seeded();
    let mut ran = 0;
    let mut failed = Vec::new();
    for &(name, target) in TARGETS {
        let mut run = |shown: &str, input: &[u8]| {
            ran += 1;
            if panic::catch_unwind(|| target(input)).is_err() {
                failed.push(format!("{name}: {shown}"));
            }
        };
        run("the empty input", &[]);
        let seeds = if seeded.contains(name) { entries(&format!("seeds/{name}")) } else { Vec::new() };
        for seed in seeds {
            let bytes = fs::read(&seed).unwrap();
            for part in parts(bytes.len()) {
                run(&format!("bytes {part:?} of {}", seed.display()), &bytes[part]);
            }
        }
    }
    println!("{ran} inputs ran through {} fuzz targets", TARGETS.len());
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(ran > 5 * seeded.len(), "only {ran} inputs ran");
}

/// `fuzz/run.sh` takes the names of targets from the files, and the directory of seeds from the name.
#[test]
fn each_file_and_each_directory_of_seeds_has_a_target() {
    let files = entries("targets");
    let files: Vec<&str> = files.iter().map(|path| stem(path)).filter(|name| *name != "mod").collect();
    let targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(targets, files, "the table in fuzz/targets/mod.rs, and the files beside it");
    for name in seeded() {
        assert!(targets.contains(&name.as_str()), "fuzz/seeds/{name} belongs to no target");
        assert!(!entries(&format!("seeds/{name}")).is_empty(), "fuzz/seeds/{name} has no seed");
    }
}
