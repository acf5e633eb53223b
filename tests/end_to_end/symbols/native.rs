//! Native functions get the right name, or no name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jbpf_prof::profile::{Kind, UnknownReason};
use jbpf_prof::sample::{StopReason, UserWord};
use jbpf_prof::symbolize::Symbolizer;
use testkit::{lacks, skip};

use super::common::{
    Space, address_of, chain, config, frames, leaf, names, offset_of, offset_of_address, run, source, stack,
    start,
};

#[test]
fn inlined_functions_are_unfolded_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let binary = chain(dir.path(), "chain", &["-g"]);
    let (mut symbolizer, mut space) = (start(), Space::default());
    let base = space.add(&binary);
    let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&binary, "at_innermost"));
    assert_eq!(names(&frames), ["outer", "middle", "innermost"]);
    let kinds: Vec<Kind> = frames.iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::Native, Kind::NativeInlined, Kind::NativeInlined]);
    let lines: Vec<u32> = frames.iter().map(|f| f.line).collect();
    assert_eq!(lines[..2], [26, 21]);
    for frame in &frames {
        assert!(frame.file.as_ref().unwrap().ends_with("chain.c"), "{frame:?}");
        assert_eq!(frame.module.as_ref().unwrap().path.as_ref(), binary.to_str().unwrap());
        assert_eq!(frame.module.as_ref().unwrap().build_id.as_ref().unwrap().len(), 20);
    }
    assert_eq!(symbolizer.stats().worker_lost, 0);
}

#[test]
fn a_stack_is_root_first_and_returns_lie_in_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let binary = chain(dir.path(), "chain", &[]);
    let (mut symbolizer, mut space) = (start(), Space::default());
    let base = space.add(&binary);
    let at = |name: &str| base + offset_of(&binary, name);
    // For a call that is the last instruction of `outer`, the return address is the next function's first byte.
    let size = run(Command::new("nm").arg("-S").arg(&binary));
    let outer = size.lines().find(|l| l.ends_with(" outer")).unwrap();
    let size = u64::from_str_radix(outer.split(' ').nth(1).unwrap(), 16).unwrap();
    let user = [UserWord::Leaf(at("other_unit")), UserWord::Return(at("outer") + size)];
    let frames = symbolizer.symbolize(&[stack(&user, &[], StopReason::Depth)], &mut space).remove(0).frames;
    assert_eq!(names(&frames), ["[truncated]", "outer", "other_unit"]);
    assert_eq!(frames[0].kind, Kind::Marker);
}

#[test]
fn code_that_no_symbol_covers_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let binary = chain(dir.path(), "chain", &["-g"]);
    let (mut symbolizer, mut space) = (start(), Space::default());
    let base = space.add(&binary);
    let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&binary, "no_size"));
    assert_eq!((frames.len(), frames[0].unknown), (1, Some(UnknownReason::NoSymbol)), "{frames:?}");
    let (file, block) = frames[0].name.split_once("+0x").unwrap();
    let inside = address_of(&binary, "no_size") - u64::from_str_radix(block, 16).unwrap();
    assert!(file == "chain" && inside < 256, "{frames:?}");
    let frames = leaf(&mut symbolizer, &mut space, base + 0x7fff_ffff);
    assert_eq!(frames[0].unknown, Some(UnknownReason::NoSymbol));
    let frames = leaf(&mut symbolizer, &mut space, 77);
    assert_eq!(frames[0].unknown, Some(UnknownReason::NotMapped));
    assert_eq!(symbolizer.stats().unknown[&UnknownReason::NoSymbol], 2);
}

#[test]
fn cpp_and_rust_names_are_demangled() {
    let dir = tempfile::tempdir().unwrap();
    let (cpp, rust) = (dir.path().join("cpp"), dir.path().join("rust"));
    run(Command::new("g++").arg("-O2").arg(source("names.cc")).arg("-o").arg(&cpp));
    run(Command::new("rustc").arg("-O").arg(source("names.rs")).arg("-o").arg(&rust));
    let (mut symbolizer, mut space) = (start(), Space::default());
    let (cpp_base, rust_base) = (space.add(&cpp), space.add(&rust));
    let frames = leaf(&mut symbolizer, &mut space, cpp_base + offset_of(&cpp, "Worker4turn"));
    assert_eq!((names(&frames), frames[0].kind), (vec!["deep::Worker::turn<int>"], Kind::Cpp));
    let frames = leaf(&mut symbolizer, &mut space, cpp_base + offset_of(&cpp, "plain"));
    assert_eq!((names(&frames), frames[0].kind), (vec!["plain"], Kind::Native));
    let frames = leaf(&mut symbolizer, &mut space, rust_base + offset_of(&rust, "inner4spin"));
    assert_eq!((names(&frames), frames[0].kind), (vec!["names::inner::spin"], Kind::Native));
}

