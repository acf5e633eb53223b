//! Where the threads of a living process have a thread-local variable, by what the dynamic linker has written.
//!
//! Sources for the tables of blocks: glibc, `sysdeps/generic/dl-dtv.h` and `sysdeps/*/nptl/tls.h`; musl,
//! `src/internal/pthread_impl.h` and `ldso/dynlink.c`.

use crate::capture::{BlockTable, ThreadVariable};
use crate::symbolize::{LinkerSlot, SlotContent, ThreadLocal};

/// The C library of a process, which lays out its threads' storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CLibrary {
    Glibc,
    Musl,
}

/// The number of a module: real processes have some hundred.
const MAX_MODULE: u64 = 1 << 16;
/// Distances from the thread pointer: storage that exists from a thread's start on is small.
const MAX_DISTANCE: u64 = 1 << 24;

impl CLibrary {
    fn table(self) -> BlockTable {
        let above = cfg!(target_arch = "aarch64");
        match (self, above) {
            (CLibrary::Glibc, false) => BlockTable { pointer: 8, length: -16, entry: 16 },
            (CLibrary::Glibc, true) => BlockTable { pointer: 0, length: -16, entry: 16 },
            (CLibrary::Musl, false) => BlockTable { pointer: 8, length: 0, entry: 8 },
            (CLibrary::Musl, true) => BlockTable { pointer: -8, length: 0, entry: 8 },
        }
    }

    fn in_block(self, module: u64, offset: u64) -> Option<ThreadVariable> {
        let module =
            u32::try_from(module).ok().filter(|module| (1..MAX_MODULE).contains(&u64::from(*module)))?;
        Some(ThreadVariable::InBlock { module, offset: offset.cast_signed(), table: self.table() })
    }
}

/// Where threads find a variable of a library whose addresses are moved by `moved`. `None` until the linker has written
/// one of its slots. `word` reads a word of the process's memory: any value.
pub(super) fn of_library(
    variable: &ThreadLocal,
    moved: u64,
    library: CLibrary,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<ThreadVariable> {
    let found = |slot: &LinkerSlot| {
        let at = slot.address.wrapping_add(moved);
        match slot.content {
            SlotContent::Offset => at_distance(word(at)?),
            SlotContent::Module => library.in_block(word(at)?, variable.in_block),
            SlotContent::Descriptor => {
                // The function is written last: 0 or the file's own content until then.
                let function = word(at)?;
                let argument = word(at.wrapping_add(8))?;
                descriptor(variable, function, argument, library, &word)
            }
        }
    };
    variable.slots.iter().find_map(found)
}

/// A descriptor's argument is a distance from the thread pointer, or the address of a module's number and an offset in
/// its block.
fn descriptor(
    variable: &ThreadLocal,
    function: u64,
    argument: u64,
    library: CLibrary,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<ThreadVariable> {
    if function == 0 {
        return None;
    }
    if let Some(near) = at_distance(argument) {
        return Some(near);
    }
    let (module, offset) = (word(argument)?, word(argument.wrapping_add(8))?);
    // glibc before 2.34 links descriptors on their first use; until then the argument leads to something else.
    if offset == variable.in_block { library.in_block(module, offset) } else { None }
}

/// A distance from the thread pointer is never 0: there the C library has data of its own.
fn at_distance(word: u64) -> Option<ThreadVariable> {
    let offset = word.cast_signed();
    (1..MAX_DISTANCE).contains(&offset.unsigned_abs()).then_some(ThreadVariable::Static { offset })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const MOVED: u64 = 0x7f00_0000_0000;
    const SLOT: u64 = 0x4000;
    const ARGUMENT: u64 = 0x5555_5555_0000;

    fn found(content: SlotContent, memory: &[(u64, u64)]) -> Option<ThreadVariable> {
        let variable = ThreadLocal {
            in_block: 0x18,
            slots: vec![LinkerSlot { address: SLOT, content }],
            ..ThreadLocal::default()
        };
        let memory: HashMap<u64, u64> = memory.iter().copied().collect();
        of_library(&variable, MOVED, CLibrary::Glibc, |at| memory.get(&at).copied())
    }

    fn in_block(module: u32) -> Option<ThreadVariable> {
        Some(ThreadVariable::InBlock { module, offset: 0x18, table: CLibrary::Glibc.table() })
    }

    #[test]
    fn slots_lead_to_the_variable() {
        let at = MOVED + SLOT;
        let minus = (-0x88_i64).cast_unsigned();
        let near = Some(ThreadVariable::Static { offset: -0x88 });
        assert_eq!(found(SlotContent::Offset, &[(at, minus)]), near);
        assert_eq!(found(SlotContent::Module, &[(at, 3)]), in_block(3));
        assert_eq!(found(SlotContent::Descriptor, &[(at, 0x7f01), (at + 8, minus)]), near);
        let far = [(at, 0x7f01), (at + 8, ARGUMENT), (ARGUMENT, 4), (ARGUMENT + 8, 0x18)];
        assert_eq!(found(SlotContent::Descriptor, &far), in_block(4));
    }

    #[test]
    fn what_the_linker_has_not_written_leads_nowhere() {
        let at = MOVED + SLOT;
        for content in [SlotContent::Offset, SlotContent::Module, SlotContent::Descriptor] {
            assert_eq!(found(content, &[]), None, "{content:?}");
            assert_eq!(found(content, &[(at, 0), (at + 8, 0)]), None, "{content:?}");
            assert_eq!(found(content, &[(at, u64::MAX / 2), (at + 8, u64::MAX / 2)]), None, "{content:?}");
        }
        let lazy = [(at, 0x7f01), (at + 8, ARGUMENT), (ARGUMENT, 0x4008), (ARGUMENT + 8, 0x7_0000_0024)];
        assert_eq!(found(SlotContent::Descriptor, &lazy), None);
    }
}
