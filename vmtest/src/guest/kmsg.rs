//! Errors in the kernel's log, `/dev/kmsg`, since the last check.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;

/// Words of kernel errors. Those about clocks are not in this list: an emulated machine on a busy host is late.
const COMPLAINTS: [&str; 12] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "general protection",
    "rcu_sched self-detected stall",
    "rcu_preempt self-detected stall",
    "detected stalls on CPUs",
    "blocked for more than",
    "Out of memory",
    "oom-kill",
    "scheduling while atomic",
];

/// The kernel's log from some moment on.
#[derive(Debug)]
pub(super) struct KernelLog(File);

impl KernelLog {
    /// Starts at the end of the log.
    pub(super) fn open() -> anyhow::Result<KernelLog> {
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits())?;
        let mut file =
            File::options().read(true).custom_flags(flags).open("/dev/kmsg").context("/dev/kmsg")?;
        file.seek(SeekFrom::End(0)).context("/dev/kmsg")?;
        Ok(KernelLog(file))
    }

    /// The errors since the last call.
    pub(super) fn complaints(&mut self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    let message = text.split_once(';').map_or(&*text, |(_, message)| message);
                    let first = message.lines().next().unwrap_or_default();
                    if is_complaint(first) {
                        found.push(first.to_owned());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(found),
                // Records were overwritten; the next read continues with the oldest one that is left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error).context("/dev/kmsg"),
            }
        }
    }
}

fn is_complaint(message: &str) -> bool {
    COMPLAINTS.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::is_complaint;

    #[test]
    fn kernel_warnings_are_recognized() {
        assert!(is_complaint("WARNING: CPU: 1 PID: 77 at kernel/bpf/core.c:1 x+0x1/0x2"));
        assert!(is_complaint("rcu: INFO: rcu_preempt self-detected stall on CPU"));
        assert!(
            !is_complaint("smpboot: CPU 1 is now offline") && !is_complaint("Lockdown: x: y is restricted")
        );
    }
}