/// Installs a file as the debug file of its build id; returns the debug directory.
fn install_debug_file(dir: &Path, file: &Path) -> PathBuf {
    let notes = run(Command::new("readelf").arg("-n").arg(file));
    let id = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap();
    let debug_dir = dir.join("debug");
    let place = debug_dir.join(".build-id").join(&id[..2]);
    fs::create_dir_all(&place).unwrap();
    let place = place.join(format!("{}.debug", &id[2..]));
    fs::copy(file, &place).unwrap();
    run(Command::new("chmod").arg("644").arg(&place));
    debug_dir
}

#[test]
fn stripped_files_take_names_from_the_debug_file_of_their_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let full = chain(dir.path(), "full", &["-g", "-gz"]);
    let stripped = dir.path().join("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&full));
    let only = dir.path().join("only");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&full).arg(&only));
    let debug_dir = install_debug_file(dir.path(), &only);
    let offset = offset_of(&full, "at_innermost");

    let mut config = config();
    config.debug_dir.clone_from(&debug_dir);
    let (mut symbolizer, mut space) = (Symbolizer::start(config).unwrap(), Space::default());
    let base = space.add(&stripped);
    let frames = leaf(&mut symbolizer, &mut space, base + offset);
    assert_eq!(names(&frames), ["outer", "middle", "innermost"]);

    // Without the debug file, and with one that every user can write, only the function's address is known.
    run(Command::new("chmod").args(["-R", "o+w"]).arg(&debug_dir));
    for dir in [Some(debug_dir), None] {
        let mut config = super::common::config();
        config.debug_dir = dir.unwrap_or(config.debug_dir);
        let mut symbolizer = Symbolizer::start(config).unwrap();
        let frames = leaf(&mut symbolizer, &mut space, base + offset);
        assert_eq!(names(&frames), [place_of(&full, "stripped", "outer")]);
    }
}

/// The name of a function in a stripped copy of its file.
fn place_of(full: &Path, copy: &str, function: &str) -> String {
    format!("{copy}!fun_{:x}", address_of(full, function))
}

#[test]
fn functions_of_stripped_files_are_named_by_address() {
    let dir = tempfile::tempdir().unwrap();
    let full = chain(dir.path(), "full", &[]);
    let (stripped, bare) = (dir.path().join("stripped"), dir.path().join("bare"));
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&full));
    // Without section headers, only the segments lead to the call frame information: e_shoff, e_shnum, e_shstrndx.
    let mut bytes = fs::read(&stripped).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    fs::write(&bare, bytes).unwrap();
    let (mut symbolizer, mut space) = (start(), Space::default());
    for (name, file) in [("stripped", &stripped), ("bare", &bare)] {
        let base = space.add(file);
        // The truth is the output of nm for the full file.
        let sizes = run(Command::new("nm").args(["-S", "--defined-only"]).arg(&full));
        for function in ["outer", "other_unit", "main"] {
            let line = sizes.lines().find(|l| l.ends_with(&format!(" {function}"))).unwrap();
            let size = u64::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap();
            let start = offset_of(&full, &format!(" {function}"));
            for offset in [start, start + size / 2, start + size - 1] {
                let frames = leaf(&mut symbolizer, &mut space, base + offset);
                assert_eq!(names(&frames), [place_of(&full, name, &format!(" {function}"))]);
                assert_eq!((frames[0].kind, frames[0].unknown), (Kind::Native, None));
            }
        }
        // Assembler code without call frame information belongs to no known function.
        let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&full, "no_size"));
        assert_eq!(frames[0].unknown, Some(UnknownReason::NoSymbol), "{frames:?}");
    }
    assert_eq!(symbolizer.stats().worker_lost, 0);
}

