//! Programs of known truth, profiled end to end: shares, lines, depth, names over time.

use std::collections::BTreeMap;

use testkit::claims::{StackClaim, at_least, at_most, prove, seen, share};
use testkit::folded::{Folded, bare, has, has_leaf, is, reaches_root, user_leaf};
use testkit::java::{Jdk, Program, in_container, while_classes_go};
use testkit::profiler::{assert_loops_have_their_time, main_slice, profile, slice};
use testkit::{is_root, native};

const BURNS: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];

#[test]
fn native_functions_have_their_shares() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let mut claims = Vec::from(BURNS.map(|(name, truth)| share(truth, name, has_leaf(name))));
    if cfg!(target_arch = "x86_64") {
        // GCC gives leaf functions no frame even with -fno-omit-frame-pointer: only unwind tables lead to their caller.
        claims.push(at_least(0.99, "leaves that have their caller", has("main")));
    }
    prove(|| slice(&target, &[]), &claims);
}

#[test]
fn kernel_work_stands_under_the_call_that_asked_for_it() {
    if !is_root() {
        return;
    }
    let target = native::start("kernel");
    // libc's read() keeps no frame of its own: without unwind tables its caller `copy` is missing.
    let asking = if cfg!(target_arch = "x86_64") { "copy" } else { "main" };
    let reads = move |stack: &[String]| {
        let main = stack.iter().position(|frame| frame == asking);
        let kernel = stack.iter().position(|frame| frame.ends_with("_[k]"));
        main.zip(kernel).is_some_and(|(main, kernel)| {
            main < kernel
                && stack[kernel..].iter().all(|f| f.ends_with("_[k]"))
                && stack[kernel..].iter().any(|f| f.contains("read"))
        })
    };
    prove(|| slice(&target, &[]), &[at_least(0.75, "read(2) of zeros, which is nearly all the work", reads)]);
}

#[test]
fn java_methods_have_their_shares() {
    if !is_root() {
        return;
    }
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let own = |(name, truth): (&'static str, f64)| share(truth, name, has_leaf(format!("Shares.{name}")));
    let mut claims = Vec::from(BURNS.map(own));
    claims.push(at_least(0.99, "methods that are compiled and not inlined", |stack| {
        user_leaf(stack).is_some_and(|leaf| leaf.ends_with("_[j]"))
    }));
    prove(|| main_slice(&target, &[]), &claims);
}

#[test]
fn inlined_methods_have_their_shares_and_chains() {
    if !is_root() {
        return;
    }
    let target = Program::new("InlinedShares")
        .flags(
            &["burn*", "twice", "thrice", "inner", "other"]
                .map(|m| format!("-XX:CompileCommand=inline,InlinedShares::{m}"))
                .each_ref()
                .map(String::as_str),
        )
        .dont_inline("InlinedShares::round")
        .debug_non_safepoints()
        .start(&Jdk::host());
    let chains: [(&[&str], f64); 4] = [
        (&["burn10"], 0.1),
        (&["twice", "burn20"], 0.2),
        (&["thrice", "inner", "burn30"], 0.3),
        (&["thrice", "other", "burn40"], 0.4),
    ];
    let claims = chains.map(|(chain, truth)| {
        share(truth, chain.join(" > "), move |stack| is_chain(stack, chain)).among(has("InlinedShares.round"))
    });
    prove(|| slice(&target, &[]), &claims);
}

/// Whether a stack has exactly this chain of inlined methods above the compiled method `round`.
fn is_chain(stack: &[String], chain: &[&str]) -> bool {
    let java: Vec<&String> = stack.iter().filter(|frame| bare(frame).starts_with("InlinedShares.")).collect();
    let Some(round) = java.iter().position(|frame| *frame == "InlinedShares.round_[j]") else { return false };
    java[round + 1..]
        .iter()
        .map(|frame| frame.as_str())
        .eq(chain.iter().map(|m| format!("InlinedShares.{m}_[i]")))
}

#[test]
fn time_falls_on_the_lines_of_the_loop_that_takes_it() {
    if !is_root() {
        return;
    }
    let mut target =
        Program::new("Lines").dont_inline("Lines::loops").debug_non_safepoints().start(&Jdk::host());
    assert_loops_have_their_time(&mut target, 0.3);
}

#[test]
fn recursion_a_thousand_deep_is_whole() {
    if !is_root() {
        return;
    }
    let target = Program::new("Deep").dont_inline("Deep::*").args(&["1000"]).start(&Jdk::host());
    let whole = |stack: &[String]| deep(stack) == 1000 && reaches_root(stack);
    prove(|| slice(&target, &[]), &[at_least(0.99, "whole stacks", whole).among(has("Deep.leaf"))]);
}

#[test]
fn recursion_deeper_than_the_limit_is_marked_at_its_root() {
    if !is_root() {
        return;
    }
    let target = Program::new("Deep").dont_inline("Deep::*").args(&["1500"]).start(&Jdk::host());
    let marked = |stack: &[String]| {
        (1000..=1024).contains(&deep(stack)) && stack.iter().take(3).any(|frame| frame == "[truncated]")
    };
    prove(|| slice(&target, &[]), &[at_least(0.99, "marked stacks", marked).among(has("Deep.leaf"))]);
}

fn deep(stack: &[String]) -> usize {
    stack.iter().filter(|frame| is(frame, "Deep.down")).count()
}

#[test]
fn a_method_that_is_compiled_again_elsewhere_keeps_its_name() {
    if !is_root() {
        return;
    }
    let jdk = Jdk::host();
    let program = Program::new("Moved").flags(&["-XX:+PrintCompilation"]).dont_inline("Moved::hot");
    let claims = [
        // Between two compilations the method is interpreted, under the same name. All other time is that of `main` and
        // its clock reads.
        at_least(0.99, "time with the name", has_leaf("Moved.hot")),
        at_most(0.005, "unknown frames", |stack| stack.iter().any(|frame| frame.starts_with("[unknown"))),
    ];
    // The code moves in a program's first seconds only, so each profile has its own program.
    let (mut programs, mut moves) = (0, 0);
    while moves < 4 {
        assert!(programs < 20, "the code moved only {moves} times: this test did not test");
        prove(
            || {
                let mut target = program.start(&jdk);
                let before = left(target.lines());
                let main = main_slice(&target, &[]);
                programs += 1;
                moves += left(target.lines()) - before;
                main
            },
            &claims,
        );
    }
}

/// How often the code of `Moved.hot` was discarded.
fn left(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.contains("Moved::hot") && line.contains("made not entrant")).count()
}

