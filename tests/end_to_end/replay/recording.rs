//! Recordings of programs, and the unwinder of `bpf/` that runs on them in user space: `tests/programs/replay`.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::OnceLock;

use jbpf_prof::process::maps::{MapsEntry, parse_maps};
use jbpf_prof::symbolize::frame_rules::table_of_bytes;
use jbpf_prof::unwind::{
    CodeSpan, HotSpotUnwindInfo, PAGE, ProgramLayout, RangeCode, Space, TableBudget, TableMemory, TableStore,
    UnwindRange,
};

use testkit::{scratch, sources};

/// The bits of an address; the bits above are a tag.
pub(crate) const ADDRESS: u64 = (1 << 60) - 1;
/// `JP_MAX_READS` and `JP_FAILED_READ`: the limit on reads for one stack, and the cost of a read that fails.
pub(crate) const MAX_READS: u64 = 8_192;
pub(crate) const FAILED_READ: u64 = 32;
const VDSO: &str = "[vdso]";

/// A stack as the unwinder sees it, and the true return addresses if they are known. Leaf first.
pub(crate) struct Walked {
    /// The stop reason, as in `enum jp_end`.
    pub(crate) end: String,
    /// The number of memory reads, and how many of them failed.
    pub(crate) reads: u64,
    pub(crate) failed: u64,
    /// The number of looks at memory or tables; `again` is that of a second walk with all steps noted before.
    pub(crate) looks: u64,
    pub(crate) again: u64,
    /// The words for user space: `JP_WORD_*`.
    pub(crate) words: Vec<u64>,
    pub(crate) truth: Vec<u64>,
}

impl Walked {
    fn parse(line: &str) -> Walked {
        let numbers = |text: &str| -> Vec<u64> {
            text.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap()).collect()
        };
        let (walk, truth) = line.split_once('|').unwrap();
        let (end, words) = walk.split_once(' ').unwrap();
        let mut words = numbers(words);
        let counted: Vec<u64> = words.drain(..4).collect();
        let [reads, failed, looks, again] = counted[..] else { panic!("{line}") };
        Walked { end: end.to_owned(), reads, failed, looks, again, words, truth: numbers(truth) }
    }

    /// The cost of all reads, as `JP_MAX_READS` counts it.
    pub(crate) fn cost(&self) -> u64 {
        self.reads + (FAILED_READ - 1) * self.failed
    }

    /// The addresses without their tags.
    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.words.iter().map(|word| word & ADDRESS).collect()
    }
}

/// The part of a program that is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// From the first instruction to the last.
    All,
    /// From the first `int3` until the function that contains it returns.
    Function,
}

/// A program that ran one instruction at a time.
pub(crate) struct Recording {
    dir: PathBuf,
    maps: Vec<MapsEntry>,
    /// The table pages that the profiler would load, and where the space begins.
    pages: (Vec<u8>, u32),
}

impl Recording {
    pub(crate) fn of(name: &str, program: &Path, part: Part) -> Recording {
        let mut record = Command::new(tool("record"));
        if part == Part::Function {
            // One program records the work of the dynamic linker for all programs.
            record.env("LD_BIND_NOW", "1");
        }
        let part = if part == Part::All { "all" } else { "part" };
        let args = [part.to_owned(), program.to_str().unwrap().to_owned()];
        let dir = self::record(&mut record, name, &args).expect("its only thread does not block");
        let maps = maps_of(&dir.join("maps"));
        let pages = load(&maps, |entry| entry.path.to_path_buf(), None);
        Recording { dir, maps, pages }
    }

