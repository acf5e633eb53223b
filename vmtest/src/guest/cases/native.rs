//! C programs with frame pointers, one that works in the kernel, and two tools of every distribution.

use anyhow::ensure;

use super::super::folded::Folded;
use super::super::java::rounded;
use super::super::program::{self, leisurely, path};
use super::super::share::Effort;
use super::super::target::Target;
use super::super::{profiler, share};
use super::of;
use crate::plan::Found;

/// The functions of `native.c` and their shares.
const TRUTH: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let native = native()?;
    judge(&native, &TRUTH)?;
    let mut found = Found { samples: native.total(), ..Found::default() };
    let all = in_the_kernel()?;
    let read = of(&all, "kernel").share(|stack| {
        let main = stack.iter().position(|frame| frame == "main");
        let kernel = stack.iter().position(|frame| frame.ends_with("_[k]"));
        main.zip(kernel).is_some_and(|(main, kernel)| {
            main < kernel
                && stack[kernel..].iter().all(|f| f.ends_with("_[k]"))
                && stack[kernel..].iter().any(|frame| frame.contains("read"))
        })
    });
    ensure!(read > 0.75, "read(2) of zeros is nearly all the work, not {read}:\n{}", all.top(10));
    found.figure("kernel_under_read", rounded(read));
    // `find` reads directories and files in turn; which of them takes longer differs between kernels.
    for (name, wanted) in [("kernel", &["read"][..]), ("dd", &["read"]), ("find", &["stat", "getdents"])] {
        let all = of(&all, name);
        let kernel = all.keep(|stack| stack.last().is_some_and(|leaf| leaf.ends_with("_[k]")));
        let n = kernel.total();
        ensure!(n > 100, "only {n} samples of {name} in the kernel:\n{}", all.top(5));
        let is_wanted = |f: &String| f.ends_with("_[k]") && wanted.iter().any(|call| f.contains(call));
        let named = kernel.share(|stack| stack.iter().any(is_wanted));
        ensure!(named > 0.3, "{named} of {name}'s kernel time is in {wanted:?}:\n{}", kernel.top(10));
        let unknown =
            kernel.share(|stack| stack.iter().any(|f| f.starts_with("[unknown") && f.ends_with("_[k]")));
        ensure!(unknown < 0.005, "{unknown} of {name}'s kernel frames have no name:\n{}", kernel.top(10));
        found.samples += all.total();
        found.figure(&format!("{name}_kernel"), n as f64);
    }
    Ok(found)
}

/// For the test of the harness: expects a wrong share.
pub(in super::super) fn with_a_wrong_truth() -> anyhow::Result<Found> {
    judge(&native()?, &[("burn10", 0.4)])?;
    Ok(Found { samples: 1, ..Found::default() })
}

fn judge(native: &Folded, truth: &[(&str, f64)]) -> anyhow::Result<()> {
    for (name, truth) in truth {
        share::check(name, native.self_share(name), *truth, native.total())
            .map_err(|error| error.context(native.top(8)))?;
    }
    Ok(())
}

/// Profiles `native.c` until there are enough samples.
fn native() -> anyhow::Result<Folded> {
    let target = Target::start(&mut program::native("native"));
    let pid = target.pid().to_string();
    let mut all = Folded::default();
    let mut effort = Effort::first();
    loop {
        let seconds = effort.seconds().to_string();
        all.add(profiler::record(&["-F", "499", "-d", &seconds, "-p", &pid])?.folded);
        if !effort.needs_more(share::part(all.total())) {
            return Ok(all);
        }
    }
}

/// Profiles `kernel.c` together with two tools of every distribution; a shell starts `find` again and again.
fn in_the_kernel() -> anyhow::Result<Folded> {
    let own = format!("exec {}", path("kernel"));
    let lines = [&own, "exec dd if=/dev/zero of=/dev/null bs=64k", "while :; do find /usr -size +1G; done"];
    let start =
        |line: &str| Target::spawn(leisurely("sh").args(["-c", &format!("exec >/dev/null 2>&1; {line}")]));
    let targets = lines.map(start);
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    Ok(profiler::record(&["-F", "499", "-d", "5", "--children", "-p", &pids])?.folded)
}
