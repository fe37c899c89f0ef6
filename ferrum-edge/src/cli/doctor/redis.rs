//! Redis servers that plugins count in: whether they answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use gateway_core::config::model::{BackendTls, Model};
use gateway_protocols::tls::client;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Findings;

const CHECK: &str = "redis";
/// The port of Redis unless something else is said.
const PORT: u16 = 6379;
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 4096;

/// Asks each server that a plugin's settings name under `redis`.
pub(super) async fn look(findings: &mut Findings, model: &Model, limit: Duration) {
    let mut servers = BTreeMap::new();
    for config in &model.plugin_configs {
        let settings = &config.config.value()["redis"];
        for url in settings["urls"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            servers.entry(url.to_owned()).or_insert_with(|| (settings.clone(), config.id.to_string()));
        }
    }
    for (url, (settings, plugin)) in servers {
        let shown = shown(&url);
        let answer = tokio::time::timeout(limit, ask(&url, &settings)).await;
        match answer.unwrap_or_else(|_| Err("it does not answer in time".to_owned())) {
            Ok(()) => findings.ok(CHECK, shown, "it answers"),
            Err(error) => {
                let message = format!("{error} (plugin config `{plugin}`)");
                findings.error(
                    CHECK,
                    (shown, message),
                    "start it, or correct address, user and password; until then `on_error` decides",
                );
            }
        }
    }
}

/// The address without user and password.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

async fn ask(url: &str, settings: &Value) -> Result<(), String> {
    let uri: Uri = url.parse().map_err(|_| "this is not an address".to_owned())?;
    let host = uri.host().ok_or("this is not an address")?.trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(PORT)));
    let stream = stream.await.map_err(|error| format!("no connection: {error}"))?;
    let in_url =
        uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(user, _)| user);
    let in_url = in_url.and_then(|user| user.split_once(':'));
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let given = |name: &str| settings[name].as_str().map(str::to_owned);
    let password = given("password").or_else(|| in_url.map(|(_, password)| decoded(password)));
    let user =
        given("username").or_else(|| in_url.map(|(user, _)| decoded(user)).filter(|user| !user.is_empty()));
    let mut words: Vec<Vec<String>> = Vec::new();
    if let Some(password) = password {
        words.push(["AUTH".to_owned()].into_iter().chain(user).chain([password]).collect());
    }
    words.push(vec!["PING".to_owned()]);
    if uri.scheme_str() != Some("rediss") {
        return ping(stream, &words).await;
    }
    let ca_path = settings["ca_path"].as_str().map(Into::into);
    let rules = BackendTls { verify: true, ca_path, client_cert: None, server_name: None };
    let config = client::build(&rules, None).map_err(|error| error.to_string())?;
    let name = client::server_name(&rules, &host).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    ping(stream.map_err(|error| format!("the TLS handshake fails: {error}"))?, &words).await
}

/// Sends commands one by one and reads a line for each (RESP).
async fn ping(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    commands: &[Vec<String>],
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("it does not answer: {error}");
    for words in commands {
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(text.as_bytes()).await.map_err(failed)?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") && line.len() < MAX_ANSWER {
            line.push(stream.read_u8().await.map_err(failed)?);
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(error) = line.strip_prefix('-') {
            return Err(format!("it refuses: {}", error.trim()));
        }
        if !line.starts_with('+') {
            return Err("it answers as no Redis does".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::duplex;

    use super::*;

    async fn answered(
        answers: &'static [&'static str],
        commands: &[&[&str]],
    ) -> (Result<(), String>, String) {
        let (ours, mut theirs) = duplex(4096);
        let server = tokio::spawn(async move {
            let (mut seen, mut buffer) = (String::new(), [0; 4096]);
            for answer in answers {
                let read = theirs.read(&mut buffer).await.unwrap();
                seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
                theirs.write_all(answer.as_bytes()).await.unwrap();
            }
            seen
        });
        let commands: Vec<Vec<String>> =
            commands.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect()).collect();
        let result = ping(ours, &commands).await;
        (result, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_server_answers_or_says_why_not() {
        let (result, seen) =
            answered(&["+OK\r\n", "+PONG\r\n"], &[&["AUTH", "ann", "pässword"], &["PING"]]).await;
        assert_eq!(result, Ok(()));
        assert_eq!(seen, "*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n$9\r\npässword\r\n*1\r\n$4\r\nPING\r\n");
        let (result, _) = answered(&["-NOAUTH Authentication required.\r\n"], &[&["PING"]]).await;
        assert_eq!(result, Err("it refuses: NOAUTH Authentication required.".to_owned()));
        let (result, _) = answered(&["HTTP/1.1 400 Bad Request\r\n"], &[&["PING"]]).await;
        assert!(result.unwrap_err().contains("as no Redis does"));
        let (result, _) = answered(&[""], &[&["PING"]]).await;
        assert!(result.is_err());
    }

    #[tokio::test]
    async fn passwords_are_not_shown_and_bad_addresses_are_told() {
        assert_eq!(shown("rediss://ann:p@ss@cache:6380/1"), "rediss://cache:6380/1");
        assert!(ask("redis://", &json!({})).await.is_err());
    }
}
