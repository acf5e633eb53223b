//! `jbpf-prof top` in a terminal: the shares of known programs, its keys, and the terminal as it was before.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testkit::java::{Jdk, Program};
use testkit::profiler::binary;
use testkit::tmux::{Tmux, is_missing};
use testkit::wald::{Claim, Verdict};
use testkit::{is_root, native, scratch};

/// The script of the terminal: `top`, which Enter continues when Ctrl-Z has stopped it, then whether the terminal has
/// the settings that it had before.
fn script(arguments: &str) -> String {
    let top = binary();
    format!(
        "before=$(stty -g); set -m; {} top {arguments}; code=$?; \
         while [ $code -gt 128 ]; do echo suspended; read go; fg; code=$?; done; \
         echo code $code; [ \"$before\" = \"$(stty -g)\" ] && echo restored; cat",
        top.display()
    )
}

/// The shares of both programs.
const BURNS: [(&str, f64); 4] = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];
/// Samples that the first look at the shares needs, and each further one: a few thousand decide.
const FIRST_LOOK: u64 = 12_000;
const NEXT_LOOK: u64 = 4_000;
/// Looks after which a test fails that is still undecided.
const MOST_LOOKS: u32 = 60;

/// A number with commas at the beginning of a text; 0 if there is none.
fn number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().unwrap_or(0)
}

/// The numbers of samples in the second line: of the window, and since the start; 0 while there are none.
fn samples(screen: &str) -> (u64, u64) {
    let line = screen.lines().nth(1).unwrap_or_default();
    let since_start = line.split_once("since the start ").map_or(0, |(_, rest)| number(rest));
    (if line.contains(" samples, ") { number(line) } else { 0 }, since_start)
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

/// A program with burn10 to burn40, and how the page names it.
struct Burning {
    pid: u32,
    process: &'static str,
    prefix: &'static str,
}

impl Burning {
    /// Opens the program's functions on a page that stands still and has `all` samples. Asserts that the shares are
    /// not refused; returns whether all are accepted.
    fn is_right(&self, terminal: &Tmux, all: u64) -> bool {
        let own = share_of(&terminal.screen(), self.process) * all as f64;
        terminal.press(&["/"]);
        terminal.type_text(self.process);
        terminal.press(&["Enter", "Enter"]);
        let title = format!("process {} ({})", self.process, self.pid);
        let screen = terminal.wait_for(&title, |screen| screen.contains(&title));
        let samples =
            BURNS.map(|(name, _)| (share_of(&screen, &format!("{}{name}", self.prefix)) * own) as u64);
        let burning: u64 = samples.iter().sum();
        // Java's own threads compile and collect beside the main thread.
        let mut verdicts = vec![Claim::AtLeast(0.9).judge(burning, burning.max(own as u64))];
        verdicts.extend(BURNS.iter().zip(samples).map(|((_, truth), n)| Claim::Is(*truth).judge(n, burning)));
        assert!(!verdicts.contains(&Verdict::Wrong), "{verdicts:?} of {own} samples:\n{screen}");
        // A terminal sends Alt and a key as Escape and the key.
        terminal.press(&["Escape"]);
        terminal.wait_for("all processes", |screen| !screen.contains(&title));
        terminal.press(&["2"]);
        terminal.wait_for("two processes", has_java);
        verdicts.iter().all(|verdict| *verdict == Verdict::Right)
    }
}

fn has_java(screen: &str) -> bool {
    screen.lines().skip(4).any(|line| line.ends_with(" java"))
}

/// A C program and a Java program with burn10 to burn40 each: what the page shows of each is true.
#[test]
fn the_page_has_the_shares_of_known_programs() {
    if !is_root() || is_missing() {
        return;
    }
    let c = native::start("native");
    let java = Program::new("Shares").dont_inline("Shares::burn*").start(&Jdk::host());
    let programs = [
        Burning { pid: c.pid(), process: "native", prefix: "" },
        Burning { pid: java.pid(), process: "java", prefix: "Shares." },
    ];
    let arguments = format!("-p {},{} -F 2999 --window 60s", c.pid(), java.pid());
    let terminal = Tmux::start(&scratch("known"), (120, 40), &script(&arguments));
    let mut wanted = FIRST_LOOK;
    for look in 0.. {
        assert!(look < MOST_LOOKS, "undecided:\n{}", terminal.screen());
        terminal.wait_for("enough samples", |screen| {
            samples(screen).1 > wanted && screen.contains("JVMs 1, 1 with names")
        });
        terminal.press(&["Space", "2"]);
        let screen =
            terminal.wait_for("two processes", |screen| screen.contains("PAUSED") && has_java(screen));
        let (all, since_start) = samples(&screen);
        // Each look asserts all shares.
        let right = programs.iter().filter(|program| program.is_right(&terminal, all)).count();
        if right == programs.len() {
            break;
        }
        terminal.press(&["Space"]);
        wanted = since_start + NEXT_LOOK;
    }
    terminal.press(&["q"]);
    let screen = assert_restored(&terminal);
    let account = screen.lines().find_map(|line| line.split_once("CPU time: ")?.1.split_once(" samples, "));
    let (kept, lost) = account.unwrap_or_else(|| panic!("{screen}"));
    // "none lost", or their number on a busy machine.
    assert!(number(kept) > FIRST_LOOK && number(lost) * 100 <= number(kept), "{screen}");
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
