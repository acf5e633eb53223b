//! Waiting time of threads that come, go and change while they wait, and of more threads than there is room for: no
//! wait is lost, or its loss is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testkit::profiler::{Profile, while_sampling};
use testkit::target::Target;
use testkit::{is_root, native, scratch, skip};

const FLAGS: [&str; 2] = ["-fno-omit-frame-pointer", "-pthread"];

/// Starts a program that begins when the file exists, with a further argument.
fn start(name: &str, argument: &str) -> (Target, PathBuf) {
    let program = native::with_flags(&format!("{name}.c"), name, &FLAGS);
    let go = scratch("wait-faults").join(format!("go-{name}"));
    let _ = fs::remove_file(&go);
    (Target::start(Command::new(program).arg(&go).arg(argument)), go)
}

/// The function of `upheaval` in which another thread waits than the one that measures. The measuring thread reads the clock
/// before that wait begins, and when it is to end. The other thread may wait for a CPU before and after.
const MEASURED_BY_ANOTHER: &str = "wait_beside_exec";
/// The function in which threads are killed. They cannot read a clock at their end.
const KILLED: &str = "wait_for_end";

/// What the program measured in a function, and what the profiles have, ns.
#[derive(Debug, Default)]
struct InFunction {
    measured: f64,
    sampled: f64,
    /// In queues for a CPU: in the function, and outside of all such functions of the threads that were in it.
    queued_within: f64,
    queued_outside: f64,
}

impl InFunction {
    fn add(&mut self, measured: f64, profile: &Profile, function: &str) {
        let period = profile.account("period_ns") as f64;
        let within = profile.folded.within(function);
        let threads: BTreeSet<&str> = within.stacks().map(|(stack, _)| stack[1].as_str()).collect();
        let is_queued = |stack: &[String]| stack.last().is_some_and(|leaf| leaf == "[runnable]");
        let is_outside = |stack: &[String]| {
            stack.get(1).is_some_and(|thread| threads.contains(thread.as_str()))
                && !stack.iter().any(|frame| frame.starts_with("nap_") || frame.starts_with("wait_"))
        };
        let outside = profile.folded.count(|stack| is_queued(stack) && is_outside(stack));
        self.measured += measured;
        self.sampled += within.total() as f64 * period;
        self.queued_within += within.count(is_queued) as f64 * period;
        self.queued_outside += outside as f64 * period;
    }

    /// Each thread has a timeline of its own, of three blocks or more: chance decides on the last one. The limit is
    /// more than ten standard deviations. The program's clocks are read a moment outside of each wait.
    fn assert_right(&self, function: &str, period: f64, late: f64) {
        let InFunction { measured, sampled, .. } = *self;
        let limit = 0.03 * measured + 4.0 * (measured * period).sqrt();
        let [less, more] = match function {
            MEASURED_BY_ANOTHER => [self.queued_outside, self.queued_within],
            KILLED => [0.0, late],
            _ => [0.0; 2],
        };
        let right = measured - limit - less..=measured + limit + more;
        assert!(right.contains(&sampled), "{function}: {self:?}, {right:?} is right");
    }
}

/// The program `upheaval`, profiled some times.
#[derive(Debug, Default)]
struct Storm {
    functions: BTreeMap<String, InFunction>,
    children: f64,
    /// By how much the wait of killed threads may be longer than measured, ns.
    late: f64,
    period: f64,
}

impl Storm {
    /// Profiles the program once more.
    fn profile(&mut self) {
        let (mut target, go) = start("upheaval", "3000");
        let pid = target.pid().to_string();
        let args = ["-p", &pid, "--children", "-e", "wait", "--per-thread"];
        let profile = while_sampling(&[], &args, || {
            fs::write(&go, "").unwrap();
            target.wait_for(|line| line == "over");
        });
        let accounts = &profile.report["accounts"];
        assert_eq!(accounts["lost"], serde_json::json!([]), "{accounts}");
        assert_eq!(profile.report["waits"]["untimed"], 0);
        assert_eq!(profile.account("kept") + profile.account("filtered"), profile.account("ticks"));
        self.period = profile.account("period_ns") as f64;
        let lines = target.lines();
        if lines.iter().any(|line| line == "without reused") {
            skip("this host lets no program choose a tid");
        }
        for (name, number) in lines.iter().filter_map(|line| line.split_once(' ')) {
            let Ok(number) = number.parse::<f64>() else { continue };
            match name {
                "children" => self.children += number,
                "late" => self.late += number,
                function => {
                    self.functions.entry(function.to_owned()).or_default().add(number, &profile, function);
                }
            }
        }
    }

    /// Whether there were many children, and each function waited for some time.
    fn is_one(&self) -> bool {
        self.children > 300.0 && self.functions.values().all(|function| function.measured > 2e8)
    }
}

#[test]
fn waits_of_threads_that_come_go_and_change_are_whole() {
    if !is_root() {
        return;
    }
    let mut storm = Storm::default();
    for _ in 0..10 {
        storm.profile();
        if storm.is_one() {
            break;
        }
    }
    assert!(storm.is_one() && storm.functions.len() >= 6, "{storm:#?}");
    for (function, sums) in &storm.functions {
        sums.assert_right(function, storm.period, storm.late);
    }
}

/// These thousands of threads fill the tables of each profiler that samples all waits of the machine meanwhile.
mod alone {
    use std::fs;
    use std::time::Duration;

    use testkit::profiler::{lost, while_sampling};
    use testkit::{is_root, skip};

    /// More threads than the table of waits holds: what is not measured is counted, and the report says so.
    #[test]
    fn waits_without_room_are_counted() {
        if !is_root() {
            return;
        }
        /// The smallest table has 16,384 entries, and this host has fewer than 8,192 threads when sampling begins.
        const CROWD: u64 = 17_500;
        let (mut target, go) = super::start("crowd", &CROWD.to_string());
        let pid = target.pid().to_string();
        let mut crowd = 0;
        let profile = while_sampling(&[], &["-p", &pid, "-e", "wait"], || {
            fs::write(&go, "").unwrap();
            let line = target.wait_for(|line| line.starts_with("crowd "));
            crowd = line["crowd ".len()..].parse().unwrap();
            std::thread::sleep(Duration::from_secs(1));
        });
        if crowd < CROWD {
            return skip(&format!("this host allows only {crowd} threads"));
        }
        let untimed = profile.report["waits"]["untimed"].as_u64().unwrap();
        // Those without room wait for their first CPU, and then sleep twice a second.
        assert!(untimed > CROWD - 16_384, "{untimed}");
        let limits = profile.report["limits"].to_string();
        assert!(limits.contains("wait-threads"), "{limits}");
        // Each waiting thread is a stack of its own at the end, so that stacks may be lost too. They are a line of the
        // profile.
        let (kept, lost) = (profile.account("kept"), lost(&profile.report));
        assert_eq!(kept + lost, profile.folded.total());
        assert!(kept > 0 && target.is_alive());
        assert_eq!(kept + profile.account("filtered") + lost, profile.account("ticks"));
    }
}
