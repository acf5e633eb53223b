//! From a `Method*` to names and lines (oops/method.hpp, constMethod.hpp, constantPool.hpp, symbol.hpp).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use jvm_symbols_log::LineEntry;

use super::layout::{self, VmLayout};
use super::unsigned5::Unsigned5Stream;
use crate::jvm::code::JavaMethod;
use crate::jvm::memory::{InvalidMemory, Memory, half_in, short_in, word_in};

/// The flag of a `ConstMethod` with a line table (`ConstMethod::_has_linenumber_table` of JDK 8 to 20,
/// `ConstMethodFlags::_misc_has_linenumber_table` since).
const HAS_LINES: u16 = 1;
/// Most bytes of a method's bytecodes and tables: 64 KiB of bytecodes, and as much as a class file can have beside
/// them.
const MAX_TABLES: u64 = 1 << 20;
const MAX_LINES: usize = 65_536;

/// First bytes of a symbol that are read at once, including its length: names are short.
const SHORT_SYMBOL: usize = 128;

/// A method, and where its bytecodes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MethodInfo {
    pub(super) method: Arc<JavaMethod>,
    /// Addresses; empty for a native method.
    pub(super) bytecodes: Range<u64>,
    links: MethodLinks,
    /// The address of the class.
    pub(super) class: u64,
}

impl MethodInfo {
    /// Whether `method` still leads to the same data.
    pub(super) fn is_at<M: Memory>(&self, memory: &M, layout: &layout::MethodOffsets, method: u64) -> bool {
        let header = ConstMethod::read(memory, layout, method);
        header.and_then(|header| header.links(layout)) == Ok(self.links)
    }
}

/// The path from a method to its names: the `ConstMethod`, its constant pool, and the name's index there. The length of
/// the bytecodes is compared too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MethodLinks {
    const_method: u64,
    constants: u64,
    name_index: u16,
    code_size: u16,
}

/// The constant part of a method.
struct ConstMethod {
    at: u64,
    header: Vec<u8>,
}

impl ConstMethod {
    fn read<M: Memory>(
        memory: &M,
        layout: &layout::MethodOffsets,
        method: u64,
    ) -> Result<ConstMethod, InvalidMemory> {
        let at = memory.word(place(method, layout.const_method)?)?;
        let mut header = vec![0; usize::try_from(layout.const_method_size).map_err(|_| InvalidMemory)?];
        memory.read_all(at, &mut header)?;
        Ok(ConstMethod { at, header })
    }

    fn links(&self, layout: &layout::MethodOffsets) -> Result<MethodLinks, InvalidMemory> {
        Ok(MethodLinks {
            const_method: self.at,
            constants: word_in(&self.header, layout.constants)?,
            name_index: short_in(&self.header, layout.name_index)?,
            code_size: short_in(&self.header, layout.code_size)?,
        })
    }
}

/// Data of a class that all its methods share, in the JVM's encoding.
#[derive(Debug)]
pub(super) struct ClassTexts {
    pub(super) name: Vec<u8>,
    pub(super) file: Vec<u8>,
}

/// Reads methods, each once per request.
#[derive(Debug)]
pub(super) struct MethodReader {
    raw: bool,
    methods: HashMap<u64, Option<MethodInfo>>,
    classes: HashMap<u64, Option<ClassTexts>>,
}

impl MethodReader {
    /// With `raw` names keep the numbers that differ from run to run.
    pub(super) fn new(raw: bool) -> MethodReader {
        MethodReader { raw, methods: HashMap::new(), classes: HashMap::new() }
    }

    pub(super) fn at<M: Memory>(&mut self, memory: &M, layout: &VmLayout, method: u64) -> Option<MethodInfo> {
        if let Some(known) = self.methods.get(&method) {
            return known.clone();
        }
        let found = self.read(memory, layout, method).ok();
        self.methods.insert(method, found.clone());
        found
    }

