//! Names read from a JVM's memory equal the names that JVMTI gives the agent, frame by frame, on every JDK.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::time::{Duration, Instant};

use jbpf_prof::jvm::code::{CodeOptions, CodeTimeline, FrameKind, JavaFrame};
use jbpf_prof::jvm::vm::{AddressQuery, ProcessMemory, VmCode, VmMiss};
use jbpf_prof::jvm::{self, AttachOptions, Attached};
use jbpf_prof::sample::MonoNs;
use jvm_symbols_log::{Load, Method, PcDecoder, Quotas, ReadAt, Reader, RecordVisitor, Stub, Unload};
use rustix::process::Signal;
use testkit::folded::{is, user_leaf};
use testkit::java::{Jdk, Program, classes, in_container, on_host, while_classes_go};
use testkit::profiler::{main_thread, profile, while_sampling};
use testkit::target::Target;
use testkit::{assert_share, container, is_root};

#[test]
fn jdk_17_agrees() {
    on_host(17, agrees);
}

#[test]
fn jdk_25_agrees() {
    on_host(25, agrees);
}

#[test]
fn jdk_8_agrees() {
    in_container(8, agrees);
}

#[test]
fn jdk_11_agrees() {
    in_container(11, agrees);
}

#[test]
fn jdk_21_agrees() {
    in_container(21, agrees);
}

#[test]
fn jdk_25_agrees_in_a_container() {
    in_container(25, agrees);
}

#[test]
fn nothing_is_loaded_into_a_jvm_that_forbids_it() {
    if !is_root() {
        return;
    }
    let program = Program::new("Shares").dont_inline("Shares::burn*");
    let target = program.flags(&["-XX:+DisableAttachMechanism"]).start(&Jdk::host());
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    let libraries = |maps: &str| maps.lines().filter(|line| line.contains(" r-xp ")).count();
    let before = libraries(&maps());

    let first = profile(&target, 2, VM);
    let jvm = &first.report["jvms"][0];
    assert_eq!(jvm["pid"], target.pid(), "{jvm}");
    assert!(jvm["names"]["memory"].is_object(), "names come from {}", jvm["names"]);
    // There is no agent, and DebugNonSafepoints is not set.
    assert_eq!(jvm["compiled_before"], 1.0, "{jvm}");

    let main = main_thread(&target, VM);
    for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
        assert_share(name, main.self_share(&format!("Shares.{name}")), truth, main.total());
    }
    let unknown = main.share(|stack| {
        let own = stack.iter().position(|frame| frame.starts_with("Shares.")).unwrap_or(0);
        stack[own..].iter().any(|frame| frame.starts_with("[unknown"))
    });
    assert!(unknown < 0.005, "{unknown} has unknown frames:\n{}", main.top(10));
    assert_eq!(libraries(&maps()), before, "something was loaded into the JVM");
}

#[test]
fn vm_naming_works_with_a_noexec_tmp() {
    in_container(21, |jdk| {
        let root = jdk.root().expect("it has one");
        let command = Program::new("Shares").contained_command();
        let mut config = container::config(root, &command, &[(classes(), "/tmp/classes")]);
        let tmp = config["mounts"].as_array_mut().unwrap().iter_mut().find(|m| m["destination"] == "/tmp");
        tmp.unwrap()["options"].as_array_mut().unwrap().push("noexec".into());
        assert_eq!(config["root"]["readonly"], true);
        let target = container::start_named(&container::new_name(), &config);
        let shown = |source: &[&str]| {
            let profile = profile(&target, 1, source);
            let named =
                profile.folded.share(|stack| user_leaf(stack).is_some_and(|leaf| leaf.ends_with("_[j]")));
            (profile.report["jvms"][0]["names"].clone(), named)
        };
        let (names, named) = shown(VM);
        assert!(names["memory"].is_object() && named > 0.9, "{names}, {named}");
        let (names, named) = shown(&["--java", "agent"]);
        assert!(
            names["refused"]["label"] == "noexec tmp" && named < 0.1,
            "this test did not test: {names}, {named}"
        );
    });
}

