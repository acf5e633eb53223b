//! C programs with frame pointers, one that works in the kernel, and two of every distribution.

use std::process::{Command, Stdio};

use anyhow::ensure;

use super::super::folded::Folded;
use super::super::java::rounded;
use super::super::target::Target;
use super::super::{profiler, share};
use crate::plan::{Found, PAYLOAD};

/// The functions of `native.c` and their shares.
const TRUTH: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];

/// A program of `tests/programs`, compiled.
pub(super) fn program(name: &str) -> Command {
    Command::new(format!("{PAYLOAD}/native/{name}"))
}

/// The case.
pub(in super::super) fn run() -> anyhow::Result<Found> {
    let (native, kernel) = both()?;
    judge(&native, &TRUTH)?;
    let read = kernel.share(|stack| {
        let main = stack.iter().position(|frame| frame == "main");
        let kernel = stack.iter().position(|frame| frame.ends_with("_[k]"));
        main.zip(kernel).is_some_and(|(main, kernel)| {
            main < kernel
                && stack[kernel..].iter().all(|f| f.ends_with("_[k]"))
                && names_read(&stack[kernel..])
        })
    });
    ensure!(read > 0.75, "read(2) of zeros is nearly all the work, not {read}:\n{}", kernel.top(10));
    let mut found = Found { samples: native.total() + kernel.total(), ..Found::default() };
    found.figure("kernel_under_read", rounded(read));
    let dd = tool(&["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"])?;
    let find = tool(&["sh", "-c", "while :; do find /usr -size +1G; done"])?;
    for (name, wanted, all) in [("dd", "read", dd), ("find", "stat", find)] {
        let kernel = all.keep(|stack| stack.last().is_some_and(|leaf| leaf.ends_with("_[k]")));
        ensure!(
            kernel.total() > 100,
            "only {} samples of {name} in the kernel:\n{}",
            kernel.total(),
            all.top(5)
        );
        let named = kernel.share(|stack| stack.iter().any(|f| f.contains(wanted) && f.ends_with("_[k]")));
        ensure!(named > 0.3, "{named} of {name}'s kernel time is in {wanted}:\n{}", kernel.top(10));
        let unknown =
            kernel.share(|stack| stack.iter().any(|f| f.starts_with("[unknown") && f.ends_with("_[k]")));
        ensure!(unknown < 0.005, "{unknown} of {name}'s kernel frames have no name:\n{}", kernel.top(10));
        found.figure(&format!("{name}_kernel"), kernel.total() as f64);
    }
    Ok(found)
}

/// For the test of the harness: what it holds for true is not.
pub(in super::super) fn with_a_wrong_truth() -> anyhow::Result<Found> {
    judge(&both()?.0, &[("burn10", 0.4)])?;
    Ok(Found { samples: 1, ..Found::default() })
}

fn judge(native: &Folded, truth: &[(&str, f64)]) -> anyhow::Result<()> {
    for (name, truth) in truth {
        share::check(name, native.self_share(name), *truth, native.total())
            .map_err(|error| error.context(native.top(8)))?;
    }
    Ok(())
}

/// `native.c` and `kernel.c`, profiled together, each on a CPU.
fn both() -> anyhow::Result<(Folded, Folded)> {
    let (native, kernel) = (Target::start(&mut program("native")), Target::start(&mut program("kernel")));
    let pids = format!("{},{}", native.pid(), kernel.pid());
    let mut all = Folded::default();
    for _ in 0..4 {
        all.add(profiler::record(&["-F", "499", "-d", "8", "-p", &pids])?.folded);
        if of(&all, "native").total() >= share::ENOUGH {
            break;
        }
    }
    Ok((of(&all, "native"), of(&all, "kernel")))
}

fn of(all: &Folded, comm: &str) -> Folded {
    all.keep(|stack| stack[0] == comm)
}

/// A tool, profiled with its children for three seconds.
fn tool(line: &[&str]) -> anyhow::Result<Folded> {
    let mut child = Command::new(line[0]);
    child.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn()?;
    let pid = child.id().to_string();
    let profile = profiler::record(&["-F", "499", "-d", "3", "--children", "-p", &pid]);
    child.kill()?;
    child.wait()?;
    Ok(profile?.folded)
}

fn names_read(kernel: &[String]) -> bool {
    kernel.iter().any(|frame| frame.contains("read"))
}
