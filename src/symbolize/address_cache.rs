//! A cache of frames by process and address. Entries are valid as long as neither the process's mappings nor its code
//! at the address change.

use std::collections::HashMap;

use ahash::RandomState;

use super::cache::Cache;
use super::changes::CodeChanges;
use super::frames::FrameChain;
use crate::sample::{MonoNs, ProcessId};

/// After this time, ns, an address is looked up again. Lookups in a file keep the file open, and lookups in a JVM's
/// memory keep the code under observation (`jvm/vm/code.rs`). Only a log reports all changes. Entries that were not
/// used for this time are evicted.
const RELOOKUP_AFTER_NS: u64 = 60_000_000_000;
/// Processes that are remembered. Beyond this number, all addresses are looked up again.
const MAX_SPACES: usize = 16 << 10;

/// An address of a process; a leaf and a return address are looked up differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LookupAddress {
    pub(crate) pc: u64,
    pub(crate) leaf: bool,
}

impl LookupAddress {
    /// The address to look up: inside the instruction that was running or calling.
    pub(crate) fn lookup_pc(self) -> u64 {
        if self.leaf { self.pc } else { self.pc.saturating_sub(1) }
    }
}

/// The frames of one Java address.
#[derive(Clone, Debug)]
pub(crate) struct JavaFrames {
    pub(crate) chain: FrameChain,
    /// The method was compiled before the attach: a leaf may have the line of a neighbouring instruction.
    pub(crate) before_attach: bool,
    /// Valid until the code there changes.
    pub(crate) lasting: bool,
    /// From the agent's log, which reports all changes. Memory is only checked where addresses were looked up.
    pub(crate) logged: bool,
}

/// An address in generated code, and when it was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimedAddress {
    pub(crate) pc: u64,
    pub(crate) at: MonoNs,
}

/// The cached answer for an address.
#[derive(Clone, Debug)]
pub(crate) enum KnownAddress {
    /// Valid as long as the mappings stay.
    Code(FrameChain),
    /// Valid as long as the mappings and the JVM's code stay.
    Java(JavaFrames),
}

/// Times for which an answer is valid, the first and the last included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValidTimes {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl ValidTimes {
    /// All times, as long as the mappings are the same.
    pub(crate) const ALL: ValidTimes = ValidTimes { from: 0, until: u64::MAX };
    /// No times: each time is looked up again.
    pub(crate) const NONE: ValidTimes = ValidTimes { from: u64::MAX, until: 0 };

    pub(crate) fn intersect(self, other: ValidTimes) -> ValidTimes {
        ValidTimes { from: self.from.max(other.from), until: self.until.min(other.until) }
    }

    pub(crate) fn contains(self, at: MonoNs) -> bool {
        self.from <= at.0 && at.0 <= self.until
    }
}

/// A result of a lookup with the times for which it is valid.
#[derive(Clone, Debug)]
pub(crate) struct TimedResult<T> {
    pub(crate) result: T,
    pub(crate) times: ValidTimes,
}

impl<T> TimedResult<T> {
    /// Changes the result; the times stay.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> TimedResult<U> {
        TimedResult { result: change(self.result), times: self.times }
    }
}

/// Number of an address space in which the mappings stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpaceNumber(u64);

#[derive(Debug)]
struct SpaceVersion {
    number: SpaceNumber,
    /// When the mappings became what they are.
    mapped: MonoNs,
}

#[derive(Clone, Debug)]
struct CachedAddress {
    answer: KnownAddress,
    /// Time of the lookup; for Java, the first time at which the code is known to be there.
    from: MonoNs,
    /// The number of the reading of the JVM's code ([`CodeChanges::now`]) at which the answer was last valid.
    code_version: u64,
}

#[derive(Debug)]
pub(crate) struct AddressCache {
    spaces: HashMap<ProcessId, SpaceVersion, RandomState>,
    next: u64,
    entries: Cache<(SpaceNumber, u64), CachedAddress>,
}

