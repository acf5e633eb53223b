//! Who owned which addresses when.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};

use jvm_symbols_log::header::flag;
use jvm_symbols_log::{
    BadHeader, Code, Counts, End, Header, Load, LogKind, Method, Quotas, ReadAt, Reader, Sink, Stub, Unload,
};

use super::frames::{Compiled, JavaFrame, Match};
use super::index::{CodeId, Index};
use super::methods::Methods;
use crate::jvm::names;
use crate::process::MonoNs;

/// How to read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Keep the numbers in names that differ from run to run.
    pub raw_names: bool,
    /// What the JVM's `CLOCK_MONOTONIC` shows more than the host's, ns (`/proc/PID/timens_offsets`).
    pub clock_offset: i64,
    /// The JVM tells late. This long before the logged end of code that has a successor, nobody knows who ran, ns.
    pub slack: u64,
    /// How long code that is gone can still be asked for, ns.
    pub keep: u64,
    /// Quotas.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            raw_names: false,
            clock_offset: 0,
            slack: 500_000_000,
            keep: 10_000_000_000,
            limits: Limits::default(),
        }
    }
}

/// How much of one JVM is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of reading.
    pub log: Quotas,
    /// Methods.
    pub methods: usize,
    /// Bytes of names and line tables.
    pub name_bytes: usize,
    /// Compiled methods and stubs.
    pub code: usize,
    /// Bytes of debug records.
    pub code_bytes: usize,
    /// Longest code.
    pub code_size: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            log: Quotas::default(),
            methods: 1 << 20,
            name_bytes: 128 << 20,
            code: 1 << 20,
            code_bytes: 128 << 20,
            code_size: 16 << 20,
        }
    }
}

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Miss {
    /// The log names no code there.
    Never,
    /// Code there came or went around that time.
    Moved,
    /// The log is incomplete: a quota, dropped records, or a part that was released before it was read.
    Cut,
}

/// How long an answer is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// Not as long as was asked.
    Changes,
    /// As long as was asked; later it is another.
    Ends,
    /// Until [`CodeTimeline::take_changed`] names the address.
    Lasts,
}

/// What was asked and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Leaf addresses found in compiled methods.
    pub leaves: u64,
    /// Of these, in code that was compiled before the attach: its debug records lie at calls and safepoints only, so
    /// that lines and inlined leaves may be those of a neighbouring instruction.
    pub leaves_before_attach: u64,
    /// Return addresses found in compiled methods.
    pub returns: u64,
    /// Of these, without a debug record of their own (calls of leaf routines).
    pub returns_inexact: u64,
    /// Addresses above the last debug record of their method.
    pub beyond: u64,
    /// Answers [`Miss::Never`].
    pub never: u64,
    /// Answers [`Miss::Moved`].
    pub moved: u64,
    /// Answers [`Miss::Cut`].
    pub cut: u64,
}

/// What a log has told so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The header, as last read.
    pub header: Option<Header>,
    /// The replay of older code is complete.
    pub replayed: bool,
    /// What was read.
    pub counts: Counts,
    /// Why reading ended, if it did.
    pub end: Option<End>,
    /// The beginning had been released before this reader came: a new attach is needed for the whole.
    pub head_missing: bool,
    /// Methods kept.
    pub methods: usize,
    /// Compiled methods and stubs kept, those that are gone included.
    pub code: usize,
    /// Records that quotas kept out.
    pub refused: u64,
    /// Memory in use, about.
    pub bytes: usize,
}

impl Facts {
    /// Something is missing that the JVM did once tell, or tried to.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let header = self.header.as_ref();
        self.refused > 0
            || self.end.is_some()
            || self.head_missing
            || self.counts.malformed + self.counts.too_long > 0
            || header.is_some_and(|h| {
                h.counters.dropped > 0
                    || h.has(flag::FULL | flag::BROKEN | flag::CLOSED | flag::REPLAY_FAILED)
            })
    }
}

/// Why a log could not be read on. What was read before still answers.
#[derive(Debug)]
pub enum ReadFailure {
    /// The header.
    Header(BadHeader),
    /// `pread` of records.
    Io(io::Error),
}

