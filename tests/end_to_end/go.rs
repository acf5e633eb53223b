//! Go, end to end: programs as users ship them, without symbols and DWARF.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::claims::{at_least, prove, seen, share};
use testkit::profiler::{profile_at_high_rate, short_slice};
use testkit::target::Target;
use testkit::{is_root, lacks, native, scratch, sources};

fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch("go").join(name);
    let mut go = testkit::go();
    go.arg("build").args(flags).arg("-o").arg(&program).arg(sources().join(source));
    let done = go.envs([("CGO_ENABLED", "1"), ("GO111MODULE", "off")]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// A copy of a program without section headers.
fn without_sections(program: &Path) -> PathBuf {
    let mut bytes = std::fs::read(program).unwrap();
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    let (data, bare) = (program.with_extension("data"), program.with_extension("bare"));
    std::fs::copy(program, &data).unwrap();
    std::fs::write(&data, bytes).unwrap();
    native::copy(&data, &bare);
    bare
}

/// The frames from the start of a Go program to the function that computes. `_[i]` marks inlined functions.
fn chain(caller: &str) -> [&str; 7] {
    let main = ["runtime.goexit", "runtime.main", "main.main"];
    [main[0], main[1], main[2], caller, "main.repeat[...]", "main.mix_[i]", "main.rotate_[i]"]
}

#[test]
fn stripped_programs_have_the_names_that_whole_ones_have() {
    if !is_root() || lacks("go") {
        return;
    }
    assert_has_names(&build("shares.go", "whole", &[]));
    for (name, flags) in
        [("stripped", &["-ldflags=-s -w"][..]), ("stripped-pie", &["-ldflags=-s -w", "-buildmode=pie"])]
    {
        let program = build("shares.go", name, flags);
        assert_has_names(&program);
        assert_has_names(&without_sections(&program));
    }
}

fn assert_has_names(program: &Path) {
    let target = Target::start(&mut Command::new(program));
    let name = program.file_name().unwrap().to_str().unwrap();
    let batch = || {
        let profile = profile_at_high_rate(&target, 1.0, &[]);
        let stripped = profile.report["stripped"].as_array().unwrap();
        assert_eq!(stripped.len(), 0, "{name}: {stripped:?}");
        profile.folded
    };
    // `repeat` has no frame: frame pointers would skip its caller.
    let by = |caller: &'static str, length: usize| {
        move |stack: &[String]| in_order(stack, &chain(caller)[..length])
    };
    let (heavy, light) = (by("main.heavy", 5), by("main.light", 5));
    // How much Go's monitor works is a matter of the machine.
    let is_goroutine = |stack: &[String]| !stack.iter().any(|frame| frame == "runtime.mstart");
    let claims = [
        at_least(0.98, format!("{name}: functions"), move |stack| heavy(stack) || light(stack))
            .among(is_goroutine),
        share(0.75, format!("{name}: heavy"), by("main.heavy", 5)).among(is_goroutine),
        // The CPU decides on which instruction of a loop a sample falls, so this share differs between CPUs. Unit tests
        // compare the calls of each address with DWARF.
        seen(10, format!("{name}: both inlined calls"), by("main.heavy", 7)),
    ];
    let torn = prove(batch, &claims).keep(|stack| {
        stack.windows(2).any(|pair| match &*pair[1] {
            "main.rotate_[i]" => pair[0] != "main.mix_[i]",
            "main.mix_[i]" => pair[0] != "main.repeat[...]",
            _ => false,
        })
    });
    assert_eq!(torn.total(), 0, "{name}: inlined calls without their callers:\n{}", torn.top(10));
}

/// Whether a stack has these frames in this order, possibly with others between them.
fn in_order(stack: &[String], frames: &[&str]) -> bool {
    let mut rest = stack.iter();
    frames.iter().all(|frame| rest.any(|one| one == frame))
}

#[test]
fn stripped_programs_with_c_code_have_the_names_of_go() {
    if !is_root() || lacks("go") {
        return;
    }
    for (name, flags) in
        [("cgo", &["-ldflags=-s -w"][..]), ("cgo-pie", &["-ldflags=-s -w", "-buildmode=pie"])]
    {
        let program = build("calls_c.go", name, flags);
        let target = Target::start(&mut Command::new(&program));
        // `work` is C and has no name any more; its caller switched stacks. On a busy machine Go's own threads take a
        // part.
        let of_c = format!("{name}!fun_");
        let is_c = |stack: &[String]| stack.iter().any(|frame| frame.starts_with(&of_c));
        let called = |stack: &[String]| stack.iter().any(|frame| frame == "runtime.asmcgocall");
        let claims = [
            at_least(0.9, format!("{name}: C code"), is_c),
            at_least(0.99, format!("{name}: C code with its caller"), called).among(is_c),
        ];
        prove(|| short_slice(&target, &[]).folded, &claims);
    }
}
