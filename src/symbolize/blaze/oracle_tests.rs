//! Compares blazesym with `addr2line` on addresses of real programs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::elf::{Elf, SHF_COMPRESSED};
use super::super::shared::{self, SharedDwarf};
use super::super::symbol_file::SymbolFile;
use super::*;

/// Addresses that are looked up in each file.
const ADDRESSES: u64 = 4000;

/// Result of comparing one file.
#[derive(Debug, Default)]
struct OracleFrame {
    functions: usize,
    inlined: usize,
    lines: usize,
    differences: Vec<(u64, SourceCode, SourceCode)>,
}

fn elf(path: &Path) -> Elf {
    Elf::read(File::open(path).unwrap()).unwrap()
}

/// Looks up addresses all over the code of `program`, by the debug information of `path`.
fn compare(path: &Path, program: &Path) -> OracleFrame {
    let oracle = shared::context(&elf(path), None).unwrap();
    let program = elf(program);
    let text = program.section(".text").unwrap();
    let addresses: Vec<u64> =
        (0..ADDRESSES).map(|number| text.addr + text.size * number / ADDRESSES).collect();
    let file = SymbolFile::of(elf(path));
    let ours = file.lines().unwrap().source_code(&addresses);
    let mut seen = OracleFrame::default();
    for (&address, ours) in addresses.iter().zip(ours) {
        let theirs = shared::source_code(&oracle, address).unwrap_or_default();
        seen.functions += usize::from(theirs.function.is_some());
        seen.inlined += theirs.inlined.len();
        seen.lines += usize::from(theirs.own.line > 0);
        // `addr2line` also returns lines between two functions, where no code runs.
        let Some(mut ours) = ours.or_else(|| theirs.function.as_ref().map(|_| SourceCode::default())) else {
            continue;
        };
        // blazesym's function is left out where the symbol table has the same one.
        ours.function = theirs.function.clone();
        if ours != theirs {
            seen.differences.push((address, ours, theirs));
        }
    }
    seen
}

/// Compares a program that has its own debug information; there must be no difference.
fn same(path: &Path) -> OracleFrame {
    same_of(path, path)
}

fn same_of(path: &Path, program: &Path) -> OracleFrame {
    let seen = compare(path, program);
    for (address, ours, theirs) in seen.differences.iter().take(5) {
        println!("{} {address:#x}\n  ours   {ours:?}\n  theirs {theirs:?}", path.display());
    }
    println!(
        "{}: {} functions, {} inlined, {} lines",
        path.display(),
        seen.functions,
        seen.inlined,
        seen.lines
    );
    assert!(seen.differences.is_empty(), "{} differences", seen.differences.len());
    seen
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/symbols").join(name)
}

fn build(compiler: &str, arguments: &[&str], sources: &[&str], out: &Path) {
    let mut command = Command::new(compiler);
    command.args(arguments).args(sources.iter().map(|s| source(s))).arg("-o").arg(out);
    assert!(command.status().unwrap().success(), "{command:?}");
}

#[test]
fn programs_of_c_and_cpp_are_read_as_by_addr2line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("program");
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        for more in [&[][..], &["-ffunction-sections", "-Wl,--gc-sections"], &["-gz"], &["-flto"]] {
            build("gcc", &[&["-O2", version], more].concat(), &["chain.c", "other.c"], &out);
            assert!(same(&out).inlined > 0, "{version} {more:?}");
            build("g++", &[&["-O2", version], more].concat(), &["names.cc"], &out);
            assert!(same(&out).functions > 0, "{version} {more:?}");
        }
    }
}

#[test]
fn packed_debug_information_says_what_the_unpacked_one_says() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain", "packed"].map(|name| dir.path().join(name));
    build("gcc", &["-O2", "-g3"], &["chain.c", "other.c"], &plain);
    let text = elf(&plain).section(".text").unwrap().clone();
    let addresses: Vec<u64> = (text.addr..text.addr + text.size).collect();
    let source_code = |path: &Path| SymbolFile::of(elf(path)).lines().unwrap().source_code(&addresses);
    let expected = source_code(&plain);
    assert!(expected.iter().flatten().any(|code| code.inlined.len() == 2), "{expected:?}");
    for (kind, mark) in [("zlib", ".debug_info"), ("zlib-gnu", ".zdebug_str"), ("zstd", ".debug_info")] {
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(format!("--compress-debug-sections={kind}")).args([&plain, &packed]);
        assert!(objcopy.status().unwrap().success(), "{kind}");
        let section = elf(&packed).section(mark).unwrap().clone();
        assert!(section.flags & SHF_COMPRESSED != 0 || mark.starts_with(".z"), "{kind} does not pack");
        assert_eq!(source_code(&packed), expected, "{kind}");
    }
}

#[test]
fn programs_of_rust_are_read_as_by_addr2line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("program");
    assert!(same(Path::new("/proc/self/exe")).functions > 100);
    // Only rustc's owner may be able to run it, and this test may run as `nobody`.
    let rustc = Command::new("rustc").arg("--version").output();
    if !rustc.is_ok_and(|version| version.status.success()) {
        println!("rustc cannot be run by this user: this test's own binary is all that was compared");
        return;
    }
    for version in ["4", "5"] {
        let version = format!("-Cdwarf-version={version}");
        build("rustc", &["-O", "-g", &version], &["names.rs"], &out);
        let seen = same(&out);
        assert!(seen.functions > 100 && seen.inlined > 100, "{seen:?}");
    }
}

#[test]
fn the_c_library_is_read_as_by_addr2line() {
    let places = ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"];
    let libc = places.map(|place| Path::new(place).join("libc.so.6"));
    let Some(libc) = libc.iter().find(|path| path.exists()) else {
        println!("SKIP: the_c_library_is_read_as_by_addr2line: none in {places:?}");
        return;
    };
    let id = elf(libc).build_id().unwrap();
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    if !Path::new(&debug).exists() {
        println!("SKIP: the_c_library_is_read_as_by_addr2line: no {debug} (libc6-dbg)");
        return;
    }
    let seen = same_of(Path::new(&debug), libc);
    assert!(seen.functions > 1000 && seen.inlined > 100, "{seen:?}");
}

#[test]
fn shared_debug_information_says_what_the_files_said_before() {
    if Command::new("dwz").arg("--version").output().is_err() {
        println!("SKIP: shared_debug_information_says_what_the_files_said_before: no dwz");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [one, two, shared] = ["one", "two", "shared"].map(|name| dir.path().join(name));
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        build("gcc", &["-O2", version], &["chain.c", "other.c"], &one);
        build("gcc", &["-O2", version, "-DOTHER"], &["chain.c", "other.c"], &two);
        let before = dir.path().join("before");
        std::fs::copy(&one, &before).unwrap();
        let mut dwz = Command::new("dwz");
        dwz.arg("-m").arg(&shared).args(["-M", "shared"]).args([&one, &two]);
        assert!(dwz.status().unwrap().success());
        let (own, shared) = (elf(&one), elf(&shared));
        let shared = SharedDwarf::read(&own, &shared).unwrap();
        let oracle = shared::context(&elf(&before), None).unwrap();
        let text = own.section(".text").unwrap();
        let mut inlined = 0;
        for address in text.addr..text.addr + text.size {
            let theirs = shared::source_code(&oracle, address);
            inlined += theirs.as_ref().map_or(0, |code| code.inlined.len());
            assert_eq!(shared.source_code(address), theirs, "{version}: {address:#x}");
        }
        assert!(inlined > 0, "{version}");
    }
}