    fn read<M: Memory>(
        &mut self,
        memory: &M,
        layout: &VmLayout,
        method: u64,
    ) -> Result<MethodInfo, InvalidMemory> {
        let l = &layout.method;
        let const_method = ConstMethod::read(memory, l, method)?;
        let links = const_method.links(l)?;
        let pool = Pool::read(memory, l, links.constants)?;
        let class =
            self.classes.entry(pool.holder).or_insert_with(|| ClassTexts::read(memory, l, pool.holder).ok());
        let class = class.as_ref().ok_or(InvalidMemory)?;
        let name = pool.symbol(memory, l, links.name_index)?;
        let lines = lines(memory, layout, &const_method)?;
        let begin = place(links.const_method, l.const_method_size)?;
        let end = place(begin, u64::from(links.code_size))?;
        let method = JavaMethod::new(&class.name, &name, &class.file, lines, self.raw);
        Ok(MethodInfo { method: Arc::new(method), bytecodes: begin..end, links, class: pool.holder })
    }
}

fn place(base: u64, offset: u64) -> Result<u64, InvalidMemory> {
    base.checked_add(offset).ok_or(InvalidMemory)
}

impl ClassTexts {
    pub(super) fn read<M: Memory>(
        memory: &M,
        layout: &layout::MethodOffsets,
        class: u64,
    ) -> Result<ClassTexts, InvalidMemory> {
        let name = class_name(memory, layout, class)?;
        Ok(ClassTexts { name: with_hidden_suffix(name), file: source_file(memory, layout, class)? })
    }
}

/// The name of a class, as the JVM has it.
pub(super) fn class_name<M: Memory>(
    memory: &M,
    layout: &layout::MethodOffsets,
    class: u64,
) -> Result<Vec<u8>, InvalidMemory> {
    symbol(memory, layout, memory.word(place(class, layout.class_name)?)?)
}

/// The class's own pool has the file's name. The pool of a method handle's intrinsic has only the intrinsic's name and
/// signature.
fn source_file<M: Memory>(
    memory: &M,
    layout: &layout::MethodOffsets,
    class: u64,
) -> Result<Vec<u8>, InvalidMemory> {
    let at = |offset: u64| place(class, offset);
    let pool = Pool::of_class(memory, layout, class)?;
    let index = match (layout.file_in_pool, layout.file_in_class) {
        (Some(field), _) => short_in(&pool.header, field)?,
        (None, Some(field)) => {
            let mut index = [0; 2];
            memory.read_all(at(field)?, &mut index)?;
            u16::from_ne_bytes(index)
        }
        (None, None) => 0,
    };
    if index == 0 { Ok(Vec::new()) } else { pool.symbol(memory, layout, index) }
}

pub(super) struct Pool {
    at: u64,
    header: Vec<u8>,
    holder: u64,
    length: u32,
}

impl Pool {
    fn read<M: Memory>(memory: &M, layout: &layout::MethodOffsets, at: u64) -> Result<Pool, InvalidMemory> {
        let mut header = vec![0; usize::try_from(layout.pool_size).map_err(|_| InvalidMemory)?];
        memory.read_all(at, &mut header)?;
        let holder = word_in(&header, layout.pool_holder)?;
        let length = half_in(&header, layout.pool_length)?;
        Ok(Pool { at, header, holder, length })
    }

    pub(super) fn of_class<M: Memory>(
        memory: &M,
        layout: &layout::MethodOffsets,
        class: u64,
    ) -> Result<Pool, InvalidMemory> {
        Pool::read(memory, layout, memory.word(place(class, layout.class_pool)?)?)
    }

    /// The address of the class whose pool this is.
    pub(super) fn holder(&self) -> u64 {
        self.holder
    }

    /// The text at an index: the pool's entry there is the address of a `Symbol`.
    pub(super) fn symbol<M: Memory>(
        &self,
        memory: &M,
        layout: &layout::MethodOffsets,
        index: u16,
    ) -> Result<Vec<u8>, InvalidMemory> {
        if index == 0 || u32::from(index) >= self.length {
            return Err(InvalidMemory);
        }
        let entry = self.at.checked_add(layout.pool_size + u64::from(index) * 8).ok_or(InvalidMemory)?;
        symbol(memory, layout, memory.word(entry)?)
    }
}

