//! Which code owned which addresses when, according to the log's records.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use jvm_symbols_log::{Code, Load, Method, RecordVisitor, Stub, Unload};

use super::frames::{Compiled, JavaFrame, Records};
use super::index::{self, CodeId, PageIndex};
use super::methods::LoggedMethods;
use super::options::{CodeLimits, CodeOptions};
use crate::jvm::vm::{StubBlob, StubBlobs};
use crate::jvm::{names, stub_names};
use crate::sample::MonoNs;

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeMiss {
    /// The log has no code at the address.
    Never,
    /// Code at the address came or went around that time.
    Moved,
    /// The log is incomplete: a quota, dropped records, or a part that was released before it was read.
    Cut,
}

/// The code at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFound {
    /// The inline chain at the address, innermost first; a stub is one frame.
    pub frames: Vec<JavaFrame>,
    /// The method was compiled before the attach. Its debug records exist at calls and safepoints only, so a leaf's
    /// line and inlined method may be those of a neighbouring instruction.
    pub before_attach: bool,
}

impl CodeFound {
    /// The frames that two candidates have in common; `None` if their methods have different names. Lines that differ
    /// are dropped.
    fn common(mut self, other: &CodeFound) -> Option<CodeFound> {
        self.before_attach |= other.before_attach;
        let same = self.frames.len() == other.frames.len();
        let mut frames = self.frames.iter_mut().zip(&other.frames);
        (same && frames.all(|(frame, other)| frame.keep_common(other))).then_some(self)
    }
}

/// Memory of an owner, bytes: an entry of a table that may be half empty.
const BYTES_OF_OWNER: usize = 2 * size_of::<(CodeId, CodeOwner)>();
/// The end of code that still exists.
const STILL_EXISTS_NS: u64 = u64::MAX;

#[derive(Debug)]
enum CodeKind {
    Method(Compiled),
    Stub(Arc<str>),
}

/// Code and the time for which it existed; times are on the JVM's clock.
#[derive(Debug)]
pub(super) struct CodeOwner {
    range: Range<u64>,
    from: u64,
    until: u64,
    /// When the JVM reported the code as it was installed; 0 if a replay reported it.
    reported: u64,
    sequence: u64,
    replayed: bool,
    what: CodeKind,
}

impl CodeOwner {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    fn is_stub(&self) -> bool {
        matches!(self.what, CodeKind::Stub(_))
    }

    /// The frames at `pc`, which lies within the code; `last` keeps the reader of the debug records that were read
    /// last.
    fn frames_at<'o>(
        &'o self,
        pc: u64,
        methods: &'o LoggedMethods,
        last: &mut Option<(&'o CodeOwner, Records<'o>)>,
    ) -> CodeFound {
        let compiled = match &self.what {
            CodeKind::Stub(name) => {
                return CodeFound { frames: vec![JavaFrame::stub(name)], before_attach: false };
            }
            CodeKind::Method(compiled) => compiled,
        };
        let read = last.take().filter(|(owner, _)| std::ptr::eq(*owner, self));
        let (_, records) = last.insert(read.unwrap_or_else(|| (self, compiled.records(methods))));
        let offset = u32::try_from(pc - self.range.start).unwrap_or(u32::MAX);
        CodeFound { frames: records.frames(offset), before_attach: self.replayed }
    }

    fn bytes(&self) -> usize {
        let own = match &self.what {
            CodeKind::Method(compiled) => compiled.bytes(),
            CodeKind::Stub(_) => 0,
        };
        BYTES_OF_OWNER + own + index::bytes_of(&self.range)
    }
}

/// The owner of an address at a time.
#[derive(Debug)]
pub(super) struct OwnerAtTime<'o> {
    owner: &'o CodeOwner,
    /// Code that replaced the owner, and may have been there already.
    rivals: Vec<&'o CodeOwner>,
}

impl OwnerAtTime<'_> {
    /// The owner still exists.
    pub(super) fn is_alive(&self) -> bool {
        self.owner.until == STILL_EXISTS_NS
    }

    /// The same owner, and as certain: the number of rivals only grows with time.
    pub(super) fn is_same(&self, other: &OwnerAtTime<'_>) -> bool {
        std::ptr::eq(self.owner, other.owner) && self.rivals.len() == other.rivals.len()
    }
}

/// Looks up frames, one address after the other.
#[derive(Debug)]
pub(super) struct FrameReader<'o> {
    methods: &'o LoggedMethods,
    /// The compiled method of the last lookup.
    last: Option<(&'o CodeOwner, Records<'o>)>,
}

