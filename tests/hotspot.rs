//! Stacks of JVMs with default flags, on every JDK: whole and true to the program, in compiled and interpreted code.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::process::Command;

use testkit::folded::{Folded, bare, is, reaches_root, user_leaf};
use testkit::java::{FRAME_POINTERS, Jdk, Program, classes, in_container, on_host};
use testkit::profiler::{
    self, binary, is_main_thread, main_thread, out_file, profile, profile_enough, profile_until,
    report_after_ready,
};
use testkit::spent::Watch;
use testkit::target::Target;
use testkit::{assert_share, is_root, scratch, sources};

#[test]
fn jdk_17_on_the_host() {
    on_host(17, calls_are_true);
}

#[test]
fn jdk_25_on_the_host() {
    on_host(25, calls_are_true);
}

#[test]
fn jdk_8_in_a_container() {
    in_container(8, calls_are_true);
}

#[test]
fn jdk_11_in_a_container() {
    in_container(11, calls_are_true);
}

#[test]
fn jdk_21_in_a_container() {
    in_container(21, calls_are_true);
}

#[test]
fn jdk_25_in_a_container() {
    in_container(25, calls_are_true);
}

/// With both compilers, and with the first one alone.
fn calls_are_true(jdk: &Jdk) {
    for flags in [&[][..], &["-XX:TieredStopAtLevel=1"]] {
        calls_are_true_with(jdk, flags);
    }
    recursion_is_interpreted_whole(jdk);
    generated_code_that_native_code_calls_has_its_callers(jdk);
}

fn generated_code_that_native_code_calls_has_its_callers(jdk: &Jdk) {
    let target = default_flags("Fields").start(jdk);
    let main = main_thread(&target, &[]);
    let stub = main.keep(|stack| user_leaf(stack) == Some("jni_fast_GetIntField"));
    assert!(stub.total() > 500, "{jdk:?}: {} samples in the stub:\n{}", stub.total(), main.top(5));
    let called = stub.share(|stack| {
        let native = stack.iter().position(|frame| bare(frame) == "Fields.sum");
        let callers = native.and_then(|at| stack.get(at + 1..at + 4));
        callers.is_some_and(|frames| frames == ["Java_Fields_sum", "read_field", "jni_fast_GetIntField"])
            && reaches_root(stack)
    });
    assert!(called > 0.99, "{jdk:?}: only {called} of them have their callers:\n{}", stub.top(5));
}

#[test]
fn faults_and_deoptimization_leave_stacks_whole() {
    for version in [17, 25] {
        on_host(version, faults_and_deoptimization);
    }
    for version in [8, 11, 21] {
        in_container(version, faults_and_deoptimization);
    }
}

/// Signals in compiled code, traps out of it, and code that a newly loaded class invalidates.
fn faults_and_deoptimization(jdk: &Jdk) {
    let program =
        default_flags("Faults").dont_inline("Faults*::*").flags(&["-XX:-OmitStackTraceInFastThrow"]);
    let target = program.start(jdk);
    // Signal handlers return to a trampoline in libc.
    let is_fault = |pair: &[String]| {
        let trampolines = ["__restore_rt", "libc.so.6!fun_", "libpthread"];
        pair[0].starts_with("Faults$Phase.") && trampolines.iter().any(|name| pair[1].starts_with(name))
    };
    let faults_of = |all: &Folded| all.keep(|stack| stack.windows(2).any(is_fault));
    let traps_of = |all: &Folded| all.keep(|stack| stack.iter().any(|frame| frame == "UncommonTrapBlob"));
    let mut main = Folded::default();
    for _ in 0..20 {
        main.add(profile(&target, 2, &["--per-thread", "--java", "vm"]).folded.keep(is_main_thread));
        if faults_of(&main).total().min(traps_of(&main).total()) > 40 {
            break;
        }
    }
    let (faults, traps) = (faults_of(&main), traps_of(&main));
    let order = ["Faults.main", "Faults$Phase.run", "Faults$Phase.half", "Faults$Phase.work"];
    let is_true = |stack: &[String]| {
        let own = stack.iter().filter_map(|frame| order.iter().position(|name| is(frame, name)));
        reaches_root(stack) && own.is_sorted_by(|caller, callee| caller < callee)
    };
    for (what, some) in [("all", &main), ("faults", &faults), ("traps", &traps)] {
        let whole = some.share(is_true);
        eprintln!("JDK {}, {what}: {} samples, {whole} whole and true", jdk.version, some.total());
        assert!(some.total() > 40, "JDK {}, {what}: this test did not test:\n{}", jdk.version, main.top(20));
        let lies = some.keep(|stack| !is_true(stack));
        assert!(whole >= 0.98, "JDK {}, {what}: only {whole} are whole:\n{}", jdk.version, lies.top(10));
    }
}

