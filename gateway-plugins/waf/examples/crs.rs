//! Measures rules: the Core Rule Set's regression tests, and the cost of requests.
//!
//! ```sh
//! tests/waf/crs score      # fetches rules and tests, and says which tests pass
//! tests/waf/crs time       # what requests cost
//! ```

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gateway_waf::pack::{Profile, from_files, own_rules};
use gateway_waf::{Buffers, Limits, RequestHead, ResponseHead, Ruleset, Sources, Transaction, compile};
use serde::Deserialize;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["score", rules, tests, rest @ ..] => score(rules, Path::new(tests), rest),
        ["time", rules, rest @ ..] => time(rules, rest),
        ["benign", rules, file] => benign(rules, Path::new(file)),
        _ => Err("usage: crs score RULES TESTS [LEVEL] | time RULES [ROUNDS [SAMPLE [again|new|cold]]] | benign RULES FILE; RULES is a folder, balanced or aggressive".into()),
    }
}

fn load(rules: &str, level: u32) -> Result<Arc<Ruleset>, Failure> {
    let begun = Instant::now();
    let mut sources = match rules {
        "balanced" => own_rules(Profile::Balanced),
        "aggressive" => own_rules(Profile::Aggressive),
        folder => folder_sources(Path::new(folder))?,
    };
    if level > 1 {
        for name in ["detection_paranoia_level", "blocking_paranoia_level"] {
            sources.variables.push((name.into(), level.to_string()));
        }
    }
    match compile(&sources) {
        Ok((ruleset, notes)) => {
            for note in notes {
                println!("{note}");
            }
            println!("{:?} in {:?}", ruleset.summary(), begun.elapsed());
            Ok(Arc::new(ruleset))
        }
        Err(problems) => {
            for problem in &problems {
                println!("{problem}");
            }
            Err(format!("{} problems", problems.len()).into())
        }
    }
}

fn folder_sources(folder: &Path) -> Result<Sources, Failure> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push((path.to_string_lossy().into_owned(), std::fs::read(path)?));
            }
        }
    }
    Ok(from_files(files))
}

#[derive(Deserialize)]
struct File {
    rule_id: Option<u64>,
    #[serde(default)]
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    test_id: u64,
    stages: Vec<Stage>,
}

#[derive(Deserialize)]
struct Stage {
    input: Input,
    #[serde(default)]
    output: Output,
}

#[derive(Deserialize)]
struct Input {
    method: Option<String>,
    uri: Option<String>,
    version: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    data: Option<String>,
    autocomplete_headers: Option<bool>,
    encoded_request: Option<String>,
}

#[derive(Deserialize, Default)]
struct Output {
    log: Option<Log>,
}

#[derive(Deserialize, Default)]
struct Log {
    #[serde(default)]
    expect_ids: Vec<u64>,
    #[serde(default)]
    no_expect_ids: Vec<u64>,
}

/// The level of each rule, from its tag.
fn levels(folder: &str) -> Result<HashMap<u64, u32>, Failure> {
    let mut levels = HashMap::new();
    for file in folder_sources(Path::new(folder))?.files {
        let mut id = 0;
        for line in file.text.lines() {
            if let Some((_, rest)) = line.split_once("id:") {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                id = digits.parse().unwrap_or(id);
            }
            if let Some((_, rest)) = line.split_once("paranoia-level/") {
                levels.insert(id, rest.chars().next().and_then(|c| c.to_digit(10)).unwrap_or(1));
            }
        }
    }
    Ok(levels)
}

/// What counts are kept of.
#[derive(Default)]
struct Tally {
    attacks: u32,
    caught: u32,
    honest: u32,
    passed: u32,
    tests: u32,
    by_id: u32,
    missed: Vec<String>,
}

