//! Processor architectures of guests.

use std::fmt;

use clap::ValueEnum;

/// An architecture. `Display` gives Debian's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// The architecture of this program.
    pub(crate) const OWN: Arch = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::Amd64 };

    pub(crate) fn is_own(self) -> bool {
        self == Arch::OWN
    }

    /// The emulator and its arguments for the machine type.
    pub(crate) fn emulator(self) -> &'static [&'static str] {
        match self {
            Arch::Amd64 => &["qemu-system-x86_64"],
            Arch::Arm64 => &["qemu-system-aarch64", "-machine", "virt"],
        }
    }

    /// The CPU model that the emulator gives to a guest if none is chosen. x86-64 without SHA-NI, as Intel's servers are up to
    /// Cascade Lake: other CPUs, on which the other tests run, mostly have it, and HotSpot's stubs differ.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Arch::Amd64 => "max,sha-ni=off",
            Arch::Arm64 => "cortex-a72",
        }
    }

    /// The device of the serial console.
    pub(crate) fn console(self) -> &'static str {
        match self {
            Arch::Amd64 => "ttyS0",
            Arch::Arm64 => "ttyAMA0",
        }
    }

    /// Further kernel arguments. Under TCG the time stamp counters of two CPUs differ, and 5.10 hung in Java when it
    /// trusted them. The kernel's test of the timer panics if the CPU is preempted for some ten milliseconds.
    pub(crate) fn kernel_arguments(self) -> &'static str {
        match self {
            Arch::Amd64 => "tsc=unstable no_timer_check",
            Arch::Arm64 => "",
        }
    }

    /// Rust's name of the target.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64-unknown-linux-gnu",
            Arch::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The C compiler for this architecture.
    pub(crate) fn compiler(self) -> &'static str {
        match self {
            own if own.is_own() => "cc",
            Arch::Amd64 => "x86_64-linux-gnu-gcc",
            Arch::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        })
    }
}
