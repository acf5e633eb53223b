//! The rows of a view, and what they stand for.

use std::sync::Arc;

use crate::profile::kind::Origin;
use crate::profile::labels::ContainerLabels;

/// A function by its text, which stays the same from second to second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FunctionKey {
    pub(super) name: String,
    pub(super) family: Option<Origin>,
}

/// A process; its name is that of its group leader.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessKey {
    pub(super) name: Arc<str>,
    pub(super) pid: u32,
    pub(super) container: Option<Arc<ContainerLabels>>,
}

/// What a row stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowKey {
    Function(FunctionKey),
    /// A caller or callee of the function that is expanded.
    Neighbour(FunctionKey),
    /// Samples in which the expanded function has no caller or callee.
    NoNeighbour,
    /// The callers or callees that have no rows.
    MoreNeighbours,
    Process(ProcessKey),
    Container(Option<Arc<ContainerLabels>>),
    /// A line of the account.
    Line(usize),
}

/// A row of the current table of `top`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopRow {
    pub(super) key: RowKey,
    /// The cells of all columns but the last.
    pub(super) cells: Vec<String>,
    /// The cell of the last column, which has the rest of the width.
    pub(super) text: String,
    /// The origin of a function, for its colour.
    pub(super) origin: Option<Origin>,
}

/// A column of the tables of `top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopColumn {
    /// Aligned to the right.
    Number(&'static str),
    Text(&'static str),
}

/// A view's columns and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopTable {
    /// The last column has the rest of the width.
    pub(super) columns: Vec<TopColumn>,
    pub(super) rows: Vec<TopRow>,
    /// Rows that the filter leaves out.
    pub(super) filtered: usize,
}
