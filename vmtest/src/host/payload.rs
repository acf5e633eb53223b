//! What is brought into a guest: the binary under test, the agent that it carries, programs of known truth, this binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::debian;
use super::initramfs::Archive;
use super::kernel::Image;
use super::options::Options;
use crate::matrix::Kernel;
use crate::plan::{PLAN, Plan};

/// C programs of `tests/programs`, compiled with frame pointers, as the end-to-end tests do.
const NATIVE: [&str; 4] = ["native", "kernel", "short", "spawn"];
/// Where the archive has it all; the guest mounts it as [`crate::plan::PAYLOAD`].
const PLACE: &str = "payload";

/// Everything but the plan, ready to be packed.
#[derive(Debug)]
pub(super) struct Payload {
    dir: TempDir,
    logs: PathBuf,
}

impl Payload {
    /// Collects and compiles it.
    pub(super) fn make(options: &Options) -> anyhow::Result<Payload> {
        let workspace =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("vmtest lies in a workspace")?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let logs = target.join("vmtest");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        let dir = tempfile::Builder::new().prefix("payload-").tempdir_in(&logs)?;
        let built = || target.join(triple()).join("release/jbpf-prof");
        let binary = options.binary.clone().unwrap_or_else(built);
        ensure!(
            binary.is_file(),
            "the binary under test is not at {}: run `cargo build --release --locked` first",
            binary.display()
        );
        fs::copy(&binary, dir.path().join("jbpf-prof"))?;
        let agent = dir.path().join("libjvm_symbols_agent.so");
        let written = Command::new(&binary).arg("agent").arg(&agent).status();
        ensure!(
            written.is_ok_and(|status| status.success()),
            "{} agent {} fails",
            binary.display(),
            agent.display()
        );
        fs::copy(std::env::current_exe()?, dir.path().join("vmtest"))?;
        compile(&workspace.join("tests/programs"), dir.path())?;
        Ok(Payload { dir, logs })
    }

    /// Where consoles are logged.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The first root file system of a guest, as a file that lives as long as the payload.
    pub(super) fn initramfs(&self, kernel: &Kernel, image: &Image, plan: &Plan) -> anyhow::Result<PathBuf> {
        let mut archive = Archive::default();
        for dir in ["dev", "proc", "sys", "root", "modules"] {
            archive.directory(dir);
        }
        archive.tree(PLACE, self.dir.path())?;
        archive.file(&format!("{PLACE}/{PLAN}"), 0o644, &serde_json::to_vec(plan)?);
        for (nr, module) in image.modules.iter().enumerate() {
            let name = module.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            archive.copy(&format!("modules/{nr:02}-{name}"), module)?;
        }
        let file = self.dir.path().with_extension(format!("{}.cpio", kernel.name));
        fs::write(&file, archive.finish()).with_context(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // Its archives lie beside the directory that removes itself.
        for kernel in &crate::matrix::KERNELS {
            let _ = fs::remove_file(self.dir.path().with_extension(format!("{}.cpio", kernel.name)));
        }
    }
}

fn triple() -> &'static str {
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" }
}

fn compile(sources: &Path, to: &Path) -> anyhow::Result<()> {
    let classes = to.join("classes");
    let java = fs::read_dir(sources)?.flatten().map(|entry| entry.path());
    let java: Vec<PathBuf> = java.filter(|path| path.extension().is_some_and(|e| e == "java")).collect();
    debian::finish(
        Command::new("javac")
            .args(["-Xlint:-options", "--release", "8", "-g", "-d"])
            .arg(&classes)
            .args(java),
    )?;
    let native = to.join("native");
    fs::create_dir(&native)?;
    for name in NATIVE {
        debian::finish(
            Command::new("cc")
                .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer", "-o"])
                .arg(native.join(name))
                .arg(sources.join(format!("{name}.c"))),
        )?;
    }
    let loader = sources.join("loader.c");
    debian::finish(Command::new("musl-gcc").arg("-o").arg(native.join("loader-musl")).arg(loader))?;
    Ok(())
}
