//! Where the BPF program finds the trace contexts of threads: for each program that publishes them, the place of its
//! thread-local variable.

use anyhow::Context;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{Immutable, IntoBytes};

/// Programs that can have a place at a time.
pub(super) const PLACES: u32 = 8192;

/// Where each thread of a program has a thread-local variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadVariable {
    /// At the same distance from each thread's thread pointer.
    Static {
        /// Bytes from the thread pointer.
        offset: i64,
    },
    /// In a block of the module that each thread's table of blocks (the DTV) leads to.
    InBlock {
        /// The module's number, from 1 on.
        module: u32,
        /// Bytes from the block's beginning.
        offset: i64,
        /// The shape of the table.
        table: BlockTable,
    },
}

/// The shape of a libc's table of blocks (DTV).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTable {
    /// Where the table's address lies, in bytes from the thread pointer.
    pub pointer: i32,
    /// Where the number of entries lies, in bytes from the table's beginning.
    pub length: i32,
    /// Bytes of an entry, which begins with the address of a block.
    pub entry: u32,
}

/// The program of a process, by addresses that each exec changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramAddresses {
    /// First address of the program's own code.
    pub start_code: u64,
    /// Address after the last of the program's own code.
    pub end_code: u64,
    /// Address at which the stack begins.
    pub start_stack: u64,
}

/// `struct jp_context_place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
struct ContextPlace {
    start_code: u64,
    end_code: u64,
    start_stack: u64,
    offset: i64,
    module: u32,
    dtv: i32,
    length: i32,
    entry: u32,
}

const _: () = assert!(size_of::<ContextPlace>() == 48 && std::mem::offset_of!(ContextPlace, module) == 32);

impl ContextPlace {
    fn new(program: ProgramAddresses, variable: ThreadVariable) -> ContextPlace {
        let ProgramAddresses { start_code, end_code, start_stack } = program;
        let of = |offset, module, table: BlockTable| ContextPlace {
            start_code,
            end_code,
            start_stack,
            offset,
            module,
            dtv: table.pointer,
            length: table.length,
            entry: table.entry,
        };
        match variable {
            ThreadVariable::Static { offset } => {
                of(offset, 0, BlockTable { pointer: 0, length: 0, entry: 0 })
            }
            ThreadVariable::InBlock { module, offset, table } => of(offset, module, table),
        }
    }
}

/// The map of these places, which the running program reads; usable from any thread.
#[derive(Debug)]
pub struct ContextMap(MapHandle);

impl ContextMap {
    pub(super) fn new(map: MapHandle) -> ContextMap {
        ContextMap(map)
    }

    /// From now on, samples of this program have their trace contexts.
    ///
    /// # Errors
    /// When the map is full, or bpf(2) cannot update it.
    pub fn publish(
        &self,
        tgid: u32,
        program: ProgramAddresses,
        variable: ThreadVariable,
    ) -> anyhow::Result<()> {
        let place = ContextPlace::new(program, variable);
        let updated = self.0.update(&tgid.to_ne_bytes(), place.as_bytes(), MapFlags::ANY);
        updated.with_context(|| format!("publishing where process {tgid} has its trace contexts"))
    }

    /// Removes a process that has ended, or executed a program without trace contexts.
    pub fn withdraw(&self, tgid: u32) {
        // The map may lack the process.
        let _ = self.0.delete(&tgid.to_ne_bytes());
    }
}
