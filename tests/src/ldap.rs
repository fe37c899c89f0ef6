//! Users of an LDAP directory, which the test starts: by name and by search, over TLS, StartTLS and plainly, with groups, with
//! wrong passwords, hostile names, and while the directory is away.

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::support::edge::Edge;
use crate::support::slapd::Slapd;
use crate::support::standing::Standing;
use crate::support::stream::free_port;
use crate::support::tls;
use crate::support::wire::{Port, Wire};

const SEARCH: &str = "search: {base_dn: 'ou=people,dc=example,dc=org', \
    bind_dn: 'uid=reader,ou=people,dc=example,dc=org', bind_password: readme";

/// A proxy whose callers are users of the directory, with more settings.
fn spec(origin: &Standing, config: &str) -> String {
    // Roots are for connections that are encrypted.
    let is_plain = config.contains("plaintext: true");
    let ca = if is_plain { String::new() } else { format!("ca_path: {:?}, ", tls::authority().ca()) };
    format!(
        "proxies:\n  - {{id: a, listen_path: /, {}, plugins: [{{plugin_config_id: p}}]}}\n\
         consumers:\n  - {{id: ann, username: ann, acl_groups: [known]}}\n\
         plugin_configs:\n  - {{id: p, plugin_name: ldap_auth, scope: proxy_group, config: {{{ca}{config}}}}}\n",
        origin.backend()
    )
}

/// As [`spec`], for callers of one group.
fn spec_of_group(origin: &Standing, config: &str, group: &str) -> String {
    let spec = spec(origin, config)
        .replace("[{plugin_config_id: p}]", "[{plugin_config_id: p}, {plugin_config_id: q}]");
    format!(
        "{spec}  - {{id: q, plugin_name: access_control, scope: proxy_group, config: {{allowed_groups: [{group}]}}}}\n"
    )
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            out.push(char::from(LETTERS[(bits >> (18 - 6 * n) & 63) as usize]));
        }
    }
    out
}

/// The status, and what the target was told.
async fn login(edge: &Edge, user: &str, password: &str) -> (u16, String) {
    let credentials = base64(&format!("{user}:{password}"));
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\nauthorization: Basic {credentials}\r\n\r\n");
    let (head, body) = edge.ask(&request).await;
    (head.status(), body)
}

#[tokio::test]
async fn users_bind_by_name_over_every_kind_of_connection() {
    let slapd = Slapd::start();
    let origin = Standing::start("o").await;
    for url in [
        format!("urls: ['ldaps://127.0.0.1:{}']", slapd.encrypted),
        format!("urls: ['ldap://127.0.0.1:{}'], start_tls: true", slapd.plain),
        format!("urls: ['ldap://127.0.0.1:{}'], plaintext: true", slapd.plain),
        // The first server is away.
        format!("urls: ['ldaps://127.0.0.1:{}', 'ldaps://127.0.0.1:{}']", free_port(), slapd.encrypted),
    ] {
        let config = format!("{url}, bind_dn: 'uid={{username}},ou=people,dc=example,dc=org'");
        let edge = Edge::start(&spec(&origin, &config));
        let (status, body) = login(&edge, "Ann", "sesame").await;
        assert_eq!(status, 200, "{url} {body}");
        assert!(body.contains("x-consumer-username: ann\n") && !body.contains("authorization"), "{body}");
        for (user, password) in [
            ("ann", "wrong"),
            ("ann", ""),
            ("nobody", "sesame"),
            ("ann,ou=people,dc=example,dc=org", "sesame"),
            ("ann,ou=people,dc=example,dc=org\\", "sesame"),
            ("*", "sesame"),
            (" ann", "sesame"),
        ] {
            let (status, _) = login(&edge, user, password).await;
            assert_eq!(status, 401, "{url} {user}:{password}");
        }
    }
}

#[tokio::test]
async fn users_are_searched_for_and_have_groups() {
    let slapd = Slapd::start();
    let origin = Standing::start("o").await;
    let url = format!("urls: ['ldaps://127.0.0.1:{}']", slapd.encrypted);
    let groups = "group_search: {base_dn: 'ou=groups,dc=example,dc=org'}";
    let config = format!("{url}, {SEARCH}}}, {groups}");
    for (group, ann, bob) in
        [("staff", 200, 200), ("admins", 200, 403), ("known", 200, 403), ("other", 403, 403)]
    {
        let edge = Edge::start(&spec_of_group(&origin, &config, group));
        assert_eq!(login(&edge, "ann", "sesame").await.0, ann, "{group}");
        assert_eq!(login(&edge, "BOB", "hunter2").await.0, bob, "{group}");
    }
    let edge = Edge::start(&spec(&origin, &config));
    for (user, password) in
        [("ann", "hunter2"), ("dora", "sesame"), ("*", "sesame"), ("a*", "sesame"), ("ann)(uid=*", "sesame")]
    {
        assert_eq!(login(&edge, user, password).await.0, 401, "{user}");
    }
    // Two entries with one mail: nobody.
    let by_mail = format!(
        "{url}, {SEARCH}, filter: '(mail={{username}})'}}, name_attribute: uid, group_attribute: departmentNumber"
    );
    let edge = Edge::start(&spec_of_group(&origin, &by_mail, "staff"));
    let (status, body) = login(&edge, "ann@example.org", "sesame").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("x-consumer-username: ann\n"), "the consumer of the name in the directory: {body}");
    assert_eq!(login(&edge, "shared@example.org", "hunter2").await.0, 503, "several entries fit");
}

