//! Builds what the binary carries inside: the BPF object (libbpf-cargo skeleton), its unwinder compiled for user space,
//! and the JVMTI agent.
#![allow(clippy::panic)] // a build script has no other way to fail

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bpf_skeleton(&out);
    outside_walker();
    agent(&out);
    identity();
}

/// Gives the crate its target, and the commit of the source: from `JBPF_PROF_COMMIT`, which `scripts/release.sh` sets, or
/// from git. Builds for developers and tests have no commit, because each new commit would compile the crate again.
fn identity() {
    println!("cargo::rerun-if-env-changed=JBPF_PROF_COMMIT");
    println!("cargo::rustc-env=JBPF_PROF_TARGET={}", env::var("TARGET").expect("cargo sets TARGET"));
    let commit = match env::var("JBPF_PROF_COMMIT") {
        Ok(given) if !given.is_empty() => Some(given),
        // The profile `quick` calls itself `release`, too, but optimizes less.
        _ if env::var("OPT_LEVEL").as_deref() == Ok("3") => commit_of_clone(),
        _ => None,
    };
    println!("cargo::rustc-env=JBPF_PROF_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// The commit of the clone in which this package is built, marked if sources differ from the commit.
fn commit_of_clone() -> Option<String> {
    const SOURCES: [&str; 6] = ["src", "bpf", "jvm-symbols-agent", "build.rs", "Cargo.toml", "Cargo.lock"];
    // A package of cargo can lie in the clone of another project.
    if !Path::new(".git").exists() {
        return None;
    }
    for changed in
        SOURCES.map(str::to_owned).into_iter().chain(git(&["rev-parse", "--git-path", "logs/HEAD"]))
    {
        println!("cargo::rerun-if-changed={changed}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let differs = git(&[&["status", "--porcelain", "--"], SOURCES.as_slice()].concat())?;
    Some(if differs.is_empty() { commit } else { format!("{commit}-modified") })
}

/// What git prints; nothing if there is no git, or if git fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The architecture's name in macros of libbpf.
fn bpf_arch() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target").as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        other => panic!("jbpf-prof has no BPF code for {other} yet"),
    }
}

/// Compiles `bpf/profiler.bpf.c` and writes its skeleton to `OUT_DIR/profiler.skel.rs`.
fn bpf_skeleton(out: &Path) {
    println!("cargo::rerun-if-changed=bpf");
    let arch = bpf_arch();
    // Debian and Ubuntu keep <asm/types.h> under the host's multiarch name, which `clang -target bpf` does not know.
    let host = env::var("HOST").expect("cargo sets HOST").replace("-unknown", "");
    // BTF has the names of source files: they must not depend on the directory of the build.
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets the directory of the package");
    SkeletonBuilder::new()
        .source("bpf/profiler.bpf.c")
        .clang_args([
            OsStr::new("-Wall"),
            OsStr::new("-Werror"),
            OsStr::new(&format!("-D__TARGET_ARCH_{arch}")),
            OsStr::new("-idirafter"),
            OsStr::new(&format!("/usr/include/{host}")),
            OsStr::new(&format!("-ffile-prefix-map={here}=.")),
        ])
        .build_and_generate(out.join("profiler.skel.rs"))
        .expect("bpf/profiler.bpf.c compiles with clang");
}

/// Compiles the unwinder of `bpf/` for user space. By clang, as for the kernel.
fn outside_walker() {
    println!("cargo::rerun-if-changed=src/outside");
    cc::Build::new()
        .compiler("clang")
        .file("src/outside/walker.c")
        .include("src/outside/shims")
        .define(&format!("__TARGET_ARCH_{}", bpf_arch()), None)
        // Only BPF programs have the attribute.
        .flag("-Wno-unknown-attributes")
        .flag("-Wno-sign-compare")
        .flag("-Wno-unused-parameter")
        .opt_level(2)
        .warnings_into_errors(true)
        .compile("jp_outside");
}

/// Builds the agent as a freestanding shared object and gives the crate its path: `env!("JVM_SYMBOLS_AGENT")`. By the
/// compiler alone: in a registry's directory cargo would need a `Cargo.lock`, an index and the profile of a workspace.
fn agent(out: &Path) {
    let log = out.join("libjvm_symbols_log.rlib");
    let agent = out.join("libjvm_symbols_agent.so");
    compile(jvm_symbols_log::ROOT, &["--crate-name=jvm_symbols_log", "--crate-type=rlib"], &log);
    let needs_log = format!("--extern=jvm_symbols_log={}", log.display());
    let shared_object = [
        "--crate-name=jvm_symbols_agent",
        "--crate-type=cdylib",
        "--cfg=feature=\"freestanding\"",
        &needs_log,
        "-Clto=fat",
        // No start files, no libc, never unloaded (a callback may still run when the JVM drops its handle).
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-Wl,-z,nodelete,-z,now,--gc-sections,--no-undefined",
    ];
    compile(jvm_symbols_agent::ROOT, &shared_object, &agent);
    println!("cargo::rustc-env=JVM_SYMBOLS_AGENT={}", agent.display());
}

/// Compiles a crate of the agent for the profiler's target: small, and without unwinding, because the agent runs inside
/// JVMs of other people. The product's own flags (static libc) would make a shared object impossible.
fn compile(root: &str, arguments: &[&str], to: &Path) {
    let source = Path::new(root).parent().expect("a crate has a directory of sources");
    println!("cargo::rerun-if-changed={}", source.display());
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    rustc
        .arg(root)
        .args(arguments)
        .arg("-o")
        .arg(to)
        .args(["--edition=2024", "--target", &target])
        .args(["-Copt-level=s", "-Ccodegen-units=1", "-Cpanic=abort", "-Crelocation-model=pic"])
        .arg(format!("--remap-path-prefix={}=.", source.display()))
        // The crates name the place of their source for this script only.
        .env("CARGO_MANIFEST_DIR", ".");
    // Arm's helpers for atomics ask libc which instructions the CPU has; the oldest ones need no helper.
    if target.starts_with("aarch64") {
        rustc.arg("-Ctarget-feature=-outline-atomics");
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.status().expect("rustc runs");
    assert!(status.success(), "{root} does not compile");
}
