//! The kernel's own code: text, modules, BPF programs, from `/proc/kallsyms`.
//!
//! kallsyms gives only start addresses. So an address is named only in a region that is known to hold code: from
//! `_stext` to `_etext` and from `_sinittext` to `_einittext`, in a module as `/proc/modules` sizes it, or shortly
//! after the start of a BPF program.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::sync::Arc;

use super::demangle::demangle;
use crate::profile::frame::Module;
use crate::profile::frame::clean;

/// Symbols that are kept, at most: today's kernels have 150,000.
const MAX_SYMBOLS: usize = 1 << 21;
const MAX_LINE: u64 = 4096;
/// Assumed length of a BPF program or trampoline, bytes, if no other symbol begins before.
const MAX_GENERATED: u64 = 16 << 10;

/// A range of addresses that holds code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CodeRegion {
    start: u64,
    end: u64,
    module: u16,
}

/// A function; a kernel has 150,000.
#[derive(Clone, Copy, Debug)]
struct KernelSymbol {
    address: u64,
    /// Offset in `KernelSymbols::names`.
    name: u32,
    /// Index into `KernelSymbols::modules`.
    module: u16,
}

/// The symbols of kallsyms at one time.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Sorted by address.
    symbols: Vec<KernelSymbol>,
    names: Vec<u8>,
    regions: Vec<CodeRegion>,
    modules: Vec<Arc<Module>>,
    hidden: bool,
}

/// Result of looking up a kernel address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelName {
    /// A function, and its module (`[kernel]`, `[ext4]`, `[bpf]`).
    Function(String, Arc<Module>),
    /// The kernel hides its addresses from us.
    Hidden,
    /// The address is not in known code.
    Unknown,
}

impl KernelSymbols {
    /// Parses `kallsyms` and `modules` (in the format of the files in `/proc`). Malformed lines are skipped.
    ///
    /// # Errors
    /// When a line of one of the two cannot be read.
    pub fn parse(kallsyms: impl BufRead, modules: impl BufRead) -> io::Result<KernelSymbols> {
        let mut parser = Parser::new();
        parser.modules(modules)?;
        parser.symbols(kallsyms)?;
        Ok(parser.finish())
    }

    /// The function at `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> KernelName {
        if self.hidden {
            return KernelName::Hidden;
        }
        let after = self.regions.partition_point(|r| r.start <= address);
        let Some(region) = after.checked_sub(1).map(|i| &self.regions[i]).filter(|r| address < r.end) else {
            return KernelName::Unknown;
        };
        let after = self.symbols.partition_point(|s| s.address <= address);
        let symbol = after.checked_sub(1).map(|i| self.symbols[i]);
        match symbol.filter(|s| s.address >= region.start && s.module == region.module) {
            Some(KernelSymbol { name, module, .. }) => {
                let tail = self.names.get(name as usize..).unwrap_or_default();
                let end = tail.iter().position(|&b| b == 0).unwrap_or(tail.len());
                let module = Arc::clone(&self.modules[usize::from(module)]);
                KernelName::Function(demangle(&tail[..end]).0, module)
            }
            None => KernelName::Unknown,
        }
    }

    /// Sets the lengths of generated code, by its start: kallsyms does not contain them.
    pub fn set_lengths(&mut self, lengths: &HashMap<u64, u64>) {
        for region in self.regions.iter_mut().filter(|r| r.module == BPF) {
            if let Some(&length) = lengths.get(&region.start) {
                region.end = region.start.saturating_add(length);
            }
        }
    }

    /// Sets the build ids of the kernel and of its modules: kallsyms does not contain them.
    pub fn set_build_ids(&mut self, of: impl Fn(&str) -> Option<Vec<u8>>) {
        for module in &mut self.modules {
            let name = module.path.trim_matches(['[', ']']);
            if let Some(id) = of(name) {
                *module = Arc::new(Module { build_id: Some(id.into()), ..Module::clone(module) });
            }
        }
    }

    /// The symbols of generated code only: BPF programs and trampolines.
    pub(crate) fn into_generated(self) -> KernelSymbols {
        let mut generated = KernelSymbols { modules: self.modules, ..KernelSymbols::default() };
        generated.regions.extend(self.regions.into_iter().filter(|region| region.module == BPF));
        for symbol in self.symbols.into_iter().filter(|symbol| symbol.module == BPF) {
            let tail = self.names.get(symbol.name as usize..).unwrap_or_default();
            // No longer than the names of all symbols, whose length fits.
            let name = u32::try_from(generated.names.len()).unwrap_or(u32::MAX);
            generated.names.extend(tail.iter().take_while(|&&byte| byte != 0));
            generated.names.push(0);
            generated.symbols.push(KernelSymbol { name, ..symbol });
        }
        generated
    }

    /// The symbols of a kernel that hides them.
    pub(crate) fn hidden() -> KernelSymbols {
        KernelSymbols { hidden: true, ..KernelSymbols::default() }
    }

    /// Number of symbols of code, at most one an address; 0 if the kernel hides them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }
}

/// Module 0 is the kernel's own text, module 1 is generated code; others follow.
const KERNEL: u16 = 0;
const BPF: u16 = 1;

struct Parser {
    out: KernelSymbols,
    by_name: HashMap<Vec<u8>, u16>,
    bounds: HashMap<&'static str, u64>,
    /// Rank of the last symbol's name.
    previous: Rank,
}

