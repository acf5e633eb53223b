//! Builds an unwind table from compilers' frame descriptions: `.eh_frame`, and `.debug_frame` for code without it.
//!
//! Sources: DWARF 5 section 6.4, the System V ABI for x86-64 sections 3.6 and 4.2.4, and the output of
//! `readelf --debug-dump=frames` on real files. Rules that the unwinder does not follow are recorded as such, never
//! guessed.

use std::ops::{ControlFlow, Range};

use gimli::{
    BaseAddresses, CfaRule, CommonInformationEntry, DebugFrame, EhFrame, FrameDescriptionEntry, LittleEndian,
    Operation, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection,
    UnwindTableRow, X86_64,
};
use serde::{Deserialize, Serialize};

use super::branch_mark;
use super::call_frames::{SliceReader, for_each_function};
use super::coroutine;
use super::elf::{Elf, ElfError, SHF_COMPRESSED};
use super::go_table::{GoTable, OnStack};
use super::machine::Machine;
use super::signal_return;
use crate::unwind::{Cfa, Fp, Rule, Table, TableBuilder, TablePart, TableRange};

/// Bytes of frame descriptions read from one file; the largest browsers have 20 MiB.
const MAX_SECTION: u64 = 128 << 20;
/// Bytes of a CIE. Its instructions run again for each of its functions; real ones have about ten bytes.
const MAX_CIE: usize = 256;
/// Bytes of start code. GCC's (crtbegin) has about 180.
const MAX_START_CODE: u64 = 256;
/// Bytes of `endbr64`. glibc's `_start` begins with it, and only the code behind it is described as having no caller.
const ENDBR: u64 = 4;
/// A section that Go's linker writes. Such a file's `.debug_frame` is not used, because it describes only the stack
/// pointer: not that a function saves rbp, changes stacks (`runtime.asmcgocall`) or is the outermost (golang/go
/// `src/cmd/link/internal/ld/dwarf.go`, `writeframes`). Go's code has frame pointers; its line table says where not.
const GO: &str = ".note.go.buildid";

/// Why a file has no unwind table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NoTable {
    /// The file describes no frames.
    NoFrames,
    /// The file is for another machine than x86-64 and i386.
    Machine,
    /// The file cannot be opened now.
    Unavailable,
    /// The file cannot be read.
    BadFile,
    /// The table would be too large.
    TooLarge,
}

/// Builds the unwind table of a file. Descriptions that cannot be read are left out. With `around`, the table covers
/// the code around that offset in the file, as much as fits.
///
/// # Errors
/// Why there is no table.
pub fn table(elf: &Elf, around: Option<u64>) -> Result<TablePart, NoTable> {
    let machine = Machine::of(elf).ok_or(NoTable::Machine)?;
    let address = |name| elf.section(name).map_or(0, |section| section.addr);
    let bases = BaseAddresses::default()
        .set_eh_frame(address(".eh_frame"))
        .set_text(address(".text"))
        .set_got(address(".got"));
    let mut table = around.map_or_else(TableBuilder::default, TableBuilder::around);
    table.i386 = machine == Machine::I386;
    let signal_returns = if machine == Machine::X86_64 { signal_return::all(elf) } else { Vec::new() };
    let mut builder =
        Builder { elf, machine, table, described: Vec::new(), after_entry: None, signal_returns };
    let bytes = section(elf, ".eh_frame")?;
    let mut frames = EhFrame::new(&bytes, LittleEndian);
    frames.set_address_size(machine.word_size());
    builder.add_functions(&frames, &bases)?;
    // A program compiled without `.eh_frame` still has that of the start code, which is linked into it.
    let bytes = section(elf, ".debug_frame").unwrap_or_default();
    if !bytes.is_empty() && elf.section(GO).is_none() {
        builder.described = builder.table.covered();
        let mut frames = DebugFrame::new(&bytes, LittleEndian);
        frames.set_address_size(machine.word_size());
        builder.add_functions(&frames, &bases)?;
    }
    builder.add_go_code()?;
    builder.start_code()?;
    let only = builder.add_signal_returns()?;
    let part = builder.table.build_part().map_err(|_| NoTable::TooLarge)?.ok_or(NoTable::NoFrames)?;
    Ok(TablePart { range: only.unwrap_or(part.range), ..part })
}

