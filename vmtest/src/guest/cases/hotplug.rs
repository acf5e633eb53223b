//! CPU 1 goes offline and online ten times while it is profiled, and once while the profiler can open no events.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::super::profiler;
use super::super::program::native;
use super::super::target::Target;
use crate::plan::Found;

const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
/// How long CPU 1 stays in each state, alternating between these. The profiler checks once a second, so that it sees
/// some changes and misses others.
const STATES: [Duration; 2] = [Duration::from_millis(1_300), Duration::from_millis(200)];
const TIMES: u32 = 10;
/// How long CPU 1 stays online at the end.
const LAST: Duration = Duration::from_secs(6);
const RATE: f64 = 499.0;
/// How long CPU 1 is online while the profiler has no descriptor for its event.
const DEAF: Duration = Duration::from_secs(5);
/// The limit of descriptors while the profiler may open files.
const FILES: u64 = 1 << 10;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    // Three programs for two CPUs, so that CPU 1 is busy whenever it is online.
    let burners = [(); 3].map(|()| Target::start(&mut native("native")));
    let states = (0..TIMES).map(|nr| 2 * STATES[nr as usize % 2]).sum::<Duration>();
    let seconds = (states + LAST + Duration::from_secs(4)).as_secs().to_string();
    let mut profiler =
        profiler::start(profiler::binary(), &["-F", "499", "-C", "1", "-d", &seconds, "--all"])?;
    let begin = Instant::now();
    profiler.wait_until_it_samples()?;
    let before = descriptors(profiler.pid())?;
    for nr in 0..TIMES {
        let state = STATES[nr as usize % 2];
        std::thread::sleep(state);
        turn("0")?;
        std::thread::sleep(state);
        turn("1")?;
    }
    let back = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let after = descriptors(profiler.pid())?;
    let profile = profiler.finish()?;
    let end = Instant::now();
    let owed = while_no_event_can_be_had()?;
    drop(burners);
    ensure!(
        before > 0 && after == before,
        "{before} perf events before, {after} after {TIMES} times off and on"
    );
    let samples = profile.folded.count(|stack| stack[0] == "native");
    // CPU 1 is offline for half of the time until `back`, then online, and the profiler may need a second to see that.
    let least = (end - back).as_secs_f64().min(LAST.as_secs_f64()) - 1.5;
    let least = least * RATE * 0.8;
    // A busy host lets a guest miss many ticks, but the time that the events count goes on while they run.
    let accounts = &profile.report["accounts"];
    let expected = accounts["expected"].as_f64().context("the accounts")?;
    ensure!(
        expected > least && samples as f64 > least / 4.0,
        "{samples} samples of CPU 1, but {least:.0} ticks are due to its last seconds alone:\n{accounts}"
    );
    let mut found = Found { samples, ..Found::default() };
    found.figure("perf_events", after as f64);
    found.figure("seconds", (end - begin).as_secs_f64().round());
    found.figure("owed_when_deaf", owed);
    Ok(found)
}

/// Ticks of CPU 1 are missed while no event can be opened, and the log has the reason; later CPU 1 is sampled again.
/// Returns the number of missed ticks.
fn while_no_event_can_be_had() -> anyhow::Result<f64> {
    let mut profiler = profiler::start(profiler::binary(), &["-F", "499", "-C", "1", "-d", "14", "--all"])?;
    profiler.wait_until_it_samples()?;
    let allow = |files| {
        let pid = Pid::from_raw(profiler.pid().cast_signed()).context("a pid")?;
        let limit = Rlimit { current: Some(files), maximum: Some(FILES) };
        prlimit(Some(pid), Resource::Nofile, limit).context("descriptors of the profiler")
    };
    turn("0")?;
    // Wait until the profiler has noticed. The profiler keeps its standard files, and calls that need some (`poll`).
    std::thread::sleep(Duration::from_millis(2_500));
    allow(3)?;
    turn("1")?;
    std::thread::sleep(DEAF);
    allow(FILES)?;
    let profile = profiler.finish()?;
    let said = "CPU 1 cannot be sampled: Too many open files";
    ensure!(profile.stderr.contains(said), "no message says {said:?}");
    let missed = profile.report["accounts"]["missed"].as_f64().context("the accounts")?;
    let least = (DEAF.as_secs_f64() - 1.5) * RATE;
    ensure!(missed > least, "{missed} ticks are missed, {least} are due to a CPU without an event");
    let samples = profile.folded.count(|stack| stack[0] == "native");
    ensure!(samples > 0, "no sample of the CPU once it could be sampled again");
    Ok(missed)
}

fn turn(state: &str) -> anyhow::Result<()> {
    fs::write(ONLINE, state).with_context(|| format!("writing {state} to {ONLINE}"))
}

/// How many perf events a process has open. Its other descriptors are files of programs, whose number changes.
fn descriptors(pid: u32) -> anyhow::Result<usize> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(links.filter(|to| to.as_os_str() == "anon_inode:[perf_event]").count())
}
