//! Where code of files is looked for in memory of no file: wherever there were samples of it.

use std::collections::{HashMap, HashSet};

use crate::capture::{Count, Stack};
use crate::process::{MonoNs, ProcessId, Processes};

/// Looks for code of files in memory of no file, at the addresses of these stacks. `is_described`: the process says itself
/// what it generates.
pub(super) fn find_moved(
    stacks: &[(Stack, Count)],
    processes: &mut Processes,
    is_described: impl Fn(u32) -> bool,
) {
    // Few processes have such memory, and most of those have been searched in vain.
    let mut searched: HashMap<ProcessId, Option<Vec<u64>>> = HashMap::new();
    let mut times: HashMap<ProcessId, MonoNs> = HashMap::new();
    let mut pages: HashSet<(u32, u64)> = HashSet::new();
    for (stack, _) in stacks.iter().filter(|(stack, _)| !stack.user.is_empty()) {
        let (id, at) = (stack.key.process, stack.at);
        let mut may_have = || !is_described(id.tgid) && processes.may_have_moved(id, at);
        let found = searched.entry(id).or_insert_with(|| may_have().then(Vec::new));
        let Some(found) = found else { continue };
        times.insert(id, at);
        for pc in stack.user.iter().filter_map(|word| word.probe()) {
            if pages.insert((id.tgid, pc & !0xfff)) && processes.is_anonymous(id, at, pc) {
                found.push(pc);
            }
        }
    }
    for (id, addresses) in searched {
        if let (Some(addresses), Some(at)) = (addresses, times.get(&id)) {
            processes.find_moved(id, *at, addresses);
        }
    }
}
