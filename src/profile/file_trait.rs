//! Properties of ELF files that explain missing names or callers.

use serde::{Deserialize, Serialize};

/// A property of a file that explains why its frames have no names or no callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTrait {
    /// Linked by Go's linker.
    Go,
    /// The file has no section headers.
    NoSections,
    /// 32-bit code: the ELF class is 32.
    Bits32,
    /// Runs with musl, the C library of Alpine.
    Musl,
    /// The file has no build id.
    NoBuildId,
    /// The program unpacks itself when it starts (UPX).
    Packed,
    /// 64 MiB or more of code: a browser, or a program that contains one.
    Huge,
}

impl FileTrait {
    /// Every trait, in the order of their bits in [`FileTraits`].
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

/// A set of [`FileTrait`]s; empty if the file was not examined.
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
