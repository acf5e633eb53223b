//! Tables that mostly have a section header, found by the program headers: the dynamic linker's symbols, and call frame
//! information.
//!
//! Programs run without section headers: `sstrip`, `llvm-objcopy --strip-sections`, `ld -z nosectionheader` and packers
//! leave none, or false ones. `PT_DYNAMIC` and `PT_GNU_EH_FRAME` lead to the tables that are needed at run time. System
//! V ABI, chapter 5, "Dynamic Linking"; Linux Standard Base, Core, 10.6.2; `DT_GNU_HASH`: binutils, `bfd/elflink.c`.

use std::fs::File;
use std::ops::Range;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, ParsedEhFrameHdr, Pointer};

use super::call_frames::SliceReader;
use super::elf::{Elf, ElfError, ElfSource, Section};
use super::fields::{ElfClass, Fields, SegmentPlace, TableSection};

/// Bytes read of a dynamic section; real ones have less than 1 KiB.
const MAX_DYNAMIC: u64 = 64 << 10;
/// Bytes read of the header of `.eh_frame`: two million functions.
const MAX_HEADER: u64 = 16 << 20;
/// Bytes of call frame information whose end is not known.
const MAX_ENDLESS: u64 = 64 << 20;
/// Bytes read of a hash table of symbols: a million symbols.
const MAX_HASHES: u64 = 4 << 20;

const DT_NEEDED: u64 = 1;
const DT_PLTRELSZ: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_STRSZ: u64 = 10;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

impl Elf {
    /// Reads the headers of `file`.
    ///
    /// # Errors
    /// If the file is not an ELF file, or its headers are false.
    pub fn read(file: File) -> Result<Elf, ElfError> {
        Elf::complete(ElfSource::File(file))
    }

    /// Reads the headers of a file that is in memory.
    pub(crate) fn read_memory(bytes: Vec<u8>) -> Result<Elf, ElfError> {
        Elf::complete(ElfSource::Memory(bytes))
    }

    fn complete(source: ElfSource) -> Result<Elf, ElfError> {
        let mut elf = Elf::read_headers(source)?;
        complete(&mut elf);
        Ok(elf)
    }
}

/// Adds the sections that only the program headers lead to.
fn complete(elf: &mut Elf) {
    if !is_loaded(elf, ".eh_frame")
        && let Some(found) = call_frames(elf)
    {
        elf.put_section(".eh_frame", found, 0);
    }
    if !is_loaded(elf, ".dynsym") {
        add_symbols(elf);
    }
}

/// Whether the section exists, and the program headers put the same bytes at its address.
fn is_loaded(elf: &Elf, name: &str) -> bool {
    let same = |section: &Section| {
        elf.place_of(section.addr)
            .is_some_and(|place| place.offset == section.offset && section.size <= place.remaining)
    };
    elf.section(name).is_some_and(same)
}

/// The call frame information. Its end is that of the last description in the header's table.
fn call_frames(elf: &Elf) -> Option<TableSection> {
    let header = elf.eh_frame_header()?;
    let mut bytes = vec![0; usize::try_from(header.size.min(MAX_HEADER)).ok()?];
    let read = elf.read_some(&mut bytes, header.offset).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let address_size = if elf.class() == ElfClass::Elf64 { 8 } else { 4 };
    let parsed = EhFrameHdr::new(&bytes[..read], LittleEndian).parse(&bases, address_size).ok()?;
    let address = parsed.eh_frame_ptr().direct().ok()?;
    let SegmentPlace { offset, remaining } = elf.place_of(address)?;
    let end = Some(header.size).filter(|&size| size <= MAX_HEADER).and_then(|_| end(elf, &parsed, &bases));
    let stated_size =
        end.and_then(|end| end.checked_sub(address)).filter(|&size| (1..=remaining).contains(&size));
    Some(TableSection { address, offset, size: stated_size.unwrap_or(remaining.min(MAX_ENDLESS)) })
}

/// The address after the last description in the header's table.
fn end(elf: &Elf, header: &ParsedEhFrameHdr<SliceReader<'_>>, bases: &BaseAddresses) -> Option<u64> {
    let table = header.table()?;
    let mut entries = table.iter(bases);
    let mut last = None;
    while let Ok(Some((_, Pointer::Direct(description)))) = entries.next() {
        last = last.max(Some(description));
    }
    let length = elf.bytes(elf.place_of(last?)?.offset, 4, 4).ok()?;
    last?.checked_add(4)?.checked_add(Fields(&length).u32(0).into())
}

/// Adds the dynamic linker's symbols, and the relocations that name them.
fn add_symbols(elf: &mut Elf) {
    let Some(dynamic) = Dynamic::read(elf) else { return };
    let record = if elf.class() == ElfClass::Elf64 { 24 } else { 16 };
    let symbols = dynamic
        .hashed(elf)
        .and_then(|count| table_at(elf, dynamic.value(DT_SYMTAB)?, u64::from(count).checked_mul(record)?));
    let strings = dynamic.table(elf, DT_STRTAB, DT_STRSZ);
    let (Some(symbols), Some(strings)) = (symbols, strings) else { return };
    let link = elf.put_section(".dynstr", strings, 0);
    elf.put_section(".dynsym", symbols, link);
    for (name, address, size) in [(".rela.plt", DT_JMPREL, DT_PLTRELSZ), (".rela.dyn", DT_RELA, DT_RELASZ)] {
        if let Some(relocations) = dynamic.table(elf, address, size) {
            elf.put_section(name, relocations, 0);
        }
    }
}

