//! The broker's part of perf maps: which processes have one, and when to read on.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::address_cache::TimedAddress;
use super::child::{WorkerLoss, WorkerProcess};
use super::frames::{FrameChain, FrameInterner, unknown};
use super::message::{JitLookup, PerfMapFacts, WorkerObject, WorkerRequest, WorkerResponse};
use super::name_answers::NameAnswers;
use super::perfmap::MAX_STEPS;
use super::place::AddressSpaces;
use crate::limits::{Limit, ReachedLimits};
use crate::process::{Ancestor, AncestorProgram, OpenRefusal, Unopened};
use crate::profile::UnknownReason;
use crate::sample::{MonoNs, ProcessId};

const MAX_PROCESSES: usize = 256;
/// Processes whose ancestors are remembered.
const MAX_DESCENDANTS: usize = 4096;
const BATCH: usize = 4096;
/// Maps that became shorter are read anew for one part in this many of all time, at most.
const REREAD_SHARE_DIVISOR: u32 = 20;
/// More new bytes than this in one reading count as reading anew. No runtime writes so much, but a file of holes grows
/// at no cost.
const MUCH: u64 = 4 << 20;

/// Who wrote a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum MapWriter {
    /// The process whose code the map names.
    Itself(ProcessId),
    /// A process from which it was forked.
    Ancestor(AncestorProgram),
}

impl MapWriter {
    fn tgid(self) -> u32 {
        match self {
            MapWriter::Itself(id) => id.tgid,
            MapWriter::Ancestor(program) => program.tgid,
        }
    }
}

#[derive(Debug)]
struct MapState {
    number: u64,
    /// The last process that was looked up in this map.
    user: ProcessId,
    /// Number of the last lookup in this map.
    used: u64,
    file: Result<OwnedFd, Unopened>,
    /// Generation of the worker that has the map.
    generation: u64,
    tried: Instant,
    /// When the last reading that found something ended. Addresses seen before may be in code that is replaced now.
    changed: MonoNs,
    facts: PerfMapFacts,
    /// The pause before the next reading; `None` if the map was never rewritten.
    backoff: Option<Duration>,
    lost: u32,
}

impl MapState {
    /// Records a reading that took `took`. A process can truncate and rewrite its map as often as it likes. Such a map
    /// gets a backoff, which grows with the number of other such maps (`others`). A map that grows slowly gets none.
    fn was_read(&mut self, facts: PerfMapFacts, took: Duration, others: u32) {
        let much = facts.read.saturating_sub(self.facts.read) > MUCH;
        if much || facts.begun_anew != self.facts.begun_anew {
            self.backoff =
                Some(took.saturating_mul(REREAD_SHARE_DIVISOR).saturating_mul(others.saturating_add(1)));
        } else if let Some(backoff) = &mut self.backoff {
            *backoff = Duration::ZERO;
        }
        if facts.read != self.facts.read {
            self.changed = MonoNs::now();
        }
        self.facts = facts;
    }
}

/// Counters of perf maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfMapStats {
    /// Maps that were opened.
    pub maps: u64,
    /// Maps that exist and were refused: a symlink, a FIFO, another user's file, or a file that a program serves.
    pub refused: u64,
    /// Lines that were parsed.
    pub lines: u64,
    /// Lines that were rejected.
    pub rejected: u64,
    /// Maps that are incomplete, because a part was left out.
    pub cut: u64,
}

/// Perf maps of all processes.
#[derive(Debug)]
pub(crate) struct JitMaps {
    maps: HashMap<MapWriter, MapState>,
    /// For processes with code that their own maps do not name: the processes from which they descend by forks alone.
    ancestors: HashMap<ProcessId, Vec<Ancestor>>,
    next: u64,
    /// Number of lookups so far, which dates the last use of each map.
    asked: u64,
    raw: bool,
    again_after: Duration,
    shared: FrameInterner,
    /// Workers that were lost over a map.
    pub(crate) lost: u64,
}

