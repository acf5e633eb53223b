//! Go, end to end: programs as users ship them, without symbols and DWARF.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::profiler::{Profile, profile};
use testkit::target::Target;
use testkit::{is_root, lacks, scratch, share_tolerance, sources};

fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = scratch("go").join(name);
    let mut go = testkit::go();
    go.arg("build").args(flags).arg("-o").arg(&program).arg(sources().join(source));
    let done = go.envs([("CGO_ENABLED", "1"), ("GO111MODULE", "off")]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Removes a program's section headers.
fn without_sections(program: &Path) {
    let mut bytes = std::fs::read(program).unwrap();
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    std::fs::write(program, bytes).unwrap();
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
    let pie = &["-ldflags=-s -w", "-buildmode=pie"][..];
    for (name, flags, sections) in [
        ("whole", &[][..], true),
        ("stripped", &["-ldflags=-s -w"], true),
        ("stripped-pie", pie, true),
        ("no-sections", &["-ldflags=-s -w"], false),
        ("no-sections-pie", pie, false),
    ] {
        let program = build("shares.go", name, flags);
        if !sections {
            without_sections(&program);
        }
        let target = Target::start(&mut Command::new(&program));
        let Profile { folded: all, report, .. } = profile(&target, 2, &[]);
        assert!(all.total() > 200, "{name}: {}", all.top(5));
        // `repeat` has no frame: frame pointers would skip its caller.
        let by = |caller, length| all.share(|stack| in_order(stack, &chain(caller)[..length]));
        let (heavy, light) = (by("main.heavy", 5), by("main.light", 5));
        assert!(heavy + light > 0.98, "{name}: {heavy} and {light} have their functions:\n{}", all.top(10));
        let tolerance = share_tolerance(0.75, all.total());
        assert!(
            (heavy - 0.75).abs() < tolerance + 0.02,
            "{name}: {heavy} is not three quarters:\n{}",
            all.top(10)
        );
        let inlined = by("main.heavy", 7);
        assert!(inlined > 0.1, "{name}: only {inlined} have both inlined calls:\n{}", all.top(10));
        assert_eq!(report["stripped"].as_array().unwrap().len(), 0, "{name}: {}", report["stripped"]);
    }
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
        let all = profile(&target, 2, &[]).folded;
        // `work` is C and has no name any more; its caller switched stacks. On a busy machine Go's own threads take a part.
        let of_c = format!("{name}!fun_");
        let c = all.keep(|stack| stack.iter().any(|frame| frame.starts_with(&of_c)));
        let right = c.share(|stack| stack.iter().any(|frame| frame == "runtime.asmcgocall"));
        let share = c.total() as f64 / all.total() as f64;
        assert!(all.total() > 200 && share > 0.9, "{name}: {share}\n{}", all.top(10));
        assert!(right > 0.99, "{name}: {right}\n{}", all.top(10));
    }
}
