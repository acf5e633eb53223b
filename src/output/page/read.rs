//! Reading a page back: all samples with their seconds, labels and lines. A page has no addresses and no files of code.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;

use super::stored::{StoredDocument, StoredLabels, StoredPauses};
use crate::output::name;
use crate::profile::frames::FrameId;
use crate::profile::labels::{ContainerLabels, LabelsId};
use crate::profile::pauses::{PauseMark, PauseTotals};
use crate::profile::samples::{TimeSpan, Weight};
use crate::profile::trie::NodeId;
use crate::profile::{Accounts, Frame, Kind, Labels, Profile};
use crate::sample::unit::Unit;
use crate::sample::{Event, ThreadState};

/// Limit on the size of a file, and on its unpacked document, in bytes.
const MAX_BYTES: u64 = 512 << 20;

/// What stands before and behind the packed document.
const PACKED: [&str; 2] = ["{\"deflate-raw\":\"", "\"}"];

/// Reads a page.
///
/// # Errors
/// The file is not a page of jbpf-prof, or its parts contradict each other.
pub fn read(input: &mut (impl Read + ?Sized)) -> anyhow::Result<Profile> {
    let mut page = String::new();
    Read::take(&mut *input, MAX_BYTES + 1).read_to_string(&mut page).context("the page is not text")?;
    ensure!(page.len() as u64 <= MAX_BYTES, "the page is larger than {MAX_BYTES} bytes");
    let packed = page.split_once(PACKED[0]).and_then(|(_, behind)| behind.split_once(PACKED[1]));
    let (packed, _) = packed.context("the file is not a page of jbpf-prof")?;
    let packed = STANDARD.decode(packed).context("the profile in the page cannot be decoded")?;
    drop(page);
    let mut text = Vec::new();
    DeflateDecoder::new(packed.as_slice())
        .take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .context("the profile in the page cannot be decompressed")?;
    ensure!(text.len() as u64 <= MAX_BYTES, "the profile in the page is larger than {MAX_BYTES} bytes");
    document(&text)
}

/// Reads the document of a page.
///
/// # Errors
/// The document has another version, or its parts contradict each other.
pub fn document(text: &[u8]) -> anyhow::Result<Profile> {
    let document: StoredDocument = serde_json::from_slice(text).context("the page has no valid profile")?;
    ensure!(
        document.version == super::document::VERSION,
        "the page has version {}; this jbpf-prof reads version {}",
        document.version,
        super::document::VERSION
    );
    let mut reader = PageReader { document: &document, profile: Profile::new(), lines: HashMap::new() };
    reader.fill()?;
    Ok(reader.profile)
}

struct PageReader<'a> {
    document: &'a StoredDocument,
    profile: Profile,
    /// The node of a leaf with a line.
    lines: HashMap<LeafLine, NodeId>,
}

/// A leaf and a line of the document.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct LeafLine {
    leaf: NodeId,
    line: usize,
}

/// An element of a column.
fn at<'a, T>(column: &'a [T], index: usize, what: &str) -> anyhow::Result<&'a T> {
    column.get(index).with_context(|| format!("the page refers to {what} {index} of {}", column.len()))
}

