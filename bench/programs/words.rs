//! Counts and sorts words again and again, in two threads, with the standard library.
use std::collections::{BTreeMap, HashMap};

fn words(round: u64) -> Vec<String> {
    let mut seed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    (0..20_000).map(|_| format!("word-{:x}", next() % 5_000)).collect()
}

fn count(round: u64) -> usize {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for word in words(round) {
        *counts.entry(word).or_default() += 1;
    }
    let mut order: Vec<(&String, &usize)> = counts.iter().collect();
    order.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let tree: BTreeMap<String, usize> = order.iter().map(|(word, n)| (word.to_uppercase(), **n)).collect();
    tree.values().sum()
}

fn main() {
    println!("ready");
    let other = std::thread::spawn(|| (0..u64::MAX).map(count).fold(0, usize::wrapping_add));
    let own = (0..u64::MAX).map(|round| count(!round)).fold(0, usize::wrapping_add);
    println!("{}", own + other.join().unwrap_or(0));
}
