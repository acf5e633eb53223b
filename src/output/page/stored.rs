//! The document of a page as it is read. `docs/design/page.md` describes it; what only the page itself needs is left
//! out.

use serde::Deserialize;

use crate::profile::Accounts;

#[derive(Deserialize)]
pub(super) struct StoredDocument {
    pub(super) version: u32,
    pub(super) start_unix_ms: u64,
    pub(super) column_ms: u64,
    pub(super) columns: u32,
    pub(super) kinds: Vec<StoredKind>,
    pub(super) strings: Vec<String>,
    pub(super) symbols: StoredSymbols,
    pub(super) nodes: StoredNodes,
    pub(super) lines: StoredLines,
    pub(super) labels: StoredLabels,
    pub(super) containers: Vec<StoredContainer>,
    pub(super) events: Vec<StoredEvent>,
    pub(super) samples: StoredSamples,
    /// Pages of jbpf-prof from before the field have none.
    #[serde(default)]
    pub(super) pauses: StoredPauses,
}

#[derive(Deserialize)]
pub(super) struct StoredKind {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct StoredSymbols {
    pub(super) name: Vec<u32>,
    pub(super) kind: Vec<u32>,
}

#[derive(Deserialize)]
pub(super) struct StoredNodes {
    pub(super) depth: Vec<usize>,
    pub(super) symbol: Vec<u32>,
}

#[derive(Deserialize)]
pub(super) struct StoredLines {
    pub(super) file: Vec<u32>,
    pub(super) line: Vec<u32>,
    pub(super) bci: Vec<i64>,
}

#[derive(Deserialize)]
pub(super) struct StoredLabels {
    pub(super) process: Vec<u32>,
    pub(super) pid: Vec<u32>,
    pub(super) thread: Vec<u32>,
    pub(super) tid: Vec<u32>,
    pub(super) container: Vec<i64>,
    pub(super) state: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct StoredContainer {
    pub(super) title: String,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) id: String,
}

#[derive(Deserialize)]
pub(super) struct StoredEvent {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) accounts: Accounts,
}

/// Keys and rows, as in the document.
#[derive(Deserialize)]
pub(super) struct StoredSamples {
    pub(super) event: Vec<usize>,
    pub(super) node: Vec<i64>,
    pub(super) labels: Vec<u32>,
    pub(super) line: Vec<u32>,
    pub(super) rows: Vec<u32>,
    pub(super) column: Vec<u32>,
    pub(super) count: Vec<u64>,
}

#[derive(Default, Deserialize)]
pub(super) struct StoredPauses {
    pub(super) pid: Vec<u32>,
    pub(super) column: Vec<u32>,
    pub(super) safepoints: Vec<u64>,
    pub(super) safepoint_usec: Vec<u64>,
    pub(super) collections: Vec<u64>,
    pub(super) collection_usec: Vec<u64>,
}