#[test]
fn exported_functions_are_named_without_section_headers() {
    let dir = tempfile::tempdir().unwrap();
    for hashes in ["gnu", "sysv"] {
        let style = format!("-Wl,--export-dynamic,--hash-style={hashes}");
        let full = chain(dir.path(), hashes, &[&style]);
        let bare = dir.path().join(format!("{hashes}.bare"));
        let mut bytes = fs::read(&full).unwrap();
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        fs::write(&bare, bytes).unwrap();
        let (mut symbolizer, mut space) = (start(), Space::default());
        let base = space.add(&bare);
        for function in ["outer", "other_unit", "main"] {
            let at = offset_of(&full, &format!(" {function}"));
            assert_eq!(names(&leaf(&mut symbolizer, &mut space, base + at)), [function], "{hashes}");
        }
    }
}

#[test]
fn a_symbol_without_a_size_names_the_function_that_begins_there() {
    let dir = tempfile::tempdir().unwrap();
    let full = chain(dir.path(), "full", &["-Wl,--export-dynamic"]);
    let stripped = dir.path().join("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&full));
    let (mut symbolizer, mut space) = (start(), Space::default());
    for file in [&full, &stripped] {
        let base = space.add(file);
        let at = offset_of(&full, "sizeless");
        for offset in [at, at + 3] {
            assert_eq!(names(&leaf(&mut symbolizer, &mut space, base + offset)), ["sizeless"]);
        }
        let after = leaf(&mut symbolizer, &mut space, base + at + 4);
        assert_ne!(names(&after), ["sizeless"], "its code ends there");
        let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&full, "no_size"));
        assert_eq!(frames[0].unknown, Some(UnknownReason::NoSymbol), "how far it reaches is not known");
    }
}

/// Assembler functions without a size, whose end nothing else states, extend to the next symbol.
#[test]
fn a_function_without_a_size_reaches_to_the_next_symbol() {
    let dir = tempfile::tempdir().unwrap();
    let (code, full) = (dir.path().join("code.s"), dir.path().join("full"));
    let text = ".text\n.globl main, copy, label, other\n.type main, @function\n.type copy, @function\n\
                .type other, @function\nmain: ret\n.size main, 1\nfirst: nop\ncopy: nop\nnop\nnop\nlabel: nop\n\
                other: nop\nnop\n.size other, 1\n.section .note.GNU-stack,\"\",@progbits\n";
    fs::write(&code, text).unwrap();
    run(Command::new("gcc").arg(&code).arg("-o").arg(&full));
    let (mut symbolizer, mut space) = (start(), Space::default());
    let base = space.add(&full) + offset_of(&full, " copy");
    let mut at = |offset: u64| leaf(&mut symbolizer, &mut space, base + offset).remove(0);
    for offset in 0..3 {
        assert_eq!(&*at(offset).name, "copy", "{offset}");
    }
    // A mere label names no code, and code after a function's end belongs to no function.
    assert_eq!(
        (at(3).unknown, &*at(4).name, at(5).unknown),
        (Some(UnknownReason::NoSymbol), "other", Some(UnknownReason::NoSymbol))
    );
}

#[test]
fn packed_debug_information_is_read_by_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, packed) = (chain(dir.path(), "plain", &["-g3"]), dir.path().join("packed"));
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        run(Command::new("objcopy").arg(format!("--compress-debug-sections={kind}")).args([&plain, &packed]));
        let (mut symbolizer, mut space) = (start(), Space::default());
        let base = space.add(&packed);
        let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&plain, "at_innermost"));
        assert_eq!(names(&frames), ["outer", "middle", "innermost"], "{kind}");
        assert_eq!((frames[0].line, frames[1].line), (26, 21), "{kind}");
        assert_eq!(symbolizer.stats().worker_lost, 0, "{kind}");
    }
}

