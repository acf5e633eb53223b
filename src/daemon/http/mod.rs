//! The daemon's endpoints. Metrics and health are open to everyone who can reach their address; profiles need a local
//! request or a token.

mod answers;
mod first_events;
mod live;
mod make;
mod query;
mod server;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use crate::serve::browser_page;
use crate::serve::response::{HttpResponse, text_response};
use crate::serve::{ConnectionCloser, RequestHandler};
pub(super) use first_events::FirstEvents;
pub(super) use make::page_options;
pub(super) use server::Server;

/// The endpoints of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoints {
    /// Metrics and health, without a token.
    Metrics,
    /// Metrics, health and profiles.
    Profiles,
}

/// What the daemon serves at an address.
pub(super) struct DaemonSite {
    pub(super) server: Arc<Server>,
    pub(super) surface: Endpoints,
}

impl RequestHandler for DaemonSite {
    async fn respond(&self, request: &Request<Incoming>, hang_up: &ConnectionCloser) -> HttpResponse {
        let server = &*self.server;
        if request.method() != Method::GET {
            return text_response(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood");
        }
        let path = request.uri().path();
        match path {
            "/metrics" => return answers::metrics(&server.state),
            "/healthz" => return answers::health(&server.state),
            "/readyz" => return answers::ready(&server.state),
            _ => {}
        }
        if self.surface == Endpoints::Metrics {
            return text_response(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz");
        }
        if path == "/" {
            return browser_page::respond(&server.page());
        }
        if let Some(refusal) = server.guard.refuse(request.headers()) {
            return refusal;
        }
        let query = request.uri().query();
        match path {
            "/windows" => answers::windows(&server.state, query),
            "/live" => live::live(server, query, hang_up).await,
            "/profile" | "/window" => {
                let Ok(permit) = Arc::clone(&server.profiles).try_acquire_owned() else {
                    return text_response(
                        StatusCode::TOO_MANY_REQUESTS,
                        "enough profiles are being made; ask again later",
                    );
                };
                if path == "/profile" {
                    answers::profile(&server.state, query, permit).await
                } else {
                    answers::window(&server.state, query, permit).await
                }
            }
            _ => text_response(
                StatusCode::NOT_FOUND,
                "here are /, /live, /profile, /windows, /window, /metrics, /healthz and /readyz",
            ),
        }
    }
}
