//! Who gets what compressed against which dictionary, and who learns of it.

use std::io::Read;

use gateway_core::plugin::world::tasks::TaskControl;
use gateway_core::plugin::{Entry, Plugin as _, entry};
use gateway_core::testing::{Got, Trial};
use gateway_plugin_common::coding::Encoder;
use gateway_plugin_common::testing::Machine;
use serde_json::{Value, json};

use super::super::Compression;
use super::*;

const PLUGINS: &[Entry] = &[entry::<Compression>()];

/// Text in which nothing comes twice, so that only a dictionary helps.
fn text(seed: u32) -> String {
    let mut state = seed;
    let word = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{state:08x} ")
    };
    (0..400).map(word).collect()
}

fn trial_of(machine: &Machine, config: &Value, fields: &[(&'static str, &'static str)]) -> Trial {
    trial_in(&machine.world(), config, fields)
}

fn trial_in(world: &World, config: &Value, fields: &[(&'static str, &'static str)]) -> Trial {
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "plugin_configs": [{ "id": "p", "plugin_name": "compression", "proxy_id": "a", "config": config }],
    });
    let fields = fields.to_vec();
    Trial::of_spec(PLUGINS, &spec.to_string(), world).answering(move |_| {
        let mut response = Response::builder();
        for (name, value) in &fields {
            response = response.header(*name, *value);
        }
        response.body(Body::full(text(1) + "and what is new")).unwrap()
    })
}

const TEXT: &[(&str, &str)] = &[("content-type", "text/html")];

fn served() -> Value {
    json!({ "dictionaries": [{
        "path": "shop.dict", "match": "/shop/*", "url": "/dictionaries/shop",
        "destinations": ["document", "script"], "id": "shop 1", "max_age": "1m",
    }] })
}

fn machine() -> Machine {
    let machine = Machine::default();
    machine.files.put("shop.dict", &text(1));
    machine
}

fn hash(bytes: &str) -> Vec<u8> {
    digest(&SHA256, bytes.as_bytes()).as_ref().to_vec()
}

fn named(bytes: &str) -> String {
    format!(":{}:", BASE64.encode(hash(bytes)))
}

fn decoded(got: &Got, dictionary: &str) -> String {
    let (head, frame) = got.body.split_at(40);
    assert_eq!(head[..8], [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0]);
    assert_eq!(head[8..], hash(dictionary));
    let mut out = String::new();
    let mut decoder = zstd::stream::read::Decoder::with_dictionary(frame, dictionary.as_bytes()).unwrap();
    decoder.read_to_string(&mut out).unwrap();
    out
}

#[tokio::test]
async fn a_client_that_holds_the_dictionary_gets_the_difference() {
    let trial = trial_of(&machine(), &served(), &[("content-type", "text/html"), ("etag", "\"1\"")]);
    let held = named(&text(1));
    let fields = [("accept-encoding", "gzip, br, zstd, dcb, dcz"), ("available-dictionary", held.as_str())];
    let got = trial.get("/shop/page", &fields).await;
    assert_eq!((got.field("content-encoding"), got.field("etag")), ("dcz", "W/\"1\""));
    assert!(got.body.len() < 120, "{} bytes", got.body.len());
    assert_eq!(decoded(&got, &text(1)), text(1) + "and what is new");
    let varies: Vec<_> = got.headers.get_all("vary").iter().collect();
    assert_eq!(varies, ["Accept-Encoding", "Available-Dictionary"]);
    assert_eq!(got.field("link"), "", "the client has it");
    let head = trial.request("HEAD", "/shop/page", &fields, "").await;
    assert_eq!(head.field("content-encoding"), "dcz");
}

#[tokio::test]
async fn a_level_counts_as_lowered_only_where_it_is() {
    // Of the levels prepared, 9 is lowered to 3, which is the least.
    for (zstd_level, expected) in [(3, "0"), (9, "1")] {
        let world = machine().world();
        let mut config = served();
        config["zstd_level"] = json!(zstd_level);
        config["adapt_to_load"] = json!({});
        let trial = trial_in(&world, &config, TEXT);
        (0..12).for_each(|_| world.busyness().measured(1.0));
        let held = named(&text(1));
        let fields = [("accept-encoding", "dcz"), ("available-dictionary", held.as_str())];
        assert_eq!(trial.get("/shop/page", &fields).await.field("content-encoding"), "dcz");
        let metrics = world.meters().text();
        let counted = format!("ferrum_compression_lowered_total{{plugin_config=\"p\"}} {expected}\n");
        assert!(metrics.contains(&counted), "{zstd_level}: {metrics}");
    }
}

