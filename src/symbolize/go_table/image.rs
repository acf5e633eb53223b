//! The bytes of a program as its segments map them, and where in them a line table may begin.

use std::ops::Range;

/// Each line table begins with one of these; the first byte depends on the version (`internal/abi.PCLnTabMagic`).
pub(super) const MAGICS: [u32; 3] = [GO_1_16, GO_1_18, GO_1_20];
pub(super) const GO_1_16: u32 = 0xffff_fffa;
pub(super) const GO_1_18: u32 = 0xffff_fff0;
pub(super) const GO_1_20: u32 = 0xffff_fff1;

/// Sections that contain only the table: of programs, and of programs that can be loaded anywhere.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Sections that only Go has. Foreign linkers move the table into another section, but keep these.
const MARKS: [&str; 2] = [".note.go.buildid", ".go.buildinfo"];
/// Bytes searched for the table in one file; the largest Go programs have 300 MiB.
const MAX_SEARCHED: u64 = 512 << 20;
/// Places in one file that look like the beginning of a table.
const MAX_TABLES: usize = 16;
/// Bytes searched at a time.
const PIECE: usize = 64 << 10;
/// Bytes of a table's beginning that have known values.
const BEGINNING: usize = 8;

/// The file of a program.
pub(crate) trait Image {
    /// Reads as many bytes from a virtual address on as `buffer` takes and the file has. Returns their number.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;
    /// The addresses that are mapped from the file.
    fn mapped(&self) -> Vec<MappedImage>;
    /// Whether one executable segment has all of these addresses.
    fn is_code(&self, addresses: Range<u64>) -> bool;
    /// The address of a section.
    fn section(&self, name: &str) -> Option<u64>;
    /// The relocations that the loader applies, 24 bytes each (`Elf64_Rela`).
    fn relocations(&self) -> Option<Range<u64>>;
    /// The type of relocations that write an address of the file itself.
    fn relative(&self) -> u32;
}

/// Addresses that are mapped from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedImage {
    pub(crate) addresses: Range<u64>,
    pub(crate) writable: bool,
}

/// Reads a number of 4 or 8 bytes.
pub(super) fn word(image: &dyn Image, address: u64, size: u8) -> Option<u64> {
    let mut bytes = [0; 8];
    let wanted = bytes.get_mut(..usize::from(size))?;
    (image.read(address, wanted) == wanted.len()).then_some(u64::from_le_bytes(bytes))
}

/// Reads a number of 4 bytes.
pub(super) fn number(image: &dyn Image, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    (image.read(address, &mut bytes) == 4).then_some(u32::from_le_bytes(bytes))
}

/// Where a line table may begin.
pub(super) fn tables(image: &dyn Image) -> Vec<u64> {
    let named: Vec<u64> = SECTIONS.iter().filter_map(|name| image.section(name)).collect();
    if !named.is_empty() {
        return named;
    }
    // A file without section headers has no `.text` either, and must be searched.
    let searched = image.section(".text").is_none() || MARKS.iter().any(|mark| image.section(mark).is_some());
    if searched { search(image) } else { Vec::new() }
}

fn search(image: &dyn Image) -> Vec<u64> {
    let mut tables = Vec::new();
    let mut left = MAX_SEARCHED;
    for mapped in image.mapped() {
        let end = mapped.addresses.end.min(mapped.addresses.start.saturating_add(left));
        left -= end.saturating_sub(mapped.addresses.start);
        pieces(image, mapped.addresses.start..end, BEGINNING, |address, bytes| {
            let found = aligned(address, bytes, BEGINNING, 4).filter(|(_, bytes)| is_beginning(bytes));
            tables.extend(found.map(|(address, _)| address));
            tables.len() < MAX_TABLES
        });
    }
    tables.truncate(MAX_TABLES);
    tables
}

/// Whether a table may begin like this: magic, two zeros, bytes of the smallest instruction, bytes of a pointer.
pub(super) fn is_beginning(bytes: &[u8]) -> bool {
    matches!(bytes, &[a, b, c, d, 0, 0, 1 | 2 | 4, 4 | 8, ..] if MAGICS.contains(&u32::from_le_bytes([a, b, c, d])))
}

/// Passes the bytes of a range to `each`, piece by piece, until `each` returns false. Each piece ends with the first
/// `overlap` - 1 bytes of the next one, so that nothing is cut in two.
pub(super) fn pieces(
    image: &dyn Image,
    addresses: Range<u64>,
    overlap: usize,
    mut each: impl FnMut(u64, &[u8]) -> bool,
) {
    let mut buffer = vec![0; PIECE + overlap.saturating_sub(1)];
    let mut at = addresses.start;
    while at < addresses.end {
        let left = usize::try_from(addresses.end - at).unwrap_or(usize::MAX).min(buffer.len());
        let got = image.read(at, &mut buffer[..left]);
        if got == 0 || !each(at, &buffer[..got]) || got < left {
            return;
        }
        at = at.saturating_add(PIECE as u64);
    }
}

/// The `size` bytes at each address that is a multiple of `alignment`.
pub(super) fn aligned(
    address: u64,
    bytes: &[u8],
    size: usize,
    alignment: usize,
) -> impl Iterator<Item = (u64, &[u8])> {
    let first = (alignment as u64 - address % alignment as u64) as usize % alignment;
    let places = (first..(bytes.len() + 1).saturating_sub(size)).step_by(alignment);
    places.map(move |at| (address.saturating_add(at as u64), bytes.get(at..at + size).unwrap_or_default()))
}
