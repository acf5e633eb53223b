//! Where code of files is looked for in memory of no file: where stacks were left without a table.

use std::collections::{HashMap, HashSet};

use crate::capture::{Count, Stack, UserWord};
use crate::process::{MonoNs, ProcessId, Processes};

/// Looks for code of files in memory of no file, at each frame whose caller was found by frame pointer, and at the last one
/// of a stack. `is_described`: the process says itself what it generates.
pub(super) fn find_moved(
    stacks: &[(Stack, Count)],
    processes: &mut Processes,
    is_described: impl Fn(u32) -> bool,
) {
    let mut pages: HashSet<(u32, u64)> = HashSet::new();
    let mut found: HashMap<ProcessId, (MonoNs, Vec<u64>)> = HashMap::new();
    for (stack, _) in stacks.iter().filter(|(stack, _)| !is_described(stack.key.process.tgid)) {
        let (id, at) = (stack.key.process, stack.at);
        for pc in left_without_table(stack) {
            if pages.insert((id.tgid, pc & !0xfff)) && processes.is_anonymous(id, at, pc) {
                found.entry(id).or_insert_with(|| (at, Vec::new())).1.push(pc);
            }
        }
    }
    for (id, (at, addresses)) in found {
        processes.find_moved(id, at, addresses);
    }
}

fn left_without_table(stack: &Stack) -> impl Iterator<Item = u64> + '_ {
    let callers = stack.user.iter().skip(1).map(Some).chain([None]);
    let is_left = |caller: Option<&UserWord>| caller.is_none_or(|it| matches!(it, UserWord::Followed(_)));
    let left = stack.user.iter().zip(callers).filter(move |(_, caller)| is_left(*caller));
    left.filter_map(|(word, _)| word.probe())
}
