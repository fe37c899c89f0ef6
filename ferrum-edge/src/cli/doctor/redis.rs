//! Redis servers that plugins count in: whether they answer, and run scripts for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use gateway_core::config::model::{BackendTls, Model, RedisMode, RedisServer};
use gateway_protocols::tls::client::{self, ClientTlsError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Findings;

/// Plugins run scripts that write: this one writes a key that is gone after a second.
const SCRIPT: &str = "return redis.call('SET', KEYS[1], '1', 'PX', 1000)";
/// Its SHA-1, by which scripts are run.
const SCRIPT_SHA: &str = "50080d91a103c84d0b5032f627e86d636bf3bd2a";
const CHECK: &str = "redis";
/// The port of Redis unless something else is said.
const PORT: u16 = 6379;
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 16 << 10;

/// Asks each server of `gateway.redis`.
pub(super) async fn look(findings: &mut Findings, model: &Model, limit: Duration) {
    for (name, server) in model.settings.redis.iter().flat_map(|servers| servers.iter()) {
        for url in &server.urls {
            let answer = tokio::time::timeout(limit, ask(url, server)).await;
            match answer.unwrap_or(Err(RedisFault::Late)) {
                Ok(()) if server.mode == RedisMode::Single => {
                    findings.ok(CHECK, url.to_string(), "it answers and runs scripts");
                }
                Ok(()) => findings.ok(CHECK, url.to_string(), "it answers"),
                Err(error) => {
                    let message = format!("{error} (`gateway.redis.{name}`)");
                    findings.error(CHECK, url.to_string(), message, "start it, or correct address, user and password; until then the plugins' `on_error` decides");
                }
            }
        }
    }
}

/// Why a server is of no use to plugins.
#[derive(Debug, thiserror::Error)]
enum RedisFault {
    #[error("this is not an address")]
    Address,
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    #[error(transparent)]
    Tls(#[from] ClientTlsError),
    #[error("the TLS handshake fails: {0}")]
    Handshake(#[source] io::Error),
    #[error("it does not answer in time")]
    Late,
    #[error("it does not answer: {0}")]
    Answer(#[source] io::Error),
    /// In its own words.
    #[error("it refuses: {0}")]
    Refused(String),
    #[error("it answers {asked} without `{expected}`")]
    Unexpected { asked: String, expected: &'static str },
    #[error("it answers as no Redis does")]
    Foreign,
}

async fn ask(url: &str, server: &RedisServer) -> Result<(), RedisFault> {
    let uri: Uri = url.parse().map_err(|_| RedisFault::Address)?;
    let host = uri.host().ok_or(RedisFault::Address)?.trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(PORT)));
    let stream = stream.await.map_err(RedisFault::Connect)?;
    let commands = commands(server);
    if !server.is_encrypted {
        return talk(stream, &commands).await;
    }
    let (ca_path, client_cert) = (server.ca_path.clone(), server.client_cert.clone());
    let rules = BackendTls { verify: true, ca_path, client_cert, server_name: None };
    let config = client::build(&rules, None)?;
    let name = client::server_name(&rules, &host)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    talk(stream.map_err(RedisFault::Handshake)?, &commands).await
}

/// A command.
struct Command {
    words: Vec<String>,
    /// What its answer must contain.
    expected: &'static str,
}

/// Whether it answers, and knows what it is asked for: a sentinel its master, a cluster that it is whole. A server by itself is
/// asked what plugins ask: it may let somebody in who may run no scripts there, or have no memory left.
fn commands(server: &RedisServer) -> Vec<Command> {
    let command = |words: &[&str], expected| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Command { words, expected }
    };
    let is_sentinel = matches!(server.mode, RedisMode::Sentinel(_));
    let login = if is_sentinel { &server.sentinel_login } else { &server.login };
    let mut commands = Vec::new();
    if let Some(login) = login {
        let user = login.username.as_deref();
        let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([&*login.password]).collect();
        commands.push(command(&words, ""));
    }
    match &server.mode {
        RedisMode::Single => {
            let key = format!("{}:doctor", server.key_prefix);
            commands.push(command(&["PING"], "PONG"));
            commands.push(command(&["SCRIPT", "LOAD", SCRIPT], SCRIPT_SHA));
            commands.push(command(&["EVALSHA", SCRIPT_SHA, "1", &key], "OK"));
        }
        RedisMode::Cluster => commands.push(command(&["CLUSTER", "INFO"], "cluster_state:ok")),
        RedisMode::Sentinel(master) => commands.push(command(&["SENTINEL", "MASTER", master], "name")),
    }
    commands
}

/// Sends commands one by one and reads the answer to each (RESP).
async fn talk(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    commands: &[Command],
) -> Result<(), RedisFault> {
    for Command { words, expected } in commands {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(text.as_bytes()).await.map_err(RedisFault::Answer)?;
        let answer = answer(&mut stream).await?;
        if !answer.contains(expected) {
            return Err(RedisFault::Unexpected { asked: words.join(" "), expected });
        }
    }
    Ok(())
}

/// The text of an answer: a line, or a string of a given length; of a list, its first element.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, RedisFault> {
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") && line.len() < MAX_ANSWER {
            line.push(stream.read_u8().await.map_err(RedisFault::Answer)?);
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number <= MAX_ANSWER);
        match line.split_at_checked(1) {
            Some(("-", error)) => return Err(RedisFault::Refused(error.to_owned())),
            Some(("+" | ":", text)) => return Ok(text.to_owned()),
            Some(("$", length)) if number(length).is_some() => {
                let mut text = vec![0; number(length).unwrap_or(0)];
                stream.read_exact(&mut text).await.map_err(RedisFault::Answer)?;
                // The end of its line, so that the next answer begins where it does.
                stream.read_exact(&mut [0; 2]).await.map_err(RedisFault::Answer)?;
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            Some(("*", many)) if number(many).is_some_and(|many| many > 0) => {}
            _ => return Err(RedisFault::Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use gateway_core::config::file::Gateway;
    use gateway_core::config::resolve::{ObjectPlace, settings};
    use serde_json::{Value, json};
    use tokio::io::duplex;

    use super::*;

    fn server(of: &Value) -> Arc<RedisServer> {
        let gateway: Gateway = serde_json::from_value(json!({ "redis": { "a": of } })).unwrap();
        let place = ObjectPlace { at: "gateway", folder: std::path::Path::new("") };
        settings(&gateway, place).unwrap().redis.unwrap()["a"].clone()
    }

    const LOADED: &str = "$40\r\n50080d91a103c84d0b5032f627e86d636bf3bd2a\r\n";

    async fn answered(answers: &'static [&'static str], of: &Value) -> (Result<(), String>, String) {
        let (ours, mut theirs) = duplex(4096);
        let server_side = tokio::spawn(async move {
            let (mut seen, mut buffer) = (String::new(), [0; 4096]);
            for answer in answers {
                let read = theirs.read(&mut buffer).await.unwrap();
                seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
                theirs.write_all(answer.as_bytes()).await.unwrap();
            }
            seen
        });
        let result = talk(ours, &commands(&server(of))).await;
        (result.map_err(|error| error.to_string()), server_side.await.unwrap())
    }

    #[tokio::test]
    async fn a_server_answers_or_says_why_not() {
        let url = json!(["redis://a"]);
        let with_login = json!({ "urls": url, "username": "ann", "password": "pässword" });
        let (result, seen) = answered(&["+OK\r\n", "+PONG\r\n", LOADED, "+OK\r\n"], &with_login).await;
        assert_eq!(result, Ok(()));
        let begin =
            "*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$9\r\npässword\r\n*1\r\n$4\r\nPING\r\n*3\r\n$6\r\nSCRIPT\r\n";
        assert!(seen.starts_with(begin), "{seen}");
        assert!(seen.ends_with("$1\r\n1\r\n$13\r\nferrum:doctor\r\n"), "{seen}");
        let plain = json!({ "urls": url });
        let (result, _) = answered(&["-NOAUTH Authentication required.\r\n"], &plain).await;
        assert_eq!(result, Err("it refuses: NOAUTH Authentication required.".to_owned()));
        let (result, _) = answered(&["HTTP/1.1 400 Bad Request\r\n"], &plain).await;
        assert!(result.unwrap_err().contains("as no Redis does"));
        const REFUSED: &str = "-NOPERM User edge has no permissions to run the 'evalsha' command\r\n";
        let (result, _) = answered(&["+PONG\r\n", LOADED, REFUSED], &plain).await;
        assert!(result.unwrap_err().contains("NOPERM"));
        assert!(answered(&[""], &plain).await.0.is_err());
        assert!(answered(&["$99999999\r\n"], &plain).await.0.is_err());
    }

    #[tokio::test]
    async fn clusters_must_be_whole_and_sentinels_know_the_master() {
        let cluster = json!({ "urls": ["redis://a"], "mode": "cluster" });
        assert_eq!(answered(&["$16\r\ncluster_state:ok\r\n"], &cluster).await.0, Ok(()));
        let broken = answered(&["$18\r\ncluster_state:fail\r\n"], &cluster).await.0;
        assert!(broken.unwrap_err().contains("cluster_state:ok"));
        let login = json!({ "urls": ["redis://a"], "mode": "sentinel", "master_name": "m", "password": "of redis",
            "sentinel_password": "s" });
        let (result, seen) = answered(&["+OK\r\n", "*2\r\n$4\r\nname\r\n$1\r\nm\r\n"], &login).await;
        assert_eq!(result, Ok(()));
        assert!(seen.ends_with("$6\r\nMASTER\r\n$1\r\nm\r\n") && !seen.contains("of redis"), "{seen}");
        let unknown = answered(&["+OK\r\n", "-ERR No such master with that name\r\n"], &login).await.0;
        assert!(unknown.unwrap_err().contains("No such master"));
    }
}
