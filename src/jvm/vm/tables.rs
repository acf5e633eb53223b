//! Fields of HotSpot's structures by their names in VMStructs.

use super::layout::BlobPlace;
use crate::jvm::memory::InvalidMemory;
use crate::jvm::vm_structs::{Field, VmStructs};

/// Most bytes of a structure, and of an offset in it: larger values are forged.
const MAX_OFFSET: u64 = 4096;

/// Looks up fields, and refuses impossible values.
pub(super) struct FieldTables(pub(super) VmStructs);

impl FieldTables {
    pub(super) fn address(&self, class: &'static str, name: &'static str) -> Result<u64, InvalidMemory> {
        self.0.field(class, name).ok_or(InvalidMemory)
    }

    pub(super) fn offset(&self, class: &'static str, name: &'static str) -> Result<u64, InvalidMemory> {
        self.0.field(class, name).filter(|&offset| offset < MAX_OFFSET).ok_or(InvalidMemory)
    }

    pub(super) fn size(&self, name: &'static str) -> Result<u64, InvalidMemory> {
        self.0.size(name).filter(|size| (1..MAX_OFFSET).contains(size)).ok_or(InvalidMemory)
    }

    /// The first of these static fields that this JVM has.
    pub(super) fn first_address(&self, fields: &[Field]) -> Result<u64, InvalidMemory> {
        fields.iter().find_map(|&(class, name)| self.address(class, name).ok()).ok_or(InvalidMemory)
    }

    /// The first of these fields that this JVM has.
    pub(super) fn first(&self, fields: &[Field]) -> Result<u64, InvalidMemory> {
        fields.iter().find_map(|&(class, name)| self.offset(class, name).ok()).ok_or(InvalidMemory)
    }

    pub(super) fn place(&self, address: Field, offset: Field) -> Result<BlobPlace, InvalidMemory> {
        match self.offset(address.0, address.1) {
            Ok(field) => Ok(BlobPlace::Address(field)),
            Err(InvalidMemory) => self.offset(offset.0, offset.1).map(BlobPlace::Offset),
        }
    }
}
