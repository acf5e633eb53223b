//! Debug records of a compiled method: which methods, at which bytecodes, an address belongs to (code/pcDesc.hpp,
//! code/scopeDesc.cpp, code/debugInfoRec.cpp; the same from JDK 8 to 25).

use super::layout::{NmethodOffsets, VmLayout};
use super::unsigned5::Unsigned5Stream;
use crate::jvm::memory::{InvalidMemory, half_in, word_in};

/// Longest chain of inlined methods that is believed. HotSpot inlines 9 or 15 deep (`MaxInlineLevel`), and lambda forms
/// beyond that.
const MAX_CHAIN: usize = 512;
/// The scope of the first and the last record, which bound the others and have no scope.
const NO_SCOPE: u32 = 0;

/// The debug data of one method, in the JVM's encoding.
#[derive(Clone, Debug, Default)]
pub(super) struct DebugInfo {
    /// Pointers; the first has number 1.
    pub(super) metadata: Vec<u8>,
    /// Scopes: compressed numbers, found by their offsets.
    pub(super) scopes: Vec<u8>,
    /// Records in the order of their addresses.
    pub(super) records: Vec<u8>,
}

/// A method in a chain, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MethodBci {
    /// Address of the method in the JVM: its `Method*`.
    pub(super) method: u64,
    /// −1 at the entry of a synchronized method.
    pub(super) bci: i32,
}

impl DebugInfo {
    /// The chain of methods, innermost first, of the first record at or above `offset` bytes into the code. `None` if
    /// there is no such record.
    pub(super) fn chain(
        &self,
        layout: &VmLayout,
        offset: u32,
    ) -> Result<Option<Vec<MethodBci>>, InvalidMemory> {
        let NmethodOffsets { record_size, record_pc, record_scope, .. } = layout.nmethod;
        let size = usize::try_from(record_size).ok().filter(|size| *size > 0).ok_or(InvalidMemory)?;
        let scope = self.records.chunks_exact(size).find_map(|record| {
            let pc = half_in(record, record_pc).ok()?.cast_signed();
            let scope = half_in(record, record_scope).ok()?;
            (scope != NO_SCOPE && i64::from(pc) >= i64::from(offset)).then_some(scope)
        });
        scope.map(|scope| self.unfold(scope, layout.null_free).ok_or(InvalidMemory)).transpose()
    }

    fn unfold(&self, mut scope: u32, null_free: bool) -> Option<Vec<MethodBci>> {
        let mut chain = Vec::new();
        while scope != NO_SCOPE {
            let mut numbers = Unsigned5Stream::new(self.scopes.get(scope as usize..)?, null_free);
            let (sender, method, bci) = (numbers.number()?, numbers.number()?, numbers.number()?);
            if chain.len() >= MAX_CHAIN {
                return None;
            }
            let method = word_in(&self.metadata, u64::from(method.checked_sub(1)?) * 8).ok()?;
            // A bytecode index is written one higher, so that `InvocationEntryBci` (−1) becomes 0.
            chain.push(MethodBci { method, bci: bci.cast_signed().wrapping_sub(1) });
            scope = sender;
        }
        Some(chain)
    }
}