fn symbol<M: Memory>(memory: &M, layout: &layout::MethodOffsets, at: u64) -> Result<Vec<u8>, InvalidMemory> {
    let mut first = [0; SHORT_SYMBOL];
    let got = memory.read(at, &mut first);
    let first = first.get(..got).ok_or(InvalidMemory)?;
    let length = usize::from(short_in(first, layout.symbol_length)?);
    let body = usize::try_from(layout.symbol_body).map_err(|_| InvalidMemory)?;
    if let Some(text) = first.get(body..).and_then(|rest| rest.get(..length)) {
        return Ok(text.to_owned());
    }
    let mut text = vec![0; length];
    memory.read_all(place(at, layout.symbol_body)?, &mut text)?;
    Ok(text)
}

/// Renames a hidden class from HotSpot's inner form to the form of JVMTI (`InstanceKlass::signature_name`):
/// `a/Foo$$Lambda+0x00007f0012345678` becomes `a/Foo$$Lambda.0x00007f0012345678`. JDK 15 and later write 16 digits
/// (`ClassFileParser::mangle_hidden_class_name`), or 9 for a lambda of the JDK's archive.
fn with_hidden_suffix(mut class: Vec<u8>) -> Vec<u8> {
    if let Some(plus) = class.iter().rposition(|&b| b == b'+')
        && let Some(digits) = class[plus + 1..].strip_prefix(b"0x")
        && (9..=16).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_hexdigit)
    {
        class[plus] = b'.';
    }
    class
}

/// The line table follows the bytecodes: steps of bytecode index and line, small ones in one byte
/// (code/compressedStream.cpp, `CompressedLineNumberReadStream`).
fn lines<M: Memory>(
    memory: &M,
    layout: &VmLayout,
    ConstMethod { at, header }: &ConstMethod,
) -> Result<Vec<LineEntry>, InvalidMemory> {
    const LONG: u8 = 0xff;
    let l = &layout.method;
    if short_in(header, l.flags)? & HAS_LINES == 0 {
        return Ok(Vec::new());
    }
    let begin = l.const_method_size + u64::from(short_in(header, l.code_size)?);
    let end = (u64::from(half_in(header, l.words)?) * 8).min(MAX_TABLES);
    let size = end.checked_sub(begin).ok_or(InvalidMemory)?;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| InvalidMemory)?];
    memory.read_all(place(*at, begin)?, &mut bytes)?;
    let mut stream = Unsigned5Stream::new(&bytes, layout.null_free);
    let (mut entries, mut bci, mut line) = (Vec::new(), 0_u32, 0_u32);
    while entries.len() < MAX_LINES {
        match stream.byte() {
            // A zero ends the table.
            None | Some(0) => break,
            Some(LONG) => {
                let (Some(step), Some(lines)) = (stream.signed(), stream.signed()) else {
                    return Err(InvalidMemory);
                };
                bci = bci.wrapping_add_signed(step);
                line = line.wrapping_add_signed(lines);
            }
            Some(both) => {
                bci = bci.wrapping_add(u32::from(both >> 3));
                line = line.wrapping_add(u32::from(both & 7));
            }
        }
        entries.push(LineEntry { bci, line });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_classes_are_called_as_jvmti_calls_them() {
        let read = |name: &str| String::from_utf8(with_hidden_suffix(name.into())).unwrap();
        assert_eq!(read("a/F$$Lambda+0x00007f00c8000a00"), "a/F$$Lambda.0x00007f00c8000a00");
        assert_eq!(read("a/F$$Lambda$16+0x800000024"), "a/F$$Lambda$16.0x800000024");
        assert_eq!(read("a/C+D"), "a/C+D");
        assert_eq!(read("a/C+0xadd"), "a/C+0xadd");
        assert_eq!(read("a/C+"), "a/C+");
        assert_eq!(read("a+b/C"), "a+b/C");
        assert_eq!(read(""), "");
    }
}
