//! Draws what `top` shows. Rows are cut by their width on the screen; foreign text is cleaned where rows are made.

use ratatui::Frame as Canvas;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::choice::TopView;
use super::keys::{HELP_LINE, HELP_PAGE};
use super::row::{TopColumn, TopRow};
use super::state::TopState;
use crate::output::report::thousands;
use crate::profile::Accounts;
use crate::profile::kind::Origin;
use crate::profile::report::ReportedNameSource;
use crate::text::clean;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);
/// Characters of a title.
const MAX_TITLE: usize = 100;
/// Lines above the rows.
const HEAD: usize = 4;

/// Draws the state. Afterwards the state knows how many rows there is room for.
pub(super) fn draw(canvas: &mut Canvas<'_>, state: &mut TopState) {
    let area = canvas.area();
    let mut lines = vec![title(state), account(state), views(state)];
    if state.shows_help {
        lines.push(Line::styled("keys", BOLD));
        lines.extend(HELP_PAGE.into_iter().map(Line::raw));
    } else {
        let room = usize::from(area.height).saturating_sub(HEAD + 1);
        state.room = room;
        state.scroll();
        lines.extend(table(state, usize::from(area.width), room));
    }
    let bottom = area.height.saturating_sub(1);
    for (y, line) in (0..bottom).zip(lines) {
        put(canvas, y, line);
    }
    if area.height > 0 {
        put(canvas, bottom, help_line(state));
    }
}

fn put(canvas: &mut Canvas<'_>, y: u16, line: Line<'_>) {
    let area = canvas.area();
    let place = Rect { y: area.y + y, height: 1, ..area };
    canvas.render_widget(line, place);
}

fn title(state: &TopState) -> Line<'static> {
    let length = state.snapshot().length_s;
    let mut spans = vec![Span::styled("jbpf-prof top", BOLD), Span::raw(format!("  {}", state.target))];
    if let Some(scope) = &state.choice.scope {
        spans.push(Span::styled(format!("  {}", clean(scope.title().as_bytes(), MAX_TITLE)), BOLD));
    }
    spans.push(Span::raw(format!("  {}, last {length:.0} s", clean_title(state))));
    if state.is_paused {
        spans.push(Span::styled("  PAUSED", REVERSED));
    }
    Line::from(spans)
}

/// The event's title. The name of a probe may come from the user.
fn clean_title(state: &TopState) -> String {
    clean(state.choice.event().title().as_bytes(), MAX_TITLE)
}

fn lost(accounts: &Accounts) -> String {
    match accounts.lost_total() {
        0 => "none lost".to_owned(),
        lost => format!("{} lost", thousands(lost)),
    }
}

fn account(state: &TopState) -> Line<'static> {
    let now = state.snapshot().profile.accounts(state.choice.event());
    let all = state.snapshot().totals.get(&state.choice.event()).cloned().unwrap_or_default();
    let jvms = &state.snapshot().jvms;
    let named = jvms
        .iter()
        .filter(|jvm| !matches!(jvm.names, ReportedNameSource::Off | ReportedNameSource::Refused { .. }));
    let style = if now.lost_total() > 0 { BOLD } else { Style::new() };
    Line::from(vec![
        Span::raw(format!("{} samples, ", thousands(now.kept))),
        Span::styled(lost(&now), style),
        Span::raw(format!(
            ", {} missed; since the start {}, {}; JVMs {}, {} with names",
            thousands(now.missed),
            thousands(all.kept),
            lost(&all),
            jvms.len(),
            named.count(),
        )),
    ])
}

fn views(state: &TopState) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, view) in TopView::ALL.into_iter().enumerate() {
        let style = if view == state.choice.view { REVERSED } else { Style::new() };
        spans.push(Span::styled(format!(" {} {} ", at + 1, view.title()), style));
    }
    spans.push(Span::raw(format!("  sort: {}", state.choice.sort.title(state.choice.view))));
    if !state.choice.filter.is_empty() {
        spans.push(Span::styled(
            format!("  filter: {} ({} hidden)", state.choice.filter, state.table().filtered),
            BOLD,
        ));
    }
    Line::from(spans)
}

