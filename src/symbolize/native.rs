//! Native code: the functions at an offset of a mapped file, with inlined functions unfolded.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;

use super::blaze::{BlazesymFile, SourceCode, SourceLocation};
use super::coroutine;
use super::demangle::{MAX_NAME, demangle};
use super::elf::{Elf, ElfError};
use super::entry;
use super::extents::Extents;
use super::file_traits;
use super::function::{FunctionName, NativeFunction};
use super::go::GoCode;
use super::htlhash;
use super::message::FileFacts;
use super::plt::Plt;
use super::shared::SharedDwarf;
use super::symbol_file::{CoveringSymbol, SymbolFile};
use crate::profile::frame::clean;
use crate::profile::{Kind, UnknownReason};

/// A mapped file. Each part is read when it is first needed.
pub struct Native {
    own: SymbolFile,
    debug_file: Option<SymbolFile>,
    mini: OnceCell<Option<SymbolFile>>,
    /// The file that its DWARF refers to.
    alternate: Option<Elf>,
    shared: RefCell<Option<SharedDwarf>>,
    plt: OnceCell<Plt>,
    extents: OnceCell<Extents>,
    go: OnceCell<GoCode>,
}

impl Native {
    /// Reads the headers.
    ///
    /// # Errors
    /// If the file is not an ELF file that can be read.
    pub fn open(file: File) -> Result<Native, ElfError> {
        Ok(Native::of(Elf::read(file)?))
    }

