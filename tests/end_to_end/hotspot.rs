//! Stacks of JVMs with default flags, on every JDK: whole and true to the program, in compiled and interpreted code.

use std::process::Command;

use testkit::claims::{at_least, at_most, prove, seen};
use testkit::folded::{Folded, bare, has, is, reaches_root, user_leaf};
use testkit::java::{FRAME_POINTERS, Jdk, MainSlices, Program, burn_shares, classes, in_container, on_host};
use testkit::profiler::{
    self, binary, main_short_slice, main_slice, out_file, profile, report_after_ready, short_slice,
};
use testkit::spent::Watch;
use testkit::target::Target;
use testkit::{is_root, scratch, sources};

/// Names from memory. Nothing is loaded into the JVM.
const VM: &[&str] = &["--java", "vm"];

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
    let in_stub = |stack: &[String]| user_leaf(stack) == Some("jni_fast_GetIntField");
    let is_called = |stack: &[String]| {
        let native = stack.iter().position(|frame| bare(frame) == "Fields.sum");
        let callers = native.and_then(|at| stack.get(at + 1..at + 4));
        callers.is_some_and(|frames| frames == ["Java_Fields_sum", "read_field", "jni_fast_GetIntField"])
            && reaches_root(stack)
    };
    let what = format!("JDK {}: stubs with their callers", jdk.version);
    prove(|| main_short_slice(&target, &[]), &[at_least(0.99, what, is_called).among(in_stub)]);
}

#[test]
fn faults_and_deoptimization_leave_stacks_whole_on_jdk_17() {
    on_host(17, faults_and_deoptimization);
}

#[test]
fn faults_and_deoptimization_leave_stacks_whole_on_jdk_25() {
    on_host(25, faults_and_deoptimization);
}

#[test]
fn faults_and_deoptimization_leave_stacks_whole_on_jdk_8() {
    in_container(8, faults_and_deoptimization);
}

#[test]
fn faults_and_deoptimization_leave_stacks_whole_on_jdk_11() {
    in_container(11, faults_and_deoptimization);
}

#[test]
fn faults_and_deoptimization_leave_stacks_whole_on_jdk_21() {
    in_container(21, faults_and_deoptimization);
}

/// Signals in compiled code, traps out of it, and code that a newly loaded class invalidates. Faults and traps are a few
/// percent of the samples, and fewer on a busy machine, where methods wait for their compiler.
fn faults_and_deoptimization(jdk: &Jdk) {
    let program =
        default_flags("Faults").dont_inline("Faults*::*").flags(&["-XX:-OmitStackTraceInFastThrow"]);
    let target = program.start(jdk);
    let named = |what: &str| format!("JDK {}, {what}: whole stacks in the order of calls", jdk.version);
    let all = prove(
        || main_slice(&target, VM),
        &[
            at_least(0.98, named("all"), is_whole_in_faults),
            at_least(0.95, named("faults"), is_whole_in_faults).among(is_in_fault),
            at_least(0.95, named("traps"), is_whole_in_faults).among(is_in_trap),
        ],
    );
    let (faults, traps) = (all.count(is_in_fault), all.count(is_in_trap));
    eprintln!("JDK {}: {} samples, {faults} in faults, {traps} in traps", jdk.version, all.total());
}

/// Whether the code of `Faults` was interrupted by a signal. Signal handlers return to a trampoline in libc.
fn is_in_fault(stack: &[String]) -> bool {
    let trampolines = ["__restore_rt", "libc.so.6!fun_", "libpthread"];
    stack.windows(2).any(|pair| {
        pair[0].starts_with("Faults$Phase.") && trampolines.iter().any(|name| pair[1].starts_with(name))
    })
}

fn is_in_trap(stack: &[String]) -> bool {
    stack.iter().any(|frame| frame == "UncommonTrapBlob")
}

