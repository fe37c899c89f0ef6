//! Certificates of consumers, of strangers, of the wrong issuer, and in headers.

use gateway_core::http::exchange::ClientTls;
use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer as Signer, KeyPair, SanType,
};
use serde_json::{Value, json};

use super::*;

/// A certificate of this common name with these alternative names, by an authority called `Example CA`; and the
/// authority's own.
fn made(common_name: &str, alternative: Vec<SanType>, from: i32, until: i32) -> (Vec<u8>, Vec<u8>) {
    let subject = |parts: &[(DnType, &str)]| {
        let mut name = DistinguishedName::new();
        parts.iter().for_each(|(kind, text)| name.push(kind.clone(), *text));
        name
    };
    let mut authority = CertificateParams::default();
    authority.distinguished_name =
        subject(&[(DnType::CommonName, "Example CA"), (DnType::OrganizationName, "Example")]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let root = authority.self_signed(&key).expect("a certificate");
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&[(DnType::CommonName, common_name)]);
    params.subject_alt_names = alternative;
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let leaf = params.signed_by(&KeyPair::generate().expect("a key"), &Signer::from_params(&authority, &key));
    (leaf.expect("a certificate").der().to_vec(), root.der().to_vec())
}

fn leaf(common_name: &str, alternative: Vec<SanType>) -> Vec<u8> {
    made(common_name, alternative, 2020, 4000).0
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("a name"))
}

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("a URI"))
}

/// Alice is known by everything, Bob by a DNS name, Carol by the digest of her fingerprint.
fn trial(config: &Value, fingerprint: &str) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "gateway": { "trusted_proxies": ["10.0.0.0/8"] },
        "consumers": [
            { "id": "a", "username": "alice", "credentials": { "mtls_auth": [
                "orders", "spiffe://example/orders", "orders.example", "orders@example.test",
            ] } },
            { "id": "b", "username": "bob", "credentials": { "mtls_auth": { "identity": "b.example" } } },
            { "id": "c", "username": "carol", "credentials": { "mtls_auth": fingerprint } },
            { "id": "g", "username": "guest" },
        ],
        "plugin_configs": [{ "id": "m", "plugin_name": "mtls_auth", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<MtlsAuth>()], &spec.to_string(), &World::default())
}

fn shown(der: &[u8], chain: &[&[u8]]) -> Option<ClientTls> {
    let chain = chain.iter().map(|der| Arc::from(*der)).collect();
    Some(ClientTls { version: "TLSv1.3", certificate: Some(der.into()), chain, ..ClientTls::default() })
}

/// The caller, or the refusal's status and reason.
async fn caller(config: &Value, der: &[u8]) -> String {
    let fingerprint: String =
        certificate::fingerprint(der).iter().map(|byte| format!("{byte:02x}")).collect();
    let known =
        if config.get("identify_by") == Some(&json!(["fingerprint_sha256"])) { &fingerprint } else { "-" };
    let trial = trial(config, known).from_client([192, 0, 2, 1].into(), shown(der, &[]));
    let got = trial.get("/", &[]).await;
    let record = trial.records().pop().expect("a record");
    match got.status {
        200 => record.caller.expect("a caller").to_string(),
        status => format!("{status} {}", record.reason.expect("a reason")),
    }
}

#[tokio::test]
async fn consumers_by_the_parts_of_their_certificates() {
    let mail = SanType::Rfc822Name("orders@example.test".try_into().expect("an address"));
    let all = json!({});
    for (config, der, expected) in [
        (&all, leaf("orders", vec![]), "alice"),
        (&all, leaf("x", vec![uri("spiffe://example/orders")]), "alice"),
        (&all, leaf("x", vec![dns("Orders.Example")]), "alice"),
        (&all, leaf("x", vec![mail]), "alice"),
        (&all, leaf("x", vec![dns("www.example"), dns("b.example")]), "bob"),
        // Alternative names come before the common name, by the default order.
        (&all, leaf("orders", vec![dns("b.example")]), "bob"),
        (
            &json!({ "identify_by": ["subject_cn", "san_dns"] }),
            leaf("orders", vec![dns("b.example")]),
            "alice",
        ),
        (
            &json!({ "identify_by": ["san_uri"] }),
            leaf("orders", vec![dns("b.example")]),
            "403 certificate_caller",
        ),
        (&json!({ "identify_by": ["fingerprint_sha256"] }), leaf("x", vec![]), "carol"),
        (&all, leaf("x", vec![dns("b.example"), dns("orders.example")]), "403 certificate_ambiguous"),
        (&all, leaf("stranger", vec![]), "403 certificate_caller"),
        (
            &json!({ "require_consumer": false, "identify_by": ["san_uri", "subject_cn"] }),
            leaf("stranger", vec![]),
            "stranger",
        ),
        (
            &json!({ "require_consumer": false, "identify_by": ["san_uri"] }),
            leaf("x", vec![]),
            "403 certificate_caller",
        ),
        (&all, b"not a certificate".to_vec(), "401 certificate_unreadable"),
        (&all, [leaf("orders", vec![]), vec![0]].concat(), "401 certificate_unreadable"),
        (&all, made("orders", vec![], 2000, 2010).0, "401 certificate_expired"),
        (&all, made("orders", vec![], 3000, 4000).0, "401 certificate_expired"),
        (&json!({ "allowed_issuers": [{ "cn": "Example CA" }] }), leaf("orders", vec![]), "alice"),
        (
            &json!({ "allowed_issuers": [{ "cn": "x" }, { "o": "Example", "cn": "Example CA" }] }),
            leaf("orders", vec![]),
            "alice",
        ),
        (
            &json!({ "allowed_issuers": [{ "cn": "Example CA", "o": "Other" }] }),
            leaf("orders", vec![]),
            "403 certificate_issuer",
        ),
        (
            &json!({ "allowed_issuers": [{ "ou": "Example" }] }),
            leaf("orders", vec![]),
            "403 certificate_issuer",
        ),
    ] {
        assert_eq!(caller(config, &der).await, expected, "{config}");
    }
}