/// Like [`table`], for a file that is in memory.
///
/// # Errors
/// Why there is no table.
pub fn table_of_bytes(bytes: Vec<u8>) -> Result<Table, NoTable> {
    Ok(table(&Elf::read_memory(bytes).map_err(|_| NoTable::BadFile)?, None)?.table)
}

fn section(elf: &Elf, name: &str) -> Result<Vec<u8>, NoTable> {
    let Some(section) = elf.section(name).filter(|s| s.flags & SHF_COMPRESSED == 0) else {
        return Ok(Vec::new());
    };
    elf.bytes(section.offset, section.size, MAX_SECTION).map_err(|error| match error {
        ElfError::TooLarge { .. } => NoTable::TooLarge,
        _ => NoTable::BadFile,
    })
}

/// Room for the rules of 40 registers: compilers save at most 32 in programs (clang's `preserve_all`). Code with more gets
/// [`Rule::Other`]. gimli copies the room for each function, and its own is five times as large.
struct Registers;

impl UnwindContextStorage<usize> for Registers {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = Box<[UnwindTableRow<usize, Registers>; 4]>;
}

struct Builder<'e> {
    elf: &'e Elf,
    machine: Machine,
    table: TableBuilder,
    /// Offsets in the file that are not described again.
    described: Vec<Range<u64>>,
    /// The end of the function that contains the entry point.
    after_entry: Option<u64>,
    /// Offsets in the file. Descriptions of this code are ignored.
    signal_returns: Vec<TableRange>,
}

