//! The code to which signal handlers return. It asks the kernel to continue the interrupted code.
//!
//! Of C libraries, only glibc describes this code by call frame information. musl's (`src/signal/x86_64/restore.s`) and
//! that of Go's runtime (`runtime.sigreturn__sigaction`, `src/runtime/sys_linux_amd64.s`) are known by their bytes, as
//! in other unwinders (GCC: `libgcc/config/i386/linux-unwind.h`).

use super::elf::Elf;
use super::program_headers;
use crate::unwind::{Rule, TableRange};

/// The kernel's `struct ucontext` is on top of the stack: `uc_mcontext` at 40, there `sp` and `ip` at 120, `bp` at 80
/// (`arch/x86/include/uapi/asm/sigcontext.h`).
pub(super) const RULE: Rule = Rule::Signal { sp_at: 160, fp_at: 120 };
/// `mov rax, 15; syscall`, in the two encodings that assemblers write.
const CODES: [&[u8]; 2] = [b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05", b"\xb8\x0f\0\0\0\x0f\x05"];
/// Bytes before the end of such code that identify it.
const BEFORE: usize = 10;
/// `ret`: a byte of this value before the code belongs to another function.
const RET: u8 = 0xc3;
/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// Bytes of code searched in one file.
const MAX_SEARCHED: u64 = 256 << 20;
/// Places in one file, at most; real files have one or two.
const MAX_FOUND: usize = 64;

/// Where such code is, sorted, as the unwinder looks it up: a return address is looked up by the byte before it. Only
/// files with a C library or a runtime of their own have such code. Other files are not searched.
pub(super) fn all(elf: &Elf) -> Vec<TableRange> {
    if program_headers::needs_libraries(elf) {
        return Vec::new();
    }
    let mut left = MAX_SEARCHED;
    let mut found = Vec::new();
    for segment in elf.code() {
        let size = segment.size.min(left);
        left -= size;
        search(elf, segment.offset, segment.offset.saturating_add(size), &mut found);
    }
    found.sort_unstable_by_key(|code| code.start);
    found.dedup();
    found
}

fn search(elf: &Elf, start: u64, end: u64, found: &mut Vec<TableRange>) {
    // Each chunk begins with the end of the previous one, because code may lie in both.
    let mut chunk = vec![0; BEFORE + CHUNK];
    let mut at = start;
    let mut before = 0;
    while at < end && found.len() < MAX_FOUND {
        let room = before + usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let Ok(read @ 1..) = elf.read_some(&mut chunk[before..room], at) else { return };
        let bytes = &chunk[..before + read];
        let first = at - before as u64;
        found.extend(ends(bytes).filter_map(|end| code_that_ends(bytes, first, end)));
        at += read as u64;
        let kept = bytes.len().saturating_sub(BEFORE)..bytes.len();
        before = kept.len();
        chunk.copy_within(kept, 0);
    }
}

/// Offsets at which system calls end.
fn ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memmem::find_iter(bytes, b"\x0f\x05").map(|at| at + 2)
}

/// The signal return code that ends at `end`, if there is one; `first` is the offset of the first byte.
fn code_that_ends(bytes: &[u8], first: u64, end: usize) -> Option<TableRange> {
    let code = CODES.into_iter().find(|code| bytes[..end].ends_with(code))?;
    let start = end - code.len();
    let own = start.checked_sub(1).is_some_and(|before| bytes[before] != RET);
    Some(TableRange { start: first + start as u64 - u64::from(own), end: first + end as u64 })
}

#[cfg(test)]
mod tests {
    use super::super::frame_rules::{self, NoTable};
    use super::*;

    /// A file of one segment of code, with these bytes at these offsets.
    fn file(codes: &[(usize, &[u8])]) -> Elf {
        let mut file = vec![0x90; 3 * CHUNK];
        file[..120].fill(0);
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let size = file.len() as u64;
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(18, &[62, 0]);
        put(32, &64_u64.to_le_bytes());
        put(54, &[56, 0, 1, 0]);
        put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        put(64 + 32, &size.to_le_bytes());
        codes.iter().for_each(|(at, code)| put(*at, code));
        Elf::read_memory(file).unwrap()
    }

    #[test]
    fn it_is_found_wherever_it_lies() {
        let [long, short] = CODES;
        let places = [300, CHUNK - 5, 2 * CHUNK - 1, 2 * CHUNK + 100, 3 * CHUNK - long.len()];
        for (code, place) in CODES.into_iter().flat_map(|code| places.map(|place| (code, place))) {
            let range = TableRange { start: place as u64 - 1, end: (place + code.len()) as u64 };
            assert_eq!(all(&file(&[(place, code)])), [range], "{place:#x}");
        }
        // A `ret` before the code keeps its byte. Another system call is other code.
        let after = all(&file(&[(500, &[RET]), (501, short), (600, b"\xb8\x0e\0\0\0\x0f\x05")]));
        assert_eq!(after, [TableRange { start: 501, end: 508 }]);
        assert_eq!(all(&file(&[(400, short), (500, long)])).len(), 2);
    }

    #[test]
    fn a_file_that_describes_nothing_else_has_a_table_of_it_alone() {
        let part = frame_rules::table(&file(&[(500, CODES[0])]), None).unwrap();
        assert_eq!(part.range, TableRange { start: 499, end: 510 });
        let rules = [498, 499, 508, 509].map(|offset| part.table.rule(offset));
        assert_eq!(rules, [Rule::None, RULE, RULE, Rule::None]);
        assert_eq!(frame_rules::table(&file(&[]), None), Err(NoTable::NoFrames));
    }
}
