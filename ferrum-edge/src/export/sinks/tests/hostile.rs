//! What clients write into requests, in every format and envelope: it never breaks a line, and never adds a field.

use std::collections::BTreeSet;

use super::*;

/// A megabyte of this text.
fn large(unit: &[u8]) -> http::HeaderValue {
    http::HeaderValue::from_bytes(&unit.repeat((1 << 20) / unit.len())).unwrap()
}

/// Header values that a client can send: every byte that HTTP takes, marks of each format, and a megabyte of each.
fn values() -> Vec<http::HeaderValue> {
    let every: Vec<u8> = (0x20..=0xffu8).filter(|byte| *byte != 0x7f).chain([b'\t']).collect();
    let mut values: Vec<_> = [
        &every[..],
        b"\" status=500 x=\"",
        b"\",\"http.response.status_code\":500,\"x\":\"",
        b"a\\\",\"b\":\"",
        b"\" 500 0 \"-\" \"-\"",
        b"] } ${client.address} %{x}",
        b"\xff\xfe\xc3",
        b"\xe2\x80\xa8\xc2\x85",
        b"\xc2\x9b31mred\xc2\x80",
        b"</script>",
        b"\\n\\r\\u000a",
    ]
    .map(|text| http::HeaderValue::from_bytes(text).unwrap())
    .to_vec();
    values.extend([&b"\""[..], b"\\", b"\xff", b"\t", b"=\" ", b"\xc3\xbc"].map(large));
    values
}

fn hostile(value: &http::HeaderValue) -> gateway_core::http::exchange::Exchange {
    let request = http::Request::get("http://api.example.com/a%0d%0ab%22%ff?x=%0a%22&y=%00");
    exchange(
        request
            .header("user-agent", value)
            .header("referer", value)
            .header("x-odd", value)
            .header("cookie", value),
    )
}

fn built(settings: &Value) -> Arc<Sink> {
    let mut settings = settings.clone();
    settings["name"] = json!("s");
    let rules = try_sinks(&json!([settings])).unwrap_or_else(|problems| panic!("{problems}"));
    Arc::new(Sink::build(&rules[0], &World::default()).unwrap_or_else(|error| panic!("{error}")))
}

fn line(sink: &Sink, record: &ExchangeRecord<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    sink.write(&mut out, Record::Exchange(record));
    out
}

fn keys(line: &[u8]) -> BTreeSet<String> {
    let value: Value = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}"));
    value.as_object().unwrap().keys().cloned().collect()
}

/// Bytes of a line, whatever was sent.
const MAX_LINE: usize = 64 << 10;

#[test]
fn no_value_breaks_a_line_or_adds_a_field() {
    let extras = json!({ "request_headers": ["x-odd", "cookie"] });
    let template = json!({ "stdout": {}, "template": "${request.header.user-agent}|${response.status}" });
    let honest = http::HeaderValue::from_static("plain");
    for value in values() {
        let (odd, plain) = (hostile(&value), hostile(&honest));
        let (odd, plain) = (record(&odd, None), record(&plain, None));
        let shown = String::from_utf8_lossy(&value.as_bytes()[..value.len().min(40)]).into_owned();
        for format in ["json", "ecs", "logfmt", "combined"] {
            let mut settings = if format == "combined" { json!({}) } else { extras.clone() };
            settings["stdout"] = json!({});
            settings["format"] = json!(format);
            let sink = built(&settings);
            let text = line(&sink, &odd);
            assert!(text.len() <= MAX_LINE, "{format} of {shown}: {} bytes", text.len());
            let control = text.iter().find(|byte| byte.is_ascii_control());
            assert_eq!(control, None, "{format} of {shown}");
            // Terminals obey U+009B as well.
            let lossy = String::from_utf8_lossy(&text);
            let beyond = lossy.chars().find(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'));
            assert_eq!(beyond.filter(|_| format != "combined"), None, "{format} of {shown}");
            if matches!(format, "json" | "ecs") {
                assert_eq!(keys(&text), keys(&line(&sink, &plain)), "{format} of {shown}");
            }
            if format == "combined" {
                // Quotes of a value are escaped: there are three pairs of them.
                let text = String::from_utf8(text).unwrap().replace("\\\\", "").replace("\\\"", "");
                assert_eq!(text.matches('"').count(), 6, "{shown}");
            }
        }
        let text = line(&built(&template), &odd);
        assert!(text.len() <= MAX_LINE && !text.iter().any(u8::is_ascii_control), "{shown}");
        // The line is there, its end is the gateway's, and no quote is bare.
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with("|200"), "{text}");
        assert!(!text.replace("\\\\", "").replace("\\\"", "").contains('"'), "{text}");
    }
}

#[test]
fn no_value_breaks_what_is_around_a_line() {
    let syslog = |address: &str| json!({ "syslog": { "address": address } });
    for value in values() {
        let odd = hostile(&value);
        let odd = record(&odd, None);
        let text = line(&built(&syslog("tcp://a.test:601")), &odd);
        let (length, message) = text.split_at(text.iter().position(|byte| *byte == b' ').unwrap() + 1);
        assert_eq!(String::from_utf8_lossy(length).trim(), message.len().to_string());
        let text = line(&built(&syslog("udp://a.test:514")), &odd);
        assert!(text.starts_with(b"<134>1 ") && !text.contains(&b'\n'));
        let text = line(&built(&json!({ "loki": { "url": "http://a.test/" } })), &odd);
        let pair: Vec<String> = serde_json::from_slice(&text).unwrap();
        keys(pair[1].as_bytes());
        let kafka = json!({ "kafka": { "brokers": ["a.test:9092"], "topic": "t" } });
        let text = line(&built(&kafka), &odd);
        assert!(text.len() <= MAX_LINE && !text.contains(&b'\n'), "a record is a line");
        keys(&text);
        for protocol in ["http/json", "http/protobuf"] {
            let sink = built(
                &json!({ "otlp": { "endpoint": "http://a.test", "protocol": protocol }, "request_headers": ["x-odd"] }),
            );
            let text = line(&sink, &odd);
            assert!(text.len() <= MAX_LINE);
            if protocol == "http/json" {
                serde_json::from_slice::<Value>(&text).unwrap();
            }
        }
    }
}