impl Builder<'_> {
    fn add_functions<'d, S>(&mut self, frames: &S, bases: &BaseAddresses) -> Result<(), NoTable>
    where
        S: UnwindSection<SliceReader<'d>>,
    {
        let mut context = UnwindContext::new_in();
        let all = for_each_function(frames, bases, |fde| {
            match self.add_function(frames, bases, fde, &mut context) {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => ControlFlow::Break(why),
            }
        });
        all.break_value().map_or(Ok(()), Err)
    }

    /// Adds the rules of one function.
    fn add_function<'d, S>(
        &mut self,
        frames: &S,
        bases: &BaseAddresses,
        fde: &FrameDescriptionEntry<SliceReader<'d>>,
        context: &mut UnwindContext<usize, Registers>,
    ) -> Result<(), NoTable>
    where
        S: UnwindSection<SliceReader<'d>>,
    {
        let (start, end) = (fde.initial_address(), fde.end_address());
        let Some(code) = self.elf.code_bias(start, end) else { return Ok(()) };
        let (from, to) = (start.wrapping_sub(code), end.wrapping_sub(code));
        let next = self.described.partition_point(|range| range.end <= from);
        let again = self.described.get(next).is_some_and(|range| range.start < to);
        // Linkers leave descriptions of removed functions in `.debug_frame`, at the offset of the header.
        let known = self.signal_returns.iter().any(|code| code.start <= from && to <= code.end);
        if again || known || from == 0 {
            return Ok(());
        }
        if fde.cie().entry_len() > MAX_CIE {
            return self.add(code, start, end, Rule::Other);
        }
        if coroutine::has_length(end - start) && coroutine::begins(self.elf, start) {
            // A return address is looked up by the byte before it.
            return self.add(code, start.saturating_sub(1), end, Rule::End);
        }
        if branch_mark::stands_before(self.elf, start) {
            self.add(code, start.saturating_sub(branch_mark::LEN), start, branch_mark::RULE)?;
        }
        if self.machine == Machine::I386 && coroutine::begins_behind(self.elf, start, end) {
            // A return address is looked up by the byte before it: here a `ret`, at which no tick ever is.
            self.add(code, end, end.saturating_add(2), Rule::End)?;
        }
        let mut from = start;
        if start == self.elf.entry()
            && let Ok(row) = fde.unwind_info_for_address(frames, bases, context, start + ENDBR)
            && rule(row, self.machine, frames, fde.cie()) == Rule::End
        {
            from = start + ENDBR;
            self.add(code, start, from, Rule::End)?;
        }
        let Ok(mut rows) = fde.rows(frames, bases, context) else {
            return self.add(code, start, end, Rule::Other);
        };
        if (start..end).contains(&self.elf.entry()) {
            self.after_entry = Some(end);
        }
        let mut to = from;
        while let Ok(Some(row)) = rows.next_row() {
            let (start, end) = (row.start_address().max(from), row.end_address().min(end));
            self.add(code, start, end, rule(row, self.machine, frames, fde.cie()))?;
            to = end.max(to);
        }
        // The code behind an instruction that cannot be read.
        self.add(code, to, end, Rule::Other)
    }

    /// Adds rules for Go code without a frame, where unwinding by frame pointer would skip the caller.
    fn add_go_code(&mut self) -> Result<(), NoTable> {
        let Some(go) = GoTable::find(self.elf) else { return Ok(()) };
        let word = i32::from(self.machine.word_size());
        let found = go.stacks(self.elf, |addresses, on_stack| {
            let Some(code) = self.elf.code_bias(addresses.start, addresses.end) else {
                return ControlFlow::Continue(());
            };
            let rule = match on_stack {
                OnStack::ReturnAddress => Rule::Frame { cfa: Cfa::Sp(word), fp: Fp::Same },
                OnStack::Frame => Rule::None,
            };
            match self.add(code, addresses.start, addresses.end, rule) {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => ControlFlow::Break(why),
            }
        });
        found.break_value().map_or(Ok(()), Err)
    }

    /// Marks the compiler's start code, which is linked into each file and has neither descriptions nor frame pointers.
    /// The rule of another function would find a wrong frame there. Start code is `.init` and `.fini` (crti.o), and in
    /// `.text` the code before the file's own, or behind `_start` in programs (crtbegin.o). Larger ranges are other
    /// code without descriptions, such as Go's.
    fn start_code(&mut self) -> Result<(), NoTable> {
        let after_entry = self.after_entry;
        let sections = [".init", ".fini", ".text"].into_iter().filter_map(|name| self.elf.section(name));
        let mut code: Vec<(u64, u64)> =
            sections.map(|section| (section.addr, section.addr.saturating_add(section.size))).collect();
        if code.is_empty() {
            code.extend(
                self.elf
                    .code()
                    .map(|segment| (segment.address, segment.address.saturating_add(segment.size))),
            );
        }
        for (start, end) in code {
            self.undescribed(start, end)?;
            if let Some(start) = after_entry.filter(|after| (start..end).contains(after)) {
                self.undescribed(start, end)?;
            }
        }
        Ok(())
    }

    /// Adds the code to which signal handlers return. If nothing else is known of the file, returns the window of that
    /// code: all other code is unwound as in a file without a table.
    fn add_signal_returns(&mut self) -> Result<Option<TableRange>, NoTable> {
        let nothing_else = self.table.is_empty();
        for &TableRange { start, end } in &self.signal_returns {
            self.table.add(start, end, signal_return::RULE).map_err(|_| NoTable::TooLarge)?;
        }
        let (Some(first), Some(last)) = (self.signal_returns.first(), self.signal_returns.last()) else {
            return Ok(None);
        };
        // A thread in that system call is behind the last instruction.
        Ok(nothing_else.then_some(TableRange { start: first.start, end: last.end.saturating_add(1) }))
    }

    /// Marks the code from `start` up to what is described or to the section's end, if that code is small.
    fn undescribed(&mut self, start: u64, end: u64) -> Result<(), NoTable> {
        let Some(code) = self.elf.code_bias(start, end) else { return Ok(()) };
        let next = self.table.next_from(start.wrapping_sub(code)).and_then(|next| next.checked_add(code));
        let end = next.map_or(end, |next| next.min(end));
        let small = end.saturating_sub(start) <= MAX_START_CODE;
        if small { self.add(code, start, end, Rule::Other) } else { Ok(()) }
    }

    /// Adds the rule of a range of addresses; `code` is how far an address exceeds its offset in the file.
    fn add(&mut self, code: u64, start: u64, end: u64, rule: Rule) -> Result<(), NoTable> {
        if start >= end {
            return Ok(());
        }
        let offset = |address: u64| address.wrapping_sub(code);
        self.table.add(offset(start), offset(end), rule).map_err(|_| NoTable::TooLarge)
    }
}

