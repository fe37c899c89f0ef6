//! Signed requests: RFC 9421's own, good ones, changed ones, old ones, and the same one twice.

use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::{digest as hash, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as B64;
use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use http::{HeaderMap, HeaderName, Version};
use serde_json::{Value, json};

use super::*;
use crate::jose::testing::Signer;
use crate::jose::{Algorithm, Key};

mod older_scheme;

use older_scheme::authorization;

const SECRET: &str = "a shared secret";

fn trial(config: &Value) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "strip_listen_path": false, "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [
            { "id": "a", "username": "alice", "custom_id": "a-1", "credentials": { "hmac_auth": [{ "secret": "older" }, { "secret": SECRET }] } },
            { "id": "g", "username": "guest" },
        ],
        "plugin_configs": [{ "id": "h", "plugin_name": "hmac_auth", "proxy_id": "a", "config": config }],
    });
    Trial::of_spec(&[entry::<HmacAuth>()], &spec.to_string(), &World::default())
}

fn date(second: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

fn mac(algorithm: hmac::Algorithm, secret: &str, text: &str) -> String {
    B64.encode(hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), text.as_bytes()))
}

/// The caller, or the refusal's status and reason.
async fn caller(trial: &Trial, method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> String {
    let got = trial.request(method, target, fields, body.to_owned()).await;
    let record = trial.records().pop().expect("a record");
    match got.status {
        200 => record.caller.expect("a caller").to_string(),
        401 => {
            assert!(got.headers.contains_key("www-authenticate"));
            record.reason.expect("a reason").to_owned()
        }
        status => format!("{status} {}", record.reason.expect("a reason")),
    }
}

/// The request of RFC 9421 appendix B.2.
fn rfc_message(headers: &HeaderMap) -> Message<'_> {
    Message {
        method: "POST",
        version: Version::HTTP_11,
        scheme: "https",
        authority: "example.com".into(),
        path: "/foo",
        query: Some("param=Value&Pet=dog"),
        headers,
    }
}

const RSA_PSS: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAr4tmm3r20Wd/PbqvP1s2
+QEtvpuRaV8Yq40gjUR8y2Rjxa6dpG2GXHbPfvMs8ct+Lh1GH45x28Rw3Ry53mm+
oAXjyQ86OnDkZ5N8lYbggD4O3w6M6pAvLkhk95AndTrifbIFPNU8PPMO7OyrFAHq
gDsznjPFmTOtCEcN2Z1FpWgchwuYLPL+Wokqltd11nqqzi+bJ9cvSKADYdUAAN5W
Utzdpiy6LbTgSxP7ociU4Tn0g5I6aDZJ7A8Lzo0KSyZYoA485mqcO0GVAdVw9lq4
aOT9v6d+nb4bnNkQVklLQ3fVAvJm+xdDOp9LCNCN48V2pnDOkFV6+U9nV5oyc6XI
2wIDAQAB
-----END PUBLIC KEY-----";
const ED25519: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=
-----END PUBLIC KEY-----";

