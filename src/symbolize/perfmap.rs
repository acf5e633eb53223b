//! Perf maps: the files in which other runtimes (Node `--perf-basic-prof`, Python 3.12 `-X perf`, .NET) list the code
//! that they generate. Format: `tools/perf/Documentation/jit-interface.txt` of Linux, `START SIZE NAME` in hex, a line
//! each; HotSpot's `jcmd Compiler.perfmap` writes `0x` before the numbers.
//!
//! The file belongs to the profiled program and may contain anything. A bad line is skipped and counted, no line is
//! ever quoted, and reading is bounded.
//!
//! When code is collected, runtimes use its address again (V8 does), and write another line for the new code. So the
//! last line that covers an address is the true one. Names are given only after an unbroken reading up to the end of
//! the file. If a file is too long, its beginning is left out; of too many functions, the oldest are left out. Their
//! code becomes unknown, not misnamed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::demangle::MAX_NAME;
use super::message::PerfMapFacts;
use crate::profile::UnknownReason;
use crate::profile::frame::clean;

/// Bytes read from the end of one file, at most: maps of 168 MB were seen (sandstorm-io/blackrock 37).
const MAX_READ: u64 = 256 << 20;
/// Bytes read in one step, at most: the worker must answer in time.
const STEP: u64 = 8 << 20;
/// Steps of one reading, at most, if the file does not grow meanwhile.
pub(crate) const MAX_STEPS: u64 = MAX_READ / STEP + 1;
/// Functions of one map, and bytes of their names. At both limits, the worker is still too small to be replaced.
const MAX_ENTRIES: usize = 1 << 18;
const MAX_NAMES: usize = 20 << 20;
/// Longest line that is accepted, bytes.
const MAX_LINE: usize = 16 << 10;
const BLOCK: usize = 64 << 10;

/// The code of one line, by its start.
#[derive(Clone, Copy, Debug)]
struct PerfMapEntry {
    end: u64,
    /// Offset of the name; names are in the order of their lines.
    name: u32,
    len: u32,
    /// Number of the reading, from the second on, that found this code in the place of other code; else 0.
    replaced_in: u32,
}

/// The contents of one process's perf map.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// Sorted by start. No two ranges overlap.
    code: BTreeMap<u64, PerfMapEntry>,
    names: Vec<u8>,
    /// Offset up to which the file was read: after the last whole line, or inside a line that is too long.
    read_to: u64,
    /// The offset is inside a line that is too long or began in the part left out. The line is skipped up to its end.
    skipping: bool,
    /// Readings that reached the end of the file and found something.
    readings: u32,
    facts: PerfMapFacts,
}

impl PerfMap {
    /// Reads new data of `file` from where the last reading ended, at most one step. If the file has become shorter,
    /// reads from the start. Reading ends at the size that the file had at the start, so that it ends even if the file
    /// grows.
    pub fn read(&mut self, file: &File) -> PerfMapFacts {
        let size = file.metadata().map_or(0, |m| m.len());
        self.read_from(size, |block, at| file.read_at(block, at).unwrap_or(0))
    }

    fn read_from(&mut self, size: u64, read_at: impl Fn(&mut [u8], u64) -> usize) -> PerfMapFacts {
        if size < self.read_to || size - self.read_to > MAX_READ {
            self.begin_anew(size);
        }
        let end = size.min(self.read_to + STEP);
        let begin = self.read_to;
        let mut block = vec![0; BLOCK];
        let (mut at, mut line) = (self.read_to, Vec::new());
        while at < end {
            let want = BLOCK.min(usize::try_from(end - at).unwrap_or(BLOCK));
            let got = read_at(&mut block[..want], at);
            if got == 0 {
                break;
            }
            for piece in block[..got].split_inclusive(|&b| b == b'\n') {
                at += piece.len() as u64;
                if self.skipping || line.len() + piece.len() > MAX_LINE {
                    // The line may have no end, so its bytes are not read again in the next reading.
                    (self.skipping, self.read_to) = (true, at);
                    line.clear();
                } else {
                    line.extend_from_slice(piece);
                }
                if piece.ends_with(b"\n") {
                    self.line(if self.skipping { &[] } else { &line });
                    (self.skipping, self.read_to) = (false, at);
                    line.clear();
                }
            }
        }
        self.facts.more = at < size;
        self.facts.read += self.read_to - begin;
        if !self.facts.more && self.read_to > begin {
            self.readings = self.readings.saturating_add(1);
        }
        self.facts
    }