    /// Runs this many instructions of a JVM's thread; `None` if it waits for another thread: all others stand still.
    pub(crate) fn of_thread(
        name: &str,
        (pid, tid): (u32, u32),
        jvm: &HotSpotUnwindInfo,
        steps: u32,
    ) -> Option<Recording> {
        let mut args = vec!["thread".to_owned(), pid.to_string(), tid.to_string(), steps.to_string()];
        for heap in &jvm.heaps {
            let length = heap.span.end - heap.span.start;
            for (start, length) in [(heap.span.start, length), (heap.segment_map, length >> jvm.segment_log2)]
            {
                args.extend([start.to_string(), length.to_string()]);
            }
        }
        // The mappings are read before, because the process does not survive the recording.
        let maps = maps_of(Path::new(&format!("/proc/{pid}/maps")));
        // The mapped file itself: in a chroot, a container's paths begin above it. Only root may follow these links.
        let mapped = |entry: &MapsEntry| match rustix::process::geteuid().is_root() {
            true => format!("/proc/{pid}/map_files/{:x}-{:x}", entry.start, entry.end).into(),
            false => entry.path.to_path_buf(),
        };
        let pages = load(&maps, mapped, Some(jvm));
        let dir = record(&mut Command::new(tool("record")), name, &args)?;
        Some(Recording { dir, maps, pages })
    }

    /// An artificial recording: a JVM's code heaps, and any content.
    pub(crate) fn made(name: &str, jvm: &HotSpotUnwindInfo, recording: &[u8]) -> Recording {
        let dir = scratch("recordings").join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("recording"), recording).unwrap();
        Recording { dir, maps: Vec::new(), pages: load(&[], |entry| entry.path.to_path_buf(), Some(jvm)) }
    }

    /// Unwinds all recorded stacks.
    pub(crate) fn walk(&self) -> Vec<Walked> {
        let (pages, space) = &self.pages;
        let file = self.dir.join("pages");
        fs::write(&file, pages).unwrap();
        let mut walker = Command::new(tool("walker"));
        walker.arg(self.dir.join("recording")).arg(file).arg(space.to_string());
        let done = walker.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let said = String::from_utf8(done.stdout).unwrap();
        said.lines().map(Walked::parse).collect()
    }

    /// An address as text for people.
    pub(crate) fn place(&self, pc: u64) -> String {
        let entry = self.maps.iter().find(|entry| (entry.start..entry.end).contains(&pc));
        entry.map_or_else(
            || format!("{pc:#x}"),
            |entry| format!("{}+{:#x}", entry.path.display(), pc - entry.start + entry.offset),
        )
    }
}

/// A JVM's code heaps are a quarter of a gigabyte, and there are many JVMs. A failed test keeps its recording.
impl Drop for Recording {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Asserts that honest stacks, each with its number of frames, stay far below the limit of 8 reads a frame: they need
/// at most 4, besides a few reads that fail or search.
#[track_caller]
pub(crate) fn assert_cheap<'a>(name: &str, stacks: impl Iterator<Item = (&'a Walked, usize)>) {
    let spare = |(stack, frames): &(&Walked, usize)| 4 * *frames as i64 + 256 - stack.cost() as i64;
    let (stack, frames) = stacks.min_by_key(spare).expect("there are stacks");
    eprintln!("{name}: {} reads for {frames} frames at most, {} failed", stack.reads, stack.failed);
    assert!(spare(&(stack, frames)) >= 0, "{name}: {} reads for {frames} frames", stack.cost());
}

/// Asserts that noted steps spare later walks looks at code and tables: at least two fifths of all.
#[track_caller]
pub(crate) fn assert_known_steps_are_cheaper(name: &str, stacks: &[Walked]) {
    let sum = |looks: fn(&Walked) -> u64| stacks.iter().map(looks).sum::<u64>();
    let (looks, again) = (sum(|stack| stack.looks), sum(|stack| stack.again));
    eprintln!("{name}: {looks} looks, {again} by known steps");
    assert!(again * 5 < looks * 3, "{name}: {again} of {looks} looks");
}

/// Runs the recorder; returns its output directory, or `None` if the thread waits for one that stands still.
fn record(record: &mut Command, name: &str, args: &[String]) -> Option<PathBuf> {
    const WAITS: i32 = 3;
    let dir = scratch("recordings").join(name);
    fs::create_dir_all(&dir).unwrap();
    let done = record.arg(&dir).args(args).output().unwrap();
    if done.status.code() == Some(WAITS) {
        return None;
    }
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    Some(dir)
}

fn maps_of(file: &Path) -> Vec<MapsEntry> {
    parse_maps(&fs::read(file).unwrap()).entries
}

