//! The order in which the dynamic linker searches the files of a process: it takes the first one that has a name. It keeps
//! the list for debuggers (`r_debug` in `<link.h>` of glibc and musl). The process can change the list: no address in it is
//! trusted, and a wrong order can only choose another function of the process.

use std::collections::BTreeSet;

use crate::process::memory::LiveMemory;

/// Entries of the auxiliary vector (`<elf.h>`).
const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;
const PT_DYNAMIC: u64 = 2;
const PT_PHDR: u64 = 6;
const DT_DEBUG: u64 = 21;

/// Bytes of a program header and of an entry of the dynamic section.
const HEADER: u64 = 56;
const ENTRY: u64 = 16;
/// Fields of `struct r_debug` and `struct link_map`, bytes from their beginning.
const DEBUG_MAP: u64 = 8;
const DEBUG_STATE: u64 = 24;
const MAP_NEXT: u64 = 24;

/// Limits on what is read.
const MAX_HEADERS: u64 = 64;
const MAX_ENTRIES: u64 = 256;
const MAX_FILES: usize = 4096;

/// The files of a process in the order of the search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkOrder {
    /// How far each file lies from the addresses in its symbols.
    biases: Vec<u64>,
    /// Whether the dynamic linker was not adding or removing a file.
    pub(super) is_complete: bool,
}

impl LinkOrder {
    /// Reads the list; `None` if the process has none: it is linked statically, or its dynamic linker has not begun.
    pub(super) fn read(memory: &LiveMemory) -> Option<LinkOrder> {
        LinkOrder::of(&|kind| memory.auxiliary(kind), &|address| memory.word(address))
    }

    fn of(auxiliary: &impl Fn(u64) -> Option<u64>, word: &impl Fn(u64) -> Option<u64>) -> Option<LinkOrder> {
        let headers = auxiliary(AT_PHDR)?;
        let at = |address: u64, field: u64| word(address.wrapping_add(field));
        let numbers = 0..auxiliary(AT_PHNUM)?.min(MAX_HEADERS);
        let find = |kind: u64| {
            let addresses = numbers.clone().map(|n| headers.wrapping_add(n * HEADER));
            let mut of_kind =
                addresses.filter(|&header| word(header).is_some_and(|w| w & 0xffff_ffff == kind));
            of_kind.next().and_then(|header| at(header, 16))
        };
        // A program that is not relocated may lack the first one.
        let bias = find(PT_PHDR).map_or(0, |address| headers.wrapping_sub(address));
        let dynamic = bias.wrapping_add(find(PT_DYNAMIC)?);
        let mut entries = (0..MAX_ENTRIES).map(|n| dynamic.wrapping_add(n * ENTRY));
        let debug = entries.find(|&entry| word(entry) == Some(DT_DEBUG)).and_then(|entry| at(entry, 8))?;
        if debug == 0 {
            return None;
        }
        let mut biases = Vec::new();
        let mut map = at(debug, DEBUG_MAP)?;
        while map != 0 && biases.len() < MAX_FILES {
            let Some(next) = at(map, MAP_NEXT) else { break };
            biases.push(word(map)?);
            map = next;
        }
        let is_complete = map == 0 && at(debug, DEBUG_STATE).is_some_and(|state| state & 0xffff_ffff == 0);
        Some(LinkOrder { biases, is_complete })
    }

    /// The place in the order of each file whose code begins at one of these addresses, which ascend. A listed file is the
    /// first one above its bias. `None`: the list has no such file.
    pub(super) fn places(&self, starts: &[u64]) -> Vec<Option<usize>> {
        let below = |start: u64| {
            let below = self.biases.iter().enumerate().filter(|(_, bias)| **bias <= start);
            below.max_by_key(|(_, bias)| **bias).map(|(place, _)| place)
        };
        let mut taken = BTreeSet::new();
        starts.iter().map(|&start| below(start).filter(|place| taken.insert(*place))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The memory of a program at 0x5000 with two libraries.
    fn memory() -> HashMap<u64, u64> {
        let header =
            |n: u64, kind, address| [(0x5040 + n * HEADER, kind | 4 << 32), (0x5050 + n * HEADER, address)];
        let words = [(0x5300, 1), (0x5308, 77), (0x5310, DT_DEBUG), (0x5318, 0x6000)];
        let debug = [(0x6000 + DEBUG_MAP, 0x7000), (0x6000 + DEBUG_STATE, 0)];
        let map = |at: u64, bias: u64, next: u64| [(at, bias), (at + MAP_NEXT, next)];
        let maps = [map(0x7000, 0x5000, 0x7100), map(0x7100, 0x9000, 0x7200), map(0x7200, 0x8000, 0)];
        let headers = [header(0, PT_PHDR, 0x40), header(1, PT_DYNAMIC, 0x300)];
        headers.concat().into_iter().chain(words).chain(debug).chain(maps.concat()).collect()
    }

    fn order(memory: &HashMap<u64, u64>) -> Option<LinkOrder> {
        let auxiliary = |kind| HashMap::from([(AT_PHDR, 0x5040), (AT_PHNUM, 2)]).get(&kind).copied();
        LinkOrder::of(&auxiliary, &|address| memory.get(&address).copied())
    }

    #[test]
    fn the_list_is_followed_to_its_end() {
        let order = order(&memory()).unwrap();
        assert_eq!(order, LinkOrder { biases: vec![0x5000, 0x9000, 0x8000], is_complete: true });
        // The list lacks the file at 0x4fff, and those at 0x7000 and 0xb000, which lie between and above its files.
        assert_eq!(
            order.places(&[0x4fff, 0x5800, 0x7000, 0x8000, 0xa000, 0xb000]),
            [None, Some(0), None, Some(2), Some(1), None]
        );
    }

    #[test]
    fn a_list_that_leads_nowhere_ends() {
        let mut circle = memory();
        circle.insert(0x7200 + MAP_NEXT, 0x7000);
        let found = order(&circle).unwrap();
        assert!(found.biases.len() == MAX_FILES && !found.is_complete);
        // The first entry of the dynamic section is of another kind.
        for gone in memory().into_keys().filter(|gone| ![0x5300, 0x5308].contains(gone)) {
            let mut cut = memory();
            cut.remove(&gone);
            assert_ne!(order(&cut), order(&memory()), "{gone:#x}");
        }
    }

    #[test]
    fn a_dynamic_linker_that_has_not_begun_has_no_list() {
        let mut early = memory();
        early.insert(0x5318, 0);
        assert_eq!(order(&early), None);
        let mut adding = memory();
        adding.insert(0x6000 + DEBUG_STATE, 1);
        assert!(!order(&adding).unwrap().is_complete);
    }
}
