//! Programs in C and C++: the calls themselves give the true callers of each instruction.

use std::collections::BTreeMap;
use std::path::Path;

use super::recording::{Part, Recording, Walked, assert_cheap, assert_known_steps_are_cheaper};
use testkit::{native, skip, sources};

/// Unwinds every stack of a program: no frame may be wrong, and at least this share of the stacks is whole.
fn every_frame(name: &str, program: &Path, part: Part, least: f64) {
    let recording = Recording::of(name, program, part);
    let mut stacks = recording.walk();
    // Only the unwinder knows the callers of the function with `int3`; they never change.
    let callers = stacks[0].addresses()[1..].to_vec();
    stacks.iter_mut().for_each(|stack| stack.truth.extend(&callers));
    let is_true = |stack: &&Walked| stack.truth.starts_with(&stack.addresses());
    let untrue: Vec<&Walked> = stacks.iter().filter(|stack| !is_true(stack)).collect();
    for stack in untrue.iter().take(10) {
        let walked = stack.addresses();
        let right = walked.iter().zip(&stack.truth).take_while(|(a, b)| a == b).count();
        let places = |pcs: &[u64]| pcs.iter().map(|pc| recording.place(*pc)).collect::<Vec<_>>();
        eprintln!("{:#?}\n  but the truth is {:#?}", places(&walked[right..]), places(&stack.truth));
    }
    assert!(untrue.is_empty(), "{} of {} stacks have wrong frames", untrue.len(), stacks.len());
    let mut short = BTreeMap::new();
    let place = |pc: Option<&u64>| recording.place(*pc.unwrap());
    // The unwinder does not follow a rule, or libgcc has already set rbp for the handler. The function that throws,
    // which a distribution compiled with frame pointers, then cannot be unwound by rbp.
    let is_known = |stack: &Walked| {
        let in_libgcc = || place(stack.addresses().first()).contains("/libgcc_s.so");
        stack.end == "no_rule" || (stack.end == "not_up" && in_libgcc())
    };
    let mut unknown = 0;
    for stack in stacks.iter().filter(|stack| stack.end != "root" || stack.words.len() < stack.truth.len()) {
        let last = place(stack.addresses().last());
        unknown += usize::from(!is_known(stack));
        *short.entry((stack.end.as_str(), last)).or_insert(0) += 1;
    }
    let whole = stacks.len() - short.values().sum::<usize>();
    let deepest = stacks.iter().map(|stack| stack.truth.len()).max().unwrap_or(0);
    eprintln!("{name}: {whole} of {} stacks are whole, the deepest has {deepest} frames", stacks.len());
    assert!(stacks.len() > 10_000 && deepest > 12, "{} stacks, {deepest} frames", stacks.len());
    assert!(unknown == 0, "{unknown} end as they must not: {short:#?}");
    assert_cheap(name, stacks.iter().map(|stack| (stack, stack.words.len())));
    assert_known_steps_are_cheaper(name, &stacks);
    assert!(whole as f64 > least * stacks.len() as f64, "{short:#?}");
}

/// The program binds functions at their first call: glibc's trampoline has a CFA by rbx, which is not followed.
#[test]
fn every_instruction_of_a_c_program() {
    if applies() {
        every_frame("c", &native::without_frame_pointers("steps.c"), Part::All, 0.97);
    }
}

#[test]
fn every_instruction_of_start_code_that_begins_with_endbr64() {
    if applies() {
        let start = sources().join("start.S");
        let flags = ["-nostartfiles", start.to_str().unwrap()];
        every_frame(
            "start",
            &native::without_frame_pointers_and("steps.c", "start", &flags),
            Part::All,
            0.97,
        );
    }
}

#[test]
fn every_instruction_of_a_program_with_exceptions() {
    if applies() {
        every_frame("c++", &native::without_frame_pointers("steps.cc"), Part::Function, 0.998);
    }
}

fn applies() -> bool {
    let applies = cfg!(target_arch = "x86_64");
    if !applies {
        skip("unwind tables are of x86-64 only");
    }
    applies
}