    /// Forgets everything, because the file has become shorter, or has grown by more than is read of one file. What is
    /// known may be of code that is gone.
    fn begin_anew(&mut self, size: u64) {
        let begun_anew = self.facts.begun_anew + u64::from(self.read_to > 0);
        let (read, left_out) = (self.facts.read, size.saturating_sub(MAX_READ));
        let facts = PerfMapFacts { begun_anew, read, left_out, ..PerfMapFacts::default() };
        *self = PerfMap { facts, read_to: left_out, skipping: left_out > 0, ..PerfMap::default() };
    }

    /// The name of the code at `address`, without its tier mark unless `raw`. `earlier`: the address was seen before
    /// the last reading, in which this code may have replaced other code.
    ///
    /// # Errors
    /// Why there is no name.
    pub fn find(&self, address: u64, raw: bool, earlier: bool) -> Result<String, UnknownReason> {
        let code = self.code.range(..=address).next_back().map(|(_, code)| code);
        let code =
            code.filter(|code| address < code.end && !self.facts.more).ok_or(UnknownReason::AnonymousCode)?;
        if earlier && code.replaced_in == self.readings && self.readings > 1 {
            return Err(UnknownReason::CodeMoved);
        }
        let name = self.name_of(code);
        Ok(if raw { clean(name, MAX_NAME) } else { clean(&without_tier(name), MAX_NAME) })
    }

    fn name_of(&self, code: &PerfMapEntry) -> &[u8] {
        let start = code.name as usize;
        self.names.get(start..start + code.len as usize).unwrap_or_default()
    }

    fn line(&mut self, line: &[u8]) {
        match parse(line) {
            Some((start, end, name)) => {
                self.add(start, end, name);
                self.facts.lines += 1;
            }
            None => self.facts.rejected += 1,
        }
    }

    /// A later line wins: the code that it overlaps is gone.
    fn add(&mut self, start: u64, end: u64, name: &[u8]) {
        if self.code.len() >= MAX_ENTRIES || self.names.len() + name.len() > MAX_NAMES {
            self.make_room();
        }
        let mut replaced_in = 0;
        while let Some((&old, code)) = self.code.range(..end).next_back().filter(|(_, old)| old.end > start) {
            // A runtime may write the same line again.
            if self.readings > 0 && (old != start || self.name_of(code) != name) {
                replaced_in = self.readings.saturating_add(1);
            }
            self.code.remove(&old);
        }
        // Both are at most `MAX_NAMES`.
        let place = u32::try_from(self.names.len()).ok().zip(u32::try_from(name.len()).ok());
        let Some((at, len)) = place else { return };
        self.names.extend_from_slice(name);
        self.code.insert(start, PerfMapEntry { end, name: at, len, replaced_in });
    }

