//! Tests of tables that are missing at first, of replaced code, and of invalid frame pointers.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;

use super::*;
use crate::limits::Limit;
use crate::plan::Settings;
use crate::process::{
    CodeSource, CoveredCode, EventKind, ProcessEvent, ProcessOptions, ScanScope, Vdso, event, procfs,
};
use crate::sample::{Count, Leaf, ProcessId, StackKey, ThreadContext};
use crate::symbolize::NoTable;
use crate::unwind::{Cfa, Fp};
use crate::unwind::{PAGE, TableBuilder, TablePart, TableRange};

/// A stack of one sample.
fn once(stack: Stack) -> CountedStack {
    CountedStack { stack, count: Count { samples: 1, weight: 1, ..Count::default() } }
}

/// The pages that the BPF program would read.
#[derive(Clone, Debug, Default)]
struct FakeTableMemory(Rc<RefCell<HashMap<u32, Vec<u8>>>>);

impl TableMemory for FakeTableMemory {
    type Error = Infallible;

    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<(), Infallible> {
        self.0.borrow_mut().extend((first..).zip(bytes.chunks(PAGE).map(<[u8]>::to_vec)));
        Ok(())
    }

    fn read(&self, page: u32) -> Option<Vec<u8>> {
        self.0.borrow().get(&page).cloned()
    }

    fn publish(&mut self, _: u32, _: u32) -> Result<(), Infallible> {
        Ok(())
    }

    fn withdraw(&mut self, _: u32) {}

    fn wait_for_walks(&mut self) {}

    fn shrink(&mut self, _: u32) {}
}

/// A source that has one table for all files, or no table for now.
#[derive(Default)]
struct OneTable {
    there: bool,
    /// The whole table is too large.
    large: bool,
    /// The first offset that the table describes.
    from: u64,
    asked: usize,
    /// The files that were asked for, in this order.
    files: Vec<PathBuf>,
}

impl TableSource for OneTable {
    fn vdso(&self, _: Vdso) -> Option<IdentifiedFile> {
        None
    }

    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable> {
        self.asked += 1;
        if let FileHandle::Mapped(file) = file {
            self.files.push(file.path.to_path_buf());
        }
        let mut builder = TableBuilder::default();
        builder.add(self.from, self.from + (1 << 20), Rule::Frame { cfa: Cfa::Sp(8), fp: Fp::Same }).unwrap();
        let table = builder.build().unwrap().unwrap();
        let range = match around {
            None if self.large => return Err(NoTable::TooLarge),
            None => TableRange::ALL,
            Some(around) => TableRange { start: around & !0xfff, end: (around | 0xfff) + 1 },
        };
        if self.there { Ok(TablePart { table, range }) } else { Err(NoTable::Unavailable) }
    }
}

/// A loader, the test's own process, and an address in its code.
fn own() -> (TableLoader<FakeTableMemory>, Processes, u64) {
    let mut processes = Processes::new(ProcessOptions::default());
    assert_eq!(processes.scan(&ScanScope::Tgids(&[std::process::id()])), 1);
    (TableLoader::new(FakeTableMemory::default(), WalkScope::All), processes, own as *const () as u64)
}

const OWN: fn() -> u32 = std::process::id;
/// No process has this number.
const CHILD: u32 = 4_194_305;

fn load(unwinding: &mut TableLoader<FakeTableMemory>, processes: &mut Processes, tables: &mut OneTable) {
    let code = processes.code(OWN()).unwrap();
    unwinding.load(OWN(), code, tables, Instant::now() + AT_START);
}

/// A stack of the test's own process at the current time.
fn stack(user: Vec<UserWord>) -> Stack {
    let start = procfs::stat(OWN()).unwrap().start_ticks * procfs::clock_tick();
    let process = ProcessId { tgid: OWN(), start, exec: 0 };
    Stack {
        key: StackKey { process, ..StackKey::default() },
        at: MonoNs::now(),
        comm: Vec::new(),
        leaf: Leaf::User,
        stop_reason: StopReason::Root,
        kernel: Vec::new(),
        user,
        waiting: None,
        lock: None,
        waker: None,
        object: None,
        context: ThreadContext::None,
    }
}

#[test]
fn a_table_that_was_unavailable_is_asked_for_again() {
    let (mut unwinding, mut processes, here) = own();
    let (mut tables, begun) = (OneTable::default(), Instant::now());
    load(&mut unwinding, &mut processes, &mut tables);
    assert!(
        unwinding.loaded.store.is_space_loaded(OWN())
            && !unwinding.loaded.store.covers(OWN(), here, here + 1)
    );
    let asked = tables.asked;
    assert!(asked > 0);
    unwinding.due.clear();
    processes.take_changed_processes();
    load(&mut unwinding, &mut processes, &mut tables);
    if begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(tables.asked, asked, "not at once");
    }
    tables.there = true;
    // Only time passes; the process does not change.
    std::thread::sleep(Duration::from_millis(2_100));
    unwinding.note_changes(&mut processes, Instant::now());
    assert_eq!(unwinding.due, [OWN()].into());
    load(&mut unwinding, &mut processes, &mut tables);
    assert!(
        unwinding.loaded.store.covers(OWN(), here, here + 1) && !unwinding.loaded.store.covers(OWN(), 0, 1)
    );
    unwinding.due.clear();
    unwinding.note_changes(&mut processes, Instant::now() + 2 * LAST_PAUSE);
    assert!(unwinding.due.is_empty(), "nothing is missing");
}