impl JitMaps {
    /// `again_after`: the shortest time between two attempts to open a map, or to read on in it.
    pub(crate) fn new(raw: bool, again_after: Duration) -> JitMaps {
        let (maps, ancestors, shared) = (HashMap::new(), HashMap::new(), FrameInterner::default());
        JitMaps { maps, ancestors, next: 0, asked: 0, raw, again_after, shared, lost: 0 }
    }

    /// The frames of addresses in memory that the process itself filled with code.
    pub(crate) fn frames(
        &mut self,
        child: &mut WorkerProcess,
        spaces: &mut impl AddressSpaces,
        id: ProcessId,
        seen: &[TimedAddress],
    ) -> Vec<FrameChain> {
        let Some(&TimedAddress { at, .. }) = seen.first() else { return Vec::new() };
        let writer = MapWriter::Itself(id);
        let mut answers = self.named_by(child, writer, id, seen, || spaces.perf_map(id, at));
        // If the process's own map was not read whole, an unknown address may be in newer code than the ancestor's.
        if self.maps.get(&writer).is_none_or(|map| !map.facts.more && map.facts.left_out == 0) {
            self.ask_ancestors(child, spaces, id, at, seen, &mut answers);
        }
        let frames = answers.into_iter().zip(seen);
        frames.map(|(answer, address)| answer.unwrap_or_else(|why| unknown(why, None, address.pc))).collect()
    }

    /// Looks up addresses of a process in one map, which `open` opens.
    fn named_by(
        &mut self,
        child: &mut WorkerProcess,
        writer: MapWriter,
        user: ProcessId,
        seen: &[TimedAddress],
        open: impl FnOnce() -> Result<OwnedFd, Unopened>,
    ) -> Vec<Result<FrameChain, UnknownReason>> {
        self.open(child, writer, user, open);
        self.asked += 1;
        if let Some(map) = self.maps.get_mut(&writer) {
            (map.used, map.user) = (self.asked, user);
        }
        // Read on even if all addresses have names: other code may have replaced the named code.
        self.read_new_lines(child, writer);
        self.ask(child, writer, seen)
    }

    /// Looks up code that a process inherited by a fork, in the maps of its ancestors.
    fn ask_ancestors(
        &mut self,
        child: &mut WorkerProcess,
        spaces: &mut impl AddressSpaces,
        id: ProcessId,
        at: MonoNs,
        seen: &[TimedAddress],
        answers: &mut [Result<FrameChain, UnknownReason>],
    ) {
        let is_open =
            |answer: &Result<FrameChain, UnknownReason>| matches!(answer, Err(UnknownReason::AnonymousCode));
        if !answers.iter().any(is_open) {
            return;
        }
        if self.ancestors.len() >= MAX_DESCENDANTS {
            self.ancestors.clear();
        }
        let ancestors = self.ancestors.entry(id).or_insert_with(|| spaces.ancestors(id, at)).clone();
        for ancestor in ancestors {
            let writer = MapWriter::Ancestor(ancestor.program());
            self.open(child, writer, id, || spaces.ancestors_perf_map(id, at, ancestor));
            let Some(Ok(file)) = self.maps.get(&writer).map(|map| &map.file) else { continue };
            let open: Vec<usize> = (0..seen.len()).filter(|&n| answers.get(n).is_some_and(is_open)).collect();
            let addresses: Vec<u64> = open.iter().map(|&n| seen[n].pc).collect();
            let inherited = spaces.inherited(id, at, ancestor, file.as_fd(), &addresses);
            let open: Vec<usize> =
                open.into_iter().zip(inherited).filter_map(|(n, is)| is.then_some(n)).collect();
            if open.is_empty() {
                continue;
            }
            let asked: Vec<TimedAddress> = open.iter().map(|&n| seen[n]).collect();
            let named = self.named_by(child, writer, id, &asked, || Err(Unopened::ProcessGone));
            for (n, answer) in open.into_iter().zip(named) {
                answers[n] = answer;
            }
        }
    }

    /// Makes the worker close the maps of processes that are no longer known.
    pub(crate) fn forget_ended(&mut self, child: &mut WorkerProcess, is_known: impl Fn(ProcessId) -> bool) {
        self.ancestors.retain(|&id, _| is_known(id));
        self.close(child, |map| !is_known(map.user));
    }