    /// Drops the names of code that is gone, and the older half of the code if that is not enough.
    fn make_room(&mut self) {
        let mut by_age: Vec<(u32, u64)> = self.code.iter().map(|(&start, code)| (code.name, start)).collect();
        by_age.sort_unstable();
        let living: usize = self.code.values().map(|code| code.len as usize).sum();
        if self.code.len() >= MAX_ENTRIES || living > MAX_NAMES / 4 * 3 {
            for (_, start) in by_age.drain(..by_age.len() / 2) {
                let line = self.code.remove(&start).map_or(0, |code| u64::from(code.len) + LINE_BESIDE_NAME);
                self.facts.left_out += line;
            }
        }
        let mut names = Vec::new();
        for (_, start) in by_age {
            let Some(code) = self.code.get_mut(&start) else { continue };
            let from = code.name as usize;
            code.name = u32::try_from(names.len()).unwrap_or(u32::MAX);
            names.extend_from_slice(self.names.get(from..from + code.len as usize).unwrap_or_default());
        }
        self.names = names;
    }
}

/// Approximate bytes of a line beside its name.
const LINE_BESIDE_NAME: u64 = 17;

fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.trim_ascii().splitn(3, |&b| b == b' ');
    let start = hex(parts.next()?)?;
    let size = hex(parts.next()?)?;
    let name = parts.next()?.trim_ascii();
    let end = start.checked_add(size)?;
    // No function is longer than 4 GiB, and no code lies in the first page.
    (size > 0 && size <= u64::from(u32::MAX) && start >= 4096 && !name.is_empty())
        .then_some((start, end, name))
}

