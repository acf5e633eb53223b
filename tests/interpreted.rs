//! Programs of known truth in the interpreter, on every JDK: whole stacks by name, shares, lines.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use testkit::folded::{Folded, bare, reaches_root, user_leaf};
use testkit::java::{FRAME_POINTERS, Jdk, Program, in_container, on_host, while_classes_go};
use testkit::profiler::{assert_loops_have_their_time, main_thread, profile_enough};
use testkit::{assert_share, is_root};

#[test]
fn jdk_17_wherever_compiled_code_has_its_names_from() {
    on_host(17, |jdk| ["agent", "vm", "off"].iter().for_each(|java| is_true(jdk, java)));
}

#[test]
fn jdk_8() {
    in_container(8, |jdk| is_true(jdk, "agent"));
}

#[test]
fn jdk_11() {
    in_container(11, |jdk| is_true(jdk, "vm"));
}

#[test]
fn jdk_21() {
    in_container(21, |jdk| is_true(jdk, "agent"));
}

#[test]
fn jdk_25() {
    in_container(25, |jdk| is_true(jdk, "vm"));
}

/// Runs only in the interpreter, without the flag for frame pointers in compiled code.
fn interpreted(main: &str) -> Program {
    Program::new(main).without(FRAME_POINTERS).flags(&["-Xint"])
}

/// Checks names, shares and whole stacks.
fn is_true(jdk: &Jdk, java: &str) {
    let target = interpreted("Chains").start(jdk);
    let main = main_thread(&target, &["--java", java]);
    let shares = ["burn10", "burn20", "burn30", "burn40"]
        .map(|name| (name, main.share(|stack| own(stack, "Chains.").eq(["main", "round", name, "work"]))));
    eprintln!("JDK {}, --java {java}: {shares:?} of {} samples", jdk.version, main.total());
    for ((name, share), truth) in shares.into_iter().zip([0.1, 0.2, 0.3, 0.4]) {
        assert_share(&format!("{name}, {java}"), share, truth, main.total());
    }
    let rooted = main.share(reaches_root);
    assert!(rooted > 0.98, "--java {java}: only {rooted} of the stacks reach the root:\n{}", main.top(10));
    let compiled = main.count(|stack| stack.iter().any(|frame| frame.ends_with("_[j]")));
    assert_eq!(compiled, 0, "--java {java}: nothing is compiled:\n{}", main.top(10));
}

/// The interpreted methods of a class in a stack.
fn own<'a>(stack: &'a [String], class: &'a str) -> impl Iterator<Item = &'a str> {
    stack.iter().filter_map(move |frame| frame.strip_prefix(class)?.strip_suffix("_[0]"))
}

#[test]
fn time_falls_on_the_lines_that_take_it() {
    if !is_root() {
        return;
    }
    for (tenths, first) in [("0", 0.0), ("10", 1.0)] {
        let mut target = interpreted("Lines").args(&["1", tenths]).start(&Jdk::host());
        assert_loops_have_their_time(&mut target, first);
    }
}

#[test]
fn interpreted_methods_stand_above_compiled_ones_and_below() {
    if !is_root() {
        return;
    }
    // `leaf` is compiled; its callers, fifty frames deep, are not.
    let target = Program::new("Deep")
        .without(FRAME_POINTERS)
        .flags(&["-XX:CompileCommand=exclude,Deep::down", "-XX:CompileCommand=exclude,Deep::main"])
        .dont_inline("Deep::leaf")
        .args(&["50"])
        .start(&Jdk::host());
    let leaf = profile_enough(&target, &[], |all| all.within("Deep.leaf"));
    let whole = leaf.share(|stack| {
        let down = stack.iter().filter(|frame| *frame == "Deep.down_[0]").count();
        let last = user_leaf(stack) == Some("Deep.leaf_[j]");
        let main = stack.iter().filter(|frame| *frame == "Deep.main_[0]").count();
        down == 50 && main == 1 && last && reaches_root(stack)
    });
    assert!(whole > 0.98, "only {whole} of the stacks are whole:\n{}", leaf.top(3));
}

