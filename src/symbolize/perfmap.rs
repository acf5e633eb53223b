//! Perf maps: what other runtimes (Node `--perf-basic-prof`, Python 3.12 `-X perf`, .NET) write about the code they
//! generate. Format: `tools/perf/Documentation/jit-interface.txt` of Linux, `START SIZE NAME` in hex, a line each;
//! HotSpot's `jcmd Compiler.perfmap` writes `0x` before the numbers.
//!
//! The file belongs to the profiled program and may be anything. A bad line is skipped and counted, no line is ever
//! quoted, and what is read is bounded.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::demangle::MAX_NAME;
use super::message::PerfMapFacts;
use crate::profile::frame::clean;

/// Read of one file at most, bytes.
const MAX_BYTES: u64 = 48 << 20;
const MAX_ENTRIES: usize = 1 << 20;
/// Longer lines are rejected, bytes.
const MAX_LINE: usize = 16 << 10;
const BLOCK: usize = 64 << 10;

/// What one process's perf map says.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// By start: end, and the name's place. No two overlap.
    code: BTreeMap<u64, (u64, u32, u32)>,
    names: Vec<u8>,
    /// Read up to here: after the last whole line, or into one that is too long.
    read_to: u64,
    /// That is within a line that is too long: what comes up to its end is passed over.
    skipping: bool,
    facts: PerfMapFacts,
}

impl PerfMap {
    /// Reads what `file` has now, from where the last reading ended; from the start if it has become shorter.
    /// Reading ends at the size that the file had at the start: one that grows meanwhile does not keep us.
    pub fn read(&mut self, file: &File) -> PerfMapFacts {
        let size = file.metadata().map_or(0, |m| m.len());
        self.read_from(size, |block, at| file.read_at(block, at).unwrap_or(0))
    }

    /// A map that is in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> PerfMap {
        let mut map = PerfMap::default();
        map.read_from(bytes.len() as u64, |block, at| {
            let tail = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
            let len = tail.len().min(block.len());
            block[..len].copy_from_slice(&tail[..len]);
            len
        });
        map
    }

    fn read_from(&mut self, size: u64, read_at: impl Fn(&mut [u8], u64) -> usize) -> PerfMapFacts {
        if size < self.read_to {
            let facts = PerfMapFacts { begun_anew: self.facts.begun_anew + 1, ..PerfMapFacts::default() };
            *self = PerfMap { facts, ..PerfMap::default() };
        }
        self.facts.cut |= size > MAX_BYTES;
        let end = size.min(MAX_BYTES);
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
                    // It may have no end, and is not read again each time that one is looked for.
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
        self.facts
    }

    /// The name of the code at `address`, without its tier mark unless `raw`.
    #[must_use]
    pub fn find(&self, address: u64, raw: bool) -> Option<String> {
        let (_, &(end, at, len)) = self.code.range(..=address).next_back()?;
        let name = self.names.get(at as usize..(at as usize).saturating_add(len as usize))?;
        (address < end)
            .then(|| if raw { clean(name, MAX_NAME) } else { clean(&without_tier(name), MAX_NAME) })
    }

    fn line(&mut self, line: &[u8]) {
        let known = parse(line).is_some_and(|(start, end, name)| self.add(start, end, name));
        if known {
            self.facts.lines += 1;
        } else {
            self.facts.rejected += 1;
        }
    }

    /// A later line wins: what it overlaps is code that is no longer there.
    fn add(&mut self, start: u64, end: u64, name: &[u8]) -> bool {
        let place = (u32::try_from(self.names.len()), u32::try_from(name.len()));
        let (Ok(at), Ok(len)) = place else { return false };
        while let Some((&old, _)) = self.code.range(..end).next_back().filter(|(_, old)| old.0 > start) {
            self.code.remove(&old);
        }
        if self.code.len() >= MAX_ENTRIES {
            self.facts.cut = true;
            return false;
        }
        self.names.extend_from_slice(name);
        self.code.insert(start, (end, at, len));
        true
    }
}

fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.trim_ascii().splitn(3, |&b| b == b' ');
    let start = hex(parts.next()?)?;
    let size = hex(parts.next()?)?;
    let name = parts.next()?.trim_ascii();
    let end = start.checked_add(size)?;
    // Longer than 4 GiB is no function, and no code lies in the first page.
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
/// (`src/logging/code-events.h`, `ComputeMarker`). One function is one frame, whatever compiled it.
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
        let facts = map.read(&file);
        (map, facts)
    }

    #[test]
    fn both_forms_of_numbers_and_names_with_spaces() {
        let (map, facts) = map(b"7f0000001000 40 LazyCompile:*fib /app/a b.js:12:3\n\
            0x00007f0000002000 0x10 py::main:/app/x.py\n7F0000003000 8 JS:~go\n");
        assert_eq!(facts, PerfMapFacts { lines: 3, ..PerfMapFacts::default() });
        assert_eq!(map.find(0x7f00_0000_103f, false).unwrap(), "LazyCompile:fib /app/a b.js:12:3");
        assert_eq!(map.find(0x7f00_0000_103f, true).unwrap(), "LazyCompile:*fib /app/a b.js:12:3");
        assert_eq!(map.find(0x7f00_0000_1040, true), None);
        assert_eq!(map.find(0x7f00_0000_0fff, true), None);
        assert_eq!(map.find(0x7f00_0000_2000, false).unwrap(), "py::main:/app/x.py");
        assert_eq!(map.find(0x7f00_0000_3007, false).unwrap(), "JS:go");
    }

    #[test]
    fn bad_lines_are_skipped_and_counted() {
        let mut text = b"junk\n\n10000 zz a\n10000 10\n10000 0 empty\nffffffffffffffff 10 wraps\n".to_vec();
        text.extend_from_slice(b"10000 10 \x1b[31mred\xff\n");
        text.extend_from_slice(&[b'x'; 1 << 20]);
        text.extend_from_slice(b"\n20000 10 last\n30000 10 cut by the wri");
        let (map, facts) = map(&text);
        assert_eq!(facts, PerfMapFacts { lines: 2, rejected: 7, ..PerfMapFacts::default() });
        assert_eq!(map.find(0x10000, true).unwrap(), "?[31mred\u{fffd}");
        assert_eq!(map.find(0x2000f, true).unwrap(), "last");
        assert_eq!(map.find(0x30000, true), None);
    }

    #[test]
    fn later_lines_win() {
        let map = PerfMap::of(b"10000 100 old\n20000 100 other\n10080 100 new\n");
        assert_eq!(map.find(0x10000, true), None);
        assert_eq!(map.find(0x10080, true).unwrap(), "new");
        assert_eq!(map.find(0x1017f, true).unwrap(), "new");
        assert_eq!(map.find(0x20000, true).unwrap(), "other");
    }

    #[test]
    fn growth_is_read_from_where_it_was_left() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"10000 10 a\n20000 10 b").unwrap();
        let mut map = PerfMap::default();
        assert_eq!(map.read(&file).lines, 1);
        assert_eq!(map.find(0x20000, true), None);
        file.write_all(b"cd\n30000 10 e\n").unwrap();
        assert_eq!(map.read(&file).lines, 3);
        assert_eq!(map.find(0x20000, true).unwrap(), "bcd");
        file.set_len(0).unwrap();
        file.write_all_at(b"40000 10 fresh\n", 0).unwrap();
        let expected = PerfMapFacts { lines: 1, begun_anew: 1, ..PerfMapFacts::default() };
        assert_eq!(map.read(&file), expected);
        assert_eq!(map.find(0x10000, true), None);
        assert_eq!(map.find(0x40000, true).unwrap(), "fresh");
    }

    #[test]
    fn a_map_without_end_is_cut() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"10000 10 a\n", 0).unwrap();
        file.set_len(1 << 40).unwrap();
        let mut map = PerfMap::default();
        let facts = map.read(&file);
        assert!(facts.cut);
        assert_eq!(map.find(0x10000, true).unwrap(), "a");
    }

    #[test]
    fn no_part_of_a_line_that_is_too_long_is_read_twice() {
        let mut text = b"10000 10 a\n".to_vec();
        let mut map = PerfMap::default();
        // The first byte that is read when the map has grown by some.
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
        assert_eq!(map.find(0x20000, true).unwrap(), "after it");
        assert_eq!(map.find(0x10000, true).unwrap(), "a");
    }
}
