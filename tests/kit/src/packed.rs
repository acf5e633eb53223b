//! Packed sections of ELF files, and the sizes that they state.

/// How a section is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// With a header of the ABI, kind 1.
    Zlib,
    /// With a header of the ABI, kind 2.
    Zstd,
    /// GNU's older form, whose header is part of the content.
    ZlibGnu,
}

impl Packed {
    /// The name for objcopy.
    pub fn name(self) -> &'static str {
        match self {
            Packed::Zlib => "zlib",
            Packed::Zstd => "zstd",
            Packed::ZlibGnu => "zlib-gnu",
        }
    }

    /// Makes each section that is packed like this state `size` bytes; panics if there is no such section.
    pub fn promise(self, file: &mut [u8], size: u64) {
        // Elf64_Chdr: kind, reserved, size, alignment; then the data. GNU's form: a name, then the size, big-endian.
        let is_header = |at: &usize| match self {
            Packed::Zlib => is_chdr(&file[*at..], 1, &[0x78, 0x9c]),
            Packed::Zstd => is_chdr(&file[*at..], 2, &[0x28, 0xb5, 0x2f, 0xfd]),
            Packed::ZlibGnu => file[*at..].starts_with(b"ZLIB"),
        };
        let headers: Vec<usize> = (0..file.len()).filter(is_header).collect();
        assert!(!headers.is_empty(), "nothing is packed by {}", self.name());
        for at in headers {
            match self {
                Packed::Zlib | Packed::Zstd => file[at + 8..at + 16].copy_from_slice(&size.to_le_bytes()),
                Packed::ZlibGnu => file[at + 4..at + 12].copy_from_slice(&size.to_be_bytes()),
            }
        }
    }
}

/// Whether a header of the ABI begins here, before data with this magic number.
fn is_chdr(bytes: &[u8], kind: u8, magic: &[u8]) -> bool {
    const LEN: usize = 24;
    bytes.starts_with(&[kind, 0, 0, 0, 0, 0, 0, 0])
        && bytes.get(LEN..).is_some_and(|data| data.starts_with(magic))
}