#[test]
fn a_class_that_was_unloaded_is_named_while_it_lived() {
    if is_root() {
        names_what_was_unloaded(&Jdk::host());
    }
}

#[test]
fn a_class_that_was_unloaded_is_named_while_it_lived_on_jdk_21() {
    in_container(21, names_what_was_unloaded);
}

fn names_what_was_unloaded(jdk: &Jdk) {
    // The thread waits for the compiler. Otherwise it would interpret for as long as the compiler waits for a CPU, and
    // the names of interpreted methods can be gone.
    let mut program = Program::new("Unloaded").flags(&["-Xbatch"]);
    // Since JDK 20 the collection that unloads a class frees its code at once, and other code soon has its place. If
    // nothing else is compiled, that is the next class's, of the same name. With other code the last owner is unknown.
    if jdk.version >= 20 {
        program = program.flags(&["-XX:CompileCommand=compileonly,Unloaded$Burner::*"]);
    }
    let gone = |stack: &[String]| user_leaf(stack) == Some("[unknown: method gone]");
    let claims = [
        // Each class begins in the interpreter, and collections take time.
        at_least(0.85, "time with the name", has_leaf("Unloaded$Burner.applyAsLong")),
        // Interpreted methods are named from memory, after their window, unless their class is gone by then.
        at_most(0.05, "methods that have gone", gone),
        at_most(0.005, "other unknown frames", move |stack| {
            let leaf = usize::from(gone(stack));
            stack.iter().filter(|frame| frame.starts_with("[unknown")).count() > leaf
        }),
    ];
    while_classes_go(jdk, &program, &[], &claims);
}

