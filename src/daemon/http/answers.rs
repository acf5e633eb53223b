//! The responses of the endpoints.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::make::{Packed, Wanted, make};
use super::query::{LONGEST, Query, SampleQuery};
use crate::daemon::state::State;
use crate::daemon::window::now_ms;
use crate::serve::response::{HttpResponse, answer, say};

pub(super) fn metrics(state: &State) -> HttpResponse {
    answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", state.exposition().into())
}

pub(super) fn health(state: &State) -> HttpResponse {
    verdict(state.health())
}

pub(super) fn ready(state: &State) -> HttpResponse {
    verdict(state.readiness())
}

fn verdict(found: Result<&'static str, String>) -> HttpResponse {
    match found {
        Ok(said) => say(StatusCode::OK, said),
        Err(said) => say(StatusCode::SERVICE_UNAVAILABLE, &said),
    }
}

/// `/windows?from=&to=`: the list of stored windows.
pub(super) fn windows(state: &State, query: Option<&str>) -> HttpResponse {
    let asked = Query::parse(query, &["from", "to"]).and_then(|query| {
        Ok((query.time_ms("from")?.unwrap_or(0), query.time_ms("to")?.unwrap_or(u64::MAX)))
    });
    let (from, to) = match asked {
        Ok(asked) => asked,
        Err(said) => return say(StatusCode::BAD_REQUEST, &said),
    };
    let Some(store) = &state.store else { return say(StatusCode::NOT_FOUND, "no windows are kept") };
    #[allow(clippy::cast_precision_loss)]
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let list: Vec<_> = store
        .list(from, to)
        .into_iter()
        .map(|(span, bytes)| json!({"from": seconds(span.start_ms), "to": seconds(span.end_ms()), "bytes": bytes}))
        .collect();
    answer(StatusCode::OK, "application/json", json!({ "windows": list }).to_string().into())
}

/// `/window?from=&to=&format=`: the stored windows of a time span, merged; by default the last minute.
pub(super) async fn window(state: &State, query: Option<&str>) -> HttpResponse {
    let asked = || -> Result<_, String> {
        let names = [&["from", "to", "format"][..], &SampleQuery::NAMES].concat();
        let query = Query::parse(query, &names)?;
        let to = query.time_ms("to")?.unwrap_or_else(now_ms);
        let from = query.time_ms("from")?.unwrap_or_else(|| to.saturating_sub(60_000));
        if from >= to || u128::from(to - from) > LONGEST.as_millis() {
            return Err(format!("from must be before to, by at most {} s", LONGEST.as_secs()));
        }
        Ok((from, to, of_query(state, &query)?))
    };
    let (from, to, wanted) = match asked() {
        Ok(asked) => asked,
        Err(said) => return say(StatusCode::BAD_REQUEST, &said),
    };
    let Some(store) = &state.store else { return say(StatusCode::NOT_FOUND, "no windows are kept") };
    let files: Vec<Packed> =
        store.list(from, to).into_iter().map(|(span, _)| Packed::File(store.path(span))).collect();
    if files.is_empty() {
        return say(StatusCode::NOT_FOUND, "nothing is kept of that time; see /windows");
    }
    made(files, wanted).await
}

/// `/profile?seconds=&format=`: the windows from the current one on, until `seconds` have passed.
pub(super) async fn profile(state: &State, query: Option<&str>) -> HttpResponse {
    let asked = || -> Result<_, String> {
        let names = [&["seconds", "format"][..], &SampleQuery::NAMES].concat();
        let query = Query::parse(query, &names)?;
        Ok((query.seconds()?, of_query(state, &query)?))
    };
    let (seconds, wanted) = match asked() {
        Ok(asked) => asked,
        Err(said) => return say(StatusCode::BAD_REQUEST, &said),
    };
    let mut windows = state.windows.subscribe();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut taken: Vec<Packed> = Vec::new();
    loop {
        match tokio::time::timeout(state.window, windows.recv()).await {
            Ok(Ok(window)) => {
                let ended = window.ended;
                taken.push(Packed::Live(window));
                if ended >= until {
                    return made(taken, wanted).await;
                }
            }
            Ok(Err(RecvError::Lagged(_))) => {}
            Ok(Err(RecvError::Closed)) => return say(StatusCode::SERVICE_UNAVAILABLE, "sampling has ended"),
            // A window arrives after its end, and even later while JVMs are being attached to.
            Err(_) => {
                if let Err(why) = state.outlook() {
                    return say(StatusCode::SERVICE_UNAVAILABLE, &format!("no profiles are stored: {why}"));
                }
            }
        }
    }
}

fn of_query(state: &State, query: &Query) -> Result<Wanted, String> {
    Ok(Wanted { samples: query.wanted()?, format: query.format()?, window_ms: state.window_ms() })
}

async fn made(windows: Vec<Packed>, wanted: Wanted) -> HttpResponse {
    let format = wanted.format;
    let work = tokio::task::spawn_blocking(move || make(&windows, &wanted));
    match work.await {
        Ok(Ok(Some(body))) => answer(StatusCode::OK, format.media_type, body),
        Ok(Ok(None)) => say(StatusCode::NOT_FOUND, "no sample of that time matches the query"),
        Ok(Err(error)) => say(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        Err(_) => say(StatusCode::INTERNAL_SERVER_ERROR, "making the profile failed"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::daemon::state::Phase;
    use crate::daemon::window::PackedWindow;
    use crate::profile::{Labels, Profile};
    use crate::sample::Event;

    /// Windows end by the monotonic clock; the wall clock must not matter.
    #[test]
    fn a_profile_takes_as_long_as_was_asked_for_whatever_the_clock_is_set_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let state = State::new(Duration::from_millis(10), None, Vec::new(), None);
        state.enter(Phase::Sampling);
        let packed = |ticks, ended| {
            let mut profile = Profile::new();
            profile.add(&Labels::default(), &[], ticks, ticks);
            let accounts = profile.accounts_mut(Event::Cpu);
            (accounts.ticks, accounts.kept) = (ticks, ticks);
            // 1970, as if the wall clock had been set back far.
            profile.span.duration_ns = 1_000_000_000;
            Arc::new(PackedWindow::pack(&profile, ended).unwrap())
        };
        let answer = runtime.block_on(async {
            let asked = profile(&state, Some("seconds=100&format=folded"));
            let come = async {
                let now = Instant::now();
                for (ticks, seconds) in [(1, 50), (20, 200), (300, 300)] {
                    let _ = state.windows.send(packed(ticks, now + Duration::from_secs(seconds)));
                }
            };
            // A reader that waits for a wall clock time would wait forever.
            let both = async { tokio::join!(asked, come).0 };
            tokio::time::timeout(Duration::from_secs(60), both).await.unwrap()
        });
        assert_eq!(answer.status(), StatusCode::OK);
        let body = runtime.block_on(http_body_util::BodyExt::collect(answer.into_body())).unwrap();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        assert!(text.ends_with(" 21\n"), "{text}");
    }
}
