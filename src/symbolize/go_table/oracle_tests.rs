//! Compares the line table with DWARF in programs that the installed Go builds. Go's linker writes both from the same
//! facts, so both name each address alike.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::super::blaze::{ElfSymbol, SourceCode, SourceLocation};
use super::super::elf::Elf;
use super::super::symbol_file::SymbolFile;
use super::*;

/// Addresses that are looked up in each program.
const ADDRESSES: u64 = 5000;

struct Program {
    elf: Elf,
    table: GoTable,
}

impl Program {
    fn open(path: &Path) -> Program {
        let elf = Elf::read(File::open(path).unwrap()).unwrap();
        Program::of(elf, path)
    }

    fn of(elf: Elf, path: &Path) -> Program {
        let table = GoTable::find(&elf).unwrap_or_else(|| panic!("{}: no table", path.display()));
        Program { elf, table }
    }

    fn calls(&self, address: u64) -> Vec<GoCall> {
        self.table.calls(&self.elf, address)
    }

    /// Addresses all over the program's code.
    fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, end) = (self.table.module.first, self.table.module.end);
        (0..ADDRESSES).map(move |number| first + (end - first) * number / ADDRESSES)
    }
}

fn build(dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let path = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let mut go = testkit::go();
    go.arg("build").args(flags).arg("-o").arg(&path).arg(source);
    go.envs([("GO111MODULE", "off"), ("CGO_ENABLED", "1")]);
    let done = go.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    path
}

/// DWARF's answer for each address, in the line table's form, innermost first.
fn by_dwarf(path: &Path, addresses: &[u64]) -> Vec<Vec<GoCall>> {
    let file = SymbolFile::of(Elf::read(File::open(path).unwrap()).unwrap());
    let blaze = file.lines().unwrap();
    let call = |name: String, at: SourceLocation| GoCall {
        name: for_print(name.as_bytes()),
        // DWARF puts the directory before each name that is not a path.
        file: at.file.map(|file| file.strip_prefix("./").unwrap_or(&file).as_bytes().to_vec()),
        line: at.line,
    };
    let calls = |(code, symbol)| {
        let SourceCode { function, own, inlined } = code?;
        let name = function.or(symbol).map_or_else(String::new, |symbol: ElfSymbol| symbol.name);
        let outer = std::iter::once(call(name, own));
        let mut calls: Vec<GoCall> =
            outer.chain(inlined.into_iter().map(|(name, at)| call(name, at))).collect();
        calls.reverse();
        Some(calls)
    };
    let codes = blaze.source_code(addresses).into_iter().zip(blaze.symbols(addresses));
    codes.map(|code| calls(code).unwrap_or_default()).collect()
}

/// The same file without section headers, as packers leave it.
fn without_sections(path: &Path) -> Program {
    let mut bytes = std::fs::read(path).unwrap();
    // Offset, count and names of the headers.
    bytes[40..48].fill(0);
    bytes[58..64].fill(0);
    Program::of(Elf::read_memory(bytes).unwrap(), path)
}

#[test]
fn the_table_says_what_dwarf_says_in_stripped_programs_too() {
    if testkit::go().arg("version").output().is_err() {
        println!("SKIP: Go names against the symbol table: there is no Go");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (mode, source, flags) in [
        ("exe", "shares.go", &[][..]),
        ("cgo", "calls_c.go", &[]),
        ("cgo-pie", "calls_c.go", &["-buildmode=pie"]),
    ] {
        let path = build(dir.path(), mode, source, flags);
        let whole = Program::open(&path);
        let stripped = [flags, &["-ldflags=-s -w"]].concat();
        let stripped = build(dir.path(), &format!("{mode}-stripped"), source, &stripped);
        let (bare, stripped) = (without_sections(&stripped), Program::open(&stripped));
        let (mut inlined, mut differences) = (0, Vec::new());
        let addresses: Vec<u64> = whole.addresses().collect();
        for (&address, theirs) in addresses.iter().zip(by_dwarf(&path, &addresses)) {
            let ours = whole.calls(address);
            inlined += ours.len() - 1;
            if !alike(&ours, &theirs) {
                differences.push((address, ours, theirs));
            }
            assert_eq!(stripped.calls(address), whole.calls(address), "{mode}: {address:#x}");
            assert_eq!(bare.calls(address), whole.calls(address), "{mode}: {address:#x}");
        }
        println!("{mode}: {inlined} inlined, {} differences of {ADDRESSES}", differences.len());
        assert!(inlined as u64 > ADDRESSES / 10, "{mode}: {inlined}");
        // Up to Go 1.21, DWARF has no inlined calls in wrappers, and a few wrong files.
        assert!(differences.len() as u64 <= ADDRESSES / 1000, "{mode}: {differences:#?}");
    }
}

/// Whether both differ only in code that DWARF leaves out: padding behind functions, and lines of code that Go's
/// compiler generates itself.
fn alike(ours: &[GoCall], theirs: &[GoCall]) -> bool {
    let padding = theirs.is_empty() && ours.iter().all(|call| call.line == 0);
    let same = |(our, their): (&GoCall, &GoCall)| {
        let written = our.file.as_deref() == Some(b"<autogenerated>") && their.line == 0;
        our == their || (written && our.name == their.name)
    };
    padding || (ours.len() == theirs.len() && ours.iter().zip(theirs).all(same))
}
