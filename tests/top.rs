//! `jbpf-prof top` in a terminal: the shares of known programs, its keys, and the terminal as it was before.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testkit::java::{Jdk, Program};
use testkit::profiler::binary;
use testkit::tmux::{Tmux, is_missing};
use testkit::{assert_share, is_root, native, scratch};

/// The script of the terminal: `top`, which Enter continues when Ctrl-Z has stopped it, then whether the terminal has the settings that it had before.
fn script(arguments: &str) -> String {
    let top = binary();
    format!(
        "before=$(stty -g); set -m; {} top {arguments}; code=$?; \
         while [ $code -gt 128 ]; do echo suspended; read go; fg; code=$?; done; \
         echo code $code; [ \"$before\" = \"$(stty -g)\" ] && echo restored; cat",
        top.display()
    )
}

/// The number of samples in the second line; 0 while there is none.
fn samples(screen: &str) -> u64 {
    let line = screen.lines().nth(1).and_then(|line| line.split_once(" samples, none lost"));
    line.and_then(|(number, _)| number.replace(',', "").parse().ok()).unwrap_or(0)
}

/// The first cell of the row that ends with this name, as a share from 0 to 1.
fn share_of(screen: &str, name: &str) -> f64 {
    let row = screen.lines().skip(4).find(|line| line.trim_end().ends_with(&format!(" {name}")));
    let row = row.unwrap_or_else(|| panic!("there is no row of {name}:\n{screen}"));
    row.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 100.0
}

/// Asserts that the shell behind `top` has the terminal as before.
fn assert_restored(terminal: &Tmux) -> String {
    let screen = terminal.wait_for("the shell behind top", |screen| screen.contains("restored"));
    assert_eq!(terminal.value("#{alternate_on} #{cursor_flag}"), "0 1", "{screen}");
    assert!(screen.contains("code 0"), "{screen}");
    screen
}

/// A C program and a Java program with burn10 to burn40 each: what the page shows of each is true.
#[test]
fn the_page_has_the_shares_of_known_programs() {
    if !is_root() || is_missing() {
        return;
    }
    let c = native::start("native");
    let java = Program::new("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let arguments = format!("-p {},{} -F 2999 --window 60s", c.pid(), java.pid());
    let terminal = Tmux::start(&scratch("known"), (120, 40), &script(&arguments));
    terminal.wait_for("some 6,000 samples of each", |screen| {
        samples(screen) > 12_000 && screen.contains("JVMs 1, 1 with names")
    });
    terminal.press(&["Space", "2"]);
    let screen = terminal.wait_for("two processes", |screen| {
        screen.contains("PAUSED") && screen.lines().skip(4).any(|line| line.ends_with(" java"))
    });
    let all = samples(&screen) as f64;
    for (pid, process, prefix) in [(c.pid(), "native", ""), (java.pid(), "java", "Shares.")] {
        let n = (share_of(&terminal.screen(), process) * all) as u64;
        terminal.press(&["/"]);
        terminal.type_text(process);
        terminal.press(&["Enter", "Enter"]);
        let title = format!("process {process} ({pid})");
        let screen = terminal.wait_for(&title, |screen| screen.contains(&title));
        for (function, truth) in [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)] {
            let name = format!("{prefix}{function}");
            // Java's own threads compile and collect beside the main thread.
            let of_burns =
                ["burn10", "burn20", "burn30", "burn40"].map(|f| share_of(&screen, &format!("{prefix}{f}")));
            assert_share(&name, share_of(&screen, &name) / of_burns.iter().sum::<f64>(), truth, n);
            assert!(of_burns.iter().sum::<f64>() > 0.9, "{screen}");
        }
        // A terminal sends Alt and a key as Escape and the key.
        terminal.press(&["Escape"]);
        terminal.wait_for("all processes", |screen| !screen.contains(&title));
        terminal.press(&["2"]);
        terminal
            .wait_for("two processes", |screen| screen.lines().skip(4).any(|line| line.ends_with(" java")));
    }
    terminal.press(&["q"]);
    let screen = assert_restored(&terminal);
    assert!(screen.contains("CPU time: ") && screen.contains(" samples, none lost"), "{screen}");
}

#[test]
fn keys_show_callers_in_any_size() {
    if !is_root() || is_missing() {
        return;
    }
    let c = native::start("native");
    let terminal =
        Tmux::start(&scratch("keys"), (100, 30), &script(&format!("-p {} -e cpu,wait -F 499", c.pid())));
    terminal.wait_for("functions", |screen| screen.contains(" burn40"));
    terminal.type_text("/BURN40");
    terminal
        .wait_for("one function", |screen| screen.contains("filter: burn40_") && !screen.contains("burn30"));
    terminal.press(&["Enter", "Left"]);
    terminal.wait_for("the caller", |screen| screen.contains("← main"));
    terminal.press(&["Right"]);
    terminal.wait_for("the callee", |screen| screen.contains("→ [itself]") && !screen.contains("← main"));
    for (columns, lines) in [(20, 3), (9, 5), (2, 2), (100, 30)] {
        terminal.resize(columns, lines);
        let beginning = "jbpf-prof top".get(..usize::from(columns)).unwrap_or("jbpf-prof top");
        let size = format!("{columns} {lines}");
        terminal.wait_for(&size, |screen| screen.starts_with(beginning));
        assert_eq!(terminal.value("#{window_width} #{window_height} #{alternate_on}"), format!("{size} 1"));
    }
    terminal.press(&["Escape"]);
    terminal.wait_for("all functions", |screen| screen.contains("burn30"));
    terminal.press(&["e"]);
    terminal.wait_for("the event wait", |screen| screen.contains("  waiting time, last "));
    terminal.press(&["C-z"]);
    terminal.wait_for("the shell while top is stopped", |screen| screen.contains("suspended"));
    assert_eq!(terminal.value("#{alternate_on} #{cursor_flag}"), "0 1");
    terminal.press(&["Enter"]);
    terminal.wait_for("the page again", |screen| screen.contains("  waiting time, last "));
    // A signal from elsewhere restores the terminal, too.
    let shell = terminal.value("#{pane_pid}");
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let top: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(top).unwrap(), Signal::TERM).unwrap();
    assert_restored(&terminal);
}

#[test]
fn without_a_terminal_there_is_a_sentence() {
    let output = Command::new(binary()).arg("top").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.starts_with("jbpf-prof: top needs a terminal") && message.lines().count() == 1,
        "{message}"
    );
    assert_eq!(output.stdout, b"");
}
