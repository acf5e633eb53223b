//! Builds programs whose debug information attacks its reader, from a harmless one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use testkit::packed::Packed;

use super::packages;
use crate::plan::PAYLOAD;

/// The size that a section header claims, bytes.
const PROMISE: u64 = 1 << 60;
/// The unpacked size of another section, bytes of zeros.
const BOMB: u64 = 8 << 20;
/// Compiles the programs into a directory.
pub(super) fn compile(compiler: &str, sources: &Path, to: &Path) -> anyhow::Result<()> {
    let [plain, packed] = ["inlined", "inlined-promises"].map(|name| to.join(name));
    for (program, flag) in [(&plain, "-gz=none"), (&packed, "-gz=zlib")] {
        let mut cc = Command::new(compiler);
        cc.args(["-O2", "-g3", flag, "-o"]).arg(program).arg(sources.join("inlined.c"));
        packages::finish(&mut cc)?;
    }
    promise(&packed)?;
    bomb(&plain, to)?;
    link(&plain, to)
}

/// Makes each compressed section claim more bytes than any machine has memory.
fn promise(program: &Path) -> anyhow::Result<()> {
    let mut bytes = fs::read(program)?;
    Packed::Zlib.promise(&mut bytes, PROMISE);
    fs::write(program, bytes)?;
    Ok(())
}

/// Makes a copy with a section that is small until it is unpacked.
fn bomb(plain: &Path, to: &Path) -> anyhow::Result<()> {
    let zeros = to.join("zeros");
    fs::File::create(&zeros)?.set_len(BOMB)?;
    let (large, bomb) = (to.join("large"), to.join("inlined-bomb"));
    let section = format!(".debug_str={}", zeros.display());
    packages::finish(Command::new("objcopy").args(["--update-section", &section]).arg(plain).arg(&large))?;
    packages::finish(Command::new("objcopy").arg("--compress-debug-sections=zlib").arg(&large).arg(&bomb))?;
    for file in [zeros, large] {
        fs::remove_file(file)?;
    }
    ensure!(fs::metadata(&bomb)?.len() < BOMB / 8, "{} is not packed", bomb.display());
    Ok(())
}

/// Makes a stripped copy whose debug link has the absolute path and the checksum of another file.
fn link(plain: &Path, to: &Path) -> anyhow::Result<()> {
    let (linked, section) = (to.join("inlined-linked"), to.join("section"));
    let add = format!("--add-gnu-debuglink={}", plain.display());
    packages::finish(Command::new("objcopy").args(["--strip-all", &add]).arg(plain).arg(&linked))?;
    let dump = format!(".gnu_debuglink={}", section.display());
    packages::finish(Command::new("objcopy").args(["--dump-section", &dump]).arg(&linked))?;
    let checksum = fs::read(&section)?.last_chunk::<4>().copied().context("a debug link has a checksum")?;
    let mut content = format!("{PAYLOAD}/native/inlined\0").into_bytes();
    content.resize(content.len().next_multiple_of(4), 0);
    content.extend(checksum);
    fs::write(&section, content)?;
    packages::finish(Command::new("objcopy").args(["--update-section", &dump]).arg(&linked))?;
    fs::remove_file(section)?;
    Ok(())
}
