//! Where code of files is looked for in memory of no file: wherever there were samples of it.

use std::collections::{HashMap, HashSet};

use crate::process::Processes;
use crate::sample::{Count, MonoNs, ProcessId, Stack};

/// Looks for code of files in memory of no file, at the addresses of these stacks. `is_described`: the process says itself
/// what it generates.
pub(super) fn find_moved(
    stacks: &[(Stack, Count)],
    processes: &mut Processes,
    is_described: impl Fn(u32) -> bool,
) {
    // Few processes have such memory, and most of those have been searched in vain.
    let mut searched: HashMap<ProcessId, Option<Samples>> = HashMap::new();
    let mut pages: HashSet<(u32, u64)> = HashSet::new();
    for (stack, _) in stacks.iter().filter(|(stack, _)| !stack.user.is_empty()) {
        let (id, at) = (stack.key.process, stack.at);
        let mut begin = || {
            let may = !is_described(id.tgid) && processes.may_have_moved(id, at);
            may.then(|| Samples { at, addresses: Vec::new() })
        };
        let Some(samples) = searched.entry(id).or_insert_with(&mut begin) else { continue };
        for pc in stack.user.iter().filter_map(|word| word.probe()) {
            if pages.insert((id.tgid, pc & !0xfff)) && processes.is_anonymous(id, at, pc) {
                samples.addresses.push(pc);
            }
        }
    }
    for (id, samples) in searched {
        if let Some(Samples { at, addresses }) = samples {
            processes.find_moved(id, at, addresses);
        }
    }
}

/// Where a program ran in memory of no file.
struct Samples {
    /// When it ran.
    at: MonoNs,
    addresses: Vec<u64>,
}