impl PageReader<'_> {
    fn fill(&mut self) -> anyhow::Result<()> {
        let nodes = self.nodes()?;
        let mut labels = Vec::new();
        for row in 0..self.document.labels.pid.len() {
            labels.push(self.labels(row)?);
        }
        let mut events = Vec::new();
        for event in &self.document.events {
            events.push(
                Event::stored(&event.name, Unit::named(&event.unit))
                    .context("the page has too many events, or one with too long a name")?,
            );
        }
        let sums = self.samples(&nodes, &labels, &events)?;
        for (row, event) in self.document.events.iter().zip(events) {
            let kept = sums.get(&event).copied().unwrap_or_default().count;
            *self.profile.accounts_mut(event) = accounts(&row.accounts, kept)?;
        }
        self.pauses()?;
        self.profile.span = TimeSpan {
            start_unix_ns: self.document.start_unix_ms.saturating_mul(1_000_000),
            duration_ns: self
                .document
                .column_ms
                .saturating_mul(u64::from(self.document.columns))
                .saturating_mul(1_000_000),
        };
        Ok(())
    }

    fn text(&self, index: u32) -> anyhow::Result<&str> {
        Ok(at(&self.document.strings, index as usize, "string")?)
    }

    /// The nodes of the profile; the first one is the root.
    fn nodes(&mut self) -> anyhow::Result<Vec<NodeId>> {
        let document = self.document;
        let mut frames = Vec::new();
        for (name, kind) in document.symbols.name.iter().zip(&document.symbols.kind) {
            let label = &at(&document.kinds, *kind as usize, "kind")?.name;
            let kind =
                Kind::labelled(label).with_context(|| format!("the page has the unknown kind {label:?}"))?;
            let frame = name::frame(kind, self.text(*name)?);
            frames.push(self.profile.intern_frame(&Arc::new(frame)));
        }
        let mut path: Vec<FrameId> = Vec::new();
        let mut nodes = vec![NodeId::ROOT];
        for (depth, symbol) in document.nodes.depth.iter().zip(&document.nodes.symbol) {
            ensure!((1..=path.len() + 1).contains(depth), "a stack of the page has no caller");
            path.truncate(depth - 1);
            path.push(*at(&frames, *symbol as usize, "symbol")?);
            nodes.push(self.profile.stack_of(&path));
        }
        Ok(nodes)
    }

    fn labels(&mut self, row: usize) -> anyhow::Result<LabelsId> {
        let StoredLabels { process, pid, thread, tid, container, state } = &self.document.labels;
        let what = "labels";
        let state: &String = at(state, row, what)?;
        let container = match *at(container, row, what)? {
            of if of < 0 => None,
            of => Some(at(&self.document.containers, usize::try_from(of)?, "container")?),
        };
        let container = container.map(|stored| {
            let in_pod = format!("{}/{}/", stored.namespace, stored.pod);
            let (name, container) = match (stored.pod.is_empty(), stored.title.strip_prefix(&in_pod)) {
                (true, _) if !stored.id.starts_with(&stored.title) => (stored.title.as_str(), ""),
                (false, Some(container)) => ("", container),
                _ => ("", ""),
            };
            Arc::new(ContainerLabels {
                namespace: stored.namespace.as_str().into(),
                pod: stored.pod.as_str().into(),
                id: stored.id.as_str().into(),
                name: name.into(),
                container: container.into(),
                ..ContainerLabels::default()
            })
        });
        let labels = Labels {
            pid: *at(pid, row, what)?,
            process: self.text(*at(process, row, what)?)?.into(),
            thread: self.text(*at(thread, row, what)?)?.into(),
            tid: *at(tid, row, what)?,
            cgroup: 0,
            container,
            state: ThreadState::named(state).unwrap_or_default(),
            span: None,
            resource: None,
        };
        Ok(self.profile.intern_labels(&labels))
    }

    fn samples(
        &mut self,
        nodes: &[NodeId],
        labels: &[LabelsId],
        events: &[Event],
    ) -> anyhow::Result<HashMap<Event, Weight>> {
        let samples = &self.document.samples;
        let mut sums: HashMap<Event, Weight> = HashMap::new();
        let (mut node, mut next) = (0i64, 0usize);
        for (key, step) in samples.node.iter().enumerate() {
            node = node.checked_add(*step).context("a node of the page is out of range")?;
            let leaf = *at(nodes, usize::try_from(node).context("a node of the page is negative")?, "node")?;
            let row = *at(&samples.event, key, "key")?;
            let event = *at(events, row, "event")?;
            let accounts = &self.document.events[row].accounts;
            let each = accounts.of_sample();
            let labels = *at(labels, *at(&samples.labels, key, "key")? as usize, "labels")?;
            let leaf = self.with_line(leaf, *at(&samples.line, key, "key")? as usize)?;
            let mut column = 0u32;
            for _ in 0..*at(&samples.rows, key, "key")? {
                let step = *at(&samples.column, next, "row")?;
                column = column.checked_add(step).context("a column of the page is out of range")?;
                let second = self.second(column)?;
                let count = *at(&samples.count, next, "row")?;
                let weight = Weight { count, value: count.saturating_mul(each), ..Weight::default() };
                let sum = sums.entry(event).or_default();
                *sum = sum.checked_add(weight).context("the samples sum to more than 63 bits")?;
                self.profile.add_interned_in_second(second, leaf, labels, event, weight);
                next += 1;
            }
        }
        Ok(sums)
    }

    fn pauses(&mut self) -> anyhow::Result<()> {
        let StoredPauses { pid, column, safepoints, safepoint_usec, collections, collection_usec } =
            &self.document.pauses;
        for (row, pid) in pid.iter().enumerate() {
            let what = "pauses";
            let totals = PauseTotals {
                safepoints: *at(safepoints, row, what)?,
                safepoint_usec: *at(safepoint_usec, row, what)?,
                collections: *at(collections, row, what)?,
                collection_usec: *at(collection_usec, row, what)?,
            };
            let second = self.second(*at(column, row, what)?)?;
            self.profile.pauses.add(PauseMark { pid: *pid, second, totals });
        }
        Ok(())
    }

    /// The second of a column.
    fn second(&self, column: u32) -> anyhow::Result<u16> {
        ensure!(column < self.document.columns, "the page has something behind its last column");
        u16::try_from(column).context("the page has more than 65,536 columns")
    }

    /// The leaf with a line of the document. The line is that of the code that ran, or that waited.
    fn with_line(&mut self, leaf: NodeId, line: usize) -> anyhow::Result<NodeId> {
        let lines = &self.document.lines;
        if line == 0 || leaf == NodeId::ROOT {
            return Ok(leaf);
        }
        if let Some(known) = self.lines.get(&LeafLine { leaf, line }) {
            return Ok(*known);
        }
        let file = self.text(*at(&lines.file, line, "line")?)?;
        let mut stack: Vec<FrameId> =
            self.profile.trie().path_to_root(leaf).map(|node| self.profile.frame_of(node)).collect();
        let frames = self.profile.frames();
        let Some(code) = stack.iter().position(|frame| !frames.kind(*frame).is_above_code()) else {
            return Ok(leaf);
        };
        let frame = Frame {
            file: (!file.is_empty()).then(|| file.into()),
            line: *at(&lines.line, line, "line")?,
            bci: u32::try_from(*at(&lines.bci, line, "line")?).ok(),
            ..frames.get(stack[code])
        };
        stack[code] = self.profile.intern_frame(&Arc::new(frame));
        stack.reverse();
        let node = self.profile.stack_of(&stack);
        self.lines.insert(LeafLine { leaf, line }, node);
        Ok(node)
    }
}

/// The accounts of an event, so that they add up with the samples that the page has.
fn accounts(stored: &Accounts, kept: u64) -> anyhow::Result<Accounts> {
    let numbers = stored.lost.iter().map(|(_, lost)| *lost);
    let mut all = numbers.chain([kept, stored.filtered, stored.missed, stored.expected]);
    let sum = all.try_fold(0u64, u64::checked_add);
    ensure!(sum.is_some_and(|sum| i64::try_from(sum).is_ok()), "the accounts of the page exceed 63 bits");
    let mut accounts = Accounts { kept, lost: Vec::new(), ..stored.clone() };
    for (reason, lost) in &stored.lost {
        accounts.lose(reason.clone(), *lost);
    }
    accounts.taken = accounts.filtered + accounts.shown();
    Ok(accounts)
}
