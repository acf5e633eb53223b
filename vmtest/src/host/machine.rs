//! A QEMU process: start, results, and the end if the guest is silent for too long.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::kernel::Image;
use super::options::Options;
use super::packages;
use crate::arch::Arch;
use crate::matrix::Kernel;
use crate::plan::{Line, PORT, Plan};

/// How much longer than a case's deadline the host waits, so that the guest itself can report that the case hangs.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Machine {
    command: Command,
    console: PathBuf,
    boot_patience: Duration,
}

impl Machine {
    /// A guest with this kernel, first root file system and disk. Its console is logged below `logs`.
    pub(super) fn new(
        options: &Options,
        kernel: &Kernel,
        image: &Image,
        root: &Path,
        initramfs: &Path,
        logs: &Path,
    ) -> anyhow::Result<Machine> {
        let emulator = kernel.arch.emulator();
        packages::finish(Command::new(emulator[0]).arg("--version"))?;
        let dir = logs.join(kernel.name);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        // The guest ends with the process that started it, even if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(emulator);
        let cpu = options.cpu.as_deref().filter(|_| kernel.arch == Arch::Amd64);
        if options.kvm && kernel.arch.is_own() {
            command.args(["-accel", "kvm", "-cpu", cpu.unwrap_or("host")]);
        } else {
            // With a thread for each CPU, QEMU before 8.1 sometimes keeps a translation of code that another CPU has
            // replaced (fixed by its commit deba78709ae8). Kernels then die of an int3 that is no longer there, and
            // JVMs run their old code forever. With one thread, the CPUs take turns.
            command.args(["-accel", "tcg,thread=single", "-cpu", cpu.unwrap_or(kernel.arch.cpu())]);
        }
        command
            .args([
                "-smp",
                "2",
                "-m",
                "2048",
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .arg("-kernel")
            .arg(&image.vmlinuz)
            .arg("-initrd")
            .arg(initramfs)
            .arg("-append")
            .arg(format!(
                "console={} rdinit=/payload/vmtest panic=-1 {}",
                kernel.arch.console(),
                kernel.arch.kernel_arguments()
            ))
            .arg("-drive")
            .arg(format!("file={},if=virtio,format=raw,snapshot=on", root.display()))
            .args(["-device", "virtio-serial-pci"]);
        Ok(Machine {
            command,
            console: dir.join("console.log"),
            boot_patience: Duration::from_secs(options.boot_patience),
        })
    }

    /// Starts the guest and hands over each line from it, until it powers off.
    pub(super) fn run(self, mut each: impl FnMut(Line)) -> anyhow::Result<()> {
        let log = self.console.display().to_string();
        let mut patience = self.boot_patience;
        let mut doing = "booting".to_owned();
        let mut guest = Guest::start(self.command, &self.console)?;
        loop {
            let line = match guest.lines.recv_timeout(patience) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => bail!(
                    "the guest said nothing for {} s while {doing}, and was ended; its console: {log}",
                    patience.as_secs()
                ),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the guest ended while {doing}: {}; its console: {log}", guest.last_words())
                }
            };
            let Ok(line) = serde_json::from_str(&line) else {
                bail!("the guest said what is no result while {doing}: {line:?}; its console: {log}")
            };
            match &line {
                Line::Begin(run) => {
                    patience = Duration::from_secs(run.patience) + GRACE;
                    doing = format!("running {run}");
                }
                Line::Done => break,
                Line::Result(_) => {
                    patience = self.boot_patience;
                    doing = "between two cases".to_owned();
                }
                Line::Output(_) | Line::Exit(_) => {}
            }
            each(line);
        }
        guest.power_off(self.boot_patience)
    }

    /// Starts the guest for a shell, or for one command, and returns the command's exit code.
    pub(super) fn converse(mut self, plan: &Plan) -> anyhow::Result<u8> {
        if *plan == Plan::Shell {
            self.command.args(["-serial", "mon:stdio"]);
            let status = self.command.status().context("QEMU")?;
            ensure!(status.success(), "QEMU ended with {status}");
            return Ok(0);
        }
        let mut code = None;
        self.run(|line| match line {
            Line::Output(text) => drop(writeln!(std::io::stdout(), "{text}")),
            Line::Exit(exit) => code = Some(exit),
            _ => {}
        })?;
        let code = code.context("the guest did not say how the command ended")?;
        Ok(u8::try_from(code).unwrap_or(1))
    }
}

/// A running QEMU, killed on drop.
struct Guest {
    qemu: Child,
    lines: Receiver<String>,
}

impl Guest {
    fn start(mut command: Command, console: &Path) -> anyhow::Result<Guest> {
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-chardev", "stdio,id=results,signal=off", "-device"])
            .arg(format!("virtserialport,chardev=results,name={PORT}"))
            // Open and silent: if it were closed, QEMU would treat the port's other end as closed, and writes in the
            // guest would block.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut qemu = command.spawn().context("QEMU cannot be started")?;
        let stdout = BufReader::new(qemu.stdout.take().context("QEMU's output")?);
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok).filter(|line| !line.is_empty()) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Guest { qemu, lines })
    }

    /// The status and standard error of QEMU.
    fn last_words(&mut self) -> String {
        let status = self.qemu.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
        let mut said = String::new();
        if let Some(stderr) = &mut self.qemu.stderr {
            // A part of the text is better than no text.
            let _ = stderr.read_to_string(&mut said);
        }
        format!("{status} {}", said.trim())
    }

    /// Waits until the guest has powered off, after its last line.
    fn power_off(&mut self, patience: Duration) -> anyhow::Result<()> {
        match self.lines.recv_timeout(patience) {
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.qemu.wait()?;
                ensure!(status.success(), "QEMU ended with {status}");
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => bail!("the guest did all it should and does not power off"),
            Ok(line) => bail!("the guest said something after its last line: {line:?}"),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