/// A JVM stopped before the run, and one stopped during it: neither delays the run, and code that ran has its names.
#[test]
fn a_jvm_that_is_stopped_is_named_all_the_same() {
    if !is_root() {
        return;
    }
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let pid = target.pid().to_string();
    let begun = Instant::now();
    let ran = while_sampling(&[], &["--pid", &pid, "--java", "vm"], || {
        std::thread::sleep(Duration::from_millis(1_000));
        target.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(1_000));
    });
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let jvm = &ran.report["jvms"][0];
    assert!(jvm["names"]["memory"].is_object(), "{jvm}");
    let burn = ran.folded.share(|stack| stack.iter().any(|frame| frame.starts_with("Shares.burn")));
    assert!(ran.folded.total() > 200 && burn > 0.9, "{burn}:\n{}", ran.folded.top(5));

    let begun = Instant::now();
    let stopped = profile(&target, 1, VM);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(stopped.folded.total(), 0, "it does not run:\n{}", stopped.folded.top(5));
    let jvm = &stopped.report["jvms"][0];
    assert!(jvm["pid"] == target.pid() && jvm["names"]["memory"].is_object(), "{}", stopped.report["jvms"]);
}

#[test]
fn code_that_comes_and_goes_never_has_a_neighbours_name() {
    if is_root() {
        has_no_neighbours_name(&Jdk::host());
    }
}

/// On JDK 21 the next class's code takes the place of unloaded code at once.
#[test]
fn code_that_comes_and_goes_never_has_a_neighbours_name_on_jdk_21() {
    in_container(21, has_no_neighbours_name);
}

fn has_no_neighbours_name(jdk: &Jdk) {
    let (all, gone) = while_classes_go(jdk, &Program::new("Unloaded"), VM);
    let named = all.self_share("Unloaded$Burner.applyAsLong");
    let lost = all.share(|stack| {
        let gone = ["[unknown: code moved]", "[unknown: no code there]"];
        user_leaf(stack).is_some_and(|leaf| gone.contains(&leaf))
    });
    eprintln!("{named} named, {lost} gone before it was looked at; {gone} classes were unloaded");
    // Each class begins in the interpreter, and collections take time.
    assert!(named + lost > 0.85, "only {named} has the name, {lost} says that it moved:\n{}", all.top(10));
    // These classes live shorter than a window, so hardly any name can be proven.
    assert!(lost > 0.5, "only {lost} says that it moved: this test did not test");
    let others = all.share(|stack| {
        user_leaf(stack)
            .is_some_and(|leaf| leaf.ends_with("_[j]") && !is(leaf, "Unloaded$Burner.applyAsLong"))
    });
    assert!(others < 0.05, "{others} has another method's name:\n{}", all.top(10));
}

/// Two classes of one shape. Each may get the other's old place in memory and in the code cache. The callers show which
/// class ran: every name must be right.
#[test]
fn compiled_code_never_has_the_name_of_what_came_to_its_place() {
    on_host(17, check_two_classes);
}

#[test]
fn compiled_code_never_has_the_name_of_what_came_to_its_place_on_jdk_21() {
    in_container(21, check_two_classes);
}

fn check_two_classes(jdk: &Jdk) {
    // The classes live for tenths of a second, or for some seconds; memory is read once a second.
    for (times, java, named_at_least) in [("300", "agent", 0.3), ("300", "vm", 0.0), ("4000", "vm", 0.3)] {
        let (all, gone) = while_classes_go(jdk, &Program::new("Churn").args(&[times]), &["--java", java]);
        let of = |caller: &str, class: &str| {
            let (caller, class) = (format!("Churn.{caller}"), format!("Churn${class}.applyAsLong"));
            all.keep(|stack| [&caller, &class].iter().all(|name| stack.iter().any(|frame| is(frame, name))))
        };
        for wrong in [of("inFirst", "Other"), of("inOther", "First")] {
            assert_eq!(wrong.total(), 0, "the other class's name:\n{}", wrong.top(5));
        }
        let right = of("inFirst", "First").total() + of("inOther", "Other").total();
        let right = right as f64 / all.total() as f64;
        let lost = all.share(|stack| user_leaf(stack) == Some("[unknown: code moved]"));
        eprintln!("{times} {java}: {right} of {} named, {lost} lost; {gone} went", all.total());
        assert!(right >= named_at_least && right + lost > 0.5, "{right} + {lost}:\n{}", all.top(10));
    }
}

