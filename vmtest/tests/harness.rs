//! The harness itself: what is broken makes it red, with a sentence. Boots guests, so `./test.sh vmtest` runs it:
//! `cargo test -p vmtest -- --ignored`, as root.
#![allow(clippy::unwrap_used)] // a test program fails loudly

use std::process::{Command, Output};

/// Runs vmtest on the oldest kernel; its exit code, and all that it said.
fn vmtest(cases: &str, more: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmtest"));
    command.args(["--kernel", "5.10", "--case", cases]).envs(more.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

#[track_caller]
fn assert_red(cases: &str, sentences: &[&str]) -> String {
    let (code, said) = vmtest(cases, &[]);
    assert_eq!(code, Some(1), "{said}");
    for sentence in sentences {
        assert!(said.contains(sentence), "it does not say {sentence:?}: {said}");
    }
    said
}

#[test]
#[ignore = "boots a guest"]
fn a_broken_case_is_red_and_harms_no_other() {
    let said = assert_red(
        "broken-truth,broken-case,broken-silent,musl",
        &[
            "FAILED: broken-truth on kernel 5.10: ",
            "burn10 has ",
            "but the truth is 40.00 %",
            "FAILED: broken-case on kernel 5.10: it did not end within 5 s",
            "FAILED: broken-silent on kernel 5.10: no result came",
            "1 passed; 3 failed",
        ],
    );
    assert!(!said.contains("FAILED: musl"), "{said}");
}

#[test]
#[ignore = "boots a guest"]
fn a_guest_that_hangs_is_ended() {
    let said = assert_red(
        "broken-guest",
        &["the guest said nothing for ", " s while running broken-guest", "no result came"],
    );
    let log = said.split("its console: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    let console = std::fs::read_to_string(log).unwrap();
    assert!(console.contains("Linux version 5.10"), "{console}");
}

#[test]
#[ignore = "boots a guest"]
fn a_kernel_that_panics_is_red() {
    assert_red("broken-kernel", &["the guest ended while running broken-kernel", "no result came"]);
}

#[test]
#[ignore = "needs the binary under test"]
fn a_kernel_that_cannot_be_fetched_is_red() {
    let empty = tempfile::tempdir().unwrap();
    let cache = [("JBPF_PROF_CACHE", empty.path().to_str().unwrap())];
    let nowhere = [("JBPF_PROF_DEBIAN_MIRROR", "file:///nowhere")];
    let (code, said) = vmtest("musl", &[cache[0], nowhere[0]]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("kernel 5.10 cannot be had"), "{said}");
    assert!(said.contains("linux-image-") && said.contains("file:///nowhere"), "{said}");
}