/// The time for the tables of other programs is spent: what is loaded already serves new processes nevertheless.
#[test]
fn a_process_that_needs_no_new_table_does_not_wait_for_the_tables_of_others() {
    let (mut unwinding, mut processes, here) = own();
    let mut tables = OneTable { there: true, ..OneTable::default() };
    let groups = Groups::new(&Settings::for_test()).unwrap();
    let now = Instant::now();
    unwinding.allowance = TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, now);
    unwinding.allowance.spend(Duration::from_secs(3_600));
    unwinding.load_some(&mut processes, &groups, &mut tables);
    assert!(
        !unwinding.loaded.store.is_space_loaded(OWN()) && unwinding.due.contains(&OWN()),
        "its tables are new"
    );
    assert_eq!(tables.asked, 0);
    unwinding.running.insert(OWN());
    unwinding.load_some(&mut processes, &groups, &mut tables);
    assert!(unwinding.running.contains(&OWN()), "it has samples, and goes on to come first");
    load(&mut unwinding, &mut processes, &mut tables);
    let asked = tables.asked;
    unwinding.loaded.store.remove(OWN());
    unwinding.running.insert(OWN());
    unwinding.known_allowance = TimeAllowance::new(KNOWN_SHARE_DIVISOR, MAX_SAVED_KNOWN, now);
    unwinding.load_some(&mut processes, &groups, &mut tables);
    assert!(unwinding.loaded.store.covers(OWN(), here, here + 1));
    assert_eq!(tables.asked, asked);
}

#[test]
fn a_table_built_for_a_stack_is_loaded() {
    let (mut unwinding, mut processes, here) = own();
    let mut tables = OneTable { there: true, ..OneTable::default() };
    // The deadline has passed, so no table is built.
    let code = processes.code(OWN()).unwrap();
    unwinding.load(OWN(), code, &mut tables, Instant::now());
    unwinding.due.clear();
    processes.take_changed_processes();
    let stack = stack(vec![UserWord::Leaf(here), UserWord::Followed(here + 1)]);
    let (at, mut stacks) = (stack.at, [once(stack)]);
    unwinding.on_stacks(&mut stacks, at, &mut processes, &mut tables);
    assert_eq!(tables.asked, 1);
    assert!(unwinding.loaded.store.covers(OWN(), here, here + 1));
}

/// Without a table, a frame pointer of 0 is the root, although the function has none and its caller is on the stack.
#[test]
fn a_root_by_frame_pointer_is_believed_only_if_no_table_contradicts() {
    let (mut unwinding, mut processes, here) = own();
    let this = stack(Vec::new());
    let MappedLocation::File { offset, .. } = processes.locate(this.key.process, this.at, here) else {
        panic!()
    };
    let mut tables = OneTable { there: true, from: offset, ..OneTable::default() };
    let mut end = |unwinding: &mut TableLoader<FakeTableMemory>, tables: &mut OneTable, pc| {
        let stack = stack(vec![UserWord::Leaf(pc), UserWord::UNCONFIRMED_ROOT]);
        let (at, mut stacks) = (stack.at, [once(stack)]);
        unwinding.on_stacks(&mut stacks, at, &mut processes, tables);
        assert_eq!(stacks[0].stack.user, [UserWord::Leaf(pc)]);
        stacks[0].stack.stop_reason
    };
    unwinding.allowance.spend(Duration::from_secs(3_600));
    assert_eq!(end(&mut unwinding, &mut tables, here), StopReason::NoTable, "there is no time to look");
    assert_eq!(tables.asked, 0);
    unwinding.allowance = TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now());
    assert_eq!(end(&mut unwinding, &mut tables, here), StopReason::NoTable);
    assert_eq!(tables.asked, 1);
    // Generated code has no table.
    assert_eq!(end(&mut unwinding, &mut tables, 0x1000), StopReason::Root);
    let (mut unwinding, mut none) = (own().0, OneTable::default());
    assert_eq!(end(&mut unwinding, &mut none, here), StopReason::Root, "no table can be had");
}

/// A program with libraries that has begun.
#[test]
fn the_tables_of_small_files_come_first() {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut processes = Processes::new(ProcessOptions::default());
    assert_eq!(processes.scan(&ScanScope::Tgids(&[cat.id()])), 1);
    let code = processes.code(cat.id()).unwrap();
    let mut sizes: HashMap<PathBuf, u64> = HashMap::new();
    for range in &code.ranges {
        if let CodeSource::File(file) = &range.code {
            sizes.insert(file.path.to_path_buf(), range.size());
        }
    }
    let (mut unwinding, mut tables) = (own().0, OneTable { there: true, ..OneTable::default() });
    unwinding.load(cat.id(), code, &mut tables, Instant::now() + AT_START);
    drop(cat.stdin.take());
    cat.wait().unwrap();
    assert_eq!(tables.files.len(), sizes.len(), "each file has one range: {sizes:?}");
    assert!(sizes.len() > 1 && tables.files.is_sorted_by_key(|file| sizes[file]), "{:?}", tables.files);
}

