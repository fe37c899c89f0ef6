//! The admin API, one thing at a time.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use test_servers::ports::free_port;

use crate::client::{Answer, Client, TIMEOUT, target};
use crate::database::place::{
    ADMIN, Api, Folder, JWT, READ, Running, WRITE, consumer, key_auth, protected, proxy, text,
};
use ferrum_edge::source::database::Database;

/// A gateway, somebody who asks it, and a target.
fn begin(folder: &Folder) -> (Running, Api, SocketAddr) {
    let running = Running::new(folder);
    let api = running.api();
    (running, api, target("behind"))
}

fn is_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)), "{answer:?}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{answer:?}");
}

fn pointers(answer: &Answer) -> Vec<String> {
    let document = answer.json();
    document["errors"].as_array().unwrap().iter().map(|error| text(&error["pointer"]).to_owned()).collect()
}

#[test]
fn what_is_deleted_and_put_at_once_is_refused() {
    let folder = Folder::new();
    let (running, mut api, target) = begin(&folder);
    api.batch(&protected(target));
    let both = json!({ "delete": { "proxies": ["a"] }, "proxies": [proxy("a", "/a", target)] });
    let answer = api.send("POST", "/v1/batch", &both);
    assert_eq!(answer.status, 422, "{answer:?}");
    let both = json!({
        "delete": { "plugin_configs": ["a-key"] }, "plugin_configs": [key_auth("a-key", "a")],
    });
    assert_eq!(api.send("POST", "/v1/batch", &both).status, 422);
    let twice = json!({ "delete": { "plugin_configs": ["a-key", "a-key"] } });
    assert_eq!(api.send("POST", "/v1/batch", &twice).status, 422);
    let mut client = running.client();
    assert_eq!(client.get("/a/x", None).status, 401);
    assert_eq!(api.get("/v1/proxies/a").status, 200);
}

/// Each unusable item is named at its place, and not only the first.
#[test]
fn items_of_a_batch_without_a_usable_id_are_named_at_their_places() {
    let folder = Folder::new();
    let (_running, mut api, target) = begin(&folder);
    let good = |id: &str| proxy(id, "/x", target);
    let cases = [
        (json!({ "proxies": [good("a b")] }), vec!["/proxies/0/id"]),
        (json!({ "proxies": [good("a"), { "listen_path": "/x" }] }), vec!["/proxies/1/id"]),
        (
            json!({ "proxies": [{ "id": 7 }, "text", good("/")] }),
            vec!["/proxies/0/id", "/proxies/1", "/proxies/2/id"],
        ),
        (json!({ "proxies": [good("a"), good("a")] }), vec!["/proxies/1/id"]),
        (
            json!({ "consumers": [{ "id": "" }], "proxies": [{ "id": null }] }),
            vec!["/consumers/0/id", "/proxies/0/id"],
        ),
    ];
    for (body, wanted) in cases {
        let answer = api.send("POST", "/v1/batch?validate_only", &body);
        assert_eq!(answer.status, 422, "{answer:?}");
        let mut named = pointers(&answer);
        named.sort_unstable();
        assert_eq!(named, wanted, "{answer:?}");
    }
}

