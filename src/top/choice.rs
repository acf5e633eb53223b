//! What the user chose to see.

use std::sync::Arc;

use super::row::{FunctionKey, ProcessKey};
use crate::profile::Labels;
use crate::profile::labels::ContainerLabels;
use crate::profile::neighbours::CallSide;
use crate::sample::Event;

/// A view of the same seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopView {
    #[default]
    Functions,
    Processes,
    Containers,
    Account,
}

impl TopView {
    pub(super) const ALL: [TopView; 4] =
        [TopView::Functions, TopView::Processes, TopView::Containers, TopView::Account];

    pub(super) fn title(self) -> &'static str {
        match self {
            TopView::Functions => "functions",
            TopView::Processes => "processes",
            TopView::Containers => "containers",
            TopView::Account => "account",
        }
    }
}

/// The order of rows. Only functions distinguish self and total samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Own,
    Total,
    Name,
}

impl Sort {
    pub(super) fn title(self, view: TopView) -> &'static str {
        match (self, view) {
            (_, TopView::Account) => "none",
            (Sort::Name, _) => "name",
            (Sort::Own, TopView::Functions) => "self",
            (Sort::Total, TopView::Functions) => "total",
            _ => "share",
        }
    }

    pub(super) fn next(self, view: TopView) -> Sort {
        match (self, view) {
            (Sort::Own, TopView::Functions) => Sort::Total,
            (Sort::Name, _) => Sort::Own,
            _ => Sort::Name,
        }
    }
}

/// The function whose callers or callees are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expansion {
    pub(super) function: FunctionKey,
    pub(super) side: CallSide,
}

/// The only samples that are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopScope {
    Process(ProcessKey),
    Container(Option<Arc<ContainerLabels>>),
}

impl TopScope {
    pub(super) fn has(&self, labels: &Labels) -> bool {
        match self {
            TopScope::Process(process) => labels.pid == process.pid && labels.process == process.name,
            TopScope::Container(container) => labels.container == *container,
        }
    }

    pub(super) fn title(&self) -> String {
        match self {
            TopScope::Process(process) => format!("process {} ({})", process.name, process.pid),
            TopScope::Container(None) => "in no container".to_owned(),
            TopScope::Container(Some(container)) => format!("container {}", container.title()),
        }
    }
}

/// What the user chose to see.
#[derive(Clone, Debug, Default)]
pub(super) struct TopChoice {
    pub(super) view: TopView,
    pub(super) sort: Sort,
    /// Rows are shown whose text contains this one, in lower case.
    pub(super) filter: String,
    pub(super) expansion: Option<Expansion>,
    pub(super) scope: Option<TopScope>,
    /// The sampled events, and the index of the one that is shown.
    pub(super) events: Vec<Event>,
    pub(super) event: usize,
}

impl TopChoice {
    pub(super) fn event(&self) -> Event {
        self.events.get(self.event).copied().unwrap_or_default()
    }

    pub(super) fn filter_matches(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter)
    }
}
