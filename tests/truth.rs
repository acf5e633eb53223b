//! Programs of known truth, profiled end to end: shares, lines, depth, names over time.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use testkit::folded::{Folded, bare, is, user_leaf};
use testkit::java::{Jdk, Program, in_container, while_classes_go};
use testkit::profiler::{assert_loops_have_their_time, main_thread, profile, profile_enough};
use testkit::{assert_share, is_root, native};

const BURNS: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];

#[test]
fn native_functions_have_their_shares() {
    if !is_root() {
        return;
    }
    let target = native::start("native");
    let all = profile_enough(&target, &[], |all| all);
    if cfg!(target_arch = "x86_64") {
        // GCC gives leaf functions no frame even with -fno-omit-frame-pointer: only unwind tables lead to their caller.
        let called = all.share(|stack| stack.iter().any(|frame| frame == "main"));
        assert!(called > 0.99, "only {called} of the leaves have their caller:\n{}", all.top(10));
    }
    for (name, truth) in BURNS {
        assert_share(name, all.self_share(name), truth, all.total());
    }
}

#[test]
fn kernel_work_stands_under_the_call_that_asked_for_it() {
    if !is_root() {
        return;
    }
    let target = native::start("kernel");
    let all = profile_enough(&target, &[], |all| all);
    // libc's read() keeps no frame of its own: without unwind tables its caller `copy` is missing.
    let asking = if cfg!(target_arch = "x86_64") { "copy" } else { "main" };
    let read = all.share(|stack| {
        let main = stack.iter().position(|frame| frame == asking);
        let kernel = stack.iter().position(|frame| frame.ends_with("_[k]"));
        main.zip(kernel).is_some_and(|(main, kernel)| {
            main < kernel
                && stack[kernel..].iter().all(|f| f.ends_with("_[k]"))
                && stack[kernel..].iter().any(|f| f.contains("read"))
        })
    });
    assert!(read > 0.75, "read(2) of zeros is nearly all the work, not {read}:\n{}", all.top(10));
}

#[test]
fn java_methods_have_their_shares() {
    if !is_root() {
        return;
    }
    let target = Program::new("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let main = main_thread(&target, &[]);
    for (name, truth) in BURNS {
        assert_share(name, main.self_share(&format!("Shares.{name}")), truth, main.total());
    }
    let compiled = main.share(|stack| user_leaf(stack).is_some_and(|leaf| leaf.ends_with("_[j]")));
    assert!(compiled > 0.99, "the methods are compiled, and none is inlined:\n{}", main.top(10));
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
    let round = profile_enough(&target, &[], |all| all.within("InlinedShares.round"));
    let chains: [(&[&str], f64); 4] = [
        (&["burn10"], 0.1),
        (&["twice", "burn20"], 0.2),
        (&["thrice", "inner", "burn30"], 0.3),
        (&["thrice", "other", "burn40"], 0.4),
    ];
    for (chain, truth) in chains {
        let name = chain.join(" > ");
        assert_share(&name, round.share(|stack| is_chain(stack, chain)), truth, round.total());
    }
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
    let leaf = profile_enough(&target, &[], |all| all.within("Deep.leaf"));
    let whole = leaf.share(|stack| deep(stack) == 1000 && testkit::folded::reaches_root(stack));
    assert!(whole > 0.99, "only {whole} of the stacks are whole:\n{}", shortened(&leaf));
}

#[test]
fn recursion_deeper_than_the_limit_is_marked_at_its_root() {
    if !is_root() {
        return;
    }
    let target = Program::new("Deep").dont_inline("Deep::*").args(&["1500"]).start(&Jdk::host());
    let leaf = profile_enough(&target, &[], |all| all.within("Deep.leaf"));
    let marked = leaf.share(|stack| {
        (1000..=1024).contains(&deep(stack)) && stack.iter().take(3).any(|frame| frame == "[truncated]")
    });
    assert!(marked > 0.99, "only {marked} of the stacks are marked:\n{}", shortened(&leaf));
}

fn deep(stack: &[String]) -> usize {
    stack.iter().filter(|frame| is(frame, "Deep.down")).count()
}

/// The commonest stacks, with equal adjacent frames merged.
fn shortened(folded: &Folded) -> String {
    let mut text = String::new();
    for line in folded.top(8).lines() {
        let mut frames: Vec<&str> = line.split(';').collect();
        let before = frames.len();
        frames.dedup();
        text.push_str(&format!("{} ({before} frames)\n", frames.join(";")));
    }
    text
}

#[test]
fn a_method_that_is_compiled_again_elsewhere_keeps_its_name() {
    if !is_root() {
        return;
    }
    let mut target =
        Program::new("Moved").flags(&["-XX:+PrintCompilation"]).dont_inline("Moved::hot").start(&Jdk::host());
    let before = left(target.lines());
    let main = main_thread(&target, &[]);
    let moves = left(target.lines()) - before;
    assert!(moves >= 4, "the code moved only {moves} times: this test did not test");
    let named = main.self_share("Moved.hot");
    // Between two compilations the method is interpreted, under the same name. The rest is `main` and its clock reads.
    assert!(named > 0.99, "only {named} of the time has the name:\n{}", main.top(10));
    let unknown = main.share(|stack| stack.iter().any(|frame| frame.starts_with("[unknown")));
    assert!(unknown < 0.005, "{unknown} has unknown frames:\n{}", main.top(10));
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
    let mut program = Program::new("Unloaded");
    // Since JDK 20 the collection that unloads a class frees its code at once, and other code soon has its place. If
    // nothing else is compiled, that is the next class's, of the same name. With other code the last owner is unknown.
    if jdk.version >= 20 {
        program = program.flags(&["-XX:CompileCommand=compileonly,Unloaded$Burner::*"]);
    }
    let (all, _) = while_classes_go(jdk, &program, &[]);
    let named = all.self_share("Unloaded$Burner.applyAsLong");
    // Each class begins in the interpreter, and collections take time.
    assert!(named > 0.85, "only {named} of the time has the name:\n{}", all.top(10));
    // Interpreted methods are named from memory, after their window, unless their class is gone by then.
    let unknown = |frame: &String| frame.starts_with("[unknown");
    let gone = |stack: &[String]| user_leaf(stack) == Some("[unknown: method gone]");
    let interpreted = all.share(gone);
    assert!(interpreted < 0.05, "{interpreted} is of methods that have gone:\n{}", all.top(10));
    let others = all.share(|stack| {
        let leaf = usize::from(gone(stack));
        stack.iter().filter(|frame| unknown(frame)).count() > leaf
    });
    assert!(others < 0.005, "{others} has other unknown frames:\n{}", all.top(10));
}

#[test]
fn threads_are_distinguished() {
    if !is_root() {
        return;
    }
    let target = Program::new("Threads").dont_inline("Threads::burn").start(&Jdk::host());
    let burning =
        |all: Folded| all.keep(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, "Threads.burn")));
    let workers = profile_enough(&target, &["--per-thread", "--raw-threads"], burning);
    for (i, (_, truth)) in BURNS.iter().enumerate() {
        let name = format!("[worker-{} tid=", i + 1);
        assert_share(&name, workers.share(|stack| stack[1].starts_with(&name)), *truth, workers.total());
    }
    // By default the numbers of a pool are folded; without --per-thread there are no threads.
    let folded = profile(&target, 2, &["--per-thread"]).folded;
    assert!(folded.count(|stack| stack[1].starts_with("[worker-#")) > 50, "{}", folded.top(10));
    assert_eq!(folded.count(|stack| stack[1].starts_with("[worker-1")), 0);
    let merged = profile(&target, 2, &[]).folded;
    assert_eq!(merged.count(|stack| stack.iter().any(|frame| frame.contains("worker-"))), 0);
}

