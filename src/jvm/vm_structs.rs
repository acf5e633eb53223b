//! VMStructs, HotSpot's description of itself for debuggers: the exported tables behind `gHotSpotVMStructs` and
//! `gHotSpotVMTypes` (`runtime/vmStructs.hpp` of JDK 8 to 25). Only requested entries are kept.

use std::collections::HashMap;

use super::exported::InMemoryLibrary;
use super::memory::{InvalidMemory, Memory, half_in, word_in};

/// Most entries of a table. JDK 25 has about 3,000 fields and 1,000 types.
const MAX_ENTRIES: u64 = 32_768;
const ENTRY_SIZES: std::ops::RangeInclusive<u64> = 16..=256;

/// A requested field: class and name.
pub(super) type Field = (&'static str, &'static str);

/// The requested entries of one JVM's tables.
#[derive(Debug, Default)]
pub(super) struct VmStructs {
    /// Address of static fields, offset of others.
    fields: HashMap<Field, u64>,
    /// Sizes of types, bytes.
    sizes: HashMap<&'static str, u64>,
}

impl VmStructs {
    /// Reads the tables and keeps the requested entries.
    pub(super) fn read<M: Memory>(
        memory: &M,
        base: u64,
        fields: &[&'static [Field]],
        types: &'static [&'static str],
    ) -> Result<VmStructs, InvalidMemory> {
        let library = InMemoryLibrary::at(memory, base)?;
        let mut found = VmStructs::default();
        found.read_fields(memory, &library, fields)?;
        found.read_types(memory, &library, types)?;
        Ok(found)
    }

    fn read_fields<M: Memory>(
        &mut self,
        memory: &M,
        library: &InMemoryLibrary<'_, M>,
        wanted: &[&'static [Field]],
    ) -> Result<(), InvalidMemory> {
        let wanted = || wanted.iter().copied().flatten();
        let at = |part: &str| library.value(&format!("gHotSpotVMStructEntry{part}Offset"));
        let (type_name, field_name) = (at("TypeName")?, at("FieldName")?);
        let (is_static, offset, address) = (at("IsStatic")?, at("Offset")?, at("Address")?);
        let table = library.value("gHotSpotVMStructs")?;
        let mut names = WantedNames::new(memory);
        entries(memory, table, library.value("gHotSpotVMStructEntryArrayStride")?, type_name, |entry| {
            let class = names.of(word_in(entry, type_name)?)?;
            let Some(&(class, _)) = wanted().find(|(c, _)| c.as_bytes() == class) else { return Ok(()) };
            let name = names.of(word_in(entry, field_name)?)?;
            let Some(&field) = wanted().find(|(c, n)| *c == class && n.as_bytes() == name) else {
                return Ok(());
            };
            let place = if half_in(entry, is_static)? != 0 { address } else { offset };
            self.fields.insert(field, word_in(entry, place)?);
            Ok(())
        })
    }

    fn read_types<M: Memory>(
        &mut self,
        memory: &M,
        library: &InMemoryLibrary<'_, M>,
        wanted: &'static [&'static str],
    ) -> Result<(), InvalidMemory> {
        let type_name = library.value("gHotSpotVMTypeEntryTypeNameOffset")?;
        let size = library.value("gHotSpotVMTypeEntrySizeOffset")?;
        let table = library.value("gHotSpotVMTypes")?;
        let mut names = WantedNames::new(memory);
        entries(memory, table, library.value("gHotSpotVMTypeEntryArrayStride")?, type_name, |entry| {
            let name = names.of(word_in(entry, type_name)?)?;
            if let Some(&name) = wanted.iter().find(|w| w.as_bytes() == name) {
                self.sizes.insert(name, word_in(entry, size)?);
            }
            Ok(())
        })
    }

    /// Tables that have these fields.
    #[cfg(test)]
    pub(super) fn made(fields: &[(Field, u64)]) -> VmStructs {
        VmStructs { fields: fields.iter().copied().collect(), sizes: HashMap::new() }
    }

    /// Address of a static field, or offset of another.
    pub(super) fn field(&self, class: &'static str, name: &'static str) -> Option<u64> {
        self.fields.get(&(class, name)).copied()
    }

    /// Size of a type, bytes.
    pub(super) fn size(&self, name: &'static str) -> Option<u64> {
        self.sizes.get(name).copied()
    }
}

/// Calls `each` for the entries of a table up to the one whose name is null.
fn entries<M: Memory>(
    memory: &M,
    table: u64,
    stride: u64,
    name: u64,
    mut each: impl FnMut(&[u8]) -> Result<(), InvalidMemory>,
) -> Result<(), InvalidMemory> {
    if !ENTRY_SIZES.contains(&stride) {
        return Err(InvalidMemory);
    }
    let mut entry = vec![0; usize::try_from(stride).map_err(|_| InvalidMemory)?];
    for index in 0..MAX_ENTRIES {
        memory.read_all(table.checked_add(index * stride).ok_or(InvalidMemory)?, &mut entry)?;
        if word_in(&entry, name)? == 0 {
            return Ok(());
        }
        each(&entry)?;
    }
    Err(InvalidMemory)
}

/// Strings that were read, by address: many entries have the same names.
struct WantedNames<'a, M> {
    memory: &'a M,
    known: HashMap<u64, Vec<u8>>,
}

impl<'a, M: Memory> WantedNames<'a, M> {
    fn new(memory: &'a M) -> WantedNames<'a, M> {
        WantedNames { memory, known: HashMap::new() }
    }

    fn of(&mut self, address: u64) -> Result<&[u8], InvalidMemory> {
        use std::collections::hash_map::Entry;
        match self.known.entry(address) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(self.memory.string(address)?)),
        }
    }
}
