//! The vdso of 32-bit programs, which no 64-bit program has: a small 32-bit program of ours writes out its own vdso.
//! The image must come from the kernel, because a profiled process may have changed its copy.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

/// The kernel's vdso has two pages. The memory behind them may come too: the ELF headers say where the image ends.
const MAX_SIZE: u64 = 64 << 10;

/// Load address of the program.
const BASE: u32 = 0x0010_0000;
const EHDR: u8 = 52;
const PHDR: u8 = 32;

/// Finds `AT_SYSINFO_EHDR` behind the environment, and writes a page at a time from there, as long as pages are mapped:
///
/// ```text
///    mov %esp, %esi; lodsl; lea 4(%esi, %eax, 4), %esi
/// 1: lodsl; test %eax, %eax; jnz 1b
/// 2: lodsl; mov %eax, %ebx; lodsl; cmp $33, %ebx; je 3f; test %ebx, %ebx; jnz 2b; jmp 5f
/// 3: mov %eax, %ecx; mov $4096, %edx
/// 4: push $4; pop %eax; push $1; pop %ebx; int $0x80; add %edx, %ecx; cmp %edx, %eax; je 4b
/// 5: push $1; pop %eax; int $0x80
/// ```
const CODE: [u8; 53] = [
    0x89, 0xe6, 0xad, 0x8d, 0x74, 0x86, 0x04, 0xad, 0x85, 0xc0, 0x75, 0xfb, 0xad, 0x89, 0xc3, 0xad, 0x83,
    0xfb, 0x21, 0x74, 0x06, 0x85, 0xdb, 0x75, 0xf3, 0xeb, 0x15, 0x89, 0xc1, 0xba, 0x00, 0x10, 0x00, 0x00,
    0x6a, 0x04, 0x58, 0x6a, 0x01, 0x5b, 0xcd, 0x80, 0x01, 0xd1, 0x39, 0xd0, 0x74, 0xf2, 0x6a, 0x01, 0x58,
    0xcd, 0x80,
];

/// The image, in a file in memory; `None` if this kernel runs no 32-bit programs.
pub(super) fn image() -> Option<Arc<OwnedFd>> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let mut program = File::from(memfd_create("jbpf-prof-vdso32", MemfdFlags::CLOEXEC).ok()?);
    program.write_all(&program_file()).ok()?;
    let mut child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let bytes = output(&mut child);
    let _ = child.wait();
    let bytes = bytes.filter(|bytes| bytes.starts_with(b"\x7fELF"))?;
    let mut file = File::from(memfd_create("jbpf-prof-vdso", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(&bytes).ok()?;
    Some(Arc::new(file.into()))
}

/// The program's output. The pipe closes afterwards, which ends a program that would write more.
fn output(child: &mut Child) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    child.stdout.take()?.take(MAX_SIZE).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// An ELF file of one segment: headers and code.
fn program_file() -> Vec<u8> {
    let headers = u32::from(EHDR) + u32::from(PHDR);
    let size = headers + CODE.len() as u32;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // 32 bits, little endian, version 1; an executable for machine 3 (i386).
    let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0];
    file.extend(words(&[1, BASE + headers, EHDR.into(), 0, 0]));
    file.extend([EHDR, 0, PHDR, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // PT_LOAD, readable and executable.
    file.extend(words(&[1, 0, BASE, BASE, size, size, 5, 4096]));
    file.extend(CODE);
    file
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::elf::Elf;
    use super::super::frame_rules::table;
    use super::image;

    #[test]
    fn a_kernel_that_runs_32_bit_programs_gives_their_vdso() {
        let Some(image) = image() else {
            // This kernel runs no 32-bit programs.
            return;
        };
        let elf = Elf::read(File::from(image.try_clone().unwrap())).unwrap();
        assert!(elf.is_i386());
        assert!(table(&elf, None).unwrap().table.rows() > 5);
    }
}
