//! Which bytes prove that memory has a file's code, and where that code may lie.

use super::*;
use crate::process::maps::parse_all_maps;

/// Bytes that begin at an address.
struct At(u64, Vec<u8>);

impl ByteSource for At {
    fn bytes(&self, at: u64, buffer: &mut [u8]) -> usize {
        let from = at.checked_sub(self.0).and_then(|from| usize::try_from(from).ok());
        let there = from.and_then(|from| self.1.get(from..)).unwrap_or_default();
        let len = there.len().min(buffer.len());
        buffer[..len].copy_from_slice(&there[..len]);
        len
    }
}

const PAGES: usize = 200;
const HERE: u64 = 0x7000_0000_0000;

/// Bytes that stand for code: no two pages are equal.
fn code() -> Vec<u8> {
    let mut random = 1_u64;
    let words = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random.to_be_bytes()
    });
    words.take(PAGES * PAGE as usize / 8).flatten().collect()
}

/// Where the code of the file, from its second page on, lies from `HERE` on.
fn place(pages: u64) -> CandidateRange {
    CandidateRange { start: HERE, end: HERE + pages * PAGE, above: HERE - PAGE }
}

fn part(first: u64, last: u64) -> MovedPart {
    MovedPart { start: HERE + first * PAGE, end: HERE + last * PAGE, offset: (first + 1) * PAGE }
}

#[test]
fn pages_that_are_the_files_are_proven_and_no_others() {
    let mut memory = At(HERE, code()[PAGE as usize..].to_vec());
    let file = At(0, code());
    let parts =
        |memory: &At, first: u64| equal_parts(memory, &file, place(199), HERE + first * PAGE, |_| true);
    for first in [0, 70, 198] {
        assert_eq!(parts(&memory, first), [part(0, 199)], "wherever it begins");
    }
    memory.1[70 * PAGE as usize + 5] ^= 1;
    memory.1[198 * PAGE as usize] ^= 1;
    for first in [0, 70, 198] {
        assert_eq!(parts(&memory, first), [part(0, 70), part(71, 198)]);
    }
    memory.1.truncate(100 * PAGE as usize);
    assert_eq!(parts(&memory, 0), [part(0, 70), part(71, 100)], "memory ends there");
    assert_eq!(equal_parts(&memory, &At(0, Vec::new()), place(199), HERE, |_| true), []);
}

#[test]
fn padding_proves_nothing() {
    let mut bytes = code();
    bytes[3 * PAGE as usize..4 * PAGE as usize].fill(0xcc);
    let memory = At(HERE, bytes[PAGE as usize..].to_vec());
    let parts = equal_parts(&memory, &At(0, bytes), place(4), HERE, |_| true);
    assert_eq!(parts, [part(0, 2), part(3, 4)]);
    assert!(proves(&[1; 63].iter().copied().chain([2]).collect::<Vec<_>>(), &[&[1; 63][..], &[2]].concat()));
    assert!(!proves(&[1, 2], &[1, 2]), "too little");
    assert!(!proves(&[], &[]));
}

/// A program that copies from its first function to its last leaves zeros around them in their pages.
#[test]
fn of_the_first_and_the_last_page_the_code_is_compared() {
    let file = At(0, code());
    let (start, end) = (PAGE + 0x340, 3 * PAGE + 0x120);
    let mut memory = At(HERE, vec![0; 3 * PAGE as usize]);
    let (from, to) = (start as usize, end as usize);
    memory.1[from - PAGE as usize..to - PAGE as usize].copy_from_slice(&file.1[from..to]);
    let segment = Segment { offset: start, address: 0x1340, len: end - start, executable: true };
    let maps = parse_all_maps(b"700000000000-700000003000 r-xp 00000000 00:00 0\n");
    let place = CandidateRange::of(&segment, start + 0x10, HERE + 0x350, &maps[0]);
    let parts = equal_parts(&memory, &file, place, HERE + 0x350, |_| true);
    assert_eq!(parts, [MovedPart { start: HERE + 0x340, end: HERE + end - PAGE, offset: start }]);
}

#[test]
fn a_place_lies_within_the_mapping_and_within_the_segment() {
    let segment = Segment { offset: 0x10_0000, address: 0x50_0000, len: 0x8000, executable: true };
    let maps = parse_all_maps(b"401000-403000 r-xp 00000000 00:00 0\n");
    // The whole segment would begin below address 0.
    let low = CandidateRange::of(&segment, 0x10_7000, 0x40_1000, &maps[0]);
    assert_eq!((low.start, low.end), (0x40_1000, 0x40_2000));
    assert_eq!(low.above.wrapping_add(0x10_7000), 0x40_1000);
    let outside = CandidateRange::of(&segment, 0, 0x40_1000, &maps[0]);
    assert!(!(outside.start..outside.end).contains(&0x40_1000), "{outside:?}");
    let all = Segment { offset: 0, len: u64::MAX, ..segment };
    let all = CandidateRange::of(&all, u64::MAX, 0x40_1000, &maps[0]);
    assert!(all.start >= 0x40_1000 && all.end <= 0x40_3000);
}

#[test]
fn each_mapping_of_a_file_says_where_the_loader_has_put_it() {
    let segments = [
        Segment { offset: 0, address: 0, len: 0x740, executable: false },
        // lld leaves no gap in the file: addresses run ahead of offsets.
        Segment { offset: 0x740, address: 0x1740, len: 0x5000, executable: true },
        Segment { offset: 0x5740, address: 0x7740, len: 0x100, executable: false },
    ];
    let maps = parse_all_maps(
        b"555500000000-555500001000 r--p 00000000 fd:01 7 /x\n\
          555500007000-555500008000 rw-p 00005000 fd:01 7 /x\n",
    );
    let found = biases(&segments, maps.iter());
    assert!(found.contains(&0x5555_0000_0000), "{found:x?}");
    let code = found.iter().filter_map(|bias| segments[1].offset_of(0x5555_0000_2000 - bias));
    assert!(code.clone().any(|offset| offset == 0x1000), "{:x?}", code.collect::<Vec<_>>());
}
