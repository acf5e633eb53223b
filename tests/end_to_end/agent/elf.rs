//! The agent's file: it needs no library, exports three functions, and cannot panic.

use std::fs;
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};
use testkit::{skip, sources};

use super::jvm::agent;

#[test]
fn the_agent_needs_nothing_and_cannot_panic() {
    let bytes = fs::read(agent()).unwrap();
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let undefined: Vec<_> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter(|symbol| symbol.is_undefined() && !symbol.name().unwrap().is_empty())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    assert!(undefined.is_empty(), "{undefined:?}");

    const DT_NEEDED: u64 = 1;
    const DT_FLAGS_1: u64 = 0x6fff_fffb;
    const DF_1_NODELETE: u64 = 8;
    let dynamic = elf.section_by_name(".dynamic").unwrap().data().unwrap();
    let entries: Vec<(u64, u64)> = dynamic
        .chunks_exact(16)
        .map(|e| [&e[..8], &e[8..]].map(|w| u64::from_le_bytes(w.try_into().unwrap())).into())
        .collect();
    assert!(entries.len() > 3);
    assert!(entries.iter().all(|&(tag, _)| tag != DT_NEEDED));
    assert!(entries.iter().any(|&(tag, flags)| tag == DT_FLAGS_1 && flags & DF_1_NODELETE != 0));

    let mut exports: Vec<_> = elf
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    exports.sort();
    assert_eq!(exports, ["Agent_OnAttach", "Agent_OnLoad", "jvm_symbols_agent_allocated"]);

    let panics = |text: &str| text.contains("panic") || text.contains("unwind");
    let symbols: Vec<_> = elf.symbols().filter_map(|s| s.name().ok()).filter(|name| panics(name)).collect();
    assert!(symbols.is_empty(), "{symbols:?}");
    assert!(elf.symbols().any(|s| s.name().is_ok_and(|n| n.contains("jvm_symbols_agent"))), "not stripped");
    let data = elf.section_by_name(".rodata").map(|s| s.data().unwrap().to_vec()).unwrap_or_default();
    let text = String::from_utf8_lossy(&data);
    for trace in ["called `Option", "index out of bounds", "overflow", ".rs"] {
        assert!(!text.contains(trace), "{trace:?} in the read-only data");
    }
}

#[test]
fn the_agent_loads_into_musl_and_glibc_programs() {
    let dir = tempfile::tempdir().unwrap();
    let source = sources().join("loader.c");
    let mut loaded = 0;
    for compiler in ["musl-gcc", "gcc"] {
        let program = dir.path().join(compiler);
        match Command::new(compiler).arg(&source).arg("-o").arg(&program).arg("-ldl").status() {
            Ok(status) => assert!(status.success(), "{compiler}"),
            Err(error) => {
                skip(&format!("{compiler}: {error}"));
                continue;
            }
        }
        let output = Command::new(&program).arg(agent()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 0\n", "{compiler}: {output:?}");
        loaded += 1;
    }
    assert!(loaded > 0, "no C compiler at all");
}
