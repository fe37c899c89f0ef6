//! rsyslog as the server of the syslog sinks: over UDP, TCP and TLS, also while it is stopped and started again.

use serde_json::Value;

use super::flapping::{BATCH, QUEUE, Traffic, counted, start};
use super::{start as start_quick, status};
use crate::support::rsyslog::Rsyslog;
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::tls;

/// The settings of a sink that sends to this server in this way.
fn sink(server: &Rsyslog, way: &str) -> String {
    let port = if way == "tls" { server.encrypted } else { server.plain };
    let ca = match way {
        "tls" => format!(", ca_path: {:?}", tls::authority().ca()),
        _ => String::new(),
    };
    format!("syslog: {{address: '{way}://127.0.0.1:{port}', facility: 17, app_name: edge{ca}}}")
}

/// What clients may send that could end a message early, forge another one, or is no text.
const HOSTILE: &[&[u8]] = &[
    b"GET /%0a<0>1%20forged?a=%0d%0ab HTTP/1.1\r\nhost: a.test\r\n\r\n",
    b"GET /a\"b\\c{}|<0> HTTP/1.1\r\nhost: a.test\r\nuser-agent: \"}\t<0>1 - forged\xff\xfe\r\n\r\n",
    b"GET /bytes HTTP/1.1\r\nhost: a.test\r\nuser-agent: \xc2\x85\xe2\x80\xa8\xf0\x9f\x92\xa5\r\n\r\n",
];

#[tokio::test]
async fn rsyslog_reads_each_record_as_one_message() {
    let origin = Standing::start("o").await;
    for way in ["udp", "tcp", "tls"] {
        let server = Rsyslog::start().await;
        let mut edge = start_quick(&origin, &sink(&server, way));
        for (n, request) in HOSTILE.iter().enumerate() {
            let mut wire = edge.wire().await;
            wire.send(request).await;
            wire.expect("HTTP/1.1 ").await;
            let record = edge.records.next().await.0;
            let messages = server.until(n + 1).await;
            assert_eq!(messages.len(), n + 1, "{way}: {messages:?}");
            let input = if way == "udp" { "imudp" } else { "imtcp" };
            let (head, line) = messages[n].split_once(" access - ").expect("a head");
            let words: Vec<&str> = head.split(' ').collect();
            // Facility 17, severity 6.
            assert_eq!(
                (words[0], words[1], words[2], words[4]),
                (input, "142", "1", "edge"),
                "{way}: {head}"
            );
            assert_eq!(words[5], std::process::id().to_string());
            let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            for field in ["url.path", "url.query", "user_agent.original", "http.response.status_code"] {
                assert_eq!(told[field], record[field], "{way}: {field}");
            }
        }
    }
}

/// The paths of the requests that the messages are of.
fn paths(messages: &[String]) -> Vec<&str> {
    let mut paths: Vec<&str> =
        messages.iter().map(|message| message.rsplit(' ').next().expect("a path")).collect();
    paths.sort_unstable();
    paths
}

#[tokio::test]
async fn records_that_a_stopped_rsyslog_did_not_take_are_counted_one_by_one() {
    let origin = Standing::start("o").await;
    for way in ["udp", "tcp", "tls"] {
        let mut server = Rsyslog::start().await;
        let sink = format!("{}, retry_for: 0ms, template: '${{request.path}}'", sink(&server, way));
        let mut traffic = Traffic { edge: start(&origin, &sink), made: 0 };
        // Datagrams to nobody are told of by the kernel, and count as refused.
        let lost = if way == "udp" { "refused" } else { "failed" };
        traffic.make(2 * BATCH).await;
        server.until(2 * BATCH).await;
        for round in 1..=2 {
            server.stop().await;
            traffic.make(BATCH).await;
            traffic.until_counted(lost, BATCH * round).await;
            server.start_again().await;
            traffic.make(BATCH).await;
            server.until((2 + round) * BATCH).await;
        }
        let made = traffic.made;
        let page = traffic.edge.meters_at_the_end().await;
        let [sent, lost] = ["sent", lost].map(|outcome| counted(&page, outcome));
        assert_eq!((sent, lost), (4 * BATCH, 2 * BATCH), "{way}: {page}");
        assert_eq!(sent + lost, made, "{way}");
        let messages = server.messages();
        let mut came = paths(&messages);
        came.dedup();
        assert_eq!((came.len(), messages.len()), (sent, sent), "{way}: none twice");
    }
}

#[tokio::test]
async fn records_wait_for_an_rsyslog_that_is_started_again_as_long_as_there_is_room() {
    let origin = Standing::start("o").await;
    for way in ["tcp", "tls"] {
        let mut server = Rsyslog::start().await;
        let sink = format!("{}, template: '${{request.path}}'", sink(&server, way));
        let mut traffic = Traffic { edge: start(&origin, &sink), made: 0 };
        traffic.make(BATCH).await;
        server.until(BATCH).await;
        server.stop().await;
        // One batch is on its way and fails, and the queue takes as many as it holds.
        traffic.make(BATCH).await;
        let admin = traffic.edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).expect("an admin listener");
        let failing = async { while !status(admin).await["log_sinks"][0]["last_error"].is_string() {} };
        soon(failing).await;
        traffic.make(QUEUE + 5).await;
        traffic.until_counted("queue_full", 5).await;
        server.start_again().await;
        server.until(2 * BATCH + QUEUE).await;
        let made = traffic.made;
        let page = traffic.edge.meters_at_the_end().await;
        let [sent, full, failed] = ["sent", "queue_full", "failed"].map(|outcome| counted(&page, outcome));
        assert_eq!((sent, full, failed), (made - 5, 5, 0), "{way}: {page}");
        assert_eq!(server.messages().len(), sent, "{way}: none twice");
    }
}
