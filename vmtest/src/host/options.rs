//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::arch::Arch;
use crate::matrix::{Kernel, Selection, today};
use crate::plan::Plan;

/// Boots real kernels in QEMU and proves that jbpf-prof's profiles are right on each. See docs/vmtest.md.
#[derive(Debug, Parser)]
#[command(name = "vmtest", max_term_width = 100)]
pub(super) struct Options {
    /// These kernels only: 5.10, 5.15, 6.1, 6.12, newest, arm64 (a comma list, repeatable).
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    /// These architectures only: amd64, arm64 (a comma list, repeatable).
    #[arg(long, value_delimiter = ',')]
    arch: Vec<Arch>,
    /// These JDKs only: 8, 11, 17, 21, 25 (a comma list, repeatable).
    #[arg(long, value_delimiter = ',')]
    jdk: Vec<u32>,
    /// These cases only, in this order (a comma list, repeatable).
    #[arg(long, value_delimiter = ',')]
    case: Vec<String>,
    /// Every JDK and every case on every kernel, as far as kernels, JDKs and cases are not named.
    #[arg(long)]
    full: bool,
    /// The day of the covering list, and of the JDK that each kernel has if none is named; days since 1970-01-01
    /// [default: today].
    #[arg(long, value_name = "N", default_value_t = today(), hide_default_value = true)]
    day: usize,
    /// Print what would run, and boot nothing.
    #[arg(long, conflicts_with_all = ["run", "shell"])]
    pub(super) list: bool,
    /// A prompt inside a guest of the one kernel that --kernel names; Ctrl-A X ends it.
    #[arg(long, conflicts_with_all = ["run", "jdk", "case", "full"])]
    shell: bool,
    /// One command of the shell inside such a guest; its exit code is that of vmtest.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["jdk", "case", "full"])]
    run: Option<String>,
    /// The binary under test [default: JBPF_PROF_BINARY, or the one of the workspace's profile `quick`].
    #[arg(long, value_name = "FILE")]
    pub(super) binary: Option<PathBuf>,
    /// Guests at the same time.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub(super) jobs: usize,
    /// Use KVM, on a machine whose guests can.
    #[arg(long)]
    pub(super) kvm: bool,
    /// QEMU's CPU model of x86-64 guests [default: max,sha-ni=off; host with --kvm].
    #[arg(long, value_name = "MODEL")]
    pub(super) cpu: Option<String>,
    /// Seconds that a guest may need for booting, and for saying anything at all.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub(super) boot_patience: u64,
}

impl Options {
    /// The plan for `--run` and `--shell`; `None` for the matrix.
    pub(super) fn interactive(&self) -> Option<Plan> {
        match &self.run {
            Some(command) => Some(Plan::Command(command.clone())),
            None => self.shell.then_some(Plan::Shell),
        }
    }

    /// The kernel for one guest, by default the newest.
    pub(super) fn one_kernel(&self) -> anyhow::Result<&'static Kernel> {
        let kernels = self.selection().kernels()?;
        anyhow::ensure!(
            self.kernel.len() <= 1,
            "one guest has one kernel, not {}",
            self.kernel.join(" and ")
        );
        kernels.last().copied().ok_or_else(|| anyhow::anyhow!("there is no kernel"))
    }

    /// The part of the matrix that the options select.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            kernels: self.kernel.clone(),
            arches: self.arch.clone(),
            jdks: self.jdk.clone(),
            cases: self.case.clone(),
            full: self.full,
            day: self.day,
        }
    }
}
