//! The files for a guest: the binary under test, its agent, programs of known truth, and this binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::hostile;
use super::initramfs::Archive;
use super::kernel::Image;
use super::options::Options;
use super::packages;
use crate::arch::Arch;
use crate::matrix::Kernel;
use crate::plan::{PLAN, Plan};

/// C programs of `tests/programs` whose shares and names are checked, compiled with frame pointers, as in the
/// end-to-end tests.
const NATIVE: [&str; 12] = [
    "native",
    "kernel",
    "short",
    "spawn",
    "touched",
    "grown",
    "allocations",
    "turn_a",
    "turn_b",
    "waits",
    "reasons",
    "lock_reasons",
];
/// Programs whose stacks are checked, compiled without frame pointers, which is the compilers' default.
const WITHOUT_FRAME_POINTERS: [&str; 3] = ["hung", "frames", "leave"];
/// The payload's directory in the archive; the guest mounts it as [`crate::plan::PAYLOAD`].
const PLACE: &str = "payload";
/// The kernel's headers, which a 32-bit compiler does not search.
const HEADERS: &str = "/usr/include/x86_64-linux-gnu";

/// All files except the plan.
#[derive(Debug)]
pub(super) struct Payload {
    dir: TempDir,
    logs: PathBuf,
}

impl Payload {
    /// Collects and compiles the files.
    pub(super) fn make(options: &Options, arch: Arch) -> anyhow::Result<Payload> {
        let workspace =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("vmtest lies in a workspace")?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let logs = target.join("vmtest");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        let dir = tempfile::Builder::new().prefix("payload-").tempdir_in(&logs)?;
        let built = target.join(arch.triple());
        // The binary of `--binary` has this machine's architecture.
        let named =
            options.binary.clone().or_else(|| std::env::var_os("JBPF_PROF_BINARY").map(PathBuf::from));
        let named = named.filter(|_| arch.is_own());
        let binary = named.unwrap_or_else(|| built.join("quick/jbpf-prof"));
        let own = if arch.is_own() { std::env::current_exe()? } else { built.join("quick/vmtest") };
        for (file, package) in [(&binary, "jbpf-prof"), (&own, "vmtest")] {
            ensure!(
                file.is_file(),
                "{} is not there: run `cargo build --profile quick --locked -p {package} --target {}` first",
                file.display(),
                arch.triple()
            );
        }
        fs::copy(&binary, dir.path().join("jbpf-prof"))?;
        fs::copy(own, dir.path().join("vmtest"))?;
        let sources = workspace.join("tests/programs");
        compile(arch.compiler(), &sources, dir.path())?;
        if arch.is_own() {
            compile_probed(arch.compiler(), &sources, dir.path())?;
            hostile::compile(arch.compiler(), &sources, &dir.path().join("native"))?;
        }
        // Not for another architecture, whose root file system has no JDK and no musl.
        if arch.is_own() {
            packages::finish(
                Command::new(&binary).arg("agent").arg(dir.path().join("libjvm_symbols_agent.so")),
            )?;
            compile_java(&sources, dir.path())?;
        }
        Ok(Payload { dir, logs })
    }

    /// The directory of console logs.
    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }

    /// Writes the first root file system of a guest to a file that lives as long as the payload.
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
        // The archives are beside the temporary directory, which removes only itself.
        for kernel in &crate::matrix::KERNELS {
            let _ = fs::remove_file(self.dir.path().with_extension(format!("{}.cpio", kernel.name)));
        }
    }
}

fn compile(compiler: &str, sources: &Path, to: &Path) -> anyhow::Result<()> {
    let native = to.join("native");
    fs::create_dir(&native)?;
    let with = NATIVE.map(|name| (name, "-fno-omit-frame-pointer"));
    let without = WITHOUT_FRAME_POINTERS.map(|name| (name, "-fomit-frame-pointer"));
    for (name, flag) in with.into_iter().chain(without) {
        packages::finish(
            Command::new(compiler)
                .args(["-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", flag, "-o"])
                .arg(native.join(name))
                .arg(sources.join(format!("{name}.c"))),
        )?;
    }
    Ok(())
}

/// Compiles the programs of the case `probed`, without frame pointers. The 32-bit ones are static: guests have no
/// 32-bit libc.
fn compile_probed(compiler: &str, sources: &Path, to: &Path) -> anyhow::Result<()> {
    let programs: [(&str, &str, &[&str]); 3] = [
        ("uprobes", "uprobes", &[]),
        ("uprobes-32", "uprobes", &["-m32", "-idirafter", HEADERS, "-static"]),
        ("frames-32", "frames", &["-m32", "-idirafter", HEADERS, "-static"]),
    ];
    for (name, source, flags) in programs {
        packages::finish(
            Command::new(compiler)
                .args(["-O2", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-fomit-frame-pointer"])
                .args(flags)
                .arg("-o")
                .arg(to.join("native").join(name))
                .arg(sources.join(format!("{source}.c"))),
        )?;
    }
    Ok(())
}

/// Compiles the Java programs, and a program that loads an agent without a JVM.
fn compile_java(sources: &Path, to: &Path) -> anyhow::Result<()> {
    let java = fs::read_dir(sources)?.flatten().map(|entry| entry.path());
    let java: Vec<PathBuf> = java.filter(|path| path.extension().is_some_and(|e| e == "java")).collect();
    packages::finish(
        Command::new("javac")
            .args(["-Xlint:-options", "--release", "8", "-g", "-d"])
            .arg(to.join("classes"))
            .args(java),
    )?;
    let loader = sources.join("loader.c");
    packages::finish(Command::new("musl-gcc").arg("-o").arg(to.join("native/loader-musl")).arg(loader))?;
    Ok(())
}
