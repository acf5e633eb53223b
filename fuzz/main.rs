//! All fuzz targets in one binary, which is linked once: `FUZZ_TARGET=NAME fuzz [OPTIONS OF LIBFUZZER]`.
#![no_main]

mod targets;

use std::sync::LazyLock;
use std::{env, process};

use libfuzzer_sys::fuzz_target;

use targets::{FuzzTarget, TARGETS};

/// The environment variable that names the target: libFuzzer owns the command line.
const VARIABLE: &str = "FUZZ_TARGET";

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(chosen);

fn chosen() -> FuzzTarget {
    let name = env::var(VARIABLE).unwrap_or_default();
    let Some((_, run)) = TARGETS.iter().find(|(target, _)| *target == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|(target, _)| *target).collect();
        eprintln!("fuzz: {VARIABLE} is {name:?}; set it to one of: {}", names.join(", "));
        process::exit(2);
    };
    *run
}

// A wrong name ends the program before libFuzzer starts, and so leaves no input in the artifacts.
fuzz_target!(init: LazyLock::force(&TARGET), |data: &[u8]| (*TARGET)(data));