fn hex(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &b| {
        let digit = char::from(b).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// V8 marks the tier of a function before its name: `~` interpreted, `^` baseline, `+` Maglev, `*` TurboFan
/// (`src/logging/code-events.h`, `ComputeMarker`). One function is one frame in all tiers.
fn without_tier(name: &[u8]) -> Vec<u8> {
    const KINDS: [&[u8]; 5] = [b"LazyCompile:", b"JS:", b"Function:", b"Eval:", b"Script:"];
    for kind in KINDS {
        if let Some(rest) = name.strip_prefix(kind)
            && let [b'~' | b'^' | b'+' | b'*', function @ ..] = rest
        {
            return [kind, function].concat();
        }
    }
    name.to_vec()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;

    use super::*;

    fn map(text: &[u8]) -> (PerfMap, PerfMapFacts) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let mut map = PerfMap::default();
        let facts = read_all(&mut map, &file);
        (map, PerfMapFacts { read: 0, ..facts })
    }

    fn read_all(map: &mut PerfMap, file: &File) -> PerfMapFacts {
        for _ in 0..MAX_STEPS {
            let facts = map.read(file);
            if !facts.more {
                return facts;
            }
            assert_eq!(
                map.find(0x10000, true, false),
                Err(UnknownReason::AnonymousCode),
                "the end is not known yet"
            );
        }
        panic!("it has no end");
    }

    fn name(map: &PerfMap, address: u64) -> Option<String> {
        map.find(address, true, false).ok()
    }

    #[test]
    fn both_forms_of_numbers_and_names_with_spaces() {
        let (map, facts) = map(b"7f0000001000 40 LazyCompile:*fib /app/a b.js:12:3\n\
            0x00007f0000002000 0x10 py::main:/app/x.py\n7F0000003000 8 JS:~go\n");
        assert_eq!(facts, PerfMapFacts { lines: 3, ..PerfMapFacts::default() });
        assert_eq!(map.find(0x7f00_0000_103f, false, false).unwrap(), "LazyCompile:fib /app/a b.js:12:3");
        assert_eq!(name(&map, 0x7f00_0000_103f).unwrap(), "LazyCompile:*fib /app/a b.js:12:3");
        assert_eq!(name(&map, 0x7f00_0000_1040), None);
        assert_eq!(name(&map, 0x7f00_0000_0fff), None);
        assert_eq!(map.find(0x7f00_0000_2000, false, false).unwrap(), "py::main:/app/x.py");
        assert_eq!(map.find(0x7f00_0000_3007, false, false).unwrap(), "JS:go");
    }

    #[test]
    fn bad_lines_are_skipped_and_counted() {
        let mut text = b"junk\n\n10000 zz a\n10000 10\n10000 0 empty\nffffffffffffffff 10 wraps\n".to_vec();
        text.extend_from_slice(b"10000 10 \x1b[31mred\xff\n");
        text.extend_from_slice(&[b'x'; 1 << 20]);
        text.extend_from_slice(b"\n20000 10 last\n30000 10 cut by the wri");
        let (map, facts) = map(&text);
        assert_eq!(facts, PerfMapFacts { lines: 2, rejected: 7, ..PerfMapFacts::default() });
        assert_eq!(name(&map, 0x10000).unwrap(), "?[31mred\u{fffd}");
        assert_eq!(name(&map, 0x2000f).unwrap(), "last");
        assert_eq!(name(&map, 0x30000), None);
    }

    #[test]
    fn later_lines_win() {
        let (map, _) = map(b"10000 100 old\n20000 100 other\n10080 100 new\n");
        assert_eq!(name(&map, 0x10000), None);
        assert_eq!(name(&map, 0x10080).unwrap(), "new");
        assert_eq!(name(&map, 0x1017f).unwrap(), "new");
        assert_eq!(name(&map, 0x20000).unwrap(), "other");
    }

    #[test]
    fn growth_is_read_from_where_it_was_left() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"10000 10 a\n20000 10 b").unwrap();
        let mut map = PerfMap::default();
        assert_eq!(map.read(&file).lines, 1);
        assert_eq!(name(&map, 0x20000), None);
        file.write_all(b"cd\n30000 10 e\n").unwrap();
        assert_eq!(map.read(&file).lines, 3);
        assert_eq!(name(&map, 0x20000).unwrap(), "bcd");
        file.set_len(0).unwrap();
        file.write_all_at(b"40000 10 fresh\n", 0).unwrap();
        let expected = PerfMapFacts { lines: 1, begun_anew: 1, read: 50, ..PerfMapFacts::default() };
        assert_eq!(map.read(&file), expected);
        assert_eq!(name(&map, 0x10000), None);
        assert_eq!(name(&map, 0x40000).unwrap(), "fresh");
    }

    #[test]
    fn of_a_map_without_end_the_end_is_read() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"10000 10 a\n", 0).unwrap();
        let mut map = PerfMap::default();
        assert_eq!(read_all(&mut map, &file).left_out, 0);
        assert_eq!(name(&map, 0x10000).unwrap(), "a");
        let size = 1 << 40;
        file.write_all_at(b"\n20000 10 b\n", size - 12).unwrap();
        let mut facts = read_all(&mut map, &file);
        assert_eq!((facts.lines, facts.begun_anew, facts.left_out), (1, 1, size - MAX_READ));
        assert_eq!(name(&map, 0x10000), None, "it may be other code by now");
        assert_eq!(name(&map, 0x20000).unwrap(), "b");
        // A file that has grown by too much between two readings is read anew, too.
        file.write_all_at(b"\n20000 10 c\n", 2 * size - 12).unwrap();
        facts = read_all(&mut map, &file);
        assert_eq!((facts.lines, facts.begun_anew, facts.left_out), (1, 2, 2 * size - MAX_READ));
        assert_eq!(name(&map, 0x20000).unwrap(), "c");
    }

    #[test]
    fn the_last_name_of_an_address_counts_however_long_the_map_is() {
        let mut text = b"10000 10 first\n".to_vec();
        for k in 0..400_000_u64 {
            writeln!(text, "{:x} 40 handler_{k} of a module", 0x20000 + k * 64 % 0xe0000).unwrap();
        }
        text.extend_from_slice(b"10000 10 last\n");
        assert!(text.len() as u64 > STEP);
        let (map, facts) = map(&text);
        assert_eq!(facts, PerfMapFacts { lines: 400_002, ..PerfMapFacts::default() });
        assert_eq!(name(&map, 0x10000).unwrap(), "last");
        assert!(map.names.len() <= MAX_NAMES && map.code.len() == 0xe0000 / 64 + 1);
    }

    #[test]
    fn of_too_many_functions_the_first_go() {
        let mut file = tempfile::tempfile().unwrap();
        let mut map = PerfMap::default();
        let all = MAX_ENTRIES as u64 + 10;
        let mut text = Vec::new();
        (0..all).for_each(|k| writeln!(text, "{:x} 10 f{k}", 0x10000 + k * 16).unwrap());
        file.write_all(&text).unwrap();
        let facts = read_all(&mut map, &file);
        assert!(facts.left_out > MAX_ENTRIES as u64 * 10, "{facts:?}");
        assert_eq!(name(&map, 0x10000), None);
        assert_eq!(name(&map, 0x10000 + (all - 1) * 16).unwrap(), format!("f{}", all - 1));
        let first_kept = MAX_ENTRIES as u64 / 2;
        assert_eq!(name(&map, 0x10000 + first_kept * 16).unwrap(), format!("f{first_kept}"));
        // Long names; most of them belong to code that is gone.
        let long = "x".repeat(10_000);
        let mut text = Vec::new();
        (0..5_000).for_each(|k| writeln!(text, "{:x} 10 {long}{k}", 0x10000 + k % 8 * 16).unwrap());
        file.write_all(&text).unwrap();
        read_all(&mut map, &file);
        assert!(map.names.len() <= MAX_NAMES);
        assert_eq!(map.find(0x10000, true, false).unwrap().chars().count(), MAX_NAME);
        assert_eq!(name(&map, 0x10000 + (all - 1) * 16).unwrap(), format!("f{}", all - 1));
    }

    #[test]
    fn code_that_was_replaced_meanwhile_has_no_name_for_a_while() {
        let mut file = tempfile::tempfile().unwrap();
        let mut map = PerfMap::default();
        let mut grow = |text: &[u8]| {
            file.write_all(text).unwrap();
            map.read(&file);
            [0x10000, 0x20000].map(|at| [true, false].map(|earlier| map.find(at, true, earlier)))
        };
        let known = |name: &str| [Ok(name.to_owned()), Ok(name.to_owned())];
        let moved = |name: &str| [Err(UnknownReason::CodeMoved), Ok(name.to_owned())];
        assert_eq!(grow(b"10000 10 a\n10000 10 b\n20000 10 c\n"), [known("b"), known("c")]);
        assert_eq!(grow(b"10000 20 d\n20000 10 c\n"), [moved("d"), known("c")]);
        assert_eq!(grow(b""), [moved("d"), known("c")]);
        assert_eq!(grow(b"20000 10 e\n"), [known("d"), moved("e")]);
    }

    #[test]
    fn no_part_of_a_line_that_is_too_long_is_read_twice() {
        let mut text = b"10000 10 a\n".to_vec();
        let mut map = PerfMap::default();
        // Offset of the first byte that is read after the map has grown.
        let mut grow = |more: &[u8]| {
            text.extend_from_slice(more);
            let first = Cell::new(text.len());
            let facts = map.read_from(text.len() as u64, |block, at| {
                let at = usize::try_from(at).unwrap();
                first.set(first.get().min(at));
                let len = block.len().min(text.len() - at);
                block[..len].copy_from_slice(&text[at..at + len]);
                len
            });
            (first.get(), text.len(), facts.lines, facts.rejected)
        };
        let (_, long, ..) = grow(&[b'x'; 1 << 20]);
        assert_eq!(grow(b""), (long, long, 1, 0));
        assert_eq!(grow(b"20000 10 within it"), (long, long + 18, 1, 0));
        let (from, _, lines, rejected) = grow(b"\n20000 10 after it\n");
        assert_eq!((from, lines, rejected), (long + 18, 2, 1));
        assert_eq!(name(&map, 0x20000).unwrap(), "after it");
        assert_eq!(name(&map, 0x10000).unwrap(), "a");
    }
}