impl fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadFailure::Header(bad) => bad.fmt(f),
            ReadFailure::Io(e) => write!(f, "records of the symbol log cannot be read: {e}"),
        }
    }
}

impl std::error::Error for ReadFailure {}

/// Never ended.
const ALIVE: u64 = u64::MAX;

#[derive(Debug)]
enum What {
    Method(Compiled),
    Stub(Arc<str>),
}

/// Code at its place in time; times are the JVM's.
#[derive(Debug)]
struct Owner {
    range: Range<u64>,
    from: u64,
    until: u64,
    sequence: u64,
    replayed: bool,
    what: What,
}

impl Owner {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    fn is_stub(&self) -> bool {
        matches!(self.what, What::Stub(_))
    }

    fn bytes(&self) -> usize {
        size_of::<Owner>()
            + match &self.what {
                What::Method(compiled) => compiled.bytes(),
                What::Stub(_) => 0,
            }
    }
}

/// One JVM's code over time, as one log tells it.
#[derive(Debug)]
pub struct CodeTimeline {
    reader: Option<Reader>,
    store: Store,
    facts: Facts,
    stats: Stats,
}

impl CodeTimeline {
    /// Empty.
    #[must_use]
    pub fn new(options: Options) -> CodeTimeline {
        CodeTimeline {
            reader: None,
            store: Store::new(options),
            facts: Facts::default(),
            stats: Stats::default(),
        }
    }

    /// Reads what the log has got since the last call; always the same log. Returns the number of new records.
    ///
    /// # Errors
    /// [`ReadFailure`]; a later call goes on where this one stopped.
    pub fn read(&mut self, log: &impl ReadAt) -> Result<u64, ReadFailure> {
        let header = Header::read(log).map_err(ReadFailure::Header)?;
        let limits = self.store.options.limits.log;
        let reader = self.reader.get_or_insert_with(|| {
            let start = Reader::new(limits);
            self.facts.head_missing = header.kind == LogKind::Attach && header.consumed > start.offset();
            if self.facts.head_missing { Reader::from_offset(header.consumed, limits) } else { start }
        });
        self.facts.header = Some(header);
        let read = reader.read(log, &mut self.store).map_err(ReadFailure::Io);
        self.facts.counts = reader.counts();
        self.facts.end = reader.end();
        self.store.prune();
        self.facts.replayed = self.store.replayed;
        self.facts.methods = self.store.methods.len();
        self.facts.code = self.store.owners.len();
        self.facts.refused = self.store.refused + self.store.methods.refused();
        self.facts.bytes = self.store.bytes + self.store.methods.bytes();
        read
    }

    /// Offset up to which the log has been read: what may be released.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::offset)
    }

    /// What the log has told so far.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What was asked so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Where code came or went since the last call: answers about other addresses stay what they were.
    pub fn take_changed(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.store.changed)
    }

    /// How long [`lookup`](Self::lookup) of an address gives what it gives at `from`; `to` is not before that.
    #[must_use]
    pub fn hold(&self, pc: u64, is_leaf_pc: bool, from: MonoNs, to: MonoNs) -> Hold {
        match (self.store.owner(pc, is_leaf_pc, from), self.store.owner(pc, is_leaf_pc, to)) {
            (Ok(first), Ok(last)) if std::ptr::eq(first, last) => {
                if last.until == ALIVE {
                    Hold::Lasts
                } else {
                    Hold::Ends
                }
            }
            (Err(Miss::Never), Err(Miss::Never)) => Hold::Lasts,
            _ => Hold::Changes,
        }
    }

    /// The frames that `pc` stood for at `at` on the host's clock, innermost first. `is_leaf_pc`: the instruction at
    /// `pc` was about to run; otherwise `pc` is the return address of a call.
    ///
    /// # Errors
    /// [`Miss`] says why there is no answer.
    pub fn lookup(&mut self, pc: u64, is_leaf_pc: bool, at: MonoNs) -> Result<Vec<JavaFrame>, Miss> {
        let found = self.store.owner(pc, is_leaf_pc, at).map(|owner| match &owner.what {
            What::Stub(name) => vec![JavaFrame::stub(name)],
            What::Method(compiled) => {
                let offset = u32::try_from(pc - owner.range.start).unwrap_or(u32::MAX);
                let (frames, matched) = compiled.frames(offset);
                count(&mut self.stats, owner.replayed, is_leaf_pc, matched);
                frames
            }
        });
        found.map_err(|miss| {
            let miss = if miss == Miss::Never && self.facts.is_cut() { Miss::Cut } else { miss };
            match miss {
                Miss::Never => self.stats.never += 1,
                Miss::Moved => self.stats.moved += 1,
                Miss::Cut => self.stats.cut += 1,
            }
            miss
        })
    }
}