#[test]
fn one_code_heap_wide_class_pointers_and_frame_pointers_make_no_difference() {
    if !is_root() {
        return;
    }
    for flags in [&["-XX:-SegmentedCodeCache", "-XX:-UseCompressedClassPointers"][..], &[FRAME_POINTERS]] {
        calls_are_true_with(&Jdk::host(), flags);
    }
}

/// JDK 8 keeps sp in fp while it calls method handles.
#[test]
fn frame_pointers_of_jdk_8_make_no_difference() {
    in_container(8, |jdk| calls_are_true_with(jdk, &[FRAME_POINTERS]));
}

/// Profiles `Calls`, a program whose methods have known callers.
fn calls_are_true_with(jdk: &Jdk, flags: &[&str]) {
    let native = ["-Dsun.reflect.inflationThreshold=2147483647", "-Djdk.reflect.useNativeAccessorOnly=true"];
    let program = default_flags("Calls").dont_inline("Calls*::*").flags(&native).flags(flags).args(&["40"]);
    let target = program.start(jdk);
    let all = main_thread(&target, &[]);
    let what = format!("JDK {} {flags:?}", jdk.version);
    let main = all.keep(|stack| jdk.version > 8 || !is_floating_point_fallback(stack));
    let left_out = all.total() - main.total();
    assert!(
        left_out * 10 < all.total(),
        "{what}: {left_out} of {} in a fallback:\n{}",
        all.total(),
        all.top(10)
    );
    let rooted = main.share(reaches_root);
    let shown = main.share(|stack| calls(stack).is_ok());
    eprintln!("{what}: {} samples, {rooted} reach the root, {shown} as the program calls", main.total());
    assert!(rooted > 0.98, "{what}: only {rooted} of the stacks reach the root:\n{}", main.top(10));
    let lies = main.keep(|stack| calls(stack).is_err());
    // Exceptions are class initialization, and a method that is replaced during its lookup.
    assert!(shown > 0.99, "{what}: only {shown} of the stacks are as the program calls:\n{}", lies.top(10));
    for method in ["leaf", "deep", "shape", "kind", "fail", "copy", "numbers", "digest", "reflect"] {
        let seen = main.count(|stack| stack.iter().any(|frame| is(frame, &format!("Calls.{method}"))));
        assert!(seen > 0, "{what}: nothing was seen of {method}:\n{}", main.top(10));
    }
}

/// Whether unwinding stopped in `numbers`. Compiled code of JDK 8 pushes registers before it calls the C functions of
/// exp and pow (`MacroAssembler::fp_runtime_fallback`, macroAssembler_x86.cpp). The frame then has another size than
/// the JVM records. How often this happens depends on how fast this CPU's own instructions for exp and pow are.
fn is_floating_point_fallback(stack: &[String]) -> bool {
    stack.get(2).is_some_and(|root| is(root, "Calls.numbers"))
}

/// Checks that the methods of `Calls` in a stack can have called each other. Frames without a name prove nothing.
fn calls(stack: &[String]) -> Result<(), String> {
    let own: Vec<&str> = stack
        .iter()
        .filter_map(|frame| bare(frame).strip_prefix("Calls"))
        .filter_map(|name| name.rsplit_once('.').map(|(_, method)| method))
        .filter(|method| !method.contains("lambda") && *method != "apply")
        .collect();
    for pair in own.windows(2) {
        let [caller, callee] = pair else { continue };
        let fits = match *callee {
            "main" | "<clinit>" => false,
            "round" => *caller == "main",
            "deep" => ["round", "deep"].contains(caller),
            "failTo" => ["fail", "failTo"].contains(caller),
            "leafTo" => ["leaf", "lock"].contains(caller),
            callee => match callee.strip_suffix("To") {
                Some(its_caller) => *caller == its_caller,
                None => *caller == "round",
            },
        };
        if !fits {
            return Err(format!("{caller} calls {callee}"));
        }
    }
    // `main` has no name while it is interpreted.
    let begins = |frame: &&String| is(frame, "Calls.main") || frame.ends_with("_[0]");
    let first = own.first().copied().unwrap_or("main");
    let begun = stack.iter().any(|frame| begins(&frame)) && ["main", "round", "<clinit>"].contains(&first);
    if begun { Ok(()) } else { Err(format!("{first} has no caller")) }
}

