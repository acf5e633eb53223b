//! Where functions begin and end, from call frame information: a file keeps this when its symbols are stripped.
//!
//! Exceptions and debuggers need `.eh_frame` at run time, so `strip` leaves it. Each description covers exactly the
//! code of one function, or of a part that the compiler moved elsewhere (GCC's `.cold`). Linux Standard Base, Core,
//! 10.6.

use std::ops::ControlFlow;

use gimli::{BaseAddresses, EhFrame, LittleEndian};

use super::call_frames::for_each_function;
use super::elf::Elf;
use super::fields::ElfClass;

/// Bytes of `.eh_frame` read from one file: twice what Chromium has.
const MAX_BYTES: u64 = 64 << 20;
/// Functions read from one file: 16 MiB.
const MAX_EXTENTS: usize = 1 << 20;

/// The code of one function: `start..start + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    start: u64,
    len: u32,
}

/// The functions of one file, sorted by start.
#[derive(Debug, Default)]
pub(crate) struct Extents(Vec<Extent>);

impl Extents {
    /// Reads the functions of a file. Skips descriptions that are unreadable or do not describe code.
    pub(crate) fn read(elf: &Elf) -> Extents {
        let Some((address, bytes)) = section(elf) else {
            return Extents::default();
        };
        let mut extents = described(&bytes, address, elf);
        extents.sort_unstable();
        extents.dedup_by_key(|e| e.start);
        extents.shrink_to_fit();
        Extents(extents)
    }

    /// The first address of the function that contains `address`.
    pub(crate) fn start_of(&self, address: u64) -> Option<u64> {
        let after = self.0.partition_point(|e| e.start <= address);
        let Extent { start, len } = *self.0.get(after.checked_sub(1)?)?;
        (address - start < u64::from(len)).then_some(start)
    }

    /// Whether a function begins at `address`.
    pub(crate) fn begins(&self, address: u64) -> bool {
        self.start_of(address) == Some(address)
    }

    /// The first address above `address` at which a function begins.
    pub(crate) fn next(&self, address: u64) -> Option<u64> {
        self.0.get(self.0.partition_point(|e| e.start <= address)).map(|e| e.start)
    }

    /// Bytes of memory that the extents take.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Extent>()
    }
}

/// Address and content of `.eh_frame`.
fn section(elf: &Elf) -> Option<(u64, Vec<u8>)> {
    let section = elf.section(".eh_frame")?;
    Some((section.addr, elf.bytes(section.offset, section.size, MAX_BYTES).ok()?))
}

fn address_size(elf: &Elf) -> u8 {
    match elf.class() {
        ElfClass::Elf32 => 4,
        ElfClass::Elf64 => 8,
    }
}

fn described(bytes: &[u8], address: u64, elf: &Elf) -> Vec<Extent> {
    let mut frames = EhFrame::new(bytes, LittleEndian);
    frames.set_address_size(address_size(elf));
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut extents = Vec::new();
    let _ = for_each_function(&frames, &bases, |fde| {
        let (start, len) = (fde.initial_address(), u32::try_from(fde.len()).unwrap_or(0));
        if start.checked_add(u64::from(len)).and_then(|end| elf.code_bias(start, end)).is_some() {
            extents.push(Extent { start, len });
        }
        if extents.len() < MAX_EXTENTS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_description_covers_has_no_function() {
        let extents = Extents(vec![Extent { start: 16, len: 8 }, Extent { start: 32, len: 4 }]);
        let starts = [15, 16, 23, 24, 31, 32, 35, 36, u64::MAX].map(|address| extents.start_of(address));
        assert_eq!(starts, [None, Some(16), Some(16), None, None, Some(32), Some(32), None, None]);
    }
}
