//! The live feed: server-sent events for pages that are open. Each event is encoded once for all clients.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::ConnectionCloser;
use super::response::{HttpResponse, text_response, with_body};

/// Maximum number of clients; more are refused.
pub(crate) const MAX_CLIENTS: usize = 8;
/// Events that may wait for a client. A client with more unread events is disconnected.
const WAITING: usize = 8;

/// Numbers about the clients of a live feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Number of connected clients; at most eight.
    pub clients: usize,
    /// Clients that were refused because there were eight already.
    pub refused: u64,
    /// Clients that were disconnected because they did not read.
    pub slow: u64,
}

/// What an event does with the page's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedChange {
    /// The document replaces the page's.
    Whole,
    /// The document is added to the page's.
    Increment,
    /// The document replaces the page's, and no event follows.
    End,
}

impl FeedChange {
    fn name(self) -> &'static str {
        match self {
            FeedChange::Whole => "whole",
            FeedChange::Increment => "increment",
            FeedChange::End => "end",
        }
    }
}

/// An event as its clients get it. An increment whose `id` is not above that of the page's document is already in it.
pub(crate) fn event(change: FeedChange, id: u64, document: &[u8]) -> Bytes {
    let head = format!("event: {}\nid: {id}\ndata: ", change.name());
    [head.as_bytes(), document, b"\n\n"].concat().into()
}

struct FeedClient {
    queue: Sender<Bytes>,
    connection: ConnectionCloser,
}

pub(crate) struct Feed {
    clients: Mutex<Clients>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Clients {
    list: Vec<FeedClient>,
    refused: u64,
    slow: u64,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed { clients: Mutex::default(), places: Arc::new(Semaphore::new(MAX_CLIENTS)) }
    }
}

impl Feed {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stats(&self) -> FeedStats {
        let clients = self.clients();
        let now = MAX_CLIENTS - self.places.available_permits();
        FeedStats { clients: now, refused: clients.refused, slow: clients.slow }
    }

    /// Adds a client, which gets all events from now on. `None` if there are [`MAX_CLIENTS`].
    pub(crate) fn join(&self, connection: &ConnectionCloser) -> Option<LiveBody> {
        let mut clients = self.clients();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            clients.refused += 1;
            return None;
        };
        let (queue, events) = channel(WAITING);
        clients.list.push(FeedClient { queue, connection: connection.clone() });
        Some(LiveBody { first: None, events, _place: place })
    }

    /// Sends an event to all clients. A client whose queue is full is disconnected.
    pub(crate) fn publish(&self, event: &Bytes) {
        let mut clients = self.clients();
        let mut slow = 0;
        clients.list.retain(|client| match client.queue.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(_)) => {
                log::info!("HTTP: a live page is disconnected: it did not read {WAITING} events");
                client.connection.now();
                slow += 1;
                false
            }
        });
        clients.slow += slow;
    }

    /// Closes the feed: each client's response ends after the client's queued events.
    pub(crate) fn end(&self) {
        self.clients().list.clear();
    }
}

/// The response to a client beyond the limit.
pub(crate) fn too_many_clients() -> HttpResponse {
    let why = format!("{MAX_CLIENTS} live pages are open, which is the limit; try again later");
    text_response(StatusCode::SERVICE_UNAVAILABLE, &why)
}

/// The body of a response that gets the events of a feed.
pub(crate) struct LiveBody {
    first: Option<Bytes>,
    events: Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl LiveBody {
    /// The response, with an event before those of the feed.
    pub(crate) fn response(mut self, first: Bytes) -> HttpResponse {
        self.first = Some(first);
        with_body(StatusCode::OK, "text/event-stream; charset=utf-8", self)
    }
}

impl Body for LiveBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.events.poll_recv(context).map(|event| Some(Ok(Frame::data(event?))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn numbered(id: u64) -> Bytes {
        event(FeedChange::Increment, id, b"{}")
    }

    #[test]
    fn a_client_that_does_not_read_is_disconnected_and_others_go_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let feed = Feed::default();
            let connection = ConnectionCloser::default();
            let silent = feed.join(&connection).unwrap();
            let mut reader = feed.join(&ConnectionCloser::default()).unwrap();
            let all = 2 * WAITING as u64;
            for id in 0..all {
                feed.publish(&numbered(id));
                let got = reader.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(got, numbered(id));
            }
            assert_eq!(feed.stats(), FeedStats { clients: 2, refused: 0, slow: 1 });
            drop(silent);
            assert_eq!(feed.stats().clients, 1);
            feed.end();
            assert!(reader.frame().await.is_none(), "the response ends");
        });
    }

    #[test]
    fn one_client_too_many_is_refused() {
        let feed = Feed::default();
        let join = || feed.join(&ConnectionCloser::default());
        let mut bodies: Vec<_> = (0..MAX_CLIENTS).map(|_| join().unwrap()).collect();
        assert!(join().is_none());
        assert_eq!(feed.stats(), FeedStats { clients: MAX_CLIENTS, refused: 1, slow: 0 });
        bodies.pop();
        assert!(join().is_some(), "a client that is gone leaves its place");
    }

    #[test]
    fn events_have_the_form_of_server_sent_events() {
        assert_eq!(event(FeedChange::Whole, 7, b"{}"), "event: whole\nid: 7\ndata: {}\n\n");
    }
}
