//! Names read from a JVM's memory equal the names that JVMTI gives the agent, frame by frame, on every JDK.

use std::time::{Duration, Instant};

use jbpf_prof::jvm::code::{CodeOptions, CodeTimeline, FrameKind, JavaFrame};
use jbpf_prof::jvm::vm::{AddressQuery, ProcessMemory, VmCode, VmMiss};
use jbpf_prof::jvm::{self, AttachOptions, Attached};
use jbpf_prof::sample::MonoNs;
use jvm_symbols_log::{Load, Method, PcDecoder, Quotas, ReadAt, Reader, RecordVisitor, Stub, Unload};
use testkit::claims::{StackClaim, at_least, at_most, prove, seen};
use testkit::folded::{is, user_leaf};
use testkit::java::{
    Jdk, MainSlices, Program, burn_shares, classes, has_unknown_frame_of_shares, in_container, on_host,
    while_classes_go, while_its_classes_go,
};
use testkit::profiler::short_slice;
use testkit::target::Target;
use testkit::{container, is_root};

const VM: &[&str] = &["--java", "vm"];

/// Threads wait for the compiler. On a busy machine, the compiler waits for a CPU while they would interpret, and what
/// these tests are about is compiled code.
const BATCH: &str = "-Xbatch";

/// The deadline for what a JVM does beside the test: on a busy machine too, all that makes progress is faster.
const TIMEOUT: Duration = Duration::from_secs(120);

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

    let mut claims = burn_shares();
    claims.push(at_most(0.005, "stacks with unknown frames", has_unknown_frame_of_shares));
    let mut slices = MainSlices::of(&target, VM);
    prove(|| slices.take(), &claims);

    let jvm = &slices.jvms()[0];
    assert_eq!(jvm["pid"], target.pid(), "{jvm}");
    assert!(jvm["names"]["memory"].is_object(), "names come from {}", jvm["names"]);
    // There is no agent, and DebugNonSafepoints is not set.
    assert_eq!(jvm["compiled_before"], 1.0, "{jvm}");
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
        let is_named = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| leaf.ends_with("_[j]"));
        let by_memory = || {
            let profile = short_slice(&target, VM);
            let names = &profile.report["jvms"][0]["names"];
            assert!(names["memory"].is_object(), "{names}");
            profile.folded
        };
        prove(by_memory, &[at_least(0.9, "named by memory", is_named)]);
        let by_agent = || {
            let profile = short_slice(&target, &["--java", "agent"]);
            let names = &profile.report["jvms"][0]["names"];
            assert!(names["refused"]["label"] == "noexec tmp", "this test did not test: {names}");
            profile.folded
        };
        prove(by_agent, &[at_most(0.1, "named by an agent that cannot be loaded", is_named)]);
    });
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
    let is_burner =
        |stack: &[String]| user_leaf(stack).is_some_and(|leaf| is(leaf, "Unloaded$Burner.applyAsLong"));
    let claims = [
        // Each class begins in the interpreter, and collections take time.
        at_least(0.85, "time with the name or gone", |stack| is_burner(stack) || has_lost_its_code(stack)),
        // These classes live for some tenths of a second, so hardly any name can be proven. On a busy machine they live longer.
        seen(1_000, "samples in code that has gone", has_lost_its_code),
        at_most(0.05, "time with another method's name", |stack| {
            user_leaf(stack).is_some_and(|leaf| leaf.ends_with("_[j]")) && !is_burner(stack)
        }),
    ];
    let program = Program::new("Unloaded").flags(&[BATCH]);
    let (all, gone) = while_classes_go(jdk, &program, VM, &claims);
    let (named, lost) = (all.share(is_burner), all.share(has_lost_its_code));
    eprintln!("{named} named, {lost} gone before it was looked at; {gone} classes were unloaded");
}

/// Whether the innermost frame is of compiled code that had gone when its name was looked for.
fn has_lost_its_code(stack: &[String]) -> bool {
    user_leaf(stack).is_some_and(|leaf| ["[unknown: code moved]", "[unknown: no code there]"].contains(&leaf))
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
    // The classes live for tenths of a second. The agent comes last: it stays in the JVM.
    let churn = |times: &str| Program::new("Churn").flags(&[BATCH]).args(&[times]).start(jdk);
    let mut brief = churn("300");
    have_their_own_names(&mut brief, 1.0, "vm", None);
    have_their_own_names(&mut brief, 1.0, "agent", Some(0.3));
    drop(brief);
    // They live for a second or more; memory is read once a second. A name is proven if code is seen before and after.
    let mut long = churn("2000");
    have_their_own_names(&mut long, 5.0, "vm", Some(0.3));
}

