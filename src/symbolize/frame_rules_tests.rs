//! Compares unwind tables of real libraries with gimli's evaluation of the same descriptions. At each tried address
//! both lead to the same CFA, frame pointer and return address.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use gimli::{Evaluation, EvaluationResult, Location, Value};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExpectedRow {
    ip: u64,
    sp: u64,
    fp: u64,
}

/// The content of memory: anything, as long as it is always the same.
fn memory(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// The step of `bpf/step_table.h`; `None` where unwinding stops.
fn by_table(frame: ExpectedRow, rule: Rule) -> Option<ExpectedRow> {
    let add = |to: u64, n: i64| to.wrapping_add_signed(n);
    let (cfa, fp) = match rule {
        Rule::None | Rule::End | Rule::Other | Rule::Bare => return None,
        Rule::Signal { sp_at, fp_at } => {
            let saved = |at| memory(add(frame.sp, at));
            let at = i64::from(sp_at);
            return Some(ExpectedRow { ip: saved(at + 8), sp: saved(at), fp: saved(i64::from(fp_at)) });
        }
        Rule::Plt { cfa, from } => {
            let more = if frame.ip & 15 >= u64::from(from) { 8 } else { 0 };
            (add(frame.sp, i64::from(cfa) + more), Fp::Same)
        }
        Rule::Frame { cfa, fp } => {
            let cfa = match cfa {
                Cfa::Sp(n) => add(frame.sp, n.into()),
                Cfa::Fp(n) => add(frame.fp, n.into()),
                Cfa::AtSp(n, m) => add(memory(add(frame.sp, n.into())), m.into()),
                Cfa::AtFp(n, m) => add(memory(add(frame.fp, n.into())), m.into()),
            };
            (cfa, fp)
        }
    };
    let fp = match fp {
        Fp::Same => frame.fp,
        Fp::AtCfa(n) => memory(add(cfa, n.into())),
        Fp::AtFp(n) => memory(add(frame.fp, n.into())),
        Fp::Lost => return None,
    };
    Some(ExpectedRow { ip: memory(cfa.wrapping_sub(8)), sp: cfa, fp })
}

/// Evaluates an expression with a stack that begins with `initial`.
fn evaluate(
    expression: &UnwindExpression<usize>,
    frames: &EhFrame<SliceReader<'_>>,
    cie: &CommonInformationEntry<SliceReader<'_>>,
    frame: ExpectedRow,
    initial: Option<u64>,
) -> Option<u64> {
    let expression = expression.get(frames).ok()?;
    let mut evaluation: Evaluation<SliceReader<'_>> = expression.evaluation(cie.encoding());
    initial.into_iter().for_each(|value| evaluation.set_initial_value(value));
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = match register {
                    X86_64::RSP => frame.sp,
                    X86_64::RBP => frame.fp,
                    X86_64::RA => frame.ip,
                    _ => return None,
                };
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(Value::Generic(memory(address))).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result()[..] {
        [gimli::Piece { location: Location::Address { address }, .. }] => Some(address),
        _ => None,
    }
}

/// The same step by gimli; `None` where the frame has no caller, or three registers do not suffice to find it.
fn by_gimli(
    frame: ExpectedRow,
    row: &UnwindTableRow<usize>,
    frames: &EhFrame<SliceReader<'_>>,
    cie: &CommonInformationEntry<SliceReader<'_>>,
) -> Option<ExpectedRow> {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => frame.sp.wrapping_add_signed(*offset),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => frame.fp.wrapping_add_signed(*offset),
        CfaRule::RegisterAndOffset { .. } => return None,
        CfaRule::Expression(expression) => evaluate(expression, frames, cie, frame, None)?,
    };
    let restore = |register, now: Option<u64>| match row.register(register) {
        None | Some(RegisterRule::SameValue) => now,
        Some(RegisterRule::Offset(n)) => Some(memory(cfa.wrapping_add_signed(n))),
        Some(RegisterRule::Expression(e)) => evaluate(&e, frames, cie, frame, Some(cfa)).map(memory),
        _ => None,
    };
    // Without another rule, the stack pointer is the CFA.
    let sp = restore(X86_64::RSP, Some(cfa))?;
    Some(ExpectedRow { ip: restore(X86_64::RA, None)?, sp, fp: restore(X86_64::RBP, Some(frame.fp))? })
}

