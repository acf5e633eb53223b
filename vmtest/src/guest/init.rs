//! The first process of a guest: finds the disk, makes it the root, mounts the usual file systems, starts the runner,
//! reaps orphans, and powers off.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use rustix::process::{WaitOptions, chroot};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::{PATH, RUN};
use crate::plan::PAYLOAD;

/// How long the disk may take to appear after its driver was loaded.
const DISK_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns only after an error.
pub(crate) fn main() -> anyhow::Result<()> {
    for (kind, place) in [("devtmpfs", "dev"), ("proc", "proc"), ("sysfs", "sys")] {
        mounted(kind, &format!("/{place}"), c"")?;
    }
    load_modules()?;
    switch_root()?;
    let runner = Command::new(Path::new(PAYLOAD).join("vmtest"))
        .arg(RUN)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("LC_ALL", "C.UTF-8")])
        .spawn()
        .context("starting the runner")?;
    // Orphans are reaped here, too; only the end of the runner ends the loop.
    while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::empty()) {
        if u32::try_from(pid.as_raw_nonzero().get()) == Ok(runner.id()) {
            break;
        }
    }
    reboot(RebootCommand::PowerOff).context("powering off")
}

fn mounted(kind: &str, place: &str, data: &std::ffi::CStr) -> anyhow::Result<()> {
    fs::create_dir_all(place).with_context(|| format!("making {place}"))?;
    mount(kind, place, kind, MountFlags::empty(), data).with_context(|| format!("mounting {kind} on {place}"))
}

/// Loads the modules that the host put into `/modules`, in the order of their names.
fn load_modules() -> anyhow::Result<()> {
    let mut modules: Vec<PathBuf> = fs::read_dir("/modules")?.flatten().map(|entry| entry.path()).collect();
    modules.sort();
    for module in modules {
        match finit_module(File::open(&module)?, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(|| format!("loading {}", module.display())),
        }
    }
    Ok(())
}

/// Makes the disk the root, and binds the payload, which came with the kernel, into it.
fn switch_root() -> anyhow::Result<()> {
    let end = Instant::now() + DISK_TIMEOUT;
    while !Path::new("/dev/vda").exists() {
        ensure!(Instant::now() < end, "the disk does not show up: is its driver among the modules?");
        std::thread::sleep(Duration::from_millis(20));
    }
    mount("/dev/vda", "/root", "ext4", MountFlags::empty(), None).context("mounting the disk")?;
    mount_bind("/payload", format!("/root{PAYLOAD}")).context("binding the payload")?;
    for place in ["/dev", "/proc", "/sys"] {
        mount_move(place, format!("/root{place}")).with_context(|| format!("moving {place}"))?;
    }
    std::env::set_current_dir("/root")?;
    mount_move(".", "/").context("moving the root")?;
    chroot(".").context("changing the root")?;
    std::env::set_current_dir("/")?;
    for (kind, place, data) in [
        ("tmpfs", "/tmp", c"mode=1777"),
        ("tmpfs", "/run", c"mode=755"),
        ("tmpfs", "/dev/shm", c"mode=1777"),
        ("devpts", "/dev/pts", c""),
        ("securityfs", "/sys/kernel/security", c""),
        ("tracefs", "/sys/kernel/tracing", c""),
        ("cgroup2", "/sys/fs/cgroup", c""),
    ] {
        mounted(kind, place, data)?;
    }
    rustix::system::sethostname(b"guest").context("the host's name")
}
