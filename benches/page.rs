//! Measures the page of large profiles: `cargo bench --bench page`; with `-- DIR` the pages stay in this directory. One
//! profile has 100,000 distinct stacks, the other one is a day of the daemon: 8,640 windows at 19 Hz. Prints sizes, how
//! long the page needs to open in Chromium, and how long its views need to be drawn. Fails if the day has more than 10
//! MB.
#![allow(clippy::print_stdout, clippy::panic, clippy::unwrap_used)] // prints for a person at a terminal

mod walk;

use std::path::{Path, PathBuf};
use std::time::Instant;

use jbpf_prof::output::{self, OutputTarget, PictureOptions};
use jbpf_prof::profile::samples::Weight;
use jbpf_prof::profile::{Labels, Profile};
use jbpf_prof::sample::Event;
use serde_json::json;
use testkit::browser::{self, Browser};
use walk::Walk;

const PERIOD_NS: u64 = 1_000_000_000 / 19;
/// Samples of a window of ten seconds at 19 Hz on two busy CPUs.
const WINDOW: u64 = 380;
/// How often each view is drawn.
const TURNS: usize = 21;
/// Distinct stacks of the day.
const DAILY: usize = 30_000;

/// A profile, to which stacks are added with a process and a thread each.
struct Builder {
    profile: Profile,
    walk: Walk,
}

impl Builder {
    fn new() -> Builder {
        Builder { profile: Profile::new(), walk: Walk::new() }
    }

    fn add(&mut self, column: u16, stack: jbpf_prof::profile::trie::NodeId, process: u32) {
        let labels =
            Labels { pid: 1000 + process, process: format!("service-{process}").into(), ..Labels::default() };
        let labels = self.profile.intern_labels(&labels);
        self.profile.add_interned_in_second(
            column,
            stack,
            labels,
            Event::Cpu,
            Weight { count: 1, value: PERIOD_NS, ..Weight::default() },
        );
    }

    fn finished(mut self) -> Profile {
        let kept = self.profile.of_event(Event::Cpu).total().count;
        let accounts = self.profile.accounts_mut(Event::Cpu);
        (accounts.taken, accounts.kept, accounts.period_ns) = (kept, kept, PERIOD_NS);
        self.profile
    }
}

/// 100,000 distinct stacks within a minute.
fn distinct() -> Profile {
    let mut builder = Builder::new();
    let mut stacks = std::collections::HashSet::new();
    while stacks.len() < 100_000 {
        let stack = builder.walk.stack();
        let node = builder.profile.intern_stack(&stack);
        let column = builder.walk.below(60) as u16;
        builder.add(column, node, (node.index() % 5) as u32);
        stacks.insert(node);
    }
    builder.finished()
}

/// A day of windows. A stack's frequency falls with its number, as in real programs.
fn day() -> Profile {
    let mut builder = Builder::new();
    let stacks: Vec<_> = (0..DAILY)
        .map(|_| {
            let stack = builder.walk.stack();
            builder.profile.intern_stack(&stack)
        })
        .collect();
    for window in 0..8640 {
        for _ in 0..WINDOW {
            // The number's logarithm is uniform.
            let uniform = builder.walk.below(1 << 20) as f64 / f64::from(1 << 20);
            let at = ((DAILY as f64).powf(uniform) - 1.0) as usize;
            builder.add(window, stacks[at], (at % 20) as u32);
        }
    }
    builder.finished()
}

/// CPU time of the page's thread so far.
fn cpu_ms(browser: &mut Browser) -> f64 {
    let metrics = browser.ask("Performance.getMetrics", &json!({}));
    let task = metrics["metrics"].as_array().unwrap().iter().find(|one| one["name"] == "TaskDuration");
    task.unwrap()["value"].as_f64().unwrap() * 1000.0
}

fn measure(home: &Path, name: &str, profile: &Profile) -> u64 {
    let file = home.join(format!("{name}.html"));
    let began = Instant::now();
    let target = OutputTarget::parse(&file, None).unwrap();
    output::write(&profile.views(), &target, &PictureOptions::default()).unwrap();
    let written = began.elapsed().as_millis();
    let size = std::fs::metadata(&file).unwrap().len();
    println!(
        "{name}: {} nodes, {} rows, written in {written} ms, {} KiB",
        profile.trie().len(),
        profile.samples().len(),
        size / 1024
    );
    if browser::is_missing() {
        return size;
    }
    let mut browser = Browser::start(home, 1600, 1000);
    browser.ask("Performance.enable", &json!({"timeDomain": "threadTicks"}));
    let began = Instant::now();
    browser.open(&file, "", "window.jbpfProf !== undefined");
    let opened = began.elapsed().as_millis();
    println!("    opens in {opened} ms, with {:.0} ms of CPU time", cpu_ms(&mut browser));
    for (what, script) in [
        ("zoom", "page.view.zoom = nodes[at % nodes.length]; page.render()"),
        ("range", "page.selection.range = [at, at + 9]; page.update(); page.selection.range = null"),
        ("call tree", "page.open('tree')"),
        ("functions", "page.open('functions')"),
        ("search", "page.open('flame'); page.view.query = `method${at}`; page.update()"),
    ] {
        let before = cpu_ms(&mut browser);
        let times = browser.value(&format!(
            "(() => {{ const page = jbpfProf; \
             const nodes = page.flame.layout.rows.flatMap((row) => row.node).filter((node) => node > 0); \
             const times = []; for (let at = 0; at < {TURNS}; at++) {{ const began = performance.now(); {script}; \
             document.body.offsetHeight; page.flame.canvas.getContext('2d').getImageData(0, 0, 1, 1); \
             times.push(performance.now() - began); }} return times.sort((a, b) => a - b); }})()"
        ));
        let time = |at: usize| times[at].as_f64().unwrap();
        let cpu = (cpu_ms(&mut browser) - before) / TURNS as f64;
        println!(
            "    {what}: {cpu:.0} ms of CPU time; median {:.0} ms, longest {:.0} ms",
            time(TURNS / 2),
            time(TURNS - 1)
        );
    }
    size
}

fn main() {
    // cargo adds `--bench`.
    let kept = std::env::args_os().skip(1).find(|word| word != "--bench").map(PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let home = kept.as_deref().unwrap_or(temporary.path());
    measure(home, "stacks", &distinct());
    let size = measure(home, "day", &day());
    assert!(size < 10_000_000, "the day has {size} bytes");
}
