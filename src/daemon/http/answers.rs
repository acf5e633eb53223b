//! The responses of the endpoints.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;

use super::make::{ProfileRequest, WindowSource, encode_profile};
use super::query::{MAX_SPAN, Query, SampleQuery};
use crate::daemon::state::DaemonState;
use crate::daemon::store::StoredWindow;
use crate::daemon::window::now_ms;
use crate::serve::response::{HttpResponse, full_response, text_response};

pub(super) fn metrics(state: &DaemonState) -> HttpResponse {
    full_response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", state.exposition().into())
}

pub(super) fn health(state: &DaemonState) -> HttpResponse {
    verdict(state.health())
}

pub(super) fn ready(state: &DaemonState) -> HttpResponse {
    verdict(state.readiness())
}

fn verdict(found: Result<&'static str, String>) -> HttpResponse {
    match found {
        Ok(said) => text_response(StatusCode::OK, said),
        Err(said) => text_response(StatusCode::SERVICE_UNAVAILABLE, &said),
    }
}

/// `/windows?from=&to=`: the list of stored windows.
pub(super) fn windows(state: &DaemonState, query: Option<&str>) -> HttpResponse {
    let asked = Query::parse(query, &["from", "to"]).and_then(|query| {
        Ok((query.time_ms("from")?.unwrap_or(0), query.time_ms("to")?.unwrap_or(u64::MAX)))
    });
    let (from, to) = match asked {
        Ok(asked) => asked,
        Err(said) => return text_response(StatusCode::BAD_REQUEST, &said),
    };
    let Some(store) = &state.store else {
        return text_response(StatusCode::NOT_FOUND, "no windows are kept");
    };
    #[allow(clippy::cast_precision_loss, reason = "times in milliseconds are exact in a float for ages")]
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let list: Vec<_> = store
        .list(from, to)
        .into_iter()
        .map(|StoredWindow { span, bytes }| {
            json!({"from": seconds(span.start_ms), "to": seconds(span.end_ms()), "bytes": bytes})
        })
        .collect();
    full_response(StatusCode::OK, "application/json", json!({ "windows": list }).to_string().into())
}

/// `/window?from=&to=&format=`: the stored windows of a time span, merged; by default the last minute.
pub(super) async fn window(
    state: &DaemonState,
    query: Option<&str>,
    permit: OwnedSemaphorePermit,
) -> HttpResponse {
    let asked = || -> Result<_, String> {
        let names = [&["from", "to", "format"][..], &SampleQuery::NAMES].concat();
        let query = Query::parse(query, &names)?;
        let to = query.time_ms("to")?.unwrap_or_else(now_ms);
        let from = query.time_ms("from")?.unwrap_or_else(|| to.saturating_sub(60_000));
        if from >= to || u128::from(to - from) > MAX_SPAN.as_millis() {
            return Err(format!("from must be before to, by at most {} s", MAX_SPAN.as_secs()));
        }
        Ok((from, to, of_query(state, &query)?))
    };
    let (from, to, wanted) = match asked() {
        Ok(asked) => asked,
        Err(said) => return text_response(StatusCode::BAD_REQUEST, &said),
    };
    let Some(store) = &state.store else {
        return text_response(StatusCode::NOT_FOUND, "no windows are kept");
    };
    let files: Vec<WindowSource> =
        store.list(from, to).into_iter().map(|window| WindowSource::File(store.path(window.span))).collect();
    if files.is_empty() {
        return text_response(
            StatusCode::NOT_FOUND,
            "no stored window covers this time; /windows lists the stored windows",
        );
    }
    respond_with_profile(files, wanted, permit).await
}

