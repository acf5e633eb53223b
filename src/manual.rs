//! Tables of the manual, for tests that compare them with the code.

/// The cells of the first table below a heading, by row.
pub(crate) fn table<'p>(page: &'p str, heading: &str) -> Vec<Vec<&'p str>> {
    let rows = section(page, heading).skip_while(|line| !is_below_titles(line)).skip(1);
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// The cells of all tables of a section, by row, without their titles.
pub(crate) fn tables<'p>(page: &'p str, heading: &str) -> Vec<Vec<&'p str>> {
    let lines: Vec<&str> = section(page, heading).collect();
    let is_row = |at: usize| lines[at].starts_with('|') && !is_below_titles(lines[at]);
    let is_title = |at: usize| lines.get(at + 1).is_some_and(|next| is_below_titles(next));
    (0..lines.len()).filter(|&at| is_row(at) && !is_title(at)).map(|at| cells(lines[at])).collect()
}

fn section<'p>(page: &'p str, heading: &str) -> impl Iterator<Item = &'p str> {
    page.lines().skip_while(move |line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'))
}

fn is_below_titles(line: &str) -> bool {
    line.starts_with("|---")
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The texts in backticks.
pub(crate) fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