    fn close(&mut self, child: &mut WorkerProcess, is_due: impl Fn(&MapState) -> bool) {
        for (_, map) in self.maps.extract_if(|_, map| is_due(map)) {
            child.forget(map.generation, WorkerObject::PerfMap(map.number));
        }
    }

    /// Evicts names that are no longer used.
    pub(crate) fn evict_unused(&mut self) {
        self.shared.evict_unused();
    }

    pub(crate) fn stats(&self) -> PerfMapStats {
        let mut stats = PerfMapStats::default();
        for map in self.maps.values() {
            stats.maps += u64::from(map.file.is_ok());
            let refused = matches!(
                map.file,
                Err(Unopened::Refused(
                    OpenRefusal::NotRegular
                        | OpenRefusal::ForeignOwner
                        | OpenRefusal::Served
                        | OpenRefusal::Astray
                ))
            );
            stats.refused += u64::from(refused);
            stats.lines += map.facts.lines;
            stats.rejected += map.facts.rejected;
            stats.cut += u64::from(map.facts.left_out > 0);
        }
        stats
    }

    /// How much of each map was left out.
    pub(crate) fn limits(&self) -> ReachedLimits {
        let mut reached = ReachedLimits::default();
        for (writer, map) in &self.maps {
            reached.note(Limit::PerfMap, &format!("process {}", writer.tgid()), map.facts.left_out);
        }
        reached
    }

    fn open(
        &mut self,
        child: &mut WorkerProcess,
        writer: MapWriter,
        user: ProcessId,
        open: impl FnOnce() -> Result<OwnedFd, Unopened>,
    ) {
        let known = self.maps.get(&writer);
        if known.is_some_and(|m| m.file.is_ok() || m.tried.elapsed() < self.again_after) {
            return;
        }
        if self.maps.len() >= MAX_PROCESSES {
            self.make_room(child);
        }
        let file = open();
        self.next += 1;
        let (tried, facts) = (Instant::now(), PerfMapFacts::default());
        let (number, used) = (self.next, self.asked);
        let changed = MonoNs(0);
        let state = MapState {
            number,
            user,
            used,
            file,
            generation: 0,
            tried,
            changed,
            facts,
            backoff: None,
            lost: 0,
        };
        self.maps.insert(writer, state);
    }

    /// Removes processes without a map: checking them again is cheap. If all have one, closes the least recently used.
    fn make_room(&mut self, child: &mut WorkerProcess) {
        self.maps.retain(|_, map| map.file.is_ok());
        if self.maps.len() >= MAX_PROCESSES {
            let oldest = self.maps.values().map(|map| map.used).min();
            self.close(child, |map| Some(map.used) == oldest);
        }
    }

    fn ask(
        &mut self,
        child: &mut WorkerProcess,
        writer: MapWriter,
        seen: &[TimedAddress],
    ) -> Vec<Result<FrameChain, UnknownReason>> {
        let mut answers = Vec::with_capacity(seen.len());
        while answers.len() < seen.len() {
            let remaining = &seen[answers.len()..];
            let batch = &remaining[..remaining.len().min(BATCH)];
            match self.attempt(child, writer, batch) {
                Ok(names) if !names.answers.is_empty() => {
                    let addresses: Vec<u64> = batch.iter().map(|address| address.pc).collect();
                    answers.extend(self.shared.frames(&names, &addresses, None));
                }
                Err(None) => {}
                Ok(_) => answers.resize(seen.len(), Err(UnknownReason::WorkerFailed)),
                Err(Some(why)) => answers.resize(seen.len(), Err(why)),
            }
        }
        answers
    }

