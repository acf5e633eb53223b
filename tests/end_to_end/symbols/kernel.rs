//! Kernel addresses: those of the running kernel, and artificial tables.

use std::fs;
use std::io;

use jbpf_prof::profile::{Kind, UnknownReason};
use jbpf_prof::sample::{StopReason, UserWord};
use jbpf_prof::symbolize::kernel::{KernelName, KernelSymbols};

use super::common::{Space, names, stack, start};

fn address(kallsyms: &str, name: &str) -> u64 {
    let line = kallsyms.lines().find(|l| l.split(' ').nth(2) == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in kallsyms"));
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

#[test]
fn known_functions_of_the_running_kernel() {
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
    let (read, end) = (address(&kallsyms, "vfs_read"), address(&kallsyms, "_etext"));
    let (mut symbolizer, mut space) = (start(), Space::default());
    if read == 0 {
        testkit::skip("kptr_restrict hides the kernel's addresses");
        let stacks = [stack(&[UserWord::Leaf(1)], &[0xffff_ffff_8100_0000, 5], StopReason::Root)];
        let frames = symbolizer.symbolize(&stacks, &mut space).remove(0).frames;
        assert_eq!(&*frames[1].name, "[kernel]");
        assert_eq!(frames.len(), 2);
        return;
    }
    let kernel = [read, read + 1, end + 1, end];
    let frames =
        symbolizer.symbolize(&[stack(&[], &kernel, StopReason::NoUser)], &mut space).remove(0).frames;
    // Root first. All but the leaf are return addresses, so the address before is looked up.
    assert_eq!(frames[0].unknown, None, "the last byte of text: {:?}", frames[0]);
    assert_eq!(frames[1].unknown, Some(UnknownReason::NotKernelText));
    assert_eq!(names(&frames[2..]), ["vfs_read", "vfs_read"]);
    assert_eq!(frames[3].kind, Kind::Kernel);
    assert_eq!(&*frames[3].module.as_ref().unwrap().path, "[kernel]");
    let outside = [0xffff_8880_0000_1000, 0x1000, u64::MAX];
    let frames =
        symbolizer.symbolize(&[stack(&[], &outside, StopReason::NoUser)], &mut space).remove(0).frames;
    assert!(frames.iter().all(|f| f.unknown == Some(UnknownReason::NotKernelText)), "{frames:?}");
}

const KALLSYMS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t __do_work
ffffffff81000100 T do_work
ffffffff81000200 D data_in_text
ffffffff81000300 t last
ffffffff81000400 T _etext
ffffffff82000000 D some_data
ffffffffc0000000 t fs_init\t[ext4]
ffffffffc0000080 t fs_read\t[ext4]
ffffffffc0002000 t bpf_prog_0123456789abcdef_tick\t[bpf]
ffffffffc0002800 t bpf_prog_fedcba9876543210_\x1b[31m\t[bpf]
ffffffffc0010000 t ftrace_trampoline\t[__builtin__ftrace]
garbage
zzzz t x
";
const MODULES: &str = "ext4 4096 1 - Live 0xffffffffc0000000\nbroken\nxfs 10 0 - Loading 0x0\n";

#[test]
fn regions_bound_what_is_named() {
    let mut symbols = KernelSymbols::parse(KALLSYMS.as_bytes(), MODULES.as_bytes()).unwrap();
    symbols.set_lengths(&[(0xffff_ffff_c000_2000, 0x123)].into());
    let name = |address| match symbols.find(address) {
        KernelName::Function(name, module) => format!("{name} {}", module.path),
        KernelName::Unknown => "unknown".to_owned(),
        KernelName::Hidden => "hidden".to_owned(),
    };
    let low = 0xffff_ffff_8100_0000_u64;
    let high = 0xffff_ffff_c000_0000_u64;
    for (address, expected) in [
        (low - 1, "unknown"),
        (low, "startup_64 [kernel]"),
        (low + 0x1ff, "do_work [kernel]"),
        (low + 0x3ff, "last [kernel]"),
        (low + 0x400, "unknown"),
        (0xffff_ffff_8200_0000, "unknown"),
        (high, "fs_init [ext4]"),
        (high + 0xfff, "fs_read [ext4]"),
        (high + 0x1000, "unknown"),
        (high + 0x2000, "bpf_prog_0123456789abcdef_tick [bpf]"),
        (high + 0x2122, "bpf_prog_0123456789abcdef_tick [bpf]"),
        (high + 0x2123, "unknown"),
        (high + 0x2801, "bpf_prog_fedcba9876543210_?[31m [bpf]"),
        (high + 0x9000, "unknown"),
        (high + 0x10010, "ftrace_trampoline [bpf]"),
        (u64::MAX, "unknown"),
    ] {
        assert_eq!(name(address), expected, "{address:#x}");
    }
}

#[test]
fn hidden_and_empty_tables() {
    let hidden =
        KALLSYMS.lines().map(|l| format!("0000000000000000 {}\n", l.split_once(' ').map_or("", |l| l.1)));
    let hidden: String = hidden.collect();
    for text in [hidden.as_str(), ""] {
        let symbols = KernelSymbols::parse(text.as_bytes(), io::empty()).unwrap();
        assert_eq!(symbols.find(0xffff_ffff_8100_0000), KernelName::Hidden);
    }
}