const VM: &[&str] = &["--java", "vm"];

/// With the usual code cache, with one heap only, and with only the first compiler.
fn agrees(jdk: &Jdk) {
    for flags in [&[][..], &["-XX:-SegmentedCodeCache"], &["-XX:TieredStopAtLevel=1"]] {
        // JDK 8 has only one heap and does not know the flag.
        if jdk.version > 8 || !flags.iter().any(|flag| flag.contains("Segmented")) {
            agrees_with(jdk, flags);
        }
    }
}

fn agrees_with(jdk: &Jdk, flags: &[&str]) {
    let target = Program::new("Shop").flags(flags).start(jdk);
    let (attached, mut timeline) = follow(&target);
    let opened = jvm::open(&jvm_of(&target), &options()).unwrap();
    let memory = ProcessMemory::new(opened.memory.into());
    let mut code = VmCode::new(memory, opened.layout, false);
    let mut tally = Tally::default();
    // Code that is compiled or freed between the two reads is compared again. HotSpot logs an unload some time after
    // memory shows it: its Service Thread delivers the event.
    for look in 0..20u64 {
        std::thread::sleep(Duration::from_millis(100 * look.min(5)));
        attached.renew_lease(MonoNs(MonoNs::now().0 + 60_000_000_000)).unwrap();
        timeline.read(&attached.log).unwrap();
        code.check(MonoNs::now());
        let loads = Loads::of(&attached.log);
        let asked: Vec<AddressQuery> = loads.0.iter().flat_map(|load| load.addresses()).collect();
        let answers = code.lookup(&asked);
        timeline.read(&attached.log).unwrap();
        tally = Tally::default();
        for (asked, answer) in asked.iter().zip(answers) {
            tally.compare(&timeline, *asked, answer.frames);
        }
        if tally.agrees() {
            break;
        }
    }
    let Tally { same, frames, missed, unlogged, .. } = &tally;
    eprintln!(
        "JDK {} {flags:?}: {frames} frames at {same} addresses; {missed} not in memory, {unlogged} not in the log",
        jdk.version
    );
    assert!(tally.different.is_empty(), "{} differ:\n{}", tally.different.len(), tally.first());
    assert!(tally.same > 5_000, "only {} addresses were compared", tally.same);
    assert!(tally.inlined > 500, "only {} inlined frames were compared", tally.inlined);
    assert!(tally.lines > 2_000, "only {} frames with lines were compared", tally.lines);
    assert!(tally.agrees(), "{} of {} are not there", tally.missed, tally.same);
}

#[derive(Default)]
struct Tally {
    same: usize,
    frames: usize,
    inlined: usize,
    lines: usize,
    /// Addresses that the log (`unlogged`) or the memory (`missed`) no longer has, because the code is gone.
    unlogged: usize,
    missed: usize,
    /// Addresses in code for which JVMTI has no right name.
    intrinsics: usize,
    different: Vec<String>,
}

/// Only memory shows which intrinsic of a method handle runs.
fn is_intrinsic(memory: &[JavaFrame], log: &[JavaFrame]) -> bool {
    let ([JavaFrame { method: Some(one), .. }], [logged]) = (memory, log) else { return false };
    &*one.class == "java.lang.invoke.MethodHandle"
        && (&*one.method == "invokeBasic" || one.method.starts_with("linkTo"))
        && &*logged.name == "java.lang.invoke.MethodHandle.[intrinsic]"
}