fn score(rules: &str, tests: &Path, rest: &[&str]) -> Result<(), Failure> {
    let level = rest.first().and_then(|level| level.parse().ok()).unwrap_or(1);
    // Our own rules are measured with the same tests.
    let levels = levels(rest.get(1).copied().unwrap_or(rules))?;
    let ruleset = load(rules, level)?;
    let mut files = Vec::new();
    let mut open = vec![tests.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == "yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    let (mut tally, mut buffers) = (Tally::default(), Buffers::default());
    for path in files {
        let file = read_tests(&path)?;
        let Some(id) = file.rule_id.filter(|id| levels.get(id) == Some(&level)) else { continue };
        for test in &file.tests {
            for stage in &test.stages {
                buffers = judge(&ruleset, id, test.test_id, stage, buffers, &mut tally);
            }
        }
    }
    for missed in &tally.missed {
        println!("{missed}");
    }
    println!(
        "caught {}/{} passed {}/{} by id {}/{}",
        tally.caught, tally.attacks, tally.passed, tally.honest, tally.by_id, tally.tests
    );
    Ok(())
}

fn read_tests(path: &PathBuf) -> Result<File, Failure> {
    let text = std::fs::read_to_string(path)?;
    serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn judge(
    ruleset: &Arc<Ruleset>,
    id: u64,
    test: u64,
    stage: &Stage,
    buffers: Buffers,
    tally: &mut Tally,
) -> Buffers {
    let Some(log) =
        stage.output.log.as_ref().filter(|log| !log.expect_ids.is_empty() || !log.no_expect_ids.is_empty())
    else {
        return buffers;
    };
    let limits = Limits { matches: 1000, ..Limits::default() };
    let mut transaction = Transaction::new(ruleset.clone(), limits.clone(), buffers);
    run(&mut transaction, &stage.input);
    let denied = transaction.denied().is_some() || transaction.body_error().is_some();
    // By id, what comes after a refusal counts as well.
    let mut transaction = Transaction::new(ruleset.clone(), limits, transaction.finish());
    transaction.only_detect();
    run(&mut transaction, &stage.input);
    let ids: Vec<u64> = transaction.matched_ids().collect();
    let expected = log.expect_ids.is_empty() || log.expect_ids.iter().any(|id| ids.contains(id));
    let by_id = expected && !log.no_expect_ids.iter().any(|id| ids.contains(id));
    tally.tests += 1;
    tally.by_id += u32::from(by_id);
    if log.expect_ids.is_empty() {
        tally.honest += 1;
        tally.passed += u32::from(!denied);
    } else {
        tally.attacks += 1;
        tally.caught += u32::from(denied);
    }
    if !by_id {
        let error = transaction.body_error().unwrap_or_default();
        tally.missed.push(format!("{id}-{test}: by id; matched {ids:?} {error}"));
    }
    if denied == log.expect_ids.is_empty() {
        let error = transaction.body_error().unwrap_or_default();
        tally.missed.push(format!("{id}-{test}: by status, denied: {denied}; matched {ids:?} {error}"));
    }
    transaction.finish()
}

/// Sends a test's request, and what the test server would answer.
fn run(transaction: &mut Transaction, input: &Input) {
    let raw = input.encoded_request.as_deref().map(decoded);
    let (method, uri, version, mut headers, mut body) = match &raw {
        Some(raw) => parsed(raw),
        None => (
            input.method.clone().unwrap_or_else(|| "GET".into()),
            input.uri.clone().unwrap_or_else(|| "/".into()),
            input.version.clone().unwrap_or_else(|| "HTTP/1.1".into()),
            input.headers.clone().unwrap_or_default().into_iter().collect::<Vec<_>>(),
            input.data.clone().unwrap_or_default().into_bytes(),
        ),
    };
    let has = |headers: &[(String, String)], name: &str| {
        headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name))
    };
    // The tests' files have plain line ends where a multipart body has CRLF.
    let is_multipart = headers.iter().any(|(_, value)| value.contains("multipart/form-data"));
    if raw.is_none() && is_multipart && !body.windows(2).any(|pair| pair == b"\r\n") {
        body = String::from_utf8_lossy(&body).replace('\n', "\r\n").into_bytes();
    }
    if raw.is_none() && input.autocomplete_headers != Some(false) && !body.is_empty() {
        if !has(&headers, "content-type") {
            headers.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
        }
        if !has(&headers, "content-length") {
            headers.push(("Content-Length".into(), body.len().to_string()));
        }
    }
    let pairs: Vec<(&[u8], &[u8])> =
        headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let head = RequestHead {
        method: method.as_bytes(),
        target: uri.as_bytes(),
        version: &version,
        headers: &pairs,
        client: [203, 0, 113, 7].into(),
        unique_id: b"1234567890",
    };
    transaction.request_head(&head);
    transaction.request_body(&body);
    if !transaction.is_refused() && uri.contains("/reflect") {
        reflect(transaction, &body);
    }
}

