//! OpenTelemetry's build id for files: the hash of a file's head, tail and length (specification/profiles/mappings.md).

use sha2::{Digest, Sha256};

use super::elf::Elf;

/// Bytes at each end of the file that are hashed. The ends of a short file overlap.
const END: usize = 4096;

/// The hash of a file; `None` if the file cannot be read.
pub(super) fn of(elf: &Elf) -> Option<[u8; 16]> {
    let size = elf.file_size().ok()?;
    let tail_at = size.saturating_sub(END as u64);
    let ends = [0, tail_at].map(|at| elf.bytes(at, size.min(END as u64), END as u64));
    let [head, tail] = ends;
    let digest =
        Sha256::new().chain_update(head.ok()?).chain_update(tail.ok()?).chain_update(size.to_be_bytes());
    digest.finalize().first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The algorithm by other programs: `head`, `tail`, `sha256sum`.
    fn by_tools(file: &str) -> String {
        let script = r#"length=$(printf %016x "$(stat -Lc %s "$1")" | sed 's/../\\x&/g')
            { head -c 4096 "$1"; tail -c 4096 "$1"; printf "$length"; } | sha256sum | head -c 32"#;
        let output = Command::new("bash").args(["-c", script, "bash", file]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn it_is_what_other_programs_compute() {
        let root = tempfile::tempdir().unwrap();
        let own = std::fs::read("/proc/self/exe").unwrap();
        // A program header table that ends within a short file, whose ends overlap.
        let short = root.path().join("short");
        std::fs::write(&short, &own[..5000]).unwrap();
        for file in ["/proc/self/exe", short.to_str().unwrap()] {
            let file = std::fs::canonicalize(file).unwrap();
            let elf = Elf::read(std::fs::File::open(&file).unwrap()).unwrap();
            let hash = crate::profile::frame::hex(&of(&elf).unwrap());
            assert_eq!(hash, by_tools(file.to_str().unwrap()), "{}", file.display());
        }
    }
}
