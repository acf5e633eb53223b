//! Kernels from Debian packages: the image, and the few modules that a guest needs before it can mount its disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use lzma_rust2::XzReader;

use super::cache::Cache;
use super::packages;
use crate::distribution::Distribution;
use crate::matrix::Kernel;
use crate::say;

/// Modules to load, in this order, unless they are built in.
const MODULES: [&str; 6] =
    ["virtio_pci", "virtio_blk", "virtio_console", "crc32c_generic", "libcrc32c", "ext4"];

/// A kernel that QEMU can boot.
#[derive(Debug)]
pub(super) struct Image {
    /// The compressed kernel that QEMU boots.
    pub(super) vmlinuz: PathBuf,
    /// Modules, in loading order.
    pub(super) modules: Vec<PathBuf>,
}

/// The kernel from the cache, or from the mirror.
pub(super) fn image(cache: &Cache, kernel: &Kernel) -> anyhow::Result<Image> {
    let dir = cache.entry(&format!("kernel-{}", kernel.name), |dir| {
        say(&format!("vmtest: fetching kernel {} from {}", kernel.name, kernel.suite));
        fetch(kernel, dir).with_context(|| format!("kernel {} cannot be had", kernel.name))
    })?;
    let order =
        fs::read_to_string(dir.join("modules.order")).context("a kernel in the cache is not whole")?;
    Ok(Image { vmlinuz: dir.join("vmlinuz"), modules: order.lines().map(|name| dir.join(name)).collect() })
}

fn fetch(kernel: &Kernel, dir: &Path) -> anyhow::Result<()> {
    let tree = dir.join("tree");
    packages::unpack((kernel.suite, kernel.arch), "extract", &[package(kernel)], &tree, &[])?;
    let lib = [tree.join("usr/lib/modules"), tree.join("lib/modules")]
        .into_iter()
        .find(|lib| lib.is_dir())
        .context("the packages have no modules")?;
    let release = only_entry(&lib)?;
    let vmlinuz = [tree.join("boot").join(format!("vmlinuz-{release}")), lib.join(&release).join("vmlinuz")]
        .into_iter()
        .find(|file| file.is_file())
        .with_context(|| format!("the packages have no image of {release}"))?;
    fs::copy(vmlinuz, dir.join("vmlinuz")).context("the kernel's image")?;
    fs::write(dir.join("release"), &release)?;

    let modules = Modules::read(&lib.join(&release))?;
    let mut order = String::new();
    for path in modules.closure(&MODULES)? {
        let name = format!("{}.ko", name_of(&path));
        fs::write(dir.join(&name), plain(&lib.join(&release).join(&path))?)?;
        order.push_str(&name);
        order.push('\n');
    }
    ensure!(!order.is_empty(), "no module of {release} was found");
    fs::write(dir.join("modules.order"), order)?;
    fs::remove_dir_all(&tree).context("the unpacked packages")
}

/// The package that depends on the current kernel of the suite.
fn package(kernel: &Kernel) -> String {
    match kernel.suite.distribution {
        Distribution::Debian => format!("linux-image-{}", kernel.arch),
        Distribution::Ubuntu => "linux-image-virtual".to_owned(),
    }
}

fn only_entry(dir: &Path) -> anyhow::Result<String> {
    let mut names: Vec<String> = fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.path().join("kernel").is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        _ => bail!("{} does not hold the modules of one kernel", dir.display()),
    }
}

/// The kernel's name of a module, from its path.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// The uncompressed bytes of a module.
fn plain(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = BufReader::new(File::open(path).with_context(|| format!("module {}", path.display()))?);
    match path.extension().and_then(|e| e.to_str()) {
        Some("ko") => BufReader::new(file).read_to_end(&mut bytes),
        Some("xz") => XzReader::new(file, true).read_to_end(&mut bytes),
        _ => bail!("module {} is compressed in a way that vmtest does not know", path.display()),
    }
    .with_context(|| format!("module {}", path.display()))?;
    Ok(bytes)
}

/// The modules of a kernel, with their dependencies.
#[derive(Debug)]
struct Modules {
    /// By name: the path, and the paths of the dependencies.
    known: BTreeMap<String, (String, Vec<String>)>,
    builtin: BTreeSet<String>,
}

impl Modules {
    /// Reads a directory `lib/modules/RELEASE`.
    fn read(dir: &Path) -> anyhow::Result<Modules> {
        let release = dir.file_name().and_then(|name| name.to_str()).context("a release")?;
        let base = dir.ancestors().nth(3).filter(|base| base.join("lib/modules").is_dir());
        let base = base.or_else(|| dir.ancestors().nth(4)).context("a root of the packages")?;
        packages::finish(Command::new("depmod").arg("-b").arg(base).arg(release))?;
        let list = |name: &str| {
            fs::read_to_string(dir.join(name)).with_context(|| format!("{name} of {release} is missing"))
        };
        Ok(Modules::parse(&list("modules.dep")?, &list("modules.builtin")?))
    }

    fn parse(dep: &str, builtin: &str) -> Modules {
        let known = dep.lines().filter_map(|line| {
            let (path, needs) = line.split_once(':')?;
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            Some((name_of(path), (path.to_owned(), needs)))
        });
        Modules { known: known.collect(), builtin: builtin.lines().map(name_of).collect() }
    }

    /// The paths of modules and their dependencies, in loading order. A name that is neither a module nor built in does
    /// not exist in this kernel; if a disk driver is missing, the guest fails with an error.
    fn closure(&self, wanted: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut order: Vec<String> = Vec::new();
        for name in wanted {
            if self.builtin.contains(*name) {
                continue;
            }
            let Some((path, needs)) = self.known.get(*name) else { continue };
            // depmod lists direct dependencies first, so that the last one must be loaded first.
            for path in needs.iter().rev().chain([path]) {
                if !order.contains(path) {
                    order.push(path.clone());
                }
            }
        }
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use super::{Modules, name_of};

    #[test]
    fn modules_come_after_what_they_need() {
        let modules = Modules::parse(
            "kernel/drivers/virtio/virtio_ring.ko.xz: kernel/drivers/virtio/virtio.ko.xz\n\
             kernel/drivers/virtio/virtio.ko.xz:\n\
             kernel/drivers/block/virtio_blk.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz \
             kernel/drivers/virtio/virtio.ko.xz\n",
            "kernel/fs/ext4/ext4.ko\n",
        );
        let order = modules.closure(&["virtio_blk", "ext4", "not-there"]).unwrap();
        let names: Vec<String> = order.iter().map(|path| name_of(path)).collect();
        assert_eq!(names, ["virtio", "virtio_ring", "virtio_blk"]);
    }

    #[test]
    fn names_are_the_kernels() {
        assert_eq!(name_of("kernel/arch/x86/crypto/crc32c-intel.ko"), "crc32c_intel");
        assert_eq!(name_of("kernel/lib/libcrc32c.ko.zst"), "libcrc32c");
    }
}
