//! The keys that `top` knows, and their help.

/// A key, the same for all terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopKey {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What a key asks of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    Redraw,
    Quit,
    Suspend,
}

/// The line at the bottom; the first ones are the most useful, because a narrow terminal cuts the line.
pub(super) const HELP_LINE: &str = "q quit  Tab view  / filter  s sort  ← callers  → callees  Enter open  Esc back  \
    e event  Space pause  ? help";

/// The page of `?`.
pub(super) const HELP_PAGE: [&str; 19] = [
    "1 2 3 4, Tab   functions, processes, containers, account",
    "Up, Down, j, k, PgUp, PgDn, Home, End",
    "               select a row",
    "s              sort by the next column",
    "/              show only rows whose name contains a text; Enter keeps the filter, Esc removes it",
    "Left           functions: show the callers of the function, or hide them",
    "Right          functions: show the callees of the function, or hide them",
    "Enter          a caller or callee: select that function",
    "               processes, containers: show only the functions of this row",
    "Esc            remove the filter; then show all processes again",
    "e              show the next event of -e",
    "Space          pause: the page stays, sampling goes on",
    "Ctrl-Z         suspend: sampling goes on",
    "q, Ctrl-C      quit",
    "",
    "self           samples whose leaf is the function",
    "total          samples with the function anywhere in their stack",
    "lost           samples that should be here and are not; the account has the reasons",
    "Any key leaves this page.",
];
