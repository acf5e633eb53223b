//! `jbpf-prof events`: what this host counts and traces.

use anyhow::Context as _;
use serde::Serialize;

use crate::capture::perf_event::is_counted;
use crate::host::tracefs;
use crate::profile::filter::Glob;
use crate::sample::Event;
use crate::sample::counter::{CounterClass, NamedCounter};
use crate::sample::probe::Probe;

/// Columns of names before a description.
const NAME_WIDTH: usize = 24;

/// The version of the JSON form. A field may be added without a new version.
const JSON_VERSION: u32 = 1;

/// How the list is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ListForm {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object, for programs.
    Json,
}

/// A heading with its events.
struct EventClass {
    /// The name in JSON.
    name: &'static str,
    heading: &'static str,
    rows: Vec<EventListRow>,
    /// What stands there if this host has no such event.
    none: &'static str,
}

struct EventListRow {
    name: String,
    about: String,
}

impl EventListRow {
    fn new(name: impl Into<String>, about: impl Into<String>) -> EventListRow {
        EventListRow { name: name.into(), about: about.into() }
    }
}

/// The JSON form of the list.
#[derive(Serialize)]
struct JsonList<'a> {
    version: u32,
    events: Vec<JsonEvent<'a>>,
    /// What could not be listed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

#[derive(Serialize)]
struct JsonEvent<'a> {
    name: &'a str,
    class: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    about: &'a str,
}

/// The events whose name or description matches: all without a pattern. A pattern without `*` matches a part.
///
/// # Errors
/// The list cannot be written as JSON.
pub fn list(pattern: Option<&str>, form: ListForm) -> anyhow::Result<String> {
    let tracepoints = tracefs::tracepoints();
    let warning = tracepoints.as_ref().err().map(|error| {
        format!("the list of tracepoints in tracefs cannot be read ({error}): run as root to see them")
    });
    let classes = classes(tracepoints.unwrap_or_default());
    match form {
        ListForm::Text => {
            Ok(layout(&classes, pattern) + &warning.map(|line| line + "\n").unwrap_or_default())
        }
        ListForm::Json => json(&classes, pattern, warning),
    }
}

fn json(classes: &[EventClass], pattern: Option<&str>, warning: Option<String>) -> anyhow::Result<String> {
    let pattern = EventPattern::new(pattern);
    let events = classes.iter().flat_map(|class| {
        let rows = class.rows.iter().filter(|row| pattern.matches(row));
        rows.map(|row| JsonEvent { name: &row.name, class: class.name, about: &row.about })
    });
    let list = JsonList { version: JSON_VERSION, events: events.collect(), warning };
    Ok(serde_json::to_string_pretty(&list).context("writing JSON")? + "\n")
}

/// Which events are listed.
struct EventPattern(Option<Glob>);

impl EventPattern {
    fn new(text: Option<&str>) -> EventPattern {
        let part = |text: &str| if text.contains('*') { text.to_owned() } else { format!("*{text}*") };
        EventPattern(text.map(|text| Glob::new(&part(text))))
    }

    fn matches(&self, EventListRow { name, about }: &EventListRow) -> bool {
        self.0.as_ref().is_none_or(|glob| glob.matches(name) || glob.matches(about))
    }
}

fn classes(tracepoints: Vec<String>) -> Vec<EventClass> {
    let counters = |wanted: fn(CounterClass) -> bool| -> Vec<EventListRow> {
        let of_class = NamedCounter::all().filter(|one| wanted(one.counter.class));
        let counted = of_class.filter(|one| Event::parse(&one.name).is_ok_and(is_counted));
        counted.map(|one| EventListRow::new(one.name, one.alias.unwrap_or_default())).collect()
    };
    let software = [
        EventListRow::new("page-faults", "faults"),
        EventListRow::new("minor-faults", "without disk reads"),
        EventListRow::new("major-faults", "with disk reads"),
        EventListRow::new("context-switches", "cs"),
    ];
    let time = [
        EventListRow::new("cpu", "time on a CPU (cpu-clock, task-clock)"),
        EventListRow::new("wait", "time without a CPU (off-cpu)"),
        EventListRow::new("wall", "cpu and wait"),
    ];
    let memory = [
        EventListRow::new("alloc", "bytes that Java code allocates"),
        EventListRow::new("native-alloc", "bytes that native code allocates (malloc), of chosen processes"),
        EventListRow::new("rss", "growth of resident memory, in bytes"),
    ];
    let probes = [
        EventListRow::new("uprobe:FILE:SYMBOL", "calls of a function of a program or library"),
        EventListRow::new("usdt:FILE:PROVIDER:NAME", "a static marker of a program or library"),
        EventListRow::new("kprobe:FUNCTION", "calls of a function of the kernel"),
    ];
    let can_be_sampled = |name: &String| Probe::parse(name).is_ok_and(|probe| probe.is_some());
    let tracepoints = tracepoints.into_iter().filter(can_be_sampled).map(|name| EventListRow::new(name, ""));
    let kernel = software.into_iter().chain(counters(|class| class == CounterClass::Software)).collect();
    let hardware = counters(|class| class != CounterClass::Software);
    vec![
        EventClass { name: "time", heading: "Time", rows: time.into(), none: "" },
        EventClass { name: "memory", heading: "Memory", rows: memory.into(), none: "" },
        EventClass { name: "kernel", heading: "Counted by the kernel", rows: kernel, none: "" },
        EventClass {
            name: "processor",
            heading: "Counted by the processor",
            rows: hardware,
            none: "none: neither the processor nor the virtual machine counts any; use cpu",
        },
        EventClass { name: "probe", heading: "Probes", rows: probes.into(), none: "" },
        EventClass { name: "tracepoint", heading: "Tracepoints", rows: tracepoints.collect(), none: "none" },
    ]
}

fn layout(classes: &[EventClass], pattern: Option<&str>) -> String {
    let wanted = EventPattern::new(pattern);
    let mut parts = Vec::new();
    for EventClass { heading, rows, none, .. } in classes {
        let wanted = rows.iter().filter(|row| wanted.matches(row));
        let mut lines: Vec<String> = wanted
            .map(|EventListRow { name, about }| {
                format!("  {name:<NAME_WIDTH$} {about}").trim_end().to_owned()
            })
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
        for name in [
            "cpu ",
            "cpu-migrations",
            "native-alloc ",
            "block:block_rq_issue",
            "syscalls:sys_enter_openat",
            "usdt:FILE",
        ] {
            assert!(all.contains(&format!("\n  {name}")), "{name}: {all}");
        }
        assert!(!all.contains("lock:contention_end"), "{all}");
        for EventListRow { name, .. } in classes.iter().flat_map(|class| &class.rows) {
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

    #[test]
    fn programs_read_the_same_list() {
        let classes = classes(vec!["block:block_rq_issue".to_owned()]);
        let list = |pattern, warning: Option<&str>| -> serde_json::Value {
            serde_json::from_str(&json(&classes, pattern, warning.map(str::to_owned)).unwrap()).unwrap()
        };
        let block = serde_json::json!({
            "version": 1,
            "events": [{ "name": "block:block_rq_issue", "class": "tracepoint" }],
        });
        assert_eq!(list(Some("block:*"), None), block);
        let all = list(None, Some("not read"));
        let rows = classes.iter().map(|class| class.rows.len()).sum();
        assert_eq!(all["events"].as_array().map(Vec::len), Some(rows));
        assert_eq!(
            (&all["warning"], &list(Some("no such"), None)["events"]),
            (&"not read".into(), &serde_json::json!([]))
        );
    }
}
