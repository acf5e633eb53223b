//! The address space of a process as the unwinder needs it: which code lies where.

/// Addresses that identify a program: fork keeps them, exec changes them. With them, the unwinder never uses the ranges
/// of a program that the process has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProgramLayout {
    /// First address of the program's own code.
    pub start_code: u64,
    /// Address after the last one of that code.
    pub end_code: u64,
    /// Where the program's stack begins.
    pub start_stack: u64,
}

/// A range of code: `struct jp_range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindRange {
    /// First address of the range in the process.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// The kind of code.
    pub code: RangeCode,
    /// The first page of the range's table; 0 without a table.
    pub table: u32,
}

/// The kind of code in a range: `enum jp_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeCode {
    /// Code of a file; the offset of the range's first byte in the file.
    File(u64),
    /// A code heap of a JVM; the address of its segment map. The range's table is the JVM's `struct jp_vm`.
    Heap(u64),
}

impl RangeCode {
    /// The values of `enum jp_code`.
    const FILE: u64 = 1;
    const HEAP: u64 = 2;
}

/// `struct jp_space` and its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Identifies the program to which the ranges belong.
    pub layout: ProgramLayout,
    /// Ranges sorted by address, without overlap.
    pub ranges: Vec<UnwindRange>,
}

/// Maximum number of ranges of a process: `JP_MAX_RANGES`.
pub const MAX_RANGES: usize = 1023;

impl Space {
    /// The bytes that the BPF program reads, without the ranges after the first [`MAX_RANGES`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = self.ranges.len().min(MAX_RANGES);
        let ProgramLayout { start_code, end_code, start_stack } = self.layout;
        let header = [start_code, end_code, start_stack, count as u64];
        let ranges = self.ranges.iter().take(count).flat_map(|range| {
            let UnwindRange { start, end, code, table } = *range;
            let (bias, code) = match code {
                RangeCode::File(offset) => (start.wrapping_sub(offset), RangeCode::FILE),
                RangeCode::Heap(segment_map) => (segment_map, RangeCode::HEAP),
            };
            [start, end, bias, u64::from(table) | code << 32]
        });
        // Little endian: the low half of a number is the first 32-bit field, and the high half the second.
        header.into_iter().chain(ranges).flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_structs() {
        let layout = ProgramLayout { start_code: 1, end_code: 2, start_stack: 3 };
        let range = UnwindRange { start: 0x5000, end: 0x6000, code: RangeCode::File(0x1000), table: 7 };
        let heap = UnwindRange { start: 0x8000, end: 0x9000, code: RangeCode::Heap(0xa000), table: 9 };
        let bytes = Space { layout, ranges: vec![range, heap] }.to_bytes();
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let file = [0x5000, 0x6000, 0x4000, 7 | 1 << 32];
        let heap = [0x8000, 0x9000, 0xa000, 9 | 2 << 32];
        assert_eq!(words, [&[1, 2, 3, 2][..], &file, &heap].concat());
        let many = Space { layout, ranges: vec![range; 5000] }.to_bytes();
        assert_eq!(many.len(), (1 + MAX_RANGES) * 32);
        assert_eq!(many.len(), 8 * super::super::PAGE);
    }
}
