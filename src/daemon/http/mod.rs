//! The daemon's endpoints. Metrics and health are open to everyone who can reach their address; profiles need a local
//! request or a token.

mod answers;
mod live;
mod make;
mod query;
mod server;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};

use crate::serve::browser_page;
use crate::serve::response::{HttpResponse, say};
use crate::serve::{HangUp, Site};
pub(super) use make::look;
pub(super) use server::Server;

/// The endpoints of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    /// Metrics and health, without a token.
    Metrics,
    /// Metrics, health and profiles.
    Profiles,
}

/// What the daemon serves at an address.
pub(super) struct DaemonSite {
    pub(super) server: Arc<Server>,
    pub(super) surface: Surface,
}

impl Site for DaemonSite {
    async fn respond(&self, request: &Request<Incoming>, hang_up: &HangUp) -> HttpResponse {
        let server = &*self.server;
        if request.method() != Method::GET {
            return say(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood");
        }
        let path = request.uri().path();
        match path {
            "/metrics" => return answers::metrics(&server.state),
            "/healthz" => return answers::health(&server.state),
            "/readyz" => return answers::ready(&server.state),
            _ => {}
        }
        if self.surface == Surface::Metrics {
            return say(StatusCode::NOT_FOUND, "here are /metrics, /healthz and /readyz");
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
                let Ok(_permit) = server.profiles.try_acquire() else {
                    return say(
                        StatusCode::TOO_MANY_REQUESTS,
                        "enough profiles are being made; ask again later",
                    );
                };
                if path == "/profile" {
                    answers::profile(&server.state, query).await
                } else {
                    answers::window(&server.state, query).await
                }
            }
            _ => say(
                StatusCode::NOT_FOUND,
                "here are /, /live, /profile, /windows, /window, /metrics, /healthz and /readyz",
            ),
        }
    }
}
