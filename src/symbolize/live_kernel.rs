//! The running kernel's symbols, kept up to date with its modules and BPF programs.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

use super::cache::Cache;
use super::kernel::{KernelName, KernelSymbols};
use crate::profile::{Frame, Kind, Why};

const RENEW_AFTER: Duration = Duration::from_secs(1);
const CACHED: usize = 16 << 10;

/// The running kernel's symbols, kept up to date.
#[derive(Debug)]
pub(crate) struct Kernel {
    symbols: KernelSymbols,
    frames: Cache<u64, Result<Arc<Frame>, Why>>,
    state: u64,
    checked: Instant,
    /// How often kallsyms was read.
    pub(crate) reads: u64,
}

impl Kernel {
    /// Reads kallsyms. If that fails, the kernel counts as hidden.
    pub(crate) fn read() -> Kernel {
        let mut kernel = Kernel {
            symbols: KernelSymbols::hidden(),
            frames: Cache::new(CACHED),
            state: 0,
            checked: Instant::now(),
            reads: 0,
        };
        kernel.renew(&Loaded::look());
        kernel
    }

    /// The frame of a kernel address, or why there is none; [`Why::KernelHidden`] if all of the kernel is hidden.
    pub(crate) fn frame(&mut self, address: u64) -> Result<Arc<Frame>, Why> {
        if let Some(frame) = self.frames.get(&address) {
            // Where a BPF program was, another one may be; where nothing was, a module.
            let lasting = match &frame {
                Ok(frame) => frame.module.as_ref().is_none_or(|m| &*m.path != "[bpf]"),
                Err(why) => *why == Why::KernelHidden,
            };
            if lasting || !self.renew_if_changed() {
                return frame;
            }
        }
        let mut name = self.symbols.find(address);
        if name == KernelName::Unknown && self.renew_if_changed() {
            name = self.symbols.find(address);
        }
        let frame = match name {
            KernelName::Function(name, module) => {
                Ok(Arc::new(Frame { module: Some(module), address, ..Frame::named(Kind::Kernel, name) }))
            }
            KernelName::Hidden => Err(Why::KernelHidden),
            KernelName::Unknown => Err(Why::NotKernelText),
        };
        self.frames.insert(address, frame.clone());
        frame
    }

    /// Reads again if modules or BPF programs have come or gone; looks at most once a second.
    pub(crate) fn renew_if_changed(&mut self) -> bool {
        if self.checked.elapsed() < RENEW_AFTER {
            return false;
        }
        self.checked = Instant::now();
        let loaded = Loaded::look();
        let changed = self.state != loaded.state;
        if changed {
            self.renew(&loaded);
        }
        changed
    }

    fn renew(&mut self, loaded: &Loaded) {
        self.state = loaded.state;
        self.reads += 1;
        let modules = File::open("/proc/modules").map(BufReader::new);
        let kallsyms = File::open("/proc/kallsyms").map(|f| BufReader::with_capacity(64 << 10, f));
        let parsed = kallsyms.and_then(|kallsyms| match modules {
            Ok(modules) => KernelSymbols::parse(kallsyms, modules),
            // A kernel without modules has no such file.
            Err(_) => KernelSymbols::parse(kallsyms, io::empty()),
        });
        self.symbols = parsed.unwrap_or_else(|_| KernelSymbols::hidden());
        self.symbols.set_lengths(&loaded.lengths);
        self.frames.clear();
    }
}

/// What is loaded into the kernel now.
#[derive(Debug, Default)]
struct Loaded {
    /// Changes with the set of modules and BPF programs.
    state: u64,
    /// Of BPF programs: length of the code, by its start.
    lengths: HashMap<u64, u64>,
}

impl Loaded {
    /// Looks. BPF programs are told to `CAP_SYS_ADMIN` only; without it their code counts as unchanged.
    fn look() -> Loaded {
        let mut hasher = DefaultHasher::new();
        for module in std::fs::read_to_string("/proc/modules").unwrap_or_default().lines() {
            // Name, size and address; the others are counts that change all the time.
            let fields: Vec<&str> = module.split_ascii_whitespace().collect();
            (fields.first(), fields.get(1), fields.get(5)).hash(&mut hasher);
        }
        let options = ProgInfoQueryOptions::default().include_jited_ksyms(true).include_jited_func_lens(true);
        let mut lengths = HashMap::new();
        for program in ProgInfoIter::with_query_opts(options) {
            (program.id, program.load_time).hash(&mut hasher);
            for (&start, &length) in program.jited_ksyms.iter().zip(&program.jited_func_lens) {
                lengths.insert(start as u64, u64::from(length));
            }
        }
        Loaded { state: hasher.finish(), lengths }
    }
}
