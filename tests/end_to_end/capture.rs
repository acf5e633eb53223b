//! Capture alone, on real ticks, in this process: accounts add up, stacks arrive, filters work.

use std::collections::BTreeMap;
use std::time::Duration;

use jbpf_prof::capture::abi::Counters;
use jbpf_prof::capture::window::CaptureOptions;
use jbpf_prof::capture::{Capture, Filter, Window};
use jbpf_prof::sample::{CountedStack, Event, EventPeriod};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use testkit::spent::spend;
use testkit::{is_root, native};

fn options(filter: Filter) -> CaptureOptions {
    CaptureOptions {
        events: vec![EventPeriod { event: Event::Cpu, period: 1_001_001 }],
        functions: BTreeMap::new(),
        filter: Filter { user: true, kernel: true, include_self: true, ..filter },
        btf: None,
    }
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Burns 300 ms of CPU time in this thread in each window; returns the windows and the events' own count of periods.
fn capture(options: &CaptureOptions, windows: usize) -> (Vec<Window>, u64) {
    let mut capture = Capture::prepare(options).unwrap();
    capture.start().unwrap();
    let mut got = Vec::new();
    for i in 0..windows {
        let end = cpu_time() + Duration::from_millis(300);
        while cpu_time() < end {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
        if i + 1 == windows {
            capture.stop().unwrap();
        }
        got.push(capture.take_window(false).unwrap());
    }
    (got, capture.elapsed().unwrap()[0].periods)
}

#[test]
fn accounts_add_up() {
    if !is_root() {
        return;
    }
    let (windows, periods) = capture(&options(Filter::default()), 4);
    let mut ticks = 0;
    for w in &windows {
        let lost: u64 = w.events[0].counters.lost.iter().sum();
        assert_eq!(
            w.events[0].counters.ticks,
            w.events[0].counters.filtered + w.events[0].kept + lost,
            "{:?}",
            w.events[0].counters
        );
        assert_eq!(w.events[0].frameless, 0);
        assert_eq!(w.events[0].kept, w.stacks.iter().map(|one| one.count.samples).sum::<u64>());
        ticks += w.events[0].counters.ticks;
    }
    // How many periods become ticks depends on the host; `whole` tests hosts that have time.
    assert!(periods > 1_100, "{periods} periods in 1.2 s of a busy CPU at 999 Hz");
    assert!((100..=periods).contains(&ticks), "{ticks} ticks in {periods} periods");
}

/// Other tests keep CPUs busy, but not for long. On a machine that is busy all the time no CPU waits, and the test
/// checks less.
#[test]
fn where_a_cpu_is_known_to_wait_ticks_have_no_stack() {
    if !is_root() {
        return;
    }
    let mut capture = Capture::prepare(&options(Filter::default())).unwrap();
    let mut waits = capture.program().idle_addresses().unwrap();
    capture.start().unwrap();
    let mut windows = (0..50).map(|_| {
        std::thread::sleep(Duration::from_millis(200));
        capture.take_window(false).unwrap()
    });
    let idle = |window: &Window| {
        let idle =
            window.stacks.iter().filter(|one| one.stack.key.process.is_idle() && one.count.samples > 20);
        idle.max_by_key(|one| one.count.samples).map(|one| one.stack.kernel[0])
    };
    let Some(ip) = windows.by_ref().find_map(|window| idle(&window)) else { return };
    waits.add(ip).unwrap();
    windows.next();
    for window in windows {
        let waiting = |one: &CountedStack| one.stack.key.process.is_idle() && one.stack.kernel[0] == ip;
        assert!(!window.stacks.iter().any(waiting), "{ip:x}");
        let lost: u64 = window.events[0].counters.lost.iter().sum();
        let Counters { ticks, filtered, idle, .. } = window.events[0].counters;
        assert_eq!(ticks, filtered + idle + window.events[0].kept + lost, "{:?}", window.events[0].counters);
        if idle > 0 {
            return;
        }
    }
}

#[test]
fn nothing_is_counted_after_a_stop() {
    if !is_root() {
        return;
    }
    // All CPUs unwind stacks for much of the time, so most stops come during a run of the BPF program.
    let events = vec![EventPeriod { event: Event::Cpu, period: 50_000 }];
    let often = CaptureOptions { events, ..options(Filter::default()) };
    let mut capture = Capture::prepare(&often).unwrap();
    let mut ticks = 0;
    for cycle in 0..100 {
        capture.start().unwrap();
        let end = cpu_time() + Duration::from_micros(500 + cycle);
        while cpu_time() < end {
            std::hint::black_box((0..100u64).sum::<u64>());
        }
        capture.stop().unwrap();
        ticks += capture.take_window(false).unwrap().events[0].counters.ticks;
        std::thread::sleep(Duration::from_millis(1));
        for window in [capture.take_window(false).unwrap(), capture.take_window(false).unwrap()] {
            assert_eq!(
                (window.events[0].counters.ticks, window.events[0].kept, window.stacks.len()),
                (0, 0, 0),
                "cycle {cycle}"
            );
        }
    }
    assert!(ticks > 100, "{ticks} ticks");
}

/// The same happens when a CPU goes offline again between the two calls.
#[test]
fn an_event_that_cannot_be_started_fails_nothing_while_another_ticks() {
    if !is_root() {
        return;
    }
    // A seccomp filter stays with its thread. PERF_EVENT_IOC_ENABLE is `_IO('$', 0)`.
    let is_enable = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0x2400).unwrap();
    let rules = [(libc::SYS_ioctl, vec![SeccompRule::new(vec![is_enable]).unwrap()])].into();
    let no = SeccompAction::Errno(libc::ENODEV.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, no, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    let filtered = || {
        let mut capture = Capture::prepare(&options(Filter::default())).unwrap();
        capture.start().unwrap();
        let cpus = capture.cpus();
        seccompiler::apply_filter(&filter).unwrap();
        // All CPUs but one go, and come back.
        capture.follow_hotplug(&cpus[..1]);
        capture.follow_hotplug(&cpus);
        assert_eq!(capture.cpus(), cpus[..1]);
        let error = capture.set_period(Event::Cpu, 2_002_002).unwrap_err();
        assert!(error.to_string().contains("a period of 2002002"), "{error:#}");
        assert!(capture.cpus().is_empty());
        capture.take_window(false).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(filtered).join().unwrap());
}

#[test]
fn a_process_filter_lets_only_it_through() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let only = Filter { tgids: vec![target.pid()], ..Filter::default() };
    let mut capture = Capture::prepare(&options(only)).unwrap();
    capture.start().unwrap();
    let (mut own, mut lost, mut ticks) = (0, 0, 0);
    for window in 0..3 {
        spend(target.pid(), Duration::from_millis(300));
        if window == 2 {
            capture.stop().unwrap();
        }
        let window = capture.take_window(false).unwrap();
        for CountedStack { stack, count } in &window.stacks {
            assert_eq!(stack.key.process.tgid, target.pid());
            assert!(!stack.user.is_empty());
            own += count.samples;
        }
        let counted = &window.events[0];
        let lost_now: u64 = counted.counters.lost.iter().sum();
        assert_eq!(counted.counters.ticks, counted.counters.filtered + counted.kept + lost_now);
        lost += lost_now;
        ticks += counted.counters.ticks;
    }
    let missed = capture.elapsed().unwrap()[0].periods.saturating_sub(ticks);
    assert!(own > 100, "{own} ticks of a process that burned 0.9 s of CPU time at 999 Hz");
    // Each time the process gets a CPU and leaves it, chance decides on a tick; and the kernel rounds its CPU time.
    let all = own + lost + missed;
    assert!(
        all > 820,
        "{own} ticks, {lost} lost, {missed} missed of all CPUs, in 0.9 s of CPU time at 999 Hz"
    );
}
