//! Processes that are gone before anybody can ask them: their samples keep their names, and nobody else's.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::process::Command;

use common::folded::is;
use common::profiler::{profile, record_watching};
use common::target::Target;
use common::{is_root, native};

/// The path of a compiled program as an argument.
fn path(name: &str) -> String {
    native::program(name).to_str().unwrap().to_owned()
}

#[test]
fn short_processes_keep_their_names() {
    if !is_root() {
        return;
    }
    let spawn = Target::start(Command::new(native::program("spawn")).args([&path("short"), "5"]));
    let profile = record_watching(&[spawn.pid()], 4, &["--all".to_owned()]);
    let family = profile.folded.keep(|stack| stack[0] == "short" || stack[0] == "spawn");
    profile.assert_samples_of(&[spawn.pid()], family.total());
    let of_short = family.keep(|stack| stack[0] == "short");
    // Exec, page faults and exit are the kernel's; user code has a name of the program, its loader or libc.
    let unknown = of_short.share(|stack| stack.iter().any(|frame| frame.starts_with("[unknown")));
    assert!(unknown < 0.05, "{unknown} of the samples have unknown frames:\n{}", of_short.top(10));
    assert!(of_short.within("short_lived_work").total() * 2 > of_short.total(), "{}", of_short.top(10));
}

#[test]
fn children_are_followed_if_asked_for() {
    if !is_root() {
        return;
    }
    let spawn = Target::start(Command::new(native::program("spawn")).args([&path("short"), "20"]));
    let with = profile(&spawn, 3, &["--children"]);
    with.assert_samples_of(&[spawn.pid()], with.folded.total());
    let work = with.folded.within("short_lived_work").total();
    assert!(work * 10 > with.folded.total() * 8, "{}", with.folded.top(10));
    let without = profile(&spawn, 2, &[]);
    // The children that it waited for went on all the time.
    assert!(without.ticks_of(&[spawn.pid()]).0 > 100.0);
    let others = without.folded.count(|stack| stack.iter().any(|f| is(f, "short_lived_work")));
    assert_eq!(others, 0, "{}", without.folded.top(10));
}