impl<'o> FrameReader<'o> {
    /// The frames at `pc` that the owner and all rivals have in common.
    pub(super) fn frames_of(&mut self, held: &OwnerAtTime<'o>, pc: u64) -> Result<CodeFound, CodeMiss> {
        let found = held.owner.frames_at(pc, self.methods, &mut self.last);
        let common = |found: CodeFound, rival: &&'o CodeOwner| {
            found.common(&rival.frames_at(pc, self.methods, &mut None))
        };
        held.rivals.iter().try_fold(found, common).ok_or(CodeMiss::Moved)
    }
}

/// All code of a log, and the methods in it.
#[derive(Debug)]
pub(super) struct CodeTable {
    options: CodeOptions,
    methods: LoggedMethods,
    owners: HashMap<CodeId, CodeOwner>,
    index: PageIndex,
    next: CodeId,
    /// Code that ended, with its end: the candidates for pruning.
    ended: Vec<(u64, CodeId)>,
    /// Unloads at addresses that no record owned yet: a replay may still report that code.
    orphans: HashMap<u64, u64>,
    /// Ranges in which code came or went.
    changed: Vec<Range<u64>>,
    replayed: bool,
    newest: u64,
    refused: u64,
    bytes: usize,
    /// Pages, and code on them, that this read visited.
    visits: usize,
}

/// Most changes that are listed one by one.
const MAX_CHANGED: usize = 64 << 10;

/// Most rivals of one owner within the slack: a forged log could have a thousand there.
const MAX_RIVALS: usize = 4;

/// Most unloads that are kept for a replay.
const MAX_ORPHANS: usize = 64 << 10;

impl CodeTable {
    pub(super) fn new(options: CodeOptions) -> CodeTable {
        let limits = &options.limits;
        CodeTable {
            options,
            methods: LoggedMethods::new(options.raw_names, limits.methods, limits.name_bytes),
            owners: HashMap::new(),
            index: PageIndex::default(),
            next: 0,
            ended: Vec::new(),
            orphans: HashMap::new(),
            changed: Vec::new(),
            replayed: false,
            newest: 0,
            refused: 0,
            bytes: 0,
            visits: 0,
        }
    }

    /// Begins a read of the log.
    pub(super) fn begin_read(&mut self) {
        self.visits = 0;
    }

