//! Other runtimes, symbolized by the perf maps that they write: functions have their names, shares and callers.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use testkit::folded::{Folded, reaches_root, user_leaf};
use testkit::profiler::{profile, profile_enough, record};
use testkit::target::Target;
use testkit::{assert_share, is_root, native, scratch, sources};

/// A runtime: its command without the program, and the prefix of functions in its map.
struct Runtime {
    command: Vec<String>,
    program: &'static str,
    prefix: &'static str,
}

/// Node, if this machine has it. No other test needs Node, so test.sh does not install it.
fn node(program: &'static str) -> Option<Runtime> {
    let works = Command::new("node").arg("--version").output().is_ok_and(|o| o.status.success());
    if !works {
        eprintln!("LEFT OUT: this machine has no node");
        return None;
    }
    // Interpreter frames of Node are in no map, and when Node compiles depends on the machine's speed. With this flag
    // each function has its own code from its first call on.
    let command = ["node", "--perf-basic-prof", "--no-turbo-inlining", "--always-sparkplug"];
    let command = command.map(str::to_owned).to_vec();
    Some(Runtime { command, program, prefix: "JS:" })
}

/// A Python that writes perf maps, if this machine has one; Debian 12 has 3.11, which does not.
fn python() -> Option<Runtime> {
    let kept = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let kept = kept.and_then(|versions| std::fs::read_dir(versions).ok()).into_iter().flatten().flatten();
    let candidates = ["python3".into(), "python3.12".into(), "python3.13".into(), "python3.14".into()];
    let candidates = candidates.into_iter().chain(kept.map(|version| version.path().join("bin/python3")));
    let found = candidates.into_iter().find_map(|python: PathBuf| {
        let asked = "import sys, sysconfig as s; print(s.get_config_var('PY_HAVE_PERF_TRAMPOLINE') and sys.executable)";
        let output = Command::new(python).args(["-c", asked]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && path.starts_with('/')).then_some(path)
    });
    let Some(python) = found else {
        eprintln!("LEFT OUT: this machine has no Python that writes perf maps, 3.12 or later");
        return None;
    };
    let command = vec![python, "-X".to_owned(), "perf".to_owned()];
    Some(Runtime { command, program: "shares.py", prefix: "py::" })
}

/// A running runtime; its map is removed on drop.
struct Running(Target);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", self.0.pid()));
    }
}

impl Runtime {
    fn start(&self) -> Running {
        let mut command = Command::new(&self.command[0]);
        // Node writes a log to its working directory.
        command.args(&self.command[1..]).arg(sources().join(self.program)).current_dir(scratch("logs"));
        Running(Target::start(&mut command))
    }

    /// The index of a function in a stack: `JS:burn10 /…/shares.js:7:16`, `py::burn10:/…/shares.py`.
    fn place(&self, stack: &[String], function: &str) -> Option<usize> {
        let name = format!("{}{function}", self.prefix);
        stack.iter().position(|frame| {
            frame.ends_with("_[j]")
                && frame.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', ':']))
        })
    }

    fn has_names_shares_and_callers(&self) {
        let all = profile_enough(&self.start().0, &[], |all| all);
        for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
            let share = all.share(|stack| self.place(stack, name).is_some());
            assert_share(name, share, truth, all.total());
            let called = all.share(|stack| {
                let round = self.place(stack, "round").filter(|_| reaches_root(stack));
                round.zip(self.place(stack, name)).is_some_and(|(round, burn)| round < burn)
            });
            assert!(called > share * 0.98, "{called} of {share} have their callers:\n{}", all.top(10));
        }
        let unknown = all.share(|stack| stack.iter().any(|frame| frame.starts_with("[unknown")));
        assert!(unknown < 0.005, "{unknown} have unknown frames:\n{}", all.top(10));
    }
}

#[test]
fn functions_of_node() {
    if !is_root() {
        return;
    }
    if let Some(node) = node("shares.js") {
        node.has_names_shares_and_callers();
    }
}

#[test]
fn what_node_has_just_compiled_has_its_name() {
    if !is_root() {
        return;
    }
    let Some(node) = node("made.js") else { return };
    let folded = profile(&node.start().0, 4, &[]).folded;
    let leaf =
        |stack: &[String]| user_leaf(stack).and_then(|leaf| leaf.strip_prefix("JS:made")).map(str::to_owned);
    let made: BTreeSet<String> = folded.stacks().filter_map(|(stack, _)| leaf(stack)).collect();
    assert!(made.len() > 4, "only {} functions were made", made.len());
    let unknown = folded.share(|stack| user_leaf(stack).is_some_and(|leaf| leaf.starts_with("[unknown")));
    assert!(unknown < 0.02, "{unknown} have no name:\n{}", folded.top(10));
}

/// Python's trampolines have neither frame pointers nor unwind tables.
#[test]
fn functions_of_python() {
    if !is_root() {
        return;
    }
    if let Some(python) = python() {
        python.has_names_shares_and_callers();
    }
}

/// In these namespaces the map is `/tmp/perf-1.map`, which is no file of the host.
#[test]
fn functions_of_a_runtime_in_namespaces_of_its_own() {
    if !is_root() {
        return;
    }
    for runtime in [node("shares.js"), python()].into_iter().flatten() {
        // The program's file may be below the /tmp that is covered.
        let script = "exec 3<\"$0\" && mount -t tmpfs none /tmp && cat <&3 >/tmp/it && exec \"$@\" /tmp/it";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
        command.arg(sources().join(runtime.program)).args(&runtime.command).current_dir(scratch("logs"));
        let target = Target::start(&mut command);
        let folded = profile(&target, 2, &["--children"]).folded;
        let named = folded.share(|stack| runtime.place(stack, "round").is_some());
        assert!(folded.total() > 100 && named > 0.95, "{named} have their names:\n{}", folded.top(10));
    }
}

/// A worker has its parent's code as of the fork, and its names. Code that a worker placed there later has no name.
fn assert_workers_have_their_names(folded: &Folded, least: f64) {
    let of = |worker: &str| folded.keep(|stack| stack[0] == worker);
    let named = |folded: &Folded| folded.share(|stack| stack.iter().any(|frame| frame == "before_fork_[j]"));
    let (same, other) = (of("same"), of("other"));
    assert!(same.total() > 50 && named(&same) > least, "{}", folded.top(10));
    assert!(other.total() > 50 && named(&other) == 0.0, "{}", folded.top(10));
    let unknown =
        other.share(|stack| stack.iter().any(|frame| frame.starts_with("[unknown: anonymous code")));
    assert!(unknown > 0.95, "{}", folded.top(10));
}

#[test]
fn code_from_before_a_fork_has_the_names_of_the_parents_map() {
    if !is_root() {
        return;
    }
    let parent = Running(native::start("forked_jit"));
    assert_workers_have_their_names(&profile(&parent.0, 3, &["--children"]).folded, 0.95);
}

#[test]
fn code_from_before_a_fork_that_was_seen_has_them_too() {
    if !is_root() {
        return;
    }
    let program = native::program("forked_jit").display().to_string();
    // The program prints `ready` where the report is expected.
    let args = ["--", "sh", "-c", "exec \"$0\" 4 >/dev/null", &program].map(str::to_owned);
    // The program ends after four seconds and removes its map, so no name of the last second is proven.
    assert_workers_have_their_names(&record(30, &args).folded, 0.6);
}
