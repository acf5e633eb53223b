//! Tokens and passwords in files. The files are read for each request, so that secrets can be replaced.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// Maximum bytes of a secret.
const MAX_SECRET: usize = 16 << 10;

/// Reads a secret from a file, without the line break at its end.
///
/// # Errors
/// The file cannot be read, is empty or too large.
pub(crate) fn secret(file: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || text.len() > MAX_SECRET {
        bail!("{} is empty or too large to be a secret", file.display());
    }
    Ok(text.to_owned())
}