/// The test server answers what the request says.
fn reflect(transaction: &mut Transaction, body: &[u8]) {
    let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let status = said["status"].as_u64().and_then(|it| u16::try_from(it).ok()).unwrap_or(200);
    let headers: Vec<(String, String)> = said["headers"].as_object().map_or_else(Vec::new, |headers| {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        headers.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    });
    let pairs: Vec<(&[u8], &[u8])> =
        headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    transaction.response_head(&ResponseHead { status, version: "HTTP/1.1", headers: &pairs });
    let encoded = said["encodedBody"].as_str().map(decoded);
    let plain = said["body"].as_str().unwrap_or_default().as_bytes().to_vec();
    transaction.response_body(&encoded.unwrap_or(plain));
}

fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    gateway_waf::Transform::Base64DecodeExt.apply(text.as_bytes(), &mut out);
    out
}

type Parsed = (String, String, String, Vec<(String, String)>, Vec<u8>);

fn parsed(raw: &[u8]) -> Parsed {
    let text = String::from_utf8_lossy(raw).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (method, uri, version) = (word(), word(), word());
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    (method, uri, version, headers, body.as_bytes().to_vec())
}

/// A request to be timed.
struct Sample {
    name: &'static str,
    target: String,
    kind: Option<&'static str>,
    body: Vec<u8>,
}

fn samples() -> Vec<Sample> {
    let leaf = |n: usize| format!("\"field_{n}\":\"value {n} text\"");
    let json =
        |count: usize| format!("{{{}}}", (0..count).map(leaf).collect::<Vec<_>>().join(",")).into_bytes();
    let prose = "The quick brown fox jumps over the lazy dog and then walks home, slowly. ".repeat(12);
    let mut form: Vec<String> = (0..9).map(|n| format!("field{n}=value{n}")).collect();
    form.push(format!("text={}", prose.replace(' ', "+").replace(',', "%2C")));
    let form_type = Some("application/x-www-form-urlencoded");
    let json_type = Some("application/json");
    let get = |name, target: &str| Sample { name, target: target.into(), kind: None, body: Vec::new() };
    let post = |name, kind, body| Sample { name, target: "/api/items".into(), kind, body };
    vec![
        get("a: clean GET", "/catalog/items?category=shoes&page=2&sort=price_asc"),
        post("b: JSON 48 leaves", json_type, json(48)),
        post("b10: JSON 480 leaves", json_type, json(480)),
        post("c: form 1 KiB", form_type, form.join("&").into_bytes()),
        get("d: attack", "/catalog?id=1%27+UNION+SELECT+username,password+FROM+users--+-"),
        post("x= pairs 100 KB", form_type, ["v=".to_owned(), "x%3D".repeat(25_000)].concat().into_bytes()),
        post("form of 1000 x=", form_type, "x=&".repeat(33_333).into_bytes()),
        post("JSON 3,333 ones", json_type, format!("[{}1]", "1,".repeat(3332)).into_bytes()),
        post("<a 100 KB", form_type, ["v=".to_owned(), "<a ".repeat(33_333)].concat().into_bytes()),
    ]
}

fn time(rules: &str, rest: &[&str]) -> Result<(), Failure> {
    let ruleset = load(rules, 1)?;
    let wanted = rest.get(1).copied().unwrap_or_default();
    let rounds: u32 = rest.first().and_then(|rounds| rounds.parse().ok()).unwrap_or(2000);
    // One way alone, so that its instructions can be counted.
    let ways = ["again", "new", "cold"].into_iter().filter(|way| rest.get(2).is_none_or(|only| only == way));
    for sample in samples().into_iter().filter(|sample| sample.name.starts_with(wanted)) {
        let rounds = if sample.body.len() > 20_000 { rounds.div_ceil(100) } else { rounds };
        let mut line = format!("{:<22}", sample.name);
        for way in ways.clone() {
            let (buffers, label) = match way {
                "cold" => (Buffers::without_cache(), "without cache"),
                "new" => (Buffers::default(), "new values"),
                _ => (Buffers::default(), "again"),
            };
            let took = timed(&ruleset, &sample, rounds, buffers, way == "new");
            line.push_str(&format!(" {label} {took:>9.1} us  "));
        }
        println!("{line}");
    }
    Ok(())
}

