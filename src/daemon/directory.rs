//! A directory of the daemon for files of one kind. Every file is complete or absent, even after a loss of power.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::Context;

/// A file of the directory.
pub(super) struct StoredFile {
    /// The name before the extension.
    pub(super) stem: String,
    pub(super) bytes: u64,
}

/// Lists the files with an extension, which begins with a dot.
/// Creates the directory if necessary and removes temporary files of a killed daemon; other files stay. `what` names
/// the files in errors.
///
/// # Errors
/// One sentence: the directory and what is wrong with it.
pub(super) fn files(directory: &Path, extension: &str, what: &str) -> anyhow::Result<Vec<StoredFile>> {
    make_private(directory)?;
    let said = || format!("cannot store {what} in {}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(said)? {
        let entry = entry.with_context(said)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with('.') && name.contains(extension) && name.ends_with(".tmp") {
            // A file that cannot be removed only takes space.
            let _ = fs::remove_file(entry.path());
        } else if let Some(stem) = name.strip_suffix(extension) {
            let bytes = entry.metadata().map_or(0, |meta| meta.len());
            files.push(StoredFile { stem: stem.to_owned(), bytes });
        }
    }
    Ok(files)
}

/// Creates a directory that only its owner may read, because profiles reveal what tenants run.
///
/// # Errors
/// One sentence: the directory and what is wrong.
pub(super) fn make_private(directory: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("cannot create the directory {}", directory.display()))
}

/// Whether an error means that the disk or a quota is full.
pub(super) fn is_full(error: &anyhow::Error) -> bool {
    let full = |e: &io::Error| matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(full)
}
