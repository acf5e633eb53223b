//! C programs with frame pointers, one that works in the kernel, and two tools of every distribution.

use super::super::folded::{Folded, is, user_leaf};
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::{self, leisurely, path};
use super::super::share::{self, ShareClaim, at_least, at_most, of_copies, of_stacks, seen};
use super::super::target::Target;
use super::of;
use crate::plan::Found;

/// The functions of `native.c` and their shares.
const TRUTH: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];

/// The programs that work in the kernel, and parts of the names of the functions in which they do. `find` reads
/// directories and files in turn; which of them takes longer differs between kernels.
const IN_THE_KERNEL: [(&str, &[&str]); 3] =
    [("kernel", &["read"]), ("dd", &["read"]), ("find", &["stat", "getdents"])];
/// Samples of each of these programs in the kernel.
const MIN_SAMPLES: u64 = 100;
/// Seconds of their first profile: few kernel frames without a name are a claim about 2,000 samples.
const KERNEL_SECONDS: u64 = 5;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let native = native(&TRUTH)?;
    let mut found = Found { samples: native.total(), ..Found::default() };
    for (name, _) in TRUTH {
        found.figure(name, rounded(native.share(|stack| is_own(stack, name))));
    }
    let all = in_the_kernel()?;
    found.figure("kernel_under_read", rounded(of(&all, "kernel").share(is_under_read)));
    for (name, _) in IN_THE_KERNEL {
        let all = of(&all, name);
        found.samples += all.total();
        found.figure(&format!("{name}_kernel"), kernel_work(&all).total() as f64);
    }
    Ok(found)
}

/// For the test of the harness: expects a wrong share.
pub(in super::super) fn with_a_wrong_truth() -> anyhow::Result<Found> {
    native(&[("burn10", 0.4)])?;
    Ok(Found { samples: 1, ..Found::default() })
}

/// Profiles `native.c` until its shares are proved.
fn native(truth: &[(&'static str, f64)]) -> anyhow::Result<Folded> {
    let target = Target::start(&mut program::native("native"));
    let pid = target.pid().to_string();
    let mut all = Folded::default();
    share::prove(share::SHARES, |seconds| {
        all.add(profiler::sample(seconds, &["-p", &pid])?.folded);
        let claim = |&(name, share): &(&'static str, f64)| {
            of_stacks(of_copies(share), name, &all, |stack| is_own(stack, name))
        };
        Ok(truth.iter().map(claim).collect())
    })?;
    Ok(all)
}

fn is_own(stack: &[String], name: &str) -> bool {
    user_leaf(stack).is_some_and(|frame| is(frame, name))
}

/// Profiles `kernel.c` together with two tools of every distribution; a shell starts `find` again and again.
fn in_the_kernel() -> anyhow::Result<Folded> {
    let own = format!("exec {}", path("kernel"));
    let lines = [&own, "exec dd if=/dev/zero of=/dev/null bs=64k", "while :; do find /usr -size +1G; done"];
    let start =
        |line: &str| Target::spawn(leisurely("sh").args(["-c", &format!("exec >/dev/null 2>&1; {line}")]));
    let targets = lines.map(start);
    let pids = targets.each_ref().map(|target| target.pid().to_string()).join(",");
    let mut all = Folded::default();
    share::prove(KERNEL_SECONDS, |seconds| {
        all.add(profiler::sample(seconds, &["--children", "-p", &pids])?.folded);
        Ok(kernel_claims(&all))
    })?;
    Ok(all)
}

fn kernel_claims(all: &Folded) -> Vec<ShareClaim> {
    // read(2) of zeros is nearly all the work.
    let mut claims = vec![at_least(0.75, "kernel under read(2)", &of(all, "kernel"), is_under_read)];
    let mut kernel = Folded::default();
    for (name, wanted) in IN_THE_KERNEL {
        let own = kernel_work(&of(all, name));
        let is_wanted = |frame: &String| is_kernel(frame) && wanted.iter().any(|call| frame.contains(call));
        let what = format!("{name} in {wanted:?}");
        claims.push(seen(MIN_SAMPLES, format!("{name} in the kernel"), &own, |_| true));
        claims.push(at_least(0.3, what, &own, |stack| stack.iter().any(is_wanted)));
        kernel.add(own);
    }
    let is_nameless = |frame: &String| is_kernel(frame) && frame.starts_with("[unknown");
    let nameless = "kernel frames without a name";
    claims.push(at_most(0.005, nameless, &kernel, |stack| stack.iter().any(is_nameless)));
    claims
}

/// Stacks that end in the kernel.
fn kernel_work(all: &Folded) -> Folded {
    all.keep(|stack| stack.last().is_some_and(|leaf| is_kernel(leaf)))
}

fn is_kernel(frame: &str) -> bool {
    frame.ends_with("_[k]")
}

/// Whether `main` called the kernel, and all above is the kernel's, in a function for reads.
fn is_under_read(stack: &[String]) -> bool {
    let main = stack.iter().position(|frame| frame == "main");
    let kernel = stack.iter().position(|frame| is_kernel(frame));
    main.zip(kernel).is_some_and(|(main, kernel)| {
        let above = &stack[kernel..];
        main < kernel
            && above.iter().all(|frame| is_kernel(frame))
            && above.iter().any(|frame| frame.contains("read"))
    })
}