#[test]
fn of_a_large_file_the_parts_are_loaded_in_which_stacks_were() {
    let (mut unwinding, mut processes, here) = own();
    let mut tables = OneTable { there: true, large: true, ..OneTable::default() };
    load(&mut unwinding, &mut processes, &mut tables);
    assert!(!unwinding.loaded.store.covers(OWN(), 0, u64::MAX), "no stack has shown which parts are needed");
    let page = here & !0xfff;
    let mut reach = |unwinding: &mut TableLoader<FakeTableMemory>, pc: u64| {
        let mut stack = stack(vec![UserWord::Leaf(pc)]);
        stack.stop_reason = StopReason::NoTable;
        let (at, mut stacks) = (stack.at, [once(stack)]);
        unwinding.allowance = TimeAllowance::new(SHARE_DIVISOR, MAX_SAVED, Instant::now());
        unwinding.on_stacks(&mut stacks, at, &mut processes, &mut tables);
        load(unwinding, &mut processes, &mut tables);
        unwinding.loaded.store.covers(OWN(), pc, pc + 1)
    };
    assert!(reach(&mut unwinding, here));
    assert!(
        !unwinding.loaded.store.covers(OWN(), page - 1, page)
            && unwinding.loaded.store.covers(OWN(), page, page + 0x1000)
    );
    assert!(unwinding.limits().rows().is_empty());
    let others = [1, 2, 3, 4].map(|n| reach(&mut unwinding, here + n * 0x1000));
    assert_eq!(others, [true, true, true, false], "there is room for four");
    assert!(unwinding.loaded.store.covers(OWN(), here, here + 1), "the first ones stay");
    let reached = unwinding.limits().rows();
    assert_eq!((reached.len(), reached[0].limit, reached[0].left_out), (1, Limit::UnwindTableParts, 1));
}

#[test]
fn replaced_code_is_noted_until_it_is_loaded() {
    let (mut unwinding, mut processes, here) = own();
    let mut tables = OneTable { there: true, ..OneTable::default() };
    load(&mut unwinding, &mut processes, &mut tables);
    let at = MonoNs::now();
    let start = here & !0xfff;
    let inode = event::Inode { major: 1, minor: 2, ino: 3, generation: 4 };
    let path = Arc::from(std::path::Path::new("/none"));
    let mapped = event::MmapRecord { start, len: 0x1000, offset: 0, inode, path };
    processes.apply(&ProcessEvent { at, tgid: OWN(), tid: OWN(), kind: EventKind::Mmap(mapped) });
    let mut stack = stack(vec![UserWord::Leaf(here), UserWord::Return(1)]);
    let walk = |unwinding: &mut TableLoader<FakeTableMemory>, processes: &mut Processes, stack: &Stack| {
        let mut stacks = [once(stack.clone())];
        unwinding.on_stacks(&mut stacks, stack.at, processes, &mut OneTable::default());
        (stacks[0].stack.user.len(), stacks[0].stack.stop_reason)
    };
    assert_eq!(walk(&mut unwinding, &mut processes, &stack), (1, StopReason::NoTable));
    assert!(unwinding.running.contains(&OWN()), "it runs, and is loaded first");
    let forked = EventKind::Fork { parent: OWN() };
    processes.apply(&ProcessEvent { at: stack.at, tgid: CHILD, tid: CHILD, kind: forked });
    let mut child = stack.clone();
    child.key.process = ProcessId { tgid: CHILD, start: stack.at.0, exec: 0 };
    child.at = MonoNs(stack.at.0 + 1);
    assert_eq!(
        walk(&mut unwinding, &mut processes, &child),
        (1, StopReason::NoTable),
        "by its parent's tables"
    );
    load(&mut unwinding, &mut processes, &mut tables);
    assert_eq!(
        walk(&mut unwinding, &mut processes, &stack),
        (1, StopReason::NoTable),
        "it was walked before"
    );
    stack.at = MonoNs(MonoNs::now().0 + 1_000_000_000);
    assert_eq!(walk(&mut unwinding, &mut processes, &stack), (2, StopReason::Root));
}

#[test]
fn who_replaced_code_and_ended_is_not_believed_either() {
    let (mut unwinding, mut processes, here) = own();
    let mut stack = stack(vec![UserWord::Leaf(here), UserWord::Return(1)]);
    stack.key.process = ProcessId { tgid: CHILD, start: 1, exec: 0 };
    let (start, end, at) = (here, here + 1, stack.at);
    unwinding.replaced.add(&CoveredCode { tgid: CHILD, parent: 1, start, end, at });
    unwinding.drop_ended(CHILD);
    let mut stacks = [once(stack)];
    unwinding.on_stacks(&mut stacks, at, &mut processes, &mut OneTable::default());
    assert_eq!((stacks[0].stack.user.len(), stacks[0].stack.stop_reason), (1, StopReason::NoTable));
}