/// `/profile?seconds=&format=`: the windows from the current one on, until `seconds` have passed.
pub(super) async fn profile(
    state: &DaemonState,
    query: Option<&str>,
    permit: OwnedSemaphorePermit,
) -> HttpResponse {
    let asked = || -> Result<_, String> {
        let names = [&["seconds", "format"][..], &SampleQuery::NAMES].concat();
        let query = Query::parse(query, &names)?;
        Ok((query.seconds()?, of_query(state, &query)?))
    };
    let (seconds, wanted) = match asked() {
        Ok(asked) => asked,
        Err(said) => return text_response(StatusCode::BAD_REQUEST, &said),
    };
    let mut windows = state.windows.subscribe();
    let from = Instant::now();
    let until = from + Duration::from_secs(seconds);
    let mut taken: Vec<WindowSource> = Vec::new();
    loop {
        match tokio::time::timeout(state.window, windows.recv()).await {
            // Windows arrive late while JVMs are being attached to, also some from before the request.
            Ok(Ok(window)) if window.ended <= from => {}
            Ok(Ok(window)) => {
                let ended = window.ended;
                taken.push(WindowSource::Live(window));
                if ended >= until {
                    return respond_with_profile(taken, wanted, permit).await;
                }
            }
            Ok(Err(RecvError::Lagged(missed))) => {
                let why = format!("{missed} windows came faster than they were taken; ask again later");
                return text_response(StatusCode::SERVICE_UNAVAILABLE, &why);
            }
            Ok(Err(RecvError::Closed)) => {
                return text_response(StatusCode::SERVICE_UNAVAILABLE, "sampling has ended");
            }
            // A window arrives after its end, and even later while JVMs are being attached to.
            Err(_) => {
                if let Err(why) = state.expects_windows() {
                    return text_response(
                        StatusCode::SERVICE_UNAVAILABLE,
                        &format!("no profiles are stored: {why}"),
                    );
                }
            }
        }
    }
}

fn of_query(state: &DaemonState, query: &Query) -> Result<ProfileRequest, String> {
    Ok(ProfileRequest {
        samples: query.sample_query()?,
        format: query.format()?,
        window_ms: state.window_ms(),
    })
}

/// Makes a profile. The work goes on when the client hangs up, so the permit stays with it until its end.
async fn respond_with_profile(
    windows: Vec<WindowSource>,
    wanted: ProfileRequest,
    permit: OwnedSemaphorePermit,
) -> HttpResponse {
    let format = wanted.format;
    let work = move || {
        let made = encode_profile(&windows, &wanted);
        drop(permit);
        made
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(Some(body))) => full_response(StatusCode::OK, format.media_type, body),
        Ok(Ok(None)) => text_response(StatusCode::NOT_FOUND, "no sample of that time matches the query"),
        Ok(Err(error)) => text_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        Err(_) => text_response(StatusCode::INTERNAL_SERVER_ERROR, "making the profile failed"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;
    use crate::daemon::sinks::Sinks;
    use crate::daemon::state::Phase;
    use crate::daemon::window::PackedWindow;
    use crate::profile::{Labels, Profile};
    use crate::sample::Event;

    /// Windows end by the monotonic clock; the wall clock must not matter.
    #[test]
    fn a_profile_takes_as_long_as_was_asked_for_whatever_the_clock_is_set_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let state = DaemonState::new(Duration::from_millis(10), None, Sinks::default(), None);
        state.enter(Phase::Sampling);
        let packed = |count, ended| {
            let mut profile = Profile::new();
            profile.add(&Labels::default(), &[], count, count);
            let accounts = profile.accounts_mut(Event::Cpu);
            (accounts.taken, accounts.kept) = (count, count);
            // 1970, as if the wall clock had been set back far.
            profile.span.duration_ns = 1_000_000_000;
            Arc::new(PackedWindow::pack(&profile, ended).unwrap())
        };
        let answer = runtime.block_on(async {
            let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let asked = profile(&state, Some("seconds=100&format=folded"), permit);
            let come = async {
                let now = Instant::now();
                // The first one ended before the request, and is late.
                let _ = state.windows.send(packed(4000, now - Duration::from_secs(1)));
                for (count, seconds) in [(1, 50), (20, 200), (300, 300)] {
                    let _ = state.windows.send(packed(count, now + Duration::from_secs(seconds)));
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

    /// The work cannot be broken off, so it counts as a profile that is being made until it has ended.
    #[test]
    fn a_client_that_hangs_up_keeps_its_permit_until_the_work_has_ended() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("window");
        // The work waits until the pipe has a writer.
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let permits = Arc::new(Semaphore::new(1));
            let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
            let query = Query::parse(None, &[]).unwrap();
            let wanted = ProfileRequest {
                samples: query.sample_query().unwrap(),
                format: query.format().unwrap(),
                window_ms: 1000,
            };
            let windows = vec![WindowSource::File(pipe.clone())];
            let mut response = Box::pin(respond_with_profile(windows, wanted, permit));
            let begun = std::future::poll_fn(|context| {
                std::task::Poll::Ready(response.as_mut().poll(context).is_pending())
            });
            assert!(begun.await);
            drop(response);
            assert_eq!(permits.available_permits(), 0);
            // Opening the pipe returns when the work reads it.
            tokio::task::spawn_blocking(move || drop(std::fs::File::create(pipe).unwrap())).await.unwrap();
            let _permit = permits.acquire().await.unwrap();
        });
    }
}
