//! The running kernel's symbols, kept up to date with its modules and BPF programs.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader};
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

use super::cache::Cache;
use super::elf::find_build_id;
use super::kernel::{KernelName, KernelSymbols};
use crate::profile::frame::Module;
use crate::profile::{Frame, Kind, UnknownReason};
use crate::sample::MonoNs;

const RENEW_AFTER: Duration = Duration::from_secs(1);
const CACHED: usize = 16 << 10;
/// Earlier sets of generated code that are kept. A changed set is noticed once a second at most, and stacks wait less than so
/// many seconds for their names.
const EARLIER: usize = 16;
/// The notes of the kernel's own ELF file (Linux 2.6.23).
const KERNEL_NOTES: &str = "/sys/kernel/notes";
/// The directory with an entry for each module.
const MODULES: &str = "/sys/module";

#[derive(Debug)]
pub(crate) struct Kernel {
    symbols: KernelSymbols,
    frames: Cache<u64, Arc<Frame>>,
    loaded: LoadedModules,
    /// Generated code that has left the kernel, newest first.
    earlier: VecDeque<EarlierCode>,
    checked: Instant,
    directory: PathBuf,
    /// How often kallsyms was read.
    pub(crate) reads: u64,
}

impl Kernel {
    /// Reads kallsyms. If this fails, the kernel counts as hidden.
    pub(crate) fn read() -> Kernel {
        Kernel::with(PathBuf::from(MODULES))
    }

    fn with(directory: PathBuf) -> Kernel {
        let mut kernel = Kernel {
            symbols: KernelSymbols::hidden(),
            frames: Cache::new(CACHED),
            loaded: LoadedModules::default(),
            earlier: VecDeque::new(),
            checked: Instant::now(),
            directory,
            reads: 0,
        };
        kernel.renew(LoadedModules::read(&kernel.directory));
        kernel
    }

    /// Reads the symbols again if modules were loaded or unloaded. Call this for each window, before its addresses are
    /// named: another module may have taken the place of one, with a function at every address.
    pub(crate) fn follow_modules(&mut self) {
        if modules(&self.directory) != self.loaded.modules {
            self.renew(LoadedModules::read(&self.directory));
        }
    }

    /// The frame of a kernel address in a stack that was recorded at `at`, or why there is none:
    /// [`UnknownReason::KernelHidden`] if all is hidden.
    pub(crate) fn frame(&mut self, address: u64, at: MonoNs) -> Result<Arc<Frame>, UnknownReason> {
        if let Some(frame) = self.frames.get(&address) {
            // A BPF program can take the place of another one.
            let lasting = frame.module.as_ref().is_none_or(|m| &*m.path != "[bpf]");
            if lasting || !self.renew_if_changed() {
                return Ok(frame);
            }
        }
        let mut name = self.symbols.find(address);
        // At an unused address, a BPF program or a module can appear.
        if name == KernelName::Unknown && self.renew_if_changed() {
            name = self.symbols.find(address);
        }
        match name {
            KernelName::Function(name, module) => {
                let frame = kernel_frame(address, name, module);
                self.frames.insert(address, Arc::clone(&frame));
                Ok(frame)
            }
            KernelName::Hidden => Err(UnknownReason::KernelHidden),
            KernelName::Unknown => self.earlier_frame(address, at).ok_or(UnknownReason::NotKernelText),
        }
    }

    /// The frame of code that has left the kernel after `at`: the programs of a profiler that has ended, say, or our own at
    /// the end of a run.
    fn earlier_frame(&self, address: u64, at: MonoNs) -> Option<Arc<Frame>> {
        let mut since = self.earlier.iter().take_while(|code| at < code.noticed);
        since.find_map(|code| match code.symbols.find(address) {
            KernelName::Function(name, module) => Some(kernel_frame(address, name, module)),
            KernelName::Hidden | KernelName::Unknown => None,
        })
    }

    /// Reads again if modules or BPF programs were loaded or unloaded; checks at most once a second.
    pub(crate) fn renew_if_changed(&mut self) -> bool {
        if self.checked.elapsed() < RENEW_AFTER {
            return false;
        }
        self.checked = Instant::now();
        let loaded = LoadedModules::read(&self.directory);
        let changed = (self.loaded.modules, self.loaded.programs) != (loaded.modules, loaded.programs);
        if changed {
            self.renew(loaded);
        }
        changed
    }

    fn renew(&mut self, loaded: LoadedModules) {
        self.reads += 1;
        let modules = File::open("/proc/modules").map(BufReader::new);
        let kallsyms = File::open("/proc/kallsyms").map(|f| BufReader::with_capacity(64 << 10, f));
        let parsed = kallsyms.and_then(|kallsyms| match modules {
            Ok(modules) => KernelSymbols::parse(kallsyms, modules),
            // A kernel without modules has no such file.
            Err(_) => KernelSymbols::parse(kallsyms, io::empty()),
        });
        let before = std::mem::replace(&mut self.symbols, parsed.unwrap_or_else(|_| KernelSymbols::hidden()));
        self.earlier.push_front(EarlierCode { symbols: before.into_generated(), noticed: MonoNs::now() });
        self.earlier.truncate(EARLIER);
        self.symbols.set_lengths(&loaded.lengths);
        self.symbols.set_build_ids(|module| build_id(&self.directory, module));
        self.loaded = loaded;
        self.frames.clear();
    }
}

