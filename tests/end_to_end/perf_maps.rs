//! Other runtimes, symbolized by the perf maps that they write: functions have their names, shares and callers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use testkit::claims::{at_least, at_most, prove, seen, share};
use testkit::folded::{Folded, reaches_root, user_leaf};
use testkit::profiler::{profile, record, slice};
use testkit::target::Target;
use testkit::{is_root, native, scratch, sources};

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
        let running = self.start();
        let mut claims = vec![at_most(0.005, "unknown frames", |stack| {
            stack.iter().any(|frame| frame.starts_with("[unknown"))
        })];
        for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
            let is_there = move |stack: &[String]| self.place(stack, name).is_some();
            let is_called = move |stack: &[String]| {
                let round = self.place(stack, "round").filter(|_| reaches_root(stack));
                round.zip(self.place(stack, name)).is_some_and(|(round, burn)| round < burn)
            };
            claims.push(share(truth, name, is_there));
            claims.push(at_least(0.98, format!("{name} with its callers"), is_called).among(is_there));
        }
        prove(|| slice(&running.0, &[]), &claims);
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
    let running = node.start();
    let batch = || {
        let mut all = Folded::default();
        for _ in 0..20 {
            all.add(slice(&running.0, &[]));
            if made(&all).len() > 4 {
                return all;
            }
        }
        panic!("only {} functions were made:\n{}", made(&all).len(), all.top(10));
    };
    let unknown = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| leaf.starts_with("[unknown"));
    prove(batch, &[at_most(0.02, "leaves without a name", unknown)]);
}

/// The functions of `made.js` that have samples of their own.
fn made(folded: &Folded) -> BTreeSet<&str> {
    folded.stacks().filter_map(|(stack, _)| user_leaf(stack)?.strip_prefix("JS:made")).collect()
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
        let named = at_least(0.95, "stacks with names", |stack| runtime.place(stack, "round").is_some());
        prove(|| profile(&target, 1, &["--children"]).folded, &[named]);
    }
}

/// A worker has its parent's code as of the fork, and its names. Code that a worker placed there later has no name.
/// `least`: the least share of samples that have the names.
fn assert_workers_have_their_names(least: f64, batch: impl FnMut() -> Folded) {
    let of = |worker: &'static str| move |stack: &[String]| stack[0] == worker;
    let named = |stack: &[String]| stack.iter().any(|frame| frame == "before_fork_[j]");
    let unknown = |stack: &[String]| stack.iter().any(|frame| frame.starts_with("[unknown: anonymous code"));
    let claims = [
        seen(51, "samples of `same`", of("same")),
        at_least(least, "names of `same`", named).among(of("same")),
        seen(51, "samples of `other`", of("other")),
        at_least(0.95, "unknown code of `other`", unknown).among(of("other")),
    ];
    let wrong = prove(batch, &claims).keep(|stack| of("other")(stack) && named(stack));
    assert_eq!(wrong.total(), 0, "{}", wrong.top(10));
}

#[test]
fn code_from_before_a_fork_has_the_names_of_the_parents_map() {
    if !is_root() {
        return;
    }
    let parent = Running(native::start("forked_jit"));
    assert_workers_have_their_names(0.95, || profile(&parent.0, 2, &["--children"]).folded);
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
    assert_workers_have_their_names(0.6, || record(30, &args).folded);
}
