//! Reproducible pseudo-random profiles for tests.

use std::sync::Arc;

use crate::profile::kind::Origin;
use crate::profile::labels::ContainerLabels;
use crate::profile::resource::{ResourceAttribute, ResourceAttributes};
use crate::profile::{Accounts, Frame, Kind, Labels, Module, Profile, UnknownReason};
use crate::sample::{Event, SpanContext, SpanId, ThreadState, TraceId};

/// A generator of pseudo-random numbers.
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// Names that imitate markup, escape sequences, separators, counts and markers.
pub(super) fn hostile_names() -> Vec<String> {
    let names: Vec<String> = [
        "\u{1b}[31mred\u{1b}]0;title\u{7}",
        "two\nlines 7",
        "a;b;c",
        "<script>alert(1)</script>",
        "]]><script>alert(2)</script>",
        "--> <svg onload=alert(3)>",
        "\"quoted\" & 'quoted'",
        "&amp;&#27;",
        "\u{202e}gpj.exe\u{2066}",
        "\u{9b}31m\u{85}\u{2028}\u{ffff}",
        "name 12",
        "name 12 34",
        "name 3.5",
        "# comment",
        " padded ",
        "",
        " ",
        ";",
        "[lost]",
        "[ring full]",
        "[no frames]",
        "[unknown: no symbol]",
        "[unknown: no symbol (x)]",
        "[unknown: made up]",
        "[truncated]",
        "[x]",
        "x_[j]",
        "x_[k]_[i]",
        "_[j]",
        "-",
        "--",
        "\u{0}",
        "jbpf-prof.filtered=99",
        "ünïcödé 火",
    ]
    .map(str::to_owned)
    .to_vec();
    names
}

/// A profile whose accounts add up. `hostile` takes names from [`hostile_names`], else names are harmless.
pub(super) fn profile(seed: u64, hostile: bool) -> Profile {
    let mut numbers = SplitMix64::new(seed);
    let names: Vec<String> =
        if hostile { hostile_names() } else { (0..40).map(|i| format!("pkg.Class{}.m{i}", i % 7)).collect() };
    let modules: Vec<Arc<Module>> = (0..4u8)
        .map(|i| {
            let build_id = (i > 0).then(|| Arc::from([i, 0, 255, 16].as_slice()));
            Arc::new(Module { build_id, ..Module::at(format!("/usr/lib/lib{}.so", numbers.pick(&names))) })
        })
        .collect();
    let frames: Vec<Arc<Frame>> = (0..60).map(|_| Arc::new(frame(&mut numbers, &names, &modules))).collect();
    let mut p = Profile::new();
    let period = 1_000_000 * (1 + numbers.below(20));
    for _ in 0..1 + numbers.below(200) {
        let process = numbers.pick(&names);
        let labels = Labels {
            pid: numbers.below(5) as u32,
            process: process.as_str().into(),
            thread: numbers.pick(&names).as_str().into(),
            tid: numbers.below(3) as u32,
            cgroup: numbers.below(2) * u64::MAX,
            container: (numbers.below(2) == 0).then(|| Arc::new(container(&mut numbers, &names))),
            state: ThreadState::ALL[numbers.below(ThreadState::ALL.len() as u64) as usize],
            span: (numbers.below(2) == 0).then(|| span(&mut numbers)),
            resource: Some(Arc::new(resource(&mut numbers, &names))).filter(|resource| !resource.is_empty()),
        };
        let mut stack = vec![Arc::new(Frame::named(Kind::Process, process))];
        if numbers.below(2) == 0 {
            stack.push(Arc::new(Frame::named(Kind::Thread, numbers.pick(&names))));
        }
        stack.extend((0..numbers.below(30)).map(|_| numbers.pick(&frames)));
        if numbers.below(50) == 0 {
            stack.clear();
        }
        let count = 1 + numbers.below(9);
        p.add(&labels, &stack, count, count * period);
    }
    let kept = p.of_event(Event::Cpu).total().count;
    let mut accounts =
        Accounts { filtered: numbers.below(99), kept, period_ns: period, ..Accounts::default() };
    for reason in ["ring full", "counts full", "no frames"] {
        accounts.lose(reason, numbers.below(5));
    }
    accounts.missed = numbers.below(7);
    accounts.taken = accounts.filtered + accounts.shown();
    accounts.expected = accounts.taken + accounts.missed;
    *p.accounts_mut(Event::Cpu) = accounts;
    p.span.start_unix_ns = 1_763_719_200_000_000_000;
    p.span.duration_ns = 30_000_000_000;
    p
}