impl Tally {
    /// Log and memory give the same frames, and memory misses at most 1 % of the addresses.
    fn agrees(&self) -> bool {
        self.different.is_empty() && self.missed * 100 <= self.same
    }

    fn compare(&mut self, log: &CodeTimeline, asked: AddressQuery, found: Result<Vec<JavaFrame>, VmMiss>) {
        // The log is read a moment after the memory: code that the log still has was there before.
        let Ok(logged) = log.lookup(asked.pc, asked.leaf, MonoNs::now()) else {
            self.unlogged += 1;
            return;
        };
        match found {
            Ok(frames) if frames == logged.frames => {
                self.same += 1;
                self.frames += frames.len();
                self.inlined += frames.iter().filter(|frame| frame.kind == FrameKind::Inlined).count();
                self.lines += frames.iter().filter(|frame| frame.line > 0).count();
            }
            Ok(frames) if is_intrinsic(&frames, &logged.frames) => self.intrinsics += 1,
            Err(VmMiss::NoCode | VmMiss::CodeMoved) => self.missed += 1,
            other => self.different.push(format!("{asked:x?}\nlog    {logged:?}\nmemory {other:?}")),
        }
    }

    fn first(&self) -> String {
        self.different.iter().take(3).cloned().collect::<Vec<_>>().join("\n")
    }
}

/// The compiled methods in a log.
#[derive(Default)]
struct Loads(Vec<OneLoad>);

struct OneLoad {
    start: u64,
    end: u64,
    records: Vec<u32>,
}

impl OneLoad {
    /// Addresses to compare: those of the records, those behind them, and both ends.
    fn addresses(&self) -> Vec<AddressQuery> {
        let at = MonoNs::now();
        let mut all = vec![AddressQuery { pc: self.start, leaf: true, at }];
        for &record in &self.records {
            let pc = self.start + u64::from(record);
            if pc + 1 < self.end {
                all.extend([(pc, false), (pc, true), (pc + 1, true)].map(|(pc, leaf)| AddressQuery {
                    pc,
                    leaf,
                    at,
                }));
            }
        }
        all.push(AddressQuery { pc: self.end, leaf: false, at });
        all.retain(|asked| asked.pc > self.start || asked.leaf);
        all
    }
}

impl Loads {
    fn of(log: &impl ReadAt) -> Loads {
        let mut loads = Loads::default();
        Reader::new(Quotas::default()).read(log, &mut loads).unwrap();
        loads
    }
}

impl RecordVisitor for Loads {
    fn method(&mut self, _: u64, _: &Method<'_>) {}

    fn load(&mut self, load: &Load<'_>) {
        let mut records = Vec::new();
        let mut decoder = PcDecoder::new(load.debug(), load.method_count());
        while let Ok(Some(record)) = decoder.step() {
            records.push(record.pc);
        }
        self.0.push(OneLoad { start: load.code.start, end: load.code.end(), records });
    }

    fn unload(&mut self, _: &Unload) {}

    fn stub(&mut self, _: &Stub<'_>) {}
}

fn options() -> AttachOptions {
    AttachOptions::new(testkit::profiler::binary())
}

fn jvm_of(target: &Target) -> jvm::Jvm {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        // On a busy machine reading /proc may take longer than the product's timeout.
        match jvm::find(target.pid()) {
            Some(jvm) => return jvm,
            None => assert!(Instant::now() < until, "{} is no JVM", target.pid()),
        }
    }
}

/// Attaches the agent and reads its log until the replay has ended.
fn follow(target: &Target) -> (Attached, CodeTimeline) {
    let attached = jvm::attach(&jvm_of(target), &options()).unwrap();
    let options = CodeOptions { clock_offset: attached.clock_offset, ..CodeOptions::default() };
    let mut timeline = CodeTimeline::new(options);
    let until = Instant::now() + Duration::from_secs(30);
    while !timeline.facts().replayed {
        timeline.read(&attached.log).unwrap();
        assert!(Instant::now() < until, "the agent has not replayed what was compiled");
    }
    (attached, timeline)
}
