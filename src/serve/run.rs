//! The server of a run with `--serve`: a thread that serves the page and sends each second's samples to pages that are
//! open.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::browser_page::{self, PageServer, ServedBy};
use super::connection::{ConnectionCloser, RequestHandler, serve};
use super::feed::{Feed, FeedChange, event, too_many_clients};
use super::guard::AccessCheck;
use super::listener::Listener;
use super::response::{HttpResponse, text_response};
use super::{Address, FeedStats};
use crate::output::{PictureOptions, page};
use crate::profile::{Profile, ProfileView};
use crate::sample::Event;

/// Seconds that may wait for the thread; further ones are merged.
const WAITING: usize = 4;
/// How long pages have to take the last event when the program ends.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// TCP address or Unix socket to listen on; port 0 takes a free one.
    pub address: Address,
    /// The file with the token that requests for profiles need.
    pub token_file: Option<PathBuf>,
    /// The sampled events, in the order of the page.
    pub events: Vec<Event>,
    /// The title of the page while the run goes on.
    pub title: String,
}

/// The server of a run.
pub struct RunServer {
    address: Address,
    site: Arc<RunSite>,
    messages: Sender<PageMessage>,
    /// Samples for which the queue had no room.
    pending: Option<Box<Profile>>,
}

enum PageMessage {
    Fresh(Box<Profile>),
    /// The packed document of the whole run.
    End(Vec<u8>),
}

impl RunServer {
    /// Listens, and serves the page from now on.
    ///
    /// # Errors
    /// One sentence: the address and what is wrong.
    pub fn start(config: ServeConfig) -> anyhow::Result<RunServer> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("--serve")?;
        let listener = runtime.block_on(Listener::bind(&config.address)).context("--serve")?;
        let address = listener.address(&config.address);
        let picture_options = PictureOptions { title: Some(config.title), ..PictureOptions::default() };
        let site = Arc::new(RunSite {
            feed: Feed::default(),
            guard: AccessCheck::new(config.token_file),
            events: config.events,
            picture_options,
            so_far: Mutex::default(),
        });
        let (messages, incoming) = channel(WAITING);
        let of_thread = Arc::clone(&site);
        std::thread::Builder::new()
            .name("page".into())
            .spawn(move || run(&runtime, listener, &of_thread, incoming))
            .context("starting the thread of --serve")?;
        Ok(RunServer { address, site, messages, pending: None })
    }

    /// Where the page is: a URL, or the socket.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.address {
            Address::Tcp(at) => format!("http://{at}/"),
            Address::Unix(_) => self.address.to_string(),
        }
    }

    /// Adds samples, without waiting.
    pub fn add(&mut self, fresh: Profile) {
        let all = match self.pending.take() {
            Some(mut pending) => {
                pending.merge(&fresh);
                pending
            }
            None => Box::new(fresh),
        };
        if let Err(TrySendError::Full(PageMessage::Fresh(all))) =
            self.messages.try_send(PageMessage::Fresh(all))
        {
            self.pending = Some(all);
        }
    }

    /// The run has ended with this profile: pages that are open show it, and those that are opened from now on.
    ///
    /// # Errors
    /// The profile cannot be encoded.
    pub fn end(&mut self, views: &[ProfileView<'_>], picture_options: &PictureOptions) -> anyhow::Result<()> {
        let document = page::packed(views, picture_options)?;
        self.messages.blocking_send(PageMessage::End(document)).context("the thread of --serve has ended")
    }

    /// Waits until the pages that are open have the whole run, at most two seconds.
    pub fn drain(&self) {
        let until = Instant::now() + LAST_EVENT_TIMEOUT;
        let is_read = || self.site.so_far().end.is_some() && self.site.feed.stats().clients == 0;
        while !is_read() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Numbers about the pages that are open.
    #[must_use]
    pub fn stats(&self) -> FeedStats {
        self.site.feed.stats()
    }
}

/// Serves until the other end of the queue is dropped.
fn run(runtime: &Runtime, listener: Listener, site: &Arc<RunSite>, mut messages: Receiver<PageMessage>) {
    runtime.block_on(async {
        tokio::spawn(serve(listener, Arc::clone(site)));
        while let Some(message) = messages.recv().await {
            match message {
                PageMessage::Fresh(profile) => site.add(&profile),
                PageMessage::End(document) => site.end(&document),
            }
        }
    });
}

struct RunSite {
    feed: Feed,
    guard: AccessCheck,
    events: Vec<Event>,
    picture_options: PictureOptions,
    so_far: Mutex<CumulativeProfile>,
}

#[derive(Default)]
struct CumulativeProfile {
    profile: Profile,
    /// The number of the last increment.
    id: u64,
    /// The event with the whole, for clients that join before the next increment.
    whole: Option<Bytes>,
    /// The last event, once the run has ended.
    end: Option<Bytes>,
}

impl RunSite {
    fn so_far(&self) -> MutexGuard<'_, CumulativeProfile> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn packed(&self, profile: &Profile) -> anyhow::Result<Vec<u8>> {
        let views: Vec<_> = self.events.iter().map(|event| profile.of_event(*event)).collect();
        page::packed(&views, &self.picture_options)
    }

    fn add(&self, fresh: &Profile) {
        let mut so_far = self.so_far();
        so_far.profile.merge(fresh);
        so_far.id += 1;
        so_far.whole = None;
        if self.feed.stats().clients == 0 {
            return;
        }
        match self.packed(fresh) {
            Ok(document) => self.feed.publish(&event(FeedChange::Increment, so_far.id, &document)),
            Err(error) => log::warn!("--serve: a second is not sent to pages: {error:#}"),
        }
    }

    fn end(&self, document: &[u8]) {
        let mut so_far = self.so_far();
        let event = event(FeedChange::End, so_far.id + 1, document);
        // The memory is not needed any more.
        *so_far =
            CumulativeProfile { id: so_far.id + 1, end: Some(event.clone()), ..CumulativeProfile::default() };
        self.feed.publish(&event);
        self.feed.end();
    }

    fn live(&self, hang_up: &ConnectionCloser) -> HttpResponse {
        let mut so_far = self.so_far();
        let Some(body) = self.feed.join(hang_up) else { return too_many_clients() };
        if let Some(end) = &so_far.end {
            self.feed.end();
            return body.response(end.clone());
        }
        if so_far.whole.is_none() {
            match self.packed(&so_far.profile) {
                Ok(document) => so_far.whole = Some(event(FeedChange::Whole, so_far.id, &document)),
                Err(error) => return text_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
            }
        }
        body.response(so_far.whole.clone().unwrap_or_default())
    }
}

impl RequestHandler for RunSite {
    async fn respond(&self, request: &Request<Incoming>, hang_up: &ConnectionCloser) -> HttpResponse {
        if request.method() != Method::GET {
            return text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood");
        }
        match request.uri().path() {
            "/" => browser_page::respond(&PageServer {
                of: ServedBy::Run,
                window_ms: 1000,
                token: self.guard.needs_token(),
            }),
            "/live" => self.guard.refuse(request.headers()).unwrap_or_else(|| self.live(hang_up)),
            _ => text_response(StatusCode::NOT_FOUND, "here are / and /live"),
        }
    }
}
