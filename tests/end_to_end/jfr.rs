//! A JFR file as the JDK's own tool reads it: the number of events, the shares of hot methods, threads, and waits.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::folded::{Folded, bare};
use testkit::java::{Jdk, Program};
use testkit::profiler::{lost, run};
use testkit::schema::report_problems;
use testkit::{is_root, scratch};

/// JDKs that read files, without the JRE's of JDK 8, which has another tool.
fn readers() -> Vec<Jdk> {
    let host = [17, 25].into_iter().filter_map(Jdk::on_host);
    host.chain(["11", "21"].into_iter().filter_map(Jdk::in_root)).collect()
}

/// What the tool `jfr` of a JDK prints about the file `x.jfr` of a directory.
fn jfr(jdk: &Jdk, directory: &Path, args: &[&str]) -> String {
    // Some JREs have the tool's module and no launcher for it.
    let tool = ["-m", "jdk.jfr/jdk.jfr.internal.tool.Main"];
    let mut command = match (jdk.home(), jdk.root()) {
        (Some(home), _) => Command::new(home.join("bin/java")),
        (None, root) => {
            let enter = "mount --bind \"$1\" \"$0/tmp\" && mount -t proc proc \"$0/proc\" && shift && exec chroot \"$0\" /usr/bin/java \"$@\"";
            let mut command = Command::new("unshare");
            command.args(["--mount", "--pid", "--fork", "sh", "-c", enter]).args([root.unwrap(), directory]);
            command
        }
    };
    let file = if jdk.is_contained() { Path::new("/tmp/x.jfr").to_owned() } else { directory.join("x.jfr") };
    let output = command.args(tool).args(args).arg(file).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{jdk:?} {args:?}: {stdout}{stderr}");
    stdout
}

#[test]
fn each_jdk_reads_every_sample_of_a_jvm() {
    if !is_root() {
        return;
    }
    let program = Program::new("Shares").dont_inline("Shares::burn*").debug_non_safepoints();
    let target = program.start(&Jdk::host());
    let directory = scratch("jfr");
    let files = ["x.jfr", "x.folded"].map(|name| directory.join(name).to_str().unwrap().to_owned());
    let pid = target.pid().to_string();
    let record = || {
        let args = ["-e", "wall", "--idle", "-F", "499", "-d", "1", "-p", &pid, "--report", "json"];
        let report = run(args.into_iter().chain(["-o", &files[0], "-o", &files[1]])).success().stdout;
        let report: Value = serde_json::from_str(&report).unwrap();
        (report, Folded::parse(&std::fs::read_to_string(&files[1]).unwrap()))
    };
    // On a busy machine a second may have few samples.
    let enough = |(_, folded): &(Value, Folded)| BURNS.iter().all(|method| leaves(folded, method) > 10);
    let (report, folded) = (0..30).map(|_| record()).find(enough).expect("samples of all methods");
    drop(target);
    assert_eq!(report_problems(&report), Vec::<String>::new());
    let (cpu, wait) = (shown(&report), shown(&report["events"][0]));
    assert!(cpu > 50 && cpu == folded.total() && wait > 0, "{cpu} {wait}");

    let readers = readers();
    assert!(!readers.is_empty(), "no JDK here has the tool");
    for jdk in &readers {
        let types = "jdk.ExecutionSample,jbpf.Wait,jbpf.Accounts";
        let printed = jfr(jdk, &directory, &["print", "--stack-depth", "5", "--events", types]);
        for (event, right) in [("jdk.ExecutionSample", cpu), ("jbpf.Wait", wait), ("jbpf.Accounts", 2)] {
            assert_eq!(printed.matches(&format!("{event} {{")).count() as u64, right, "{event}");
        }
        assert_printed(&printed, &folded);
        let reasons = printed.matches("  reason = \"").count() as u64;
        assert!(
            reasons == wait && printed.contains("  state = \"sleeping\""),
            "{reasons} of {wait}: {printed}"
        );
    }
    if let Some(newest) = readers.iter().filter(|jdk| jdk.version >= 21).max_by_key(|jdk| jdk.version) {
        let view = jfr(newest, &directory, &["view", "--width", "160", "hot-methods"]);
        assert_hot(&view, &folded);
        let summary = jfr(newest, &directory, &["summary"]);
        assert_eq!(count(&summary, "jdk.ExecutionSample"), cpu, "{summary}");
        assert_eq!(count(&summary, "jbpf.Wait"), wait, "{summary}");
    }
}

/// Kept and lost samples of an event.
fn shown(report: &Value) -> u64 {
    report["accounts"]["kept"].as_u64().unwrap() + lost(report)
}

/// The number of events of a type in the tool's summary.
fn count(summary: &str, of: &str) -> u64 {
    let row = summary.lines().find(|line| line.split_whitespace().next() == Some(of));
    row.and_then(|row| row.split_whitespace().nth(1)).expect(summary).parse().unwrap()
}

/// The methods of the program that burn CPU time.
const BURNS: [&str; 4] = ["burn10", "burn20", "burn30", "burn40"];

fn leaves(folded: &Folded, method: &str) -> u64 {
    let name = format!("Shares.{method}");
    folded
        .stacks()
        .filter(|(stack, _)| stack.last().is_some_and(|leaf| bare(leaf) == name))
        .map(|(_, n)| n)
        .sum()
}

/// Asserts that printed events have the folded stacks' leaves, with lines of the source, callers and threads.
#[track_caller]
fn assert_printed(printed: &str, folded: &Folded) {
    let leaf =
        |event: &str| event.split_once("stackTrace = [").map(|(_, frames)| frames.trim_start().to_owned());
    let events = printed.split("\n}\n").filter(|event| event.contains("jdk.ExecutionSample {"));
    let stacks: Vec<String> = events.filter_map(leaf).collect();
    for method in BURNS {
        let with_line = format!("Shares.{method}() line: ");
        let found = stacks.iter().filter(|frames| frames.starts_with(&with_line)).count() as u64;
        let right = leaves(folded, method);
        assert!(found == right && right > 0, "{method}: {found}, and {right} are right");
    }
    let called = stacks.iter().filter(|frames| {
        let mut frames = frames.lines().map(str::trim);
        frames.any(|frame| frame.starts_with("Shares.burn40()"))
            && frames.next().is_some_and(|frame| frame.starts_with("Shares.round()"))
    });
    assert!(called.count() as u64 >= leaves(folded, "burn40"));
    assert!(
        printed.contains("sampledThread = \"main\"") || printed.contains("sampledThread = \"java\""),
        "{printed}"
    );
    assert!(printed.contains("state = \"STATE_RUNNABLE\""));
}

/// Asserts that the tool's view has the four methods with their samples, the largest first.
#[track_caller]
fn assert_hot(view: &str, folded: &Folded) {
    let rows: Vec<Vec<&str>> = view.lines().map(|line| line.split_whitespace().collect()).collect();
    for method in BURNS {
        let name = format!("Shares.{method}()");
        let row = rows.iter().find(|row| row.first() == Some(&name.as_str()));
        let row = row.unwrap_or_else(|| panic!("no row of {name}: {view}"));
        assert_eq!(row[1].replace(',', "").parse::<u64>().unwrap(), leaves(folded, method), "{view}");
        let share: f64 = row[2].trim_end_matches('%').replace(',', ".").parse().unwrap();
        let right = 100.0 * leaves(folded, method) as f64 / folded.total() as f64;
        assert!((share - right).abs() < 0.02, "{share} and {right}: {view}");
    }
}
