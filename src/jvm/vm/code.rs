//! The code of a JVM at an address. The JVM's memory is read after the sample.
//!
//! The JVM does not report when code comes and goes. So [`VmCode::check`] reads known blobs again in each window in
//! which the JVM ran, and every few seconds. A blob that is the same before and after a sample was there at the sample.
//! A blob that is gone or was replaced is not believed for any sample since it was last seen. A method that is seen for
//! the first time is read at most one window after its sample. The method is believed if the JVM's own count shows no
//! class unload in between. Then only code that was not-entrant and on no stack can have been freed. One race remains:
//! code that ran becomes not-entrant, is freed, and its address is reused, all within the window. The race needs a
//! collection (before JDK 20 the sweeper) that frees code but unloads no class, so the count does not show it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::blob::{BlobIdentity, BlobKind, CodeBlob};
use super::bounded_memory::BoundedMemory;
use super::debug_info::{DebugInfo, MethodBci};
use super::heaps::CodeHeaps;
use super::interpreted::{ClassQuery, InterpretedMethods, MethodQuery};
use super::layout::VmLayout;
use super::lock_classes::LockClasses;
use super::lock_owners;
use super::methods::MethodReader;
use super::miss::VmMiss;
use super::thread_names::ThreadNames;
use super::unloads::UnloadCounter;
use crate::jvm::code::{FrameKind, JavaFrame, JavaMethod};
use crate::jvm::memory::Memory;
use crate::jvm::{names, stub_names};
use crate::sample::MonoNs;

/// Most bytes that are read of one JVM between two checks. A window with ten thousand new addresses in as many methods
/// of the usual size takes a third of them.
const MAX_READ: u64 = 256 << 20;
/// Most blobs that are checked. A warm Scala compiler has 13,000.
const MAX_KNOWN: usize = 64 << 10;
/// A blob without a lookup for so long, ns, is not checked any more: no cached result is used for longer
/// (`symbolize/address_cache.rs` asks again every minute). In a JVM that runs for days any of its code has run once.
const KEPT_NS: u64 = 75_000_000_000;
/// How long ranges of freed code are remembered, ns: as long as stacks may wait for their names.
const FREED_KEPT_NS: u64 = 10_000_000_000;
/// The name of the stub at the root of all Java frames, in the agent's log and in HotSpot's own listings.
const CALL_STUB: &str = "call_stub";

/// A question about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressQuery {
    /// An address in the JVM's memory.
    pub pc: u64,
    /// The instruction at `pc` was about to run; otherwise `pc` is a return address.
    pub leaf: bool,
    /// When the address was sampled.
    pub at: MonoNs,
}

impl AddressQuery {
    /// An address within the code in question: a call may be a method's last instruction.
    fn within(self) -> u64 {
        if self.leaf { self.pc } else { self.pc.saturating_sub(1) }
    }
}

/// Numbers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStats {
    /// Blobs that are checked.
    pub known: usize,
    /// Blobs that a check found gone.
    pub went: u64,
    /// The last check found the code heaps.
    pub readable: bool,
}

/// The result for one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmAnswer {
    /// The frames, innermost first.
    pub frames: Result<Vec<JavaFrame>, VmMiss>,
    /// The result is valid until [`VmCode::check`] returns the address.
    pub lasting: bool,
}

/// A blob that is checked.
#[derive(Clone, Debug)]
struct CheckedBlob {
    identity: BlobIdentity,
    range: Range<u64>,
    /// Since when the blob is known to be there.
    since: MonoNs,
    /// The last check before the latest lookup.
    asked: MonoNs,
}

/// The code of one JVM.
#[derive(Debug)]
pub struct VmCode<M> {
    memory: BoundedMemory<M>,
    layout: VmLayout,
    raw: bool,
    /// `None` if the JVM has exited. The heaps keep their addresses, and grow.
    heaps: Option<CodeHeaps>,
    /// The heaps were read since the last check.
    fresh: bool,
    /// When the last check was.
    checked: MonoNs,
    interpreted: InterpretedMethods,
    thread_names: ThreadNames,
    lock_classes: LockClasses,
    unloads: Option<UnloadCounter>,
    known: HashMap<u64, CheckedBlob>,
    /// Ranges of code that is gone, and when a check saw that.
    gone: Vec<(Range<u64>, MonoNs)>,
    went: u64,
}