/// The rule of one row. Registers of other machines get the names of the x86-64 registers with the same role.
fn rule<'d, S>(
    row: &UnwindTableRow<usize, Registers>,
    machine: Machine,
    frames: &S,
    cie: &CommonInformationEntry<SliceReader<'d>>,
) -> Rule
where
    S: UnwindSection<SliceReader<'d>>,
{
    let operations = |expression: &UnwindExpression<usize>| operations(expression, machine, frames, cie);
    let ra = match row.register(machine.number(X86_64::RA)) {
        None => return Rule::Other,
        Some(RegisterRule::Undefined) => return Rule::End,
        Some(ra) => ra,
    };
    let fp = row.register(machine.number(X86_64::RBP));
    if let RegisterRule::Expression(ra) = &ra {
        return signal(row, machine, &operations(ra), fp.as_ref(), operations).unwrap_or(Rule::Other);
    }
    if ra != RegisterRule::Offset(-i64::from(machine.word_size())) {
        return Rule::Other;
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            match (machine.register(*register), i32::try_from(*offset)) {
                (X86_64::RSP, Ok(n)) => Cfa::Sp(n),
                (X86_64::RBP, Ok(n)) => Cfa::Fp(n),
                _ => return Rule::Other,
            }
        }
        CfaRule::Expression(expression) => match operations(expression)[..] {
            [DwarfOperation::Register(register, at), DwarfOperation::Deref] => match deref(register, at, 0) {
                Some(cfa) => cfa,
                None => return Rule::Other,
            },
            [DwarfOperation::Register(register, at), DwarfOperation::Deref, DwarfOperation::Add(more)] => {
                match deref(register, at, more) {
                    Some(cfa) => cfa,
                    None => return Rule::Other,
                }
            }
            // The linker's expression for a PLT: binutils, elf_x86_64_eh_frame_plt and elf_i386_eh_frame_plt.
            [
                DwarfOperation::Register(X86_64::RSP, cfa),
                DwarfOperation::Register(X86_64::RA, 0),
                DwarfOperation::Literal(15),
                DwarfOperation::And,
                DwarfOperation::Literal(from @ 0..16),
                DwarfOperation::AtLeast,
                DwarfOperation::Literal(shift),
                DwarfOperation::ShiftLeft,
                DwarfOperation::Plus,
            ] if shift == machine.word_shift() => {
                return match (i32::try_from(cfa), u8::try_from(from), fp) {
                    (Ok(cfa), Ok(from), None | Some(RegisterRule::SameValue)) => Rule::Plt { cfa, from },
                    _ => Rule::Other,
                };
            }
            _ => return Rule::Other,
        },
    };
    let fp = match fp {
        None | Some(RegisterRule::SameValue) => Fp::Same,
        Some(RegisterRule::Offset(n)) => i16::try_from(n).map_or(Fp::Lost, Fp::AtCfa),
        Some(RegisterRule::Expression(expression)) => match operations(&expression)[..] {
            [DwarfOperation::Register(X86_64::RBP, n)] => i16::try_from(n).map_or(Fp::Lost, Fp::AtFp),
            _ => Fp::Lost,
        },
        Some(_) => Fp::Lost,
    };
    Rule::Frame { cfa, fp }
}