/// Each stack of the two classes has the right one's name or says that it went, and at least this share has a name.
fn have_their_own_names(target: &mut Target, seconds: f64, java: &str, named_at_least: Option<f64>) {
    let shows = |stack: &[String], caller: &str, class: &str| {
        [caller, class].iter().all(|name| stack.iter().any(|frame| is(frame, name)))
    };
    let is_right = |stack: &[String]| {
        shows(stack, "Churn.inFirst", "Churn$First.applyAsLong")
            || shows(stack, "Churn.inOther", "Churn$Other.applyAsLong")
    };
    let is_wrong = |stack: &[String]| {
        shows(stack, "Churn.inFirst", "Churn$Other.applyAsLong")
            || shows(stack, "Churn.inOther", "Churn$First.applyAsLong")
    };
    let mut claims: Vec<StackClaim<'_>> =
        vec![at_least(0.5, "time with a name or gone", |stack| is_right(stack) || has_lost_its_code(stack))];
    claims.extend(named_at_least.map(|least| at_least(least, "time with a name", is_right)));
    let (all, gone) = while_its_classes_go(target, seconds, &["--java", java], &claims);
    let wrong = all.keep(is_wrong);
    assert_eq!(wrong.total(), 0, "the other class's name:\n{}", wrong.top(5));
    let (right, lost) = (all.share(is_right), all.share(has_lost_its_code));
    eprintln!("{java}: {right} of {} named, {lost} lost; {gone} went", all.total());
}

/// With the usual code cache and both compilers, and with one heap and only the first compiler.
fn agrees(jdk: &Jdk) {
    agrees_with(jdk, &[]);
    // JDK 8 has only one heap and does not know the flag.
    let one_heap = if jdk.version > 8 { &["-XX:-SegmentedCodeCache"][..] } else { &[] };
    agrees_with(jdk, &[one_heap, &["-XX:TieredStopAtLevel=1"]].concat());
}

/// Code that is compiled or freed between the two reads is compared again. HotSpot logs an unload some time after memory
/// shows it: its Service Thread delivers the event.
fn agrees_with(jdk: &Jdk, flags: &[&str]) {
    let target = Program::new("Shop").flags(flags).start(jdk);
    let (attached, mut timeline) = follow(&target);
    let opened = jvm::open(&jvm_of(&target), &options()).unwrap();
    let mut code = VmCode::new(ProcessMemory::new(opened.memory.into()), opened.layout, false);
    let until = Instant::now() + TIMEOUT;
    let mut tally = Tally::look(&attached, &mut timeline, &mut code);
    while !(tally.agrees() && tally.is_enough()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        tally = Tally::look(&attached, &mut timeline, &mut code);
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
    /// Compares all code that the log has.
    fn look(attached: &Attached, timeline: &mut CodeTimeline, code: &mut VmCode<ProcessMemory>) -> Tally {
        attached.renew_lease(MonoNs(MonoNs::now().0 + 60_000_000_000)).unwrap();
        timeline.read(&attached.log).unwrap();
        code.check(MonoNs::now());
        let loads = Loads::of(&attached.log);
        let asked: Vec<AddressQuery> = loads.0.iter().flat_map(|load| load.addresses()).collect();
        let answers = code.lookup(&asked);
        timeline.read(&attached.log).unwrap();
        let mut tally = Tally::default();
        for (asked, answer) in asked.iter().zip(answers) {
            tally.compare(timeline, *asked, answer.frames);
        }
        tally
    }

    /// Whether so much code is compiled already that the comparison proves something.
    fn is_enough(&self) -> bool {
        self.same > 5_000 && self.inlined > 500 && self.lines > 2_000
    }

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

/// Deadlines that a busy machine does not reach.
fn options() -> AttachOptions {
    AttachOptions { timeout: TIMEOUT, lease: TIMEOUT, ..AttachOptions::new(testkit::profiler::binary()) }
}

fn jvm_of(target: &Target) -> jvm::Jvm {
    let until = Instant::now() + TIMEOUT;
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
    let until = Instant::now() + TIMEOUT;
    while !timeline.facts().replayed {
        timeline.read(&attached.log).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert!(Instant::now() < until, "the agent has not replayed what was compiled");
    }
    (attached, timeline)
}