fn recursion_is_interpreted_whole(jdk: &Jdk) {
    let target = default_flags("Deep").flags(&["-Xint"]).args(&["1000", "10"]).start(jdk);
    let main = main_thread(&target, &[]);
    let interpreted = |stack: &[String]| stack.iter().filter(|frame| frame.ends_with("_[0]")).count();
    let whole = main.share(|stack| reaches_root(stack) && interpreted(stack) >= 1000);
    let rooted = main.share(reaches_root);
    eprintln!("JDK {} -Xint: {rooted} reach the root, {whole} have a thousand frames", jdk.version);
    assert!(rooted > 0.98, "only {rooted} of the stacks reach the root:\n{}", main.top(3));
    // Some samples fall on the way down or up, with fewer frames.
    assert!(whole > 0.8, "only {whole} of the stacks have a thousand frames:\n{}", main.top(3));
}

#[test]
fn calls_to_native_code_and_back_without_jni_are_whole() {
    on_host(25, |jdk| {
        let tool = |name| Command::new(jdk.home().expect("it is on the host").join("bin").join(name));
        let (dir, source) = (scratch("jdk22"), sources().join("jdk22/Upcalls.java"));
        let compiled =
            tool("javac").arg("-d").arg(&dir).arg("-cp").arg(classes()).arg(source).status().unwrap();
        assert!(compiled.success(), "it does not compile");
        let path = format!("{}:{}", dir.display(), classes().display());
        let allow = "--enable-native-access=ALL-UNNAMED";
        let target = Target::start(tool("java").args([allow, "-cp", &path, "Upcalls"]));
        let main = main_thread(&target, &[]);
        let at = |stack: &[String], wanted: &str| stack.iter().position(|frame| is(frame, wanted));
        let upcalls = main.keep(|stack| at(stack, "upcall_stub").is_some());
        assert!(upcalls.total() > 1_000, "{} samples in upcalls:\n{}", upcalls.total(), main.top(5));
        let whole = upcalls.share(|stack| {
            let way = ["Upcalls.main", "Upcalls.sort", "nep_invoker_blob", "qsort_r", "upcall_stub"];
            let way = way.map(|name| at(stack, name));
            way.iter().all(Option::is_some) && way.is_sorted() && reaches_root(stack)
        });
        assert!(whole > 0.99, "only {whole} of the upcalls have their callers:\n{}", upcalls.top(5));
    });
}

#[test]
fn recursion_a_thousand_deep_is_whole() {
    if !is_root() {
        return;
    }
    let target = default_flags("Deep").dont_inline("Deep::*").args(&["1000"]).start(&Jdk::host());
    let leaf = profile_enough(&target, &[], |all| all.within("Deep.leaf"));
    let deep = |stack: &[String]| stack.iter().filter(|frame| is(frame, "Deep.down")).count();
    let whole = leaf.share(|stack| deep(stack) == 1000 && reaches_root(stack));
    assert!(whole > 0.99, "only {whole} of the stacks are whole");
}

