//! The harness itself: what is broken makes it red, with a sentence. Boots guests, so `./test.sh vmtest` runs it:
//! `cargo test -p vmtest -- --ignored`, as root.
#![allow(clippy::unwrap_used)] // a test program fails loudly

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs cases on a kernel; vmtest's exit code, and all that it said.
fn vmtest(kernel: &str, cases: &str, more: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmtest"));
    command.args(["--kernel", kernel, "--case", cases]).envs(more.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

#[track_caller]
fn assert_red(kernel: &str, cases: &str, sentences: &[&str]) -> String {
    let (code, said) = vmtest(kernel, cases, &[]);
    assert_eq!(code, Some(1), "{said}");
    for sentence in sentences {
        assert!(said.contains(sentence), "it does not say {sentence:?}: {said}");
    }
    said
}

#[test]
#[ignore = "boots a guest"]
fn a_broken_case_is_red_and_harms_no_other_and_a_kernel_that_panics_is_red() {
    let said = assert_red(
        "5.10",
        "broken-truth,broken-case,broken-silent,musl,broken-kernel",
        &[
            "FAILED: broken-truth on kernel 5.10: ",
            "burn10 has ",
            "but the truth is 38.00 % to 42.00 %",
            "FAILED: broken-case on kernel 5.10: it did not end within 5 s",
            "FAILED: broken-silent on kernel 5.10: no result came",
            "FAILED: kernel 5.10: the guest ended while running broken-kernel",
            "FAILED: broken-kernel on kernel 5.10: no result came",
            "1 passed; 5 failed",
        ],
    );
    assert!(!said.contains("FAILED: musl"), "{said}");
}

// On a kernel of its own: tests run side by side, and a kernel's console has one place.
#[test]
#[ignore = "boots a guest"]
fn a_guest_that_hangs_is_ended() {
    let said = assert_red(
        "6.1",
        "broken-guest",
        &["the guest said nothing for ", " s while running broken-guest", "no result came"],
    );
    let log = said.split("its console: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    let console = std::fs::read_to_string(log).unwrap();
    assert!(console.contains("Linux version 6.1"), "{console}");
}

#[test]
#[ignore = "needs the binary under test"]
fn a_kernel_that_cannot_be_fetched_is_red() {
    let empty = tempfile::tempdir().unwrap();
    let cache = [("JBPF_PROF_CACHE", empty.path().to_str().unwrap())];
    let nowhere = [("JBPF_PROF_DEBIAN_MIRROR", "file:///nowhere")];
    let (code, said) = vmtest("5.10", "musl", &[cache[0], nowhere[0]]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("kernel 5.10 cannot be had"), "{said}");
    assert!(said.contains("linux-image-") && said.contains("file:///nowhere"), "{said}");
}

#[test]
#[ignore = "boots a guest"]
fn a_command_has_its_exit_code_and_a_shell_its_prompt() {
    let inside = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmtest"));
        command.args(["--kernel", "6.12"]).args(args);
        command
    };
    let Output { status, stdout, stderr } = inside(&["--run", "uname -r; exit 7"]).output().unwrap();
    let said = String::from_utf8_lossy(&stdout);
    assert_eq!(status.code(), Some(7), "{}", String::from_utf8_lossy(&stderr));
    assert!(said.starts_with("6.12."), "{said}");

    let mut shell = inside(&["--shell"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = shell.stdout.take().unwrap();
    // All that the guest says has room in it: QEMU's serial port drops bytes that are not read.
    rustix::pipe::fcntl_setpipe_size(&stdout, 1 << 18).unwrap();
    let (send, bytes) = channel();
    std::thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(length @ 1..) = stdout.read(&mut some) {
            if send.send(some[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut screen = String::new();
    // What is typed before the prompt is lost, as on any terminal.
    while !screen.contains("\n# ") {
        match bytes.recv_timeout(Duration::from_secs(120)) {
            Ok(more) => screen += &String::from_utf8_lossy(&more),
            Err(_) => {
                shell.kill().unwrap();
                panic!("no prompt: {screen}")
            }
        }
    }
    // Much of what the shell says is still in the guest when it ends.
    shell.stdin.as_mut().unwrap().write_all(b"echo $((6 * 7)) in $PWD; seq 3000; exit\n").unwrap();
    let status = shell.wait().unwrap();
    let rest: Vec<u8> = bytes.iter().flatten().collect();
    let rest = String::from_utf8_lossy(&rest);
    assert!(status.success() && rest.contains("42 in /vmtest"), "{status}: {rest}");
    let numbers = (1..=3000).map(|n| format!("{n}\r\n")).collect::<String>();
    assert!(rest.contains(&numbers), "a part of what the shell said is lost: {rest}");
}
