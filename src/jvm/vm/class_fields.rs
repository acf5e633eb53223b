//! The fields of a class: their names, signatures and offsets (`oops/fieldInfo.hpp`).

use super::layout::{self, FieldTable};
use super::methods::Pool;
use super::unsigned5::Unsigned5Stream;
use crate::jvm::memory::{InvalidMemory, Memory, half_in, short_in};

/// Most bytes of a class's table. No relevant class of the JDK has a hundred fields.
const MAX_TABLE: u32 = 16 << 10;
/// In a field's access flags (JVM specification, table 4.5-A).
const STATIC: u32 = 8;

/// A field as the table has it: name and signature are indexes into the class's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RawField {
    name: u16,
    signature: u16,
    offset: u32,
    is_static: bool,
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectField {
    pub(super) name: Vec<u8>,
    pub(super) signature: Vec<u8>,
    /// From the object's beginning, bytes.
    pub(super) offset: u64,
}

impl FieldTable {
    /// The fields of `class` without those of its superclasses and without static fields.
    pub(super) fn of<M: Memory>(
        self,
        memory: &M,
        layout: &layout::MethodOffsets,
        class: u64,
    ) -> Result<Vec<ObjectField>, InvalidMemory> {
        let pool = Pool::of_class(memory, layout, class)?;
        // In some releases four more bytes precede the fields if a stream has more than 16 (JDK-8352075).
        let named = |skip| {
            let places = self.places(memory, class, skip)?;
            let own = places.into_iter().filter(|place| !place.is_static);
            own.map(|place| place.named(memory, layout, &pool)).collect::<Result<Vec<_>, _>>()
        };
        named(0).or_else(|_| named(4))
    }

    fn places<M: Memory>(self, memory: &M, class: u64, skip: usize) -> Result<Vec<RawField>, InvalidMemory> {
        let (FieldTable::Shorts { array, data, .. } | FieldTable::Stream { array, data }) = self;
        let at = memory.word(class.checked_add(array).ok_or(InvalidMemory)?)?;
        let mut length = [0; 4];
        memory.read_all(at, &mut length)?;
        let unit = if matches!(self, FieldTable::Shorts { .. }) { 2 } else { 1 };
        let length = u32::from_ne_bytes(length).checked_mul(unit).filter(|&length| length <= MAX_TABLE);
        let mut table = vec![0; length.ok_or(InvalidMemory)? as usize];
        memory.read_all(at.checked_add(data).ok_or(InvalidMemory)?, &mut table)?;
        match self {
            FieldTable::Shorts { count, .. } => {
                let mut fields = [0; 2];
                memory.read_all(class.checked_add(count).ok_or(InvalidMemory)?, &mut fields)?;
                shorts(&table, u16::from_ne_bytes(fields))
            }
            FieldTable::Stream { .. } => stream(&table, skip),
        }
    }
}

/// `FieldInfo` of JDK 8 to 20: access flags, name, signature, initial value, and the offset, which has two bits of tag.
fn shorts(table: &[u8], count: u16) -> Result<Vec<RawField>, InvalidMemory> {
    let records = table.chunks_exact(12).take(usize::from(count));
    let places: Vec<RawField> = records
        .map(|record| {
            Ok(RawField {
                name: short_in(record, 2)?,
                signature: short_in(record, 4)?,
                offset: half_in(record, 8)? >> 2,
                is_static: u32::from(short_in(record, 0)?) & STATIC != 0,
            })
        })
        .collect::<Result<_, InvalidMemory>>()?;
    if places.len() == usize::from(count) { Ok(places) } else { Err(InvalidMemory) }
}

/// `FieldInfoStream`: the numbers of Java's and of injected fields. Then for each field: name, signature, offset,
/// access flags, and the JVM's own flags, which say how many more numbers follow.
fn stream(table: &[u8], skip: usize) -> Result<Vec<RawField>, InvalidMemory> {
    const INITIALIZED: u32 = 1;
    const GENERIC: u32 = 1 << 2;
    const CONTENDED: u32 = 1 << 4;
    let mut stream = Unsigned5Stream::new(table, true);
    let count = stream.number().ok_or(InvalidMemory)?;
    stream.number().ok_or(InvalidMemory)?;
    for _ in 0..skip {
        stream.byte().ok_or(InvalidMemory)?;
    }
    let mut places = Vec::new();
    for _ in 0..count {
        let mut number = || stream.number().ok_or(InvalidMemory);
        let index = |number: u32| u16::try_from(number).map_err(|_| InvalidMemory);
        let (name, signature) = (index(number()?)?, index(number()?)?);
        let (offset, access, flags) = (number()?, number()?, number()?);
        for _ in 0..(flags & (INITIALIZED | GENERIC | CONTENDED)).count_ones() {
            number()?;
        }
        places.push(RawField { name, signature, offset, is_static: access & STATIC != 0 });
    }
    Ok(places)
}

impl RawField {
    fn named<M: Memory>(
        self,
        memory: &M,
        layout: &layout::MethodOffsets,
        pool: &Pool,
    ) -> Result<ObjectField, InvalidMemory> {
        let name = pool.symbol(memory, layout, self.name)?;
        let signature = pool.symbol(memory, layout, self.signature)?;
        let is_type = signature.first().is_some_and(|first| b"BCDFIJSZL[".contains(first));
        // An invalid signature shows that the table has another form.
        is_type
            .then_some(ObjectField { name, signature, offset: u64::from(self.offset) })
            .ok_or(InvalidMemory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_tables_are_read() {
        let place = |name, signature, offset, is_static| RawField { name, signature, offset, is_static };
        let expected = [place(5, 6, 12, false), place(7, 8, 100, true)];
        let record = |access: u16, name: u16, signature: u16, offset: u32| {
            let packed = offset << 2 | 1;
            [access, name, signature, 0, packed as u16, (packed >> 16) as u16].map(u16::to_ne_bytes).concat()
        };
        let table = [record(2, 5, 6, 12), record(STATIC as u16 | 2, 7, 8, 100)].concat();
        assert_eq!(shorts(&table, 2).unwrap(), expected);
        assert_eq!(shorts(&table, 3), Err(InvalidMemory));
        // Each number is one more in the stream; the second field has an initial value and a generic signature.
        let fields = [6, 7, 13, 3, 1, 8, 9, 101, 9 + 16, 6, 99, 98];
        let plain = [&[3, 1][..], &fields].concat();
        assert_eq!(stream(&plain, 0).unwrap(), expected);
        let with_table = [&[3, 1, 0, 7, 0, 0][..], &fields].concat();
        assert_eq!(stream(&with_table, 0), Err(InvalidMemory));
        assert_eq!(stream(&with_table, 4).unwrap(), expected);
        assert_eq!(stream(&[], 0), Err(InvalidMemory));
    }
}
