//! Tests of the store with a fake memory, which fails on a write to pages that a running program may read.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::super::space::ProgramLayout;
use super::super::{Cfa, Fp, RangeCode, Rule, TableBuilder, UnwindRange};
use super::*;

/// Bytes of a `struct jp_range`, and the offset of its field `table`. The head of a space is as long as a range.
const RANGE_BYTES: usize = 32;
const RANGE_TABLE: usize = 24;

#[derive(Debug, Default)]
struct FakeKernelTables {
    pages: HashMap<u32, Vec<u8>>,
    spaces: HashMap<u32, u32>,
    /// Pages that a running BPF program may have read.
    readable_by_running_programs: HashSet<u32>,
    full: bool,
}

impl FakeKernelTables {
    /// All pages that a program can reach now.
    fn reachable(&self) -> HashSet<u32> {
        let mut reached = HashSet::new();
        for &space in self.spaces.values() {
            reached.insert(space);
            for range in self.pages[&space].as_chunks::<RANGE_BYTES>().0.iter().skip(1) {
                let table = u32::from_le_bytes(range[RANGE_TABLE..RANGE_TABLE + 4].try_into().unwrap());
                reached.extend((table != 0).then_some(table));
            }
        }
        reached
    }
}

#[derive(Debug, Default, Clone)]
struct Fake(Rc<RefCell<FakeKernelTables>>);

impl TableMemory for Fake {
    type Error = ();

    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<(), ()> {
        let mut kernel = self.0.borrow_mut();
        assert!(first > 0 && !bytes.is_empty());
        for (page, bytes) in (first..).zip(bytes.chunks(PAGE)) {
            assert!(
                !kernel.readable_by_running_programs.contains(&page),
                "page {page} may be read by a walk that is running"
            );
            if kernel.full {
                return Err(());
            }
            let mut whole = bytes.to_vec();
            whole.resize(PAGE, 0);
            kernel.pages.insert(page, whole);
        }
        Ok(())
    }

    fn read(&self, page: u32) -> Option<Vec<u8>> {
        self.0.borrow().pages.get(&page).cloned()
    }

    fn publish(&mut self, tgid: u32, page: u32) -> Result<(), ()> {
        let mut kernel = self.0.borrow_mut();
        kernel.spaces.insert(tgid, page);
        let reachable = kernel.reachable();
        kernel.readable_by_running_programs.extend(reachable);
        Ok(())
    }

    fn withdraw(&mut self, tgid: u32) {
        assert!(self.0.borrow_mut().spaces.remove(&tgid).is_some());
    }

    fn wait_for_walks(&mut self) {
        let mut kernel = self.0.borrow_mut();
        kernel.readable_by_running_programs = kernel.reachable();
    }

    fn shrink(&mut self, end: u32) {
        let mut kernel = self.0.borrow_mut();
        assert!(kernel.readable_by_running_programs.iter().all(|page| *page < end), "a walk may read them");
        kernel.pages.retain(|page, _| *page < end);
    }
}

/// A table of about `pages` pages; `number` makes the content distinct.
fn table(number: i32, pages: u64) -> Table {
    let mut builder = TableBuilder::default();
    for i in 0..pages * 1000 {
        let rule = Rule::Frame { cfa: Cfa::Sp(number * 2 + i32::try_from(i & 1).unwrap()), fp: Fp::Same };
        builder.add(i, i + 1, rule).unwrap();
    }
    builder.build().unwrap().unwrap()
}

fn space(seed: u64, ranges: u64) -> Space {
    let layout = ProgramLayout { start_code: seed, end_code: seed, start_stack: seed };
    let range =
        |i: u64| UnwindRange { start: i << 20, end: (i << 20) + 4096, code: RangeCode::File(0), table: 0 };
    Space { layout, ranges: (1..=ranges).map(range).collect() }
}

fn store(pages: u32) -> (TableStore<Fake>, Fake) {
    let fake = Fake::default();
    (TableStore::new(fake.clone(), TableBudget { pages, of_one_process: pages / 3 }), fake)
}

#[test]
fn equal_tables_are_loaded_once() {
    let (mut store, fake) = store(64);
    let (one, same, other) = (store.load(&table(1, 2)), store.load(&table(1, 2)), store.load(&table(2, 2)));
    assert!(one.is_some() && one == same && one != other);
    assert!(store.load_space(7, space(7, 2), &[one, None]));
    assert!(store.load_space(8, space(8, 2), &[one, other]));
    assert_eq!((store.usage().tables, store.usage().spaces), (2, 2));
    // The ranges are the first page of each MiB; the second range of process 7 has no table.
    assert!(store.covers(7, 0, (1 << 20) + 1) && store.covers(7, (1 << 20) + 4095, u64::MAX));
    assert!(!store.covers(7, 0, 1 << 20) && !store.covers(7, (1 << 20) + 4096, u64::MAX));
    assert!(store.covers(8, 2 << 20, (2 << 20) + 1) && !store.covers(9, 0, u64::MAX));
    let kernel = fake.0.borrow();
    let first_table = |tgid: u32| kernel.pages[&kernel.spaces[&tgid]][RANGE_BYTES + RANGE_TABLE];
    assert_eq!(first_table(7), first_table(8));
    assert_ne!(first_table(7), 0);
}

