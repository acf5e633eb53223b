//! Programs with known functions, and an address space in which each file has its own address.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use jbpf_prof::process::{FileId, FileOwner, ProcessRoot, Unopened};
use jbpf_prof::profile::{Frame, UnknownReason};
use jbpf_prof::sample::{Leaf, MonoNs, ProcessId, Stack, StackKey, StopReason, ThreadContext, UserWord};
use jbpf_prof::symbolize::{AddressSpaces, CodePlace, FileHandle, NamedStack, SymbolConfig, Symbolizer};
use testkit::profiler::binary;
use testkit::{scratch, sources};

/// File `n` is at `(n + 1) << 32`; addresses from here on are generated code.
pub(crate) const GENERATED: u64 = 1 << 46;

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// A source file in `tests/programs/symbols`.
pub(crate) fn source(name: &str) -> PathBuf {
    sources().join("symbols").join(name)
}

/// Compiles `chain.c` and `other.c` with these flags. Tests with the same flags get copies of one file.
pub(crate) fn chain(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = compiled.len();
    let file = compiled.entry(flags.join(" ")).or_insert_with(|| {
        let file = scratch("chain").join(number.to_string());
        let files = [source("chain.c"), source("other.c")];
        run(Command::new("gcc").args(["-O2", "-Wl,--build-id"]).args(flags).args(files).arg("-o").arg(&file));
        file
    });
    let out = dir.join(name);
    fs::copy(file, &out).unwrap();
    out
}

/// The virtual address of a symbol, by nm; `symbol` is a part of its name, or ` name` for all of it.
pub(crate) fn address_of(binary: &Path, symbol: &str) -> u64 {
    let symbols = run(Command::new("nm").arg(binary));
    let is = |name: &str| symbol.strip_prefix(' ').map_or_else(|| name.contains(symbol), |all| name == all);
    let line = symbols.lines().find(|l| l.split_ascii_whitespace().nth(2).is_some_and(is));
    let line = line.unwrap_or_else(|| panic!("{} has no {symbol}", binary.display()));
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

/// The file offset of a symbol.
pub(crate) fn offset_of(binary: &Path, symbol: &str) -> u64 {
    offset_of_address(binary, address_of(binary, symbol))
}

/// The file offset of a virtual address.
pub(crate) fn offset_of_address(binary: &Path, address: u64) -> u64 {
    let headers = run(Command::new("readelf").arg("-lW").arg(binary));
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    headers
        .lines()
        .filter(|l| l.trim_start().starts_with("LOAD"))
        .find_map(|l| {
            let f: Vec<&str> = l.split_ascii_whitespace().collect();
            let (offset, start, size) = (hex(f[1]), hex(f[2]), hex(f[4]));
            (start..start + size).contains(&address).then(|| address - start + offset)
        })
        .expect("a segment has the address")
}

/// Files at fixed addresses; perf maps through the product's own, safe opening.
#[derive(Default)]
pub(crate) struct Space {
    files: Vec<FileHandle>,
    /// The process whose perf map is opened.
    pub(crate) perf_map_pid: Option<u32>,
}

impl Space {
    pub(crate) fn add(&mut self, path: &Path) -> u64 {
        self.add_open(path.to_str().unwrap(), File::open(path).unwrap().into())
    }

    /// Returns the address of the file's first byte.
    pub(crate) fn add_open(&mut self, name: &str, fd: OwnedFd) -> u64 {
        self.files.push(FileHandle::Image { name: name.into(), fd: Arc::new(fd) });
        (self.files.len() as u64) << 32
    }
}

impl AddressSpaces for Space {
    fn place(&mut self, _: ProcessId, _: MonoNs, pc: u64) -> CodePlace {
        if pc >= GENERATED {
            return CodePlace::Generated;
        }
        let number = pc >> 32;
        match number.checked_sub(1).and_then(|n| self.files.get(n as usize)) {
            Some(file) => {
                CodePlace::File { id: FileId(number), file: file.clone(), offset: pc & u64::from(u32::MAX) }
            }
            None => CodePlace::Unknown(UnknownReason::NotMapped),
        }
    }

    fn mapped_since(&mut self, _: ProcessId, _: MonoNs) -> Option<MonoNs> {
        Some(MonoNs(0))
    }

    fn is_known(&self, _: ProcessId) -> bool {
        self.perf_map_pid.is_some()
    }

    fn perf_map(&mut self, _: ProcessId, _: MonoNs) -> Result<OwnedFd, Unopened> {
        let root = ProcessRoot::of(self.perf_map_pid.ok_or(Unopened::ProcessGone)?)?;
        let path = PathBuf::from(format!("/tmp/perf-{}.map", root.ns_pid));
        Ok(root.open_regular(&path, FileOwner::ProcessUserOrRootUser)?)
    }
}

/// The usual configuration with the binary under test as worker.
pub(crate) fn config() -> SymbolConfig {
    SymbolConfig::new(binary())
}

pub(crate) fn start() -> Symbolizer {
    Symbolizer::start(config()).unwrap()
}

/// A stack, leaf first.
pub(crate) fn stack(user: &[UserWord], kernel: &[u64], stop_reason: StopReason) -> Stack {
    let process = ProcessId { tgid: 4242, start: 1, exec: 1 };
    Stack {
        key: StackKey { process, ..StackKey::default() },
        at: MonoNs(1),
        comm: b"test".to_vec(),
        leaf: Leaf::User,
        stop_reason,
        kernel: kernel.to_vec(),
        user: user.to_vec(),
        waiting: None,
        lock: None,
        waker: None,
        object: None,
        context: ThreadContext::None,
    }
}

/// The complete frames of each stack.
pub(crate) fn frames(
    symbolizer: &mut Symbolizer,
    stacks: &[Stack],
    space: &mut Space,
) -> Vec<Vec<Arc<Frame>>> {
    let mut whole = Vec::new();
    let next = |named: NamedStack| {
        named.replace(&mut whole);
        whole.clone()
    };
    symbolizer.symbolize(stacks, space).into_iter().map(next).collect()
}

/// The frames of one leaf address.
pub(crate) fn leaf(symbolizer: &mut Symbolizer, space: &mut Space, pc: u64) -> Vec<Arc<Frame>> {
    let stacks = [stack(&[UserWord::Leaf(pc)], &[], StopReason::Root)];
    symbolizer.symbolize(&stacks, space).remove(0).frames
}

pub(crate) fn names(frames: &[Arc<Frame>]) -> Vec<&str> {
    frames.iter().map(|f| &*f.name).collect()
}