#[test]
fn names_that_the_jvm_invents_are_the_same_in_each_run() {
    if !is_root() {
        return;
    }
    let names = || {
        let target = Program::new("Lambdas").dont_inline("Lambdas::burn").start(&Jdk::host());
        let all = main_thread(&target, &[]);
        let paths = ["Lambdas.viaLambda", "Lambdas.viaProxy", "Lambdas.viaReflection"].map(|via| {
            let path = all.within(via);
            assert!(path.share(|stack| user_leaf(stack).is_some_and(|l| is(l, "Lambdas.burn"))) > 0.9);
            // The commonest path down from `via`; rare ones are from before the last compilation.
            let mut ways = std::collections::BTreeMap::new();
            for (stack, count) in path.stacks() {
                let from = stack.iter().position(|frame| is(frame, via)).unwrap();
                let way: Vec<&str> =
                    stack[from..].iter().filter(|f| !f.ends_with("_[k]")).map(|f| bare(f)).collect();
                *ways.entry(way.join(";")).or_insert(0) += count;
            }
            ways.into_iter().max_by_key(|(_, count)| *count).unwrap().0
        });
        for (stack, _) in all.stacks() {
            for frame in stack {
                let numbered =
                    ["0x", "$$Lambda$1", "$$Lambda$2", "$Proxy0", "$Proxy1", "Accessor1", "Accessor2"];
                let bad = numbered.iter().find(|text| frame.contains(**text));
                assert!(bad.is_none(), "{frame} has a number of this run");
            }
        }
        paths
    };
    assert_eq!(names(), names());
}

#[test]
fn each_class_and_method_has_its_own_name() {
    if !is_root() {
        return;
    }
    let target = Program::new("Lookalikes").start(&Jdk::host());
    let classes = ["Lookalikes$Proxy1", "Lookalikes$Proxy2", "Lookalikes$ByteBuddy$Alpha"];
    let classes = classes.into_iter().chain(["Lookalikes$ByteBuddy$Beta", "Script1", "Script2"]);
    let names: Vec<String> = classes.map(|class| format!("{class}.applyAsLong")).collect();
    for java in ["agent", "vm"] {
        let main = main_thread(&target, &["--java", java]);
        let share =
            |wanted: &dyn Fn(&str) -> bool| main.share(|stack| stack.iter().any(|frame| wanted(bare(frame))));
        for name in &names {
            assert_share(name, share(&|frame| frame == name), 1.0 / 8.0, main.total());
        }
        for end in ["xxOne", "xxTwo"] {
            let long = |frame: &str| {
                frame.starts_with("Lookalikes$Template.xx") && frame.contains('…') && frame.ends_with(end)
            };
            assert_share(end, share(&long), 1.0 / 8.0, main.total());
        }
    }
}