#[test]
fn names_and_shares_are_those_with_frame_pointers() {
    if !is_root() {
        return;
    }
    let target = default_flags("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let first = profile(&target, 2, &[]);
    let jvm = &first.report["jvms"][0];
    assert_eq!(jvm["frame_pointers"], false, "{jvm}");
    let main = main_thread(&target, &[]);
    for (name, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
        assert_share(name, main.self_share(&format!("Shares.{name}")), truth, main.total());
    }
    let rooted = main.share(reaches_root);
    assert!(rooted > 0.99, "only {rooted} of the stacks reach the root:\n{}", main.top(10));
}

#[test]
fn methods_that_are_deoptimized_and_compiled_again_have_whole_stacks() {
    if !is_root() {
        return;
    }
    let target = default_flags("Moved").dont_inline("Moved::hot").start(&Jdk::host());
    let main = main_thread(&target, &[]);
    let rooted = main.share(reaches_root);
    assert!(rooted > 0.99, "only {rooted} of the stacks reach the root:\n{}", main.top(10));
}

#[test]
fn a_command_is_whole_from_its_first_instruction() {
    if !is_root() {
        return;
    }
    // The command lives for several windows; methods that are interpreted in the last one have no name.
    let all = profile_of_command(&default_flags("Shares").args(&["4000"]).host_command(&Jdk::host()));
    let java = all.keep(|stack| stack.iter().any(|frame| frame.ends_with("_[j]") || frame.ends_with("_[0]")));
    let rooted = java.share(reaches_root);
    eprintln!("{} samples with Java frames of {}, {rooted} reach the root", java.total(), all.total());
    assert!(java.total() >= 200, "nothing was tested:\n{}", all.top(10));
    assert!(
        java.count(|stack| stack.iter().any(|frame| bare(frame) == "Shares.main")) > 0,
        "{}",
        java.top(10)
    );
    assert!(
        rooted > 0.97,
        "only {rooted} reach the root:\n{}",
        java.keep(|stack| !reaches_root(stack)).top(10)
    );
}

#[test]
fn a_command_is_walked_as_its_jvm_says_as_soon_as_that_runs_java_on_jdk_17() {
    on_host(17, stubs_are_whole_from_the_start);
}

#[test]
fn a_command_is_walked_as_its_jvm_says_as_soon_as_that_runs_java_on_jdk_25() {
    on_host(25, stubs_are_whole_from_the_start);
}

/// With frame pointers alone, code that Java calls here does not reach the root. Without the descriptions of the newest
/// stubs, code in these stubs does not reach the root either.
fn stubs_are_whole_from_the_start(jdk: &Jdk) {
    let all = profile_of_command(&default_flags("Ciphers").args(&["5000"]).host_command(jdk));
    let java = all.keep(|stack| stack.iter().any(|frame| bare(frame) == "Ciphers.encrypt"));
    let stubs = java.share(|stack| stack.iter().any(|frame| frame.contains("cipherBlockChaining_")));
    let rooted = java.share(reaches_root);
    eprintln!("{} of {} samples: {stubs} in stubs, {rooted} reach the root", java.total(), all.total());
    assert!(java.total() >= 1_000 && stubs > 0.5, "nothing was tested: {stubs}\n{}", all.top(10));
    assert!(
        rooted > 0.95,
        "only {rooted} reach the root:\n{}",
        java.keep(|stack| !reaches_root(stack)).top(10)
    );
}

/// The profile of a command that the profiler starts and that ends by itself.
fn profile_of_command(command: &[String]) -> Folded {
    let out = out_file("folded");
    let mut run = Target::start(
        Command::new(binary())
            .args(["-F", "999", "--report", "json", "-o"])
            .arg(&out)
            .arg("--")
            .args(command),
    );
    profiler::read(&out, report_after_ready(&mut run), Watch::keep(&[]).end()).folded
}

#[test]
fn barriers_of_concurrent_collectors_have_their_callers_on_jdk_17() {
    on_host(17, |jdk| barriers(jdk, &["-XX:+UseZGC"]));
}

#[test]
fn barriers_of_concurrent_collectors_have_their_callers_on_jdk_25() {
    on_host(25, |jdk| {
        for collector in ["-XX:+UseZGC", "-XX:+UseShenandoahGC"] {
            barriers(jdk, &[collector, "-XX:TieredStopAtLevel=1"]);
        }
    });
}

fn barriers(jdk: &Jdk, flags: &[&str]) {
    let target = default_flags("Barriers").dont_inline("Barriers::walk").flags(flags).start(jdk);
    let slow = |frame: &String| {
        ["Barrier::", "BarrierSetRuntime::", "Shenandoah"].iter().any(|it| frame.contains(it))
    };
    let barriers = profile_until(100, &target, &["--per-thread", "--java", "vm"], |all| {
        all.keep(|stack| is_main_thread(stack) && stack.iter().any(slow))
    });
    let called = |stack: &[String]| {
        let own = stack.iter().filter(|frame| frame.starts_with("Barriers.")).map(|frame| bare(frame));
        own.eq(["Barriers.main", "Barriers.walk"]) && reaches_root(stack)
    };
    let whole = barriers.share(called);
    eprintln!("JDK {} {flags:?}: {} samples in barriers, {whole} whole", jdk.version, barriers.total());
    assert!(
        whole > 0.95,
        "{flags:?}: only {whole} are whole:\n{}",
        barriers.keep(|stack| !called(stack)).top(10)
    );
}

#[test]
fn virtual_threads_stand_on_their_carriers_on_jdk_21() {
    in_container(21, virtual_threads);
}

#[test]
fn virtual_threads_stand_on_their_carriers_on_jdk_25() {
    on_host(25, virtual_threads);
}

#[test]
fn virtual_threads_stand_on_their_carriers_on_jdk_25_in_a_container() {
    in_container(25, virtual_threads);
}

/// Each JDK release that was newer than the tested ones has renamed its stubs.
#[test]
#[ignore = "Debian drops it when the next one is out: scripts/jdk-roots.sh 26"]
fn virtual_threads_stand_on_their_carriers_on_jdk_26() {
    in_container(26, virtual_threads);
}

/// Unwinds by VMStructs, and by frame pointers, which the JVM patches when it resumes a thread.
fn virtual_threads(jdk: &Jdk) {
    for flags in [&[][..], &[FRAME_POINTERS]] {
        virtual_threads_with(jdk, flags);
    }
}

fn virtual_threads_with(jdk: &Jdk, flags: &[&str]) {
    const DEPTH: usize = 30;
    let target = default_flags("Virtual")
        .dont_inline("Virtual::*")
        .flags(&["-Djdk.virtualThreadScheduler.parallelism=2"])
        .flags(flags)
        .args(&[&DEPTH.to_string()])
        .start(jdk);
    let all = profile_enough(&target, &[], |all| all.within("Virtual.burn"));
    let count = |stack: &[String], name: &str| stack.iter().filter(|frame| is(frame, name)).count();
    let carried = |stack: &[String]| {
        // Interpreted frames have no name; the mount point is never interpreted.
        let mount = stack.iter().position(|frame| mounts(frame));
        let burn = stack.iter().position(|frame| is(frame, "Virtual.burn"));
        let marks = stack.iter().enumerate().filter(|(_, frame)| *frame == "[vthread]");
        reaches_root(stack)
            && mount.zip(burn).is_some_and(|(mount, burn)| mount < burn)
            && marks.map(|(at, _)| at + 1).eq(mount)
    };
    let stayed: Folded = all.keep(|stack| count(stack, "Virtual.down") > 0);
    let resumed: Folded = all.keep(|stack| count(stack, "Virtual.resumed") > 0);
    assert!(stayed.total() > 100 && resumed.total() > 100, "this test did not test:\n{}", all.top(5));
    let whole = stayed.share(|stack| carried(stack) && count(stack, "Virtual.down") == DEPTH);
    assert!(whole > 0.99, "only {whole} of the mounted stacks are whole:\n{}", stayed.top(5));
    let by_memory = profile(&target, 1, &["--java", "vm"]).folded.within("Virtual.burn");
    let shown = by_memory.share(carried);
    assert!(shown > 0.98, "only {shown} of the stacks have their carriers by memory:\n{}", by_memory.top(5));
    // The stack is whole, or the return barrier marks the missing frames.
    let shown = resumed.share(|stack| {
        let all = count(stack, "Virtual.resumed") == DEPTH;
        carried(stack) && (all || stack.iter().any(|frame| resumes(frame)))
    });
    assert!(shown > 0.98, "only {shown} of the resumed stacks are true:\n{}", resumed.top(5));
}

/// Whether this frame is the first one of a virtual thread.
fn mounts(frame: &str) -> bool {
    frame.contains("Continuation.enterSpecial") || resumes(frame)
}

/// Whether a frame is the stub in place of frames that are in the heap: `Cont thaw return barrier` in JDK 21,
/// `cont_returnBarrier` in JDK 25. Read from memory, the stub and its neighbours have one name.
fn resumes(frame: &str) -> bool {
    ["Cont thaw return barrier", "cont_returnBarrier"].contains(&frame)
        || frame.starts_with("StubRoutines (continuation")
}

/// The host's other programs wait while a stack is unwound. With only the limit on frames one stack took 45 ms.
#[test]
fn hostile_stacks_take_bounded_time() {
    if !is_root() || !cfg!(target_arch = "x86_64") {
        return;
    }
    for words in ["readable", "unreadable"] {
        let target = default_flags("Hostile").args(&[words]).start(&Jdk::host());
        let seen = profile(&target, 2, &["--java", "vm"]);
        let expensive = seen.folded.within("Hostile.spin");
        assert!(expensive.total() > 50, "{words}: {}", seen.folded.top(5));
        let cut = expensive.share(|stack| stack.iter().any(|frame| frame == "[truncated]"));
        assert!(cut > 0.5, "{words}: {}", expensive.top(5));
        let cost = seen.report["cost"]["bpf_s"].as_f64().unwrap() / seen.account("kept") as f64;
        eprintln!("{words}: {:.0} µs of BPF for each stack", cost * 1e6);
        // Before there was a limit, unreadable words cost 44 ms.
        assert!(cost < 0.01, "{words}: {cost} s of BPF for each stack");
    }
}

/// A program with the flags that its users give it.
fn default_flags(main: &str) -> Program {
    Program::new(main).without(FRAME_POINTERS)
}