/// Tried addresses by result.
#[derive(Debug, Default)]
struct TriedExpression {
    same: u64,
    neither: u64,
    other: u64,
}

fn compare(path: &Path) -> TriedExpression {
    let elf = Elf::read(File::open(path).unwrap()).unwrap();
    let table = table(&elf, None).unwrap().table;
    let address = |name| elf.section(name).map_or(0, |section| section.addr);
    let bases = BaseAddresses::default()
        .set_eh_frame(address(".eh_frame"))
        .set_eh_frame_hdr(address(".eh_frame_hdr"))
        .set_text(address(".text"))
        .set_got(address(".got"));
    let header = section(&elf, ".eh_frame_hdr").unwrap();
    let header = gimli::EhFrameHdr::new(&header, LittleEndian).parse(&bases, 8).unwrap();
    let bytes = section(&elf, ".eh_frame").unwrap();
    let frames = EhFrame::new(&bytes, LittleEndian);
    let index = header.table().unwrap();
    let mut context = UnwindContext::new();
    let mut tried = TriedExpression::default();
    let text: Vec<_> =
        elf.sections().iter().filter(|s| s.name.starts_with(".text") || s.name.starts_with(".plt")).collect();
    let mut random = 0_u64;
    for n in 0..20_000_u64 {
        random = memory(random ^ n);
        // Small sections are tried as often as large ones: PLTs are small.
        let section = text[usize::try_from(n % text.len() as u64).unwrap()];
        let into = random % section.size;
        let (pc, offset) = (section.addr + into, section.offset + into);
        let frame = ExpectedRow { ip: pc, sp: 0x7ffd_0000_1000, fp: 0x7ffd_0000_2000 };
        let rule = table.rule(offset);
        let info = index.unwind_info_for_address(&frames, &bases, &mut context, pc, EhFrame::cie_from_offset);
        let Ok(row) = info else {
            // The address is between functions.
            tried.neither += 1;
            continue;
        };
        let fde = index.fde_for_address(&frames, &bases, pc, EhFrame::cie_from_offset).unwrap();
        if coroutine::begins(&elf, fde.initial_address()) {
            // This code is described as if it had been called.
            assert_eq!(rule, Rule::End);
            continue;
        }
        let expected = by_gimli(frame, row, &frames, fde.cie());
        if rule == Rule::Other {
            tried.other += 1;
            continue;
        }
        assert_eq!(by_table(frame, rule), expected, "{}: {pc:#x}: {rule:?}, {row:?}", path.display());
        tried.same += 1;
    }
    tried
}

#[test]
fn tables_of_real_libraries_say_what_their_descriptions_say() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let mut found = 0;
    for name in ["libc.so.6", "libz.so.1", "libstdc++.so.6", "libcrypto.so.3", "libm.so.6", "libgcc_s.so.1"] {
        let dirs = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"];
        let Some(path) = dirs.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists()) else {
            continue;
        };
        let tried = compare(&path);
        assert!(tried.same > 10_000, "{name}: {tried:?}");
        assert!(tried.other * 100 < tried.same, "{name}: {tried:?}");
        found += 1;
    }
    assert!(found > 0 || !Path::new("/lib/x86_64-linux-gnu").exists(), "no library was found");
}

/// A file with two functions at these addresses, which are offsets too, and the code `bytes` in front of the second
/// one. The first function has a frame of 32 bytes at each of its addresses.
fn two_functions(first: Range<u64>, second: Range<u64>, bytes: &[u8]) -> Vec<u8> {
    const SECTIONS: usize = 0x2000;
    let mut file = vec![0x90; SECTIONS + 3 * 64];
    file[..120].fill(0);
    file[SECTIONS..].fill(0);
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    // Addresses are absolute. CFA = rsp + 8, and the return address is below the CFA.
    let cie = [&[0x14, 0, 0, 0, 0, 0, 0, 0, 1][..], b"zR\0", &[1, 0x78, 16, 1, 4, 0xc, 7, 8, 0x90, 1, 0, 0]]
        .concat();
    let fde = |before: usize, function: &Range<u64>, cfa: u8| {
        let at = u32::try_from(before + 4).unwrap();
        let head = [28_u32.to_le_bytes(), at.to_le_bytes()].concat();
        [
            &head[..],
            &function.start.to_le_bytes(),
            &(function.end - function.start).to_le_bytes(),
            &[0, 0xe, cfa, 0, 0, 0, 0, 0],
        ]
        .concat()
    };
    let frames = [cie.clone(), fde(cie.len(), &first, 32), fde(cie.len() + 32, &second, 8)].concat();
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &[62, 0]);
    put(32, &64_u64.to_le_bytes());
    put(40, &(SECTIONS as u64).to_le_bytes());
    put(54, &[56, 0, 1, 0, 64, 0, 3, 0, 2, 0]);
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    put(64 + 32, &(SECTIONS as u64).to_le_bytes());
    for (n, name, at, size) in [(1, 1, 0x400_u64, frames.len()), (2, 0, 0x300, 11)] {
        let header = SECTIONS + n * 64;
        put(header, &[name, 0, 0, 0, 1]);
        put(header + 16, &at.to_le_bytes());
        put(header + 24, &at.to_le_bytes());
        put(header + 32, &(size as u64).to_le_bytes());
    }
    put(0x300, b"\0.eh_frame\0");
    put(0x400, &frames);
    put(usize::try_from(second.start).unwrap() - bytes.len(), bytes);
    file
}

