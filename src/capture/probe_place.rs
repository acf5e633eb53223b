//! Where the kernel runs the program of a probe.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use anyhow::Context as _;
use libbpf_rs::{ErrorKind, Link, ProgramMut, UprobeOpts};
use syscalls::Sysno;

use crate::failure::Failure;
use crate::sample::probe::{CallEdge, Probe};

/// The kernel's kind of perf events for kprobes.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe/type";
const ANY_PROCESS: i32 = -1;

/// Where a function, or the code of a marker, lies.
#[derive(Clone, Debug)]
pub struct FunctionPlace {
    /// The program or library.
    pub file: Arc<OwnedFd>,
    /// The code's place in the file, bytes.
    pub offset: usize,
    /// The place in the file of the number that is not 0 while the marker is used; 0: the marker has none.
    pub semaphore: usize,
}

/// Where the kernel runs the program of a probe.
pub(super) enum ProbePlace<'p> {
    /// At a raw tracepoint.
    Tracepoint(&'p Probe, &'p str),
    /// Before or after all system calls; the program chooses those with a number.
    SystemCall { edge: CallEdge, number: u32 },
    /// In each of these files.
    Functions(&'p [FunctionPlace]),
    /// At the begin of a function of the kernel.
    KernelFunction(&'p str),
}

impl<'p> ProbePlace<'p> {
    /// The place of a probe. `functions`: where a function or a marker of a file lies.
    ///
    /// # Errors
    /// There is no such system call, or the kernel has no kprobes.
    pub(super) fn of(probe: &'p Probe, functions: &'p [FunctionPlace]) -> Result<ProbePlace<'p>, Failure> {
        Ok(match probe {
            Probe::Tracepoint { name, .. } => ProbePlace::Tracepoint(probe, name),
            Probe::SystemCall { edge, name } => {
                let number = name.parse::<Sysno>().map(|call| u32::try_from(call.id()));
                let Ok(Ok(number)) = number else {
                    return Err(Failure::host(format!(
                        "{probe}: there is no system call {name} on this processor"
                    )));
                };
                ProbePlace::SystemCall { edge: *edge, number }
            }
            Probe::Function { .. } | Probe::Marker { .. } => ProbePlace::Functions(functions),
            Probe::KernelFunction(_) if !fs::exists(KPROBES).unwrap_or(false) => {
                return Err(Failure::host(format!(
                    "{probe}: this kernel has no kprobes (CONFIG_KPROBES); 'jbpf-prof events' lists its tracepoints"
                )));
            }
            Probe::KernelFunction(name) => ProbePlace::KernelFunction(name),
        })
    }

    /// The number of the system call; 0 of other places.
    pub(super) fn system_call(&self) -> u32 {
        if let ProbePlace::SystemCall { number, .. } = self { *number } else { 0 }
    }

    /// Attaches the program to the place.
    ///
    /// # Errors
    /// When the kernel has no such place, or refuses.
    pub(super) fn attach(&self, program: &ProgramMut<'_>) -> anyhow::Result<Vec<Link>> {
        Ok(match self {
            ProbePlace::Tracepoint(probe, name) => {
                let absent = || {
                    Failure::host(format!(
                        "{probe}: this kernel has no such tracepoint; 'jbpf-prof events' lists its tracepoints"
                    ))
                };
                vec![program.attach_raw_tracepoint(name).map_err(|error| explained(error, absent))?]
            }
            ProbePlace::SystemCall { edge: CallEdge::Enter, .. } => {
                vec![program.attach_raw_tracepoint("sys_enter").context("the tracepoint sys_enter")?]
            }
            ProbePlace::SystemCall { edge: CallEdge::Exit, .. } => {
                vec![program.attach_raw_tracepoint("sys_exit").context("the tracepoint sys_exit")?]
            }
            ProbePlace::Functions(functions) => {
                functions.iter().map(|place| place.attach(program)).collect::<anyhow::Result<_>>()?
            }
            ProbePlace::KernelFunction(function) => {
                let absent = || {
                    Failure::host(format!(
                        "kprobe:{function}: this kernel allows no kprobe at a function of this name (see /proc/kallsyms)"
                    ))
                };
                vec![program.attach_kprobe(false, function).map_err(|error| explained(error, absent))?]
            }
        })
    }
}

impl FunctionPlace {
    fn attach(&self, program: &ProgramMut<'_>) -> anyhow::Result<Link> {
        // The kernel keeps the file's inode, so the descriptor may be closed afterwards.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opts = UprobeOpts { ref_ctr_offset: self.semaphore, ..UprobeOpts::default() };
        program
            .attach_uprobe_with_opts(ANY_PROCESS, path, self.offset, opts)
            .with_context(|| format!("a uprobe at offset {:#x}", self.offset))
    }
}

/// The error of an attachment: `absent` if the kernel has no such place.
fn explained(error: libbpf_rs::Error, absent: impl Fn() -> Failure) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::InvalidInput => absent().into(),
        _ => anyhow::Error::new(error).context("attaching the BPF program of a probe"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_have_numbers() {
        let probe = |name: &str| Probe::parse(name).unwrap().unwrap();
        let read = probe("syscalls:sys_exit_read");
        let number = ProbePlace::of(&read, &[]).map(|place| place.system_call());
        assert_eq!(number, Ok(u32::try_from(libc::SYS_read).unwrap()));
        let nothing = probe("syscalls:sys_enter_nothing");
        assert!(
            ProbePlace::of(&nothing, &[]).is_err_and(|why| why.message.contains("no system call nothing"))
        );
    }
}
