//! The compiled C programs of `tests/programs`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
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
            "wakers",
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

/// A link to a program. A process that is started by it has the link's file name, `NAME-NUMBER`, which no other process
/// of the tests has. The kernel keeps 15 bytes of it.
pub fn under_own_name(program: &Path, name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let link = scratch("own-names").join(format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    assert!(link.file_name().unwrap().len() <= 15, "{}", link.display());
    // An earlier run has left it.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(program, &link).unwrap();
    link
}

/// Copies a program in another process. If this process had the copy open for writing, a child that another thread
/// forks meanwhile would inherit the descriptor. Until that child executes its own program, no process could execute
/// the copy (ETXTBSY).
pub fn copy(program: &Path, to: &Path) {
    let copied = Command::new("cp").args(["--remove-destination", "--"]).arg(program).arg(to).status();
    assert!(copied.unwrap().success(), "{} to {}", program.display(), to.display());
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

/// A program of this source file, with the name `name`, compiled with these flags. It is compiled once, because another
/// test may run it by now. Two programs may not have one name.
pub fn with_flags(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());
    let program = scratch("without-fp").join(name);
    let recipe: Vec<String> = [&[source], flags].concat().into_iter().map(str::to_owned).collect();
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled.get(name) {
        assert_eq!(*known, recipe, "two programs have the name {name}");
        return program;
    }
    let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
    // A program that an earlier run of the tests left running cannot be written over.
    let new = program.with_extension("new");
    build(Command::new(compiler).args(flags), source, &new);
    std::fs::rename(new, &program).unwrap();
    compiled.insert(name.to_owned(), recipe);
    program
}

/// Starts a program and waits until it prints `ready`.
pub fn start(name: &str) -> Target {
    Target::start(&mut Command::new(program(name)))
}

/// Starts a program under a name that no other process of the tests has.
pub fn start_under_own_name(name: &str) -> (Target, String) {
    let link = under_own_name(&program(name), name);
    let own = link.file_name().unwrap().to_str().unwrap().to_owned();
    (Target::start(&mut Command::new(link)), own)
}
