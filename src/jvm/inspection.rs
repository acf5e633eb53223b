//! What a JVM's own tables (VMStructs) say: version, flags, threads, main class. Command lines can lie, and do not show
//! options from `JAVA_TOOL_OPTIONS`, argument files or defaults.

use serde::{Deserialize, Serialize};

use super::command_line::{is_launcher, main_of_command};
use super::memory::{InvalidMemory, Memory, word_in};
use super::threads::{self, JavaThreads};
use super::version::JavaVersion;
use super::vm_structs::{Field, VmStructs};
use crate::text::clean;

/// Most flags that are read. JDK 25 has about 1,500.
const MAX_FLAGS: u64 = 16_384;
const FLAG_SIZES: std::ops::RangeInclusive<u64> = 16..=256;

/// The class of flags: `JVMFlag` since JDK 10, `Flag` before.
const FLAG_CLASSES: [&str; 2] = ["JVMFlag", "Flag"];
/// The bits of a flag's `_flags` that say who set it (`VALUE_ORIGIN_MASK`); 0: no one has, or the JVM.
const ORIGIN_MASK: u8 = 15;
const VERSION_CLASS: &str = "Abstract_VM_Version";
const FIELDS: &[Field] = &[
    ("JVMFlag", "flags"),
    ("JVMFlag", "numFlags"),
    ("JVMFlag", "_name"),
    ("JVMFlag", "_addr"),
    ("JVMFlag", "_flags"),
    ("Flag", "flags"),
    ("Flag", "numFlags"),
    ("Flag", "_name"),
    ("Flag", "_addr"),
    ("Flag", "_flags"),
    (VERSION_CLASS, "_s_vm_release"),
    (VERSION_CLASS, "_s_internal_vm_info_string"),
    ("Arguments", "_java_command"),
    threads::FIELDS[0],
    threads::FIELDS[1],
    threads::FIELDS[2],
    threads::FIELDS[3],
    threads::FIELDS[4],
    threads::FIELDS[5],
    threads::FIELDS[6],
    threads::FIELDS[7],
];
/// Part of the version text of a build with the Zero interpreter: `OpenJDK 64-Bit Zero VM (17.0.19+10) for linux-amd64
/// …`.
const ZERO: &str = " Zero VM (";
/// Bytes of the main class and its arguments that are read: the name comes first.
const MAX_COMMAND: usize = 512;

/// The flags that matter to the profiler. `None`: this JVM has no such flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// Compiled code keeps frame pointers: stacks reach the root.
    pub preserve_frame_pointer: Option<bool>,
    /// Attaching is switched off; SIGQUIT would print a thread dump.
    pub disable_attach_mechanism: Option<bool>,
    /// Agents may be loaded late. The flag exists since JDK 9; earlier JDKs always allow it.
    pub enable_dynamic_agent_loading: Option<bool>,
    /// `-Xrs`: the JVM does not catch SIGQUIT, and its attach socket exists from the start.
    pub reduce_signal_usage: Option<bool>,
    /// Compiled code has debug records everywhere, not only at calls and safepoints.
    pub debug_non_safepoints: Option<bool>,
    /// `debug_non_safepoints` was set by the user, so that it is true for all code. An agent that listens to compiled
    /// methods sets the flag as well, but for later code only.
    pub debug_records_from_start: bool,
    /// The collector is ZGC.
    pub z_collector: Option<bool>,
    /// The collector is Shenandoah.
    pub shenandoah_collector: Option<bool>,
    /// ZGC has generations. The flag exists from JDK 21 to 23; later ZGC always has them.
    pub z_generations: Option<bool>,
    /// Fields of objects have compressed pointers.
    pub compressed_oops: Option<bool>,
    /// Objects have compressed pointers to their classes.
    pub compressed_classes: Option<bool>,
    /// The mark word has the class (JDK 24 and later).
    pub compact_headers: Option<bool>,
    /// A table leads from a locked object to its monitor, not the mark word (JDK 24 and later).
    pub monitor_table: Option<bool>,
}

impl Flags {
    pub(super) fn keeps_frame_pointers(&self) -> bool {
        self.preserve_frame_pointer == Some(true)
    }

    /// Whether the collector moves objects while the program runs: a pointer that was just read may lead to another
    /// object.
    pub(super) fn moves_objects_meanwhile(&self) -> bool {
        self.z_collector == Some(true) || self.shenandoah_collector == Some(true)
    }
}