#[tokio::test]
async fn others_get_what_they_would_get_without() {
    let trial = trial_of(&machine(), &served(), TEXT);
    let (held, other) = (named(&text(1)), named(&text(2)));
    let twice = format!("{held}, {held}");
    for (path, accepted, dictionary, coding) in [
        ("/shop/page", "zstd, dcz", "", "zstd"),
        ("/shop/page", "zstd, dcz", other.as_str(), "zstd"),
        ("/shop/page", "zstd, dcz", "no bytes", "zstd"),
        ("/shop/page", "zstd, dcz", ":AAAA:", "zstd"),
        ("/shop/page", "zstd, dcz", twice.as_str(), "zstd"),
        ("/shop/page", "zstd, *", held.as_str(), "zstd"),
        ("/shop/page", "zstd, dcz;q=0", held.as_str(), "zstd"),
        ("/shop/page", "zstd, dcz;q=0.5", held.as_str(), "zstd"),
        ("/shop/page", "zstd;q=0.5, DCZ", held.as_str(), "dcz"),
        ("/shop/page", "dcz;q=0.5, identity", held.as_str(), ""),
        ("/shop/page", "dcb", held.as_str(), ""),
        ("/shops", "zstd, dcz", held.as_str(), "zstd"),
    ] {
        let fields = [("accept-encoding", accepted), ("available-dictionary", dictionary)];
        let got = trial.get(path, &fields).await;
        assert_eq!(got.field("content-encoding"), coding, "{path} {accepted} {dictionary}");
    }
}

/// RFC 9842 §9.3: or its length says what it has in common with a dictionary of the asking page's choice.
#[tokio::test]
async fn a_response_that_a_page_may_not_read_is_not_compared_with_what_it_chose() {
    let held = named(&text(1));
    let origin = ("origin", "https://other.test");
    for (asked, allowed, coding) in [
        (&[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "no-cors")][..], "", "dcz"),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], "", "dcz"),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], "*", "zstd"),
        (&[("sec-fetch-site", "cross-site")], "*", "zstd"),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors"), origin], "", "zstd"),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors"), origin], "https://a.test", "zstd"),
        (
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors"), origin],
            "https://other.test",
            "dcz",
        ),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors"), origin], "*", "dcz"),
    ] {
        let answer = [("content-type", "text/html"), ("access-control-allow-origin", allowed)];
        let trial = trial_of(&machine(), &served(), &answer);
        let mut fields = vec![("accept-encoding", "zstd, dcz"), ("available-dictionary", held.as_str())];
        fields.extend(asked);
        let got = trial.get("/shop/page", &fields).await;
        assert_eq!(got.field("content-encoding"), coding, "{asked:?} {allowed}");
    }
}

#[tokio::test]
async fn clients_learn_of_a_dictionary_and_fetch_it() {
    let trial = trial_of(&machine(), &served(), TEXT);
    let page = trial.get("/", &[("accept-encoding", "dcz")]).await;
    assert_eq!(page.field("link"), "</dictionaries/shop>; rel=\"compression-dictionary\"");
    assert_eq!(trial.get("/", &[("accept-encoding", "zstd")]).await.field("link"), "");
    let styles = trial_of(&machine(), &served(), &[("content-type", "text/css")]);
    assert_eq!(styles.get("/", &[("accept-encoding", "dcz")]).await.field("link"), "");

    trial.forget();
    let got = trial.get("/dictionaries/shop", &[("accept-encoding", "zstd, dcz")]).await;
    assert_eq!((got.status, got.text()), (200, text(1)));
    let said = ["content-type", "cache-control", "use-as-dictionary"].map(|name| got.field(name));
    let rules = "match=\"/shop/*\", match-dest=(\"document\" \"script\"), id=\"shop 1\"";
    assert_eq!(said, ["application/octet-stream", "max-age=60", rules]);
    let again = trial.get("/dictionaries/shop", &[("if-none-match", got.field("etag"))]).await;
    assert_eq!((again.status, again.field("use-as-dictionary")), (304, rules));
    let head = trial.request("HEAD", "/dictionaries/shop", &[], "").await;
    assert_eq!(head.field("content-length"), text(1).len().to_string());
    assert!(trial.asked().is_empty(), "the target is not asked");
    trial.request("POST", "/dictionaries/shop", &[], "").await;
    assert_eq!(trial.asked().len(), 1, "other methods are the target's");
}

