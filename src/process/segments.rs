//! The segments of an ELF file: which parts the loader maps executable, and where. A tenant may have written the file.
//!
//! Source: `elf(5)`; 64-bit, little-endian. After `patchelf`, the program headers lie at the end of the file.

/// Size of the file's header, bytes.
pub const HEADER: usize = 64;
/// Size of one program header, bytes.
const ENTRY: usize = 56;
/// Program headers that are read; linkers make about ten.
const MAX_ENTRIES: u16 = 64;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// Where the program headers of a file lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentTable {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length of the table, bytes; further headers than the first 64 are left out.
    pub len: usize,
}

/// A part of a file that the loader maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Address before the loader moves the file to its place.
    pub address: u64,
    /// Length in the file, bytes.
    pub len: u64,
    /// Whether the loader maps it executable.
    pub executable: bool,
}

impl Segment {
    /// The offset in the file of an address that the loader has not moved; `None` outside the segment.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        let into = address.checked_sub(self.address)?;
        (into < self.len).then(|| self.offset.wrapping_add(into))
    }
}

/// Where the program headers lie, according to the file's header; `None` if the file is not a 64-bit little-endian ELF
/// file.
#[must_use]
pub fn table(header: &[u8; HEADER]) -> Option<SegmentTable> {
    // Class 2: 64-bit. Data 1: little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") || usize::from(half(header, 54)?) != ENTRY {
        return None;
    }
    let count = half(header, 56)?.min(MAX_ENTRIES);
    Some(SegmentTable { offset: long(header, 32)?, len: usize::from(count) * ENTRY })
}

/// The segments that program headers describe, without invalid ones.
#[must_use]
pub fn segments(table: &[u8]) -> Vec<Segment> {
    table.chunks_exact(ENTRY).filter_map(segment).collect()
}

fn segment(entry: &[u8]) -> Option<Segment> {
    let (kind, flags) = (word(entry, 0)?, word(entry, 4)?);
    let (offset, address, len) = (long(entry, 8)?, long(entry, 16)?, long(entry, 32)?);
    let fits = offset.checked_add(len).is_some() && address.checked_add(len).is_some();
    let found = Segment { offset, address, len, executable: flags & PF_X != 0 };
    (kind == PT_LOAD && len > 0 && fits).then_some(found)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The segments of this test's own program.
    fn own() -> (Vec<u8>, Vec<Segment>) {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let found = table(bytes.first_chunk().unwrap()).unwrap();
        let start = usize::try_from(found.offset).unwrap();
        let segments = segments(&bytes[start..start + found.len]);
        (bytes, segments)
    }

    #[test]
    fn code_of_a_real_file() {
        let (bytes, segments) = own();
        let code: Vec<&Segment> = segments.iter().filter(|segment| segment.executable).collect();
        assert!(code.len() == 1 && segments.len() >= 3, "{segments:?}");
        assert!(code[0].offset + code[0].len <= bytes.len() as u64);
        assert_eq!(code[0].offset_of(code[0].address + 7), Some(code[0].offset + 7));
        assert_eq!(code[0].offset_of(code[0].address + code[0].len), None);
        assert_eq!(code[0].offset_of(code[0].address.wrapping_sub(1)), None);
    }

    #[test]
    fn lies_lead_to_nothing() {
        let (bytes, _) = own();
        let mut header = *bytes.first_chunk::<HEADER>().unwrap();
        header[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(table(&header).unwrap().len, usize::from(MAX_ENTRIES) * ENTRY);
        header[4] = 1;
        assert_eq!(table(&header), None, "32-bit");
        let mut entry = [0; ENTRY];
        entry[0] = 1;
        entry[32..40].copy_from_slice(&2u64.to_le_bytes());
        assert_eq!(segments(&entry).len(), 1);
        entry[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(segments(&entry).is_empty(), "its end is beyond all offsets");
        assert!(segments(&entry[..ENTRY - 1]).is_empty());
    }
}
