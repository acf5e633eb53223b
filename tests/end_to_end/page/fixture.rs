//! A small profile of known numbers: two processes, threads, seconds, recursion, inlined and interpreted code, waiting
//! time, a container, and lost samples.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jbpf_prof::output::{self, OutputTarget, PictureOptions, name};
use jbpf_prof::profile::labels::ContainerLabels;
use jbpf_prof::profile::pauses::{JvmPauses, PauseMark, PauseTotals};
use jbpf_prof::profile::samples::Weight;
use jbpf_prof::profile::{Frame, Kind, Labels, Profile, UnknownReason};
use jbpf_prof::sample::{Event, ThreadState};

/// Seconds of the profile.
pub(super) const SECONDS: u16 = 6;
/// Lost samples of CPU time.
pub(super) const LOST: u64 = 5;

/// Samples of one second with one stack.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) second: u16,
    pub(super) event: Event,
    pub(super) labels: Labels,
    pub(super) stack: Vec<Frame>,
    pub(super) count: u64,
}

impl Row {
    /// Whether a frame of the stack has this text in its name.
    pub(super) fn has(&self, text: &str) -> bool {
        self.stack.iter().any(|frame| frame.name.contains(text))
    }
}

fn frame(kind: Kind, name: &str, line: u32) -> Frame {
    let file = (line > 0).then(|| "Shop.java".into());
    Frame { file, line, bci: (line > 0).then_some(line + 1), ..Frame::named(kind, name) }
}

fn java(thread: &str, tid: u32, above: &[Frame]) -> (Labels, Vec<Frame>) {
    let labels = Labels { pid: 7, process: "java".into(), thread: thread.into(), tid, ..Labels::default() };
    let below = [
        frame(Kind::Process, "java", 0),
        frame(Kind::Thread, &format!("{thread} tid={tid}"), 0),
        frame(Kind::Native, "start_thread", 0),
        frame(Kind::Java, "Shop.run", 10),
    ];
    (labels, [&below, above].concat())
}

fn bash(above: &[Frame]) -> (Labels, Vec<Frame>) {
    let container = ContainerLabels {
        namespace: "prod".into(),
        pod: "shop-0".into(),
        container: "app".into(),
        ..ContainerLabels::default()
    };
    let labels = Labels {
        pid: 20,
        process: "bash".into(),
        thread: "bash".into(),
        tid: 20,
        container: Some(Arc::new(container)),
        ..Labels::default()
    };
    let below = [frame(Kind::Process, "bash", 0), frame(Kind::Native, "main", 0)];
    (labels, [&below, above].concat())
}

/// All samples.
pub(super) fn rows() -> Vec<Row> {
    let price = |line| frame(Kind::JavaInlined, "Shop.price", line);
    let again = [frame(Kind::JavaInterpreted, "Shop.slow", 30), frame(Kind::Java, "Shop.run", 11)];
    let system_call = frame(Kind::Kernel, "do_syscall_64", 0);
    let futex = frame(Kind::Kernel, "futex_wait", 0);
    let monitor = [futex.clone(), frame(Kind::Wait, "[wait: monitor Shop$Cache]", 0)];
    let waker = ["--", "Shop.unlock", "worker"].map(|name| frame(Kind::Waker, name, 0));
    let woken = [&monitor[..], &waker].concat();
    let park = [futex, frame(Kind::Wait, "[wait: park Shop$Queue]", 0)];
    let recursion = [(); 3].map(|()| frame(Kind::Native, "recurse", 0));
    let disk = [frame(Kind::Native, "work", 0), frame(Kind::Blocked, "[blocked: disk read]", 0)];
    let mut rows = Vec::new();
    let mut add = |second, event, (labels, stack): (Labels, Vec<Frame>), state, count| {
        rows.push(Row { second, event, labels: Labels { state, ..labels }, stack, count });
    };
    let running = ThreadState::Running;
    for (second, above, count) in [(0, price(20), 30), (1, price(20), 20), (3, price(21), 25)] {
        add(second, Event::Cpu, java("main", 8, &[above]), running, count);
    }
    add(1, Event::Cpu, java("worker", 9, &again), running, 10);
    add(2, Event::Cpu, java("worker", 9, &[system_call]), running, 7);
    add(5, Event::Cpu, java("worker", 9, &[Frame::unknown(UnknownReason::CodeMoved, None, 0)]), running, 3);
    for second in 0..SECONDS {
        add(second, Event::Cpu, bash(&recursion), running, 2 + u64::from(second));
    }
    add(1, Event::Wait, java("main", 8, &monitor), ThreadState::Sleeping, 40);
    add(3, Event::Wait, java("main", 8, &woken), ThreadState::Sleeping, 9);
    add(2, Event::Wait, java("worker", 9, &park), ThreadState::Sleeping, 44);
    add(4, Event::Wait, bash(&disk), ThreadState::Blocked, 12);
    rows
}