#[tokio::test]
async fn a_dictionary_that_clients_have_from_elsewhere() {
    let machine = machine();
    machine.files.put("old.js", &text(3));
    let config = json!({ "dictionaries": [
        { "path": "old.js", "match": "/js/app.*.js" },
        { "path": "shop.dict", "match": "/js/*" },
    ] });
    let trial = trial_of(&machine, &config, &[("content-type", "text/javascript")]);
    for (path, held, coding) in
        [("/js/app.2.js", text(3), "dcz"), ("/js/app.2.css", text(3), ""), ("/js/app.2.css", text(1), "dcz")]
    {
        let held = named(&held);
        let fields = [("accept-encoding", "dcz"), ("available-dictionary", held.as_str())];
        let got = trial.get(path, &fields).await;
        assert_eq!(got.field("content-encoding"), coding, "{path}");
        assert_eq!(got.field("link"), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dictionary_that_changed_is_another_one() {
    let machine = machine();
    let config = serde_json::from_value(served()).expect("settings");
    let Ok(plugin) = Compression::build(config, &machine.world()) else { panic!("refused") };
    let files = plugin.dictionaries.expect("dictionaries").files;
    let (_handle, control) = TaskControl::new();
    let run = tokio::spawn(files.clone().keep_fresh(REFRESH, control));
    let pass = async || {
        tokio::time::advance(REFRESH).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    };
    tokio::task::yield_now().await;
    machine.files.put("shop.dict", &text(2));
    pass().await;
    assert_eq!(files.get()[0].hash, *hash(&text(2)));
    machine.files.put("shop.dict", "");
    pass().await;
    assert!(run.await.expect("no panic").expect_err("the file is bad").to_string().contains("it is empty"));
    assert_eq!(files.get()[0].hash, *hash(&text(2)), "what was in force stays in force");
}

#[tokio::test]
async fn a_large_dictionary_is_of_use_from_its_beginning() {
    let mut random = fastrand::Rng::with_seed(7);
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(2 << 20).collect();
    let dictionary = Dictionary::new(&bytes, &[3, 1]).unwrap();
    let levels: Vec<_> = dictionary.prepared.iter().map(|prepared| prepared.level).collect();
    assert_eq!(levels, [9]);
    // Some bytes more than the dictionary, and one change.
    let mut new = [b"new".as_slice(), &bytes].concat();
    new[1 << 20] ^= 1;
    let encoder = Encoder::with_dictionary(dictionary.prepared[0].clone(), false).unwrap();
    let mut body = Body::full(new.clone()).transform(encoder);
    let mut encoded = Vec::new();
    while let Some(frame) = body.frame().await {
        encoded.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    assert!(encoded.len() < 2000, "{} bytes", encoded.len());
    let mut decoder = zstd::stream::read::Decoder::with_dictionary(&encoded[40..], &bytes).unwrap();
    decoder.window_log_max(23).unwrap();
    let mut decoded = Vec::new();
    decoder.read_to_end(&mut decoded).unwrap();
    assert!(decoded == new);
}

#[test]
fn levels_at_which_a_dictionary_is_of_use() {
    let levels = |wanted: &[u32]| {
        let dictionary = Dictionary::new(b"some bytes", wanted).unwrap();
        dictionary.prepared.iter().map(|prepared| prepared.level).collect::<Vec<_>>()
    };
    assert_eq!(levels(&[1]), [3]);
    assert_eq!(levels(&[3, 1]), [3]);
    assert_eq!(levels(&[12, 1]), [12, 3]);
}

#[test]
fn settings_and_files_that_can_not_be_used() {
    let machine = machine();
    machine.files.put("empty", "");
    machine.files.put_bytes("trained", vec![0x37, 0xa4, 0x30, 0xec, 1, 2, 3]);
    let one = |fields: Value| {
        let mut dictionary = json!({ "path": "shop.dict", "match": "/a*" });
        let object = dictionary.as_object_mut().unwrap();
        object.extend(fields.as_object().unwrap().clone());
        dictionary
    };
    let url = json!({ "url": "/d" });
    for (dictionaries, place, why) in [
        (vec![one(json!({ "path": "none" }))], "[0]", "can't be used"),
        (vec![one(json!({ "path": "empty" }))], "[0]", "it is empty"),
        (vec![one(json!({ "path": "trained" }))], "[0]", "raw ones only"),
        (vec![one(json!({ "match": "a*" }))], "[0].match", "is not a path"),
        (vec![one(json!({ "match": "/(a|b)" }))], "[0].match", "is not a path"),
        (vec![one(json!({ "match": "/a\"b" }))], "[0].match", "is not a path"),
        (vec![one(json!({ "url": "//other.test/d" }))], "[0].url", "is not a plain path"),
        (vec![one(json!({ "url": "/d>x" }))], "[0].url", "is not a plain path"),
        (vec![one(json!({ "id": "1" }))], "[0].id", "set `url` too"),
        (vec![one(json!({ "max_age": 1 }))], "[0].max_age", "set `url` too"),
        (vec![one(json!({ "destinations": ["script"] }))], "[0].destinations", "set `url` too"),
        (vec![one(json!({ "url": "/d", "id": "\"" }))], "[0].id", "without quotes"),
        (vec![one(json!({ "url": "/d", "destinations": ["\""] }))], "[0].destinations", "is no destination"),
        (vec![one(url.clone()), one(url)], "[1].url", "another dictionary"),
        (vec![one(json!({})); 33], "", "at most 32"),
    ] {
        let config = serde_json::from_value(json!({ "dictionaries": dictionaries })).expect("settings");
        let built = Compression::build(config, &machine.world());
        let Err(problems) = built else { panic!("took {dictionaries:?}") };
        assert_eq!(problems.0[0].path, format!("config.dictionaries{place}"), "{problems}");
        assert!(problems.to_string().contains(why), "{problems}");
    }
}
