//! Validates where a run serves its page.

use super::args::Record;
use crate::failure::Failure;
use crate::serve::Address;
use crate::serve::run::ServeConfig;
use crate::session::{Settings, target_text};

/// The server of a run, if the user asks for one. Profiles name tenants: an address that other hosts can reach needs a
/// token.
pub(super) fn config(record: &Record, settings: &Settings) -> Result<Option<ServeConfig>, Failure> {
    let Some(text) = &record.serve else { return Ok(None) };
    let address: Address = text.parse().map_err(|why| Failure::usage(format!("--serve {why}")))?;
    if !address.is_local() && record.token_file.is_none() {
        return Err(Failure::usage(format!(
            "--serve {address}: this address is not local, so the page needs a token: add --token-file"
        )));
    }
    Ok(Some(ServeConfig {
        address,
        token_file: record.token_file.clone(),
        events: settings.events.iter().map(|sampled| sampled.event).collect(),
        title: record
            .picture
            .title
            .clone()
            .unwrap_or_else(|| format!("jbpf-prof: {}", target_text(settings))),
    }))
}
