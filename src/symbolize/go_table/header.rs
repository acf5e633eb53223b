//! The header of a line table: its version, and where its parts are.

use super::image::{GO_1_16, GO_1_18, Image, is_beginning, word};

/// Functions of one program, at most; the largest have half a million.
const MAX_FUNCTIONS: u64 = 1 << 26;

/// Versions of the table that differ in their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Go 1.16 and 1.17: code is given by its address.
    Go116,
    /// Go 1.18 and 1.19: code is given by its distance from the start of the text.
    Go118,
    /// Go 1.20 and later: functions have their first line; inlined calls have no file and line of their own.
    Go120,
}

/// The format of a table, and the addresses of its parts.
#[derive(Clone, Debug)]
pub(super) struct GoTableHeader {
    pub(super) base: u64,
    pub(super) version: Version,
    /// Bytes of the smallest instruction.
    pub(super) quantum: u8,
    /// Bytes of a pointer.
    pub(super) word: u8,
    pub(super) functions: u64,
    /// Names of functions, each NUL-terminated.
    pub(super) names: u64,
    /// For each unit its files, as offsets of 4 bytes in `files`.
    pub(super) units: u64,
    /// Names of files, each NUL-terminated.
    pub(super) files: u64,
    /// Tables of values, by instruction.
    pub(super) values: u64,
    /// Where functions begin, then the record of each.
    pub(super) rows: u64,
}

impl GoTableHeader {
    /// Reads the header at `base`, if there is one.
    pub(super) fn read(image: &dyn Image, base: u64) -> Option<GoTableHeader> {
        let mut beginning = [0; 8];
        if image.read(base, &mut beginning) < beginning.len() || !is_beginning(&beginning) {
            return None;
        }
        let [a, b, c, d, _, _, quantum, size] = beginning;
        let (version, parts) = match u32::from_le_bytes([a, b, c, d]) {
            GO_1_16 => (Version::Go116, 2),
            GO_1_18 => (Version::Go118, 3),
            _ => (Version::Go120, 3),
        };
        let field = |number: u64| word(image, base.checked_add(8 + number * u64::from(size))?, size);
        let part = |number: u64| base.checked_add(field(parts + number)?);
        let header = GoTableHeader {
            base,
            version,
            quantum,
            word: size,
            functions: field(0)?,
            names: part(0)?,
            units: part(1)?,
            files: part(2)?,
            values: part(3)?,
            rows: part(4)?,
        };
        // The linker writes the parts in this order.
        let order = [base, header.names, header.units, header.files, header.values, header.rows];
        let sound = order.is_sorted() && (1..MAX_FUNCTIONS).contains(&header.functions);
        sound.then_some(header)
    }

    /// The text at offset `at` of the part `start..end`, if a text begins there.
    pub(super) fn text(
        &self,
        image: &dyn Image,
        start: u64,
        end: u64,
        at: u32,
        max: usize,
    ) -> Option<Vec<u8>> {
        let address = start.checked_add(u64::from(at)).filter(|&address| address < end)?;
        let mut before = [0];
        if at > 0 && (image.read(address - 1, &mut before) == 0 || before != [0]) {
            return None;
        }
        let max = max.min(usize::try_from(end - address).unwrap_or(max));
        let mut text = Vec::new();
        // Most texts are short.
        for size in [128, max] {
            text.resize(size.min(max), 0);
            let got = image.read(address, &mut text);
            text.truncate(got);
            if let Some(end) = text.iter().position(|&b| b == 0) {
                text.truncate(end);
                break;
            }
        }
        (!text.is_empty()).then_some(text)
    }
}