fn deref(register: Register, at: i64, more: i64) -> Option<Cfa> {
    let (at, more) = (i16::try_from(at).ok()?, i16::try_from(more).ok()?);
    match register {
        X86_64::RSP => Some(Cfa::AtSp(at, more)),
        X86_64::RBP => Some(Cfa::AtFp(at, more)),
        _ => None,
    }
}

/// The frame of a signal: the kernel saved all registers at sp + n (glibc's `__restore_rt`).
fn signal(
    row: &UnwindTableRow<usize, Registers>,
    machine: Machine,
    ra: &[DwarfOperation],
    fp: Option<&RegisterRule<usize>>,
    operations: impl Fn(&UnwindExpression<usize>) -> Vec<DwarfOperation>,
) -> Option<Rule> {
    let CfaRule::Expression(cfa) = row.cfa() else { return None };
    let Some(RegisterRule::Expression(fp)) = fp else { return None };
    let [DwarfOperation::Register(X86_64::RSP, sp_at), DwarfOperation::Deref] = operations(cfa)[..] else {
        return None;
    };
    let [DwarfOperation::Register(X86_64::RSP, ra_at)] = *ra else { return None };
    let [DwarfOperation::Register(X86_64::RSP, fp_at)] = operations(fp)[..] else { return None };
    let as_saved = ra_at.checked_sub(machine.saved_ip()) == Some(sp_at);
    as_saved.then_some(Rule::Signal { sp_at: i32::try_from(sp_at).ok()?, fp_at: i16::try_from(fp_at).ok()? })
}

/// An operation of a DWARF expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DwarfOperation {
    /// A register's value plus n.
    Register(Register, i64),
    Literal(u64),
    Add(i64),
    Deref,
    And,
    AtLeast,
    ShiftLeft,
    Plus,
    Other,
}

/// The operations of an expression. If it is longer than all known ones, or cannot be read, the last one is
/// [`DwarfOperation::Other`].
fn operations<'d, S>(
    expression: &UnwindExpression<usize>,
    machine: Machine,
    frames: &S,
    cie: &CommonInformationEntry<SliceReader<'d>>,
) -> Vec<DwarfOperation>
where
    S: UnwindSection<SliceReader<'d>>,
{
    let Ok(expression) = expression.get(frames) else { return vec![DwarfOperation::Other] };
    let mut operations = expression.operations(cie.encoding());
    let mut steps = Vec::new();
    loop {
        let step = match operations.next() {
            Ok(None) => return steps,
            Ok(Some(operation)) if steps.len() < 16 => step(machine, &operation),
            _ => DwarfOperation::Other,
        };
        steps.push(step);
        if step == DwarfOperation::Other {
            return steps;
        }
    }
}

fn step(machine: Machine, operation: &Operation<SliceReader<'_>>) -> DwarfOperation {
    match *operation {
        Operation::RegisterOffset { register, offset, .. } => {
            DwarfOperation::Register(machine.register(register), offset)
        }
        Operation::UnsignedConstant { value } => DwarfOperation::Literal(value),
        Operation::PlusConstant { value } => {
            i64::try_from(value).map_or(DwarfOperation::Other, DwarfOperation::Add)
        }
        Operation::Deref { size, space: false, .. } if size == machine.word_size() => DwarfOperation::Deref,
        Operation::And => DwarfOperation::And,
        Operation::Ge => DwarfOperation::AtLeast,
        Operation::Shl => DwarfOperation::ShiftLeft,
        Operation::Plus => DwarfOperation::Plus,
        _ => DwarfOperation::Other,
    }
}

#[cfg(test)]
#[path = "frame_rules_tests.rs"]
mod tests;
