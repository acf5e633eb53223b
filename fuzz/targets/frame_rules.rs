//! Call frame information of a file, converted to an unwind table. The first half of the input is the section
//! `.eh_frame`, the second half is `.debug_frame`; all else in the ELF file is valid.

use jbpf_prof::symbolize::frame_rules::table_of_bytes;
use jbpf_prof::unwind::{Rule, Table};

/// ELF-64 for x86-64: header, one executable segment, four sections, their names, the input.
fn file(frames: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.eh_frame\0.debug_frame\0.shstrtab\0";
    const HEADERS: usize = 64 + 56 + 4 * 64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    let put = |file: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let number = |n: usize| (n as u64).to_le_bytes();
    put(&mut file, 18, &[62, 0]);
    put(&mut file, 32, &number(64));
    put(&mut file, 40, &number(64 + 56));
    put(&mut file, 54, &[56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
    put(&mut file, 64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    put(&mut file, 64 + 32, &number(1 << 32));
    let section = |file: &mut Vec<u8>, n: usize, name: u8, at: usize, size: usize| {
        let header = 64 + 56 + n * 64;
        put(file, header, &[name, 0, 0, 0, 1]);
        put(file, header + 16, &number(at));
        put(file, header + 24, &number(at));
        put(file, header + 32, &number(size));
    };
    let half = frames.len() / 2;
    section(&mut file, 1, 1, HEADERS + NAMES.len(), half);
    section(&mut file, 2, 11, HEADERS + NAMES.len() + half, frames.len() - half);
    section(&mut file, 3, 24, HEADERS, NAMES.len());
    put(&mut file, HEADERS, NAMES);
    file.extend(frames);
    file
}

pub(crate) fn run(data: &[u8]) {
    let Ok(table) = table_of_bytes(file(data)) else { return };
    let read = Table::from_bytes(table.bytes().to_vec());
    assert_eq!(read.as_ref(), Some(&table));
    for offset in (0..64).map(|bit| 1_u64 << bit).chain(data.iter().map(|&b| u64::from(b) << 4)) {
        let rule = table.rule(offset);
        assert_eq!(Rule::decode(rule.encode()), rule);
    }
}