#[test]
fn native_methods_have_their_names_and_what_they_call_its_own() {
    if !is_root() {
        return;
    }
    let target = interpreted("Natives").start(&Jdk::host());
    let copy = profile_enough(&target, &[], |all| all.within("Natives.copy"));
    let native = copy.share(|stack| {
        let at = |name: &str| stack.iter().position(|frame| frame == name);
        let (copy, native) = (at("Natives.copy_[0]"), at("java.lang.System.arraycopy_[0]"));
        copy.zip(native).is_some_and(|(copy, native)| native == copy + 1)
    });
    assert!(native > 0.98, "only {native} of the time is in the native method:\n{}", copy.top(10));
    let below = copy.share(|stack| user_leaf(stack).is_some_and(|leaf| !leaf.ends_with("_[0]")));
    assert!(below > 0.5, "only {below} is in native code:\n{}", copy.top(10));
}

#[test]
fn names_of_classes_that_were_made_at_run_time_are_folded() {
    if !is_root() {
        return;
    }
    let target = interpreted("Lambdas").args(&["50"]).start(&Jdk::host());
    let main = main_thread(&target, &[]);
    let lambda = main.share(|stack| stack.iter().any(|frame| frame.starts_with("Lambdas$$Lambda.")));
    let numbered = main.count(|stack| {
        stack
            .iter()
            .any(|frame| frame.starts_with("Lambdas$$Lambda") && !frame.starts_with("Lambdas$$Lambda."))
    });
    assert!(lambda > 0.5, "only {lambda} is in a lambda:\n{}", main.top(10));
    assert_eq!(numbered, 0, "{}", main.top(10));
}

#[test]
fn methods_of_classes_that_come_and_go_have_their_names_or_say_that_they_went() {
    if !is_root() {
        return;
    }
    let (all, gone) = while_classes_go(&Jdk::host(), &interpreted("Unloaded"), &[]);
    let named = all.self_share("Unloaded$Burner.applyAsLong");
    let lost = all.share(|stack| user_leaf(stack) == Some("[unknown: method gone]"));
    eprintln!("{named} named, {lost} gone; {gone} classes were unloaded");
    assert!(named + lost > 0.85, "only {named} has the name, {lost} says that it went:\n{}", all.top(10));
    those_that_stay_have_their_names(&all, &["Unloaded.main_[0]", "Unloaded.burn_[0]"]);
}

/// An application server has thousands of class loaders.
#[test]
fn methods_that_stay_have_their_names_among_many_loaders() {
    on_host(17, among_many_loaders);
}

#[test]
fn methods_that_stay_have_their_names_among_many_loaders_on_jdk_8() {
    in_container(8, among_many_loaders);
}

fn among_many_loaders(jdk: &Jdk) {
    let program = interpreted("Unloaded").args(&["5000"]);
    let (all, _) = while_classes_go(jdk, &program, &["--java", "vm"]);
    those_that_stay_have_their_names(&all, &["Unloaded.main_[0]", "Unloaded.burn_[0]"]);
}

/// Checks methods of the application's loader: it loads few classes, while many classes of other loaders go.
fn those_that_stay_have_their_names(all: &Folded, stack: &[&str]) {
    let java = all.keep(|stack| stack.iter().any(|frame| frame == "call_stub"));
    let whole = java.share(|frames| stack.iter().all(|method| frames.iter().any(|frame| frame == method)));
    assert!(whole > 0.97, "only {whole} of the stacks have {stack:?}:\n{}", java.top(10));
}

#[test]
fn a_method_never_has_the_name_of_what_came_to_its_place() {
    on_host(17, |jdk| proves_names(jdk, "agent"));
}

#[test]
fn a_method_never_has_the_name_of_what_came_to_its_place_on_jdk_8() {
    in_container(8, |jdk| proves_names(jdk, "vm"));
}

fn proves_names(jdk: &Jdk, java: &str) {
    let (all, gone) = while_classes_go(jdk, &interpreted("Churn"), &["--java", java]);
    let burning = all.keep(|stack| stack.iter().any(|frame| bare(frame).ends_with(".applyAsLong")));
    let lost = all.share(|stack| user_leaf(stack) == Some("[unknown: method gone]"));
    eprintln!("--java {java}: {} named, {lost} gone; {gone} classes were unloaded", burning.total());
    assert!(lost > 0.5, "these classes live for a moment only:\n{}", all.top(10));
    let named = burning.total() as f64 / all.total() as f64;
    assert!(named < 0.05, "{named} has a name that cannot be proven:\n{}", all.top(10));
    those_that_stay_have_their_names(&all, &["Churn.main_[0]", "Churn.burnAndDrop_[0]"]);
}
