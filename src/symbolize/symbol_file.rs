//! An ELF file in which names are looked up: a mapped file, its debug file, or the file packed in it.

use std::cell::OnceCell;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use lzma_rust2::XzReader;

use super::aliases::Aliases;
use super::blaze::{BlazesymFile, ElfSymbol};
use super::elf::{Elf, SHF_EXECINSTR, Section};
use super::image;

/// A function whose symbol covers the address of a lookup.
#[derive(Clone, Debug)]
pub(super) struct CoveringSymbol {
    /// The symbol's name, not demangled.
    pub(super) name: Vec<u8>,
    pub(super) start: u64,
}

/// An ELF file with symbols. Each part is read when it is first needed.
pub(super) struct SymbolFile {
    pub(super) elf: Elf,
    has_packed_dwarf: bool,
    blaze: OnceCell<Option<BlazesymFile>>,
    /// The same file with its DWARF unpacked, if it is packed.
    unpacked: OnceCell<Option<BlazesymFile>>,
    aliases: OnceCell<Aliases>,
}

impl SymbolFile {
    pub(super) fn of(elf: Elf) -> SymbolFile {
        let has_packed_dwarf = image::has_packed_dwarf(&elf);
        let (blaze, unpacked, aliases) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        SymbolFile { elf, has_packed_dwarf, blaze, unpacked, aliases }
    }

    /// blazesym on this file; `None` if the file cannot be handed over.
    fn blaze(&self) -> Option<&BlazesymFile> {
        let take = || BlazesymFile::of(self.readable()?).ok();
        self.blaze.get_or_init(take).as_ref()
    }

    /// A descriptor from which blazesym can read the symbols.
    fn readable(&self) -> Option<OwnedFd> {
        match self.elf.file().filter(|_| !image::is_needed_for_symbols(&self.elf)) {
            // The worker may not call `fcntl`.
            Some(file) => rustix::io::dup(file).ok(),
            None => image::write(&self.elf, !self.has_packed_dwarf).ok(),
        }
    }

    /// blazesym on the DWARF of this file. Names alone do not need the DWARF unpacked.
    pub(super) fn lines(&self) -> Option<&BlazesymFile> {
        if !self.has_packed_dwarf {
            return self.blaze();
        }
        let unpack = || BlazesymFile::of(image::write(&self.elf, true).ok()?).ok();
        self.unpacked.get_or_init(unpack).as_ref()
    }

    /// The result of `lines`, if it was needed before.
    pub(super) fn cached_lines(&self) -> Option<&BlazesymFile> {
        let place = if self.has_packed_dwarf { &self.unpacked } else { &self.blaze };
        place.get()?.as_ref()
    }

    /// Adds the DWARF package of the file.
    pub(super) fn add_package(&self, package: OwnedFd) {
        // Without the package, the lines in the file itself remain.
        let _ = self.lines().map(|blaze| blaze.add_package(package));
    }

    /// The functions that cover these addresses.
    pub(super) fn covering(&self, addresses: &[u64]) -> Vec<Option<CoveringSymbol>> {
        let Some(blaze) = self.blaze() else { return vec![None; addresses.len()] };
        let covering = |(symbol, &address): (Option<ElfSymbol>, &u64)| {
            let ElfSymbol { name, start, .. } = symbol.filter(|symbol| symbol.covers(address))?;
            let name = self.aliases().find(&self.elf, start, address).unwrap_or_else(|| name.into_bytes());
            Some(CoveringSymbol { name, start })
        };
        blaze.symbols(addresses).into_iter().zip(addresses).map(covering).collect()
    }

    /// The function that begins at `start` and contains `address` by its size, even if another one begins between the
    /// two.
    pub(super) fn around(&self, start: u64, address: u64) -> Option<Vec<u8>> {
        let symbol = self.blaze()?.symbols(&[start]).pop()??;
        (symbol.start == start && symbol.covers(address)).then(|| symbol.name.into_bytes())
    }

    /// The function without a size, but with the type of a function, that may contain `address`. No other symbol and no
    /// other section may begin before `address`.
    pub(super) fn unsized_symbol(&self, address: u64) -> Option<CoveringSymbol> {
        // The dynamic table is not complete, so the code between two of its symbols is unknown.
        if !self.elf.has_symtab() {
            return None;
        }
        let ElfSymbol { start, .. } =
            self.blaze()?.symbols(&[address]).pop()?.filter(|symbol| symbol.size.is_none())?;
        let is_one = |s: &Section| s.flags & SHF_EXECINSTR != 0 && s.holds(start) && s.holds(address);
        self.elf.sections().iter().find(|section| is_one(section))?;
        let name = self.aliases().function(&self.elf, start)?;
        Some(CoveringSymbol { name, start })
    }

    /// The aliases, and the functions without a size, of this file's symbol table.
    pub(super) fn aliases(&self) -> &Aliases {
        let table = if self.elf.has_symtab() { ".symtab" } else { ".dynsym" };
        // A table that cannot be read has no aliases.
        self.aliases.get_or_init(|| Aliases::read(&self.elf, table).unwrap_or_default())
    }

    /// Memory held on the heap, bytes.
    pub(super) fn memory(&self) -> usize {
        let blaze = self.cached_lines().map_or(0, BlazesymFile::memory);
        self.elf.memory() + blaze + self.aliases.get().map_or(0, Aliases::memory)
    }

    /// The contents of `.gnu_debugdata`: an ELF file with the symbols that `.dynsym` lacks, packed by xz
    /// ("MiniDebugInfo": Fedora and its relatives strip everything else).
    pub(super) fn mini_debug_info(&self) -> Option<SymbolFile> {
        const MAX_PACKED: u64 = 64 << 20;
        const MAX_SYMBOLS: u64 = 128 << 20;
        let section = self.elf.section(".gnu_debugdata")?;
        let packed = self.elf.bytes(section.offset, section.size, MAX_PACKED).ok()?;
        let mut bytes = Vec::new();
        XzReader::new(&packed[..], false).take(MAX_SYMBOLS).read_to_end(&mut bytes).ok()?;
        bytes.shrink_to_fit();
        Elf::read_memory(bytes).ok().map(SymbolFile::of)
    }
}
