//! Processes that start and end as fast as the guest can, on a few hundred pids that are soon reused, and one process
//! that executes program after program. Each sample must have the names of its own program, while memory stays flat.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::super::folded::{Folded, is};
use super::super::java::rounded;
use super::super::profiler::{self, RATE, UNTIL_STOPPED};
use super::super::program::{leisurely, path};
use super::super::share::{self, ShareClaim, at_most, seen};
use super::super::target::Target;
use super::of;
use crate::plan::Found;

const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// So few pids that each is reused every few seconds. Pids below `RESERVED_PIDS` (`kernel/pid.c`) are used only once.
const FEW: u32 = 500;
const RESERVED: u32 = 300;
/// How often each pid is given in a profile, at least: each program then has pids that another one had before.
const ROUNDS: u32 = 4;
/// How often the case counts the processes.
const COUNT_INTERVAL: Duration = Duration::from_millis(100);
/// Memory that the profiler may use after so many processes, bytes.
const MEMORY: u64 = 48 << 20;
/// Samples that each program must have in its own function.
const MIN_SAMPLES: u64 = 200;
/// The programs, their own functions, and those of the other program.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("turn_a", "work_of_a", "work_of_b"), ("turn_b", "work_of_b", "work_of_a")];

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
    let mut all = Folded::default();
    let mut rate = 0.0_f64;
    let mut memory = 0_u64;
    let mut lost = 0_u64;
    share::prove(0, |_| {
        let args = ["-F", RATE, "-d", UNTIL_STOPPED, "--all"];
        let profiler = profiler::start(profiler::binary(), &args)?;
        profiler.wait_until_it_samples()?;
        let (begin, before) = (Instant::now(), forks()?);
        while forks()? - before < u64::from((FEW - RESERVED) * ROUNDS) {
            std::thread::sleep(COUNT_INTERVAL);
        }
        rate = (forks()? - before) as f64 / begin.elapsed().as_secs_f64();
        memory = memory.max(resident(profiler.pid())?);
        ensure!(memory < MEMORY, "it has {memory} bytes of memory after {rate} processes a second");
        let profile = profiler.stop()?;
        lost += profiler::lost(&profile.report);
        all.add(profile.folded);
        claims(&all)
    })?;
    drop(targets);
    let of_them = of_programs(&all);
    let mut found = Found { samples: of_them.total(), ..Found::default() };
    found.figure("forks_per_s", rate.round());
    found.figure("unknown", rounded(of_them.share(has_no_name)));
    found.figure("lost", lost as f64);
    found.figure("memory_kib", (memory >> 10) as f64);
    Ok(found)
}

fn of_programs(all: &Folded) -> Folded {
    all.keep(|stack| PROGRAMS.iter().any(|(name, ..)| stack[0] == *name))
}

fn claims(all: &Folded) -> anyhow::Result<Vec<ShareClaim>> {
    let mut claims = vec![at_most(0.05, "samples with unknown frames", &of_programs(all), has_no_name)];
    for (name, own, other) in PROGRAMS {
        let of_it = of(all, name);
        let wrong = of_it.within(other);
        ensure!(wrong.total() == 0, "{name} has the other's names:\n{}", wrong.top(10));
        let is_own = |stack: &[String]| stack.iter().any(|frame| is(frame, own));
        claims.push(seen(MIN_SAMPLES, format!("{name} in {own}"), &of_it, is_own));
    }
    Ok(claims)
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
