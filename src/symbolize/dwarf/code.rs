//! Where the code of an entry lies: its attributes for that. DWARF 5, 2.17.

use gimli::{Attribute, AttributeValue, Range, RangeListsOffset, UnitRef, constants};

use super::model::Reader;

/// The ranges of one entry, as it tells them.
#[derive(Debug, Default)]
pub(super) struct Code {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<RangeListsOffset>,
}

impl Code {
    /// Takes an attribute of the entry, if it is one of those.
    pub(super) fn take(
        &mut self,
        unit: UnitRef<'_, Reader>,
        attribute: &Attribute<Reader>,
    ) -> gimli::Result<()> {
        match attribute.name() {
            constants::DW_AT_low_pc => self.low = unit.attr_address(attribute.value())?,
            constants::DW_AT_high_pc => match attribute.value() {
                AttributeValue::Udata(size) => self.size = Some(size),
                value => self.high = unit.attr_address(value)?,
            },
            constants::DW_AT_ranges => self.list = unit.attr_ranges_offset(attribute.value())?,
            _ => {}
        }
        Ok(())
    }

    /// Calls `each` with all ranges that are not empty, until it wants no more.
    pub(super) fn ranges(
        &self,
        unit: UnitRef<'_, Reader>,
        mut each: impl FnMut(Range) -> bool,
    ) -> gimli::Result<()> {
        if let Some(list) = self.list {
            let mut ranges = unit.ranges(list)?;
            while let Some(range) = ranges.next()? {
                if range.begin < range.end && !each(range) {
                    break;
                }
            }
            return Ok(());
        }
        let Some(begin) = self.low else { return Ok(()) };
        // What the linker has left out begins at the highest address: its end is below.
        let end = self.high.or_else(|| Some(begin.wrapping_add(self.size?)));
        if let Some(end) = end.filter(|&end| begin < end) {
            each(Range { begin, end });
        }
        Ok(())
    }

    /// Whether `address` is in one of them.
    pub(super) fn contains(&self, unit: UnitRef<'_, Reader>, address: u64) -> gimli::Result<bool> {
        let mut found = false;
        self.ranges(unit, |range| {
            found = (range.begin..range.end).contains(&address);
            !found
        })?;
        Ok(found)
    }
}
