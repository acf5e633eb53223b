//! Real programs' addresses, looked up here and by `addr2line`, which reads everything at once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use addr2line::Context;

use super::*;

/// Addresses of each file.
const ADDRESSES: u64 = 4000;

/// What one file's comparison came through.
#[derive(Debug, Default)]
struct Seen {
    functions: usize,
    inlined: usize,
    lines: usize,
    differences: Vec<(u64, Vec<Call>, Vec<Call>)>,
}

fn elf(path: &Path) -> Elf {
    Elf::read(File::open(path).unwrap()).unwrap()
}

/// All that `addr2line` says of an address, in our words.
fn oracle(context: &Context<Reader>, address: u64) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut frames = context.find_frames(address).skip_all_loads().unwrap();
    while let Some(frame) = frames.next().unwrap() {
        let (file, line) =
            frame.location.map_or((None, 0), |l| (l.file.map(str::to_owned), l.line.unwrap_or(0)));
        calls.push(Call { name: frame.function.map(|f| f.name.slice().to_vec()), file, line });
    }
    calls
}

/// Looks up addresses all over the code of the program that `path` is about.
fn compare(path: &Path, shared: Option<&Path>, program: &Path) -> Seen {
    let (elf, shared) = (elf(path), shared.map(self::elf));
    let debug = Debug::read(&elf, shared.as_ref()).unwrap();
    let (mut sections, mut mappings) = (Vec::new(), Vec::new());
    let mut dwarf = load(&elf, &mut sections, &mut mappings).unwrap();
    if let Some(shared) = &shared {
        dwarf.set_sup(load(shared, &mut sections, &mut mappings).unwrap());
    }
    let context = Context::from_dwarf(dwarf).unwrap();
    let program = self::elf(program);
    let text = program.section(".text").unwrap();
    let mut seen = Seen::default();
    for number in 0..ADDRESSES {
        let address = text.addr + text.size * number / ADDRESSES;
        let (ours, theirs) = (debug.calls(address), oracle(&context, address));
        seen.functions += usize::from(theirs.last().is_some_and(|own| own.name.is_some()));
        seen.inlined += theirs.len().saturating_sub(1);
        seen.lines += theirs.iter().filter(|call| call.line > 0).count();
        if ours != theirs {
            seen.differences.push((address, ours, theirs));
        }
        if number % 500 == 0 {
            debug.rest();
        }
    }
    drop(context);
    seen
}

/// Compares a program that has its own debug information, and wants no difference.
fn same(path: &Path, shared: Option<&Path>) -> Seen {
    same_of(path, shared, path)
}

fn same_of(path: &Path, shared: Option<&Path>, program: &Path) -> Seen {
    let seen = compare(path, shared, program);
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
            assert!(same(&out, None).inlined > 0, "{version} {more:?}");
            build("g++", &[&["-O2", version], more].concat(), &["names.cc"], &out);
            assert!(same(&out, None).functions > 0, "{version} {more:?}");
        }
    }
}

#[test]
fn programs_of_rust_are_read_as_by_addr2line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("program");
    assert!(same(Path::new("/proc/self/exe"), None).functions > 100);
    // The compiler may lie where only its owner may go, and this test runs as nobody then.
    let rustc = Command::new("rustc").arg("--version").output();
    if !rustc.is_ok_and(|version| version.status.success()) {
        println!("rustc cannot be run by this user: this test's own binary is all that was compared");
        return;
    }
    for version in ["4", "5"] {
        let version = format!("-Cdwarf-version={version}");
        build("rustc", &["-O", "-g", &version], &["names.rs"], &out);
        let seen = same(&out, None);
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
    let seen = same_of(Path::new(&debug), None, libc);
    assert!(seen.functions > 1000 && seen.inlined > 100, "{seen:?}");
}

#[test]
fn shared_debug_information_is_read_as_by_addr2line() {
    if Command::new("dwz").arg("--version").output().is_err() {
        println!("SKIP: shared_debug_information_is_read_as_by_addr2line: no dwz");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [one, two, shared] = ["one", "two", "shared"].map(|name| dir.path().join(name));
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        build("gcc", &["-O2", version], &["chain.c", "other.c"], &one);
        build("gcc", &["-O2", version, "-DOTHER"], &["chain.c", "other.c"], &two);
        let dwz =
            Command::new("dwz").arg("-m").arg(&shared).args(["-M", "shared"]).args([&one, &two]).status();
        assert!(dwz.unwrap().success());
        assert!(same(&one, Some(&shared)).inlined > 0, "{version}");
    }
}