#[test]
fn rules_can_be_read_from_loaded_tables() {
    let (mut store, _fake) = store(64);
    let tables = [table(1, 2), table(5, 7)];
    for table in &tables {
        let key = store.load(table).unwrap();
        for offset in (0..8_000).step_by(37) {
            assert_eq!(store.rule(key, offset), table.rule(offset), "{offset}");
        }
    }
    let gone = store.load(&table(9, 9)).unwrap();
    for i in 100..130 {
        store.load(&table(i, 4)).unwrap();
    }
    assert!(!store.is_table_loaded(gone));
    assert_eq!(store.rule(gone, 1), Rule::None);
}

#[test]
fn what_does_not_change_is_not_written_again() {
    let (mut store, fake) = store(64);
    let key = store.load(&table(1, 1));
    assert!(store.load_space(7, space(7, 1), &[key]));
    let before = fake.0.borrow().spaces[&7];
    assert!(store.load_space(7, space(7, 1), &[key]));
    assert_eq!(fake.0.borrow().spaces[&7], before);
    assert!(store.load_space(7, space(7, 2), &[key, key]));
    assert_ne!(fake.0.borrow().spaces[&7], before, "a walk may be reading the old one");
}

#[test]
fn churn_stays_within_the_budget_and_evicts_unused_tables() {
    let (mut store, _fake) = store(64);
    let kept = store.load(&table(0, 4));
    assert!(store.load_space(1, space(1, 1), &[kept]));
    for i in 1..300 {
        let key = store.load(&table(i, 3));
        assert!(key.is_some(), "{i}");
        let tgid = 2 + u32::try_from(i % 5).unwrap();
        assert!(store.load_space(tgid, space(u64::try_from(i).unwrap(), 2), &[key, kept]));
        if i % 7 == 0 {
            store.remove(tgid);
        }
    }
    assert!(kept.is_some_and(|key| store.is_table_loaded(key)), "it was needed all the time");
    assert!(store.usage().bytes <= 64 * PAGE as u64);
    assert_eq!(store.usage().refused, 0);
}

#[test]
fn unused_tables_are_released_and_loaded_again() {
    let (mut store, fake) = store(64);
    let [needed, idle] = [1, 2].map(|number| store.load(&table(number, 4)));
    assert!(store.load_space(1, space(1, 1), &[needed]) && store.load_space(2, space(2, 1), &[idle]));
    let before = store.usage().bytes;
    store.remove(2);
    assert_eq!(store.usage().bytes, before, "it may come again");
    store.release_memory();
    assert!(
        needed.is_some_and(|key| store.is_table_loaded(key))
            && idle.is_some_and(|key| !store.is_table_loaded(key))
    );
    assert!(store.usage().bytes < before);
    let bytes = fake.0.borrow().pages.len() * PAGE;
    assert!(bytes < usize::try_from(before).unwrap(), "the memory goes too");
    assert_eq!(store.load(&table(2, 4)), idle);
    assert!(store.load_space(2, space(2, 1), &[idle]));
    assert_eq!(store.usage().bytes, before);
}

#[test]
fn one_process_gets_a_third_at_most() {
    let (mut store, _fake) = store(64);
    let keys: Vec<_> = (0..12).map(|i| store.load(&table(i, 4))).collect();
    assert!(store.load_space(1, space(1, 12), &keys));
    assert!(store.usage().refused > 0, "a third of 64 pages holds fewer than twelve tables of five");
    for i in 20..30 {
        let key = store.load(&table(i, 4));
        assert!(store.load_space(2, space(u64::try_from(i).unwrap(), 1), &[key]), "{i}");
        assert!(key.is_some_and(|key| store.is_table_loaded(key)));
    }
}

#[test]
fn without_room_or_memory_processes_go_without() {
    let (mut store, fake) = store(64);
    assert_eq!(store.load(&table(1, 100)), None);
    assert!(store.load_space(1, space(1, 1), &[None]), "a range without a table is published too");
    fake.0.borrow_mut().full = true;
    assert!(!store.load_space(1, space(2, 1), &[None]));
    assert!(!store.is_space_loaded(1), "the old space would be false");
    assert_eq!(store.load(&table(1, 1)), None);
    assert!(fake.0.borrow().spaces.is_empty());
    assert_eq!(store.usage().refused, 3);
}
