//! C programs of `tests/programs`, compiled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::target::Target;
use super::{scratch, sources};

/// The compiled program of this name. All are compiled once, with frame pointers.
pub(crate) fn program(name: &str) -> PathBuf {
    static ALL: OnceLock<PathBuf> = OnceLock::new();
    let dir = ALL.get_or_init(|| {
        let dir = scratch("native");
        for name in ["native", "kernel", "unique", "short", "spawn", "dead_fs"] {
            compile(&dir, name);
        }
        dir
    });
    dir.join(name)
}

fn compile(dir: &Path, name: &str) {
    let status = Command::new("cc")
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer", "-o"])
        .arg(dir.join(name))
        .arg(sources().join(format!("{name}.c")))
        .arg("-pthread")
        .status()
        .unwrap();
    assert!(status.success(), "{name}.c does not compile");
}

/// A program of this source file, compiled without frame pointers.
pub(crate) fn without_frame_pointers(source: &str) -> PathBuf {
    let program = scratch("without-fp").join(source);
    let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
    static COMPILING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    // A program that runs cannot be written over.
    let new = program.with_extension("new");
    let status = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fomit-frame-pointer", "-o"])
        .arg(&new)
        .arg(sources().join(source))
        .status()
        .unwrap();
    assert!(status.success(), "{source} does not compile");
    std::fs::rename(new, &program).unwrap();
    program
}

/// Starts a program and waits until it is at work.
pub(crate) fn start(name: &str) -> Target {
    Target::start(&mut Command::new(program(name)))
}
