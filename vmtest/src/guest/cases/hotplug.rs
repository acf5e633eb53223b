//! CPU 1 goes offline and online ten times while it is profiled, and once while the profiler can open no events.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::super::profiler::{self, RATE, UNTIL_STOPPED};
use super::super::program::native;
use super::super::target::Target;
use crate::plan::Found;

const ARGS: [&str; 7] = ["-F", RATE, "-C", "1", "-d", UNTIL_STOPPED, "--all"];
const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
/// How long CPU 1 stays in each state, alternating between these. The profiler checks once a second, so that it sees
/// some changes and misses others.
const STATES: [Duration; 2] = [Duration::from_millis(1_300), Duration::from_millis(200)];
const TIMES: u32 = 10;
/// How long CPU 1 stays online at the end.
const LAST: Duration = Duration::from_secs(4);
/// How long the profiler may take to see that a CPU went online or offline, on a busy host.
const NOTICED: Duration = Duration::from_secs(60);
/// How long CPU 1 is online while the profiler has no descriptor for its event.
const DEAF: Duration = Duration::from_secs(3);
/// The limit of descriptors while the profiler may open files.
const FILES: u64 = 1 << 10;
/// Samples of CPU 1 that there must be at least. How many ticks a guest misses depends on the host.
const MIN_SAMPLES: u64 = 100;

pub(in super::super) fn run() -> anyhow::Result<Found> {
    // Three programs for two CPUs, so that CPU 1 is busy whenever it is online.
    let burners = [(); 3].map(|()| Target::start(&mut native("native")));
    let profiler = profiler::start(profiler::binary(), &ARGS)?;
    profiler.wait_until_it_samples()?;
    let begin = Instant::now();
    let before = descriptors(profiler.pid())?;
    for nr in 0..TIMES {
        let state = STATES[nr as usize % 2];
        std::thread::sleep(state);
        turn("0")?;
        std::thread::sleep(state);
        turn("1")?;
    }
    std::thread::sleep(LAST);
    wait_for_descriptors(profiler.pid(), |now| now == before)
        .with_context(|| format!("{before} perf events before CPU 1 went off and on"))?;
    let profile = profiler.stop()?;
    let seconds = begin.elapsed().as_secs_f64();
    let owed = while_no_event_can_be_had()?;
    drop(burners);
    ensure!(before > 0, "the profiler has no perf event");
    let samples = profile.folded.count(|stack| stack[0] == "native");
    // The time before CPU 1 goes offline, and the end. The profiler needs a second to see that CPU 1 is back. A busy
    // host lets a guest miss many ticks, but the time that the events count goes on while they run.
    let least = (STATES[0] + LAST).as_secs_f64() - 1.5;
    let least = 0.8 * least * rate()?;
    let accounts = &profile.report["accounts"];
    let expected = accounts["expected"].as_f64().context("the accounts")?;
    ensure!(
        expected > least && samples >= MIN_SAMPLES,
        "{samples} samples of CPU 1, but {least:.0} ticks are due to its first and last seconds alone:\n{accounts}"
    );
    let mut found = Found { samples, ..Found::default() };
    found.figure("perf_events", before as f64);
    found.figure("seconds", seconds.round());
    found.figure("owed_when_deaf", owed);
    Ok(found)
}

/// Ticks of CPU 1 are missed while no event can be opened, and the log has the reason; later CPU 1 is sampled again.
/// Returns the number of missed ticks.
fn while_no_event_can_be_had() -> anyhow::Result<f64> {
    let profiler = profiler::start(profiler::binary(), &ARGS)?;
    profiler.wait_until_it_samples()?;
    let pid = profiler.pid();
    let before = descriptors(pid)?;
    let allow = |files| {
        let pid = Pid::from_raw(pid.cast_signed()).context("a pid")?;
        let limit = Rlimit { current: Some(files), maximum: Some(FILES) };
        prlimit(Some(pid), Resource::Nofile, limit).context("descriptors of the profiler")
    };
    turn("0")?;
    wait_for_descriptors(pid, |now| now < before)?;
    // The profiler keeps its standard files, and calls that need some (`poll`).
    allow(3)?;
    turn("1")?;
    profiler.wait_for("CPU 1 cannot be sampled: Too many open files")?;
    let deaf = Instant::now();
    std::thread::sleep(DEAF);
    let deaf = deaf.elapsed().as_secs_f64();
    allow(FILES)?;
    wait_for_descriptors(pid, |now| now == before)?;
    std::thread::sleep(Duration::from_secs(1));
    let profile = profiler.stop()?;
    let missed = profile.report["accounts"]["missed"].as_f64().context("the accounts")?;
    let least = 0.9 * deaf * rate()?;
    ensure!(missed > least, "{missed} ticks are missed, {least} are due to a CPU without an event");
    let samples = profile.folded.count(|stack| stack[0] == "native");
    ensure!(samples > 0, "no sample of the CPU once it could be sampled again");
    Ok(missed)
}

fn rate() -> anyhow::Result<f64> {
    RATE.parse::<f64>().context("the rate")
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

/// Waits until the number of perf events that a process has open is a wanted one.
fn wait_for_descriptors(pid: u32, wanted: impl Fn(usize) -> bool) -> anyhow::Result<()> {
    let end = Instant::now() + NOTICED;
    loop {
        let now = descriptors(pid)?;
        if wanted(now) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "the profiler has {now} perf events, and keeps them");
        std::thread::sleep(Duration::from_millis(50));
    }
}
