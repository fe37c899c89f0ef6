//! Signatures in `Authorization`, in the scheme before RFC 9421.

use super::*;

/// The `Authorization` of Kong's scheme.
pub(super) fn authorization(user: &str, algorithm: &str, names: &str, text: &str) -> String {
    let kind = match algorithm {
        "hmac-sha384" => hmac::HMAC_SHA384,
        "hmac-sha512" => hmac::HMAC_SHA512,
        _ => hmac::HMAC_SHA256,
    };
    let signature = mac(kind, SECRET, text);
    format!(
        "hmac username=\"{user}\", algorithm=\"{algorithm}\", headers=\"{names}\", signature=\"{signature}\""
    )
}

/// Settings, `Authorization`, date, and what comes of them.
type OlderCase<'a> = (Value, String, &'a str, &'static str);

async fn judged_by_authorization(cases: Vec<OlderCase<'_>>) {
    let today = date(now());
    for (config, value, date, expected) in cases {
        let trial = trial(&config);
        let fields = [("date", date), ("authorization", &value), ("x-a", "1"), ("x-date", &today)];
        let fields = if value.contains("x-date") { &fields[..] } else { &fields[..3] };
        assert_eq!(caller(&trial, "GET", "/a/b?x=1", fields, "").await, expected, "{config} {value}");
        let kept = trial.asked().pop().is_some_and(|asked| asked.headers.contains_key("authorization"));
        assert!(!kept, "the signature is hidden");
    }
}

#[tokio::test]
async fn who_signs_and_when_in_the_older_scheme() {
    let (today, old) = (date(now()), date(now() - 400));
    let head = format!("date: {today}\n@request-target: get /a/b?x=1\nhost: client.test");
    let all = "date @request-target host";
    judged_by_authorization(vec![
        (json!({}), authorization("alice", "hmac-sha256", all, &head), &today, "alice"),
        (json!({}), authorization("a-1", "hmac-sha384", all, &head), &today, "alice"),
        (json!({}), authorization("alice", "hmac-sha512", all, &head), &today, "alice"),
        (
            json!({}),
            authorization("alice", "hmac-sha256", all, &head).replacen("hmac", "HMAC", 1),
            &today,
            "alice",
        ),
        (json!({}), authorization("mallory", "hmac-sha256", all, &head), &today, "signature_invalid"),
        (json!({}), authorization("guest", "hmac-sha256", all, &head), &today, "signature_invalid"),
        (json!({}), authorization("alice", "hmac-sha1", all, &head), &today, "signature_algorithm"),
        (
            json!({ "algorithms": ["hmac-sha512"] }),
            authorization("alice", "hmac-sha256", all, &head),
            &today,
            "signature_algorithm",
        ),
        (
            json!({}),
            authorization("alice", "hmac-sha256", all, &head.replace("x=1", "x=2")),
            &today,
            "signature_invalid",
        ),
        (
            json!({}),
            authorization("alice", "hmac-sha256", all, &head.replace("client", "evil")),
            &today,
            "signature_invalid",
        ),
        (
            json!({}),
            authorization("alice", "hmac-sha256", all, &head.replace(&today, &old)),
            &old,
            "signature_date",
        ),
        (
            json!({ "clock_skew": 500 }),
            authorization("alice", "hmac-sha256", all, &head.replace(&today, &old)),
            &old,
            "alice",
        ),
        (
            json!({}),
            authorization("alice", "hmac-sha256", "date", &format!("date: {today}")),
            &today,
            "signature_uncovered",
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_is_signed_in_the_older_scheme() {
    let (today, old) = (date(now()), date(now() - 400));
    let head = format!("date: {today}\n@request-target: get /a/b?x=1\nhost: client.test");
    let all = "date @request-target host";
    let only_date = json!({ "enforce_headers": [] });
    judged_by_authorization(vec![
        (
            only_date.clone(),
            authorization("alice", "hmac-sha256", "date", &format!("date: {today}")),
            &today,
            "alice",
        ),
        (only_date.clone(), authorization("alice", "hmac-sha256", "x-a", "x-a: 1"), &today, "signature_date"),
        (
            only_date.clone(),
            authorization("alice", "hmac-sha256", "date x-b", &format!("date: {today}\nx-b: 1")),
            &today,
            "signature_uncovered",
        ),
        (
            only_date.clone(),
            authorization("alice", "hmac-sha256", "x-date", &format!("x-date: {today}")),
            &old,
            "alice",
        ),
        (
            json!({}),
            authorization(
                "alice",
                "hmac-sha256",
                "host date request-line",
                &format!("host: client.test\ndate: {today}\nGET /a/b?x=1 HTTP/1.1"),
            ),
            &today,
            "alice",
        ),
        (
            json!({ "enforce_headers": ["Date", "(request-target)"] }),
            authorization(
                "alice",
                "hmac-sha256",
                "date (request-target)",
                &format!("date: {today}\n(request-target): get /a/b?x=1"),
            ),
            &today,
            "alice",
        ),
        (json!({}), "hmac".into(), &today, "signature_malformed"),
        (json!({}), "hmac username=\"alice\"".into(), &today, "signature_malformed"),
        (json!({}), "hmac username=\"alice\", username=\"alice\"".into(), &today, "signature_malformed"),
        (json!({}), "hmac username=\"alice".into(), &today, "signature_malformed"),
        (
            json!({}),
            "hmac username=\"alice\" algorithm=\"hmac-sha256\"".into(),
            &today,
            "signature_malformed",
        ),
        (json!({}), "Bearer x".into(), &today, "signature_missing"),
        (
            json!({ "schemes": ["message_signatures"] }),
            authorization("alice", "hmac-sha256", all, &head),
            &today,
            "signature_missing",
        ),
    ])
    .await;
}