#[test]
fn where_a_file_is_entered_code_without_description_is_the_entrys() {
    if !cfg!(target_arch = "x86_64") {
        skip("only x86-64's loader is like that");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (full, stripped) = (dir.path().join("full"), dir.path().join("stripped"));
    let flags = ["-O2", "-nostdlib", "-static-pie", "-Wl,-e,enter"];
    run(Command::new("gcc").args(flags).arg(source("entry.c")).arg("-o").arg(&full));
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&full));
    let place = place_of(&full, "stripped", " enter");
    let (mut symbolizer, mut space) = (start(), Space::default());
    for (file, first, second) in [(&full, "enter", "after_first"), (&stripped, &*place, &*place)] {
        let base = space.add(file);
        let mut frames = |word: fn(u64) -> UserWord, symbol: &str| {
            let user = [word(base + offset_of(&full, symbol))];
            symbolizer.symbolize(&[stack(&user, &[], StopReason::Root)], &mut space).remove(0).frames
        };
        assert_eq!(names(&frames(UserWord::Leaf, " enter")), [first]);
        assert_eq!(names(&frames(UserWord::Return, " after_first")), [first]);
        assert_eq!(names(&frames(UserWord::Return, " after_second")), [second]);
        // Unknown: whether this call leads to a function's beginning, and to which function the jump belongs.
        assert_eq!(frames(UserWord::Return, " after_third")[0].unknown, Some(UnknownReason::NoSymbol));
        assert_eq!(frames(UserWord::Leaf, " after_third")[0].unknown, Some(UnknownReason::NoSymbol));
        let after = frames(UserWord::Return, " last");
        assert_eq!(
            after[0].unknown,
            Some(UnknownReason::NoSymbol),
            "padding belongs to no function: {after:?}"
        );
    }
}

#[test]
fn a_return_address_outside_of_all_code_ends_the_stack() {
    let dir = tempfile::tempdir().unwrap();
    let binary = chain(dir.path(), "chain", &[]);
    let (mut symbolizer, mut space) = (start(), Space::default());
    let base = space.add(&binary);
    let at = |name: &str| base + offset_of(&binary, name);
    let (leaf, garbage, rest) = (UserWord::Leaf(at("other_unit")), UserWord::Return(77), at(" main") + 1);
    let astray = stack(&[leaf, garbage, UserWord::Return(rest)], &[], StopReason::Depth);
    // The leaf is the processor's own address and needs no proof.
    let jumped = stack(&[UserWord::Leaf(77), UserWord::Return(rest)], &[], StopReason::Root);
    let frames = frames(&mut symbolizer, &[astray, jumped], &mut space);
    assert_eq!(names(&frames[0]), ["", "other_unit"]);
    assert_eq!((frames[0][0].unknown, frames[0][0].address), (Some(UnknownReason::NotMapped), 76));
    assert_eq!(names(&frames[1]), ["main", ""]);
}

#[test]
fn calls_through_the_linkage_table_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (mut symbolizer, mut space) = (start(), Space::default());
    for (name, flags) in
        [("lazy", &["-Wl,-z,lazy"][..]), ("ibt", &["-fcf-protection=full"]), ("now", &["-Wl,-z,now"])]
    {
        let binary = chain(dir.path(), name, flags);
        let base = space.add(&binary);
        // objdump reads the relocations itself and names the entries.
        let code =
            run(Command::new("objdump").args(["-d", "--section=.plt", "--section=.plt.sec"]).arg(&binary));
        let entries: Vec<(u64, &str)> = code
            .lines()
            .filter_map(|l| l.strip_suffix("@plt>:")?.split_once(" <"))
            .map(|(address, name)| (u64::from_str_radix(address, 16).unwrap(), name))
            .collect();
        assert!(entries.len() >= 2, "{name}: {code}");
        for (address, function) in entries {
            let pc = base + offset_of_address(&binary, address) + 3;
            let frames = leaf(&mut symbolizer, &mut space, pc);
            assert_eq!(names(&frames), [format!("{function}@plt")], "{name}");
        }
    }
}

#[test]
fn files_with_one_build_id_keep_their_own_names() {
    let dir = tempfile::tempdir().unwrap();
    let id = "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567";
    let one = chain(dir.path(), "one", &[id]);
    let two = chain(dir.path(), "two", &[id, "-Douter=forged", "-Dother_unit=false_name"]);
    let (mut symbolizer, mut space) = (start(), Space::default());
    let bases = (space.add(&one), space.add(&two));
    let offset = offset_of(&one, "outer");
    assert_eq!(offset, offset_of(&two, "forged"));
    for _ in 0..2 {
        assert_eq!(names(&leaf(&mut symbolizer, &mut space, bases.0 + offset)), ["outer"]);
        assert_eq!(names(&leaf(&mut symbolizer, &mut space, bases.1 + offset)), ["forged"]);
    }
}