fn count(stats: &mut Stats, replayed: bool, leaf: bool, matched: Match) {
    if leaf {
        stats.leaves += 1;
        stats.leaves_before_attach += u64::from(replayed);
    } else {
        stats.returns += 1;
        stats.returns_inexact += u64::from(matched == Match::Above);
    }
    stats.beyond += u64::from(matched == Match::Beyond);
}

/// What the log's records make.
#[derive(Debug)]
struct Store {
    options: Options,
    methods: Methods,
    owners: HashMap<CodeId, Owner>,
    index: Index,
    next: CodeId,
    /// Code that ended, by when: what pruning looks at.
    ended: Vec<(u64, CodeId)>,
    /// Unloads of addresses that no record owned yet: a replay may still tell of that code.
    orphans: HashMap<u64, u64>,
    /// Where code came or went.
    changed: Vec<Range<u64>>,
    replayed: bool,
    newest: u64,
    refused: u64,
    bytes: usize,
}

/// Changes that are noted one by one.
const MAX_CHANGED: usize = 64 << 10;

/// Most unloads that are kept for a replay.
const MAX_ORPHANS: usize = 64 << 10;

impl Store {
    fn new(options: Options) -> Store {
        let limits = &options.limits;
        Store {
            options,
            methods: Methods::new(options.raw_names, limits.methods, limits.name_bytes),
            owners: HashMap::new(),
            index: Index::default(),
            next: 0,
            ended: Vec::new(),
            orphans: HashMap::new(),
            changed: Vec::new(),
            replayed: false,
            newest: 0,
            refused: 0,
            bytes: 0,
        }
    }

    fn owner(&self, pc: u64, leaf: bool, at: MonoNs) -> Result<&Owner, Miss> {
        // A call may be a method's last instruction.
        let within = if leaf { pc } else { pc.checked_sub(1).ok_or(Miss::Never)? };
        let at = at.0.saturating_add_signed(self.options.clock_offset);
        let here: Vec<&Owner> = self
            .index
            .at(within)
            .iter()
            .filter_map(|id| self.owners.get(id))
            .filter(|owner| owner.range.contains(&within))
            .collect();
        if here.is_empty() {
            return Err(Miss::Never);
        }
        // Stubs lie within stubs: the narrowest is meant.
        let owner = here
            .iter()
            .filter(|owner| owner.from <= at && at < owner.until)
            .min_by_key(|owner| (owner.range.end - owner.range.start, u64::MAX - owner.sequence))
            .ok_or(Miss::Moved)?;
        let unsure = owner.until != ALIVE
            && at.saturating_add(self.options.slack) >= owner.until
            && here.iter().any(|other| other.from >= owner.until);
        if unsure { Err(Miss::Moved) } else { Ok(owner) }
    }

    fn saw(&mut self, time: u64) {
        self.newest = self.newest.max(time);
    }

    fn end(&mut self, id: CodeId, time: u64) {
        if let Some(owner) = self.owners.get_mut(&id) {
            owner.until = time;
            self.ended.push((time, id));
            let range = owner.range.clone();
            self.note_change(range);
        }
    }

    fn note_change(&mut self, range: Range<u64>) {
        if self.changed.len() >= MAX_CHANGED {
            self.changed.clear();
            self.changed.push(0..u64::MAX);
        }
        self.changed.push(range);
    }