/// What the JVM's own tables say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// The version; `None` if its text is not understood.
    pub version: Option<JavaVersion>,
    /// The version as `java -version` writes it, fit to print: `17.0.15+6-Debian-1deb12u1`. On JDK 8 the packager's part is
    /// missing: `1.8.0_504-b01`.
    pub release: String,
    /// The vendor according to the `release` file of the Java runtime; empty if there is no such file.
    pub vendor: String,
    /// The flags that the profiler uses.
    pub flags: Flags,
    /// Main class, module or jar, fit to print; empty if no launcher passed it to the JVM.
    pub main: String,
    /// The build has the Zero interpreter: a loop in C++ runs the Java code.
    pub is_zero: bool,
    /// The JVM's Java threads; `None` if its tables do not say where they are.
    pub(super) threads: Option<JavaThreads>,
}

impl Inspection {
    /// The main class, module or jar from the command line (`found`), unless `found` names only the launcher.
    #[must_use]
    pub fn main_or_command_line(&self, found: &str) -> String {
        if is_launcher(found) && !self.main.is_empty() { self.main.clone() } else { found.to_owned() }
    }
}

/// Rewrites the release of Java 8, whose HotSpot has its own version number: `25.462-b08`.
fn java_release(release: String, version: Option<JavaVersion>) -> String {
    match release.strip_prefix("25.") {
        Some(rest) if version.is_some_and(|version| version.feature == 8) => format!("1.8.0_{rest}"),
        _ => release,
    }
}

/// `base` is where `libjvm.so` is mapped.
pub(super) fn inspect<M: Memory>(memory: &M, base: u64) -> Result<Inspection, InvalidMemory> {
    let tables = VmStructs::read(memory, base, &[FIELDS], &FLAG_CLASSES)?;
    let string = |name| -> Result<Vec<u8>, InvalidMemory> {
        let variable = tables.field(VERSION_CLASS, name).ok_or(InvalidMemory)?;
        memory.string(memory.word(variable)?)
    };
    let release = clean(&string("_s_vm_release")?, 80);
    let flags = read_flags(memory, &tables)?;
    let version = JavaVersion::parse(&release);
    let release = java_release(release, version);
    let info = string("_s_internal_vm_info_string").unwrap_or_default();
    let is_zero = String::from_utf8_lossy(&info).contains(ZERO);
    let (main, threads) = (main_of_command(&command(memory, &tables)), threads::read(memory, &tables));
    Ok(Inspection { version, release, vendor: String::new(), flags, main, is_zero, threads })
}

/// The main class and its arguments, as the launcher passed them to the JVM; empty if it did not.
fn command<M: Memory>(memory: &M, tables: &VmStructs) -> Vec<u8> {
    let text = tables.field("Arguments", "_java_command").and_then(|at| memory.word(at).ok()).unwrap_or(0);
    let mut bytes = vec![0; if text == 0 { 0 } else { MAX_COMMAND }];
    let got = memory.read(text, &mut bytes);
    bytes.truncate(got);
    bytes.split(|&b| b == 0).next().unwrap_or_default().to_vec()
}

fn read_flags<M: Memory>(memory: &M, tables: &VmStructs) -> Result<Flags, InvalidMemory> {
    let class = FLAG_CLASSES.into_iter().find(|c| tables.field(c, "flags").is_some()).ok_or(InvalidMemory)?;
    let field = |name| tables.field(class, name).ok_or(InvalidMemory);
    let size = tables.size(class).filter(|size| FLAG_SIZES.contains(size)).ok_or(InvalidMemory)?;
    let count = memory.word(field("numFlags")?)?.min(MAX_FLAGS);
    let table = memory.word(field("flags")?)?;
    let (name, address) = (field("_name")?, field("_addr")?);
    let origin = tables.field(class, "_flags");
    let mut bytes = vec![0; usize::try_from(size * count).map_err(|_| InvalidMemory)?];
    memory.read_all(table, &mut bytes)?;
    let mut flags = Flags::default();
    for flag in bytes.chunks_exact(usize::try_from(size).map_err(|_| InvalidMemory)?) {
        // The last entry has no name.
        let its_name = word_in(flag, name)?;
        if its_name == 0 {
            continue;
        }
        let name_bytes = memory.string(its_name)?;
        let slot = match name_bytes.as_slice() {
            b"PreserveFramePointer" => &mut flags.preserve_frame_pointer,
            b"DisableAttachMechanism" => &mut flags.disable_attach_mechanism,
            b"EnableDynamicAgentLoading" => &mut flags.enable_dynamic_agent_loading,
            b"ReduceSignalUsage" => &mut flags.reduce_signal_usage,
            b"DebugNonSafepoints" => &mut flags.debug_non_safepoints,
            b"UseZGC" => &mut flags.z_collector,
            b"UseShenandoahGC" => &mut flags.shenandoah_collector,
            b"ZGenerational" => &mut flags.z_generations,
            b"UseCompressedOops" => &mut flags.compressed_oops,
            b"UseCompressedClassPointers" => &mut flags.compressed_classes,
            b"UseCompactObjectHeaders" => &mut flags.compact_headers,
            b"UseObjectMonitorTable" => &mut flags.monitor_table,
            _ => continue,
        };
        let mut value = [0];
        memory.read_all(word_in(flag, address)?, &mut value)?;
        *slot = Some(value[0] != 0);
        if name_bytes == b"DebugNonSafepoints" {
            flags.debug_records_from_start =
                value[0] != 0 && origin.is_some_and(|at| is_set_by_user(flag, at));
        }
    }
    Ok(flags)
}

