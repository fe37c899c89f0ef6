//! An authorization server as Authelia, Authentik, oauth2-proxy and Vouch answer proxies that ask it.

use std::net::SocketAddr;

use tokio::task::JoinSet;

use crate::support::h1::{Head, Talker};
use crate::support::wire::{Port, Wire};

/// A running authorization server; gone when dropped.
///
/// The cookie `sso=NAME` is a session, `sso=blocked` one that may not come in. Where there is none, paths of `forward-auth` and
/// `caddy` are answered by a redirect, as Authelia and Authentik do, others by 401.
pub(super) struct AuthServer {
    pub(super) address: SocketAddr,
    _task: JoinSet<()>,
}

impl AuthServer {
    pub(super) async fn start() -> Self {
        let port = Port::listen_on(SocketAddr::from(([127, 0, 0, 1], 0)), None).await;
        let address = port.address;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let io = port.accept_ever().await;
                connections.spawn(serve(Talker::new(Wire::new_patient(io))));
            }
        });
        Self { address, _task: task }
    }
}

/// What it was asked, in one line: the target and the backends of the login see it.
fn request_line_and_fields(head: &Head) -> String {
    let line = head.line.trim_end_matches(" HTTP/1.0").trim_end_matches(" HTTP/1.1");
    let names = ["x-original-url", "x-forwarded-uri", "x-token", "content-type"];
    let fields = names.map(|name| format!("{name}={}", head.field(name)));
    format!("{line} {}", fields.join(" "))
}

fn answer(head: &Head) -> (u16, Vec<(&'static str, String)>) {
    let cookies = head.field("cookie").to_owned();
    let session = cookies.split("; ").find_map(|pair| pair.strip_prefix("sso=")).unwrap_or_default();
    let path = head.line.split(' ').nth(1).unwrap_or_default();
    if path.starts_with("/oauth2/sign_in") || path.contains("/start") {
        return (200, vec![("x-origin", "login".to_owned())]);
    }
    match session {
        "" => {
            let status = if path.contains("forward-auth") || path.contains("caddy") { 302 } else { 401 };
            let url = "https://auth.test/?rd=back".to_owned();
            (status, vec![("location", url), ("x-vouch-err", "none".into()), ("set-cookie", "csrf=1".into())])
        }
        "blocked" => (403, Vec::new()),
        "broken" => (500, Vec::new()),
        name => {
            let fields = ["remote-user", "x-authentik-username", "x-auth-request-user", "x-vouch-user"];
            let mut made: Vec<(&str, String)> = fields.map(|field| (field, name.to_owned())).into();
            made.push(("remote-name", request_line_and_fields(head)));
            made.push(("set-cookie", "renewed=1".into()));
            (200, made)
        }
    }
}

async fn serve(mut talker: Talker) {
    while let Ok(head) = talker.request().await {
        if talker.body().await.is_err() {
            return;
        }
        let (status, fields) = answer(&head);
        let mut sent: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        sent.push(("content-length", "0"));
        if talker.send_head(&format!("HTTP/1.1 {status} Auth"), &sent, Some(0)).await.is_err() {
            return;
        }
    }
}
