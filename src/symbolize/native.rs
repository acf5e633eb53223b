//! Native code: the functions at an offset of a mapped file, inlined ones unfolded.

use std::cell::OnceCell;
use std::fs::File;

use super::bytes::mini_debug_info;
use super::coroutine;
use super::demangle::{MAX_NAME, demangle};
use super::dwarf::{Call, Debug};
use super::elf::{Elf, ElfError};
use super::entry;
use super::extents::Extents;
use super::file_traits;
use super::function::{Called, Function};
use super::go::GoCode;
use super::message::FileFacts;
use super::plt::Plt;
use super::symtab::Symbols;
use crate::profile::frame::clean;
use crate::profile::{Kind, Why};

/// A mapped file with what has been read of it; each part is read when it is first needed.
pub struct Native {
    elf: Elf,
    symbols: OnceCell<Symbols>,
    dynamic: OnceCell<Symbols>,
    mini: OnceCell<Option<(Elf, Symbols)>>,
    plt: OnceCell<Plt>,
    extents: OnceCell<Extents>,
    debug_file: Option<Elf>,
    debug_symbols: OnceCell<Symbols>,
    alternate: Option<Elf>,
    debug: OnceCell<Option<Debug>>,
    go: OnceCell<GoCode>,
}

impl Native {
    /// Reads the headers.
    ///
    /// # Errors
    /// If it is no ELF file that can be read.
    pub fn open(file: File) -> Result<Native, ElfError> {
        Ok(Native::of(Elf::read(file)?))
    }