/// Whether the file needs other files to run. A statically linked file does not, and neither does musl's library.
pub(super) fn needs_libraries(elf: &Elf) -> bool {
    Dynamic::read(elf).is_some_and(|dynamic| dynamic.value(DT_NEEDED).is_some())
}

/// Addresses of the relocations that the dynamic linker applies at the start.
pub(super) fn relocations(elf: &Elf) -> Option<Range<u64>> {
    let dynamic = Dynamic::read(elf)?;
    let start = dynamic.value(DT_RELA)?;
    Some(start..start.checked_add(dynamic.value(DT_RELASZ)?)?)
}

/// The table at an address, if the file has all of it.
fn table_at(elf: &Elf, address: u64, size: u64) -> Option<TableSection> {
    let SegmentPlace { offset, remaining } = elf.place_of(address)?;
    (1..=remaining).contains(&size).then_some(TableSection { address, offset, size })
}

/// The dynamic section: tags and their values.
struct Dynamic(Vec<(u64, u64)>);

impl Dynamic {
    fn read(elf: &Elf) -> Option<Dynamic> {
        let TableSection { offset, size, .. } = elf.dynamic()?;
        let bytes = elf.bytes(offset, size.min(MAX_DYNAMIC), MAX_DYNAMIC).ok()?;
        let entry = |entry: &[u8]| {
            let fields = Fields(entry);
            (fields.word(elf.class(), 0, 0), fields.word(elf.class(), 4, 8))
        };
        let size = if elf.class() == ElfClass::Elf64 { 16 } else { 8 };
        Some(Dynamic(bytes.chunks_exact(size).map(entry).take_while(|(tag, _)| *tag != 0).collect()))
    }

    fn value(&self, tag: u64) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == tag).map(|(_, value)| *value)
    }

    fn table(&self, elf: &Elf, address: u64, size: u64) -> Option<TableSection> {
        table_at(elf, self.value(address)?, self.value(size)?)
    }

    /// Number of symbols, which only their hash table gives.
    fn hashed(&self, elf: &Elf) -> Option<u32> {
        if let Some(at) = self.value(DT_HASH) {
            return elf.bytes(elf.place_of(at)?.offset, 8, 8).ok().map(|header| Fields(&header).u32(4));
        }
        let SegmentPlace { offset, remaining } = elf.place_of(self.value(DT_GNU_HASH)?)?;
        let table = elf.bytes(offset, remaining.min(MAX_HASHES), MAX_HASHES).ok()?;
        counted(&table, elf.class())
    }
}

/// Number of symbols by a table of `DT_GNU_HASH`. The last symbol is in the last chain of hashes, whose last hash is
/// odd.
fn counted(table: &[u8], class: ElfClass) -> Option<u32> {
    let fields = Fields(table);
    let (buckets, unhashed, bloom) = (fields.u32(0) as usize, fields.u32(4), fields.u32(8) as usize);
    let bloom_word = if class == ElfClass::Elf64 { 8 } else { 4 };
    let buckets_at = bloom.checked_mul(bloom_word)?.checked_add(16)?;
    let chains_at = buckets.checked_mul(4)?.checked_add(buckets_at)?;
    let words = |bytes: &[u8]| {
        Some(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect::<Vec<_>>())
    };
    let last = table.get(buckets_at..chains_at).and_then(words)?.into_iter().max()?;
    let Some(skipped) = last.checked_sub(unhashed) else { return Some(unhashed) };
    let chain = table.get(chains_at.checked_add((skipped as usize).checked_mul(4)?)?..).and_then(words)?;
    let length = chain.iter().position(|hash| hash & 1 == 1)?;
    last.checked_add(u32::try_from(length).ok()?)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hash_chain_gives_the_number_of_symbols() {
        // Two buckets; the first symbol with a hash is number 3; one word of the filter; the chains are 3 to 4 and 5 to
        // 7.
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let table = words(&[2, 3, 1, 0, 0, 0, 5, 3, 2, 1, 8, 6, 9]);
        assert_eq!(counted(&table, ElfClass::Elf64), Some(8));
        let narrow = words(&[2, 3, 1, 0, 0, 5, 3, 2, 1, 8, 6, 9]);
        assert_eq!(counted(&narrow, ElfClass::Elf32), Some(8));
        // All buckets are empty; a chain has no end; counts are false.
        assert_eq!(counted(&words(&[1, 3, 1, 0, 0, 0, 0]), ElfClass::Elf64), Some(3));
        assert_eq!(counted(&table[..table.len() - 4], ElfClass::Elf64), None);
        assert_eq!(counted(&words(&[u32::MAX, 3, u32::MAX, 0]), ElfClass::Elf64), None);
        assert_eq!(counted(&[], ElfClass::Elf64), None);
    }
}