    /// Reads the headers of a file that is in memory.
    ///
    /// # Errors
    /// If the file is not an ELF file that can be read.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Native, ElfError> {
        Ok(Native::of(Elf::read_memory(bytes)?))
    }

    fn of(elf: Elf) -> Native {
        Native {
            own: SymbolFile::of(elf),
            debug_file: None,
            mini: OnceCell::new(),
            alternate: None,
            shared: RefCell::default(),
            plt: OnceCell::new(),
            extents: OnceCell::new(),
            go: OnceCell::new(),
        }
    }

    pub(crate) fn facts(&self) -> FileFacts {
        let own = &self.own.elf;
        let elf = self.debug_file.as_ref().map_or(own, |debug| &debug.elf);
        FileFacts {
            build_id: own.build_id(),
            htlhash: htlhash::of(own),
            wants_debug_file: self.debug_file.is_none()
                && !(own.has_debug_info() && own.has_symtab())
                && !self.go().is_all(own),
            debug_link: own.debug_link(),
            // Skeleton units refer to addresses in a section of their own.
            wants_package: own.has_debug_info() && own.section(".debug_addr").is_some(),
            alternate: elf.alternate_build_id(),
            traits: file_traits::traits(own),
        }
    }

    /// Adds the separate debug file, which must have the same build id, or, if there is none, the known checksum.
    ///
    /// # Errors
    /// If the file is not an ELF file, or does not belong to this one.
    pub fn add_debug_file(&mut self, file: File) -> Result<(), ElfError> {
        let (debug, own) = (Elf::read(file)?, &self.own.elf);
        if debug.build_id() != own.build_id() {
            return Err(ElfError::Malformed("the debug file has another build id"));
        }
        if own.build_id().is_none() && own.debug_link().map(|link| link.crc) != Some(debug.checksum()?) {
            return Err(ElfError::Malformed("the debug file has another checksum"));
        }
        self.debug_file = Some(SymbolFile::of(debug));
        Ok(())
    }

    /// Adds the file that shares DWARF with this one or with its debug file.
    ///
    /// # Errors
    /// If the file is not an ELF file, or not the expected one.
    pub fn add_alternate(&mut self, file: File) -> Result<(), ElfError> {
        let alternate = Elf::read(file)?;
        if alternate.build_id().is_none() || alternate.build_id() != self.facts().alternate {
            return Err(ElfError::Malformed("the shared debug file has another build id"));
        }
        self.alternate = Some(alternate);
        self.forget_lines();
        Ok(())
    }

    /// Adds the DWARF package. Its units say themselves whether they belong to this file.
    pub(crate) fn add_package(&self, file: File) {
        self.own.add_package(file.into());
    }

    /// The functions at each of these file offsets, outermost first: at least one, or [`UnknownReason::NoSymbol`] if no
    /// symbol and no other source names the offset. Without `lines`, DWARF is not read.
    pub fn functions_at(
        &self,
        offsets: &[u64],
        lines: bool,
    ) -> Vec<Result<Vec<NativeFunction>, UnknownReason>> {
        let addresses: Vec<Option<u64>> = offsets.iter().map(|&offset| self.address_of(offset)).collect();
        let mut asked: Vec<u64> = addresses.iter().flatten().copied().collect();
        asked.sort_unstable();
        asked.dedup();
        let mut found = HashMap::with_capacity(asked.len());
        asked.retain(|&address| {
            let go = self.go().functions(&self.own.elf, address);
            go.map(|functions| found.insert(address, Ok(functions))).is_none()
        });
        let code = if lines { self.source_code(&asked) } else { vec![None; asked.len()] };
        for ((&address, symbol), code) in asked.iter().zip(self.covering(&asked)).zip(code) {
            found.insert(address, self.named(address, symbol, code.unwrap_or_default()));
        }
        let answer = |address: &Option<u64>| found.get(&(*address)?).cloned();
        addresses.iter().map(|address| answer(address).unwrap_or(Err(UnknownReason::NoSymbol))).collect()
    }

    /// The virtual address of a file offset.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        self.own.elf.address_of(offset)
    }

    /// Memory held for this file on the heap, bytes, as far as it is known.
    #[must_use]
    pub fn memory(&self) -> usize {
        let mini = self.mini.get().and_then(Option::as_ref);
        let files = [Some(&self.own), self.debug_file.as_ref(), mini];
        let files: usize = files.into_iter().flatten().map(SymbolFile::memory).sum();
        files + self.extents.get().map_or(0, Extents::memory)
    }

    /// Frees memory whose content is quickly read again. Returns whether such memory is still held.
    pub(crate) fn trim(&self) -> bool {
        *self.shared.borrow_mut() = None;
        self.dwarf().and_then(SymbolFile::cached_lines).is_some_and(BlazesymFile::trim)
    }

    /// Frees all such memory, because other files are looked up now.
    pub(crate) fn forget_lines(&self) {
        *self.shared.borrow_mut() = None;
        self.dwarf().and_then(SymbolFile::cached_lines).into_iter().for_each(BlazesymFile::forget_lines);
    }

    /// The functions at an address: by symbols, then DWARF, then the PLT, then the extent of the code.
    fn named(
        &self,
        address: u64,
        symbol: Option<CoveringSymbol>,
        code: SourceCode,
    ) -> Result<Vec<NativeFunction>, UnknownReason> {
        let SourceCode { function, own, inlined } = code;
        // Linkers leave the DWARF of functions that they removed, at addresses that other functions have now.
        let removed = symbol.as_ref().zip(function.as_ref()).is_some_and(|(symbol, function)| {
            !function.has_parts()
                && function.start != symbol.start
                && !self.same_function(function.start, address)
        });
        let (own, inlined) = if removed { Default::default() } else { (own, inlined) };
        let of_dwarf = || function.filter(|function| function.has_parts() || function.covers(address));
        let raw = symbol.map(|symbol| symbol.name).or_else(|| of_dwarf().map(|f| f.name.into_bytes()));
        let (called, kind) = match raw.or_else(|| self.plt().find(&self.own.elf, address)) {
            Some(raw) => called(&raw),
            None => self.extent(address).ok_or(UnknownReason::NoSymbol)?,
        };
        let outer =
            NativeFunction { kind, called, file: own.file.map(|file| clean_path(&file)), line: own.line };
        Ok(std::iter::once(outer)
            .chain(inlined.into_iter().filter_map(|(name, at)| inlined_function(&name, at)))
            .collect())
    }

    /// Whether two addresses are in one function by call frame information.
    fn same_function(&self, start: u64, address: u64) -> bool {
        let extents = self.extents();
        extents.start_of(start).is_some_and(|start| extents.start_of(address) == Some(start))
    }

    /// The functions whose symbols cover these addresses.
    fn covering(&self, addresses: &[u64]) -> Vec<Option<CoveringSymbol>> {
        let mut found = vec![None; addresses.len()];
        for table in self.tables() {
            let missing: Vec<usize> = (0..found.len()).filter(|&place| found[place].is_none()).collect();
            if missing.is_empty() {
                break;
            }
            let asked: Vec<u64> = missing.iter().map(|&place| addresses[place]).collect();
            for (place, symbol) in missing.into_iter().zip(table.covering(&asked)) {
                found[place] = symbol;
            }
        }
        found
    }

    /// DWARF's answers for these addresses.
    fn source_code(&self, addresses: &[u64]) -> Vec<Option<SourceCode>> {
        let Some(file) = self.dwarf() else { return vec![None; addresses.len()] };
        let Some(alternate) = &self.alternate else {
            let blaze = file.lines();
            return blaze.map_or_else(|| vec![None; addresses.len()], |blaze| blaze.source_code(addresses));
        };
        let mut shared = self.shared.borrow_mut();
        if shared.is_none() {
            *shared = SharedDwarf::read(&file.elf, alternate).ok();
        }
        addresses.iter().map(|&address| shared.as_ref()?.source_code(address)).collect()
    }

    /// The function that contains `address`, by the extent of its code.
    fn extent(&self, address: u64) -> Option<(FunctionName, Kind)> {
        let (elf, extents) = (&self.own.elf, self.extents());
        let (start, raw) = match extents.start_of(address) {
            Some(start) => {
                let name = |table: &SymbolFile| {
                    let own = || table.aliases().beginning_at(&table.elf, start, address);
                    table.around(start, address).or_else(own)
                };
                (start, self.tables().find_map(name))
            }
            // A return address is looked up by the byte before it, where no function is.
            None if coroutine::begins(elf, address.wrapping_add(1)) => {
                let start = address.wrapping_add(1);
                (start, self.covering(&[start]).pop().flatten().map(|symbol| symbol.name))
            }
            None => match entry::start_of(elf, extents, address) {
                Some(start) => {
                    let name = |table: &SymbolFile| table.aliases().last_within(&table.elf, start, address);
                    (start, self.tables().find_map(name))
                }
                None => {
                    let symbol = self.unsized_symbol(address)?;
                    (symbol.start, Some(symbol.name))
                }
            },
        };
        Some(raw.map_or((FunctionName::Start(start), Kind::Native), |raw| called(&raw)))
    }

    /// The function without a size that reaches to an address, as far as known. A function with a description ends
    /// where its description ends.
    fn unsized_symbol(&self, address: u64) -> Option<CoveringSymbol> {
        let symbol = self.tables().find_map(|table| table.unsized_symbol(address))?;
        let extents = self.extents();
        let next = extents.next(symbol.start).is_none_or(|next| next > address);
        (next && extents.start_of(symbol.start).is_none()).then_some(symbol)
    }

    /// Files in which names are looked up, in this order: a full table contains all of the dynamic one.
    fn tables(&self) -> impl Iterator<Item = &SymbolFile> {
        let (own, debug) = (Some(&self.own), self.debug_file.as_ref());
        let is_full = self.own.elf.has_symtab();
        let [first, second] = if is_full { [own, debug] } else { [debug, own] };
        let mini = std::iter::once_with(move || if is_full { None } else { self.mini() });
        first.into_iter().chain(second).chain(mini.flatten())
    }

    fn mini(&self) -> Option<&SymbolFile> {
        self.mini.get_or_init(|| self.own.mini_debug_info()).as_ref()
    }

    fn go(&self) -> &GoCode {
        self.go.get_or_init(|| GoCode::read(&self.own.elf))
    }

    fn plt(&self) -> &Plt {
        self.plt.get_or_init(|| Plt::read(&self.own.elf))
    }

    fn extents(&self) -> &Extents {
        self.extents.get_or_init(|| Extents::read(&self.own.elf))
    }

    /// The file that has DWARF.
    fn dwarf(&self) -> Option<&SymbolFile> {
        let files = std::iter::once(&self.own).chain(&self.debug_file);
        files.into_iter().find(|file| file.elf.has_debug_info())
    }
}

fn called(raw: &[u8]) -> (FunctionName, Kind) {
    let plain = raw.strip_suffix(b"@plt");
    let (name, kind) = demangle(plain.unwrap_or(raw));
    (FunctionName::Name(if plain.is_some() { name + "@plt" } else { name }), kind)
}

/// An inlined function without a name is left out: the line in its caller is known.
fn inlined_function(name: &str, at: SourceLocation) -> Option<NativeFunction> {
    let (name, _) = Some(name).filter(|name| !name.is_empty()).map(|name| demangle(name.as_bytes()))?;
    Some(NativeFunction {
        kind: Kind::NativeInlined,
        called: FunctionName::Name(name),
        file: at.file.map(|file| clean_path(&file)),
        line: at.line,
    })
}

fn clean_path(path: &str) -> String {
    clean(path.as_bytes(), MAX_NAME)
}
