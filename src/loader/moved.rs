//! Searches moved code: file code that programs copied to anonymous memory. Samples there choose the addresses to
//! search.

use std::collections::{HashMap, HashSet};

use crate::process::Processes;
use crate::sample::{CountedStack, MonoNs, ProcessId};

/// Searches anonymous memory for code of files, at the addresses of these stacks. Skips processes that `is_described`
/// accepts, because their runtime describes all generated code.
pub(super) fn find_moved(
    stacks: &[CountedStack],
    processes: &mut Processes,
    is_described: impl Fn(u32) -> bool,
) {
    // Few processes have such memory, and most of those are not due for another search.
    let mut searched: HashMap<ProcessId, Option<AnonymousAddresses>> = HashMap::new();
    let mut pages: HashSet<(u32, u64)> = HashSet::new();
    for CountedStack { stack, .. } in stacks.iter().filter(|one| !one.stack.user.is_empty()) {
        let (id, at) = (stack.key.process, stack.at);
        let mut begin = || {
            let may = !is_described(id.tgid) && processes.may_have_moved(id, at);
            may.then(|| AnonymousAddresses { at, addresses: Vec::new() })
        };
        let Some(samples) = searched.entry(id).or_insert_with(&mut begin) else { continue };
        for pc in stack.user.iter().filter_map(|word| word.lookup_pc()) {
            if pages.insert((id.tgid, pc & !0xfff)) && processes.is_anonymous(id, at, pc) {
                samples.addresses.push(pc);
            }
        }
    }
    for (id, samples) in searched {
        if let Some(AnonymousAddresses { at, addresses }) = samples {
            processes.find_moved(id, at, addresses);
        }
    }
}

/// Addresses in anonymous memory at which a program ran.
struct AnonymousAddresses {
    at: MonoNs,
    addresses: Vec<u64>,
}