    /// The owner of `pc` at that time; a return address belongs to the call before it.
    pub(super) fn at(&self, pc: u64, leaf: bool, at: MonoNs) -> Result<OwnerAtTime<'_>, CodeMiss> {
        // A call may be a method's last instruction.
        let within = if leaf { pc } else { pc.checked_sub(1).ok_or(CodeMiss::Never)? };
        let at = at.0.saturating_add_signed(self.options.clock_offset);
        let mut here: Vec<&CodeOwner> = self
            .index
            .at(within)
            .iter()
            .filter_map(|id| self.owners.get(id))
            .filter(|owner| owner.range.contains(&within))
            .collect();
        if here.is_empty() {
            return Err(CodeMiss::Never);
        }
        // Stubs lie within stubs: the narrowest one is the owner.
        let owner = *here
            .iter()
            .filter(|owner| owner.from <= at && at < owner.until)
            .min_by_key(|owner| (owner.range.end - owner.range.start, u64::MAX - owner.sequence))
            .ok_or(CodeMiss::Moved)?;
        // The records of the owner's end and of its successor may both be late.
        let latest = at.saturating_add(self.options.slack);
        here.retain(|other| owner.until <= latest && other.from >= owner.until && other.reported <= latest);
        if here.len() > MAX_RIVALS { Err(CodeMiss::Moved) } else { Ok(OwnerAtTime { owner, rivals: here }) }
    }

    pub(super) fn frame_reader(&self) -> FrameReader<'_> {
        FrameReader { methods: &self.methods, last: None }
    }

    /// All known code, including freed code.
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn methods(&self) -> usize {
        self.methods.len()
    }

    /// Records that were left out because of quotas.
    pub(super) fn refused(&self) -> u64 {
        self.refused + self.methods.over_quota()
    }

    /// Approximate memory in use, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.methods.bytes()
    }

    /// The replay of older code is complete.
    pub(super) fn is_replayed(&self) -> bool {
        self.replayed
    }

    pub(super) fn limits(&self) -> &CodeLimits {
        &self.options.limits
    }

    /// Ranges in which code came or went since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.changed)
    }

    /// Adds stubs and adapters that no record contains.
    pub(super) fn add(&mut self, blobs: &StubBlobs) {
        for &StubBlob { start, size, name_index } in &blobs.blobs {
            let Some(name) = blobs.names.get(usize::from(name_index)) else { continue };
            let unknown = Code {
                replayed: true,
                debug_cut: false,
                no_inlines: false,
                time: 0,
                sequence: 0,
                start,
                size,
            };
            self.install_stub(&unknown, name.clone());
        }
    }

    fn note_time(&mut self, time: u64) {
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

    /// Whether both are the same compiled method, or the same stub.
    fn is_same(&self, a: &CodeKind, b: &CodeKind) -> bool {
        let method = |compiled: &Compiled| self.methods.get(*compiled.methods.first()?);
        match (a, b) {
            (CodeKind::Method(a), CodeKind::Method(b)) => method(a) == method(b),
            (CodeKind::Stub(a), CodeKind::Stub(b)) => a == b,
            _ => false,
        }
    }

    /// Drops code that ended too long ago to be looked up.
    pub(super) fn prune(&mut self) {
        let Some(before) = self.newest.checked_sub(self.options.keep) else { return };
        let (old, young): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ended).into_iter().partition(|&(time, _)| time < before);
        self.ended = young;
        for (_, id) in old {
            self.forget(id);
        }
    }

    /// Whether there is room for one more piece of code; checked before any part of it is kept.
    fn admits(&mut self, code: &Code) -> bool {
        let limits = &self.options.limits;
        self.visits = self.visits.saturating_add(index::pages_of(&(code.start..code.end())));
        let admits = code.size <= limits.code_size
            && self.owners.len() < limits.code
            && self.bytes < limits.code_bytes
            && self.visits <= limits.visits;
        self.refused += u64::from(!admits);
        admits
    }

    fn install_stub(&mut self, code: &Code, name: String) {
        if !self.admits(code) {
            return;
        }
        match self.methods.stub_name(name) {
            Some(name) => self.install(code, CodeKind::Stub(name), STILL_EXISTS_NS),
            None => self.refused += 1,
        }
    }

    /// Inserts admitted code. Its time begins when the code that was there before ended.
    fn install(&mut self, code: &Code, what: CodeKind, until: u64) {
        let range = code.start..code.end();
        let stub = matches!(what, CodeKind::Stub(_));
        let mut from = 0;
        let mut near = self.index.near(&range);
        self.visits += near.len();
        near.sort_unstable();
        near.dedup();
        for id in near {
            let Some(other) = self.owners.get(&id).filter(|other| other.overlaps(&range)) else { continue };
            let same = other.range == range && other.is_stub() == stub;
            if other.until != STILL_EXISTS_NS {
                from = from.max(other.until);
            } else if code.replayed && (same || !other.replayed) {
                return; // live records are at least as good as replayed ones
            } else if same && other.replayed && self.is_same(&other.what, &what) {
                from = from.max(other.from);
                self.forget(id); // the same code, reported twice
            } else if !(stub && other.is_stub() && !same) {
                // New code is here, so the old code is gone although its unload record has not come yet.
                self.end(id, code.time);
                from = from.max(code.time);
            }
        }
        let reported = if code.replayed { 0 } else { code.time };
        let owner = CodeOwner {
            range,
            from,
            until,
            reported,
            sequence: code.sequence,
            replayed: code.replayed,
            what,
        };
        let id = self.next;
        if !self.index.insert(id, &owner.range) {
            self.refused += 1;
            return;
        }
        self.next = self.next.wrapping_add(1);
        self.note_change(owner.range.clone());
        self.bytes += owner.bytes();
        if until != STILL_EXISTS_NS {
            self.ended.push((until, id));
        }
        self.owners.insert(id, owner);
    }
}

impl RecordVisitor for CodeTable {
    fn method(&mut self, offset: u64, method: &Method<'_>) {
        self.methods.add(offset, method);
    }

    fn load(&mut self, load: &Load<'_>) {
        self.note_time(load.code.time);
        if !self.admits(&load.code) {
            return;
        }
        // An unload record before its load record: the code was unloaded while the replay was about to report it.
        let until = load.code.replayed.then(|| self.orphans.remove(&load.code.start)).flatten();
        let methods = load.methods().map(|offset| self.methods.id_at(offset)).collect();
        let compiled = Compiled { methods, debug: load.debug().into() };
        self.install(&load.code, CodeKind::Method(compiled), until.unwrap_or(STILL_EXISTS_NS));
    }

    fn unload(&mut self, unload: &Unload) {
        self.note_time(unload.time);
        let ids = self.index.at(unload.start);
        self.visits = self.visits.saturating_add(ids.len());
        if self.visits > self.options.limits.visits {
            self.refused += 1;
            return;
        }
        let alive = ids.iter().copied().find(|id| {
            self.owners
                .get(id)
                .is_some_and(|o| o.range.start == unload.start && o.until == STILL_EXISTS_NS && !o.is_stub())
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
        self.note_time(stub.code.time);
        self.install_stub(
            &stub.code,
            stub_names::without_release_affixes(&names::text(stub.name)).to_owned(),
        );
    }

    fn replay_end(&mut self) {
        self.replayed = true;
        self.orphans = HashMap::new();
    }
}
