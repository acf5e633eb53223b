//! Measures time and memory for writing 200,000 distinct stacks of about 60 frames to files: `cargo bench --bench
//! formats`. Fails above 2 seconds of CPU time or 250 MB. With one thread, CPU time is the wall time on an idle
//! machine; the wall time is printed, too.
#![allow(clippy::print_stdout, clippy::panic, clippy::unwrap_used)] // prints for a person at a terminal

mod walk;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use jbpf_prof::output::{self, OutputTarget, PictureOptions};
use jbpf_prof::profile::{Accounts, Labels, Profile};
use jbpf_prof::sample::Event;
use walk::Walk;

const STACKS: u64 = 200_000;
const PERIOD_NS: u64 = 10_101_010;

fn rss_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> (T, Duration) {
    let (wall, start) = (Instant::now(), cpu());
    let result = work();
    let (wall, took) = (wall.elapsed(), cpu().saturating_sub(start));
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!("{what:<12} {:>7.0} ms (wall {:.0}), peak {:>4} MB", ms(took), ms(wall), rss_peak() / 1_000_000);
    (result, took)
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let mut walk = Walk::new();
    let labels = Labels { pid: 7, process: "java".into(), ..Labels::default() };
    let (mut profile, _) = timed("add", || {
        let mut profile = Profile::new();
        while profile.samples().len() < STACKS as usize {
            for _ in 0..STACKS {
                profile.add(&labels, &walk.stack(), 1, PERIOD_NS);
            }
        }
        profile
    });
    let kept = profile.of_event(Event::Cpu).total().count;
    *profile.accounts_mut(Event::Cpu) =
        Accounts { taken: kept, kept, period_ns: PERIOD_NS, ..Accounts::default() };
    println!(
        "             {} distinct stacks, {} nodes, {} frames",
        profile.samples().len(),
        profile.trie().len(),
        profile.frames().len()
    );
    let write = |name: &str| {
        let path = directory.path().join(name);
        let target = OutputTarget::parse(&path, None).unwrap();
        let ((), took) = timed(name, || {
            drop(output::write(&profile.views(), &target, &PictureOptions::default()).unwrap());
        });
        println!("             {} KiB", std::fs::metadata(&path).unwrap().len() / 1024);
        took
    };
    let took = write("all.svg") + write("all.pb.gz");
    let asked = rss_peak();
    write("all.folded");
    timed("functions", || profile.of_event(Event::Cpu).functions());
    timed("lines", || profile.of_event(Event::Cpu).lines());
    timed("read pprof", || output::read(&directory.path().join("all.pb.gz")).unwrap());
    println!(
        "svg and pprof together {:.0} ms of CPU, peak {} MB",
        took.as_secs_f64() * 1e3,
        asked / 1_000_000
    );
    assert!(took < Duration::from_secs(2) && asked < 250_000_000, "too slow or too large");
}