fn help_line(state: &TopState) -> Line<'static> {
    if state.is_typing {
        return Line::styled(format!("filter: {}_   Enter keep  Esc remove", state.choice.filter), BOLD);
    }
    Line::styled(HELP_LINE, DIM)
}

/// The titles of the columns, and the rows on the screen.
fn table(state: &TopState, width: usize, room: usize) -> Vec<Line<'static>> {
    let table = state.table();
    let Some((last, columns)) = table.columns.split_last() else { return Vec::new() };
    let titles = columns.iter().map(|column| column.title());
    let mut widths: Vec<usize> = titles.map(width_of).collect();
    for row in &table.rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(width_of(cell));
        }
    }
    let cells = |cells: &mut dyn Iterator<Item = &str>| -> String {
        let columns = columns.iter().zip(&widths).zip(cells);
        columns.map(|((column, width), cell)| column.fitted(cell, *width) + "  ").collect()
    };
    let head = cells(&mut columns.iter().map(|column| column.title()));
    let mut lines = vec![Line::styled(head + last.title(), BOLD)];
    let rows = table.rows.iter().enumerate().skip(state.first).take(room);
    lines.extend(rows.map(|(at, row)| {
        let left = cells(&mut row.cells.iter().map(String::as_str));
        let text = cut_middle(&row.text, width.saturating_sub(width_of(&left)));
        if at == state.cursor() {
            let line = left + &text;
            let rest = width.saturating_sub(width_of(&line));
            return Line::styled(line + &" ".repeat(rest), REVERSED);
        }
        Line::from(vec![Span::raw(left), Span::styled(text, colour(state, row))])
    }));
    if table.rows.is_empty() {
        lines.push(Line::styled(why_empty(state), DIM));
    }
    lines
}

fn why_empty(state: &TopState) -> String {
    match (state.snapshot().length_s > 0.0, table_is_filtered(state)) {
        (false, _) => {
            "Waiting for the first second. Stacks of a JVM wait until the JVM has given its names.".into()
        }
        (true, true) => format!("No row contains \"{}\"; Esc removes the filter.", state.choice.filter),
        (true, false) => format!("No samples in the last {:.0} s.", state.snapshot().length_s),
    }
}

fn table_is_filtered(state: &TopState) -> bool {
    state.table().filtered > 0
}

/// The colour of a function, by the origin of its code. Each row also has the kind as text.
fn colour(state: &TopState, row: &TopRow) -> Style {
    let Some(origin) = row.origin.filter(|_| state.has_colours) else { return Style::new() };
    match origin {
        Origin::Java => Style::new().fg(Color::Green),
        Origin::Jit => Style::new().fg(Color::Cyan),
        Origin::Jvm => Style::new().fg(Color::Magenta),
        Origin::Kernel => Style::new().fg(Color::Yellow),
        Origin::Unknown => Style::new().fg(Color::Red),
        Origin::Native | Origin::Cpp | Origin::NotCode => Style::new(),
    }
}

impl TopColumn {
    fn title(&self) -> &'static str {
        match self {
            TopColumn::Number(title) | TopColumn::Text(title) => title,
        }
    }

    /// A cell with the spaces that align it.
    fn fitted(self, cell: &str, width: usize) -> String {
        let spaces = " ".repeat(width.saturating_sub(width_of(cell)));
        match self {
            TopColumn::Number(_) => spaces + cell,
            TopColumn::Text(_) => cell.to_owned() + &spaces,
        }
    }
}

/// Columns of a text on the screen: wide characters have two.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// The longest beginning of some characters that fits into a width.
fn fitting(characters: impl Iterator<Item = char>, most: usize) -> String {
    let mut text = String::new();
    let mut width = 0;
    for character in characters {
        width += width_of(character.encode_utf8(&mut [0; 4]));
        if width > most {
            break;
        }
        text.push(character);
    }
    text
}

/// Text cut in the middle to a width on the screen, because both ends of a function's name are informative.
fn cut_middle(text: &str, most: usize) -> String {
    if width_of(text) <= most {
        return text.to_owned();
    }
    if most < 8 {
        return fitting(text.chars(), most);
    }
    let head = (most - 1) / 3;
    let end: String = fitting(text.chars().rev(), most - 1 - head).chars().rev().collect();
    format!("{}…{end}", fitting(text.chars(), head))
}