#[test]
fn every_kind_is_created_read_changed_and_deleted() {
    let folder = Folder::new();
    let (_running, mut api, target) = begin(&folder);
    api.batch(&json!({ "proxies": [proxy("home", "/home", target)] }));
    let group = json!({ "id": "one", "targets": [{ "host": "127.0.0.1", "port": 9 }] });
    for (kind, object, (field, other)) in [
        ("proxies", proxy("one", "/one", target), ("listen_path", json!("/two"))),
        ("consumers", consumer("one", &["key"]), ("username", json!("uno"))),
        ("upstreams", group, ("name", json!("group"))),
        ("plugin_configs", key_auth("one", "home"), ("enabled", json!(false))),
    ] {
        let (all, path) = (format!("/v1/{kind}"), format!("/v1/{kind}/one"));
        is_problem(&api.get(&path), 404, "not_found");
        let created = api.send("POST", &all, &object);
        assert_eq!((created.status, created.header("location")), (201, Some(path.as_str())), "{created:?}");
        let revision = created.header("ferrum-revision").unwrap().to_owned();
        let tag = created.header("etag").unwrap().to_owned();
        assert_eq!(tag, format!("\"{revision}\""));
        let read = api.get(&path);
        assert_eq!((read.json(), read.header("etag")), (created.json(), Some(tag.as_str())));
        assert!(created.json()["created_at"].is_string() && created.json()["revision"].is_u64());
        is_problem(&api.send("POST", &all, &object), 409, "exists");
        is_problem(
            &api.ask("PUT", &path, "if-none-match: *\r\n", object.to_string().as_bytes()),
            412,
            "exists",
        );
        // What was read may be sent back, and is no change.
        let same = api.good("PUT", &path, &read.json());
        assert_eq!(same.header("etag"), Some(tag.as_str()), "{same:?}");
        let known = api.ask("GET", &path, &format!("if-none-match: \"x\", W/{tag}\r\n"), b"");
        assert_eq!((known.status, known.text.as_str(), known.header("etag")), (304, "", Some(tag.as_str())));
        assert_eq!(api.ask("GET", &path, "if-none-match: \"0\"\r\n", b"").status, 200);
        let operations = api.ask("PATCH", &path, "content-type: application/json-patch+json\r\n", b"{}");
        assert_eq!(operations.header("accept-patch"), Some("application/merge-patch+json, application/json"));
        is_problem(&operations, 415, "not_a_merge_patch");
        let patched = api.good("PATCH", &path, &json!({ field: other }));
        assert_eq!(patched.json()[field], other);
        let stale = format!("if-match: {tag}\r\n");
        is_problem(&api.ask("PUT", &path, &stale, object.to_string().as_bytes()), 412, "changed");
        is_problem(&api.ask("DELETE", &path, &stale, b""), 412, "changed");
        is_problem(&api.ask("PUT", &path, "if-match: W/\"1\"\r\n", b"{}"), 400, "bad_condition");
        let fresh = format!("if-match: {}\r\n", patched.header("etag").unwrap());
        let put = api.ask("PUT", &path, &fresh, object.to_string().as_bytes());
        assert_eq!((put.status, &put.json()[field]), (200, &created.json()[field]), "{put:?}");
        // `null` in a patch takes a field out.
        let cleared = api.send("PATCH", &path, &json!({ field: null }));
        assert!(cleared.status == 422 || cleared.json().get(field).is_none(), "{cleared:?}");
        is_problem(&api.send("PUT", &path, &json!({ "id": "two" })), 422, "invalid");
        is_problem(&api.send("PATCH", &format!("/v1/{kind}/nobody"), &json!({})), 404, "not_found");
        is_problem(
            &api.ask("PUT", &format!("/v1/{kind}/nobody"), "if-match: *\r\n", b"{}"),
            412,
            "not_found",
        );
        let deleted = api.delete(&path);
        assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
        is_problem(&api.delete(&path), 404, "not_found");
        is_problem(&api.get(&path), 404, "not_found");
    }
    // Without an id it is given one.
    let named = api.send("POST", "/v1/consumers", &json!({ "username": "nameless" })).json();
    assert_eq!(text(&named["id"]).len(), 32);
}

#[test]
fn lists_come_in_pages_and_can_be_searched() {
    let folder = Folder::new();
    let (_running, mut api, target) = begin(&folder);
    let proxies: Vec<Value> = (0..25)
        .map(|n| {
            let mut proxy = proxy(&format!("p{n:02}"), &format!("/p{n}"), target);
            proxy["hosts"] = json!([if n % 2 == 0 { "even.example" } else { "odd.example" }]);
            proxy
        })
        .collect();
    api.batch(&json!({ "proxies": proxies }));
    let (mut seen, mut path) = (Vec::new(), "/v1/proxies?limit=10".to_owned());
    loop {
        let page = api.get(&path).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 10);
        seen.extend(items.iter().map(|item| text(&item["id"]).to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/proxies?limit=10&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..25).map(|n| format!("p{n:02}")).collect::<Vec<_>>());
    let found = api.get("/v1/proxies?listen_path=%2Fp7").json();
    assert_eq!((found["items"].as_array().unwrap().len(), &found["items"][0]["id"]), (1, &json!("p07")));
    assert_eq!(
        api.get("/v1/proxies?hosts.0=even.example&limit=100").json()["items"].as_array().unwrap().len(),
        13
    );
    assert_eq!(api.get("/v1/proxies?listen_path=none").json(), json!({ "items": [], "next": null }));
    for query in ["listen_pth=/p7", "hosts2.0=x", "listen_path=%2Fp7&what=1", "=x"] {
        is_problem(&api.get(&format!("/v1/proxies?{query}")), 400, "bad_query");
    }
    for (kind, query) in
        [("plugin_configs", "plugin_name=x"), ("upstreams", "name=x"), ("consumers", "acl_groups=x")]
    {
        assert_eq!(api.get(&format!("/v1/{kind}?{query}")).json(), json!({ "items": [], "next": null }));
    }
    for limit in ["many", "0", "1001"] {
        is_problem(&api.get(&format!("/v1/proxies?limit={limit}")), 400, "bad_query");
    }
    is_problem(&api.get("/v1/routes"), 404, "not_found");
}

