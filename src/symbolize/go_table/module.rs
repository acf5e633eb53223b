//! The data about a program that Go's linker writes for Go's runtime (`runtime.moduledata`): where the code of the line
//! table is. In a stripped file, no symbol leads to the data. The data begins with pointers to the table and to each of
//! its parts, and no other data does.

use super::header::{GoTableHeader, Version};
use super::image::{Image, MappedImage, aligned, pieces, word};

/// Words that are read: all needed fields are among the first ones.
const WORDS: usize = 49;
/// Positions of the pointers to the table's parts: pointer, length, capacity each.
const PARTS: [usize; 6] = [1, 4, 7, 10, 13, 16];
const FUNCTIONS: usize = 17;
const FIRST: usize = 20;
const END: usize = 21;
const TEXT: usize = 22;
/// Where to look for the field from which descriptions of inlined calls are counted (`gofunc`). Its position changed in
/// Go 1.18, 1.20 and 1.27.
const GOFUNC: std::ops::Range<usize> = 36..WORDS;

/// Bytes of data searched in one file.
const MAX_SEARCHED: u64 = 256 << 20;
/// Places that may be the module data.
const MAX_PLACES: usize = 16;
/// Bytes of a relocation (`Elf64_Rela`).
const RELOCATION: usize = 24;
/// Bytes of relocations searched in one file: a program of 100 MiB has 10 MiB.
const MAX_RELOCATIONS: u64 = 256 << 20;

/// The needed fields of the module data.
#[derive(Debug)]
pub(super) struct ModuleData {
    /// Start of the text, from which functions are counted.
    pub(super) text: u64,
    /// First byte of the first function.
    pub(super) first: u64,
    /// First byte behind the last function.
    pub(super) end: u64,
    /// Pointers; one of them may be the base of the descriptions of inlined calls.
    pub(super) gofunc: Vec<u64>,
}

impl ModuleData {
    /// Finds the module data of a table.
    pub(super) fn find(image: &dyn Image, header: &GoTableHeader) -> Option<ModuleData> {
        let in_place = || places(image, header).into_iter();
        let found = in_place().find_map(|place| ModuleData::of(image, header, &words(image, header, place)));
        found.or_else(|| {
            // The file may have zeros where the loader writes the pointers; relocations have the values.
            let mut found =
                relocated(image, |slot, value| (value == header.base).then_some(slot)).into_iter();
            found.find_map(|place| {
                let mut words = words(image, header, place);
                for (index, value) in relocated(image, |slot, value| {
                    let index = slot.checked_sub(place)? / 8;
                    (index < WORDS as u64 && slot % 8 == place % 8).then_some((index, value))
                }) {
                    if let Some(word) = usize::try_from(index).ok().and_then(|at| words.get_mut(at)) {
                        *word = value;
                    }
                }
                ModuleData::of(image, header, &words)
            })
        })
    }

    fn of(image: &dyn Image, header: &GoTableHeader, words: &[u64]) -> Option<ModuleData> {
        let parts = [header.names, header.units, header.files, header.values, header.rows, header.rows];
        let word = |at: usize| words.get(at).copied();
        let mut pointers = PARTS.iter().zip(parts);
        if word(0)? != header.base || !pointers.all(|(&at, part)| word(at) == Some(part)) {
            return None;
        }
        let (first, end, text) = (word(FIRST)?, word(END)?, word(TEXT)?);
        let counted = word(FUNCTIONS)? == header.functions + 1;
        if !counted || text > first || first >= end || !image.is_code(first..end) {
            return None;
        }
        // Go 1.16 uses addresses, which need no base.
        let counts = header.version != Version::Go116;
        let gofunc = words.get(GOFUNC).filter(|_| counts).unwrap_or_default().to_vec();
        Some(ModuleData { text, first, end, gofunc })
    }
}

fn words(image: &dyn Image, header: &GoTableHeader, place: u64) -> Vec<u64> {
    let size = u64::from(header.word);
    let address = |index: usize| place.checked_add(index as u64 * size);
    (0..WORDS).map_while(|index| word(image, address(index)?, header.word)).collect()
}

/// Where writable data has a pointer to the table, and behind it a pointer to the table's names.
fn places(image: &dyn Image, header: &GoTableHeader) -> Vec<u64> {
    let size = usize::from(header.word);
    let pointers = [header.base, header.names].map(u64::to_le_bytes);
    let pointers = pointers.iter().flat_map(|bytes| bytes.iter().take(size)).copied().collect::<Vec<u8>>();
    let mut places = Vec::new();
    let mut left = MAX_SEARCHED;
    for MappedImage { addresses, writable } in image.mapped() {
        if !writable {
            continue;
        }
        let end = addresses.end.min(addresses.start.saturating_add(left));
        left -= end.saturating_sub(addresses.start);
        pieces(image, addresses.start..end, pointers.len(), |address, bytes| {
            let found = aligned(address, bytes, pointers.len(), size).filter(|(_, at)| *at == &pointers[..]);
            places.extend(found.map(|(address, _)| address));
            places.len() < MAX_PLACES
        });
    }
    places.truncate(MAX_PLACES);
    places
}

/// The results of `wanted` for the relocations. Each relocation is a place and the address that the loader writes
/// there, before the loader adds the load address.
fn relocated<T>(image: &dyn Image, wanted: impl Fn(u64, u64) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    let Some(table) = image.relocations() else { return found };
    let end = table.end.min(table.start.saturating_add(MAX_RELOCATIONS));
    let relative = image.relative();
    let most = MAX_PLACES.max(WORDS);
    pieces(image, table.start..end, RELOCATION, |address, bytes| {
        // A piece may begin inside a relocation.
        let skip = (RELOCATION as u64 - (address - table.start) % RELOCATION as u64) % RELOCATION as u64;
        let bytes = bytes.get(skip as usize..).unwrap_or_default();
        for record in bytes.chunks_exact(RELOCATION) {
            let field =
                |at: usize| record.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
            let (Some(slot), Some(info), Some(value)) = (field(0), field(8), field(16)) else { continue };
            if info == u64::from(relative) {
                found.extend(wanted(slot, value));
            }
        }
        found.len() < most
    });
    found.truncate(most);
    found
}