/// Generated code that was in the kernel until it was `noticed` that the set had changed.
#[derive(Debug)]
struct EarlierCode {
    symbols: KernelSymbols,
    noticed: MonoNs,
}

fn kernel_frame(address: u64, name: String, module: Arc<Module>) -> Arc<Frame> {
    Arc::new(Frame { module: Some(module), address, ..Frame::named(Kind::Kernel, name) })
}

/// The GNU build id of the kernel, or of a module whose entry is in `directory`.
fn build_id(directory: &Path, module: &str) -> Option<Vec<u8>> {
    let notes = match module {
        "kernel" => PathBuf::from(KERNEL_NOTES),
        module => directory.join(module).join("notes/.note.gnu.build-id"),
    };
    find_build_id(&std::fs::read(notes).ok()?)
}

/// The modules and BPF programs in the kernel now.
#[derive(Debug, Default)]
struct LoadedModules {
    /// A hash of the set of modules.
    modules: u64,
    /// A hash of the set of BPF programs.
    programs: u64,
    /// Lengths of BPF programs' code, by its start.
    lengths: HashMap<u64, u64>,
}

impl LoadedModules {
    /// Lists both. Only with `CAP_SYS_ADMIN` the kernel lists BPF programs; without it their code counts as unchanged.
    fn read(directory: &Path) -> LoadedModules {
        let modules = modules(directory);
        let mut hasher = DefaultHasher::new();
        let options = ProgInfoQueryOptions::default().include_jited_ksyms(true).include_jited_func_lens(true);
        let mut lengths = HashMap::new();
        for program in ProgInfoIter::with_query_opts(options) {
            (program.id, program.load_time).hash(&mut hasher);
            for (&start, &length) in program.jited_ksyms.iter().zip(&program.jited_func_lens) {
                lengths.insert(start as u64, u64::from(length));
            }
        }
        LoadedModules { modules, programs: hasher.finish(), lengths }
    }
}

/// A hash of the set of modules. Each has a directory here, whose inode number no earlier module had. So a module that
/// is loaded again, with other code of the same size, is noticed. Reading the directory takes a tenth of a millisecond.
fn modules(directory: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    match std::fs::read_dir(directory) {
        Ok(modules) => modules.flatten().for_each(|module| {
            (module.file_name(), module.ino()).hash(&mut hasher);
        }),
        // This file system is not mounted.
        Err(_) => {
            for module in std::fs::read_to_string("/proc/modules").unwrap_or_default().lines() {
                // Name, size and address; the other fields are counts that change all the time.
                let fields: Vec<&str> = module.split_ascii_whitespace().collect();
                (fields.first(), fields.get(1), fields.get(5)).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Kind;

    #[test]
    fn a_module_that_is_loaded_again_has_none_of_its_old_names() {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join("driver");
        let mut kernel = Kernel::with(dir.path().to_owned());
        let address = u64::MAX - 7;
        let mut is_forgotten = |change: &dyn Fn()| {
            kernel.frames.insert(address, Arc::new(Frame::named(Kind::Kernel, "old_name")));
            change();
            kernel.follow_modules();
            kernel.frame(address, MonoNs::now()).is_err()
        };
        assert!(!is_forgotten(&|| ()));
        assert!(is_forgotten(&|| std::fs::create_dir(&module).unwrap()));
        assert!(!is_forgotten(&|| ()));
        // The new directory is made first, so that it does not get the old one's inode number.
        let again = || {
            std::fs::create_dir(dir.path().join("new")).unwrap();
            std::fs::remove_dir(&module).unwrap();
            std::fs::rename(dir.path().join("new"), &module).unwrap();
        };
        assert!(is_forgotten(&again));
        assert!(is_forgotten(&|| std::fs::remove_dir(&module).unwrap()));
    }

    #[test]
    fn generated_code_that_has_left_the_kernel_keeps_its_name_in_earlier_stacks() {
        const KALLSYMS: &str = "1000 T _stext\n1100 T own_text\n2000 T _etext\n\
            9000 t bpf_prog_0123_on_switch\t[bpf]\n9800 t bpf_prog_4567_other\t[bpf]\n";
        let dir = tempfile::tempdir().unwrap();
        let mut kernel = Kernel::with(dir.path().to_owned());
        kernel.symbols = KernelSymbols::parse(KALLSYMS.as_bytes(), std::io::empty()).unwrap();
        let before = MonoNs::now();
        kernel.renew(LoadedModules::read(dir.path()));
        // Whatever this machine's kernel shows to this user.
        kernel.symbols = KernelSymbols::default();
        let frame = kernel.frame(0x9010, before).unwrap();
        assert_eq!(
            (&*frame.name, &*frame.module.as_ref().unwrap().path),
            ("bpf_prog_0123_on_switch", "[bpf]")
        );
        assert_eq!(&*kernel.frame(0x9810, before).unwrap().name, "bpf_prog_4567_other");
        assert_eq!(kernel.frame(0x1110, before), Err(UnknownReason::NotKernelText));
        assert_eq!(kernel.frame(0x9010, MonoNs::now()), Err(UnknownReason::NotKernelText));
    }

    #[test]
    fn this_kernels_modules_stay_while_nothing_is_loaded() {
        let kernel = Path::new(MODULES);
        if kernel.exists() {
            assert_eq!(modules(kernel), modules(kernel));
            assert_ne!(modules(kernel), modules(Path::new("/nowhere")));
        }
    }
}