    /// `Err(None)`: the caller must try again.
    fn attempt(
        &mut self,
        child: &mut WorkerProcess,
        writer: MapWriter,
        batch: &[TimedAddress],
    ) -> Result<NameAnswers, Option<UnknownReason>> {
        let map = self.maps.get_mut(&writer).ok_or(Some(UnknownReason::AnonymousCode))?;
        let Ok(file) = &map.file else { return Err(Some(UnknownReason::AnonymousCode)) };
        if map.lost > 1 {
            return Err(Some(UnknownReason::WorkerFailed));
        }
        let mut exchange = || {
            if map.generation != child.generation() {
                if let Some(facts) = read_map(child, map.number, Some(file.as_fd()))? {
                    map.facts = facts;
                }
                map.generation = child.generation();
                (map.tried, map.changed) = (Instant::now(), MonoNs::now());
            }
            let addresses =
                batch.iter().map(|&TimedAddress { pc, at }| JitLookup { pc, earlier: at < map.changed });
            let request =
                WorkerRequest::Jit { map: map.number, addresses: addresses.collect(), raw: self.raw };
            child.ask(&request, &[])
        };
        match exchange() {
            Ok(WorkerResponse::Names(names)) => Ok(names),
            Ok(_) | Err(WorkerLoss::NotAsked) => Err(Some(UnknownReason::WorkerFailed)),
            Err(_) => {
                map.lost += 1;
                self.lost += 1;
                Err(None)
            }
        }
    }

    /// Makes the worker read the new lines of the map.
    fn read_new_lines(&mut self, child: &mut WorkerProcess, writer: MapWriter) {
        let others =
            self.maps.iter().filter(|(other, map)| **other != writer && map.backoff.is_some()).count();
        let again_after = self.again_after;
        let Some(map) = self.maps.get_mut(&writer).filter(|m| m.file.is_ok() && m.lost <= 1) else { return };
        if map.tried.elapsed() < again_after.max(map.backoff.unwrap_or_default())
            || map.generation != child.generation()
        {
            return;
        }
        let begun = Instant::now();
        let answer = read_map(child, map.number, None);
        map.tried = Instant::now();
        match answer {
            Ok(Some(facts)) => {
                map.was_read(facts, map.tried - begun, u32::try_from(others).unwrap_or(u32::MAX));
            }
            Ok(None) | Err(WorkerLoss::NotAsked) => {}
            Err(_) => {
                map.lost += 1;
                self.lost += 1;
            }
        }
    }
}

/// Makes the worker read a map to its end, step by step. A file that grows all the time is left for later.
fn read_map(
    child: &mut WorkerProcess,
    map: u64,
    mut file: Option<BorrowedFd<'_>>,
) -> Result<Option<PerfMapFacts>, WorkerLoss> {
    let mut read = None;
    for _ in 0..MAX_STEPS {
        let descriptors: Vec<BorrowedFd<'_>> = file.take().into_iter().collect();
        let WorkerResponse::PerfMap(facts) = child.ask(&WorkerRequest::PerfMap { map }, &descriptors)? else {
            break;
        };
        read = Some(facts);
        if !facts.more {
            break;
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_begins_anew_backs_off() {
        let mut map = MapState {
            number: 1,
            user: ProcessId { tgid: 1, start: 1, exec: 1 },
            used: 1,
            file: Err(Unopened::ProcessGone),
            generation: 1,
            tried: Instant::now(),
            changed: MonoNs(0),
            facts: PerfMapFacts::default(),
            backoff: None,
            lost: 0,
        };
        let second = Duration::from_secs(1);
        let mut read = |read, begun_anew, others| {
            let before = map.changed;
            map.was_read(PerfMapFacts { read, begun_anew, ..PerfMapFacts::default() }, second, others);
            (map.changed > before, map.backoff)
        };
        assert_eq!(read(100, 0, 5), (true, None), "it has grown");
        assert_eq!(read(200, 1, 0), (true, Some(20 * second)), "it was shortened");
        assert_eq!(read(210, 1, 5), (true, Some(Duration::ZERO)), "it has grown again");
        assert_eq!(read(210, 1, 5), (false, Some(Duration::ZERO)));
        assert_eq!(read(300, 2, 3), (true, Some(80 * second)), "as three others did");
        assert_eq!(read(300 + MUCH, 2, 0), (true, Some(Duration::ZERO)));
        assert_eq!(read(301 + 2 * MUCH, 2, 0), (true, Some(20 * second)), "it has grown by too much");
    }
}
