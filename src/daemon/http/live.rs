//! `/live`: stored windows of the last time, and then each new one as soon as it is stored.

use hyper::StatusCode;
use hyper::body::Bytes;

use super::first_events::FirstEventKey;
use super::make::{ProfileRequest, WindowSource, encode_profile};
use super::query::{Query, SampleQuery};
use super::server::Server;
use crate::daemon::state::DaemonState;
use crate::daemon::store::LatestWindows;
use crate::daemon::window::now_ms;
use crate::output::page;
use crate::serve::ConnectionCloser;
use crate::serve::feed::{FeedChange, event, too_many_clients};
use crate::serve::response::{HttpResponse, text_response};

pub(super) async fn live(server: &Server, query: Option<&str>, hang_up: &ConnectionCloser) -> HttpResponse {
    let state = &server.state;
    let seconds = match Query::parse(query, &["seconds"]).and_then(|query| query.past_seconds()) {
        Ok(seconds) => seconds,
        Err(said) => return text_response(StatusCode::BAD_REQUEST, &said),
    };
    // The client joins first: a window that is stored from now on is an increment, a window before is in the list.
    let Some(body) = state.feed.join(hang_up) else { return too_many_clients() };
    let from = now_ms().saturating_sub(seconds * 1000);
    let LatestWindows { spans, newest } =
        state.store.as_ref().map(|store| store.latest(from)).unwrap_or_default();
    let paths = spans.iter().filter_map(|span| Some(WindowSource::File(state.store.as_ref()?.path(*span))));
    let make = first_event(state, paths.collect(), newest);
    match state.first_events.get(FirstEventKey { seconds, newest }, make).await {
        Ok(first) => body.response(first),
        Err(error) => text_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}

/// Makes the event of these windows.
fn first_event(
    state: &DaemonState,
    windows: Vec<WindowSource>,
    newest: u64,
) -> impl FnOnce() -> anyhow::Result<Bytes> + Send + 'static {
    let wanted = ProfileRequest {
        samples: SampleQuery::default(),
        format: &page::DOCUMENT,
        window_ms: state.window_ms(),
    };
    move || {
        let document = match encode_profile(&windows, &wanted) {
            // All windows of the list have expired in the meantime.
            Ok(None) => encode_profile(&[], &wanted),
            made => made,
        };
        Ok(event(FeedChange::Whole, newest, &document?.unwrap_or_default()))
    }
}
