//! Calls of a service that is compiled from its definition, with a target that answers as a gRPC server does.

use std::sync::LazyLock;

use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::{Got, ReceivedRequest, Trial};
use http::HeaderMap;
use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use serde_json::{Value, json};

use super::*;

mod http_body;

const PLUGINS: &[Entry] = &[entry::<GrpcJsonTranscoding>()];

/// The definitions of the tests.
struct Definitions;

impl FileResolver for Definitions {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let text = match name {
            "library.proto" => include_str!("tests/library.proto"),
            "google/api/annotations.proto" => include_str!("tests/http.proto"),
            "google/api/httpbody.proto" => include_str!("tests/httpbody.proto"),
            _ => return Err(protox::Error::file_not_found(name)),
        };
        File::from_source(name, text)
    }
}

static SET: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Definitions);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("library.proto").unwrap();
    compiler.encode_file_descriptor_set()
});

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(&**SET).unwrap());

fn message(name: &str, json: &Value) -> DynamicMessage {
    let about = POOL.get_message_by_name(name).unwrap();
    DynamicMessage::deserialize(about, json.clone()).unwrap()
}

fn frame(message: &DynamicMessage) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &bytes].concat()
}

/// What a target was called with, as JSON.
fn called(asked: &ReceivedRequest, name: &str) -> Value {
    let about = POOL.get_message_by_name(name).unwrap();
    serde_json::to_value(DynamicMessage::decode(about, &asked.body[5..]).unwrap()).unwrap()
}

