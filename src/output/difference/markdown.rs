//! The difference as Markdown, for a comment on a pull request or the summary of a job.

use std::io::Write;

use super::format::DiffFormat;
use super::model::Difference;
use super::words;
use crate::compare::{FunctionChange, Side};

pub(super) static FORMAT: DiffFormat =
    DiffFormat { extension: "md", write: |difference, _, out| write(difference, out) };

/// The most functions of a table: a comment is read by people.
const ROWS: usize = 20;

fn write(difference: &Difference<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let comparison = difference.comparison;
    let sign = if comparison.is_changed() { "⚠" } else { "✓" };
    writeln!(out, "### {sign} CPU profile: {}\n", escape(&words::verdict(difference)))?;
    let found: Vec<&FunctionChange> = comparison.findings().collect();
    if !found.is_empty() {
        writeln!(out, "| function | before | after | total | self |")?;
        writeln!(out, "|---|--:|--:|--:|--:|")?;
        for function in found.iter().take(ROWS) {
            let name = code(&difference.name(function));
            let (before, after) =
                (words::percent(function.total.before), words::percent(function.total.after));
            let (total, itself) = (words::short(&function.total), words::short(&function.itself));
            writeln!(out, "| {name} | {before} | {after} | {total} | {itself} |")?;
        }
        if found.len() > ROWS {
            writeln!(out, "\nAnd {} more.", found.len() - ROWS)?;
        }
        writeln!(out, "\nTotal and self are changes in points, with 95 % confidence intervals.")?;
    }
    for warning in words::warnings(difference) {
        writeln!(out, "\n**{}**", escape(&warning))?;
    }
    writeln!(out, "\n<details><summary>What was compared</summary>\n")?;
    for side in [Side::Before, Side::After] {
        writeln!(out, "- {}: {}", side.name(), escape(&words::side(difference, side)))?;
    }
    writeln!(out, "- {}", escape(&words::compared(difference)))?;
    writeln!(out, "- {}\n\n</details>", escape(&words::noise(difference)))?;
    Ok(())
}

/// Text in which no character is markup: names come from programs.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            // A mention would send a message to a person, a number would link an issue.
            '@' => safe.push_str("&#64;"),
            '#' => safe.push_str("&#35;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' | '$' => safe.extend(['\\', c]),
            // An address would become a link.
            ':' if rest.peek() == Some(&'/') => safe.push_str("&#58;"),
            _ => safe.push(c),
        }
    }
    safe
}

/// A name as code in a cell of a table. A code span has no escapes, except that of the cell's own border.
fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::{code, escape};

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escape("<b>a_b</b> @me #1 [x](y)"), "&lt;b&gt;a\\_b&lt;/b&gt; &#64;me &#35;1 \\[x\\](y)");
        assert_eq!(code("a|b`c"), "`a\\|b'c`");
    }
}
