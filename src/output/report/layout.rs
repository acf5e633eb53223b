//! Numbers and tables as text of a given width.

use crate::sample::Event;
use crate::sample::unit::Unit;

/// A number with thousands separators.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in percent; `-` if the whole is 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { share(part as f64 / whole as f64) }
}

/// A share (0 to 1) in percent with one decimal. Small values do not become 0, and values just below 1 do not become
/// 100 %.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        "<0.1 %".to_owned()
    } else if (99.95..100.0).contains(&percent) {
        ">99.9 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

/// For how many occurrences, or for how many bytes, there is a sample.
pub(in crate::output) fn every(event: Event, n: u64) -> String {
    match event.unit() {
        Unit::Bytes => format!("one for each {} of {}", bytes(n), event.title()),
        Unit::Count | Unit::Nanoseconds => format!("one in {} {}", thousands(n), event.title()),
    }
}

/// A size in the unit that fits.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.0} KiB", n as f64 / 1024.0),
        _ => format!("{:.1} MiB", n as f64 / 1_048_576.0),
    }
}

/// A length of time with three digits and a unit: `1.23 s`, `45.6 ms`, `789 us`.
pub(super) fn duration(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let number = ns as f64 / unit;
    let places = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.places$} {name}")
}

/// Characters, the unit of columns.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Text cut to a width, with `…` at the cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(most.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// Text cut in the middle, because both ends of a function's name are informative.
pub(super) fn cut_middle(text: &str, most: usize) -> String {
    let length = width(text);
    if length <= most || most < 8 {
        return cut(text, most);
    }
    let head = (most - 1) / 3;
    let tail = most - 1 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

/// Breaks sentences at spaces; every line is indented.
pub(in crate::output) fn wrap(text: &str, indent: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(indent);
    for word in text.split_whitespace() {
        if width(&line) > indent && width(&line) + 1 + width(word) > most {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        if width(&line) > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// A column's title and alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::output) enum ColumnAlignment {
    Left(&'static str),
    /// Right-aligned to the column's width, for numbers.
    Right(&'static str),
    /// Left-aligned and cut in the middle to the remaining width; for the last column only.
    Rest(&'static str),
}

impl ColumnAlignment {
    fn title(self) -> &'static str {
        match self {
            ColumnAlignment::Left(t) | ColumnAlignment::Right(t) | ColumnAlignment::Rest(t) => t,
        }
    }
}

/// Rows under titles, with two spaces before each column.
pub(in crate::output) fn table<const N: usize>(
    columns: [ColumnAlignment; N],
    rows: &[[String; N]],
    most: usize,
) -> Vec<String> {
    let titles = columns.map(|c| c.title().to_owned());
    let all = || std::iter::once(&titles).chain(rows);
    let mut widths = [0; N];
    for row in all() {
        for (width_, cell) in widths.iter_mut().zip(row) {
            *width_ = (*width_).max(width(cell));
        }
    }
    all()
        .map(|row| {
            let mut line = String::new();
            for ((column, cell), column_width) in columns.iter().zip(row).zip(widths) {
                line.push_str("  ");
                match column {
                    ColumnAlignment::Left(_) => line.push_str(&format!("{cell:<column_width$}")),
                    ColumnAlignment::Right(_) => line.push_str(&format!("{cell:>column_width$}")),
                    ColumnAlignment::Rest(_) => {
                        let rest = most.saturating_sub(width(&line)).max(8);
                        line.push_str(&cut_middle(cell, rest));
                    }
                }
            }
            line.truncate(line.trim_end().len());
            cut(&line, most)
        })
        .collect()
}

/// Each distinct advice once; if there are several, each begins with its subjects.
pub(super) fn advice(rows: &[(&str, &str)], width: usize) -> Vec<String> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for (subject, advice) in rows.iter().filter(|(_, advice)| !advice.is_empty()) {
        match texts.iter_mut().find(|(text, _)| text == advice) {
            Some((_, subjects)) if subjects.contains(subject) => {}
            Some((_, subjects)) => subjects.push(subject),
            None => texts.push((advice, vec![subject])),
        }
    }
    let lines = texts.iter().flat_map(|(text, subjects)| {
        let before = if texts.len() > 1 { format!("{}: ", subjects.join(", ")) } else { String::new() };
        wrap(&format!("{before}{text}"), 2, width)
    });
    lines.collect()
}

pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{ColumnAlignment, bytes, cut, cut_middle, duration, percent, share, table, thousands, wrap};

    #[test]
    fn numbers() {
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 1_000_000), "<0.1 %");
        assert_eq!(percent(999_999, 1_000_000), ">99.9 %");
        assert_eq!(percent(0, 5), "0.0 %");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(share(1.0), "100.0 %");
        assert_eq!([7, 2048, 5 << 20].map(bytes), ["7 B", "2 KiB", "5.0 MiB"]);
    }

    #[test]
    fn durations_have_three_digits() {
        let shown = [5, 999, 1_000, 12_345, 789_000, 1_500_000, 4_321_000_000, 7_200_000_000_000];
        let words = ["5 ns", "999 ns", "1.00 us", "12.3 us", "789 us", "1.50 ms", "4.32 s", "7200 s"];
        assert_eq!(shown.map(duration), words);
    }

    #[test]
    fn text_fits() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut_middle("org.example.Server.handle", 16), "org.e…ver.handle");
        assert_eq!(wrap("one two three", 2, 10), ["  one two", "  three"]);
        let lines = table(
            [ColumnAlignment::Right("n"), ColumnAlignment::Rest("name")],
            &[["10".into(), "a.long.name.of.a.function".into()], ["7".into(), "b".into()]],
            24,
        );
        assert_eq!(lines, ["   n  name", "  10  a.lon…f.a.function", "   7  b"]);
        assert!(lines.iter().all(|l| l.chars().count() <= 24));
    }
}