impl Parser {
    fn new() -> Parser {
        let mut parser = Parser {
            out: KernelSymbols::default(),
            by_name: HashMap::new(),
            bounds: HashMap::new(),
            previous: Rank::default(),
        };
        parser.module(b"kernel");
        parser.module(b"bpf");
        parser
    }

    fn module(&mut self, name: &[u8]) -> Option<u16> {
        if let Some(&number) = self.by_name.get(name) {
            return Some(number);
        }
        let number = u16::try_from(self.out.modules.len()).ok()?;
        let path = format!("[{}]", clean(name, 64));
        self.out.modules.push(Arc::new(Module::at(path)));
        self.by_name.insert(name.to_vec(), number);
        Some(number)
    }

    /// `NAME SIZE REFS USERS STATE 0xADDRESS`, a line each.
    fn modules(&mut self, mut text: impl BufRead) -> io::Result<()> {
        lines(&mut text, |line| {
            let fields: Vec<&[u8]> = line.split(|&b| b == b' ').filter(|f| !f.is_empty()).collect();
            let [name, size, _, _, _, address, ..] = fields[..] else { return };
            let number =
                |text: &[u8], radix| u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok();
            let start = address.strip_prefix(b"0x").and_then(|a| number(a, 16)).unwrap_or(0);
            let end = number(size, 10).and_then(|size| start.checked_add(size)).unwrap_or(0);
            if start != 0
                && end > start
                && let Some(module) = self.module(name)
            {
                self.out.regions.push(CodeRegion { start, end, module });
            }
        })
    }

    /// `ADDRESS TYPE NAME[\t[MODULE]]`, a line each.
    fn symbols(&mut self, mut text: impl BufRead) -> io::Result<()> {
        let (mut count, mut zero) = (0_u64, 0_u64);
        lines(&mut text, |line| {
            let mut fields = line.splitn(3, |&b| b == b' ');
            let (Some(address), Some([kind]), Some(name)) = (fields.next(), fields.next(), fields.next())
            else {
                return;
            };
            let Some(address) = hex16(address) else { return };
            count += 1;
            zero += u64::from(address == 0);
            let mut parts = name.splitn(2, |&b| b == b'\t');
            let name = parts.next().unwrap_or_default();
            let module = parts.next().and_then(|m| m.strip_prefix(b"[")?.strip_suffix(b"]"));
            self.symbol(address, *kind, name, module);
        })?;
        self.out.hidden = count == 0 || zero == count;
        Ok(())
    }

    fn symbol(&mut self, address: u64, kind: u8, name: &[u8], module: Option<&[u8]>) {
        for bound in ["_stext", "_etext", "_sinittext", "_einittext"] {
            if module.is_none() && name == bound.as_bytes() {
                self.bounds.insert(bound, address);
            }
        }
        if !matches!(kind, b't' | b'T' | b'w' | b'W')
            || name.is_empty()
            || self.out.symbols.len() >= MAX_SYMBOLS
        {
            return;
        }
        let module = match module {
            None => Some(KERNEL),
            // ftrace and kprobes list their trampolines under module names of their own.
            Some(m) if m == b"bpf" || m.starts_with(b"__builtin__") => Some(BPF),
            Some(m) => self.module(m),
        };
        let Some(module) = module else { return };
        // Of several names of one address, the best known one stays.
        if self.out.symbols.last().is_some_and(|s| s.address == address && s.module == module) {
            if rank(name, kind) >= self.previous {
                return;
            }
            if let Some(KernelSymbol { name: at, .. }) = self.out.symbols.pop() {
                self.out.names.truncate(at as usize);
            }
        }
        let Ok(at) = u32::try_from(self.out.names.len()) else { return };
        self.out.names.extend_from_slice(name);
        self.out.names.push(0);
        self.out.symbols.push(KernelSymbol { address, name: at, module });
        self.previous = rank(name, kind);
    }

    fn finish(mut self) -> KernelSymbols {
        let bound = |name| self.bounds.get(name).copied().unwrap_or(0);
        for (start, end) in [("_stext", "_etext"), ("_sinittext", "_einittext")] {
            let (start, end) = (bound(start), bound(end));
            if start != 0 && end > start {
                self.out.regions.push(CodeRegion { start, end, module: KERNEL });
            }
        }
        let out = &mut self.out;
        out.symbols.sort_by_key(|s| s.address);
        for (i, &KernelSymbol { address: start, module, .. }) in out.symbols.iter().enumerate() {
            if module == BPF {
                let next = out.symbols.get(i + 1).map_or(u64::MAX, |s| s.address);
                let end = next.min(start.saturating_add(MAX_GENERATED));
                out.regions.push(CodeRegion { start, end, module });
            }
        }
        out.regions.sort_by_key(|r| r.start);
        out.symbols.shrink_to_fit();
        out.names.shrink_to_fit();
        self.out
    }
}

/// Lower is better known: section markers come last, then fewest underscores first, then global before local.
type Rank = (bool, usize, bool);

fn rank(name: &[u8], kind: u8) -> Rank {
    let marker = name.ends_with(b"_start") || name.ends_with(b"text") || name.starts_with(b"__pi_");
    (marker, name.iter().take_while(|&&b| b == b'_').count(), kind.is_ascii_lowercase())
}

fn hex16(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &b| Some(value << 4 | u64::from(char::from(b).to_digit(16)?)))
}

fn lines(text: &mut impl BufRead, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut *text, MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        each(line.trim_ascii_end());
    }
}
