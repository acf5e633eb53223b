//! blazesym on one file, given as a descriptor: names from its symbol table, lines and inlined functions from its
//! DWARF.
//!
//! Each file has two symbolizers, one for names and one for lines. Dropping a symbolizer frees its memory, and no cache
//! holds two files under one name.

#[cfg(test)]
mod oracle_tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use super::doors::PathFd;
use super::memory;

/// Addresses in one lookup of lines.
const SLICE: usize = 128;
/// Memory that DWARF may take during a request, bytes: blazesym keeps each unit that it has read.
const MAX_BUSY: usize = 64 << 20;
/// Memory that DWARF may take between requests, bytes.
const MAX_KEPT: usize = 4 << 20;

/// A symbol of a symbol table, or a function of DWARF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ElfSymbol {
    pub(super) name: String,
    pub(super) start: u64,
    /// Bytes; `None` if the table does not state a size.
    pub(super) size: Option<u64>,
}

impl ElfSymbol {
    fn of(sym: &Sym<'_>) -> ElfSymbol {
        ElfSymbol { name: sym.name.to_string(), start: sym.addr, size: sym.size.map(|size| size as u64) }
    }

    /// Whether this is a DWARF function of several parts; blazesym found the address in one of them.
    pub(super) fn has_parts(&self) -> bool {
        self.start == 0 && self.size.is_none()
    }

    /// Whether the symbol's own size covers `address`.
    pub(super) fn covers(&self, address: u64) -> bool {
        let within = address.checked_sub(self.start).zip(self.size);
        !self.name.is_empty() && within.is_some_and(|(at, size)| at < size)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceLocation {
    pub(super) file: Option<String>,
    /// Source line; 0 if unknown.
    pub(super) line: u32,
}

impl SourceLocation {
    fn of(info: Option<&CodeInfo<'_>>) -> SourceLocation {
        info.map_or_else(SourceLocation::default, |info| SourceLocation {
            file: Some(info.to_path().to_string_lossy().into_owned()),
            line: info.line.unwrap_or(0),
        })
    }
}

/// Functions and lines that DWARF gives for one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceCode {
    /// The outer function, which was not inlined; `None` if DWARF names none.
    pub(super) function: Option<ElfSymbol>,
    /// The location in that function.
    pub(super) own: SourceLocation,
    /// The inlined functions, outermost first, each with its location; a name may be empty.
    pub(super) inlined: Vec<(String, SourceLocation)>,
}

/// A file, and blazesym's symbolizers for it.
pub(super) struct BlazesymFile {
    // Fields drop in order: the symbolizers refer to the door by its name, so they stand before it.
    names: OnceCell<Symbolizer>,
    lines: RefCell<Option<Symbolizer>>,
    /// Bytes that the symbolizer of `lines` holds.
    taken: Cell<usize>,
    /// The file's names (below: its lines) cannot be read, and no further attempt is made.
    no_names: Cell<bool>,
    no_lines: Cell<bool>,
    door: PathFd,
}

impl BlazesymFile {
    /// Fails if there are too many descriptors.
    pub(super) fn of(file: OwnedFd) -> std::io::Result<BlazesymFile> {
        Ok(BlazesymFile {
            names: OnceCell::new(),
            lines: RefCell::default(),
            taken: Cell::default(),
            no_names: Cell::default(),
            no_lines: Cell::default(),
            door: PathFd::to(file)?,
        })
    }

    /// Adds the file's DWARF package. Fails if there are too many descriptors.
    pub(super) fn add_package(&self, package: OwnedFd) -> std::io::Result<()> {
        self.forget_lines();
        self.no_lines.set(false);
        self.door.add_package(package)
    }

    /// The symbol nearest to each address, in blazesym's sense: a symbol may end before the address.
    pub(super) fn symbols(&self, addresses: &[u64]) -> Vec<Option<ElfSymbol>> {
        if self.no_names.get() {
            return vec![None; addresses.len()];
        }
        let symbolizer = self.names.get_or_init(|| symbolizer(false));
        let Ok(found) = symbolizer.symbolize(&self.source(false), Input::VirtOffset(addresses)) else {
            self.no_names.set(true);
            return vec![None; addresses.len()];
        };
        let symbol = |found: &Symbolized<'_>| match found {
            Symbolized::Sym(sym) => Some(ElfSymbol::of(sym)),
            Symbolized::Unknown(_) => None,
        };
        found.iter().map(symbol).collect()
    }

    /// DWARF's answer for each address. Addresses near each other should be looked up together.
    pub(super) fn source_code(&self, addresses: &[u64]) -> Vec<Option<SourceCode>> {
        let mut all = Vec::with_capacity(addresses.len());
        for slice in addresses.chunks(SLICE) {
            if self.no_lines.get() {
                break;
            }
            let before = memory::in_use();
            let mut held = self.lines.borrow_mut();
            let symbolizer = held.get_or_insert_with(|| symbolizer(true));
            match symbolizer.symbolize(&self.source(true), Input::VirtOffset(slice)) {
                Ok(found) => {
                    let own = self.symbols(slice);
                    all.extend(found.iter().zip(own).map(|(found, own)| source_code(found, own.as_ref())));
                }
                Err(_) => self.no_lines.set(true),
            }
            self.taken.set(self.taken.get() + memory::in_use().saturating_sub(before));
            drop(held);
            memory::bound_files();
            if self.taken.get() > MAX_BUSY || self.no_lines.get() {
                self.forget_lines();
            }
        }
        all.resize(addresses.len(), None);
        all
    }

    /// Memory that DWARF takes, bytes.
    pub(super) fn memory(&self) -> usize {
        self.taken.get()
    }

    /// Frees the memory of DWARF if it is much. Returns whether DWARF is still held.
    pub(super) fn trim(&self) -> bool {
        if self.taken.get() > MAX_KEPT {
            self.forget_lines();
        }
        self.lines.borrow().is_some()
    }

    /// Frees the memory of DWARF.
    pub(super) fn forget_lines(&self) {
        if self.lines.borrow_mut().take().is_some() {
            self.taken.set(0);
            memory::give_back_heap();
        }
    }

    fn source(&self, debug_syms: bool) -> Source<'static> {
        let mut elf = Elf::new(self.door.name());
        elf.debug_syms = debug_syms;
        Source::Elf(elf)
    }
}

fn symbolizer(lines: bool) -> Symbolizer {
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(lines)
        .enable_inlined_fns(lines)
        .enable_demangling(false)
        .set_debug_dirs(Some(std::iter::empty::<&Path>()))
        .build()
}

/// If DWARF has no function, blazesym returns the symbol table's one, `own`. So a symbol equal to `own` is left out.
fn source_code(found: &Symbolized<'_>, own: Option<&ElfSymbol>) -> Option<SourceCode> {
    let Symbolized::Sym(sym) = found else { return None };
    let function = Some(ElfSymbol::of(sym)).filter(|symbol| Some(symbol) != own && !symbol.name.is_empty());
    let inlined = sym.inlined.iter();
    let inlined = inlined.map(|one| (one.name.to_string(), SourceLocation::of(one.code_info.as_ref())));
    Some(SourceCode {
        function,
        own: SourceLocation::of(sym.code_info.as_deref()),
        inlined: inlined.collect(),
    })
}
