//! The compiled C programs of `tests/programs`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::target::Target;
use crate::{scratch, sources};

/// The compiled program of this name. All are compiled once, with frame pointers.
pub fn program(name: &str) -> PathBuf {
    static ALL: OnceLock<PathBuf> = OnceLock::new();
    let dir = ALL.get_or_init(|| {
        let dir = scratch("native");
        let names = [
            "native",
            "kernel",
            "unique",
            "short",
            "spawn",
            "turn_a",
            "turn_b",
            "with_pid",
            "dead_fs",
            "threads",
            "anonymous",
            "fake_jvm",
            "forked_jit",
            "leave",
        ];
        for name in names {
            compile(&dir, name);
        }
        dir
    });
    dir.join(name)
}

fn compile(dir: &Path, name: &str) {
    let flags = ["-fno-omit-frame-pointer", "-pthread"];
    build(Command::new("cc").args(flags), &format!("{name}.c"), &dir.join(name));
}

/// Compiles a library without frame pointers, `libNAME.so`, and returns its path.
pub fn library(dir: &Path, name: &str, more: &[&OsStr]) -> PathBuf {
    let library = dir.join(format!("lib{name}.so"));
    let mut cc = Command::new("cc");
    cc.args(["-fomit-frame-pointer", "-fPIC", "-shared"]).args(more);
    build(&mut cc, &format!("{name}.c"), &library);
    library
}

/// Compiles a source with the flags of all programs, after those that the compiler was given.
fn build(compiler: &mut Command, source: &str, to: &Path) {
    compiler.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(to).arg(sources().join(source));
    assert!(compiler.status().unwrap().success(), "{source} does not compile");
}

/// A program of this source file, compiled without frame pointers.
pub fn without_frame_pointers(source: &str) -> PathBuf {
    without_frame_pointers_and(source, source, &[])
}

/// The same with the name `name` and more flags.
pub fn without_frame_pointers_and(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    with_flags(source, name, &[&["-fomit-frame-pointer"], flags].concat())
}

/// A program of this source file, with the name `name`, compiled with these flags.
pub fn with_flags(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch("without-fp").join(name);
    let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
    static COMPILING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    // A running program cannot be written over.
    let new = program.with_extension("new");
    build(Command::new(compiler).args(flags), source, &new);
    std::fs::rename(new, &program).unwrap();
    program
}

/// Starts a program and waits until it prints `ready`.
pub fn start(name: &str) -> Target {
    Target::start(&mut Command::new(program(name)))
}