impl<M: Memory> VmCode<M> {
    /// The code of the JVM with this memory. With `raw` names keep the numbers that differ from run to run. Lookups
    /// find no code before the first [`check`](Self::check).
    #[must_use]
    pub fn new(memory: M, layout: VmLayout, raw: bool) -> VmCode<M> {
        let memory = BoundedMemory::new(memory);
        let (known, gone) = (HashMap::new(), Vec::new());
        let (interpreted, unloads) = (InterpretedMethods::new(&layout.classes), layout.classes.unloads);
        let (heaps, checked, fresh, went) = (None, MonoNs::default(), false, 0);
        let (thread_names, lock_classes) = (ThreadNames::default(), LockClasses::default());
        VmCode {
            memory,
            layout,
            raw,
            heaps,
            fresh,
            checked,
            interpreted,
            thread_names,
            lock_classes,
            unloads,
            known,
            gone,
            went,
        }
    }

    /// Numbers since the start.
    #[must_use]
    pub fn stats(&self) -> VmStats {
        VmStats { known: self.known.len(), went: self.went, readable: self.heaps.is_some() }
    }

    /// Checks all blobs with recent lookups. Returns ranges of code that is gone; results for other addresses stay
    /// valid. Call it before the lookups of a window; `now` must be after the window's last sample.
    pub fn check(&mut self, now: MonoNs) -> Vec<Range<u64>> {
        self.memory.renew(MAX_READ);
        self.checked = now;
        self.interpreted.check(&self.memory);
        self.gone.retain(|(_, seen)| now.0 < seen.0.saturating_add(FREED_KEPT_NS));
        if self.heaps.is_none() || self.memory.word(self.layout.heaps.address).is_err() {
            self.read_heaps();
        } else {
            self.fresh = false;
        }
        if self.heaps.is_none() {
            // The JVM has exited. The state of the last check is the best that can be known of its last samples.
            return Vec::new();
        }
        let (memory, layout) = (&self.memory, &self.layout);
        let mut changed = Vec::new();
        self.known.retain(|&start, known| {
            let there = known.identity.is_at(memory, layout, start);
            if !there {
                changed.push(known.range.clone());
            }
            there && now.0 < known.asked.0.saturating_add(KEPT_NS)
        });
        self.went += changed.len() as u64;
        self.gone.extend(changed.iter().map(|range| (range.clone(), now)));
        changed
    }

    /// The names of the Java threads with these ids, which are those of the JVM's own PID namespace; raw text.
    pub fn thread_names(&mut self, numbers: &[u32]) -> Vec<Option<String>> {
        self.thread_names.of(&self.memory, &self.layout, numbers)
    }

    /// For each of these threads, the thread that has the monitor that it enters still; ids as in
    /// [`thread_names`](Self::thread_names).
    pub fn owners_of(&self, waiters: &[u32]) -> Vec<Option<u32>> {
        lock_owners::owners_of(&self.memory, &self.layout, waiters)
    }

    /// Whether the result for an address differs between `from` and `to`.
    #[must_use]
    pub fn changes(&self, pc: u64, leaf: bool, from: MonoNs, to: MonoNs) -> bool {
        let within = AddressQuery { pc, leaf, at: from }.within();
        self.gone.iter().any(|(range, seen)| range.contains(&within) && from <= *seen && *seen < to)
    }

    /// The results, in the order of the questions.
    pub fn lookup(&mut self, asked: &[AddressQuery]) -> Vec<VmAnswer> {
        let mut order: Vec<(u64, usize)> = asked.iter().map(|a| a.within()).zip(0..).collect();
        order.sort_unstable();
        let unknown = VmAnswer { frames: Err(VmMiss::NoCode), lasting: false };
        let mut answers = vec![unknown; asked.len()];
        let mut methods = MethodReader::new(self.raw);
        let mut rest = order.as_slice();
        // All addresses within one blob are handled together, so that the blob is read once.
        while let Some(&(within, _)) = rest.first() {
            let blob = self.blob(within);
            let end = blob.as_ref().map_or(within, |blob| blob.range().end - 1);
            let (group, others) = rest.split_at(rest.partition_point(|&(within, _)| within <= end));
            rest = others;
            let group: Vec<(AddressQuery, usize)> =
                group.iter().filter_map(|&(_, place)| Some((*asked.get(place)?, place))).collect();
            let questions = group.iter().map(|&(asked, _)| asked);
            let found = self.within(blob, questions, &mut methods);
            for ((_, place), answer) in group.iter().zip(found) {
                if let Some(slot) = answers.get_mut(*place) {
                    *slot = answer;
                }
            }
        }
        answers
    }

