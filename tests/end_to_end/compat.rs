//! 32-bit programs on a 64-bit kernel, end to end: the same stacks of known shape as for 64-bit programs.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use testkit::claims::{StackClaim, at_least, at_most, prove};
use testkit::folded::{has, is, user_leaf};
use testkit::profiler::short_slice;
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

/// The kernel's headers, which are the same for 64 bits; a compiler for 32 bits does not search them.
const HEADERS: &str = "/usr/include/x86_64-linux-gnu";

/// Compiles a program for 32 bits; `None` if the compiler cannot, or if this kernel does not run the program.
fn compiled(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !is_root() {
        return None;
    }
    // Tests beside each other use one answer: the program that is tried cannot run while another test compiles it.
    static MISSING: OnceLock<Option<&str>> = OnceLock::new();
    if let Some(missing) = MISSING.get_or_init(missing) {
        skip(missing);
        return None;
    }
    Some(native::with_flags(source, name, &[&["-m32", "-idirafter", HEADERS], flags].concat()))
}

/// What this machine lacks for 32-bit programs.
fn missing() -> Option<&'static str> {
    let empty = scratch("compat").join("empty");
    let mut cc = Command::new("cc");
    cc.args(["-m32", "-xc", "-", "-o"]).arg(&empty).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut cc = cc.spawn().unwrap();
    cc.stdin.take().unwrap().write_all(b"int main(void) { return 0; }").unwrap();
    if !cc.wait().unwrap().success() {
        return Some("the compiler makes no 32-bit programs: gcc-N-multilib and libc6-dev-i386 are missing");
    }
    let runs = Command::new(&empty).status().is_ok_and(|status| status.success());
    (!runs).then_some("this kernel runs no 32-bit programs")
}

/// Starts `frames.c`, compiled without frame pointers.
fn frames(args: &[&str]) -> Option<Target> {
    let program = compiled("frames.c", "frames-32", &["-fomit-frame-pointer"])?;
    Some(Target::start(Command::new(program).args(args)))
}

/// Nearly all stacks with the last of these names have all of them in this order, roots first.
fn callers<'a>(names: &'a [&'a str]) -> Vec<StackClaim<'a>> {
    let leaf = names[names.len() - 1];
    let right = move |stack: &[String]| {
        let own = stack.iter().filter(|frame| names.iter().any(|name| is(frame, name)));
        own.map(String::as_str).eq(names.iter().copied())
    };
    vec![
        at_least(0.25, format!("stacks of {leaf}"), has(leaf)),
        at_least(0.98, format!("stacks of {leaf} with {names:?}"), right).among(has(leaf)),
        at_most(0.01, "unknown frames", |stack| stack.iter().any(|frame| frame.starts_with("[unknown"))),
    ]
}

#[test]
fn a_chain_through_libc_is_whole_frame_by_frame() {
    for (mode, root) in [("chain", "main"), ("thread", "in_thread")] {
        let Some(target) = frames(&[mode]) else { return };
        let names = [&["_start", root][..], &["chain"; 40], &["by_value", "work"]].concat();
        let names = if mode == "chain" { &names[..] } else { &names[1..] };
        prove(|| short_slice(&target, &[]).folded, &callers(names));
    }
}

#[test]
fn frame_pointers_are_followed_where_no_table_is() {
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let Some(program) = compiled("uprobes.c", "uprobes-32-fp", &flags) else { return };
    let target = Target::start(Command::new(program).args(["chain", "40"]));
    let names = [&["main", "run"][..], &["chain"; 40], &["by_value", "work"]].concat();
    prove(|| short_slice(&target, &[]).folded, &callers(&names));
}

#[test]
fn a_leaf_has_its_caller_in_prologue_and_epilogue_too() {
    let Some(target) = frames(&["leaves"]) else { return };
    let is_tiny = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| is(leaf, "tiny"));
    prove(|| short_slice(&target, &[]).folded.keep(is_tiny), &callers(&["_start", "main", "caller", "tiny"]));
}

#[test]
fn signal_handlers_stand_on_what_they_interrupted() {
    for args in [&["signal"][..], &["signal", "stack"]] {
        let Some(target) = frames(args) else { return };
        let names = ["_start", "main", "spin", "__kernel_sigreturn", "on_alarm", "work"];
        prove(|| short_slice(&target, &[]).folded, &callers(&names));
    }
}

#[test]
fn coroutines_begin_where_libc_begins_them() {
    let Some(target) = frames(&["coroutine"]) else { return };
    let names = [&["in_coroutine"][..], &["chain"; 40], &["by_value", "work"]].concat();
    let mut claims = callers(&names);
    let begins = |stack: &[String]| stack.get(2).is_some_and(|frame| is(frame, "in_coroutine"));
    let works = has("work");
    claims.push(at_least(0.98, "stacks that begin with the coroutine", begins).among(works));
    prove(|| short_slice(&target, &[]).folded, &claims);
}

/// The kernel is entered from the vdso of 32-bit programs, which 64-bit programs do not have.
#[test]
fn system_calls_have_callers() {
    let Some(program) = compiled("kernel.c", "kernel-32", &["-fomit-frame-pointer"]) else { return };
    let target = Target::start(&mut Command::new(program));
    let mut claims = callers(&["_start", "main", "copy", "read", "__kernel_vsyscall"]);
    claims.push(at_least(0.9, "stacks that end in the kernel", |stack| {
        stack.last().is_some_and(|frame| frame.ends_with("_[k]"))
    }));
    prove(|| short_slice(&target, &[]).folded.within("read"), &claims);
}

#[test]
fn functions_with_uretprobes_have_their_callers() {
    let Some(program) = compiled("uprobes.c", "uprobes-32", &["-fomit-frame-pointer"]) else { return };
    let target = Target::start(Command::new(program).args(["chain", "10", "chain", "by_value", "work"]));
    let names = [&["_start", "main", "run"][..], &["chain"; 10], &["by_value", "work"]].concat();
    prove(|| short_slice(&target, &[]).folded, &callers(&names));
}