#[tokio::test]
async fn requests_without_a_certificate() {
    let client = [192, 0, 2, 1].into();
    let header = certificate::encoded(&leaf("orders", vec![]));
    for tls in [None, Some(ClientTls { version: "TLSv1.3", ..ClientTls::default() })] {
        let closed = trial(&json!({ "trust_forwarded": true }), "-").from_client(client, tls.clone());
        let got = closed.get("/", &[("client-cert", &header)]).await;
        assert_eq!((got.status, closed.records()[0].reason), (401, Some("certificate_missing")));
        assert!(got.field("www-authenticate").starts_with("ClientCertificate "));
        let open = trial(&json!({ "anonymous": "guest" }), "-").from_client(client, tls);
        assert_eq!(open.get("/", &[]).await.status, 200);
        assert_eq!(open.records()[0].caller.as_deref(), Some("guest"));
    }
}

#[tokio::test]
async fn targets_get_the_certificate_that_was_shown_and_no_other() {
    let (der, root) = made("orders", vec![], 2020, 4000);
    let forged = [("client-cert", ":Zm9yZ2Vk:"), ("client-cert-chain", ":Zm9yZ2Vk:")];
    let (own, chain) = (certificate::encoded(&der), certificate::encoded(&root));
    let twice = format!("{chain}, {chain}");
    for (config, sent, expected) in [
        (json!({}), vec![&root[..]], ["", ""]),
        (json!({ "forward_certificate": true }), vec![&root[..]], [&own, ""]),
        (json!({ "forward_chain": true }), vec![&root[..]], ["", &chain]),
        (
            json!({ "forward_certificate": true, "forward_chain": true }),
            vec![&root[..], &root[..]],
            [&own, &twice],
        ),
        (json!({ "forward_certificate": true, "forward_chain": true }), vec![], [&own, ""]),
    ] {
        let trial = trial(&config, "-").from_client([192, 0, 2, 1].into(), shown(&der, &sent));
        assert_eq!(trial.get("/", &forged).await.status, 200);
        let asked = trial.asked().pop().expect("a request");
        assert_eq!([asked.field("client-cert"), asked.field("client-cert-chain")], expected, "{config}");
    }
    let long = vec![&root[..]; 100];
    let trial =
        trial(&json!({ "forward_chain": true }), "-").from_client([192, 0, 2, 1].into(), shown(&der, &long));
    assert_eq!(trial.get("/", &[]).await.status, 403);
    assert_eq!(trial.records()[0].reason, Some("certificate_chain_too_long"));
}

#[tokio::test]
async fn a_trusted_proxy_may_hand_on_a_certificate() {
    let header = certificate::encoded(&leaf("orders", vec![]));
    for (config, field, expected) in [
        (json!({ "trust_forwarded": true }), header.as_str(), 200),
        (json!({}), &header, 401),
        (json!({ "trust_forwarded": true }), "garbage", 401),
        (json!({ "trust_forwarded": true }), ":Zm9yZ2Vk:", 401),
    ] {
        let trial = trial(&config, "-").from_trusted_proxy();
        assert_eq!(trial.get("/", &[("client-cert", field)]).await.status, expected, "{config} {field}");
        if expected == 200 {
            assert_eq!(trial.get("/", &[("client-cert", field), ("client-cert", field)]).await.status, 401);
        }
    }
    let on = json!({ "trust_forwarded": true, "forward_certificate": true, "forward_chain": true });
    let trial = trial(&on, "-").from_trusted_proxy();
    assert_eq!(
        trial.get("/", &[("client-cert", &header), ("client-cert-chain", ":eA==:")]).await.status,
        200
    );
    let asked = trial.asked().pop().expect("a request");
    assert_eq!((asked.field("client-cert"), asked.field("client-cert-chain")), (header.as_str(), ":eA==:"));
}

#[test]
fn settings_that_make_no_sense() {
    for (config, path) in [
        (json!({ "identify_by": [] }), "config.identify_by"),
        (json!({ "identify_by": ["subject"] }), "config.identify_by[0]"),
        (json!({ "identify_by": ["san_dns", "san_dns"] }), "config.identify_by[1]"),
        (json!({ "allowed_issuers": [{}] }), "config.allowed_issuers[0]"),
    ] {
        assert_eq!(Trial::refused(&[entry::<MtlsAuth>()], "mtls_auth", &config).0[0].path, path, "{config}");
    }
}
