//! Tables of the manual, for tests that compare them with the code.

/// The cells of the first table below a heading, by row.
pub(crate) fn table<'p>(page: &'p str, heading: &str) -> Vec<Vec<&'p str>> {
    let section =
        page.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with('#'));
    let rows =
        section.skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The texts in backticks.
pub(crate) fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