/// Microseconds a request takes; with `vary`, arguments differ each time.
fn timed(ruleset: &Arc<Ruleset>, sample: &Sample, rounds: u32, mut buffers: Buffers, vary: bool) -> f64 {
    let mut total = 0.0;
    for round in 0..rounds + rounds / 10 {
        let target = match vary {
            true if sample.target.contains('?') => format!("{}{round}&n{round}=v{round}x", sample.target),
            _ => sample.target.clone(),
        };
        let body = match vary {
            true => {
                String::from_utf8_lossy(&sample.body).replace("value", &format!("value{round}")).into_bytes()
            }
            false => sample.body.clone(),
        };
        let session = if vary {
            format!("sid=3f9a1c{round:06}; theme=dark")
        } else {
            "sid=3f9a1c77; theme=dark".into()
        };
        let length = body.len().to_string();
        let mut headers: Vec<(&[u8], &[u8])> = vec![
            (b"host", b"shop.example.com"),
            (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
            (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            (b"accept-language", b"en-US,en;q=0.5"),
            (b"accept-encoding", b"gzip, deflate, br"),
            (b"referer", b"https://shop.example.com/catalog"),
            (b"connection", b"keep-alive"),
            (b"cookie", session.as_bytes()),
        ];
        if let Some(kind) = sample.kind {
            headers.push((b"content-type", kind.as_bytes()));
            headers.push((b"content-length", length.as_bytes()));
        }
        let begun = Instant::now();
        let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), buffers);
        transaction.request_head(&RequestHead {
            method: if sample.kind.is_some() { b"POST" } else { b"GET" },
            target: target.as_bytes(),
            version: "HTTP/1.1",
            headers: &headers,
            client: [203, 0, 113, 7].into(),
            unique_id: b"",
        });
        transaction.request_body(&body);
        buffers = transaction.finish();
        // The first tenth warms up.
        if round >= rounds / 10 {
            total += begun.elapsed().as_secs_f64() * 1e6;
        }
    }
    total / f64::from(rounds)
}

/// Requests that must pass: one a line, `METHOD TARGET [CONTENT-TYPE BODY]`, separated by tabs.
fn benign(rules: &str, file: &Path) -> Result<(), Failure> {
    let ruleset = load(rules, 1)?;
    let (mut count, mut refused, mut beyond, mut buffers) = (0, 0, 0, Buffers::default());
    for line in std::fs::read_to_string(file)?.lines() {
        let mut parts = line.split('\t');
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (method, target, kind, body) = (part(), part(), part(), part());
        let mut headers: Vec<(&[u8], &[u8])> =
            vec![(b"host", b"api.example.com"), (b"user-agent", b"client/1.0"), (b"accept", b"*/*")];
        if !kind.is_empty() {
            headers.push((b"content-type", kind.as_bytes()));
        }
        let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), buffers);
        transaction.request_head(&RequestHead {
            method: method.as_bytes(),
            target: target.as_bytes(),
            version: "HTTP/1.1",
            headers: &headers,
            client: [203, 0, 113, 7].into(),
            unique_id: b"",
        });
        transaction.request_body(body.as_bytes());
        count += 1;
        beyond += u32::from(transaction.is_partial());
        if transaction.denied().is_some() || (transaction.body_error().is_some() && !transaction.is_partial())
        {
            refused += 1;
            println!("{line}");
            for found in transaction.report().matches {
                println!("    {} {} {} {}", found.rule, found.variable, found.excerpt, found.message);
            }
        }
        buffers = transaction.finish();
    }
    println!("refused {refused} of {count}; {beyond} are beyond a limit");
    Ok(())
}
