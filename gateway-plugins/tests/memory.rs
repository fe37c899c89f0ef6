//! What plugins take of memory and time for what a client sends, by an allocator that counts. One test, for it counts the whole process.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gateway_core::testing::Trial;
use gateway_plugins::PLUGINS;
use peak_alloc::PeakAlloc;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes of requests, up to the densest JSON of two bytes a value.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes that one of them may take.
const BYTES_A_BYTE: usize = 16;
/// Bytes that a request may take besides.
const BYTES_BESIDES: usize = 1 << 20;
/// Time that a KiB may take.
const TIME_A_KIB: Duration = Duration::from_millis(50);

/// A plugin with a request that is meant to cost it much.
struct Hostile {
    about: &'static str,
    plugin: &'static str,
    config: Value,
    path: &'static str,
    content_type: &'static str,
    body: String,
}

/// The text so often that it has about so many bytes, between two others.
fn repeated(before: &str, text: &str, bytes: usize, after: &str) -> String {
    format!("{before}{}{after}", text.repeat(bytes / text.len()))
}

/// Groups and sections within each other, which differ in a name that most of them don't have.
fn tree() -> Value {
    let part = |kind: &str| {
        json!({ "type": "object", "properties": {
            "name": { "type": kind }, "children": { "type": "array", "items": { "$ref": "#/$defs/node" } },
        } })
    };
    json!({
        "$ref": "#/$defs/node",
        "$defs": {
            "node": { "oneOf": [{ "$ref": "#/$defs/group" }, { "$ref": "#/$defs/section" }] },
            "group": part("string"), "section": part("integer"),
        },
    })
}

/// An object of as many short names as fit.
fn members(bytes: usize) -> String {
    let mut text = "{\"\":0".to_owned();
    for n in 0.. {
        text.push_str(&format!(",\"{n:x}\":0"));
        if text.len() >= bytes {
            break;
        }
    }
    text + "}"
}

