//! What Go's linker notes of a program for its runtime (`runtime.moduledata`): where the code is that the line table
//! describes. No symbol leads there in a stripped file; but it begins with pointers to the table and to each of its
//! parts, and nothing else does.

use super::header::{GoTableHeader, Version};
use super::image::{Image, MappedImage, aligned, pieces, word};

/// Pointers that are read: the fields that are asked for are among the first ones.
const WORDS: usize = 49;
/// Where the parts of the table stand: pointer, length, capacity each.
const PARTS: [usize; 6] = [1, 4, 7, 10, 13, 16];
const FUNCTIONS: usize = 17;
const FIRST: usize = 20;
const END: usize = 21;
const TEXT: usize = 22;
/// The field from which the descriptions of inlined calls are counted (`gofunc`): it is another one in Go 1.18, 1.20 and
/// 1.27.
const GOFUNC: std::ops::Range<usize> = 36..WORDS;

/// Bytes of data that are searched in one file.
const MAX_SEARCHED: u64 = 256 << 20;
/// Places that may be it.
const MAX_PLACES: usize = 16;
/// Bytes of a relocation (`Elf64_Rela`).
const RELOCATION: usize = 24;
/// Bytes of relocations that are searched in one file: a program of 100 MiB has 10 MiB.
const MAX_RELOCATIONS: u64 = 256 << 20;

/// What is known of the program.
#[derive(Debug)]
pub(super) struct ModuleData {
    /// Where the text begins from which functions are counted.
    pub(super) text: u64,
    /// The first function's first byte.
    pub(super) first: u64,
    /// Behind the last function's last byte.
    pub(super) end: u64,
    /// Pointers of which one may be where descriptions of inlined calls are counted from.
    pub(super) gofunc: Vec<u64>,
}

impl ModuleData {
    /// Finds the data that belong to a table.
    pub(super) fn find(image: &dyn Image, header: &GoTableHeader) -> Option<ModuleData> {
        let in_place = || places(image, header).into_iter();
        let found = in_place().find_map(|place| ModuleData::of(image, header, &words(image, header, place)));
        found.or_else(|| {
            // The file has zeros where the loader puts the pointers.
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
        // Go 1.16 has addresses.
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

/// Where the file has a pointer to the table in data that are written to, and a pointer to its names behind it.
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

/// What `wanted` makes of the relocations, each a place and the address that the loader puts there (before it adds where
/// the file is mapped).
fn relocated<T>(image: &dyn Image, wanted: impl Fn(u64, u64) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    let Some(table) = image.relocations() else { return found };
    let end = table.end.min(table.start.saturating_add(MAX_RELOCATIONS));
    let relative = image.relative();
    let most = MAX_PLACES.max(WORDS);
    pieces(image, table.start..end, RELOCATION, |address, bytes| {
        // Pieces do not begin where relocations do.
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