#[test]
fn validate_only_writes_nothing() {
    let folder = Folder::new();
    let (running, mut api, target) = begin(&folder);
    api.batch(&protected(target));
    let before = api.get("/v1/export").json();
    let port = free_port();
    let stream = json!({ "id": "s", "backend_scheme": "tcp", "listen_port": port, "backend_host": "127.0.0.1", "backend_port": 9 });
    for _ in 0..3 {
        for (method, path, body) in [
            ("POST", "/v1/proxies?validate_only", proxy("b", "/b", target)),
            ("PUT", "/v1/proxies/s?validate_only", stream.clone()),
            ("PATCH", "/v1/proxies/a?validate_only=true", json!({ "listen_path": "/c" })),
            ("DELETE", "/v1/proxies/a?validate_only", json!({})),
            ("POST", "/v1/batch?validate_only&details", json!({ "delete": { "plugin_configs": ["a-key"] } })),
            ("POST", "/v1/import?validate_only", json!({ "version": "1", "proxies": [] })),
        ] {
            api.good(method, path, &body);
        }
    }
    assert_eq!(api.get("/v1/export").json(), before);
    assert_eq!(api.get("/v1/revisions").json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(running.client().get("/a/x", None).status, 401);
    assert_eq!(running.client().get("/b/x", None).status, 404);
    drop(std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
    is_problem(&api.send("POST", "/v1/proxies?validate_only", &json!({ "id": "b" })), 422, "invalid");
    is_problem(
        &api.send("POST", "/v1/proxies?validate_only=perhaps", &json!({ "id": "b" })),
        400,
        "bad_query",
    );
}

#[test]
fn a_batch_with_one_bad_object_writes_nothing_and_tells_everything() {
    let folder = Folder::new();
    let (running, mut api, target) = begin(&folder);
    let mut proxies: Vec<Value> =
        (0..50).map(|n| proxy(&format!("p{n}"), &format!("/p{n}"), target)).collect();
    proxies[3]["backend_port"] = json!(70000);
    proxies[7]["upstream_id"] = json!("nowhere");
    proxies[9]["lisen_path"] = json!("/typo");
    proxies[11]["listen_path"] = json!("/p12");
    let body = json!({
        "proxies": proxies,
        "consumers": [consumer("ann", &["same"]), consumer("bob", &["same"])],
        "plugin_configs": [{ "id": "k", "plugin_name": "key_oath", "proxy_id": "p1" }, key_auth("l", "nobody")],
    });
    let answer = api.send("POST", "/v1/batch", &body);
    is_problem(&answer, 422, "invalid");
    let pointers = pointers(&answer);
    for wanted in [
        "/proxies/3/backend_port",
        "/proxies/7",
        "/proxies/9/lisen_path",
        "/proxies/1",
        "/consumers/1/credentials",
        "/plugin_configs/0/plugin_name",
        "/plugin_configs/1/proxy_id",
    ] {
        assert!(pointers.iter().any(|pointer| pointer.starts_with(wanted)), "{wanted} of {pointers:?}");
    }
    let unsealed = json!({ "consumers": [consumer("ann", &["k"]), { "id": "b", "username": "b", "credentials": { "key_auth": [{ "kee": "SECRET" }] } }] });
    let answer = api.send("POST", "/v1/batch", &unsealed);
    is_problem(&answer, 422, "invalid");
    assert!(
        answer.text.contains("/consumers/1/credentials") && !answer.text.contains("SECRET"),
        "{answer:?}"
    );
    assert_eq!(api.get("/v1/proxies").json()["items"], json!([]));
    assert_eq!(api.get("/v1/revisions").json()["items"], json!([]));
    assert_eq!(running.client().get("/p1/x", None).status, 404);
    for bad in [
        json!({ "proxys": [] }),
        json!({ "proxies": {} }),
        json!({ "proxies": [1] }),
        json!({ "proxies": [{}] }),
        json!({ "delete": [] }),
    ] {
        is_problem(&api.send("POST", "/v1/batch", &bad), 422, "invalid");
    }
}

#[test]
fn objects_exchange_what_they_have_within_a_batch() {
    let folder = Folder::new();
    let (running, mut api, _) = begin(&folder);
    let (left, right) = (target("left"), target("right"));
    api.batch(&json!({
        "proxies": [proxy("l", "/one", left), proxy("r", "/two", right)],
        "plugin_configs": [{ "id": "all", "plugin_name": "key_auth", "scope": "global" }],
        "consumers": [consumer("ann", &["k1"]), consumer("bob", &["k2"])],
    }));
    let mut client = running.client();
    assert_eq!(client.get("/one/x", Some("k1")).text, "left /x ann -");
    is_problem(&api.send("PUT", "/v1/proxies/l", &proxy("l", "/two", left)), 422, "invalid");
    is_problem(&api.send("PUT", "/v1/consumers/ann", &consumer("ann", &["k2"])), 422, "invalid");
    api.batch(&json!({
        "proxies": [proxy("l", "/two", left), proxy("r", "/one", right)],
        "consumers": [consumer("ann", &["k2"]), consumer("bob", &["k1"])],
    }));
    assert_eq!(client.get("/one/x", Some("k1")).text, "right /x bob -");
    assert_eq!(client.get("/two/x", Some("k2")).text, "left /x ann -");
}

#[test]
fn what_is_in_use_stays_and_what_belongs_to_a_proxy_goes_with_it() {
    let folder = Folder::new();
    let (running, mut api, at) = begin(&folder);
    let mut body = protected(at);
    body["upstreams"] = json!([{ "id": "group", "targets": [{ "host": "127.0.0.1", "port": at.port() }] }]);
    body["proxies"] =
        json!([{ "id": "a", "listen_path": "/a", "backend_scheme": "http", "upstream_id": "group" }]);
    api.batch(&body);
    let refused = api.delete("/v1/upstreams/group");
    is_problem(&refused, 422, "invalid");
    assert!(refused.text.contains("proxy `a`"), "{refused:?}");
    assert_eq!(running.client().get("/a/x", Some("ann-key")).status, 200);
    assert_eq!(api.delete("/v1/proxies/a").status, 204);
    is_problem(&api.get("/v1/plugin_configs/a-key"), 404, "not_found");
    assert_eq!(api.delete("/v1/upstreams/group").status, 204);
    // Another proxy with that id does not inherit anything.
    api.good("PUT", "/v1/proxies/a", &proxy("a", "/a", at));
    assert_eq!(running.client().get("/a/x", None).status, 200);
}

#[test]
fn a_configuration_is_exported_imported_compared_and_rolled_back() {
    let folder = Folder::new();
    let (running, mut api, at) = begin(&folder);
    api.batch(&protected(at));
    let export = api.get("/v1/export");
    let whole = export.json();
    let again = api.send("POST", "/v1/import?details", &whole).json();
    assert_eq!((&again["revision"], &again["changes"]), (&json!(1), &json!([])), "{again}");
    let mut other = whole.clone();
    other["proxies"][0]["listen_path"] = json!("/moved");
    other["consumers"] = json!([consumer("bob", &["bob-key"])]);
    let imported = api.good("POST", "/v1/import?details&note=moving", &other).json();
    assert_eq!(
        (&imported["created"], &imported["updated"], &imported["deleted"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let mut client = running.client();
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 404);
    assert_eq!(client.get("/moved/x", Some("ann-key")).status, 401);
    assert_eq!(client.get("/moved/x", Some("bob-key")).status, 200);
    let diff = api.get("/v1/diff?from=1").json();
    let kinds: Vec<&str> =
        diff["changes"].as_array().unwrap().iter().map(|change| text(&change["kind"])).collect();
    assert_eq!((kinds.len(), &diff["to"]), (3, &json!(2)), "{diff}");
    let history = api.get("/v1/revisions").json();
    assert_eq!(
        (&history["items"][0]["note"], &history["items"][0]["author"]),
        (&json!("moving"), &json!("admin token"))
    );
    assert_eq!(api.get("/v1/revisions/2").json()["changes"], diff["changes"]);
    api.good("POST", "/v1/revisions/1/rollback", &json!({}));
    assert_eq!(api.get("/v1/export").json(), whole);
    assert_eq!(client.get("/a/x", Some("ann-key")).status, 200);
    assert_eq!(client.get("/a/x", None).status, 401);
    is_problem(&api.send("POST", "/v1/revisions/99/rollback", &json!({})), 404, "no_history");
    is_problem(&api.get("/v1/revisions/99"), 404, "not_found");
    is_problem(&api.get("/v1/revisions/first"), 400, "bad_revision");
    is_problem(&api.get("/v1/diff"), 400, "bad_query");
    is_problem(&api.get("/v1/diff?from=1&what=2"), 400, "bad_query");
    is_problem(&api.send("POST", "/v1/import", &json!({ "gateway": { "workers": 1 } })), 422, "invalid");
    // What says nothing deletes nothing.
    for nothing in [json!({}), json!({ "version": "1" }), json!({ "consumers": [] })] {
        is_problem(&api.send("POST", "/v1/import", &nothing), 422, "invalid");
        assert_eq!(api.send("POST", "/v1/import?prune=false", &nothing).status, 200, "{nothing}");
    }
    // And into an empty gateway.
    let empty = Folder::new();
    let second = Running::new(&empty);
    second.api().good("POST", "/v1/import", &whole);
    assert_eq!(second.client().get("/a/x", Some("ann-key")).status, 200);
    assert_eq!(second.client().get("/a/x", None).status, 401);
}

#[test]
fn what_is_served_is_told_and_targets_come_and_go() {
    let folder = Folder::new();
    let references = "file:/run/app.sock".parse().unwrap();
    let running = Running::on(Database { references, ..Running::database(folder.location()) });
    let mut api = running.api();
    let (left, right) = (target("left"), target("right"));
    let mut body = protected(left);
    body["upstreams"] = json!([{ "id": "group", "targets": [{ "host": "127.0.0.1", "port": left.port() }] }]);
    body["proxies"] =
        json!([{ "id": "a", "listen_path": "/a", "backend_scheme": "http", "upstream_id": "group" }]);
    body["plugin_configs"] =
        json!([key_auth("a-key", "a"), { "id": "ids", "plugin_name": "correlation_id", "scope": "global" }]);
    api.batch(&body);
    let served = api.get("/v1/proxies/a/effective").json();
    let mut plugins: Vec<&str> =
        served["plugins"].as_array().unwrap().iter().map(|plugin| text(&plugin["id"])).collect();
    plugins.sort_unstable();
    assert_eq!((plugins, &served["closed"]), (vec!["a-key", "ids"], &Value::Null));
    is_problem(&api.get("/v1/proxies/nobody/effective"), 404, "not_found");
    let path = |at: SocketAddr| format!("/v1/upstreams/group/targets/127.0.0.1:{}", at.port());
    api.good("PUT", &path(right), &json!({ "weight": 5 }));
    let targets = api.get("/v1/upstreams/group/targets").json();
    assert_eq!((targets["items"].as_array().unwrap().len(), &targets["items"][1]["weight"]), (2, &json!(5)));
    assert!((200..300).contains(&api.delete(&path(left)).status));
    for _ in 0..4 {
        assert_eq!(running.client().get("/a/x", Some("ann-key")).text, "right /x ann -");
    }
    is_problem(&api.delete(&path(left)), 404, "not_found");
    is_problem(&api.delete(&path(right)), 422, "invalid");
    is_problem(&api.send("PUT", "/v1/upstreams/group/targets/nowhere", &json!({})), 422, "invalid");
    for (body, pointer) in [(json!({ "host": "127.0.0.2" }), "/host"), (json!({ "port": 1 }), "/port")] {
        let refused = api.send("PUT", &path(right), &body);
        is_problem(&refused, 422, "invalid");
        assert_eq!(refused.json()["errors"][0]["pointer"], json!(pointer), "{refused:?}");
    }
    api.good("PUT", &path(right), &json!({ "host": "127.0.0.1", "port": right.port(), "weight": 6 }));
    let [socket, service] = ["unix:%2Frun%2Fapp.sock", "srv:_http._tcp.shop.example.com"]
        .map(|name| format!("/v1/upstreams/group/targets/{name}"));
    for (place, host) in [(&socket, "unix:/run/app.sock"), (&service, "srv:_http._tcp.shop.example.com")] {
        api.good("PUT", place, &json!({ "priority": 1 }));
        api.good("PUT", place, &json!({ "priority": 2, "host": host }));
        is_problem(&api.send("PUT", place, &json!({ "port": 80 })), 422, "invalid");
        let items = api.get("/v1/upstreams/group/targets").json()["items"].clone();
        let found = items.as_array().unwrap().iter().filter(|target| target["host"] == *host);
        assert_eq!(found.map(|target| &target["priority"]).collect::<Vec<_>>(), [&json!(2)]);
        assert!((200..300).contains(&api.delete(place).status));
    }
    is_problem(&api.get("/v1/upstreams/none/targets"), 404, "not_found");
}

#[test]
fn roles_are_kept_apart() {
    let folder = Folder::new();
    let (running, mut api, at) = begin(&folder);
    api.batch(&protected(at));
    let (any, body) = (["GET", "PUT", "DELETE"], proxy("b", "/b", at).to_string());
    for token in [
        "",
        "x",
        "admin-token-012345678",
        &format!("{ADMIN} "),
        &jwt(&json!({}), b"another-secret-of-32-bytes-or-more"),
        &jwt(&json!({ "exp": 1 }), JWT.as_bytes()),
        &jwt(&json!({ "role": "root" }), JWT.as_bytes()),
        &unsigned(),
    ] {
        let expected = if token.trim() == ADMIN { 200 } else { 401 };
        let answer = api.with(token).get("/v1/proxies");
        assert_eq!(answer.status, expected, "{token}: {answer:?}");
        if expected == 401 {
            is_problem(&answer, 401, "unauthorized");
            assert!(answer.header("www-authenticate").is_some());
            for method in any {
                assert_eq!(api.ask(method, "/v1/proxies/b", "", body.as_bytes()).status, 401);
            }
        }
    }
    assert_eq!(Client::new(running.admin).get("/v1/export", None).status, 401);
    let jwt = |role: &str| jwt(&json!({ "role": role }), JWT.as_bytes());
    for (token, role) in [
        (READ.to_owned(), 0),
        (WRITE.to_owned(), 1),
        (ADMIN.to_owned(), 2),
        (jwt("read"), 0),
        (jwt("write"), 1),
        (jwt("admin"), 2),
    ] {
        let api = api.with(&token);
        for (needed, method, path) in [
            (0, "GET", "/v1/proxies"),
            (0, "GET", "/v1/export"),
            (0, "GET", "/v1/diff?from=1"),
            (1, "PUT", "/v1/proxies/b?validate_only"),
            (1, "PATCH", "/v1/proxies/a?validate_only"),
            (1, "DELETE", "/v1/proxies/a?validate_only"),
            (1, "POST", "/v1/batch?validate_only"),
            (1, "POST", "/v1/proxies?validate_only"),
            (2, "POST", "/v1/import?validate_only"),
            (2, "POST", "/v1/revisions/1/rollback?validate_only"),
        ] {
            let sent = match path {
                path if path.contains("import") => r#"{"proxies":[]}"#,
                path if path.contains("batch") || method == "PATCH" => "{}",
                path if path.contains("rollback") || method == "DELETE" => "",
                _ => &body,
            };
            let answer = api.ask(method, path, "", sent.as_bytes());
            if needed <= role {
                assert!((200..300).contains(&answer.status), "{role} {method} {path}: {answer:?}");
            } else {
                is_problem(&answer, 403, "forbidden");
            }
        }
    }
    api.with(&jwt("write")).good("PUT", "/v1/proxies/b", &proxy("b", "/b", at));
    assert_eq!(api.get("/v1/revisions").json()["items"][0]["author"], "ann");
    assert_eq!(api.get("/v1/revisions").json()["items"].as_array().unwrap().len(), 2);
}

#[test]
fn who_may_not_is_told_so_before_a_body_is_read() {
    let folder = Folder::new();
    let (running, ..) = begin(&folder);
    for (token, status, asked) in [
        ("nobody", 401, &["PUT /v1/proxies/a", "POST /v1/proxies", "POST /v1/batch"][..]),
        (
            READ,
            403,
            &[
                "PUT /v1/proxies/a",
                "PATCH /v1/consumers/a",
                "POST /v1/proxies",
                "POST /v1/batch",
                "POST /v1/import",
                "PUT /v1/upstreams/a/targets/b:1",
                "POST /v1/revisions/1/rollback",
            ],
        ),
        (WRITE, 403, &["POST /v1/import", "POST /v1/revisions/1/rollback"]),
    ] {
        for line in asked {
            let mut tcp = TcpStream::connect(running.admin).unwrap();
            tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
            let head = format!(
                "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: 100000000\r\n\r\n"
            );
            // Not a byte of the body comes.
            tcp.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            BufReader::new(tcp).read_line(&mut answer).unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(&*status.to_string()), "{line}: {answer}");
        }
    }
}

#[test]
fn a_name_that_stands_twice_in_a_body_is_refused_and_named() {
    let folder = Folder::new();
    let (running, mut api, at) = begin(&folder);
    let port = at.port();
    let twice = |more: &str| {
        format!(
            r#"{{"id":"b","listen_path":"/b","backend_scheme":"http","backend_host":"h","backend_port":{port},{more}}}"#
        )
    };
    for (method, path, body, pointer) in [
        ("PUT", "/v1/proxies/b", twice(r#""listen_path":"/c""#), "/listen_path"),
        (
            "POST",
            "/v1/proxies",
            twice(r#""retry":{"max_attempts":1,"max_attempts":2}"#),
            "/retry/max_attempts",
        ),
        ("PATCH", "/v1/proxies/a", r#"{"hosts":["a"],"hosts":[]}"#.to_owned(), "/hosts"),
        ("POST", "/v1/batch", format!(r#"{{"proxies":[{}]}}"#, twice(r#""id":"c""#)), "/proxies/0/id"),
        ("POST", "/v1/import", r#"{"proxies":[],"proxies":[]}"#.to_owned(), "/proxies"),
        ("POST", "/v1/batch", r#"{"delete":{"a~/b":1,"a~/b":[]}}"#.to_owned(), "/delete/a~0~1b"),
    ] {
        let answer = api.ask(method, path, "", body.as_bytes());
        is_problem(&answer, 400, "duplicate_key");
        assert_eq!(pointers(&answer), [pointer], "{answer:?}");
    }
    assert_eq!(running.snapshot_count(), 0, "nothing was changed");
}

fn jwt(claims: &Value, secret: &[u8]) -> String {
    let mut all = json!({ "sub": "ann", "exp": 4_000_000_000_u64, "role": "admin" });
    all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "typ": "JWT" })), part(&all));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn unsigned() -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({ "sub": "eve", "exp": 4_000_000_000_u64, "role": "admin" });
    format!("{}.{}.", part(&json!({ "alg": "none" })), part(&claims))
}

#[test]
fn what_can_t_be_understood_is_refused_as_a_document() {
    let folder = Folder::new();
    let (running, mut api, _) = begin(&folder);
    for body in ["", "{", "[]", "null", "\"x\"", "{\"a\":1,}", "\u{0}"] {
        is_problem(&api.ask("PUT", "/v1/proxies/a", "", body.as_bytes()), 400, "bad_json");
        is_problem(&api.ask("POST", "/v1/batch", "", body.as_bytes()), 400, "bad_json");
    }
    let deep = "[".repeat(100_000);
    is_problem(&api.ask("POST", "/v1/batch", "", deep.as_bytes()), 400, "bad_json");
    for (method, path) in [
        ("PUT", "/v1/proxies"),
        ("POST", "/v1/proxies/a"),
        ("GET", "/v1/batch"),
        ("DELETE", "/v1/export"),
        ("PATCH", "/v1/status"),
    ] {
        let answer = api.ask(method, path, "", b"{}");
        is_problem(&answer, 405, "method_not_allowed");
        assert!(answer.header("allow").is_some(), "{answer:?}");
    }
    for path in ["/v1", "/v1/", "/v2/proxies", "/v1/proxies/a/b"] {
        is_problem(&api.get(path), 404, "not_found");
    }
    is_problem(&api.get("/v1/proxies/%ff"), 400, "bad_request");
    is_problem(&api.get("/v1/proxies/a%20b"), 422, "invalid");
    is_problem(&api.ask("DELETE", "/v1/proxies/a?what=1", "", b""), 400, "bad_query");
    is_problem(&api.ask("POST", "/v1/batch?what=1", "", b"{}"), 400, "bad_query");
    // More than the limit is refused by its announced length, unread.
    let mut client = Client::new(running.admin);
    let head = format!("authorization: Bearer {ADMIN}\r\nx-pad: 1\r\n");
    let huge = vec![b' '; (128 << 20) + 1];
    is_problem(&client.ask("POST", "/v1/batch", &head, &huge), 413, "too_large");
    assert_eq!(api.get("/v1/proxies").status, 200);
}

#[test]
fn secrets_are_in_no_answer_and_not_in_the_database() {
    let folder = Folder::new();
    let (_running, mut api, at) = begin(&folder);
    api.batch(&protected(at));
    let with = |credentials: Value| json!({ "id": "bob", "username": "bob", "credentials": credentials });
    let basic =
        with(json!({ "basic_auth": [{ "password": "SECRET-word" }], "key_auth": [{ "key": "SECRET-key" }] }));
    let mut said = vec![api.send("PUT", "/v1/consumers/bob", &basic)];
    for bad in [
        json!("SECRET"),
        json!(["SECRET"]),
        json!({ "key_auth": [["SECRET"]] }),
        json!({ "key_auth": [{ "kee": "SECRET" }] }),
        json!({ "key_auth": [{ "key": { "a": "SECRET" } }] }),
        json!({ "jwt_auth": "SECRET" }),
        json!({ "hmac_auth": [{ "secret": ["SECRET"] }] }),
        json!({ "key_auth": [{ "key": "SECRET-key" }], "unknown": [{ "x": "SECRET" }] }),
        json!({ "key_auth": "SECRET-key" }),
    ] {
        said.push(api.send("PUT", "/v1/consumers/eve", &with(bad.clone())));
        said.push(api.send("POST", "/v1/consumers", &json!({ "username": "eve", "credentials": bad })));
        said.push(api.send(
            "POST",
            "/v1/batch",
            &json!({ "consumers": [{ "id": "eve", "username": "eve", "credentials": bad }] }),
        ));
        said.push(api.send("PATCH", "/v1/consumers/bob", &json!({ "credentials": bad })));
    }
    for path in [
        "/v1/consumers",
        "/v1/consumers/bob",
        "/v1/consumers/eve",
        "/v1/export",
        "/v1/revisions/2",
        "/v1/diff?from=0",
        "/v1/audit",
        "/v1/status",
        "/metrics",
        "/v1/proxies/a/effective",
    ] {
        for token in [ADMIN, READ] {
            said.push(api.with(token).get(path));
        }
    }
    api.with(ADMIN);
    for answer in &said {
        assert!(!answer.text.contains("SECRET") && !answer.text.contains("ann-key"), "{answer:?}");
    }
    let digest = "f0a3cb5b";
    is_problem(
        &api.get(&format!("/v1/consumers?credentials.key_auth.0.key_sha256={digest}")),
        400,
        "bad_query",
    );
    is_problem(&api.get("/v1/consumers?credentials=x"), 400, "bad_query");
    let shown = api.with(READ).get("/v1/export");
    assert!(!shown.text.contains("key_sha256") && !shown.text.contains("sealed"), "{shown:?}");
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for secret in [&b"SECRET"[..], b"ann-key"] {
            assert!(!bytes.windows(secret.len()).any(|found| found == secret));
        }
    }
}

#[test]
fn the_description_names_every_endpoint() {
    let folder = Folder::new();
    let (running, mut api, _) = begin(&folder);
    let description = Client::new(running.admin).get("/v1/openapi.json", None).json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    let mut count = 0;
    for (path, operations) in paths {
        let real = path.replace("{kind}", "proxies").replace("{revision}", "1");
        let mut real = real.replace("{id}", "nobody").replace("{target}", "h:1");
        if ["/v1/access-log", "/v1/sessions/counters"].contains(&path.as_str()) {
            // Goes on until the client leaves, unless the query is wrong.
            real.push_str("?unknown=1");
        }
        for (method, operation) in operations.as_object().unwrap() {
            count += 1;
            assert!(
                operation["summary"].is_string() && operation["responses"].is_object(),
                "{path} {method}"
            );
            for name in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
                let parameters = operation["parameters"].as_array().unwrap();
                assert!(
                    parameters.iter().any(|known| known["name"] == *name && known["in"] == "path"),
                    "{path} {name}"
                );
            }
            let answer = api.ask(&method.to_uppercase(), &real, "", b"");
            let unknown = answer.status == 405 || answer.text.contains("There is no /v1/");
            assert!(!unknown, "{method} {path}: {answer:?}");
            // Whoever has not the role that it names is told so, whatever else is wrong with what was asked.
            let needed = operation["description"].as_str().and_then(|text| text.split(' ').nth(3));
            let (own, below) = match needed {
                None => continue,
                Some("read.") => (READ, None),
                Some("write.") => (WRITE, Some(READ)),
                Some("admin.") => (ADMIN, Some(WRITE)),
                Some(role) => panic!("{role}"),
            };
            let nobody = Client::new(running.admin).ask(&method.to_uppercase(), &real, "", b"{");
            is_problem(&nobody, 401, "unauthorized");
            // With the role, the answer is about the next mistake of the request.
            let allowed = api.with(own).ask(&method.to_uppercase(), &real, "", b"{");
            let is_refused = allowed.status == 401
                || allowed.status == 403
                    && ["forbidden", "out_of_scope"].map(Value::from).contains(&allowed.json()["code"]);
            assert!(!is_refused, "{method} {path} with the role that it needs: {allowed:?}");
            if let Some(token) = below {
                is_problem(&api.with(token).ask(&method.to_uppercase(), &real, "", b"{"), 403, "forbidden");
                api.with(ADMIN);
            }
        }
    }
    assert_eq!(count, 91);
    references(&description, &description);
}

/// Every reference leads somewhere.
fn references(root: &Value, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(to)) = fields.get("$ref") {
                assert!(root.pointer(to.trim_start_matches('#')).is_some(), "{to}");
            }
            fields.values().for_each(|value| references(root, value));
        }
        Value::Array(items) => items.iter().for_each(|item| references(root, item)),
        _ => {}
    }
}

/// A warning that is wrong teaches operators to pass over those that are right.
#[test]
fn the_status_knows_the_consumers_that_plugins_name() {
    let folder = Folder::new();
    let (running, mut api, target) = begin(&folder);
    let mut ann = consumer("ann", &["key"]);
    ann["acl_groups"] = json!(["staff"]);
    let acl = |groups: &[&str]| json!({ "id": "acl", "plugin_name": "access_control", "scope": "proxy", "proxy_id": "a", "config": { "allowed_groups": groups } });
    let codes = || {
        let status = running.status();
        let list = status["warnings"]["list"].as_array().unwrap().clone();
        list.iter().map(|warning| text(&warning["code"]).to_owned()).collect::<Vec<_>>()
    };
    api.batch(&json!({ "consumers": [ann], "proxies": [proxy("a", "/a", target)], "plugin_configs": [key_auth("key", "a"), acl(&["staff"])] }));
    assert_eq!(codes(), [""; 0]);
    api.batch(&json!({ "plugin_configs": [acl(&["staff", "stuff"])] }));
    assert_eq!(codes(), ["unknown_consumer"]);
}
