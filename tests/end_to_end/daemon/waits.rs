//! Waiting time in the daemon: in each window, also of threads whose wait does not end.

use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::process::Signal;
use testkit::claims::{at_least, prove, seen};
use testkit::folded::Folded;
use testkit::target::Target;
use testkit::{is_root, native};

use super::home;
use super::run::{Daemon, ask_api};

/// The daemon's rate, samples a second.
const HZ: f64 = 99.0;

/// A program of the host under a process name of its own: other processes sleep, too.
struct Waiting {
    name: String,
    _target: Target,
}

impl Waiting {
    fn start(program: &str, arguments: &[&str]) -> Waiting {
        let link = native::under_own_name(Path::new(program), "waits");
        let name = link.file_name().unwrap().to_str().unwrap().to_owned();
        Waiting { name, _target: Target::spawn(Command::new(link).args(arguments)) }
    }
}

fn is_of(stack: &[String], process: &str) -> bool {
    stack[0] == process
}

fn ends_with(stack: &[String], leaf: &str) -> bool {
    stack.last().unwrap() == leaf
}

#[test]
fn a_thread_that_waits_for_ever_is_in_each_window() {
    if !is_root() {
        return;
    }
    let sleeper = Waiting::start("/bin/sleep", &["100000"]);
    // A shell that waits for its children, which wait for the timer.
    let waiter = Waiting::start("/bin/sh", &["-c", "while :; do /bin/sleep 0.05; done"]);
    let settings = "events = [\"wall\"]\nwakers = true\nconcurrent-profiles = 8";
    let mut daemon = Daemon::start(&home("waits"), settings);
    daemon.wait_for_windows(4);
    let (sleeps, waits) = (sleeper.name.as_str(), waiter.name.as_str());
    assert_is_in_each_window(&daemon, sleeps);

    // Each of these requests takes a second or more.
    let (socket, busy) = (daemon.api_socket(), daemon.busy().name().to_owned());
    let profile =
        |query: &str| ask_api(&socket, &format!("/profile?seconds=1&format=folded&{query}")).stacks();
    let is_busy = |stack: &[String]| is_of(stack, &busy);
    thread::scope(|scope| {
        scope.spawn(|| assert_waits(&profile, sleeps, waits, &busy));
        scope.spawn(|| {
            let claims = [seen(100, "sleeping samples", |stack| is_of(stack, sleeps))];
            let sleeping = prove(|| profile("reason=time*").without_wakers(), &claims);
            let others = sleeping.keep(|stack| !ends_with(stack, "[wait: timer]"));
            assert_eq!(others.total(), 0, "{}", others.top(9));
        });
        scope.spawn(|| {
            let running = prove(|| profile("state=running"), &[seen(21, "running samples", is_busy)]);
            assert_eq!(running.count(|stack| is_of(stack, sleeps)), 0, "{}", running.top(9));
        });
        scope.spawn(|| prove(|| profile("event=cpu"), &[seen(21, "samples of CPU time", is_busy)]));
        scope.spawn(|| {
            let absent = ask_api(&socket, "/profile?seconds=1&event=page-faults");
            assert_eq!(absent.status, 404);
        });
    });
    for query in ["event=x", "state=x", "reason=x"] {
        assert_eq!(daemon.api(&format!("/profile?seconds=1&{query}")).status, 400, "{query}");
    }
    assert!(daemon.metrics().contains("event_samples_total{event=\"wait\",result=\"kept\"}"));
    assert_eq!(daemon.end(Signal::TERM), Some(0), "{}", daemon.said());
}

/// The thread waits all the time of each window. A window's end may be late, and then the next window has less.
fn assert_is_in_each_window(daemon: &Daemon, sleeper: &str) {
    let (mut periods, mut samples) = (0.0, 0);
    // The wait began before the first window.
    for window in &daemon.listed()[1..] {
        let [from, to] = ["from", "to"].map(|end| window[end].as_f64().unwrap());
        let query = format!("from={}&to={}&event=wait&process={}", from + 0.001, to - 0.001, sleeper);
        let own = daemon.stored(&query);
        assert!(own.total() > 0, "a window without the thread");
        assert_eq!(own.count(|stack| !ends_with(stack, "[wait: timer]")), 0, "{}", own.top(9));
        periods += HZ * (to - from);
        samples += own.total();
    }
    let right = 0.5 * periods..=1.5 * periods;
    assert!(right.contains(&(samples as f64)), "{samples} samples in {periods} periods");
}

/// The waits of both programs, in profiles of now.
fn assert_waits(profile: &impl Fn(&str) -> Folded, sleeper: &str, waiter: &str, busy: &str) {
    let of_children =
        |stack: &[String]| is_of(stack, waiter) && stack.iter().any(|frame| frame == "[wait: child process]");
    let ended = |stack: &[String]| of_children(stack) && stack.iter().any(|frame| frame == "--");
    let claims = [
        seen(100, "waits of the sleeper", |stack| is_of(stack, sleeper)),
        seen(201, "waits for a child that have ended", ended),
        at_least(0.95, "waits that the child ended", |stack| ends_with(stack, "sleep_[w]")).among(ended),
    ];
    let waits = prove(|| profile("event=wait"), &claims);
    let otherwise = waits.keep(|stack| is_of(stack, sleeper) && !ends_with(stack, "[wait: timer]"));
    assert_eq!(otherwise.total(), 0, "{}", otherwise.top(9));
    let idle = |stack: &[String]| is_of(stack, busy) && stack.last().unwrap().starts_with("[idle");
    assert_eq!(waits.count(idle), 0);
}