    fn read_heaps(&mut self) {
        self.heaps = CodeHeaps::read(&self.memory, &self.layout.heaps).ok();
        self.fresh = true;
    }

    /// The blob that has this address now.
    fn blob(&mut self, pc: u64) -> Option<CodeBlob> {
        if !self.fresh && !self.heaps.as_ref()?.contain(pc) {
            self.read_heaps();
        }
        let start = self.heaps.as_ref()?.blob_of(&self.memory, &self.layout.heaps, pc)?;
        CodeBlob::read(&self.memory, &self.layout, start).ok().filter(|blob| blob.range().contains(&pc))
    }

    /// The results for addresses within one blob.
    fn within(
        &mut self,
        blob: Option<CodeBlob>,
        asked: impl Iterator<Item = AddressQuery>,
        methods: &mut MethodReader,
    ) -> Vec<VmAnswer> {
        let info = blob.as_ref().map(|blob| match blob.kind {
            BlobKind::Method(_) => blob.debug_info(&self.memory, &self.layout).map(Some),
            BlobKind::Stub(_) => Ok(None),
        });
        let found: Vec<(AddressQuery, Result<Vec<JavaFrame>, VmMiss>)> = asked
            .map(|asked| {
                let frames = match (&blob, &info) {
                    (Some(blob), Some(Ok(info))) => self.frames(blob, info.as_ref(), asked, methods),
                    _ => Err(self.why_not(blob.is_some())),
                };
                (asked, frames)
            })
            .collect();
        // Up to JDK 19 code that no thread can be in any more stays a while without its method.
        let there = blob.as_ref().is_none_or(|blob| {
            blob.kind != BlobKind::Method(0) && blob.identity.is_at(&self.memory, &self.layout, blob.start)
        });
        let since = blob.as_ref().map_or(MonoNs::default(), |blob| self.since(blob));
        // The limit on reads ended within this blob: the reads above that prove the blob may have failed for that.
        let unproven = blob.is_some() && self.memory.is_spent();
        let lasting = there && !unproven && blob.is_some_and(|blob| self.add_checked(&blob, since));
        found
            .into_iter()
            .map(|(asked, frames)| {
                let moved =
                    asked.at < since || self.changes(asked.pc, asked.leaf, asked.at, MonoNs(u64::MAX));
                let frames = match (moved, unproven, there) {
                    (true, ..) => Err(VmMiss::CodeMoved),
                    (false, true, _) => Err(VmMiss::BadMemory),
                    (false, false, false) => Err(VmMiss::CodeMoved),
                    (false, false, true) => frames,
                };
                VmAnswer { lasting: lasting && frames.is_ok(), frames }
            })
            .collect()
    }

    /// Since when a blob that was just read is known to be there. [`changes`](Self::changes) covers what checks found
    /// gone.
    fn since(&mut self, blob: &CodeBlob) -> MonoNs {
        if let Some(known) = self.known.get(&blob.start).filter(|known| known.identity == blob.identity) {
            return known.since;
        }
        match &mut self.unloads {
            Some(unloads) if matches!(blob.kind, BlobKind::Method(_)) => {
                unloads.renew(&self.memory);
                unloads.since()
            }
            _ => MonoNs::default(),
        }
    }

    /// Why there are no frames, whether or not a blob was found.
    fn why_not(&self, found: bool) -> VmMiss {
        match self.heaps {
            None => VmMiss::ProcessGone,
            Some(_) if found || self.memory.is_spent() => VmMiss::BadMemory,
            Some(_) => VmMiss::NoCode,
        }
    }

