//! Where content that is not the target's own response comes from: a folder, a server or an upstream.

use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Millis;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::world::calls::{Client, Endpoint, Server};
use gateway_core::plugin::{Seat, World};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode};

use super::static_files::StaticFiles;

/// The settings that name a source: exactly one of them.
pub(super) struct SourceConfig {
    pub(super) root: Option<PathBuf>,
    pub(super) url: Option<String>,
    pub(super) upstream_id: Option<String>,
}

/// A source.
pub(super) enum Source {
    Files(Arc<StaticFiles>),
    Server { client: Client, base: String },
}

impl Source {
    /// Compiles the settings at `at`; a server may take `timeout` to send the head of its response.
    pub(super) fn read(
        at: &str,
        config: SourceConfig,
        timeout: Millis,
        world: &World,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut server = |endpoint: Endpoint, base: String| {
            let endpoint = Endpoint { max_response: u64::MAX, ..endpoint };
            match world.client(endpoint.within_setting(timeout.duration(), "timeout")) {
                Ok(client) => Some(Self::Server { client, base }),
                Err(more) => {
                    problems.add(at, more.to_string());
                    None
                }
            }
        };
        match (config.root, config.url, config.upstream_id) {
            (Some(root), None, None) => match StaticFiles::of_folder(root, world) {
                Ok(files) => Some(Self::Files(Arc::new(files))),
                Err(error) => {
                    problems.add(format!("{at}.root"), format!("cannot be served: {error}"));
                    None
                }
            },
            (None, Some(url), None) => match Endpoint::of_url(&url) {
                Ok((endpoint, uri)) => server(endpoint, uri.path().trim_end_matches('/').to_owned()),
                Err(message) => {
                    problems.add(format!("{at}.url"), message);
                    None
                }
            },
            (None, None, Some(id)) => {
                server(Endpoint::new(Server::Upstream(Arc::from(id)), false), String::new())
            }
            _ => {
                problems.add(at, "needs exactly one of `root`, `url` and `upstream_id`");
                None
            }
        }
    }

    /// What is at a path, as the response to GET, or to HEAD where that is the request's method. `path` is decoded, `encoded` is the same
    /// as a server is asked for it, with its query and without a slash at the beginning. A server receives the client's header fields.
    ///
    /// # Errors
    /// The reply of a source that cannot send it.
    pub(super) async fn fetch(
        &self,
        exchange: &mut Exchange,
        path: &str,
        encoded: &str,
        seat: Seat<'_>,
    ) -> Result<Response<Body>, Box<Reply>> {
        match self {
            Self::Files(files) => {
                let reply = files.serve_path(exchange, path, seat).await;
                match reply.is_error {
                    Some(false) => Ok(exchange.response_of(*reply)),
                    _ => Err(reply),
                }
            }
            Self::Server { client, base } => ask(client, exchange, &format!("{base}/{encoded}")).await,
        }
    }
}

/// The response of another server, which receives the client's header fields and no body.
async fn ask(client: &Client, exchange: &mut Exchange, target: &str) -> Result<Response<Body>, Box<Reply>> {
    let method = if *exchange.method() == Method::HEAD { Method::HEAD } else { Method::GET };
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    request.headers_mut().clone_from(&exchange.request.headers);
    for (name, value) in exchange.forwarding.fields() {
        request.headers_mut().append(name, value.clone());
    }
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, CONTENT_TYPE, EXPECT, HOST] {
        request.headers_mut().remove(name);
    }
    let bad = |_| {
        Box::new(Reply::new(Cause::Plugin).status(StatusCode::BAD_GATEWAY).reason("internal_redirect_name"))
    };
    *request.uri_mut() = target.parse().map_err(bad)?;
    client.send(request).await.map_err(|error| {
        exchange.note_failure(error.to_string());
        Box::new(Reply::new(error.cause))
    })
}
