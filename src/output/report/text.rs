//! The report as text for the terminal.

use super::detail::Detail;
use super::{allocations, event, sections, waits};
use crate::profile::{Profile, ProfileView, RunReport};

/// The report as lines of plain text, with a newline after each. Tables and sentences fit into `detail.width`
/// characters (at least 60, at most 400).
#[must_use]
pub fn text(report: &RunReport, profile: &Profile, detail: Detail) -> String {
    let width = detail.width.clamp(60, 400);
    let detail = Detail { width, ..detail };
    let first = profile.of_event(report.first.event);
    let is_one = report.others.is_empty();
    let mut parts = vec![
        sections::head(report, width),
        sections::warnings(report, width),
        event::title(&report.first, is_one),
        event::samples(report, &report.first, &first, width),
        waits::waits(&report.first, detail),
        allocations::allocations(&report.first, &first, detail),
        event::stacks(&report.first, detail),
        event::traces(&report.first),
        sections::limits(report, detail),
        sections::jvms(report, &first, width),
        sections::groups(report, width),
    ];
    parts.extend(tables(&first, detail));
    for of in &report.others {
        let view = profile.of_event(of.event);
        parts.push(event::title(of, is_one));
        parts.push(event::samples(report, of, &view, width));
        parts.push(waits::waits(of, detail));
        parts.push(allocations::allocations(of, &view, detail));
        parts.push(event::stacks(of, detail));
        parts.push(event::traces(of));
        parts.extend(tables(&view, detail));
    }
    parts.extend([sections::cost(report, width), sections::outputs(report)]);
    let mut text = String::new();
    for part in parts.iter().filter(|p| !p.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        for line in part {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The tables of an event's samples by container, process, function, line and file.
fn tables(view: &ProfileView<'_>, detail: Detail) -> [Vec<String>; 5] {
    [
        sections::containers(view, detail),
        sections::processes(view, detail),
        sections::functions(view, detail),
        if detail.lines { sections::lines(view, detail) } else { Vec::new() },
        sections::stripped(view, Detail { rows: detail.rows / 2, ..detail }),
    ]
}