    fn forget(&mut self, id: CodeId) {
        if let Some(owner) = self.owners.remove(&id) {
            self.index.remove(id, &owner.range);
            self.bytes -= owner.bytes();
        }
    }

    /// Drops code that ended too long ago to be asked for.
    fn prune(&mut self) {
        let Some(before) = self.newest.checked_sub(self.options.keep) else { return };
        let (old, young): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ended).into_iter().partition(|&(time, _)| time < before);
        self.ended = young;
        for (_, id) in old {
            self.forget(id);
        }
    }

    /// Gives code its place in time: from the end of what was there before.
    fn install(&mut self, code: &Code, what: What, until: u64) {
        let range = code.start..code.end();
        let limits = &self.options.limits;
        if code.size > limits.code_size || self.owners.len() >= limits.code || self.bytes >= limits.code_bytes
        {
            self.refused += 1;
            return;
        }
        let stub = matches!(what, What::Stub(_));
        let mut from = 0;
        for id in self.index.near(&range) {
            let Some(other) = self.owners.get(&id).filter(|other| other.overlaps(&range)) else { continue };
            let same = other.range == range && other.is_stub() == stub;
            if other.until != ALIVE {
                from = from.max(other.until);
            } else if code.replayed && (same || !other.replayed) {
                return; // what was told as it happened is at least as good
            } else if same && other.replayed && same_method(&other.what, &what) {
                from = from.max(other.from);
                self.forget(id); // the same code, told twice
            } else if !(stub && other.is_stub() && !same) {
                // There is something new: what was here has gone, and we have not been told yet.
                self.end(id, code.time);
                from = from.max(code.time);
            }
        }
        let owner = Owner { range, from, until, sequence: code.sequence, replayed: code.replayed, what };
        let id = self.next;
        if !self.index.insert(id, &owner.range, MAX_PAGE_ENTRIES) {
            self.refused += 1;
            return;
        }
        self.next = self.next.wrapping_add(1);
        self.note_change(owner.range.clone());
        self.bytes += owner.bytes();
        if until != ALIVE {
            self.ended.push((until, id));
        }
        self.owners.insert(id, owner);
    }
}

/// Most (page, code) pairs of one JVM.
const MAX_PAGE_ENTRIES: usize = 8 << 20;

/// The same compiled method, or the same stub.
fn same_method(a: &What, b: &What) -> bool {
    match (a, b) {
        (What::Method(a), What::Method(b)) => a.methods.first() == b.methods.first(),
        (What::Stub(a), What::Stub(b)) => a == b,
        _ => false,
    }
}

impl Sink for Store {
    fn method(&mut self, offset: u64, method: &Method<'_>) {
        self.methods.add(offset, method);
    }

    fn load(&mut self, load: &Load<'_>) {
        self.saw(load.code.time);
        // An unload that was told before its load: a replay was about to tell of this code when it went.
        let until = load.code.replayed.then(|| self.orphans.remove(&load.code.start)).flatten();
        let methods = load.methods().map(|offset| self.methods.get(offset).cloned()).collect();
        let compiled = Compiled { methods, debug: load.debug().into() };
        self.install(&load.code, What::Method(compiled), until.unwrap_or(ALIVE));
    }

    fn unload(&mut self, unload: &Unload) {
        self.saw(unload.time);
        let ids = self.index.at(unload.start);
        let alive = ids.iter().copied().find(|id| {
            self.owners
                .get(id)
                .is_some_and(|o| o.range.start == unload.start && o.until == ALIVE && !o.is_stub())
        });
        match alive {
            Some(id) => self.end(id, unload.time),
            None if !self.replayed && self.orphans.len() < MAX_ORPHANS => {
                self.orphans.insert(unload.start, unload.time);
            }
            None => {}
        }
    }

    fn stub(&mut self, stub: &Stub<'_>) {
        self.saw(stub.code.time);
        let name = self.methods.shared(names::text(stub.name));
        self.install(&stub.code, What::Stub(name), ALIVE);
    }

    fn replay_end(&mut self) {
        self.replayed = true;
        self.orphans = HashMap::new();
    }
}
