//! blazesym on one file that was handed in: names from its symbol table, lines and inlined functions from its DWARF.
//!
//! Both have a symbolizer, and each file its own: what one of them holds is given back by dropping it, and no cache has two
//! files under one name.

#[cfg(test)]
mod oracle_tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use super::doors::Door;
use super::memory;

/// Addresses whose lines are asked for at a time.
const SLICE: usize = 128;
/// What DWARF may take while a request is answered, bytes: blazesym keeps each unit that it has met.
const MAX_BUSY: usize = 64 << 20;
/// What DWARF may take between requests, bytes.
const MAX_KEPT: usize = 4 << 20;

/// A symbol as a table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ElfSymbol {
    pub(super) name: String,
    pub(super) start: u64,
    /// Bytes; none if the table does not say it.
    pub(super) size: Option<u64>,
}

impl ElfSymbol {
    fn of(sym: &Sym<'_>) -> ElfSymbol {
        ElfSymbol { name: sym.name.to_string(), start: sym.addr, size: sym.size.map(|size| size as u64) }
    }

    /// Whether it is a function of DWARF that has several parts: blazesym found the address in one of them.
    pub(super) fn has_parts(&self) -> bool {
        self.start == 0 && self.size.is_none()
    }

    /// Whether its own size says that it has the code at an address.
    pub(super) fn covers(&self, address: u64) -> bool {
        let within = address.checked_sub(self.start).zip(self.size);
        !self.name.is_empty() && within.is_some_and(|(at, size)| at < size)
    }
}

/// A place in a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceLocation {
    pub(super) file: Option<String>,
    /// 0 if unknown.
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

/// What DWARF says of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceCode {
    /// The function that has code of its own; none if DWARF has none.
    pub(super) function: Option<ElfSymbol>,
    /// Where that function is.
    pub(super) own: SourceLocation,
    /// The functions that were inlined, outermost first, each with where it is; a name may be empty.
    pub(super) inlined: Vec<(String, SourceLocation)>,
}

/// A file, and what blazesym holds of it.
pub(super) struct Blaze {
    // Dropped before the door: they have it by name.
    names: OnceCell<Symbolizer>,
    lines: RefCell<Option<Symbolizer>>,
    /// Bytes that the lines' symbolizer has taken.
    taken: Cell<usize>,
    /// The file cannot be read for names, for lines: that is not tried again.
    no_names: Cell<bool>,
    no_lines: Cell<bool>,
    door: Door,
}

impl Blaze {
    /// Takes a file.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub(super) fn of(file: OwnedFd) -> std::io::Result<Blaze> {
        Ok(Blaze {
            names: OnceCell::new(),
            lines: RefCell::default(),
            taken: Cell::default(),
            no_names: Cell::default(),
            no_lines: Cell::default(),
            door: Door::to(file)?,
        })
    }

    /// Takes the DWARF package of the file.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub(super) fn add_package(&self, package: OwnedFd) -> std::io::Result<()> {
        self.forget_lines();
        self.no_lines.set(false);
        self.door.add_package(package)
    }

    /// The symbols that are nearest to each address, as blazesym understands it: one may end before it.
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

    /// What DWARF says of each address; those that are near each other should be asked for together.
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

    /// Bytes that DWARF takes.
    pub(super) fn memory(&self) -> usize {
        self.taken.get()
    }

    /// Gives back what DWARF takes if it is much; whether there is still some.
    pub(super) fn trim(&self) -> bool {
        if self.taken.get() > MAX_KEPT {
            self.forget_lines();
        }
        self.lines.borrow().is_some()
    }

    /// Gives back what DWARF takes.
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

/// blazesym asks the symbol table if DWARF has no function: that is what it says itself then, `own`.
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