#[test]
fn threads_are_distinguished() {
    if !is_root() {
        return;
    }
    let target = Program::new("Threads").dont_inline("Threads::burn").start(&Jdk::host());
    let of_thread =
        |name: String| move |stack: &[String]| stack.get(1).is_some_and(|thread| thread.starts_with(&name));
    let claims = [1_u8, 2, 3, 4].map(|number| {
        let name = format!("[worker-{number} tid=");
        share(f64::from(number) / 10.0, name.clone(), of_thread(name)).among(has_leaf("Threads.burn"))
    });
    prove(|| slice(&target, &["--per-thread", "--raw-threads"]), &claims);
    // By default the numbers of a pool are folded; without --per-thread there are no threads.
    let pool = seen(51, "samples of the pool", of_thread("[worker-#".to_owned()));
    let folded = prove(|| profile(&target, 1, &["--per-thread"]).folded, &[pool]);
    assert_eq!(folded.count(of_thread("[worker-1".to_owned())), 0);
    let burns = seen(51, "samples of the workers", has_leaf("Threads.burn"));
    let merged = prove(|| profile(&target, 1, &[]).folded, &[burns]);
    assert_eq!(merged.count(|stack| stack.iter().any(|frame| frame.contains("worker-"))), 0);
}

#[test]
fn names_that_the_jvm_invents_are_the_same_in_each_run() {
    if !is_root() {
        return;
    }
    let calls = ["Lambdas.viaLambda", "Lambdas.viaProxy", "Lambdas.viaReflection"];
    let burns =
        || calls.map(|via| at_least(0.9, format!("{via} burns"), has_leaf("Lambdas.burn")).among(has(via)));
    let one = run_of_lambdas(&burns());
    let ways = calls.map(|via| (via, commonest_way(&one, via)));
    let mut claims = Vec::from(burns());
    // Rare ways are from before the last compilation.
    claims.extend(ways.iter().map(|(via, way)| {
        let is_same = move |stack: &[String]| way_from(stack, via).as_ref() == Some(way);
        at_least(0.5, format!("the way of the other run, {way}"), is_same).among(has(via))
    }));
    run_of_lambdas(&claims);
}

/// Runs and profiles `Lambdas` until these claims are decided. No name has a number of the run.
fn run_of_lambdas(claims: &[StackClaim<'_>]) -> Folded {
    let target = Program::new("Lambdas").dont_inline("Lambdas::burn").start(&Jdk::host());
    let all = prove(|| main_slice(&target, &[]), claims);
    let numbered = ["0x", "$$Lambda$1", "$$Lambda$2", "$Proxy0", "$Proxy1", "Accessor1", "Accessor2"];
    for frame in all.stacks().flat_map(|(stack, _)| stack) {
        let bad = numbered.iter().find(|text| frame.contains(**text));
        assert!(bad.is_none(), "{frame} has a number of this run");
    }
    all
}

/// The names on the way down from `via`, outside the kernel.
fn way_from(stack: &[String], via: &str) -> Option<String> {
    let from = stack.iter().position(|frame| is(frame, via))?;
    let names: Vec<&str> = stack[from..].iter().filter(|f| !f.ends_with("_[k]")).map(|f| bare(f)).collect();
    Some(names.join(";"))
}

fn commonest_way(all: &Folded, via: &str) -> String {
    let mut ways = BTreeMap::new();
    for (stack, count) in all.stacks() {
        if let Some(way) = way_from(stack, via) {
            *ways.entry(way).or_insert(0) += count;
        }
    }
    ways.into_iter().max_by_key(|(_, count)| *count).expect("some stacks have it").0
}

#[test]
fn each_class_and_method_has_its_own_name() {
    if !is_root() {
        return;
    }
    let target = Program::new("Lookalikes").start(&Jdk::host());
    let classes = ["Lookalikes$Proxy1", "Lookalikes$Proxy2", "Lookalikes$ByteBuddy$Alpha"];
    let classes = classes.into_iter().chain(["Lookalikes$ByteBuddy$Beta", "Script1", "Script2"]);
    let names = classes.map(|class| format!("{class}.applyAsLong"));
    let mut claims: Vec<StackClaim<'_>> =
        names.map(|name| share(1.0 / 8.0, name.clone(), has(name))).collect();
    claims.extend(["xxOne", "xxTwo"].map(|end| {
        let is_long = move |frame: &str| {
            frame.starts_with("Lookalikes$Template.xx") && frame.contains('…') && frame.ends_with(end)
        };
        share(1.0 / 8.0, end, move |stack| stack.iter().any(|frame| is_long(bare(frame))))
    }));
    for java in ["agent", "vm"] {
        prove(|| main_slice(&target, &["--java", java]), &claims);
    }
}
