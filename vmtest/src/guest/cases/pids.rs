//! Processes that start and end as fast as the guest can, on a few hundred pids that are soon reused, and one process
//! that executes program after program. Each sample must have the names of its own program, while memory stays flat.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::super::folded::Folded;
use super::super::java::rounded;
use super::super::profiler;
use super::super::program::{leisurely, path};
use super::super::target::Target;
use crate::plan::Found;

const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// So few pids that each is reused every few seconds. Pids below `RESERVED_PIDS` (`kernel/pid.c`) are used only once.
const FEW: u32 = 500;
const RESERVED: u32 = 300;
const SECONDS: u64 = 20;
/// Memory that the profiler may use after some thousand processes, bytes.
const MEMORY: u64 = 48 << 20;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    let usual = fs::read_to_string(PID_MAX).context(PID_MAX)?;
    fs::write(PID_MAX, FEW.to_string()).context(PID_MAX)?;
    let found = storm();
    fs::write(PID_MAX, usual).context(PID_MAX)?;
    found
}

/// Starts a program without address randomization: an address then has different code in each program.
fn start(program: &str, args: &[&str]) -> Target {
    Target::spawn(leisurely("setarch").args(["-R", &path(program)]).args(args))
}

fn storm() -> anyhow::Result<Found> {
    let (a, b) = (path("turn_a"), path("turn_b"));
    let targets = [
        start("spawn", &[&a, "5"]),
        start("spawn", &[&b, "5"]),
        start("spawn", &["/bin/true"]),
        start("turn_a", &["5", "1000000", &b]),
    ];
    let seconds = SECONDS.to_string();
    let mut profiler = profiler::start(profiler::binary(), &["-F", "499", "-d", &seconds, "--all"])?;
    profiler.wait_until_it_samples()?;
    let (begin, forks) = (Instant::now(), forks()?);
    std::thread::sleep(Duration::from_secs(SECONDS - 4));
    let memory = resident(profiler.pid())?;
    let rate = (self::forks()? - forks) as f64 / begin.elapsed().as_secs_f64();
    let profile = profiler.finish()?;
    drop(targets);
    ensure!(memory < MEMORY, "it has {memory} bytes of memory after {rate} processes a second");
    let mut found = Found::default();
    let mut bad = Folded::default();
    for (name, own, other) in [("turn_a", "work_of_a", "work_of_b"), ("turn_b", "work_of_b", "work_of_a")] {
        let of_it = profile.folded.keep(|stack| stack[0] == name);
        let (right, wrong) = (of_it.within(own).total(), of_it.within(other));
        ensure!(wrong.total() == 0, "{name} has the other's names:\n{}", wrong.top(10));
        ensure!(right > 200, "only {right} of {} samples of {name} work:\n{}", of_it.total(), of_it.top(10));
        found.samples += of_it.total();
        bad.add(of_it.keep(has_no_name));
    }
    let unknown = bad.total() as f64 / found.samples as f64;
    ensure!(unknown < 0.05, "{unknown} of the samples have unknown frames:\n{}", bad.top(10));
    // At least two rounds of the pids: each program then had pids that the other had before.
    let pids = f64::from(FEW - RESERVED);
    let rounds = rate * begin.elapsed().as_secs_f64() / pids;
    ensure!(rounds > 2.0, "{rate} processes a second are too few for {pids} pids to be given again");
    found.figure("forks_per_s", rate.round());
    found.figure("unknown", rounded(unknown));
    found.figure("lost", profiler::lost(&profile.report) as f64);
    found.figure("memory_kib", (memory >> 10) as f64);
    Ok(found)
}

/// Whether a frame is unknown. Frames outside `main` do not count: a slow emulated machine gets the unwind table of
/// libc late.
fn has_no_name(stack: &[String]) -> bool {
    let main = stack.iter().position(|frame| frame == "main").unwrap_or(0);
    stack[main..].iter().any(|frame| frame.starts_with("[unknown"))
}

/// How many processes were started since boot.
fn forks() -> anyhow::Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("processes "));
    line.and_then(|n| n.trim().parse().ok()).context("/proc/stat has no count of processes")
}

/// Resident memory of a process and its children, bytes.
fn resident(pid: u32) -> anyhow::Result<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let all = std::iter::once(pid.to_string()).chain(children.split_whitespace().map(str::to_owned));
    let kib = all.filter_map(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    Ok(kib.sum::<u64>() << 10)
}
