//! 32-bit programs on a 64-bit kernel, end to end: the same stacks of known shape as for 64-bit programs.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use testkit::folded::{Folded, is, user_leaf};
use testkit::profiler::profile;
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

/// The kernel's headers, which are the same for 64 bits; a compiler for 32 bits does not search them.
const HEADERS: &str = "/usr/include/x86_64-linux-gnu";

/// Compiles a program for 32 bits; `None` if the compiler cannot, or if this kernel does not run the program.
fn compiled(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !is_root() {
        return None;
    }
    let empty = scratch("compat").join("empty");
    let mut cc = Command::new("cc");
    cc.args(["-m32", "-xc", "-", "-o"]).arg(&empty).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut cc = cc.spawn().unwrap();
    std::io::Write::write_all(&mut cc.stdin.take().unwrap(), b"int main(void) { return 0; }").unwrap();
    if !cc.wait().unwrap().success() {
        skip("the compiler makes no 32-bit programs: gcc-N-multilib and libc6-dev-i386 are missing");
        return None;
    }
    if !Command::new(&empty).status().is_ok_and(|status| status.success()) {
        skip("this kernel runs no 32-bit programs");
        return None;
    }
    Some(native::with_flags(source, name, &[&["-m32", "-idirafter", HEADERS], flags].concat()))
}

/// Profiles `frames.c`, compiled without frame pointers.
fn frames(args: &[&str]) -> Option<Folded> {
    let program = compiled("frames.c", "frames-32", &["-fomit-frame-pointer"])?;
    let target = Target::start(Command::new(program).args(args));
    Some(profile(&target, 2, &[]).folded)
}

/// Asserts that nearly all stacks with the last of these names have all of them in this order, roots first.
#[track_caller]
fn assert_callers(all: &Folded, names: &[&str]) {
    let (leaf, own) = (names.last().unwrap(), |frame: &&String| names.iter().any(|name| is(frame, name)));
    let of_leaf = all.within(leaf);
    assert!(of_leaf.total() > 200 && of_leaf.total() * 4 > all.total(), "{}", all.top(10));
    let right =
        of_leaf.share(|stack| stack.iter().filter(own).map(|frame| frame.as_str()).eq(names.iter().copied()));
    eprintln!("{:.2} % of {} stacks of {leaf} are right", right * 100.0, of_leaf.total());
    assert!(right > 0.98, "only {right} of the stacks have {names:?}:\n{}", of_leaf.top(10));
    let unknown = all.keep(|stack| stack.iter().any(|frame| frame.starts_with("[unknown")));
    assert!(unknown.total() * 100 < all.total(), "{}", unknown.top(10));
}

#[test]
fn a_chain_through_libc_is_whole_frame_by_frame() {
    for (mode, root) in [("chain", "main"), ("thread", "in_thread")] {
        let Some(all) = frames(&[mode]) else { return };
        let names = [&["_start", root][..], &["chain"; 40], &["by_value", "work"]].concat();
        assert_callers(&all, if mode == "chain" { &names } else { &names[1..] });
    }
}

#[test]
fn frame_pointers_are_followed_where_no_table_is() {
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let Some(program) = compiled("uprobes.c", "uprobes-32-fp", &flags) else { return };
    let target = Target::start(Command::new(program).args(["chain", "40"]));
    let all = profile(&target, 2, &[]).folded;
    assert_callers(&all, &[&["main", "run"][..], &["chain"; 40], &["by_value", "work"]].concat());
}

#[test]
fn a_leaf_has_its_caller_in_prologue_and_epilogue_too() {
    let Some(all) = frames(&["leaves"]) else { return };
    let tiny = all.keep(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, "tiny")));
    assert_callers(&tiny, &["_start", "main", "caller", "tiny"]);
}

#[test]
fn signal_handlers_stand_on_what_they_interrupted() {
    for args in [&["signal"][..], &["signal", "stack"]] {
        let Some(all) = frames(args) else { return };
        assert_callers(&all, &["_start", "main", "spin", "__kernel_sigreturn", "on_alarm", "work"]);
    }
}

#[test]
fn coroutines_begin_where_libc_begins_them() {
    let Some(all) = frames(&["coroutine"]) else { return };
    let begins = all.within("work").share(|stack| is(&stack[2], "in_coroutine"));
    assert!(begins > 0.98, "{}", all.top(3));
    assert_callers(&all, &[&["in_coroutine"][..], &["chain"; 40], &["by_value", "work"]].concat());
}

/// The kernel is entered from the vdso of 32-bit programs, which 64-bit programs do not have.
#[test]
fn system_calls_have_callers() {
    let Some(program) = compiled("kernel.c", "kernel-32", &["-fomit-frame-pointer"]) else { return };
    let target = Target::start(&mut Command::new(program));
    let all = profile(&target, 2, &[]).folded;
    let all = all.within("read");
    assert_callers(&all, &["_start", "main", "copy", "read", "__kernel_vsyscall"]);
    assert!(all.share(|stack| stack.last().unwrap().ends_with("_[k]")) > 0.9, "{}", all.top(10));
}

#[test]
fn functions_with_uretprobes_have_their_callers() {
    let Some(program) = compiled("uprobes.c", "uprobes-32", &["-fomit-frame-pointer"]) else { return };
    let target = Target::start(Command::new(program).args(["chain", "10", "chain", "by_value", "work"]));
    let all = profile(&target, 2, &[]).folded;
    assert_callers(&all, &[&["_start", "main", "run"][..], &["chain"; 10], &["by_value", "work"]].concat());
}