    /// Reads the headers of a file that is in memory.
    ///
    /// # Errors
    /// If it is no ELF file that can be read.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Native, ElfError> {
        Ok(Native::of(Elf::read_memory(bytes)?))
    }

    fn of(elf: Elf) -> Native {
        Native {
            elf,
            symbols: OnceCell::new(),
            dynamic: OnceCell::new(),
            mini: OnceCell::new(),
            plt: OnceCell::new(),
            extents: OnceCell::new(),
            debug_file: None,
            debug_symbols: OnceCell::new(),
            alternate: None,
            debug: OnceCell::new(),
            go: OnceCell::new(),
        }
    }

    pub(crate) fn facts(&self) -> FileFacts {
        let elf = self.debug_file.as_ref().unwrap_or(&self.elf);
        FileFacts {
            build_id: self.elf.build_id(),
            wants_debug_file: self.debug_file.is_none()
                && !(self.elf.has_debug_info() && self.elf.has_symtab())
                && !self.go().is_all(&self.elf),
            alternate: elf.alternate_build_id(),
            traits: file_traits::traits(&self.elf),
        }
    }

    /// Takes the separate debug file; one with another build id is refused.
    ///
    /// # Errors
    /// If it is no ELF file, or does not belong to this one.
    pub fn add_debug_file(&mut self, file: File) -> Result<(), ElfError> {
        let debug = Elf::read(file)?;
        if debug.build_id().is_none() || debug.build_id() != self.elf.build_id() {
            return Err(ElfError::Malformed("the debug file has another build id"));
        }
        self.debug_file = Some(debug);
        self.debug_symbols = OnceCell::new();
        self.debug = OnceCell::new();
        Ok(())
    }

    /// Takes the file that shares DWARF with this one or with its debug file.
    ///
    /// # Errors
    /// If it is no ELF file, or not the one that was meant.
    pub fn add_alternate(&mut self, file: File) -> Result<(), ElfError> {
        let alternate = Elf::read(file)?;
        if alternate.build_id().is_none() || alternate.build_id() != self.facts().alternate {
            return Err(ElfError::Malformed("the shared debug file has another build id"));
        }
        self.alternate = Some(alternate);
        self.debug = OnceCell::new();
        Ok(())
    }

    /// The functions at a file offset, outermost first: at least one.
    ///
    /// # Errors
    /// [`Why::NoSymbol`] if no symbol covers it, and nothing else tells of which function it is.
    pub fn functions(&self, offset: u64) -> Result<Vec<Function>, Why> {
        let address = self.elf.address_of(offset).ok_or(Why::NoSymbol)?;
        if let Some(functions) = self.go().functions(&self.elf, address) {
            return Ok(functions);
        }
        let mut calls = self.debug().map_or_else(Vec::new, |d| d.calls(address));
        let own = calls.pop().unwrap_or_default();
        let raw = self.symbol(address).or(own.name).or_else(|| self.plt().find(&self.elf, address));
        let (called, kind) = match raw {
            Some(raw) => called(&raw),
            None => self.extent(address).ok_or(Why::NoSymbol)?,
        };
        let outer = Function { kind, called, file: own.file.map(|f| clean_path(&f)), line: own.line };
        // An inlined function without a name is left out: its caller's line is known.
        let inlined = calls.into_iter().rev().filter_map(inlined);
        Ok(std::iter::once(outer).chain(inlined).collect())
    }

    /// Memory held for this file on the heap, bytes, as far as it is known.
    #[must_use]
    pub fn memory(&self) -> usize {
        let tables = [&self.symbols, &self.dynamic, &self.debug_symbols];
        let symbols: usize = tables.iter().filter_map(|t| t.get()).map(Symbols::memory).sum();
        let mini = self.mini.get().and_then(Option::as_ref).map_or(0, |(e, s)| e.memory() + s.memory());
        let extents = self.extents.get().map_or(0, Extents::memory);
        symbols + mini + extents + self.debug.get().and_then(Option::as_ref).map_or(0, Debug::memory)
    }

    /// Gives back memory that is quickly had again; whether it still holds some.
    pub(crate) fn rest(&self) -> bool {
        matches!(self.debug.get(), Some(Some(debug)) if debug.rest())
    }

    /// Gives back all of that: others are asked for now.
    pub(crate) fn forget_units(&self) {
        if let Some(Some(debug)) = self.debug.get() {
            debug.forget_units();
        }
    }

    fn symbol(&self, address: u64) -> Option<Vec<u8>> {
        self.in_tables(|symbols, elf| symbols.find(elf, address))
    }

    /// The function that has code at `address`, by the extent of its code.
    fn extent(&self, address: u64) -> Option<(Called, Kind)> {
        let extents = self.extents.get_or_init(|| Extents::read(&self.elf));
        let (start, raw) = match extents.start_of(address) {
            Some(start) => (start, self.in_tables(|symbols, elf| symbols.starting(elf, start, address))),
            // Of a return address the byte before it is asked for, and there is nothing.
            None if coroutine::begins(&self.elf, address.wrapping_add(1)) => {
                let start = address.wrapping_add(1);
                (start, self.in_tables(|symbols, elf| symbols.find(elf, start)))
            }
            None => {
                let start = entry::start_of(&self.elf, extents, address)?;
                (start, self.in_tables(|symbols, elf| symbols.mark(elf, start, address)))
            }
        };
        Some(raw.map_or((Called::Start(start), Kind::Native), |raw| called(&raw)))
    }

    /// What the first symbol table says that has an answer.
    fn in_tables(&self, find: impl Fn(&Symbols, &Elf) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let symbols = self.symbols.get_or_init(|| table(&self.elf, ".symtab"));
        if let Some(name) = find(symbols, &self.elf) {
            return Some(name);
        }
        if let Some(debug) = &self.debug_file {
            let symbols = self.debug_symbols.get_or_init(|| table(debug, ".symtab"));
            if let Some(name) = find(symbols, debug) {
                return Some(name);
            }
        }
        if !symbols.is_empty() {
            return None; // a full table has all of the dynamic one
        }
        let dynamic = self.dynamic.get_or_init(|| table(&self.elf, ".dynsym"));
        if let Some(name) = find(dynamic, &self.elf) {
            return Some(name);
        }
        let read = || {
            let elf = mini_debug_info(&self.elf)?;
            let symbols = table(&elf, ".symtab");
            Some((elf, symbols))
        };
        let (elf, symbols) = self.mini.get_or_init(read).as_ref()?;
        find(symbols, elf)
    }

    fn go(&self) -> &GoCode {
        self.go.get_or_init(|| GoCode::read(&self.elf))
    }

    fn plt(&self) -> &Plt {
        self.plt.get_or_init(|| Plt::read(&self.elf))
    }

    fn debug(&self) -> Option<&Debug> {
        let read = || {
            let own = Some(&self.elf).filter(|e| e.has_debug_info());
            let elf = own.or(self.debug_file.as_ref()).filter(|e| e.has_debug_info())?;
            Debug::read(elf, self.alternate.as_ref()).ok()
        };
        self.debug.get_or_init(read).as_ref()
    }
}

/// A table that cannot be read has no symbols.
fn table(elf: &Elf, name: &str) -> Symbols {
    Symbols::read(elf, name).unwrap_or_default()
}

fn called(raw: &[u8]) -> (Called, Kind) {
    let plain = raw.strip_suffix(b"@plt");
    let (name, kind) = demangle(plain.unwrap_or(raw));
    (Called::Name(if plain.is_some() { name + "@plt" } else { name }), kind)
}

fn inlined(call: Call) -> Option<Function> {
    let (name, _) = demangle(&call.name?);
    Some(Function {
        kind: Kind::NativeInlined,
        called: Called::Name(name),
        file: call.file.map(|f| clean_path(&f)),
        line: call.line,
    })
}

fn clean_path(path: &str) -> String {
    clean(path.as_bytes(), MAX_NAME)
}