    /// Adds a blob to the checked ones; `false` if there are too many.
    fn add_checked(&mut self, blob: &CodeBlob, since: MonoNs) -> bool {
        let room = self.known.len() < MAX_KNOWN || self.known.contains_key(&blob.start);
        if room {
            let known =
                CheckedBlob { identity: blob.identity, range: blob.range(), since, asked: self.checked };
            self.known.insert(blob.start, known);
        }
        room
    }

    fn frames(
        &self,
        blob: &CodeBlob,
        info: Option<&DebugInfo>,
        asked: AddressQuery,
        methods: &mut MethodReader,
    ) -> Result<Vec<JavaFrame>, VmMiss> {
        let code = blob.code();
        if !code.contains(&asked.within()) {
            return Err(VmMiss::NoCode);
        }
        let (root, info) = match (&blob.kind, info) {
            (BlobKind::Method(root), Some(info)) => (*root, info),
            (BlobKind::Stub(name), _) => {
                let call_stub = !asked.leaf && Some(asked.pc) == self.layout.call_stub_return;
                let name = if call_stub {
                    CALL_STUB.to_owned()
                } else {
                    stub_names::without_release_affixes(&names::text(name)).to_owned()
                };
                return Ok(vec![JavaFrame::stub(&name.into())]);
            }
            (BlobKind::Method(_), None) => return Err(VmMiss::BadMemory),
        };
        let offset = u32::try_from(asked.pc - code.start).map_err(|_| VmMiss::BadMemory)?;
        let chain = info.chain(&self.layout, offset).map_err(|_| VmMiss::BadMemory)?;
        let Some(chain) = chain else {
            // Above the last record only the compiled method itself is known.
            let method = self.method(root, methods)?;
            let mut frame = JavaFrame::of(FrameKind::Compiled, Some(&method), None);
            frame.line = 0;
            return Ok(vec![frame]);
        };
        let outermost = chain.len().saturating_sub(1);
        let frame = |(depth, spot): (usize, &MethodBci)| {
            let kind = if depth == outermost { FrameKind::Compiled } else { FrameKind::Inlined };
            let method = self.method(spot.method, methods)?;
            Ok(JavaFrame::of(kind, Some(&method), u32::try_from(spot.bci).ok()))
        };
        chain.iter().enumerate().map(frame).collect()
    }

    /// The method at this address.
    fn method(&self, at: u64, known: &mut MethodReader) -> Result<Arc<JavaMethod>, VmMiss> {
        known.at(&self.memory, &self.layout, at).map(|found| found.method).ok_or(VmMiss::BadMemory)
    }

    /// Frames of the interpreter, in the order of the questions.
    pub fn interpreted(&mut self, asked: &[MethodQuery]) -> Vec<Result<JavaFrame, VmMiss>> {
        self.interpreted.frames(&self.memory, &self.layout, self.raw, asked)
    }

    /// Names of the classes of locks, in the order of the questions; `None`: it is not certain that this class was there.
    pub fn class_names(&mut self, asked: &[ClassQuery]) -> Vec<Option<String>> {
        self.lock_classes.names(&self.memory, &self.layout, self.raw, &mut self.interpreted, asked)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, FakeMemory, layout};
    use super::super::unloads::UnloadCounter;
    use super::*;

    /// Wherever the limit ends, the memory was not read: nothing shows that the code has moved.
    #[test]
    fn a_limit_that_ends_within_a_blob_is_bad_memory() {
        const UNLOADED: u64 = 0x3000;
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let pc = bytes.method(0, 7, method, method);
        let mut layout = layout();
        layout.classes.unloads = Some(UnloadCounter::read(&&bytes, BASE + UNLOADED).unwrap());
        let mut whole = 0;
        for limit in (0..32_768).step_by(64) {
            let mut code = VmCode::new(&bytes, layout.clone(), false);
            code.check(MonoNs(0));
            code.memory.renew(limit);
            let answer = code.lookup(&[AddressQuery { pc, leaf: true, at: MonoNs(10) }]).remove(0);
            match answer.frames {
                Ok(frames) => whole += usize::from(frames.len() == 2 && answer.lasting),
                Err(miss) => assert_eq!(miss, VmMiss::BadMemory, "{limit} bytes"),
            }
            assert_eq!(code.stats().known, usize::from(answer.lasting), "{limit} bytes");
        }
        assert!((1..512).contains(&whole), "{whole}");
    }
}