type Vector = (&'static str, &'static str, Option<(&'static str, Algorithm)>);

/// Parameters, signature and key of appendix B.2; without a key it is the shared secret.
const VECTORS: [Vector; 5] = [
    (
        "();created=1618884473;keyid=\"test-key-rsa-pss\";nonce=\"b3k2pp5k7z-50gnwp.yemd\"",
        "d2pmTvmbncD3xQm8E9ZV2828BjQWGgiwAaw5bAkgibUopemLJcWDy/lkbbHAve4cRAtx31Iq786U7it++wgGxbtRxf8Udx7zFZsckzXaJMkA7ChG52eSkFxykJeNqsrWH5S+oxNFlD4dzVuwe8DhTSja8xxbR/Z2cOGdCbzR72rgFWhzx2VjBqJzsPLMIQKhO4DGezXehhWwE56YCE+O6c0mKZsfxVrogUvA4HELjVKWmAvtl6UnCh8jYzuVG5WSb/QEVPnP5TmcAnLH1g+s++v6d4s8m0gCw1fV5/SITLq9mhho8K3+7EPYTU8IU1bLhdxO5Nyt8C8ssinQ98Xw9Q==",
        Some((RSA_PSS, Algorithm::Ps512)),
    ),
    (
        "(\"@authority\" \"content-digest\" \"@query-param\";name=\"Pet\");created=1618884473;keyid=\"test-key-rsa-pss\";tag=\"header-example\"",
        "LjbtqUbfmvjj5C5kr1Ugj4PmLYvx9wVjZvD9GsTT4F7GrcQEdJzgI9qHxICagShLRiLMlAJjtq6N4CDfKtjvuJyE5qH7KT8UCMkSowOB4+ECxCmT8rtAmj/0PIXxi0A0nxKyB09RNrCQibbUjsLS/2YyFYXEu4TRJQzRw1rLEuEfY17SARYhpTlaqwZVtR8NV7+4UKkjqpcAoFqWFQh62s7Cl+H2fjBSpqfZUJcsIk4N6wiKYd4je2U/lankenQ99PZfB4jY3I5rSV2DSBVkSFsURIjYErOs0tFTQosMTAoxk//0RoKUqiYY8Bh0aaUEb0rQl3/XaVe4bXTugEjHSw==",
        Some((RSA_PSS, Algorithm::Ps512)),
    ),
    (
        "(\"date\" \"@method\" \"@path\" \"@query\" \"@authority\" \"content-type\" \"content-digest\" \"content-length\");created=1618884473;keyid=\"test-key-rsa-pss\"",
        "bbN8oArOxYoyylQQUU6QYwrTuaxLwjAC9fbY2F6SVWvh0yBiMIRGOnMYwZ/5MR6fb0Kh1rIRASVxFkeGt683+qRpRRU5p2voTp768ZrCUb38K0fUxN0O0iC59DzYx8DFll5GmydPxSmme9v6ULbMFkl+V5B1TP/yPViV7KsLNmvKiLJH1pFkh/aYA2HXXZzNBXmIkoQoLd7YfW91kE9o/CCoC1xMy7JA1ipwvKvfrs65ldmlu9bpG6A9BmzhuzF8Eim5f8ui9eH8LZH896+QIF61ka39VBrohr9iyMUJpvRX2Zbhl5ZJzSRxpJyoEZAFL2FUo5fTIztsDZKEgM4cUA==",
        Some((RSA_PSS, Algorithm::Ps512)),
    ),
    (
        "(\"date\" \"@authority\" \"content-type\");created=1618884473;keyid=\"test-shared-secret\"",
        "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=",
        None,
    ),
    (
        "(\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" \"content-length\");created=1618884473;keyid=\"test-key-ed25519\"",
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==",
        Some((ED25519, Algorithm::EdDsa)),
    ),
];

#[test]
fn the_signatures_of_rfc_9421() {
    let secret = B64
        .decode("uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==")
        .expect("base64");
    for (input, signature, key) in VECTORS {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "example.com"),
            ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
            ("content-type", "application/json"),
            (
                "content-digest",
                "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
            ),
            ("content-length", "18"),
            ("signature-input", &format!("sig={input}")),
            ("signature", &format!("sig=:{signature}:")),
        ] {
            headers.append(HeaderName::from_static(name), value.parse().expect("a value"));
        }
        let all = signature::all(&headers, None).expect("a signature");
        let [signed] = all.as_slice() else { panic!("one signature") };
        assert_eq!(signed.created, Some(1_618_884_473));
        let verified = |message: &Message<'_>| {
            let (base, _) = signed.base(message).expect("a base");
            match key {
                Some((pem, algorithm)) => {
                    Key::pem(pem).expect("a key").verifies(algorithm, base.as_bytes(), &signed.signature)
                }
                None => {
                    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
                    hmac::verify(&key, base.as_bytes(), &signed.signature).is_ok()
                }
            }
        };
        assert!(verified(&rfc_message(&headers)), "{input}");
        if input.starts_with("()") {
            continue;
        }
        let elsewhere = Message { authority: "example.org".into(), ..rfc_message(&headers) };
        assert!(!verified(&elsewhere), "another host: {input}");
        if input.contains("content-digest") {
            let body = digest::signed(&headers, &signed.base(&rfc_message(&headers)).expect("a base").1);
            let right = hash::digest(&hash::SHA512, br#"{"hello": "world"}"#);
            assert_eq!(body.expect("digests")[0].1, right.as_ref());
        }
    }
}

