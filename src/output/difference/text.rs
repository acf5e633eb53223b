//! The difference for the terminal.

use super::model::Difference;
use super::words;
use crate::compare::{FunctionChange, Side};
use crate::output::report::{ColumnAlignment, table, thousands, wrap};

/// The most functions of a table.
const ROWS: usize = 40;

/// Functions to show if nothing changed.
const UNCHANGED_ROWS: usize = 10;

/// The difference as lines of text: the verdict is the last line, next to the prompt.
#[must_use]
pub fn text(difference: &Difference<'_>, width: usize) -> String {
    let width = width.clamp(60, 400);
    let comparison = difference.comparison;
    let mut lines = Vec::new();
    for side in [Side::Before, Side::After] {
        lines.extend(wrap(
            &format!("{:<7} {}", format!("{}:", side.name()), words::side(difference, side)),
            0,
            width,
        ));
    }
    lines.extend(wrap(&words::compared(difference), 0, width));
    lines.extend(wrap(&words::noise(difference), 0, width));
    for warning in words::warnings(difference) {
        lines.extend(wrap(&format!("warning: {warning}"), 0, width));
    }
    lines.push(String::new());
    let found = comparison.findings().count();
    if found > 0 {
        lines.push("Functions that changed (± is the 95 % confidence interval, in points):".to_owned());
        lines.extend(rows(difference, comparison.findings().take(ROWS), width));
        if found > ROWS {
            lines.push(format!("  and {} more", thousands((found - ROWS) as u64)));
        }
    } else if !comparison.functions.is_empty() {
        lines.extend(wrap(words::NOT_PROVED, 0, width));
        lines.extend(rows(difference, comparison.functions.iter().take(UNCHANGED_ROWS), width));
    }
    lines.push(String::new());
    lines.extend(wrap(&words::verdict(difference), 0, width));
    lines.join("\n") + "\n"
}

fn rows<'a>(
    difference: &Difference<'_>,
    functions: impl Iterator<Item = &'a FunctionChange>,
    width: usize,
) -> Vec<String> {
    use ColumnAlignment::{Left, Rest, Right};
    let rows: Vec<[String; 6]> = functions
        .map(|function| {
            [
                words::percent(function.total.before),
                words::percent(function.total.after),
                words::short(&function.total),
                words::short(&function.itself),
                difference.kind(function).facts().language.to_owned(),
                difference.name(function),
            ]
        })
        .collect();
    table(
        [
            Right("total before"),
            Right("total after"),
            Right("total"),
            Right("self"),
            Left("kind"),
            Rest("function"),
        ],
        &rows,
        width,
    )
}