/// Whether the user set this flag, of which the origin is at `at`.
fn is_set_by_user(flag: &[u8], at: u64) -> bool {
    let origin = usize::try_from(at).ok().and_then(|at| flag.get(at));
    origin.is_some_and(|origin| origin & ORIGIN_MASK != 0)
}

/// The vendor of a Java runtime: the value of `IMPLEMENTOR` in its `release` file, fit to print.
#[must_use]
pub(super) fn vendor_of(release_file: &[u8]) -> String {
    let line = release_file.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"IMPLEMENTOR="));
    let value = line.unwrap_or_default().trim_ascii();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    clean(value.strip_suffix(b"\"").unwrap_or(value), 60)
}

#[cfg(test)]
mod tests {
    use super::super::memory::half_in;
    use super::*;

    #[test]
    fn versions_are_reported_as_java_prints_them() {
        let shown = |release: &str| java_release(release.to_owned(), JavaVersion::parse(release));
        assert_eq!(shown("25.504-b01"), "1.8.0_504-b01");
        assert_eq!(shown("25.0.3+9-LTS"), "25.0.3+9-LTS");
        assert_eq!(shown("17.0.15+6-Debian-1deb12u1"), "17.0.15+6-Debian-1deb12u1");
    }

    #[test]
    fn the_vendor_is_read() {
        assert_eq!(vendor_of(b"A=1\nIMPLEMENTOR=\"Eclipse Adoptium\"\nB=2\n"), "Eclipse Adoptium");
        assert_eq!(vendor_of(b"IMPLEMENTOR=\"Evil\x1b[2J\"\n"), "Evil?[2J");
        assert_eq!(vendor_of(b"JAVA_VERSION=\"17\"\n"), "");
    }

    /// Memory that has the same bytes at every address.
    struct Echo(Vec<u8>);

    impl Memory for Echo {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let shift = usize::try_from(address % 4096).expect("small") % self.0.len();
            let endless = self.0.iter().cycle().skip(shift);
            buffer.iter_mut().zip(endless).for_each(|(to, from)| *to = *from);
            buffer.len()
        }
    }

    #[test]
    fn hostile_memory_ends_in_a_refusal() {
        for pattern in
            [vec![0], vec![0xff], vec![0, 1], b"\x7fELF\x02\x01\x01\0".to_vec(), vec![1, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(inspect(&Echo(pattern), 0x7000_0000_0000).err(), Some(InvalidMemory));
        }
        // A plausible header in front of noise.
        let mut page = vec![0_u8; 4096];
        page[..5].copy_from_slice(b"\x7fELF\x02");
        page[32] = 64;
        (page[54], page[56]) = (56, 2);
        (page[64], page[64 + 56]) = (1, 2);
        page[64 + 56 + 40] = 0xff;
        for seed in 0..64_u8 {
            let noise = page[256..].iter_mut().enumerate();
            noise.for_each(|(i, b)| *b = (i as u8).wrapping_mul(seed).rotate_left(u32::from(seed)));
            assert!(inspect(&Echo(page.clone()), 0x7000_0000_0000).is_err());
        }
    }

    #[test]
    fn no_memory_is_a_refusal() {
        struct Nothing;
        impl Memory for Nothing {
            fn read(&self, _: u64, _: &mut [u8]) -> usize {
                0
            }
        }
        assert_eq!(inspect(&Nothing, 0), Err(InvalidMemory));
        assert_eq!(half_in(&[], u64::MAX), Err(InvalidMemory));
    }
}
