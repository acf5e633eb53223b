//! The report as text: what an engineer reads first.

use super::detail::Detail;
use super::sections;
use crate::profile::{Profile, RunReport};

/// The report as lines of text, plain, each no longer than asked for (but for the narrowest of terminals), with a newline
/// after each.
#[must_use]
pub fn text(report: &RunReport, profile: &Profile, detail: Detail) -> String {
    let width = detail.width.clamp(60, 400);
    let detail = Detail { width, ..detail };
    let parts = [
        sections::head(report, width),
        sections::warnings(report, width),
        sections::ticks(report),
        sections::stacks(report, detail),
        sections::limits(report, detail),
        sections::jvms(report, width),
        sections::groups(report, width),
        sections::containers(profile, detail),
        sections::processes(profile, detail),
        sections::functions(profile, detail),
        if detail.lines { sections::lines(profile, detail) } else { Vec::new() },
        sections::stripped(profile, Detail { rows: detail.rows / 2, ..detail }),
        sections::cost(report, width),
        sections::outputs(report),
    ];
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
