//! Builds the archive that the kernel unpacks as its first root file system: cpio's `newc` format, uncompressed because
//! the kernel reads it from memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

/// An archive to which entries are added until [`Archive::finish`].
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    inodes: u32,
}

impl Archive {
    /// Adds a directory, whose parent must exist.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    pub(super) fn file(&mut self, name: &str, permissions: u32, content: &[u8]) {
        self.entry(name, FILE | permissions, content);
    }

    /// Adds a file of the host, with its permissions.
    pub(super) fn copy(&mut self, name: &str, from: &Path) -> anyhow::Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        let mode = fs::metadata(from)?.permissions().mode() & 0o777;
        self.file(name, mode, &content);
        Ok(())
    }

    /// Adds a directory of the host with all its files and directories.
    pub(super) fn tree(&mut self, name: &str, from: &Path) -> anyhow::Result<()> {
        self.directory(name);
        let mut entries: Vec<_> =
            fs::read_dir(from).with_context(|| format!("reading {}", from.display()))?.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                self.tree(&name, &entry.path())?;
            } else {
                self.copy(&name, &entry.path())?;
            }
        }
        Ok(())
    }

    /// Adds the trailer and returns the archive's bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inodes += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), size of the name, checksum.
        let fields = [self.inodes, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_aligned_and_the_end_is_marked() {
        let mut archive = Archive::default();
        archive.directory("a");
        archive.file("a/init", 0o755, b"#!");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("07070100000001000041ed") && text.contains("a/init\0"));
        assert!(text.contains("000081ed") && text.trim_end_matches('\0').ends_with("TRAILER!!!"));
    }
}