impl AddressCache {
    /// Keeps up to twice `capacity` addresses.
    pub(crate) fn new(capacity: usize) -> AddressCache {
        AddressCache { spaces: HashMap::default(), next: 0, entries: Cache::new(capacity) }
    }

    /// The space of a process whose mappings are the same since `mapped`; `None` for an earlier time.
    pub(crate) fn space(&mut self, id: ProcessId, at: MonoNs, mapped: MonoNs) -> Option<SpaceNumber> {
        if at < mapped {
            return None;
        }
        // Entries of spaces with other mappings are no longer looked up, and are evicted.
        self.entries.age(at, RELOOKUP_AFTER_NS);
        if let Some(space) = self.spaces.get(&id).filter(|space| space.mapped == mapped) {
            return Some(space.number);
        }
        if self.spaces.len() >= MAX_SPACES {
            self.spaces.clear();
        }
        let number = SpaceNumber(self.next);
        self.next += 1;
        self.spaces.insert(id, SpaceVersion { number, mapped });
        Some(number)
    }

    /// The cached frames of an address at a time, valid up to now. `changes`: those of the JVM's code, if the process is
    /// a JVM.
    pub(crate) fn get(
        &mut self,
        space: SpaceNumber,
        seen: LookupAddress,
        at: MonoNs,
        changes: Option<&CodeChanges>,
    ) -> Option<TimedResult<KnownAddress>> {
        let entry = self.entries.get_mut(&(space, key(seen)))?;
        let is_renewed = match &entry.answer {
            KnownAddress::Code(_) => true,
            KnownAddress::Java(java) => !java.logged,
        };
        if is_renewed && at.0.saturating_sub(entry.from.0) >= RELOOKUP_AFTER_NS {
            return None;
        }
        let times = match entry.answer {
            KnownAddress::Code(_) => ValidTimes::ALL,
            KnownAddress::Java(_) => {
                let changes = changes?;
                if at < entry.from || changes.changed_after(seen.pc, entry.code_version) {
                    return None;
                }
                entry.code_version = changes.now();
                ValidTimes { from: entry.from.0, ..ValidTimes::ALL }
            }
        };
        Some(TimedResult { result: entry.answer.clone(), times })
    }