#[test]
fn the_vdso_is_named() {
    use jbpf_prof::process::{Unopened, Vdso};
    use jbpf_prof::sample::{MonoNs, ProcessId};
    use jbpf_prof::symbolize::{AddressSpaces, CodePlace};
    struct InVdso;
    impl AddressSpaces for InVdso {
        fn place(&mut self, _: ProcessId, _: MonoNs, pc: u64) -> CodePlace {
            if pc == 0 { CodePlace::Vsyscall } else { CodePlace::Vdso { vdso: Vdso::Native, offset: pc } }
        }
        fn mapped_since(&mut self, _: ProcessId, _: MonoNs) -> Option<MonoNs> {
            None
        }
        fn is_known(&self, _: ProcessId) -> bool {
            true
        }
        fn perf_map(&mut self, _: ProcessId, _: MonoNs) -> Result<std::os::fd::OwnedFd, Unopened> {
            Err(Unopened::ProcessGone)
        }
    }
    // Every 16 bytes of the image: some of these addresses are in clock_gettime.
    let user: Vec<UserWord> = (0..0x1800 / 16).map(|i| UserWord::Leaf(i * 16)).collect();
    let frames = start().symbolize(&[stack(&user, &[], StopReason::Root)], &mut InVdso).remove(0).frames;
    let names = names(&frames);
    assert!(names.iter().any(|n| n.contains("clock_gettime")), "{names:?}");
    assert_eq!(*names.last().unwrap(), "[vsyscall]");
}

#[test]
fn mini_debug_info_is_read() {
    if lacks("xz") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let full = chain(dir.path(), "full", &["-Wl,--export-dynamic-symbol=other_unit"]);
    let (symbols, stripped, mini) =
        (dir.path().join("symbols"), dir.path().join("stripped"), dir.path().join("mini"));
    // As find-debuginfo of rpm does: a section of the stripped file has the symbol table alone, packed.
    run(Command::new("objcopy").args(["-S", "--keep-symbol=outer"]).arg(&full).arg(&symbols));
    run(Command::new("xz").arg("-k").arg(&symbols));
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&full));
    let section = format!(".gnu_debugdata={}.xz", symbols.display());
    run(Command::new("objcopy").args(["--add-section", &section]).arg(&stripped).arg(&mini));
    let (mut symbolizer, mut space) = (start(), Space::default());
    let (stripped, mini) = (space.add(&stripped), space.add(&mini));
    let offset = offset_of(&full, "outer");
    let place = place_of(&full, "stripped", "outer");
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, stripped + offset)), [place]);
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, mini + offset)), ["outer"]);
    let exported = offset_of(&full, "other_unit");
    assert_eq!(names(&leaf(&mut symbolizer, &mut space, mini + exported)), ["other_unit"], "by .dynsym");
}

#[test]
fn shared_debug_information_is_followed_by_build_id() {
    if lacks("dwz") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (chain(dir.path(), "one", &["-g3"]), chain(dir.path(), "two", &["-g3", "-DOTHER"]));
    let shared = dir.path().join("shared");
    // As Debian and Fedora do for the debug files of one source package.
    run(Command::new("dwz").arg("-m").arg(&shared).args(["-M", "shared"]).args([&one, &two]));
    let debug_dir = install_debug_file(dir.path(), &shared);
    let mut config = config();
    config.debug_dir = debug_dir;
    let (mut symbolizer, mut space) = (Symbolizer::start(config).unwrap(), Space::default());
    let base = space.add(&one);
    let frames = leaf(&mut symbolizer, &mut space, base + offset_of(&one, "at_innermost"));
    assert_eq!(names(&frames), ["outer", "middle", "innermost"]);
    // Without the shared part its names are missing, and no other names replace them.
    let frames = leaf(&mut start(), &mut space, base + offset_of(&one, "at_innermost"));
    assert_eq!(&*frames[0].name, "outer");
    assert!(names(&frames).iter().all(|n| ["outer", "middle", "innermost"].contains(n)), "{frames:?}");
}