#[tokio::test]
async fn a_directory_that_is_away_lets_nobody_in_but_those_it_knew() {
    let slapd = Slapd::start();
    let origin = Standing::start("o").await;
    let config = format!(
        "urls: ['ldaps://127.0.0.1:{}'], bind_dn: 'uid={{username}},ou=people,dc=example,dc=org'",
        slapd.encrypted
    );
    let edge = Edge::start(&spec(&origin, &config));
    let forgetful = Edge::start(&spec(&origin, &format!("{config}, cache_ttl: 0")));
    let small = Edge::start(&spec(&origin, &format!("{config}, cached_passwords: 0")));
    for edge in [&edge, &forgetful, &small] {
        assert_eq!(login(edge, "ann", "sesame").await.0, 200);
    }
    let open = Edge::start(&spec(&origin, &format!("{config}, hide_credentials: false")));
    let (status, body) = login(&open, "ann", "sesame").await;
    assert!(
        status == 200 && body.contains("authorization: Basic "),
        "the target may have the password: {body}"
    );
    drop(slapd);
    assert_eq!(login(&edge, "ann", "sesame").await.0, 200, "remembered");
    assert_eq!(login(&edge, "ann", "wrong").await.0, 503);
    assert_eq!(login(&edge, "bob", "hunter2").await.0, 503);
    for edge in [&forgetful, &small] {
        assert_eq!(login(edge, "ann", "sesame").await.0, 503, "nothing is remembered");
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let slapd = Slapd::start();
    let origin = Standing::start("o").await;
    let user = "bind_dn: 'uid={username},ou=people,dc=example,dc=org'";
    for url in [
        format!("urls: ['ldaps://127.0.0.1:{}']", slapd.encrypted),
        format!("urls: ['ldap://127.0.0.1:{}'], start_tls: true", slapd.plain),
    ] {
        let spec = spec(&origin, &format!("{url}, {user}"));
        let ca = format!("ca_path: {:?}, ", tls::authority().ca());
        assert!(spec.contains(&ca), "{spec}");
        let edge = Edge::start(&spec.replace(&ca, ""));
        assert_eq!(login(&edge, "ann", "sesame").await.0, 503, "{url}");
    }
}

/// Takes a connection and the bind on it; how a wrong password is answered there.
async fn taken(directory: &Port) -> (Wire, Vec<u8>) {
    let mut wire = Wire::new(directory.accept().await);
    let bind = wire.some(1024).await.expect("a bind");
    // invalidCredentials (RFC 4511 §4.2.2), under the number of the request.
    let refused = [0x30, 12, 2, 1, bind[4], 0x61, 7, 10, 1, 49, 4, 0, 4, 0];
    (wire, refused.to_vec())
}

#[tokio::test]
async fn no_more_connections_are_open_than_configured() {
    let origin = Standing::start("o").await;
    let directory = Port::listen(None).await;
    let config = format!(
        "urls: ['ldap://{}'], plaintext: true, bind_dn: 'uid={{username}},dc=example', \
         max_connections: 2, max_waiting: 1, timeout: 60000ms",
        directory.address
    );
    let edge = Edge::start(&spec(&origin, &config));
    let wrong = || login(&edge, "ann", "wrong");
    let mut logins: FuturesUnordered<_> = [wrong(), wrong()].into_iter().collect();
    let mut held = Vec::new();
    while held.len() < 2 {
        tokio::select! {
            taken = taken(&directory) => held.push(taken),
            early = logins.next() => panic!("{early:?} without an answer"),
        }
    }
    // Of two more, one waits for a connection and one has no room: with a third connection both would have it.
    logins.extend([wrong(), wrong()]);
    let (status, body) = logins.next().await.expect("a login");
    assert!(status == 503 && body.contains("too many passwords"), "{status} {body}");
    let answering = async {
        for (wire, refused) in &mut held {
            wire.send(&refused).await;
        }
        let (mut wire, refused) = taken(&directory).await;
        wire.send(refused).await;
        held.push((wire, Vec::new()));
    };
    let (statuses, ()) = tokio::join!(logins.map(|(status, _)| status).collect::<Vec<_>>(), answering);
    assert_eq!(statuses, [401; 3]);
}