/// Header fields of a message signature by Alice over these components.
fn signed(components: &str, parameters: &str, values: &[&str], secret: &str) -> [(&'static str, String); 2] {
    let names = components.split(' ').filter(|name| !name.is_empty());
    let lines: Vec<String> = names.zip(values).map(|(name, value)| format!("{name}: {value}\n")).collect();
    let input = format!("({components});{parameters}");
    let base = format!("{}\"@signature-params\": {input}", lines.concat());
    let signature = mac(hmac::HMAC_SHA256, secret, &base);
    [("signature-input", format!("sig={input}")), ("signature", format!("sig=:{signature}:"))]
}

const DEFAULT: &str = "\"@method\" \"@authority\" \"@path\" \"@query\"";
const VALUES: [&str; 4] = ["GET", "client.test", "/a/b", "?x=1"];

/// Settings, components, parameters, the components' values, and what comes of a signature of them.
type Case = (Value, &'static str, String, Vec<&'static str>, &'static str);

async fn judged(cases: Vec<Case>) {
    for (config, components, parameters, values, expected) in cases {
        let trial = trial(&config);
        // A query parameter's name is not one word of the list.
        let lines = signed(components, &parameters, &values, SECRET);
        let mut fields = vec![("x-a", "1"), ("x-a", " 2 ")];
        fields.extend(lines.iter().map(|(name, value)| (*name, value.as_str())));
        let found = caller(&trial, "GET", "/a/b?x=1", &fields, "").await;
        assert_eq!(found, expected, "{config} {components} {parameters}");
        if found == "alice" {
            let asked = trial.asked().pop().expect("a request");
            assert!(
                !asked.headers.contains_key("signature") && !asked.headers.contains_key("signature-input")
            );
        }
    }
}

#[tokio::test]
async fn keys_dates_and_forgeries_of_message_signatures() {
    let lax = json!({ "required_components": [] });
    let now = now();
    let at = |second: u64, more: &str| format!("created={second};keyid=\"alice\"{more}");
    judged(vec![
        (json!({}), DEFAULT, at(now, ""), VALUES.to_vec(), "alice"),
        (json!({}), DEFAULT, at(now, ";alg=\"hmac-sha256\""), VALUES.to_vec(), "alice"),
        (json!({}), DEFAULT, format!("created={now};keyid=\"a-1\""), VALUES.to_vec(), "alice"),
        (json!({}), DEFAULT, at(now, ";alg=\"ed25519\""), VALUES.to_vec(), "signature_invalid"),
        (json!({}), DEFAULT, at(now, ";alg=\"hmac-md5\""), VALUES.to_vec(), "signature_algorithm"),
        (
            json!({}),
            DEFAULT,
            format!("created={now};keyid=\"mallory\""),
            VALUES.to_vec(),
            "signature_invalid",
        ),
        (json!({}), DEFAULT, format!("created={now};keyid=\"guest\""), VALUES.to_vec(), "signature_invalid"),
        (json!({}), DEFAULT, format!("created={now}"), VALUES.to_vec(), "signature_malformed"),
        (json!({}), DEFAULT, "keyid=\"alice\"".into(), VALUES.to_vec(), "signature_date"),
        (json!({}), DEFAULT, at(now - 290, ""), VALUES.to_vec(), "alice"),
        (json!({}), DEFAULT, at(now - 310, ""), VALUES.to_vec(), "signature_date"),
        (json!({}), DEFAULT, at(now + 310, ""), VALUES.to_vec(), "signature_date"),
        (json!({ "clock_skew": 1000 }), DEFAULT, at(now - 900, ""), VALUES.to_vec(), "alice"),
        (
            json!({}),
            DEFAULT,
            at(now - 10, &format!(";expires={}", now - 1)),
            VALUES.to_vec(),
            "signature_date",
        ),
        (json!({}), DEFAULT, at(now - 10, &format!(";expires={}", now + 60)), VALUES.to_vec(), "alice"),
        (json!({}), DEFAULT, at(now, ""), vec!["POST", "client.test", "/a/b", "?x=1"], "signature_invalid"),
        (json!({}), DEFAULT, at(now, ""), vec!["GET", "client.test", "/a", "?x=1"], "signature_invalid"),
        (
            json!({}),
            "\"@method\" \"@authority\" \"@path\"",
            at(now, ""),
            VALUES.to_vec(),
            "signature_uncovered",
        ),
        (json!({}), "", at(now, ""), vec![], "signature_uncovered"),
        (lax.clone(), "", at(now, ""), vec![], "alice"),
    ])
    .await;
    let [input, _] = signed(DEFAULT, &at(now, ""), &VALUES, SECRET);
    let [_, wrong] = signed(DEFAULT, &at(now, ""), &VALUES, "another secret");
    let fields = [(input.0, &*input.1), (wrong.0, &*wrong.1)];
    assert_eq!(caller(&trial(&json!({})), "GET", "/a/b?x=1", &fields, "").await, "signature_invalid");
}

#[tokio::test]
async fn components_of_message_signatures() {
    let lax = json!({ "required_components": [] });
    let now = now();
    let at = |second: u64, more: &str| format!("created={second};keyid=\"alice\"{more}");
    judged(vec![
        (
            json!({}),
            "\"@method\" \"@target-uri\"",
            at(now, ""),
            vec!["GET", "http://client.test/a/b?x=1"],
            "alice",
        ),
        (
            json!({}),
            "\"@method\" \"host\" \"@request-target\"",
            at(now, ""),
            vec!["GET", "client.test", "/a/b?x=1"],
            "alice",
        ),
        (lax.clone(), "\"@query-param\";name=\"x\"", at(now, ""), vec!["1"], "alice"),
        (lax.clone(), "\"@query-param\";name=\"y\"", at(now, ""), vec!["1"], "signature_uncovered"),
        (
            json!({ "required_components": ["@query"] }),
            "\"@query-param\";name=\"x\"",
            at(now, ""),
            vec!["1"],
            "signature_uncovered",
        ),
        (lax.clone(), "\"@status\"", at(now, ""), vec!["200"], "signature_malformed"),
        (lax.clone(), "\"x-a\"", at(now, ""), vec!["1, 2"], "alice"),
        (lax.clone(), "\"x-b\"", at(now, ""), vec!["1"], "signature_uncovered"),
        (lax.clone(), "\"X-A\"", at(now, ""), vec!["1, 2"], "signature_malformed"),
        (lax.clone(), "\"x-a\";sf", at(now, ""), vec!["1, 2"], "signature_malformed"),
        (lax.clone(), "\"@method\" \"@method\"", at(now, ""), vec!["GET", "GET"], "signature_malformed"),
        (json!({ "tag": "app" }), DEFAULT, at(now, ";tag=\"app\""), VALUES.to_vec(), "alice"),
        (json!({ "tag": "app" }), DEFAULT, at(now, ""), VALUES.to_vec(), "signature_uncovered"),
        (json!({ "signature_label": "sig" }), DEFAULT, at(now, ""), VALUES.to_vec(), "alice"),
        (json!({ "signature_label": "other" }), DEFAULT, at(now, ""), VALUES.to_vec(), "signature_missing"),
        (json!({ "schemes": ["authorization"] }), DEFAULT, at(now, ""), VALUES.to_vec(), "signature_missing"),
        (
            json!({ "required_components": ["x-a"] }),
            DEFAULT,
            at(now, ""),
            VALUES.to_vec(),
            "signature_uncovered",
        ),
    ])
    .await;
}

#[tokio::test]
async fn signatures_that_can_not_be_read() {
    let trial = trial(&json!({}));
    let now = now();
    let good = signed(DEFAULT, &format!("created={now};keyid=\"alice\""), &VALUES, SECRET);
    let (input, signature) = (good[0].1.as_str(), good[1].1.as_str());
    let many: Vec<String> = (0..5).map(|n| format!("s{n}=();keyid=\"a\"")).collect();
    for (input, signature) in [
        (input, "sig=abc"),
        (input, "sig=:abc"),
        (input, "other=:YQ==:"),
        (input, ""),
        ("", signature),
        ("sig", signature),
        ("sig=(x)", signature),
        ("sig=(\"@method\"", signature),
        ("sig=();created=-1;keyid=\"alice\"", signature),
        ("sig=();created=\"1\";keyid=\"alice\"", signature),
        ("sig=();created=1.5;keyid=\"alice\"", signature),
        ("sig=();created=1;keyid=alice", signature),
        (&many.join(", "), signature),
    ] {
        let fields = [("signature-input", input), ("signature", signature)];
        let found = caller(&trial, "GET", "/a/b?x=1", &fields, "").await;
        assert!(
            found == "signature_malformed" || found == "signature_missing",
            "{input} {signature}: {found}"
        );
    }
    assert_eq!(caller(&trial, "GET", "/", &[("signature", signature)], "").await, "signature_missing");
    // Of two signatures one good one is enough.
    let (both, signatures) =
        (format!("x=();created={now};keyid=\"b\", {input}"), format!("x=:YQ==:, {signature}"));
    let fields = [("signature-input", &*both), ("signature", &*signatures)];
    assert_eq!(caller(&trial, "GET", "/a/b?x=1", &fields, "").await, "alice");
}

#[tokio::test]
async fn message_signatures_with_public_keys() {
    let signers = [
        ("ed", Signer::ed(), "EdDSA", Some("ed25519"), "ed"),
        ("ec", Signer::ec("ES256"), "ES256", Some("ecdsa-p256-sha256"), "alice"),
        ("p384", Signer::ec("ES384"), "ES384", None, "p384"),
        ("rsa", Signer::rsa(), "PS512", Some("rsa-pss-sha512"), "rsa"),
        ("old", Signer::rsa(), "RS256", Some("rsa-v1_5-sha256"), "old"),
        ("none", Signer::rsa(), "PS512", None, "signature_algorithm"),
        ("mixed", Signer::ed(), "EdDSA", Some("hmac-sha256"), "signature_algorithm"),
        ("gone", Signer::ed(), "EdDSA", None, "signature_invalid"),
    ];
    let keys: Vec<Value> = signers
        .iter()
        .map(|(id, signer, ..)| match *id {
            "ec" => json!({ "key_id": id, "public_key": signer.pem(), "consumer": "alice" }),
            "gone" => json!({ "key_id": id, "public_key": signer.pem(), "consumer": "nobody" }),
            id => json!({ "key_id": id, "public_key": signer.pem() }),
        })
        .collect();
    let trial = trial(&json!({ "public_keys": keys, "required_components": ["@method"] }));
    for (id, signer, algorithm, named, expected) in &signers {
        let named = named.map(|named| format!(";alg=\"{named}\"")).unwrap_or_default();
        let input = format!("(\"@method\");created={};keyid=\"{id}\"{named}", now());
        let base = format!("\"@method\": GET\n\"@signature-params\": {input}");
        let signature = format!("sig=:{}:", B64.encode(signer.sign(algorithm, base.as_bytes())));
        let input = format!("sig={input}");
        let fields = [("signature-input", &*input), ("signature", &*signature)];
        assert_eq!(caller(&trial, "GET", "/", &fields, "").await, *expected, "{id}");
        let fields = [("signature-input", &*input), ("signature", "sig=:YWJj:")];
        assert!(caller(&trial, "GET", "/", &fields, "").await.starts_with("signature_"), "{id}");
    }
}

#[tokio::test]
async fn bodies_with_signed_digests() {
    let sha = |body: &str| B64.encode(hash::digest(&hash::SHA256, body.as_bytes()));
    let (right, wrong) = (format!("sha-256=:{}:", sha("hello")), format!("sha-256=:{}:", sha("other")));
    let both = format!("sha-512=:{}:, {right}", B64.encode(hash::digest(&hash::SHA512, b"hello")));
    let mixed = format!("sha-512=:{}:, {right}", B64.encode(hash::digest(&hash::SHA512, b"other")));
    let on = json!({ "validate_request_body": true, "max_body": 10, "required_components": ["@method"] });
    let off = json!({ "required_components": ["@method"] });
    for (config, digest, body, covered, expected) in [
        (&on, Some(right.as_str()), "hello", true, "alice"),
        (&on, Some(&both), "hello", true, "alice"),
        (&on, Some(&mixed), "hello", true, "signature_digest"),
        (&on, Some(&wrong), "hello", true, "signature_digest"),
        (&on, Some(&right), "", true, "signature_digest"),
        (&on, Some(&right), "hello", false, "signature_digest"),
        (&on, None, "hello", false, "signature_digest"),
        (&on, None, "", false, "alice"),
        (&on, Some("md5=:YWJj:"), "hello", true, "signature_digest"),
        (&on, Some("sha-256=abc"), "hello", true, "signature_malformed"),
        (&on, Some(&right), "hello, world", true, "413 signature_body_too_large"),
        (&off, Some(&wrong), "hello", true, "alice"),
        (&off, None, "hello", false, "alice"),
    ] {
        let trial = trial(config);
        let parameters = format!("created={};keyid=\"alice\"", now());
        let lines = match (covered, digest) {
            (true, Some(digest)) => {
                signed("\"@method\" \"content-digest\"", &parameters, &["POST", digest], SECRET)
            }
            _ => signed("\"@method\"", &parameters, &["POST"], SECRET),
        };
        let mut fields: Vec<(&str, &str)> =
            lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        fields.extend(digest.map(|digest| ("content-digest", digest)));
        assert_eq!(caller(&trial, "POST", "/", &fields, body).await, expected, "{digest:?} {body} {covered}");
        if expected == "alice" {
            assert_eq!(trial.asked()[0].body, body, "the target gets the whole body");
        }
    }
    let today = date(now());
    let older = json!({ "validate_request_body": true, "enforce_headers": [] });
    for (body, expected) in [("hello", "alice"), ("other", "signature_digest")] {
        let digest = format!("SHA-256={},unknown=x", sha("hello"));
        let text = format!("date: {today}\ndigest: {digest}");
        let value = authorization("alice", "hmac-sha256", "date digest", &text);
        let fields = [("date", today.as_str()), ("digest", &digest), ("authorization", &value)];
        assert_eq!(caller(&trial(&older), "POST", "/", &fields, body).await, expected);
    }
}

#[tokio::test]
async fn a_signature_is_good_once() {
    let config = json!({ "replay_protection": true, "required_components": [], "enforce_headers": [] });
    let trial = trial(&config);
    let send = async |parameters: String| {
        let lines = signed("", &parameters, &[], SECRET);
        let fields = [(lines[0].0, &*lines[0].1), (lines[1].0, &*lines[1].1)];
        caller(&trial, "GET", "/", &fields, "").await
    };
    let (first, later) = (now() - 5, now() - 4);
    let with = |second: u64, nonce: &str| format!("created={second};keyid=\"alice\";nonce=\"{nonce}\"");
    assert_eq!(send(with(first, "a")).await, "alice");
    assert_eq!(send(with(first, "a")).await, "signature_replayed");
    assert_eq!(send(with(later, "a")).await, "signature_replayed", "another signature with the same nonce");
    assert_eq!(send(with(first, "b")).await, "alice");
    assert_eq!(send(format!("created={first};keyid=\"alice\"")).await, "signature_replayed", "no nonce");
    let today = date(now());
    let value = authorization("alice", "hmac-sha256", "date", &format!("date: {today}"));
    let fields = [("date", today.as_str()), ("authorization", &value)];
    assert_eq!(caller(&trial, "GET", "/", &fields, "").await, "alice");
    assert_eq!(caller(&trial, "GET", "/", &fields, "").await, "signature_replayed");
}

#[tokio::test]
async fn options_around_the_signature() {
    let open = trial(&json!({ "anonymous": "guest", "hide_credentials": false, "enforce_headers": [] }));
    assert_eq!(caller(&open, "GET", "/", &[], "").await, "guest");
    let today = date(now());
    let value = authorization("alice", "hmac-sha256", "date", &format!("date: {today}"));
    let fields = [("date", today.as_str()), ("authorization", &value)];
    assert_eq!(caller(&open, "GET", "/", &fields, "").await, "alice");
    assert_eq!(open.asked().pop().expect("a request").field("authorization"), value);
    let bad = [("date", today.as_str()), ("authorization", "hmac x")];
    assert_eq!(caller(&open, "GET", "/", &bad, "").await, "signature_malformed");
    let lines = signed(DEFAULT, &format!("created={};keyid=\"alice\"", now()), &VALUES, SECRET);
    let both = [fields[0], fields[1], (lines[0].0, &*lines[0].1), (lines[1].0, &*lines[1].1)];
    assert_eq!(caller(&open, "GET", "/a/b?x=1", &both, "").await, "signature_malformed", "of both schemes");
}

#[test]
fn parameters_are_compared_encoded() {
    let headers = HeaderMap::new();
    let with = |query| Message { query: Some(query), ..rfc_message(&headers) };
    assert_eq!(with("a=x%20y+z&b=%c3%bc").parameter("a").as_deref(), Some("x%20y%20z"));
    assert_eq!(with("a=x&b=%c3%bc").parameter("b").as_deref(), Some("%C3%BC"));
    assert_eq!(with("a=1&%61=2").parameter("a"), None, "twice");
}

#[test]
fn settings_that_make_no_sense() {
    let key = Signer::ed().pem();
    for (config, path) in [
        (json!({ "schemes": [] }), "config.schemes"),
        (json!({ "algorithms": [] }), "config.algorithms"),
        (json!({ "algorithms": ["hmac-sha1"] }), "config.algorithms[0]"),
        (json!({ "enforce_headers": ["a b"] }), "config.enforce_headers[0]"),
        (json!({ "enforce_headers": ["@path"] }), "config.enforce_headers[0]"),
        (json!({ "required_components": ["@method", "@status"] }), "config.required_components[1]"),
        (json!({ "clock_skew": 0 }), "config.clock_skew"),
        (
            json!({ "public_keys": [{ "key_id": "k", "public_key": "x" }] }),
            "config.public_keys[0].public_key",
        ),
        (json!({ "public_keys": [{ "public_key": key }] }), "config.public_keys[0].key_id"),
        (
            json!({ "public_keys": [{ "key_id": "k", "public_key": key }, { "key_id": "k", "public_key": key }] }),
            "config.public_keys[1].key_id",
        ),
    ] {
        assert_eq!(Trial::refused(&[entry::<HmacAuth>()], "hmac_auth", &config).0[0].path, path, "{config}");
    }
}
