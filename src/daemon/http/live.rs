//! `/live`: stored windows of the last time, and then each new one as soon as it is stored.

use hyper::StatusCode;

use super::make::{Packed, Wanted, make};
use super::query::{Query, SampleQuery};
use super::server::Server;
use crate::daemon::window::now_ms;
use crate::output::page;
use crate::serve::HangUp;
use crate::serve::feed::{FeedChange, event, no_place};
use crate::serve::response::{HttpResponse, say};

pub(super) async fn live(server: &Server, query: Option<&str>, hang_up: &HangUp) -> HttpResponse {
    let state = &server.state;
    let seconds = match Query::parse(query, &["seconds"]).and_then(|query| query.past_seconds()) {
        Ok(seconds) => seconds,
        Err(said) => return say(StatusCode::BAD_REQUEST, &said),
    };
    // The client joins first: a window that is stored from now on is an increment, a window before is in the list.
    let Some(body) = state.feed.join(hang_up) else { return no_place() };
    let now = now_ms();
    let list = state.store.as_ref().map(|store| store.list(now.saturating_sub(seconds * 1000), u64::MAX));
    let list = list.unwrap_or_default();
    let last = list.last().map_or(0, |(span, _)| span.start_ms);
    let paths = list.iter().filter_map(|(span, _)| Some(Packed::File(state.store.as_ref()?.path(*span))));
    let paths: Vec<Packed> = paths.collect();
    let wanted =
        Wanted { samples: SampleQuery::default(), format: &page::DOCUMENT, window_ms: state.window_ms() };
    // The semaphore is never closed.
    let _permit = server.first_events.acquire().await;
    match tokio::task::spawn_blocking(move || make(&paths, &wanted)).await {
        Ok(Ok(document)) => body.response(event(FeedChange::Whole, last, &document.unwrap_or_default())),
        Ok(Err(error)) => say(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        Err(_) => say(StatusCode::INTERNAL_SERVER_ERROR, "making the profile failed"),
    }
}