#[test]
fn a_mark_before_a_description_belongs_to_the_function_behind_it() {
    let frame = |n| Rule::Frame { cfa: Cfa::Sp(n), fp: Fp::Same };
    let endbr = [0xf3, 0x0f, 0x1e, 0xfa];
    let marked = table_of_bytes(two_functions(0x1000..0x10fa, 0x1104..0x1200, &endbr)).unwrap();
    let rules = [0x10f9, 0x10ff, 0x1100, 0x1103, 0x1104].map(|offset| marked.rule(offset));
    assert_eq!(rules, [frame(32), frame(32), frame(8), frame(8), frame(8)]);
    let plain = table_of_bytes(two_functions(0x1000..0x10fa, 0x1104..0x1200, &[0x90; 4])).unwrap();
    assert_eq!((plain.rule(0x1103), plain.rule(0x1104)), (frame(32), frame(8)), "padding");
}

/// Fields of the ELF-64 header: `e_shoff`; then size and number of the section headers, and the index of the names.
const SECTION_HEADERS: [Range<usize>; 2] = [0x28..0x30, 0x3a..0x40];

#[test]
fn section_headers_are_not_needed_and_not_believed_against_the_program_headers() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let library = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"].map(Path::new).into_iter();
    let Some(library) = library.filter(|path| path.exists()).map(|path| std::fs::read(path).unwrap()).next()
    else {
        return;
    };
    let elf = Elf::read_memory(library.clone()).unwrap();
    let expected = table(&elf, None).unwrap().table;
    let headers = usize::try_from(u64::from_le_bytes(library[0x28..0x30].try_into().unwrap())).unwrap();
    let frames = elf.sections().iter().position(|section| section.name == ".eh_frame").unwrap();
    let (mut none, mut beyond, mut false_one) = (library.clone(), library.clone(), library.clone());
    SECTION_HEADERS.into_iter().for_each(|field| none[field].fill(0));
    beyond[0x2f] = 0x7f;
    // The offset of `.eh_frame` is that of other data.
    false_one[headers + 64 * frames + 24 + 1] ^= 1;
    for changed in [none, beyond, false_one] {
        let changed = table_of_bytes(changed).unwrap();
        let (mut same, mut random) = (0, 0_u64);
        for n in 0..20_000 {
            random = memory(random ^ n);
            let offset = random % library.len() as u64;
            // Only sections say exactly where start code is.
            if let Rule::Frame { .. } | Rule::Plt { .. } | Rule::Signal { .. } = expected.rule(offset) {
                assert_eq!(changed.rule(offset), expected.rule(offset), "{offset:#x}");
                same += 1;
            }
        }
        assert!(same > 5_000, "{same}");
    }
}

#[test]
fn the_vdso_has_a_table() {
    let image = super::super::vdso::image().unwrap();
    let table = table(&Elf::read(File::from(image)).unwrap(), None);
    if cfg!(target_arch = "x86_64") {
        assert!(table.unwrap().table.rows() > 5);
    }
}

#[test]
fn files_without_frame_descriptions_are_reported() {
    assert_eq!(table_of_bytes(vec![0; 100]), Err(NoTable::BadFile));
    let own = std::fs::read("/proc/self/exe").unwrap();
    let mut other = own.clone();
    other[18] = 0xb7; // AArch64
    other[19] = 0;
    assert_eq!(table_of_bytes(other), Err(NoTable::Machine));
}
