//! The first events of live pages: each has all windows of the last minutes, and takes several megabytes while it is made.
//! They are made one after the other, and pages that are opened between two windows share one event. The next event is
//! begun after the end of the one before, also if the page that wanted it is gone.

use std::sync::Arc;

use anyhow::Context as _;
use hyper::body::Bytes;
use tokio::sync::Mutex;

/// What the first event of a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstEventKey {
    /// How many seconds back from now the page shows.
    pub(super) seconds: u64,
    /// The number of the newest window in the event. A page gets each later window as an event of its own, so it must not
    /// get an older first event.
    pub(super) newest: u64,
}

struct FirstEvent {
    key: FirstEventKey,
    bytes: Bytes,
}

/// The first event that was made last.
#[derive(Default)]
pub(in crate::daemon) struct FirstEvents {
    last: Arc<Mutex<Option<FirstEvent>>>,
}

impl FirstEvents {
    /// The event of a key. `make` makes the event on a thread of its own, unless it is the one that was made last.
    ///
    /// # Errors
    /// The error of `make`, of which nothing is kept.
    pub(super) async fn get(
        &self,
        key: FirstEventKey,
        make: impl FnOnce() -> anyhow::Result<Bytes> + Send + 'static,
    ) -> anyhow::Result<Bytes> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(known) = last.as_ref().filter(|known| known.key == key) {
            return Ok(known.bytes.clone());
        }
        let work = move || {
            // The old event must not take memory while the new one is made.
            *last = None;
            let bytes = make()?;
            *last = Some(FirstEvent { key, bytes: bytes.clone() });
            Ok(bytes)
        };
        tokio::task::spawn_blocking(work).await.context("making the profile failed")?
    }

    /// Forgets the event after a new window: no page gets it any more. An event that is being made stays.
    pub(in crate::daemon) fn forget(&self) {
        if let Ok(mut last) = self.last.try_lock() {
            *last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const KEY: FirstEventKey = FirstEventKey { seconds: 300, newest: 10 };

    /// Counts the events that were made, and those that are being made now.
    #[derive(Clone, Default)]
    struct Makers {
        made: Arc<AtomicUsize>,
        at_once: Arc<AtomicUsize>,
    }

    impl Makers {
        /// Makes an event, after `go`.
        fn make(&self, go: Option<Receiver<()>>) -> impl FnOnce() -> anyhow::Result<Bytes> + Send + 'static {
            let Makers { made, at_once } = self.clone();
            move || {
                assert_eq!(at_once.fetch_add(1, SeqCst), 0, "one event at a time");
                if let Some(go) = go {
                    go.recv()?;
                }
                at_once.fetch_sub(1, SeqCst);
                Ok(vec![1; made.fetch_add(1, SeqCst) + 1].into())
            }
        }
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn pages_that_are_opened_at_once_share_one_event() {
        run(async {
            let (events, makers) = (FirstEvents::default(), Makers::default());
            let (send, go) = channel();
            // All pages ask before the event is ready.
            let begin = async {
                tokio::task::yield_now().await;
                send.send(()).unwrap();
            };
            let get = || events.get(KEY, makers.make(None));
            let all = tokio::join!(events.get(KEY, makers.make(Some(go))), get(), get(), get(), begin);
            let first = all.0.unwrap();
            for event in [all.1, all.2, all.3] {
                assert_eq!(event.unwrap().as_ptr(), first.as_ptr(), "the same memory");
            }
            assert_eq!(makers.made.load(SeqCst), 1);
            // A newer window or another time is another event, and so is one after `forget`.
            let later = FirstEventKey { newest: 20, ..KEY };
            let longer = FirstEventKey { seconds: 900, ..KEY };
            let _ = tokio::join!(events.get(later, makers.make(None)), events.get(longer, makers.make(None)));
            assert_eq!(makers.made.load(SeqCst), 3);
            events.forget();
            events.get(longer, makers.make(None)).await.unwrap();
            assert_eq!(makers.made.load(SeqCst), 4);
        });
    }

    /// The making cannot be broken off, so it keeps its place.
    #[test]
    fn an_event_of_a_page_that_is_gone_is_finished_before_the_next_one() {
        run(async {
            let (events, makers) = (FirstEvents::default(), Makers::default());
            let (send, go) = channel();
            let mut gone = Box::pin(events.get(KEY, makers.make(Some(go))));
            assert!(is_pending(&mut gone).await, "it waits");
            drop(gone);
            let later = FirstEventKey { newest: 20, ..KEY };
            let mut next = Box::pin(events.get(later, makers.make(None)));
            assert!(is_pending(&mut next).await, "the first event is being made");
            send.send(()).unwrap();
            assert_eq!(next.await.unwrap().len(), 2);
        });
    }

    /// Polls a future once. Returns whether it is pending.
    async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }

    #[test]
    fn a_failure_is_not_kept() {
        run(async {
            let events = FirstEvents::default();
            let failed = events.get(KEY, || anyhow::bail!("full")).await;
            assert_eq!(failed.unwrap_err().to_string(), "full");
            assert_eq!(events.get(KEY, || Ok("x".into())).await.unwrap(), "x");
        });
    }
}