fn json_bodies(bytes: usize) -> Vec<(&'static str, String)> {
    let nested = |leaf: &str, depth: usize| {
        format!("{}{leaf}{}", r#"{"children":["#.repeat(depth), "]}".repeat(depth))
    };
    let deep = |leaf: &str| repeated("[0", &format!(",{}", nested(leaf, 30)), bytes, "]");
    vec![
        ("nested with a wrong leaf", nested(r#"{"name":[]}"#, 60)),
        ("many nested with a wrong leaf", deep(r#"{"name":[]}"#)),
        ("numbers", repeated("[1", ",1", bytes, "]")),
        ("texts", repeated("[\"\"", ",\"\"", bytes, "]")),
        ("lists", repeated("[[]", ",[]", bytes, "]")),
        ("objects", repeated("[{}", ",{}", bytes, "]")),
        ("members", members(bytes)),
        ("long text", repeated("\"", "a", bytes, "\"")),
        ("escapes", repeated("\"", "\\u00e4", bytes, "\"")),
    ]
}

fn validators(bytes: usize) -> Vec<Hostile> {
    let mut all = Vec::new();
    let schemas = [
        ("tree", tree()),
        ("wrong items", json!({ "type": "array", "items": { "type": "object" } })),
        (
            "single items",
            json!({ "uniqueItems": true, "not": { "enum": [[0], { "a": 1 }] }, "required": ["a", "ff", "zz"] }),
        ),
        (
            "alternatives",
            json!({ "items": { "anyOf": [tree(), { "not": tree() }] }, "$defs": tree()["$defs"] }),
        ),
    ];
    for (_, schema) in schemas {
        for (about, body) in json_bodies(bytes) {
            let config = json!({ "body_schema": schema, "max_body": 16 << 20 });
            all.push(Hostile {
                about,
                plugin: "request_validation",
                config,
                path: "/",
                content_type: "application/json",
                body,
            });
        }
    }
    all.extend(forms(bytes));
    let rules = json!([
        { "operation": "set", "target": "body", "key": "/none/at/all", "value": 1 },
        { "operation": "remove", "target": "body", "key": "/7" },
        { "operation": "append", "target": "body", "key": "/0", "value": [1, 2] },
        { "operation": "rename", "target": "body", "key": "/8", "new_key": "/7" },
    ]);
    for (about, body) in json_bodies(bytes) {
        let config = json!({ "rules": rules, "body": { "max_size": 16 << 20, "otherwise": "pass" } });
        all.push(Hostile {
            about,
            plugin: "request_transformer",
            config,
            path: "/",
            content_type: "application/json",
            body,
        });
    }
    all
}

/// Forms, whose texts are read as their schema says.
fn forms(bytes: usize) -> Vec<Hostile> {
    let schema = json!({ "type": "object", "properties": {
        "list": { "type": "array", "items": { "type": "integer" } }, "object": { "type": "object" },
    } });
    let bodies = [
        ("parameters", repeated("", "a=&", bytes, "")),
        ("parameters of many names", (0..bytes / 6).map(|n| format!("{n:x}=&")).collect()),
        ("items", repeated("list=1", ",1", bytes, "")),
        ("lists", repeated("", "list=,,,,,,,,,,,,&", bytes, "")),
        ("an object", repeated("object={\"a\":[0", ",0", bytes, "]}")),
        ("objects", repeated("", "object={\"\":[0,0,0,0]}&", bytes, "")),
    ];
    let hostile = |(about, body)| Hostile {
        about,
        plugin: "request_validation",
        config: json!({ "body_schema": schema, "content_types": ["application/x-www-form-urlencoded"], "max_body": 16 << 20 }),
        path: "/",
        content_type: "application/x-www-form-urlencoded",
        body,
    };
    bodies.into_iter().map(hostile).collect()
}

fn documents(bytes: usize) -> Vec<(&'static str, String)> {
    let twice = |n| format!("fragment f{n} on A{{...f{next} ...f{next}}}", next = n + 1);
    let bomb = format!("query{{...f0}}{}", (0..bytes / 40).map(twice).collect::<String>());
    vec![
        ("fields", repeated("{", "a ", bytes, "}")),
        ("aliases", repeated("{", "a:b ", bytes, "}")),
        ("sets within sets", format!("{}a{}", "{a".repeat(bytes / 3), "}".repeat(bytes / 3))),
        ("lists within lists", repeated("{a(b:", "[", bytes, ")}")),
        ("commas", repeated("{a", ",", bytes, "}")),
        ("fragments that spread twice", bomb),
        ("a long text", repeated("{a(b:\"", "x", bytes, "\")}")),
        ("what is no token", repeated("{", "%", bytes, "}")),
    ]
}

fn graphql(bytes: usize) -> Vec<Hostile> {
    let hostile = |(about, body): (&'static str, String)| Hostile {
        about,
        plugin: "graphql_limits",
        config: json!({ "max_body": 16 << 20 }),
        path: "/",
        content_type: "application/graphql",
        body,
    };
    documents(bytes).into_iter().map(hostile).collect()
}

/// The definitions that calls are made by.
struct Definitions;

impl FileResolver for Definitions {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let text = match name {
            "tree.proto" => {
                r#"syntax = "proto3"; package t; import "google/api/annotations.proto";
                message Node { repeated Node nodes = 1; repeated int32 numbers = 2; repeated string names = 3; Node one = 4; }
                service S { rpc Put(Node) returns (Node) { option (google.api.http) = { post: "/put" body: "*" }; } }"#
            }
            "google/api/annotations.proto" => {
                include_str!("../src/transformation/grpc_json_transcoding/tests/http.proto")
            }
            _ => return Err(protox::Error::file_not_found(name)),
        };
        File::from_source(name, text)
    }
}

fn calls(bytes: usize) -> Vec<Hostile> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Definitions);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("tree.proto").expect("definitions");
    let set = STANDARD.encode(compiler.encode_file_descriptor_set());
    let bodies = [
        ("empty messages", repeated(r#"{"nodes":[{}"#, ",{}", bytes, "]}")),
        ("numbers", repeated(r#"{"numbers":[1"#, ",1", bytes, "]}")),
        ("texts", repeated(r#"{"names":[""#, r#"",""#, bytes, r#""]}"#)),
        ("deep", format!("{}{{}}{}", r#"{"one":"#.repeat(60), "}".repeat(60))),
        ("lists within lists", repeated(r#"{"nodes":[{}"#, r#",{"nodes":[{"nodes":[{}]}]}"#, bytes, "]}")),
    ];
    let hostile = |(about, body): (&'static str, String)| Hostile {
        about,
        plugin: "grpc_json_transcoding",
        config: json!({ "descriptor_set": set, "max_message": 16 << 20 }),
        path: "/put",
        content_type: "application/json",
        body,
    };
    bodies.into_iter().map(hostile).collect()
}

fn firewalled(bytes: usize) -> Vec<Hostile> {
    let xml = [
        ("elements", repeated("<a>", "<b/>", bytes, "</a>")),
        ("attributes", repeated("<a ", "b=\"\" ", bytes, "/>")),
        ("elements within each other", format!("{}{}", "<a>".repeat(bytes / 7), "</a>".repeat(bytes / 7))),
        ("entities", repeated("<a>", "&#65;", bytes, "</a>")),
    ];
    let bodies = xml.into_iter().map(|(about, body)| (about, "application/xml", body));
    let forms = [("parameters", "application/x-www-form-urlencoded", repeated("", "a=&", bytes, ""))];
    let json = json_bodies(bytes).into_iter().map(|(about, body)| (about, "application/json", body));
    let hostile = |(about, content_type, body)| Hostile {
        about,
        plugin: "waf",
        config: json!({}),
        path: "/",
        content_type,
        body,
    };
    bodies.chain(forms).chain(json).map(hostile).collect()
}

/// What a request takes at most besides what there was, and for how long.
async fn cost(hostile: &Hostile) -> (usize, Duration) {
    let trial = Trial::of_plugins(PLUGINS, &[(hostile.plugin, hostile.config.clone())]);
    let fields = [("content-type", hostile.content_type)];
    // What is made once is made now.
    trial.request("POST", hostile.path, &fields, "{}").await;
    let body = hostile.body.clone();
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let began = Instant::now();
    trial.request("POST", hostile.path, &fields, body).await;
    (ALLOCATOR.peak_usage().saturating_sub(before), began.elapsed())
}

#[tokio::test]
async fn no_request_takes_much_more_than_it_is_long() {
    let mut over = Vec::new();
    for bytes in SIZES {
        for family in [validators, graphql, calls, firewalled] {
            for hostile in family(bytes) {
                let length = hostile.body.len();
                let (taken, time) = cost(&hostile).await;
                let most = BYTES_A_BYTE * length + BYTES_BESIDES;
                let longest = TIME_A_KIB * u32::try_from(length / 1024 + 1).unwrap();
                if taken > most || time > longest {
                    let Hostile { plugin, about, .. } = hostile;
                    over.push(format!("{plugin}, {about}: {length} bytes take {taken} bytes, {time:?}"));
                }
            }
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}