fn settings(more: Value) -> Value {
    let mut config = json!({ "descriptor_set": STANDARD.encode(&**SET) });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

/// A gRPC response with these bytes and trailers.
fn grpc(bytes: Vec<u8>, trailers: &[(&'static str, &str)]) -> Response<Body> {
    let mut fields = HeaderMap::new();
    for (name, value) in trailers {
        fields.append(*name, value.parse().unwrap());
    }
    let body = Body::full(bytes).transform(WithTrailers(Some(fields)));
    Response::builder()
        .header("content-type", "application/grpc")
        .header("x-meta", "kept")
        .body(body)
        .unwrap()
}

struct WithTrailers(Option<HeaderMap>);

impl gateway_core::http::body::Transform for WithTrailers {
    fn data(
        &mut self,
        data: Bytes,
        out: &mut gateway_core::http::body::TransformOutput,
    ) -> Result<(), BodyError> {
        // In small pieces, as a network may bring it.
        data.chunks(3).for_each(|piece| out.data(piece.to_vec()));
        Ok(())
    }

    fn end(&mut self, out: &mut gateway_core::http::body::TransformOutput) -> Result<(), BodyError> {
        out.trailers(self.0.take().unwrap_or_default());
        Ok(())
    }
}

const OK: &[(&str, &str)] = &[("grpc-status", "0")];

/// A gateway whose target answers every call with this message.
fn trial(more: Value, name: &'static str, answer: Value) -> Trial {
    Trial::new(PLUGINS, "grpc_json_transcoding", settings(more))
        .answering(move |_| grpc(frame(&message(name, &answer)), OK))
}

fn book() -> Value {
    json!({ "name": "b", "pageTitle": "T", "kind": "NOVEL", "author": { "name": "A", "born": "1900" } })
}

async fn asks(trial: &Trial, method: &str, path: &str, body: &str) -> Got {
    trial.request(method, path, &[("content-type", "application/json")], body.to_owned()).await
}

#[tokio::test]
async fn requests_become_calls_and_messages_json() {
    for (method, path, body, call, name, expected) in [
        (
            "GET",
            "/v1/shelves/1/books/2",
            "",
            "GetBook",
            "GetBookRequest",
            json!({ "name": "shelves/1/books/2" }),
        ),
        ("GET", "/v1/books/a%20b", "", "GetBook", "GetBookRequest", json!({ "name": "a b" })),
        (
            "GET",
            "/v1/books/x?filter.page_title=a+b%21&filter.tags=1&filter.tags=2&filter.kind=NOVEL&filter.author.born=7\
             &filter.cover=-_8&filter.printed=2020-01-02T03:04:05Z&filter.lent=true&filter.price=1.5&filter.pages=3",
            "",
            "GetBook",
            "GetBookRequest",
            json!({ "name": "x", "filter": {
                "pageTitle": "a b!", "tags": ["1", "2"], "kind": "NOVEL", "author": { "born": "7" },
                "cover": "+/8=", "printed": "2020-01-02T03:04:05Z", "lent": true, "price": 1.5, "pages": 3,
            } }),
        ),
        (
            "GET",
            "/v1/books/x?filter.pageTitle=t",
            "",
            "GetBook",
            "GetBookRequest",
            json!({ "name": "x", "filter": { "pageTitle": "t" } }),
        ),
        (
            "POST",
            "/v1/shelves/9/books?bookId=i",
            r#"{"name": "n", "notes": {"k": "v"}}"#,
            "CreateBook",
            "CreateBookRequest",
            json!({ "shelf": "9", "book": { "name": "n", "notes": { "k": "v" } }, "bookId": "i" }),
        ),
        (
            "PATCH",
            "/v1/books/Ann:update",
            r#"{"name": "n", "author": {"born": 3}}"#,
            "UpdateBook",
            "Book",
            json!({ "name": "n", "author": { "name": "Ann", "born": "3" } }),
        ),
    ] {
        let trial = trial(json!({}), "library.v1.Book", book());
        let got = asks(&trial, method, path, body).await;
        assert_eq!(
            (got.status, got.field("content-type"), got.field("x-meta")),
            (200, "application/json", "kept"),
            "{path}: {}",
            got.text()
        );
        assert_eq!(got.json(), book(), "{path}");
        let asked = &trial.asked()[0];
        assert_eq!(
            (asked.method.as_str(), asked.path.as_str()),
            ("POST", &*format!("/library.v1.Library/{call}"))
        );
        assert_eq!(asked.field("content-type"), "application/grpc");
        assert_eq!(called(asked, &format!("library.v1.{name}")), expected, "{path}");
    }
    let purge = trial(json!({}), "google.protobuf.Empty", json!({}));
    assert_eq!(asks(&purge, "PURGE", "/v1/books", "").await.text(), "{}");
    let titles = trial(json!({}), "library.v1.TitleList", json!({ "titles": ["a", "b"] }));
    assert_eq!(asks(&titles, "GET", "/v1/titles", "").await.json(), json!(["a", "b"]));
    let none = trial(json!({}), "library.v1.TitleList", json!({}));
    assert_eq!(asks(&none, "GET", "/v1/titles", "").await.json(), json!([]));
}

#[tokio::test]
async fn a_path_says_which_methods_it_has_and_head_is_asked_as_get() {
    let trial = trial(json!({}), "library.v1.TitleList", json!({ "titles": ["a"] }));
    let other = asks(&trial, "DELETE", "/v1/titles", "").await;
    assert_eq!((other.status, other.field("allow")), (405, "GET, HEAD"));
    let head = asks(&trial, "HEAD", "/v1/titles", "").await;
    assert_eq!((head.status, head.field("content-type")), (200, "application/json"));
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn bodies_have_fields_of_every_kind_and_what_the_path_says_counts() {
    let trial = trial(json!({}), "library.v1.Book", book());
    let body = r#"{"author": {"name": "Bob"}, "tags": ["1", "2"], "kind": "NOVEL", "cover": "-_8", "page_title": "t",
        "printed": "2020-01-02T03:04:05Z", "lent": true, "price": 1.5, "pages": 3, "notes": {"k": "v", "l": ""}, "name": null}"#;
    assert_eq!(asks(&trial, "PATCH", "/v1/books/Ann:update", body).await.status, 200);
    let expected = json!({
        "pageTitle": "t", "tags": ["1", "2"], "kind": "NOVEL", "author": { "name": "Ann" }, "cover": "+/8=",
        "printed": "2020-01-02T03:04:05Z", "lent": true, "price": 1.5, "pages": 3, "notes": { "k": "v", "l": "" },
    });
    assert_eq!(called(&trial.asked()[0], "library.v1.Book"), expected);
}

#[tokio::test]
async fn answers_are_compressed() {
    let plugins =
        [("compression", json!({ "min_content_length": 0 })), ("grpc_json_transcoding", settings(json!({})))];
    let trial = Trial::of_plugins(crate::PLUGINS, &plugins)
        .answering(|_| grpc(frame(&message("library.v1.Book", &book())), OK));
    let got = trial.get("/v1/books/x", &[("accept-encoding", "gzip")]).await;
    assert_eq!((got.status, got.field("content-encoding")), (200, "gzip"));
    let plain = std::io::read_to_string(flate2::read::GzDecoder::new(&got.body[..])).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), book());
}

/// A body in Base64, as JSON has bytes.
#[tokio::test]
async fn bad_requests_are_refused_before_the_target_is_asked() {
    let trial = trial(json!({ "max_message": 1000 }), "library.v1.Book", book());
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(1000));
    for (method, path, body, status, says) in [
        ("GET", "/v1/nothing", "", 404, "no call"),
        ("GET", "/v1/books", "", 405, "other methods"),
        ("PUT", "/v1/books/x", "", 405, "other methods"),
        ("GET", "/v1/books/x?none=1", "", 400, "no field `none`"),
        ("GET", "/v1/books/x?name=y", "", 400, "given twice"),
        ("GET", "/v1/books/x?filter=y", "", 400, "is a message"),
        ("GET", "/v1/books/x?filter.notes=y", "", 400, "is a map"),
        ("GET", "/v1/books/x?filter.pages=-1", "", 400, "`-1` is not a value"),
        ("GET", "/v1/books/x?filter.kind=NO", "", 400, "`NO` is not a value"),
        ("GET", "/v1/books/x?filter.pages=1&filter.pages=2", "", 400, "given twice"),
        ("GET", "/v1/books/x", "{}", 400, "takes no body"),
        ("POST", "/v1/shelves/9/books?book.name=x", "{}", 400, "given twice"),
        ("POST", "/v1/shelves/9/books", "{", 400, "the body"),
        ("POST", "/v1/shelves/9/books", r#"{"none": 1}"#, 400, "none"),
        ("PATCH", "/v1/books/a:update", r#"{} {}"#, 400, "the body"),
        ("PATCH", "/v1/books/a:update", r#"{"name": "a", "name": "b"}"#, 400, "given twice"),
        ("PATCH", "/v1/books/a:update", r#"{"author": {"name": "a", "none": 1}}"#, 400, "none"),
        ("PATCH", "/v1/books/a:update", r#"{"author": 5}"#, 400, "the body"),
        ("POST", "/v1/upload", "{}", 404, "no call"),
        ("POST", "/library.v1.Library/Plain", "{}", 404, "no call"),
    ] {
        let got = asks(&trial, method, path, body).await;
        assert_eq!(got.status, status, "{method} {path}: {}", got.text());
        assert!(got.json()["message"].as_str().unwrap().contains(says), "{path}: {}", got.text());
        assert!(got.json()["code"].is_u64());
    }
    assert_eq!(asks(&trial, "POST", "/v1/shelves/9/books", &large).await.status, 413);
    let packed = trial.request("POST", "/v1/shelves/9/books", &[("content-encoding", "gzip")], "x").await;
    assert_eq!(packed.status, 415);
    assert_eq!(trial.asked().len(), 0);
}

#[tokio::test]
async fn errors_have_the_status_of_their_code() {
    // A google.rpc.Status with one detail, an Author named `A`.
    let author = message("library.v1.Author", &json!({ "name": "A" })).encode_to_vec();
    let url = "type.googleapis.com/library.v1.Author";
    let mut any = vec![0x0a, u8::try_from(url.len()).unwrap()];
    any.extend_from_slice(url.as_bytes());
    any.extend_from_slice(&[0x12, u8::try_from(author.len()).unwrap()]);
    any.extend_from_slice(&author);
    let mut status = vec![0x08, 5, 0x1a, u8::try_from(any.len()).unwrap()];
    status.extend_from_slice(&any);
    let details = STANDARD_OF_TEST.encode(status);
    for (code, expected) in [
        (1, 499),
        (2, 500),
        (3, 400),
        (4, 504),
        (5, 404),
        (6, 409),
        (7, 403),
        (8, 429),
        (9, 400),
        (10, 409),
        (11, 400),
        (12, 501),
        (13, 500),
        (14, 503),
        (15, 500),
        (16, 401),
        (99, 500),
    ] {
        for in_head in [false, true] {
            let details = details.clone();
            let trial =
                Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({}))).answering(move |_| {
                    let code = code.to_string();
                    let fields = [
                        ("grpc-status", code.as_str()),
                        ("grpc-message", "no %C3%A4"),
                        ("grpc-status-details-bin", &details),
                    ];
                    if !in_head {
                        return grpc(Vec::new(), &fields);
                    }
                    let mut response = Response::builder().header("content-type", "application/grpc");
                    for (name, value) in fields {
                        response = response.header(name, value);
                    }
                    response.body(Body::empty()).unwrap()
                });
            let got = asks(&trial, "GET", "/v1/books/x", "").await;
            let detail = json!({ "@type": url, "name": "A" });
            let body = json!({ "code": code, "message": "no ä", "details": [detail] });
            assert_eq!((got.status, got.json()), (expected, body), "{code}");
            assert_eq!(trial.records()[0].grpc_status, Some(code), "{code} in the head: {in_head}");
            assert_eq!(got.headers.get("grpc-status"), None);
        }
    }
    let silent = Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({})))
        .answering(|_| grpc(frame(&message("library.v1.Book", &book())), &[]));
    assert_eq!(
        asks(&silent, "GET", "/v1/books/x", "").await.status,
        500,
        "a call without a status has failed"
    );
}

use base64::engine::general_purpose::STANDARD as STANDARD_OF_TEST;

#[tokio::test]
async fn streams_are_an_array_or_lines() {
    for (config, accept, kind, expected) in [
        (json!({}), "*/*", "application/json", r#"[{"name":"1"},{"name":"2"}]"#),
        (json!({}), "application/x-ndjson", "application/x-ndjson", "{\"name\":\"1\"}\n{\"name\":\"2\"}\n"),
        (
            json!({ "streams": "lines" }),
            "*/*",
            "application/x-ndjson",
            "{\"name\":\"1\"}\n{\"name\":\"2\"}\n",
        ),
    ] {
        let trial = Trial::new(PLUGINS, "grpc_json_transcoding", settings(config)).answering(|_| {
            let each = ["1", "2"].map(|name| frame(&message("library.v1.Book", &json!({ "name": name }))));
            grpc(each.concat(), OK)
        });
        let got = trial.get("/v1/shelves/7/books?page_size=2", &[("accept", accept)]).await;
        assert_eq!((got.status, got.field("content-type"), got.text().as_str()), (200, kind, expected));
        assert_eq!(
            called(&trial.asked()[0], "library.v1.ListBooksRequest"),
            json!({ "shelf": "7", "pageSize": 2 })
        );
    }
    for (frames, status, expected) in
        [(0, "0", "[]"), (1, "8", r#"[{"name":"1"},{"error":{"code":8,"message":"","details":[]}}]"#)]
    {
        let trial = Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({}))).answering(move |_| {
            let one = frame(&message("library.v1.Book", &json!({ "name": "1" })));
            grpc(one.repeat(frames), &[("grpc-status", status)])
        });
        assert_eq!(trial.get("/v1/shelves/7/books", &[]).await.text(), expected);
        assert_eq!(trial.records()[0].grpc_status, status.parse().ok());
    }
}

#[tokio::test]
async fn options_have_their_effect() {
    let answer = json!({ "name": "b", "pageTitle": "T", "kind": "NOVEL" });
    for (config, expected) in [
        (json!({ "preserve_field_names": true }), json!({ "name": "b", "page_title": "T", "kind": "NOVEL" })),
        (json!({ "print_enum_numbers": true }), json!({ "name": "b", "pageTitle": "T", "kind": 1 })),
    ] {
        let trial = trial(config, "library.v1.Book", answer.clone());
        assert_eq!(asks(&trial, "GET", "/v1/books/x", "").await.json(), expected);
    }
    let all = trial(json!({ "print_default_values": true }), "library.v1.Book", answer.clone());
    assert_eq!(asks(&all, "GET", "/v1/books/x", "").await.json()["pages"], 0);
    let lax = trial(json!({ "ignore_unknown_fields": true }), "library.v1.Book", answer.clone());
    assert_eq!(asks(&lax, "GET", "/v1/books/x?none=1", "").await.status, 200);
    assert_eq!(asks(&lax, "PATCH", "/v1/books/a:update", r#"{"none": 1}"#).await.status, 200);
    let auto = trial(json!({ "auto_mapping": true }), "library.v1.Book", answer.clone());
    assert_eq!(asks(&auto, "POST", "/library.v1.Library/Plain", r#"{"name": "x"}"#).await.status, 200);
    assert_eq!(called(&auto.asked()[0], "library.v1.Book"), json!({ "name": "x" }));
    let pass = trial(json!({ "unmatched": "pass" }), "library.v1.Book", answer.clone());
    assert_eq!(asks(&pass, "GET", "/other", "").await.status, 200);
    assert_eq!(pass.asked()[0].path, "/other");
    let small = trial(json!({ "max_message": 5 }), "library.v1.Book", answer.clone());
    assert_eq!(asks(&small, "GET", "/v1/books/x", "").await.status, 429, "the answer is too large");
    let grpc_call = trial(json!({}), "library.v1.Book", answer);
    let request = frame(&message("library.v1.Book", &json!({})));
    let got = grpc_call
        .request(
            "POST",
            "/library.v1.Library/GetBook",
            &[("content-type", "application/grpc"), ("te", "trailers")],
            request,
        )
        .await;
    assert_eq!(got.field("content-type"), "application/grpc", "it passes untouched");
}

#[test]
fn what_cannot_be_offered_is_refused() {
    let set = STANDARD.encode(&**SET);
    for (config, says) in [
        (json!({}), "needs either"),
        (json!({ "descriptor_set": set, "descriptor_set_path": "/x" }), "needs either"),
        (json!({ "descriptor_set_path": "/nowhere" }), "/nowhere can't be read"),
        (json!({ "descriptor_set": "%" }), "Base64"),
        (json!({ "descriptor_set": "AAAA" }), "can't be used"),
        (json!({ "descriptor_set": set, "services": ["none"] }), "there is no service `none`"),
        (json!({ "descriptor_set": set, "max_message": 0 }), "max_message"),
        (json!({ "descriptor_set": "" }), "offers no call"),
    ] {
        let problems = Trial::refused(PLUGINS, "grpc_json_transcoding", &config).to_string();
        assert!(problems.contains(says), "{says}: {problems}");
    }
    let only = settings(json!({ "services": ["library.v1.Library"] }));
    Trial::new(PLUGINS, "grpc_json_transcoding", only);
    assert!(
        POOL.get_message_by_name("library.v1.Book")
            .is_some_and(|book| { DynamicMessage::new(book).descriptor().full_name() == "library.v1.Book" })
    );
}

/// What no rule offers is no more reachable by gRPC than by HTTP.
#[tokio::test]
async fn native_calls_reach_offered_methods_only() {
    let native = [("content-type", "application/grpc"), ("te", "trailers")];
    for (more, path, is_passed) in [
        (json!({}), "/library.v1.Library/GetBook", true),
        (json!({}), "/library.v1.Library/Plain", false),
        (json!({}), "/library.v1.Library/Upload", false),
        (json!({ "auto_mapping": true }), "/library.v1.Library/Plain", true),
        (json!({}), "/library.v1.Library/getbook", false),
        (json!({}), "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", false),
        (json!({}), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", false),
        (json!({}), "/grpc.health.v1.Health/Check", false),
        (json!({}), "/v1/books/x", false),
        (json!({ "unmatched": "pass" }), "/grpc.health.v1.Health/Check", true),
    ] {
        let trial = trial(more.clone(), "library.v1.Book", book());
        let got = trial.request("POST", path, &native, "").await;
        assert_eq!(trial.asked().len(), usize::from(is_passed), "{more} {path}");
        if !is_passed {
            assert_eq!((got.status, got.field("grpc-status")), (200, "12"), "{more} {path}");
        }
    }
}
