//! Debug records, encoded and decoded again: each pc gets its own chain back.
#![allow(missing_docs, clippy::unwrap_used)]

use jvm_symbols_log::pc_encoder::MAX_DEPTH;
use jvm_symbols_log::{Nodes, Out, PcDecoder, PcEncoder};

type Chain = Vec<(u32, i32)>;
const METHODS: usize = 300;

/// Encodes records as the agent does. Returns the bytes and the number of accepted records.
fn write(records: &[(u32, Chain)], room: usize) -> (Vec<u8>, usize) {
    let mut nodes = Nodes::default();
    write_with(&mut nodes, records, room)
}

fn write_with(nodes: &mut Nodes, records: &[(u32, Chain)], room: usize) -> (Vec<u8>, usize) {
    let mut buffer = vec![0; room];
    let mut out = Out::new(&mut buffer);
    let mut encoder = PcEncoder::new(&mut out, nodes);
    let mut last: &[(u32, i32)] = &[];
    let mut taken = 0;
    for (pc, chain) in records {
        let kept = last.iter().zip(chain).take_while(|(a, b)| a == b).count();
        if !encoder.record(*pc, kept, chain[kept..].iter().map(|&frame| Some(frame))) {
            break;
        }
        (last, taken) = (chain, taken + 1);
    }
    let all = encoder.finish();
    assert!(all || taken > 0);
    (out.written().to_vec(), taken)
}

fn read(bytes: &[u8]) -> Vec<(u32, Chain)> {
    let mut decoder = PcDecoder::new(bytes, METHODS);
    let mut records = Vec::new();
    while let Some(record) = decoder.step().unwrap() {
        let chain: Chain = decoder.chain().iter().map(|frame| (frame.method, frame.bci)).collect();
        assert_eq!(record.depth, chain.len());
        records.push((record.pc, chain));
    }
    records
}

/// The records without those whose chain is that of the next one.
fn merged(records: &[(u32, Chain)]) -> Vec<(u32, Chain)> {
    let with_next = records.iter().zip(records[1..].iter().map(Some).chain([None]));
    with_next
        .filter(|(one, next)| next.is_none_or(|next| next.1 != one.1))
        .map(|(one, _)| one.clone())
        .collect()
}

/// splitmix64: the same records in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn frame(&mut self) -> (u32, i32) {
        (self.below(METHODS as u64) as u32, self.below(70_000) as i32 - 1)
    }

    /// Records like those of compilers: chains return, share their outer part, or differ in a bytecode index.
    fn records(&mut self, count: usize, deepest: u64) -> Vec<(u32, Chain)> {
        let mut seen: Vec<Chain> = vec![vec![self.frame()]];
        let mut pc = 0;
        let mut records = Vec::new();
        for _ in 0..count {
            pc += self.below(40) as u32;
            let mut chain = seen[self.below(seen.len() as u64) as usize].clone();
            match self.below(4) {
                0 => {}
                1 => chain.last_mut().unwrap().1 = self.below(200) as i32,
                2 => {
                    chain.truncate(1 + self.below(chain.len() as u64) as usize);
                    chain.last_mut().unwrap().1 += 3;
                }
                _ => chain.truncate(self.below(chain.len() as u64 + 1) as usize),
            }
            for _ in 0..self.below(3) {
                chain.push(self.frame());
            }
            chain.truncate(deepest as usize);
            if chain.is_empty() {
                chain.push(self.frame());
            }
            seen.push(chain.clone());
            records.push((pc, chain));
        }
        records
    }
}

#[test]
fn what_is_written_is_read() {
    let mut random = Random(1);
    let mut nodes = Nodes::default();
    for round in 0..300 {
        let records = random.records(1 + round, 1 + round as u64 % 40);
        let (bytes, taken) = write_with(&mut nodes, &records, 1 << 20);
        assert_eq!(taken, records.len());
        assert_eq!(read(&bytes), merged(&records), "round {round}");
    }
}

#[test]
fn more_nodes_than_are_remembered_are_written_again() {
    let records = Random(2).records(20_000, 12);
    let (bytes, taken) = write(&records, 4 << 20);
    assert_eq!(taken, records.len());
    assert_eq!(read(&bytes), merged(&records));
}

#[test]
fn records_without_room_are_dropped_and_earlier_ones_stay_valid() {
    let records = Random(3).records(50, 9);
    let all = merged(&records);
    let (whole, _) = write(&records, 1 << 16);
    for room in 8..whole.len() {
        let (bytes, _) = write(&records, room);
        let shown = read(&bytes);
        assert!(bytes.len() <= room && shown.len() < all.len());
        assert_eq!(shown, all[..shown.len()], "room for {room}");
    }
}

#[test]
fn chains_are_written_up_to_the_depth_limit() {
    let deep: Chain = (0..MAX_DEPTH).map(|depth| (depth as u32 % 300, depth as i32)).collect();
    let mut deeper = deep.clone();
    deeper.push((1, 1));
    let (bytes, taken) = write(&[(5, deep.clone()), (6, deeper)], 1 << 16);
    assert_eq!((taken, read(&bytes)), (1, vec![(5, deep)]));
}

#[test]
fn what_goes_backwards_or_has_no_number_ends_a_table() {
    let mut nodes = Nodes::default();
    for bad in [(3, Some((0, 0))), (9, None)] {
        let mut buffer = [0; 64];
        let mut out = Out::new(&mut buffer);
        let mut encoder = PcEncoder::new(&mut out, &mut nodes);
        assert!(encoder.record(4, 0, [Some((7, 8))].into_iter()));
        assert!(!encoder.record(bad.0, 0, [bad.1].into_iter()));
        assert!(encoder.finish());
        assert_eq!(read(out.written()), [(4, vec![(7, 8)])]);
    }
}

#[test]
fn a_chain_costs_two_bytes_where_a_bytecode_index_changes_or_a_chain_comes_back() {
    let chain = |bci| vec![(0, 5), (1, bci)];
    let records: Vec<(u32, Chain)> = (0..100).map(|i| (i * 10, chain(i as i32 % 10))).collect();
    let (bytes, _) = write(&records, 1 << 16);
    assert!(bytes.len() <= 200, "{}", bytes.len());
}
