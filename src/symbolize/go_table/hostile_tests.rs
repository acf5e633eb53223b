//! Line tables of each version, as Go writes them and falsified.

use std::ops::{ControlFlow, Range};

use super::super::elf::Elf;
use super::fixture::{GoVersion, LENGTH, MAIN, VERSIONS, program};
use super::*;

fn calls_of(file: Vec<u8>, address: u64) -> Vec<String> {
    let Ok(elf) = Elf::read_memory(file) else { return Vec::new() };
    let Some(table) = GoTable::find(&elf) else { return Vec::new() };
    calls(&elf, &table, address)
}

fn calls(elf: &Elf, table: &GoTable, address: u64) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let calls = table.calls(elf, address).into_iter();
    calls.map(|c| format!("{} {}:{}", text(&c.name), text(&c.file.unwrap_or_default()), c.line)).collect()
}

#[test]
fn each_version_has_functions_inlined_calls_files_and_lines() {
    let work = MAIN + LENGTH;
    let outer = "main.work[...] /src/main.go";
    for version in VERSIONS {
        for (address, expected) in [
            (MAIN, vec!["main.main /src/main.go:7".to_owned()]),
            (work - 1, vec!["main.main /src/main.go:7".to_owned()]),
            (work, vec![format!("{outer}:10")]),
            (work + 0x1f, vec![format!("{outer}:12")]),
            (work + 0x20, vec!["main.mix /src/mix.go:21".to_owned(), format!("{outer}:12")]),
            (
                work + 0x5f,
                vec![
                    "main.rotate /src/mix.go:31".to_owned(),
                    "main.mix /src/mix.go:22".to_owned(),
                    format!("{outer}:12"),
                ],
            ),
            (work + 0x60, vec![format!("{outer}:14")]),
            (work + LENGTH - 1, vec![format!("{outer}:14")]),
            (work + LENGTH, vec![]),
            (MAIN - 1, vec![]),
        ] {
            assert_eq!(calls_of(program(version), address), expected, "{version:?} {address:#x}");
        }
    }
}

fn stacks_of(file: Vec<u8>) -> Vec<(Range<u64>, OnStack)> {
    let elf = Elf::read_memory(file).unwrap();
    let table = GoTable::find(&elf).unwrap();
    let mut stacks = Vec::new();
    let all = table.stacks(&elf, |addresses, on_stack| {
        stacks.push((addresses, on_stack));
        ControlFlow::<()>::Continue(())
    });
    assert!(all.is_continue());
    stacks
}

#[test]
fn the_stack_is_known_where_nothing_but_the_return_address_is_on_it() {
    let work = MAIN + LENGTH;
    let expected = [
        (MAIN..work, OnStack::ReturnAddress),
        (work..work + 0x10, OnStack::ReturnAddress),
        (work + 0x10..work + 0xf0, OnStack::Frame),
        (work + 0xf0..work + 0xf8, OnStack::ReturnAddress),
        // The table says nothing of the last bytes.
        (work + 0xf8..work + LENGTH, OnStack::Frame),
    ];
    assert_eq!(stacks_of(program(GoVersion::Go118)), expected);
    assert_eq!(stacks_of(program(GoVersion::Go120)), expected);
    // Go 1.16 does not say which functions switch to another stack.
    let unknown = [(MAIN..work, OnStack::Frame), (work..work + LENGTH, OnStack::Frame)];
    assert_eq!(stacks_of(program(GoVersion::Go116)), unknown);
}

#[test]
fn without_the_place_of_inlined_calls_the_line_is_not_the_functions() {
    let mut file = program(GoVersion::Go120);
    // Clears each candidate for the base: the last words of the module data.
    file[0x3000 + 36 * 8..0x3000 + 49 * 8].fill(0);
    let inlined = MAIN + LENGTH + 0x20;
    assert_eq!(calls_of(file.clone(), inlined), ["main.work[...] :0"]);
    assert_eq!(calls_of(file, inlined - 1), ["main.work[...] /src/main.go:12"]);
}

/// Tables in which one byte, or all bytes from one on, are changed. Each answer still names a function that has the
/// address, and none takes long.
#[test]
fn tables_that_lie_name_nothing_or_a_function() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(random >> 33).unwrap() % below
    };
    let mut named = [0, 0];
    for round in 0..6000 {
        let mut file = program(VERSIONS[round % 3]);
        for _ in 0..=next(3) {
            let at = 0x2000 + next(file.len() - 0x2000);
            file[at] = [0, 0x7f, 0x80, 0xff, u8::try_from(next(256)).unwrap()][next(5)];
        }
        if round % 10 == 0 {
            file.truncate(0x2000 + next(0x1200));
        }
        let Ok(elf) = Elf::read_memory(file) else { continue };
        let Some(table) = GoTable::find(&elf) else { continue };
        let mut last = 0;
        let _ = table.stacks(&elf, |addresses, _| {
            assert!(addresses.start < addresses.end);
            last += 1;
            if last < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        for address in (MAIN - 0x10..MAIN + 2 * LENGTH + 0x10).step_by(8) {
            let calls = calls(&elf, &table, address);
            assert!(calls.len() <= MAX_INLINED + 1);
            named[usize::from(calls.is_empty())] += 1;
        }
    }
    assert!(named.iter().all(|&count| count > 1000), "{named:?}");
}

/// Inlined calls that call each other in a circle.
#[test]
fn calls_that_go_round_in_a_circle_are_left_out() {
    let mut file = program(GoVersion::Go120);
    // `mix` was called from the code of `rotate`, and `rotate` from `mix`.
    file[0x2840 + 8] = 0x50;
    assert_eq!(calls_of(file, MAIN + LENGTH + 0x20), ["main.work[...] :0"]);
}

/// Only a file of many pages can have so many functions; this file claims to have them.
#[test]
fn counts_without_end_are_refused() {
    for count in [0, u64::MAX, u64::MAX / 2, 1 << 40, 3] {
        let mut file = program(GoVersion::Go118);
        file[0x2008..0x2010].copy_from_slice(&count.to_le_bytes());
        assert!(calls_of(file, MAIN).is_empty(), "{count}");
    }
}
