//! A directory in which the daemon keeps files of one kind, each there whole or not at all, whenever the power goes.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::Context;

/// The files with this extension, which begins with a dot: what their names say before it, and their bytes. The directory
/// is made if it is not there; what a killed daemon has left half written is removed; what else is there stays. `what`
/// they are is for the error.
///
/// # Errors
/// One sentence: the directory and what is wrong with it.
pub(super) fn files(directory: &Path, extension: &str, what: &str) -> anyhow::Result<Vec<(String, u64)>> {
    make_private(directory)?;
    let said = || format!("cannot store {what} in {}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(said)? {
        let entry = entry.with_context(said)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with('.') && name.contains(extension) && name.ends_with(".tmp") {
            // What cannot be removed now costs room, no more.
            let _ = fs::remove_file(entry.path());
        } else if let Some(stem) = name.strip_suffix(extension) {
            files.push((stem.to_owned(), entry.metadata().map_or(0, |meta| meta.len())));
        }
    }
    Ok(files)
}

/// Makes a directory that only its owner may read: profiles tell what tenants run.
///
/// # Errors
/// One sentence: the directory and what is wrong.
pub(super) fn make_private(directory: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("cannot create the directory {}", directory.display()))
}

/// Whether an error says that there is no room.
pub(super) fn is_full(error: &anyhow::Error) -> bool {
    let full = |e: &io::Error| matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(full)
}
