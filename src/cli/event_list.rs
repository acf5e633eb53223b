//! `jbpf-prof events`: what this host counts and traces.

use crate::capture::perf_event::is_counted;
use crate::host::tracefs;
use crate::profile::filter::Glob;
use crate::sample::Event;
use crate::sample::counter::{CounterClass, NamedCounter};
use crate::sample::probe::Probe;

/// Columns of names before a description.
const NAME_WIDTH: usize = 24;

/// A heading with its events.
struct Class {
    heading: &'static str,
    rows: Vec<Row>,
    /// What stands there if this host has no such event.
    none: &'static str,
}

struct Row {
    name: String,
    about: String,
}

impl Row {
    fn new(name: impl Into<String>, about: impl Into<String>) -> Row {
        Row { name: name.into(), about: about.into() }
    }
}

/// The events whose name or description matches: all without a pattern. A pattern without `*` matches a part.
#[must_use]
pub fn text(pattern: Option<&str>) -> String {
    let tracepoints = tracefs::tracepoints();
    let unread = tracepoints.as_ref().err().map(|error| {
        format!("the list of tracepoints in tracefs cannot be read ({error}): run as root to see them\n")
    });
    layout(&classes(tracepoints.unwrap_or_default()), pattern) + &unread.unwrap_or_default()
}

fn classes(tracepoints: Vec<String>) -> Vec<Class> {
    let counters = |wanted: fn(CounterClass) -> bool| -> Vec<Row> {
        let of_class = NamedCounter::all().filter(|one| wanted(one.counter.class));
        let counted = of_class.filter(|one| Event::parse(&one.name).is_ok_and(is_counted));
        counted.map(|one| Row::new(one.name, one.alias.unwrap_or_default())).collect()
    };
    let software = [
        Row::new("page-faults", "faults"),
        Row::new("minor-faults", "without disk reads"),
        Row::new("major-faults", "with disk reads"),
        Row::new("context-switches", "cs"),
    ];
    let time = [
        Row::new("cpu", "time on a CPU (cpu-clock, task-clock)"),
        Row::new("wait", "time without a CPU (off-cpu)"),
        Row::new("wall", "cpu and wait"),
    ];
    let probes = [
        Row::new("uprobe:FILE:SYMBOL", "calls of a function of a program or library"),
        Row::new("usdt:FILE:PROVIDER:NAME", "a static marker of a program or library"),
        Row::new("kprobe:FUNCTION", "calls of a function of the kernel"),
    ];
    let can_be_sampled = |name: &String| Probe::parse(name).is_ok_and(|probe| probe.is_some());
    let tracepoints = tracepoints.into_iter().filter(can_be_sampled).map(|name| Row::new(name, ""));
    let kernel = software.into_iter().chain(counters(|class| class == CounterClass::Software)).collect();
    let hardware = counters(|class| class != CounterClass::Software);
    vec![
        Class { heading: "Time", rows: time.into(), none: "" },
        Class { heading: "Counted by the kernel", rows: kernel, none: "" },
        Class {
            heading: "Counted by the processor",
            rows: hardware,
            none: "none: neither the processor nor the virtual machine counts any; use cpu",
        },
        Class { heading: "Probes", rows: probes.into(), none: "" },
        Class { heading: "Tracepoints", rows: tracepoints.collect(), none: "none" },
    ]
}

fn layout(classes: &[Class], pattern: Option<&str>) -> String {
    let part = |text: &str| if text.contains('*') { text.to_owned() } else { format!("*{text}*") };
    let glob = pattern.map(|text| Glob::new(&part(text)));
    let is_wanted = |text: &str| glob.as_ref().is_none_or(|glob| glob.matches(text));
    let mut parts = Vec::new();
    for Class { heading, rows, none } in classes {
        let wanted = rows.iter().filter(|row| is_wanted(&row.name) || is_wanted(&row.about));
        let mut lines: Vec<String> = wanted
            .map(|Row { name, about }| format!("  {name:<NAME_WIDTH$} {about}").trim_end().to_owned())
            .collect();
        if rows.is_empty() && pattern.is_none() {
            lines.push(format!("  {none}"));
        }
        if !lines.is_empty() {
            parts.push(format!("{heading}\n{}\n", lines.join("\n")));
        }
    }
    match pattern {
        Some(pattern) if parts.is_empty() => format!("no event of this host matches {pattern}\n"),
        _ => parts.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_can_be_sampled() {
        let tracepoints = ["block:block_rq_issue", "lock:contention_end", "syscalls:sys_enter_openat"];
        let classes = classes(tracepoints.map(str::to_owned).to_vec());
        let all = layout(&classes, None);
        for name in
            ["cpu ", "cpu-migrations", "block:block_rq_issue", "syscalls:sys_enter_openat", "usdt:FILE"]
        {
            assert!(all.contains(&format!("\n  {name}")), "{name}: {all}");
        }
        assert!(!all.contains("lock:contention_end"), "{all}");
        for Row { name, .. } in classes.iter().flat_map(|class| &class.rows) {
            let name = name.replace("FILE", "/lib/file");
            assert!(Event::all_named(&name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_pattern_selects() {
        let classes = classes(vec!["block:block_rq_issue".to_owned(), "net:net_dev_xmit".to_owned()]);
        let list = |pattern: &str| layout(&classes, Some(pattern));
        assert_eq!(list("block:*"), "Tracepoints\n  block:block_rq_issue\n");
        assert_eq!(list("net_dev"), "Tracepoints\n  net:net_dev_xmit\n");
        assert!(list("off-cpu").starts_with("Time\n  wait "));
        assert_eq!(list("no such"), "no event of this host matches no such\n");
    }
}
