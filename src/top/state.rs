//! What `top` shows: the seconds, and what the user chose. A key or a new second changes it.

use super::choice::{Expansion, TopChoice, TopScope, TopView};
use super::keys::{Reaction, TopKey};
use super::live::Snapshot;
use super::row::{RowKey, TopTable};
use super::table::table;
use crate::profile::Profile;
use crate::profile::neighbours::CallSide;
use crate::sample::Event;
use crate::text::clean;

/// Characters of a filter.
const MAX_FILTER: usize = 100;

/// State of the page of `top`: the choices of the user, and the rows of the current view.
#[derive(Debug, Default)]
pub struct TopState {
    pub(super) choice: TopChoice,
    /// Whether keys are text of the filter.
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) has_colours: bool,
    /// What is profiled, for people.
    pub(super) target: String,
    snapshot: Snapshot,
    /// The samples of the scope, if there is one.
    scoped: Option<Profile>,
    table: TopTable,
    /// The row that the user selected. It stays selected where it moves to.
    selected: Option<RowKey>,
    cursor: usize,
    /// The first row on the screen.
    pub(super) first: usize,
    /// Rows that the last drawing had room for.
    pub(super) room: usize,
}

impl TopState {
    /// Shows nothing yet. `target`: what is profiled, for people.
    #[must_use]
    pub fn new(target: &str, events: &[Event]) -> TopState {
        let target = clean(target.as_bytes(), MAX_FILTER);
        let mut state = TopState {
            target,
            choice: TopChoice { events: events.to_vec(), ..TopChoice::default() },
            ..TopState::default()
        };
        state.update();
        state
    }

    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(super) fn table(&self) -> &TopTable {
        &self.table
    }

    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Replaces the shown snapshot.
    pub(super) fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
        self.apply_scope();
        self.update();
    }

    fn apply_scope(&mut self) {
        self.scoped = self.choice.scope.as_ref().map(|scope| {
            let mut profile = self.snapshot.profile.clone();
            profile.retain_labels(|labels| scope.has(labels));
            profile
        });
    }

    /// Makes the table again, and finds the selected row in it.
    fn update(&mut self) {
        let profile = self.scoped.as_ref().unwrap_or(&self.snapshot.profile);
        self.table = table(&self.choice, &self.snapshot, profile);
        let rows = &self.table.rows;
        let at = self.selected.as_ref().and_then(|key| rows.iter().position(|row| row.key == *key));
        self.cursor = at.unwrap_or(self.cursor).min(rows.len().saturating_sub(1));
        self.scroll();
    }

    /// Scrolls so that the selected row is on the screen.
    pub(super) fn scroll(&mut self) {
        let room = self.room.max(1);
        let last = self.table.rows.len().saturating_sub(room);
        self.first = self.first.min(last).min(self.cursor).max((self.cursor + 1).saturating_sub(room));
    }

    fn select(&mut self, at: usize) {
        self.cursor = at.min(self.table.rows.len().saturating_sub(1));
        self.selected = self.table.rows.get(self.cursor).map(|row| row.key.clone());
        self.scroll();
    }

    /// Does what a key says.
    pub(super) fn on_key(&mut self, key: TopKey) -> Reaction {
        match key {
            TopKey::Interrupt => return Reaction::Quit,
            TopKey::Suspend => return Reaction::Suspend,
            _ if self.shows_help => self.shows_help = false,
            _ if self.is_typing => self.on_text(key),
            TopKey::Char('q') => return Reaction::Quit,
            TopKey::Char('?' | 'h') => self.shows_help = true,
            TopKey::Char(' ') => self.is_paused = !self.is_paused,
            TopKey::Char('/') => self.is_typing = true,
            TopKey::Char('s') => {
                self.choice.sort = self.choice.sort.next(self.choice.view);
                self.update();
            }
            TopKey::Char('e') => {
                self.choice.event = (self.choice.event + 1) % self.choice.events.len().max(1);
                self.update();
            }
            TopKey::Char(digit @ '1'..='4') => self.switch(TopView::ALL[digit as usize - '1' as usize]),
            TopKey::Tab => {
                let at = TopView::ALL.iter().position(|view| *view == self.choice.view).unwrap_or(0);
                self.switch(TopView::ALL[(at + 1) % TopView::ALL.len()]);
            }
            TopKey::Up | TopKey::Char('k') => self.select(self.cursor.saturating_sub(1)),
            TopKey::Down | TopKey::Char('j') => self.select(self.cursor + 1),
            TopKey::PageUp => self.select(self.cursor.saturating_sub(self.room.max(1))),
            TopKey::PageDown => self.select(self.cursor + self.room.max(1)),
            TopKey::Home => {
                self.select(0);
                // At the top the cursor stays at the top, even if another function moves there.
                self.selected = None;
            }
            TopKey::End => self.select(usize::MAX),
            TopKey::Left => self.expand(CallSide::Callers),
            TopKey::Right => self.expand(CallSide::Callees),
            TopKey::Enter => self.open(),
            TopKey::Escape => self.back(),
            TopKey::Backspace | TopKey::Char(_) => {}
        }
        Reaction::Redraw
    }

    /// A key while the user types the filter.
    fn on_text(&mut self, key: TopKey) {
        match key {
            TopKey::Char(c) if !c.is_control() && self.choice.filter.chars().count() < MAX_FILTER => {
                self.choice.filter.extend(c.to_lowercase());
            }
            TopKey::Backspace => _ = self.choice.filter.pop(),
            TopKey::Enter => self.is_typing = false,
            TopKey::Escape => {
                self.is_typing = false;
                self.choice.filter.clear();
            }
            _ => return,
        }
        self.update();
    }

    fn switch(&mut self, view: TopView) {
        self.choice.view = view;
        (self.selected, self.cursor, self.first) = (None, 0, 0);
        self.update();
    }

    /// Shows or hides a side of the selected function.
    fn expand(&mut self, side: CallSide) {
        let Some(RowKey::Function(function)) = self.table.rows.get(self.cursor).map(|row| &row.key) else {
            return;
        };
        let wanted = Expansion { function: function.clone(), side };
        self.selected = Some(RowKey::Function(function.clone()));
        self.choice.expansion =
            if self.choice.expansion.as_ref() == Some(&wanted) { None } else { Some(wanted) };
        self.update();
    }

    /// Opens the selected row: goes to a caller or callee, or shows only the functions of a process or container.
    fn open(&mut self) {
        match self.table.rows.get(self.cursor).map(|row| row.key.clone()) {
            Some(RowKey::Function(_)) => self.expand(CallSide::Callers),
            Some(RowKey::Neighbour(function)) => {
                self.selected = Some(RowKey::Function(function));
                self.update();
            }
            Some(RowKey::Process(process)) => self.enter(TopScope::Process(process)),
            Some(RowKey::Container(container)) => self.enter(TopScope::Container(container)),
            Some(RowKey::NoNeighbour | RowKey::MoreNeighbours | RowKey::Line(_)) | None => {}
        }
    }

    fn enter(&mut self, scope: TopScope) {
        self.choice.scope = Some(scope);
        self.choice.filter.clear();
        self.apply_scope();
        self.switch(TopView::Functions);
    }

    fn back(&mut self) {
        if !self.choice.filter.is_empty() {
            self.choice.filter.clear();
        } else if self.choice.expansion.take().is_none() {
            self.choice.scope = None;
            self.apply_scope();
        }
        self.update();
    }
}