/// The profile of some rows, with lost samples.
pub(super) fn profile(rows: &[Row]) -> Profile {
    let mut profile = part(rows);
    let accounts = profile.accounts_mut(Event::Cpu);
    accounts.lose("ring full", LOST - 1);
    accounts.lose("counts full", 1);
    accounts.taken += LOST;
    profile.check().unwrap();
    profile
}

/// Process id of a JVM that stands still and has no samples.
pub(super) const QUIET_JVM: u32 = 70;

/// When JVMs stood still in the seconds of some rows: a JVM with samples, and one without.
pub(super) fn pauses(rows: &[Row]) -> JvmPauses {
    let totals = |safepoints, safepoint_usec, collections| {
        let collection_usec = safepoint_usec / 2 * u64::from(collections > 0);
        PauseTotals { safepoints, safepoint_usec, collections, collection_usec }
    };
    let all = [
        (7, 0, totals(2, 12_000, 1)),
        (7, 1, totals(1, 300, 0)),
        (7, 3, totals(4, 400_000, 4)),
        (QUIET_JVM, 3, totals(1, 30_000, 0)),
        // Longer than its second: a pause counts when it ends.
        (QUIET_JVM, 5, totals(1, 1_500_000, 1)),
    ];
    let seconds: BTreeSet<u16> = rows.iter().map(|row| row.second).collect();
    let marks = all.into_iter().map(|(pid, second, totals)| PauseMark { pid, second, totals });
    marks.filter(|mark| seconds.contains(&mark.second)).collect()
}

/// The profile of some rows.
pub(super) fn part(rows: &[Row]) -> Profile {
    const PERIOD: u64 = 10_000_000;
    let mut profile = Profile::new();
    for row in rows {
        let stack: Vec<Arc<Frame>> = row.stack.iter().map(|frame| Arc::new(frame.clone())).collect();
        let (stack, labels) = (profile.intern_stack(&stack), profile.intern_labels(&row.labels));
        let weight = Weight { count: row.count, value: row.count * PERIOD, ..Weight::default() };
        profile.add_interned_in_second(row.second, stack, labels, row.event, weight);
    }
    for event in [Event::Cpu, Event::Wait] {
        let kept = rows.iter().filter(|row| row.event == event).map(|row| row.count).sum();
        let accounts = profile.accounts_mut(event);
        (accounts.kept, accounts.taken, accounts.period_ns) = (kept, kept, PERIOD);
    }
    profile.pauses = pauses(rows);
    profile.check().unwrap();
    profile
}

/// Writes the page of a profile.
pub(super) fn write(profile: &Profile, file: &Path, picture_options: &PictureOptions) {
    output::write(&profile.views(), &OutputTarget::parse(file, None).unwrap(), picture_options).unwrap();
}

/// Name, total and own samples of each function of some rows, as the library counts them.
pub(super) fn functions(rows: &[Row], event: Event) -> BTreeSet<(String, u64, u64)> {
    let profile = profile(rows);
    let view = profile.of_event(event);
    let frames = view.frames();
    let named = |symbol: u32| name::display_name(frames, &frames.symbols()[symbol as usize]);
    view.functions().into_iter().map(|row| (named(row.symbol), row.total, row.itself)).collect()
}

/// The sum of some rows.
pub(super) fn sum<'r>(rows: impl IntoIterator<Item = &'r Row>) -> u64 {
    rows.into_iter().map(|row| row.count).sum()
}
