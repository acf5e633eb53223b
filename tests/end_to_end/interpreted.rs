//! Programs of known truth in the interpreter, on every JDK: whole stacks by name, shares, lines.

use testkit::claims::{StackClaim, at_least, at_most, prove, share};
use testkit::folded::{bare, reaches_root, user_leaf};
use testkit::is_root;
use testkit::java::{FRAME_POINTERS, Jdk, Program, in_container, on_host, while_classes_go};
use testkit::profiler::{assert_loops_have_their_time, main_short_slice, main_slice, short_slice};

#[test]
fn jdk_17_wherever_compiled_code_has_its_names_from() {
    // The agent comes last: it stays in the JVM.
    on_host(17, |jdk| is_true(jdk, &["off", "vm", "agent"]));
}

#[test]
fn jdk_8() {
    in_container(8, |jdk| is_true(jdk, &["agent"]));
}

#[test]
fn jdk_11() {
    in_container(11, |jdk| is_true(jdk, &["vm"]));
}

#[test]
fn jdk_21() {
    in_container(21, |jdk| is_true(jdk, &["agent"]));
}

#[test]
fn jdk_25() {
    in_container(25, |jdk| is_true(jdk, &["vm"]));
}

/// Runs only in the interpreter, without the flag for frame pointers in compiled code.
fn interpreted(main: &str) -> Program {
    Program::new(main).without(FRAME_POINTERS).flags(&["-Xint"])
}

/// Checks names, shares and whole stacks of one JVM, with each source of names.
fn is_true(jdk: &Jdk, sources: &[&str]) {
    let target = interpreted("Chains").start(jdk);
    for &java in sources {
        let named = |what: &str| format!("JDK {}, --java {java}: {what}", jdk.version);
        let burns = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];
        let mut claims = Vec::from(burns.map(|(name, truth)| {
            share(truth, named(name), move |stack| own(stack, "Chains.").eq(["main", "round", name, "work"]))
        }));
        claims.push(at_least(0.98, named("stacks that reach the root"), reaches_root));
        let main = prove(|| main_slice(&target, &["--java", java]), &claims);
        let compiled = main.count(|stack| stack.iter().any(|frame| frame.ends_with("_[j]")));
        assert_eq!(compiled, 0, "--java {java}: nothing is compiled:\n{}", main.top(10));
    }
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
    let in_leaf = |stack: &[String]| stack.iter().any(|frame| bare(frame) == "Deep.leaf");
    let is_whole = |stack: &[String]| {
        let down = stack.iter().filter(|frame| *frame == "Deep.down_[0]").count();
        let last = user_leaf(stack) == Some("Deep.leaf_[j]");
        let main = stack.iter().filter(|frame| *frame == "Deep.main_[0]").count();
        down == 50 && main == 1 && last && reaches_root(stack)
    };
    prove(
        || short_slice(&target, &[]).folded,
        &[at_least(0.98, "whole stacks of the leaf", is_whole).among(in_leaf)],
    );
}

#[test]
fn native_methods_have_their_names_and_what_they_call_its_own() {
    if !is_root() {
        return;
    }
    let target = interpreted("Natives").start(&Jdk::host());
    let in_copy = |stack: &[String]| stack.iter().any(|frame| bare(frame) == "Natives.copy");
    let in_native = |stack: &[String]| {
        let at = |name: &str| stack.iter().position(|frame| frame == name);
        let (copy, native) = (at("Natives.copy_[0]"), at("java.lang.System.arraycopy_[0]"));
        copy.zip(native).is_some_and(|(copy, native)| native == copy + 1)
    };
    let is_below = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| !leaf.ends_with("_[0]"));
    prove(
        || short_slice(&target, &[]).folded,
        &[
            at_least(0.98, "time in the native method", in_native).among(in_copy),
            at_least(0.5, "time in native code", is_below).among(in_copy),
        ],
    );
}

#[test]
fn names_of_classes_that_were_made_at_run_time_are_folded() {
    if !is_root() {
        return;
    }
    let target = interpreted("Lambdas").args(&["50"]).start(&Jdk::host());
    let is_folded = |frame: &str| frame.starts_with("Lambdas$$Lambda.");
    let is_numbered = |frame: &str| frame.starts_with("Lambdas$$Lambda") && !is_folded(frame);
    let main = prove(
        || main_short_slice(&target, &[]),
        &[at_least(0.5, "time in a lambda", |stack| stack.iter().any(|frame| is_folded(frame)))],
    );
    let numbered = main.count(|stack| stack.iter().any(|frame| is_numbered(frame)));
    assert_eq!(numbered, 0, "{}", main.top(10));
}

#[test]
fn methods_of_classes_that_come_and_go_have_their_names_or_say_that_they_went() {
    if !is_root() {
        return;
    }
    let is_burner =
        |stack: &[String]| user_leaf(stack).is_some_and(|leaf| bare(leaf) == "Unloaded$Burner.applyAsLong");
    let claims = [
        at_least(0.85, "time with the name or gone", |stack| is_burner(stack) || is_gone(stack)),
        have_their_names(&["Unloaded.main_[0]", "Unloaded.burn_[0]"]),
    ];
    let (all, gone) = while_classes_go(&Jdk::host(), &interpreted("Unloaded"), &[], &claims);
    let (named, lost) = (all.share(is_burner), all.share(is_gone));
    eprintln!("{named} named, {lost} gone; {gone} classes were unloaded");
}

/// Whether the innermost frame is of a method that had gone when its name was looked for.
fn is_gone(stack: &[String]) -> bool {
    user_leaf(stack) == Some("[unknown: method gone]")
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
    let claims = [have_their_names(&["Unloaded.main_[0]", "Unloaded.burn_[0]"])];
    while_classes_go(jdk, &interpreted("Unloaded").args(&["5000"]), &["--java", "vm"], &claims);
}

/// Claims that stacks have methods of the application's loader: it loads few classes, while many classes of other
/// loaders go.
fn have_their_names<'a>(methods: &'a [&'a str]) -> StackClaim<'a> {
    let has = |stack: &[String], name: &str| stack.iter().any(|frame| frame == name);
    at_least(0.97, format!("stacks with {methods:?}"), move |stack| {
        methods.iter().all(|method| has(stack, method))
    })
    .among(move |stack| has(stack, "call_stub"))
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
    let is_burning = |stack: &[String]| stack.iter().any(|frame| bare(frame).ends_with(".applyAsLong"));
    let claims = [
        at_least(0.5, "time in classes that have gone: they live for a moment only", is_gone),
        at_most(0.05, "time with a name that cannot be proven", is_burning),
        have_their_names(&["Churn.main_[0]", "Churn.burnAndDrop_[0]"]),
    ];
    let (all, gone) = while_classes_go(jdk, &interpreted("Churn"), &["--java", java], &claims);
    let (named, lost) = (all.share(is_burning), all.share(is_gone));
    eprintln!("--java {java}: {named} named, {lost} gone; {gone} classes were unloaded");
}
