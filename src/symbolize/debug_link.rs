//! The links of a file to its debug files.

use super::elf::{Elf, ElfError, MAX_NOTE};
use super::message::DebugLink;

impl Elf {
    /// Build id of the supplementary file that `dwz` moved shared DWARF to (`.gnu_debugaltlink`).
    #[must_use]
    pub fn alternate_build_id(&self) -> Option<Vec<u8>> {
        let link = self.section(".gnu_debugaltlink")?;
        let bytes = self.bytes(link.offset, link.size, MAX_NOTE).ok()?;
        let id = bytes.iter().position(|&b| b == 0)? + 1;
        bytes.get(id..).filter(|id| (2..=64).contains(&id.len())).map(<[u8]>::to_vec)
    }

    /// CRC-32 of the whole file, the checksum in debug links.
    pub(crate) fn checksum(&self) -> Result<u32, ElfError> {
        let (mut crc, mut buffer, mut offset) = (flate2::Crc::new(), vec![0; 1 << 20], 0);
        loop {
            let got = self.read_some(&mut buffer, offset)?;
            if got == 0 {
                return Ok(crc.sum());
            }
            crc.update(&buffer[..got]);
            offset += got as u64;
        }
    }

    /// Name and checksum of the file with the debug information (`.gnu_debuglink`). The name is not trusted.
    pub(crate) fn debug_link(&self) -> Option<DebugLink> {
        let link = self.section(".gnu_debuglink")?;
        let bytes = self.bytes(link.offset, link.size, MAX_NOTE).ok()?;
        let end = bytes.iter().position(|&b| b == 0)?;
        let crc = bytes.get((end + 1).checked_next_multiple_of(4)?..)?.first_chunk()?;
        let name = String::from_utf8(bytes[..end].to_vec()).ok()?;
        Some(DebugLink { name, crc: u32::from_le_bytes(*crc) })
    }
}