/// The pages that the profiler would load, and where the space begins; `file` gives the path of a mapping's file.
fn load(
    maps: &[MapsEntry],
    file: impl Fn(&MapsEntry) -> PathBuf,
    jvm: Option<&HotSpotUnwindInfo>,
) -> (Vec<u8>, u32) {
    let pages = Rc::new(RefCell::default());
    let mut store = TableStore::new(Pages(Rc::clone(&pages)), TableBudget::default());
    let (mut ranges, mut tables): (Vec<UnwindRange>, Vec<_>) = Default::default();
    for entry in maps.iter().filter(|entry| !entry.path.as_os_str().is_empty()) {
        let bytes = if *entry.path == *Path::new(VDSO) { own_vdso() } else { fs::read(file(entry)).ok() };
        let table = bytes.and_then(|bytes| table_of_bytes(bytes).ok());
        tables.push(table.and_then(|table| store.load(&table)));
        let (start, end) = (entry.start, entry.end);
        ranges.push(UnwindRange { start, end, code: RangeCode::File(entry.offset), table: 0 });
    }
    // Tables of the program, of libc or the file that contains libc, and of the vdso.
    assert!(maps.is_empty() || tables.iter().flatten().count() > 1, "no tables");
    for heap in jvm.iter().flat_map(|jvm| &jvm.heaps) {
        let CodeSpan { start, end } = heap.span;
        let at = ranges.partition_point(|range| range.end <= start);
        ranges.insert(at, UnwindRange { start, end, code: RangeCode::Heap(heap.segment_map), table: 0 });
        tables.insert(at, jvm.and_then(|jvm| store.load_jvm(jvm)));
    }
    assert!(store.load_space(1, Space { layout: ProgramLayout::default(), ranges }, &tables));
    pages.take()
}

/// All processes have the same vdso.
fn own_vdso() -> Option<Vec<u8>> {
    let own =
        maps_of(Path::new("/proc/self/maps")).into_iter().find(|entry| *entry.path == *Path::new(VDSO))?;
    let mut bytes = vec![0; usize::try_from(own.end - own.start).ok()?];
    fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, own.start).ok()?;
    Some(bytes)
}

/// The pages of unwind tables as a file, and the space that was published last.
struct Pages(Rc<RefCell<(Vec<u8>, u32)>>);

impl TableMemory for Pages {
    type Error = ();

    fn write(&mut self, first: u32, bytes: &[u8]) -> Result<(), ()> {
        let (all, _) = &mut *self.0.borrow_mut();
        let at = first as usize * PAGE;
        let end = (at + bytes.len()).next_multiple_of(PAGE);
        all.resize(all.len().max(end), 0);
        all[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, _: u32) -> Option<Vec<u8>> {
        None
    }

    fn publish(&mut self, _: u32, page: u32) -> Result<(), ()> {
        self.0.borrow_mut().1 = page;
        Ok(())
    }

    fn withdraw(&mut self, _: u32) {}

    fn wait_for_walks(&mut self) {}

    fn shrink(&mut self, _: u32) {}
}

/// `record` or `walker`, compiled once. The walker is the code of bpf/, compiled by clang here too.
fn tool(name: &str) -> PathBuf {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    let dir = TOOLS.get_or_init(|| {
        let (dir, from) = (scratch("replay"), sources().join("replay"));
        let shims = testkit::repository().join("src/outside/shims");
        let flags: [(&str, &str, &[&str]); 2] = [
            ("record", "cc", &["-Wextra"]),
            // Only BPF programs have the attribute.
            ("walker", "clang", &["-D__TARGET_ARCH_x86", "-Wno-unknown-attributes"]),
        ];
        for (tool, compiler, more) in flags {
            let mut command = Command::new(compiler);
            command.args(["-O2", "-g", "-Wall", "-Werror"]).args(more).arg("-I").arg(&shims);
            let done = command.arg("-o").arg(dir.join(tool)).arg(from.join(format!("{tool}.c"))).status();
            assert!(done.unwrap().success(), "{tool}.c does not compile");
        }
        dir
    });
    dir.join(name)
}