    /// Caches the answer for an address. An answer for Java code is valid from `from` on, as long as there are no other
    /// `changes`.
    pub(crate) fn insert(
        &mut self,
        space: SpaceNumber,
        seen: LookupAddress,
        from: MonoNs,
        answer: KnownAddress,
        changes: Option<&CodeChanges>,
    ) {
        let code_version = changes.map_or(0, CodeChanges::now);
        self.entries.insert((space, key(seen)), CachedAddress { answer, from, code_version });
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Forgets the processes that are no longer known.
    pub(crate) fn forget_ended(&mut self, is_known: impl Fn(ProcessId) -> bool) {
        self.spaces.retain(|&id, _| is_known(id));
    }

    /// Invalidates all entries of a process.
    pub(crate) fn forget(&mut self, id: ProcessId) {
        self.spaces.remove(&id);
    }
}

/// Addresses of user space have at most 57 bits.
fn key(LookupAddress { pc, leaf }: LookupAddress) -> u64 {
    pc << 1 | u64::from(leaf)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are ranges of addresses")]
mod tests {
    use super::*;
    use crate::profile::UnknownReason;
    use crate::symbolize::frames::unknown;
    use crate::symbolize::message::Changed;

    const ID: ProcessId = ProcessId { tgid: 1, start: 2, exec: 3 };

    fn seen(pc: u64) -> LookupAddress {
        LookupAddress { pc, leaf: false }
    }

    #[test]
    fn java_holds_until_its_code_changes() {
        let (mut known, mut changes) = (AddressCache::new(100), CodeChanges::default());
        let space = known.space(ID, MonoNs(50), MonoNs(1)).unwrap();
        let frames = JavaFrames {
            chain: unknown(UnknownReason::NotLogged, None, 0),
            before_attach: false,
            lasting: true,
            logged: true,
        };
        let insert = |known: &mut AddressCache, changes: &CodeChanges, seen, at| {
            known.insert(space, seen, MonoNs(at), KnownAddress::Java(frames.clone()), Some(changes));
        };
        insert(&mut known, &changes, seen(0x10_0000), 50);
        insert(&mut known, &changes, seen(0x20_0000), 50);
        let holds = |known: &mut AddressCache, changes: &CodeChanges, seen, at| {
            known.get(space, seen, MonoNs(at), Some(changes)).is_some()
        };
        assert!(holds(&mut known, &changes, seen(0x10_0000), 50));
        assert!(!holds(&mut known, &changes, seen(0x10_0000), 49), "older than the answer");
        assert!(!holds(&mut known, &changes, LookupAddress { pc: 0x10_0000, leaf: true }, 50));
        // The call that returns to 0x20_0000 is the last instruction of this code.
        changes.note(&Changed::Ranges(vec![0x1f_ff00..0x20_0000]));
        assert!(holds(&mut known, &changes, seen(0x10_0000), 60));
        assert!(!holds(&mut known, &changes, seen(0x20_0000), 60));
        insert(&mut known, &changes, seen(0x20_0000), 60);
        assert!(holds(&mut known, &changes, seen(0x20_0000), 60));
        changes.note(&Changed::Everywhere);
        assert!(!holds(&mut known, &changes, seen(0x10_0000), 60));
        assert!(known.get(space, seen(0x20_0000), MonoNs(70), None).is_none(), "followed no more");
    }

    #[test]
    fn a_space_lasts_until_its_mappings_change() {
        let mut known = AddressCache::new(100);
        let frames = unknown(UnknownReason::NoSymbol, None, 0);
        let first = known.space(ID, MonoNs(50), MonoNs(40)).unwrap();
        known.insert(first, seen(0x1000), MonoNs(50), KnownAddress::Code(frames), None);
        assert!(known.get(first, seen(0x1000), MonoNs(40), None).is_some());
        assert_eq!(known.space(ID, MonoNs(39), MonoNs(40)), None, "other mappings then");
        assert_eq!(known.space(ID, MonoNs(70), MonoNs(40)), Some(first));
        let second = known.space(ID, MonoNs(70), MonoNs(60)).unwrap();
        assert!(known.get(second, seen(0x1000), MonoNs(70), None).is_none());
    }

    #[test]
    fn only_logged_answers_are_never_looked_up_again() {
        let mut known = AddressCache::new(100);
        let changes = CodeChanges::default();
        let space = known.space(ID, MonoNs(50), MonoNs(40)).unwrap();
        let frames = unknown(UnknownReason::NoSymbol, None, 0);
        let java = |logged| JavaFrames { chain: frames.clone(), before_attach: false, lasting: true, logged };
        let answers = [
            (0x1000, KnownAddress::Code(frames.clone())),
            (0x2000, KnownAddress::Java(java(false))),
            (0x3000, KnownAddress::Java(java(true))),
        ];
        for (pc, answer) in answers {
            known.insert(space, seen(pc), MonoNs(50), answer, Some(&changes));
        }
        let mut holds =
            |at| [0x1000, 0x2000, 0x3000].map(|pc| known.get(space, seen(pc), at, Some(&changes)).is_some());
        assert_eq!(holds(MonoNs(49 + RELOOKUP_AFTER_NS)), [true, true, true]);
        assert_eq!(holds(MonoNs(50 + RELOOKUP_AFTER_NS)), [false, false, true]);
    }

    #[test]
    fn spaces_of_the_past_hold_no_memory() {
        let mut known = AddressCache::new(100);
        for second in 0..600 {
            let at = MonoNs(second * 1_000_000_000);
            let space = known.space(ID, at, at).unwrap();
            known.insert(
                space,
                seen(0x1000),
                at,
                KnownAddress::Code(unknown(UnknownReason::NoSymbol, None, 0)),
                None,
            );
            assert!(known.get(space, seen(0x1000), at, None).is_some());
            assert!(known.entries.len() <= 121, "after {second} s");
        }
    }
}