fn span(numbers: &mut SplitMix64) -> SpanContext {
    let id = |n: u64| n as u8 + 1;
    SpanContext { trace: TraceId([id(numbers.below(3)); 16]), span: SpanId([id(numbers.below(200)); 8]) }
}

/// Always with an id: pprof reads a container with only empty fields as no container.
fn container(numbers: &mut SplitMix64, names: &[String]) -> ContainerLabels {
    let mut text = || numbers.pick(names).as_str().into();
    let (namespace, pod, container, name, pod_uid) = (text(), text(), text(), text(), text());
    ContainerLabels { namespace, pod, container, name, pod_uid, id: "12ab".repeat(16).into() }
}

fn resource(numbers: &mut SplitMix64, names: &[String]) -> ResourceAttributes {
    let mut text = || numbers.pick(names).as_str().into();
    ResourceAttributes::new((0..3).map(|_| ResourceAttribute { key: text(), value: text() }))
}

fn frame(numbers: &mut SplitMix64, names: &[String], modules: &[Arc<Module>]) -> Frame {
    let kinds = Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Process | Kind::Thread));
    let kind = numbers.pick(&kinds.collect::<Vec<_>>());
    let module = (numbers.below(2) == 0).then(|| numbers.pick(modules));
    let address = numbers.below(4) * 16;
    if kind == Kind::Unknown {
        return Frame::unknown(numbers.pick(&UnknownReason::ALL), module, address);
    }
    let java = kind.origin() == Origin::Java;
    Frame {
        file: (numbers.below(2) == 0).then(|| format!("{}.java", numbers.pick(names)).into()),
        line: numbers.below(90) as u32,
        bci: java.then(|| numbers.below(50) as u32),
        module: module.filter(|_| !java),
        address,
        ..Frame::named(kind, numbers.pick(names))
    }
}

/// Stacks as in real profiles: inlined frames share the address of the frame that they were inlined into.
pub(super) fn plausible(seed: u64) -> Vec<(Labels, Vec<Arc<Frame>>, u64)> {
    let mut numbers = SplitMix64::new(seed);
    let library =
        Arc::new(Module { build_id: Some([7, 9].as_slice().into()), ..Module::at("/usr/lib/libjvm.so") });
    let mut all = Vec::new();
    for _ in 0..100 {
        let pid = 1 + numbers.below(3) as u32;
        let (process, thread) = ("java".into(), "main".into());
        let labels = Labels { pid, process, thread, tid: pid + 1, cgroup: 77, ..Labels::default() };
        let mut stack = vec![Arc::new(Frame::named(Kind::Process, "java"))];
        for _ in 0..numbers.below(12) {
            let address = 0x1000 + numbers.below(64);
            let (kind, inlined, module) = match numbers.below(3) {
                0 => (Kind::Java, Kind::JavaInlined, None),
                1 => (Kind::Cpp, Kind::NativeInlined, Some(Arc::clone(&library))),
                _ => (Kind::Native, Kind::NativeInlined, Some(Arc::clone(&library))),
            };
            for depth in 0..=address % 3 {
                stack.push(Arc::new(Frame {
                    file: Some("A.java".into()),
                    line: address as u32 + depth as u32,
                    module: module.clone(),
                    address,
                    ..Frame::named(if depth == 0 { kind } else { inlined }, format!("f{address}.{depth}"))
                }));
            }
        }
        if numbers.below(4) == 0 {
            stack.push(Arc::new(Frame::unknown(UnknownReason::NoSymbol, Some(Arc::clone(&library)), 5)));
        }
        all.push((labels, stack, 1 + numbers.below(5)));
    }
    all
}
