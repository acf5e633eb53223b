//! What is known of a file beside its names.

use serde::{Deserialize, Serialize};

/// Something about a file that explains why it has no names or no callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTrait {
    /// Go's linker made it.
    Go,
    /// It has no section headers.
    NoSections,
    /// It is 32-bit code.
    Bits32,
    /// It runs with musl, the C library of Alpine.
    Musl,
    /// It has no build id.
    NoBuildId,
    /// It unpacks itself when it starts (UPX).
    Packed,
    /// Its code has 64 MiB or more: a browser, or a program that contains one.
    Huge,
}

impl FileTrait {
    /// Every trait.
    pub const ALL: [FileTrait; 7] = [
        FileTrait::Go,
        FileTrait::NoSections,
        FileTrait::Bits32,
        FileTrait::Musl,
        FileTrait::NoBuildId,
        FileTrait::Packed,
        FileTrait::Huge,
    ];
}

/// A set of [`FileTrait`]s; empty if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileTraits(u8);

impl FileTraits {
    /// The same set with one more trait, if `holds`.
    #[must_use]
    pub fn with(self, which: FileTrait, holds: bool) -> FileTraits {
        FileTraits(self.0 | u8::from(holds) << which as u8)
    }

    /// Whether the file has this trait.
    #[must_use]
    pub fn has(self, which: FileTrait) -> bool {
        self.0 >> which as u8 & 1 != 0
    }
}