/// Whether a stack of `Faults` reaches the root, and its methods stand as they call each other.
fn is_whole_in_faults(stack: &[String]) -> bool {
    let order = ["Faults.main", "Faults$Phase.run", "Faults$Phase.half", "Faults$Phase.work"];
    let own = stack.iter().filter_map(|frame| order.iter().position(|name| is(frame, name)));
    reaches_root(stack) && own.is_sorted_by(|caller, callee| caller < callee)
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

/// The methods of `Calls` that each profile must have.
const METHODS: [&str; 9] = ["leaf", "deep", "shape", "kind", "fail", "copy", "numbers", "digest", "reflect"];

/// Profiles `Calls`, a program whose methods have known callers.
fn calls_are_true_with(jdk: &Jdk, flags: &[&str]) {
    let native = ["-Dsun.reflect.inflationThreshold=2147483647", "-Djdk.reflect.useNativeAccessorOnly=true"];
    let program = default_flags("Calls").dont_inline("Calls*::*").flags(&native).flags(flags).args(&["40"]);
    let target = program.start(jdk);
    let named = |what: &str| format!("JDK {} {flags:?}: {what}", jdk.version);
    let is_fallback = |stack: &[String]| jdk.version == 8 && is_floating_point_fallback(stack);
    let is_judged = |stack: &[String]| !is_fallback(stack);
    // The JVM's Service Thread reports compiled code late: on a busy machine, code that is compiled in a slice may have
    // no name until its end. Then nothing says who called what.
    let is_unreported =
        |stack: &[String]| stack.iter().any(|frame| frame.starts_with("[unknown: not logged]"));
    let mut claims = vec![
        at_most(0.1, named("stacks in a fallback"), is_fallback),
        at_most(0.2, named("stacks with code that the JVM has not reported"), is_unreported),
        at_least(0.98, named("stacks that reach the root"), reaches_root).among(is_judged),
        // Exceptions are class initialization, and a method that is replaced during its lookup.
        at_least(0.99, named("stacks as the program calls"), |stack| calls(stack).is_ok())
            .among(move |stack| is_judged(stack) && !is_unreported(stack)),
    ];
    claims.extend(METHODS.map(|method| {
        let name = format!("Calls.{method}");
        seen(1, named(method), move |stack| stack.iter().any(|frame| is(frame, &name))).among(is_judged)
    }));
    prove(|| main_short_slice(&target, &[]), &claims);
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
    let interpreted = |stack: &[String]| stack.iter().filter(|frame| frame.ends_with("_[0]")).count();
    let named = |what: &str| format!("JDK {} -Xint: {what}", jdk.version);
    prove(
        || main_short_slice(&target, &[]),
        &[
            at_least(0.98, named("stacks that reach the root"), reaches_root),
            // Some samples fall on the way down or up, with fewer frames.
            at_least(0.8, named("stacks with a thousand frames"), |stack| {
                reaches_root(stack) && interpreted(stack) >= 1000
            }),
        ],
    );
}

#[test]
fn calls_to_native_code_and_back_without_jni_are_whole() {
    on_host(25, |jdk| {
        let target = start_upcalls(jdk);
        let at = |stack: &[String], wanted: &str| stack.iter().position(|frame| is(frame, wanted));
        let is_upcall = |stack: &[String]| at(stack, "upcall_stub").is_some();
        let is_whole = |stack: &[String]| {
            let way = ["Upcalls.main", "Upcalls.sort", "nep_invoker_blob", "qsort_r", "upcall_stub"];
            let way = way.map(|name| at(stack, name));
            way.iter().all(Option::is_some) && way.is_sorted() && reaches_root(stack)
        };
        prove(
            || main_short_slice(&target, &[]),
            &[
                seen(1_000, "samples in upcalls", is_upcall),
                at_least(0.99, "upcalls with their callers", is_whole).among(is_upcall),
            ],
        );
    });
}

/// Compiles and starts the program `Upcalls`, which needs JDK 22.
fn start_upcalls(jdk: &Jdk) -> Target {
    let tool = |name| Command::new(jdk.home().expect("it is on the host").join("bin").join(name));
    let (dir, source) = (scratch("jdk22"), sources().join("jdk22/Upcalls.java"));
    let compiled = tool("javac").arg("-d").arg(&dir).arg("-cp").arg(classes()).arg(source).status().unwrap();
    assert!(compiled.success(), "it does not compile");
    let path = format!("{}:{}", dir.display(), classes().display());
    let allow = "--enable-native-access=ALL-UNNAMED";
    Target::start(tool("java").args([allow, "-cp", &path, "Upcalls"]))
}

#[test]
fn recursion_a_thousand_deep_is_whole() {
    if !is_root() {
        return;
    }
    let target = default_flags("Deep").dont_inline("Deep::*").args(&["1000"]).start(&Jdk::host());
    let is_whole = |stack: &[String]| {
        stack.iter().filter(|frame| is(frame, "Deep.down")).count() == 1000 && reaches_root(stack)
    };
    let in_leaf = has("Deep.leaf");
    prove(
        || short_slice(&target, &[]).folded,
        &[at_least(0.99, "whole stacks of the leaf", is_whole).among(in_leaf)],
    );
}

#[test]
fn names_and_shares_are_those_with_frame_pointers() {
    if !is_root() {
        return;
    }
    let target = default_flags("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let mut claims = burn_shares();
    claims.push(at_least(0.99, "stacks that reach the root", reaches_root));
    let mut slices = MainSlices::of(&target, &[]);
    prove(|| slices.take(), &claims);
    let jvm = &slices.jvms()[0];
    assert_eq!(jvm["frame_pointers"], false, "{jvm}");
}

#[test]
fn methods_that_are_deoptimized_and_compiled_again_have_whole_stacks() {
    if !is_root() {
        return;
    }
    let program = default_flags("Moved").dont_inline("Moved::hot");
    // The code moves in a program's first seconds only, so each profile has its own program.
    prove(
        || main_slice(&program.start(&Jdk::host()), &[]),
        &[at_least(0.99, "stacks that reach the root", reaches_root)],
    );
}

#[test]
fn a_command_is_whole_from_its_first_instruction() {
    if !is_root() {
        return;
    }
    // The command lives for several windows; methods that are interpreted in the last one have no name.
    let command = default_flags("Shares").args(&["4000"]).host_command(&Jdk::host());
    let is_java =
        |stack: &[String]| stack.iter().any(|frame| frame.ends_with("_[j]") || frame.ends_with("_[0]"));
    prove(
        || profile_of_command(&command),
        &[
            seen(200, "stacks with Java frames", is_java),
            seen(1, "Shares.main", |stack| stack.iter().any(|frame| bare(frame) == "Shares.main")),
            at_least(0.97, "stacks with Java frames that reach the root", reaches_root).among(is_java),
        ],
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
    let command = default_flags("Ciphers").args(&["5000"]).host_command(jdk);
    let encrypts = |stack: &[String]| stack.iter().any(|frame| bare(frame) == "Ciphers.encrypt");
    let in_stub = |stack: &[String]| stack.iter().any(|frame| frame.contains("cipherBlockChaining_"));
    prove(
        || profile_of_command(&command),
        &[
            seen(1_000, "stacks that encrypt", encrypts),
            at_least(0.5, "stacks in stubs", in_stub).among(encrypts),
            at_least(0.95, "stacks that encrypt and reach the root", reaches_root).among(encrypts),
        ],
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
    let in_barrier = |stack: &[String]| {
        let names = ["Barrier::", "BarrierSetRuntime::", "Shenandoah"];
        stack.iter().any(|frame| names.iter().any(|name| frame.contains(name)))
    };
    let is_called = |stack: &[String]| {
        let own = stack.iter().filter(|frame| frame.starts_with("Barriers.")).map(|frame| bare(frame));
        own.eq(["Barriers.main", "Barriers.walk"]) && reaches_root(stack)
    };
    let what = format!("JDK {} {flags:?}: barriers with their callers", jdk.version);
    prove(|| main_slice(&target, VM), &[at_least(0.95, what, is_called).among(in_barrier)]);
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
    let count = |stack: &[String], name: &str| stack.iter().filter(|frame| is(frame, name)).count();
    let burns = |stack: &[String]| count(stack, "Virtual.burn") > 0;
    let stayed = |stack: &[String]| burns(stack) && count(stack, "Virtual.down") > 0;
    let resumed = |stack: &[String]| burns(stack) && count(stack, "Virtual.resumed") > 0;
    let named = |what: &str| format!("JDK {} {flags:?}: {what}", jdk.version);
    prove(
        || short_slice(&target, &[]).folded,
        &[
            at_least(0.99, named("mounted stacks that are whole"), |stack| {
                is_carried(stack) && count(stack, "Virtual.down") == DEPTH
            })
            .among(stayed),
            // The stack is whole, or the return barrier marks the missing frames.
            at_least(0.98, named("resumed stacks that are true"), |stack| {
                let all = count(stack, "Virtual.resumed") == DEPTH;
                is_carried(stack) && (all || stack.iter().any(|frame| resumes(frame)))
            })
            .among(resumed),
        ],
    );
    let what = named("stacks with their carriers, by memory");
    prove(|| short_slice(&target, VM).folded, &[at_least(0.98, what, is_carried).among(burns)]);
}

/// Whether a stack of a virtual thread in `burn` stands on its carrier, with the mark `[vthread]` where its own frames
/// begin.
fn is_carried(stack: &[String]) -> bool {
    // Interpreted frames have no name; the mount point is never interpreted.
    let mount = stack.iter().position(|frame| mounts(frame));
    let burn = stack.iter().position(|frame| is(frame, "Virtual.burn"));
    let marks = stack.iter().enumerate().filter(|(_, frame)| *frame == "[vthread]");
    reaches_root(stack)
        && mount.zip(burn).is_some_and(|(mount, burn)| mount < burn)
        && marks.map(|(at, _)| at + 1).eq(mount)
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

/// The host's other programs wait while a stack is unwound: 44 ms before there was a limit. `replay/hostile.rs` proves
/// how many reads the limit allows.
#[test]
fn hostile_stacks_are_cut() {
    if !is_root() || !cfg!(target_arch = "x86_64") {
        return;
    }
    for words in ["readable", "unreadable"] {
        let target = default_flags("Hostile").args(&[words]).start(&Jdk::host());
        let is_expensive = has("Hostile.spin");
        let is_cut = |stack: &[String]| stack.iter().any(|frame| frame == "[truncated]");
        let claims = [
            seen(51, format!("{words}: expensive stacks"), &is_expensive),
            at_least(0.5, format!("{words}: expensive stacks that are cut"), is_cut).among(&is_expensive),
        ];
        // Each stack takes milliseconds: not at the rate of other tests.
        prove(|| profile(&target, 1, VM).folded, &claims);
    }
}

/// A program with the flags that its users give it.
fn default_flags(main: &str) -> Program {
    Program::new(main).without(FRAME_POINTERS)
}
