//! Orders at a real CA: by both kinds of challenges, renewed, refused, bound to an account, and by two gateways.

use super::*;
use crate::export::AcmeStanding;
use gateway_core::metrics::text::TextPage;
use pebble::Ca;

const SHOP: &str = "shop.test, www.shop.test";

fn is_issued(doors: Doors) -> bool {
    leaf(doors.tls, "shop.test").is_some_and(|leaf| names(&leaf) == ["shop.test", "www.shop.test"])
}

#[test]
fn by_http_and_kept_for_this_user_alone() {
    let doors = Doors::new();
    let mut ca = Ca::new(doors);
    ca.start();
    let gateway = start(&configuration(ca.folder(), doors, &ca.settings("http-01"), &[SHOP]));
    until("a certificate is shown", || is_issued(doors));
    assert_eq!(leaf(doors.tls, "www.shop.test"), leaf(doors.tls, "shop.test"));
    until("it is noted", || statuses(&gateway)[0].standing() == AcmeStanding::Good);
    until("it is counted", || orders(&gateway) == (1, 0));
    let (folder, storage) = storage(&gateway);
    assert_eq!(mode(&folder), 0o700);
    let certificate = statuses(&gateway)[0].file.clone();
    for file in [folder.join("account.json"), folder.join("lock"), certificate] {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    let account = storage.account().unwrap().unwrap();
    assert_eq!(account.email.as_deref(), Some("ops@shop.test"));
    assert!(account.account_url.is_some());
    assert_eq!(storage.challenges().unwrap(), [], "nothing is answered any more");
    // Everything else under the path goes the usual way.
    let challenges = "/.well-known/acme-challenge/";
    for path in [challenges, &format!("{challenges}unknown"), &format!("{challenges}a/b")] {
        assert_eq!(get(doors.http, path), ("200".to_owned(), "routed".to_owned()), "{path}");
    }
    let mut page = TextPage::prometheus();
    gateway.engine().visit_metrics(&mut page);
    let metrics = page.finish();
    for line in [
        "ferrum_acme_orders_total{result=\"issued\"} 1",
        "ferrum_acme_certificates{status=\"good\"} 1",
        "ferrum_certificate_not_after_timestamp_seconds{file=",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn by_tls_and_nothing_is_served_over_such_handshakes() {
    let doors = Doors::new();
    let mut ca = Ca::new(doors);
    ca.start();
    let gateway = start(&configuration(ca.folder(), doors, &ca.settings("tls-alpn-01"), &[SHOP]));
    until("a certificate is shown", || is_issued(doors));
    until("it is counted", || orders(&gateway).0 == 1);
    let challenge: &[u8] = b"acme-tls/1";
    assert_eq!(handshake(doors.tls, "shop.test", &[challenge]), None, "no challenge is under way");
    let (shown, protocol) = handshake(doors.tls, "shop.test", &[challenge, b"http/1.1"]).unwrap();
    assert_eq!((names(&shown).len(), protocol.as_deref()), (2, Some(&b"http/1.1"[..])));
}

#[test]
fn by_tls_beside_early_data() {
    let doors = Doors::new();
    let mut ca = Ca::new(doors);
    ca.start();
    let text = configuration(ca.folder(), doors, &ca.settings("tls-alpn-01"), &[SHOP]);
    let gateway = start(&text.replace("tls: { certificates", "tls: { early_data: true, certificates"));
    until("a certificate is shown", || is_issued(doors));
    until("it is counted", || orders(&gateway).0 == 1);
}

#[test]
fn until_it_is_there_its_names_are_refused_and_all_else_is_served() {
    let doors = Doors::new();
    let mut ca = Ca::new(doors);
    let gateway = start(&configuration(ca.folder(), doors, &ca.settings("http-01"), &[SHOP]));
    assert_eq!(leaf(doors.tls, "shop.test"), None);
    assert_eq!(names(&leaf(doors.tls, "other.test").unwrap()), ["other.test"]);
    assert_eq!(
        names(&leaf(doors.tls, "unknown.test").unwrap()),
        ["other.test"],
        "everybody else is shown the first"
    );
    assert_eq!(get(doors.http, "/").1, "routed");
    until("the CA was asked", || problem(&gateway).is_some_and(|text| text.contains("can't be reached")));
    assert_eq!(statuses(&gateway)[0].standing(), AcmeStanding::Failing);
    ca.start();
    gateway.engine().clock.set_ahead(Duration::from_secs(3600));
    until("a certificate is shown", || is_issued(doors));
    until("the problem is over", || problem(&gateway).is_none());
    assert_eq!(
        names(&leaf(doors.tls, "unknown.test").unwrap()),
        ["shop.test", "www.shop.test"],
        "it is the first"
    );
}

#[test]
fn renewed_when_its_time_has_come_and_used_after_a_start_without_the_ca() {
    let doors = Doors::new();
    let mut ca = Ca::new(doors);
    ca.start();
    let text = configuration(ca.folder(), doors, &ca.settings("http-01"), &[SHOP]);
    let gateway = start(&text);
    until("a certificate is shown", || is_issued(doors));
    let first = leaf(doors.tls, "shop.test").unwrap();
    until("its end is known", || statuses(&gateway)[0].ends_at.is_some());
    let ends = statuses(&gateway)[0].ends_at.unwrap();
    let left = ends.duration_since(std::time::SystemTime::now()).unwrap();
    let mut held_open = tls_connection(doors.tls, "shop.test");
    gateway.engine().clock.set_ahead(left.mul_f64(0.7));
    until("another one is shown", || leaf(doors.tls, "shop.test").is_some_and(|shown| shown != first));
    until("it is counted", || orders(&gateway).0 == 2);
    write!(held_open, "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let ended = held_open.read_to_string(&mut answer);
    assert!(ended.is_ok(), "{ended:?}");
    assert!(answer.ends_with("routed"), "no connection was dropped: {answer}");
    let second = leaf(doors.tls, "shop.test").unwrap();
    drop(gateway);
    ca.stop();
    let gateway = start(&text);
    assert_eq!(leaf(doors.tls, "shop.test"), Some(second), "what is stored is used at once");
    // By its dates it would be ordered at once, were it not for what is stored: an order that is made is one that fails.
    until("it is noted", || statuses(&gateway).first().is_some_and(|status| status.ends_at.is_some()));
    let due = statuses(&gateway)[0].next_order_at.unwrap();
    assert!(due > std::time::SystemTime::now(), "nothing is ordered");
    assert_eq!(orders(&gateway), (0, 0));
}

#[test]
fn a_name_that_the_ca_refuses_is_said_and_keeps_no_other_from_its_certificate() {
    let doors = Doors::new();
    let mut ca = Ca::new(doors);
    ca.start();
    let text = configuration(ca.folder(), doors, &ca.settings("http-01"), &["blocked.test", SHOP]);
    let gateway = start(&text);
    until("a certificate is shown", || is_issued(doors));
    let refused = &statuses(&gateway)[0];
    assert_eq!((refused.standing(), refused.failures), (AcmeStanding::Failing, 1));
    let problem = refused.problem.clone().unwrap();
    assert!(problem.contains("does not issue certificates for this name"), "{problem}");
    assert!(refused.warning().unwrap().message.contains("TLS handshakes for its names are refused"));
    assert_eq!(leaf(doors.tls, "blocked.test"), None);
    let next = refused.next_order_at.unwrap().duration_since(refused.failed_at.unwrap()).unwrap();
    assert!((300..=361).contains(&next.as_secs()), "{next:?}");
    drop(gateway);
    let again = start(&text);
    until("what is stored is known", || super::problem(&again).is_some());
    assert_eq!(orders(&again), (0, 0), "a start does not make it ask again");
}

#[test]
fn an_account_that_exists_at_the_ca() {
    let doors = Doors::new();
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let more = format!(
        r#", "externalAccountBindingRequired": true, "externalAccountMACKeys": {{"kid-1": "{key}"}}"#
    );
    let mut ca = Ca::with(doors, &more);
    ca.start();
    let settings = ca.settings("http-01");
    let gateway = start(&configuration(ca.folder(), doors, &settings, &[SHOP]));
    until("the CA was asked", || problem(&gateway).is_some());
    assert!(problem(&gateway).unwrap().contains("set `external_account`"), "{:?}", problem(&gateway));
    let bound = format!("{settings}, external_account: {{ key_id: kid-1, hmac_key: {key} }}");
    let registry = crate::plugins();
    let text = configuration(ca.folder(), doors, &bound, &[SHOP]);
    gateway.reload(&source::file::parse(&text, "test.yaml", &registry).unwrap()).unwrap();
    gateway.engine().clock.set_ahead(Duration::from_secs(3600));
    until("a certificate is shown", || is_issued(doors));
}

#[test]
fn two_gateways_get_one_certificate() {
    let (doors, others) = (Doors::new(), Doors::new());
    let mut ca = Ca::new(doors);
    ca.start();
    let settings = ca.settings("http-01");
    let one = start(&configuration(ca.folder(), doors, &settings, &[SHOP]));
    // The CA comes to the first one only, whichever of them orders.
    let other = start(&configuration(ca.folder(), others, &settings, &[SHOP]));
    // On a busy machine the CA may come before the first one has looked for challenges: then it is tried again.
    until("both show it", || {
        let failed = orders(&one).1 + orders(&other).1;
        for gateway in [&one, &other] {
            gateway.engine().clock.set_ahead(Duration::from_secs(3600) * u32::try_from(failed).unwrap());
        }
        is_issued(doors) && is_issued(others)
    });
    assert_eq!(leaf(doors.tls, "shop.test"), leaf(others.tls, "shop.test"));
    until("it is counted", || orders(&one).0 + orders(&other).0 > 0);
    assert_eq!(orders(&one).0 + orders(&other).0, 1);
}
