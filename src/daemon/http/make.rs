//! Makes one profile of stored windows, in a format.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use hyper::body::Bytes;

use super::query::SampleQuery;
use crate::daemon::window::PackedWindow;
use crate::output::{self, Format, PictureOptions, page, pprof};
use crate::profile::Profile;

/// Limit on the nodes of a merged profile: 16 MiB. The frames of the nodes take several times as much.
const MAX_NODES: usize = 1 << 20;

/// A packed window in memory or on disk.
pub(super) enum WindowSource {
    Live(Arc<PackedWindow>),
    File(PathBuf),
}

impl WindowSource {
    /// The profile; `None` if the window was removed in the meantime because it had expired.
    fn read(&self) -> anyhow::Result<Option<Profile>> {
        match self {
            WindowSource::Live(window) => pprof::read(&mut window.bytes.as_slice()).map(Some),
            WindowSource::File(path) => match File::open(path) {
                Ok(file) => pprof::read(&mut BufReader::new(file)).map(Some),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
        .context("a stored profile cannot be read")
    }
}

/// What to make of stored windows.
pub(super) struct ProfileRequest {
    pub(super) samples: SampleQuery,
    pub(super) format: &'static Format,
    /// Length of a window in milliseconds: a column on the page.
    pub(super) window_ms: u64,
}

/// The profile of these windows, the oldest first; `None` if no sample matches the query, or all windows have expired in
/// the meantime.
pub(super) fn encode_profile(
    windows: &[WindowSource],
    wanted: &ProfileRequest,
) -> anyhow::Result<Option<Bytes>> {
    let ProfileRequest { samples, format, window_ms } = wanted;
    let on_page = [&page::FORMAT, &page::DOCUMENT].iter().any(|page| page.names == format.names);
    let mut merged = Profile::with_room(MAX_NODES);
    let mut begin = None;
    for window in windows {
        let Some(mut one) = window.read()? else { continue };
        samples.apply(&mut one);
        let start_ms = one.span.start_unix_ns / 1_000_000;
        // The page numbers columns since 1970, too. Windows begin some milliseconds late or early.
        let number = (start_ms + window_ms / 2) / window_ms;
        let since = number.saturating_sub(*begin.get_or_insert(number));
        let column = if on_page { since } else { 0 };
        merged.merge_later(&one, u16::try_from(column).unwrap_or(u16::MAX));
    }
    let expired = begin.is_none() && !windows.is_empty();
    if expired || !samples.is_all() && merged.samples().is_empty() {
        return Ok(None);
    }
    let mut body = Vec::new();
    let mut views = merged.views();
    views.retain(|view| samples.event.as_ref().is_none_or(|event| event.names(view.event())));
    if samples.event.is_some() && views.is_empty() {
        return Ok(None);
    }
    if !format.several {
        // The query may leave samples of a later event only.
        let first = views.iter().position(|view| !view.samples().is_empty()).unwrap_or(0);
        views = views.drain(first..).take(1).collect();
    }
    let picture_options = if on_page { page_options(*window_ms) } else { PictureOptions::default() };
    output::encode(&views, format, &picture_options, &mut body)?;
    Ok(Some(body.into()))
}

/// The options of the daemon's pages.
pub(in crate::daemon) fn page_options(window_ms: u64) -> PictureOptions {
    PictureOptions {
        title: Some("jbpf-prof: all processes".to_owned()),
        column_ms: window_ms,
        ..PictureOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_have_expired_are_no_empty_profile() {
        let wanted =
            ProfileRequest { samples: SampleQuery::default(), format: &pprof::FORMAT, window_ms: 1000 };
        let gone = [WindowSource::File(PathBuf::from("/nonexistent/window.pb.gz"))];
        assert_eq!(encode_profile(&gone, &wanted).unwrap(), None);
        assert!(encode_profile(&[], &wanted).unwrap().is_some_and(|body| !body.is_empty()));
    }
}
