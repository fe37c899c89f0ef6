//! Who is kept out, and that each option does something.

use gateway_core::plugin::entry;
use gateway_core::testing::Trial;
use gateway_plugin_common::testing::metric;
use serde_json::{Value, json};

use super::*;

const BROWSERS: &[&str] = &[
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36",
    "Opera/9.80 (Windows NT 6.1; U; en) Presto/2.8.131 Version/11.11",
];

async fn status(config: &Value, agent: &str) -> u16 {
    let trial = Trial::new(&[entry::<BotDetection>()], "bot_detection", config.clone());
    trial.get("/", &[("user-agent", agent)]).await.status
}

#[tokio::test]
async fn browsers_pass_all_lists_and_each_list_keeps_its_own_out() {
    let all = json!({ "lists": ["scanners", "tools", "headless", "scrapers", "ai", "search"] });
    let trial = Trial::new(&[entry::<BotDetection>()], "bot_detection", all);
    for browser in BROWSERS {
        assert_eq!(trial.get("/", &[("user-agent", browser)]).await.status, 200, "{browser}");
    }
    for (list, agent) in [
        ("scanners", "sqlmap/1.8.2#stable (https://sqlmap.org)"),
        ("tools", "CURL/8.5.0"),
        (
            "headless",
            "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0.0.0 Safari/537.36",
        ),
        ("scrapers", "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)"),
        ("ai", "Mozilla/5.0 AppleWebKit/537.36; compatible; GPTBot/1.2; +https://openai.com/gptbot"),
        ("search", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"),
    ] {
        assert_eq!(status(&json!({ "lists": [list] }), agent).await, 403, "{list}");
        assert_eq!(status(&json!({ "lists": [], "deny": ["x-none"] }), agent).await, 200, "{list}");
    }
    assert_eq!(status(&json!({}), "nikto").await, 403);
    assert_eq!(status(&json!({}), "Googlebot/2.1").await, 200, "search engines pass by default");
}

#[tokio::test]
async fn own_patterns_and_what_is_allowed() {
    let config = json!({ "lists": ["tools"], "deny": ["evil", "~^bad-[0-9]+$", "~^worm.x$"], "allow": ["curl/8", "~^good"] });
    for (agent, expected) in [
        ("Evil/1", 403),
        ("bad-7", 403),
        ("bad-x", 200),
        ("worm\u{ff}x", 403),
        ("curl/7", 403),
        ("curl/8.1", 200),
        ("good evil", 200),
        ("not good evil", 403),
    ] {
        assert_eq!(status(&config, agent).await, expected, "{agent}");
    }
}

#[tokio::test]
async fn a_missing_header_an_odd_one_and_several() {
    let trial = |config| Trial::new(&[entry::<BotDetection>()], "bot_detection", config);
    assert_eq!(trial(json!({})).get("/", &[]).await.status, 200);
    let strict = trial(json!({ "on_missing": "deny", "lists": [], "status_code": 404 }));
    assert_eq!(strict.get("/", &[]).await.status, 404);
    assert_eq!(strict.get("/", &[("user-agent", " ")]).await.status, 404);
    assert_eq!(strict.records()[0].reason, Some("bot_denied"));
    assert_eq!(strict.records()[0].fields, [("bot_detection.list", "missing".into())]);
    assert_eq!(
        trial(json!({})).get("/", &[("user-agent", "curl/8")]).await.status,
        200,
        "programs call APIs"
    );
    let several = trial(json!({ "lists": ["tools"] }));
    let got = several.get("/", &[("user-agent", BROWSERS[0]), ("user-agent", "curl/1")]).await;
    assert_eq!(got.status, 403, "a second field does not hide");
    let mut request = http::Request::get("/").body(Default::default()).unwrap();
    let bytes = http::HeaderValue::from_bytes(b"\xff\xfecurl/8").unwrap();
    request.headers_mut().insert("user-agent", bytes);
    assert_eq!(several.send(request).await.status, 403, "nor do bytes that are no text");
}

#[tokio::test]
async fn a_dry_run_notes_and_counts() {
    let world = World::default();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "b", "plugin_name": "bot_detection", "proxy_id": "a", "config": { "dry_run": true, "lists": ["tools"] } }],
    });
    let trial = Trial::of_spec(&[entry::<BotDetection>()], &spec.to_string(), &world);
    assert_eq!(trial.get("/", &[("user-agent", "curl/8")]).await.status, 200);
    let expected = [("bot_detection.list", "tools".into()), ("bot_detection.would_deny", true.into())];
    assert_eq!(trial.records()[0].fields, expected);
    assert_eq!(metric(&world, DENIED.name, &["tools"]), 1);
    assert_eq!(metric(&world, DENIED.name, &["scanners"]), 0);
}

#[test]
fn lists_are_plain_and_have_nothing_twice() {
    let lists = [List::Scanners, List::Tools, List::Headless, List::Scrapers, List::Ai, List::Search];
    let mut seen = std::collections::HashSet::new();
    for pattern in lists.iter().flat_map(|list| list.patterns()) {
        assert!(seen.insert(pattern), "{pattern} twice");
        assert!(pattern.len() >= 3 && **pattern == pattern.to_lowercase(), "{pattern}");
    }
}

#[test]
fn bad_settings_are_refused() {
    for (config, path) in [
        (json!({ "lists": [] }), "config"),
        (json!({ "lists": ["tools", "tools"] }), "config.lists[1]"),
        (json!({ "lists": ["robots"] }), "config.lists[0]"),
        (json!({ "deny": ["a", " "] }), "config.deny[1]"),
        (json!({ "allow": ["~("] }), "config.allow[0]"),
        (json!({ "status_code": 200 }), "config.status_code"),
        (json!({ "on_missing": "maybe" }), "config.on_missing"),
    ] {
        let problems = Trial::refused(&[entry::<BotDetection>()], "bot_detection", &config);
        assert_eq!(problems.0[0].path, path, "{problems}");
    }
}
