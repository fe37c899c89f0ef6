//! Published tricks with bodies against our own rules: content types, character sets, multipart, JSON and XML.

use super::*;

pub(super) const FORM: &str = "application/x-www-form-urlencoded";
const XSS: &str = "<script>alert(1)</script>";

/// What a target with a body gets: `refused` by a rule, or because the body can be read in two ways.
fn is_refused(ruleset: &Arc<Ruleset>, headers: &[(&str, &str)], body: &str) -> bool {
    let mut all: Vec<(&[u8], &[u8])> = vec![(b"host", b"shop.example"), (b"user-agent", b"Mozilla/5.0")];
    all.extend(headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), Buffers::default());
    transaction.request_head(&RequestHead {
        method: b"POST",
        target: b"/",
        version: "HTTP/1.1",
        headers: &all,
        client: [203, 0, 113, 9].into(),
        unique_id: b"",
    });
    transaction.request_body(body.as_bytes());
    transaction.denied().is_some() || transaction.body_error().is_some()
}

#[test]
fn content_types_do_not_hide_bodies() {
    let ruleset = rules(Profile::Balanced);
    let json = r#"{"q":"\u003cscript\u003ealert(1)"}"#;
    let form = "q=%3Cscript%3Ealert(1)";
    for (kinds, body) in [
        (&[][..], json),
        (&[], form),
        (&["text/plain"], json),
        (&["text/plain;charset=UTF-8"], form),
        (&["image/png"], json),
        (&["application/octet-stream"], json),
        (&["text/json"], json),
        (&["application/graphql"], "{ user(name: \"<script>alert(1)</script>\") { id } }"),
        (&["application/json", "text/plain"], "{}"),
        (&["image/png", "application/json"], json),
        (&["application/json, image/png"], "{}"),
        (&["image/png, application/json"], json),
        (&["application/json application/x-www-form-urlencoded"], form),
        (&["application/x-www-form-urlencoded/"], form),
        (&["x"], form),
        (&["application/json; charset=utf-16"], "{}"),
        (&["application/json; charset=utf-8; charset=utf-7"], "{}"),
        (&["application/json; charset=\"ibm037\""], "{}"),
        (&["application/x-www-form-urlencoded; charset=ibm500"], "a=1"),
        (&["application/x-www-form-urlencoded; charset=cp037"], "a=1"),
        (&["application/x-www-form-urlencoded; charset=utf-32be"], "a=1"),
        (&["application/x-www-form-urlencoded; charset=iso-2022-jp"], "a=1"),
        (&["application/x-www-form-urlencoded; charset=hz-gb-2312"], "a=1"),
        (&["text/html; charset=UTF-7"], "a"),
        (&[FORM], "_charset_=utf-7&q=x"),
        (&["application/json"], "\u{feff}{\"q\":\"<script>alert(1)\"}"),
        (&["application/json"], "{\"q\":1,\"q\":\"<script>alert(1)\"}"),
        (&["application/json"], "{\"q\":1}{\"q\":\"<script>alert(1)\"}"),
        (&["application/json"], "{/*c*/\"q\":\"x\"}"),
        (&["application/json"], "{'q':'x'}"),
        (&["application/json"], "{\"q\":\"{\\\"r\\\":\\\"\\\\u0027 or 1=1--\\\"}\"}"),
        (&["application/json"], "{\"<script>alert(1)\":1}"),
        (&["application/json"], "{\"$where\":\"this.a==1\"}"),
        (&["application/xml"], "<?xml version='1.0' encoding='utf-7'?><a>+ADw-</a>"),
        (&["application/xml"], "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>"),
        (&["application/xml"], "<a><![CDATA[<script>alert(1)]]></a>"),
        (&["application/xml"], "<a>&#60;scr<!-- -->ipt&#x3e;alert(1)</a>"),
        (&["application/xml"], "<a b=\"&#39; or 1=1--\"/>"),
        (&["application/xml"], "<a><b></a></b>"),
        (&["text/xml"], "<a>1 union<![CDATA[ select 1]]></a>"),
    ] {
        let headers: Vec<(&str, &str)> = kinds.iter().map(|kind| ("content-type", *kind)).collect();
        assert!(is_refused(&ruleset, &headers, body), "{kinds:?} {body}");
    }
}

/// A body of one part.
fn part(disposition: &str, content: &str) -> String {
    format!("--B\r\nContent-Disposition: {disposition}\r\n\r\n{content}\r\n--B--\r\n")
}

/// Boundaries and line ends at which two readers split at different places.
#[test]
fn boundaries_with_two_meanings_are_refused() {
    let ruleset = rules(Profile::Balanced);
    let plain = part("form-data; name=\"q\"", XSS);
    for parameters in [
        "form-data; boundary=B",
        "form-data; boundary=\"B\"",
        "Form-Data; BOUNDARY=B",
        "mixed; boundary=B",
        "form-data; boundary=A; boundary=B",
        "form-data; boundary=\"A\"; boundary=B",
        "form-data; boundary*0=\"B\"; boundary=A",
        "form-data; boundary=A, boundary=B",
        "form-data; boundary =B",
        "form-data; boundary=B\\",
        "form-data",
    ] {
        let kind = format!("multipart/{parameters}");
        assert!(is_refused(&ruleset, &[("content-type", &kind)], &plain), "{kind}");
    }
    for body in [
        plain.replace("--B--\r\n", ""),
        plain.replace("--B--", "--B"),
        plain.replace("\r\n", "\n"),
        format!("x\r\n{plain}"),
        format!("{plain}{plain}"),
        part(
            "form-data; name=f; filename=a",
            &format!("x\n--B\nContent-Disposition: form-data; name=q\n\n{XSS}"),
        ),
    ] {
        let kind = "multipart/form-data; boundary=B";
        assert!(is_refused(&ruleset, &[("content-type", kind)], &body), "{body}");
    }
}

/// Heads of parts: what a filter may take for a file, for another name, or not see at all.
#[test]
fn heads_of_parts_with_two_meanings_are_refused() {
    let ruleset = rules(Profile::Balanced);
    for disposition in [
        "name=\"q\"; name=\"r\"",
        "name*=utf-8''q",
        "name*0=q",
        "name=f; filename=a.txt; filename=\"a.php\"",
        "name=f; filename=\"a.php\"; filename=a.txt",
        "name=f; filename=\"a.txt\"; filename*=UTF-8''a.php",
        "name=f; filename*=UTF-8''a%2Ephp",
        "name=f; filename*0=\"a.p\"; filename*1=\"hp\"",
        "name=f; filename=a.php",
        "name=f; FILENAME=\"a.PHP\"",
        "name=f; filename=\"a.php.\"",
        "name=f; filename=\"a.php;.jpg\"",
        "name=f; filename=\"a.php%00.jpg\"",
        "name=f; filename=\"../../a.txt\"",
        "name=f; filename=\"a.txt",
        "\r\n name=\"q\"",
        "name=q\r\nContent-Disposition: form-data; name=r; filename=x",
        "name=q\r\nContent-Transfer-Encoding: base64",
        "name=q\r\nContent-Type: text/plain; charset=utf-7",
        "name=\"<script>alert(1)\"",
    ] {
        let body = part(&format!("form-data; {disposition}"), "x");
        let kind = "multipart/form-data; boundary=B";
        assert!(is_refused(&ruleset, &[("content-type", kind)], &body), "{disposition}");
    }
}

/// Contents that some readers take for fields.
#[test]
fn contents_of_parts_are_seen() {
    let ruleset = rules(Profile::Balanced);
    let plain = part("form-data; name=\"q\"", XSS);
    let inner = format!("--C\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\n{XSS}\r\n--C--\r\n");
    for body in [
        part("form-data; name=\"q\"; filename=\"\"", XSS),
        part("form-data; name=q", XSS),
        part("form-data; name='q'", XSS),
        part("form-data; name=q\r\nContent-Type: multipart/mixed; boundary=C", &inner),
        part("form-data; name=\"_charset_\"", "ibm037"),
        plain.replace("Content-Disposition:", "Content-Disposition :"),
        plain.replace("Content-Disposition:", "X-Content-Disposition:"),
        plain.replace("Content-Disposition:", "content-disposition:"),
        plain.replace("Content-Disposition: form-data; name=\"q\"\r\n", ""),
    ] {
        let kind = "multipart/form-data; boundary=B";
        assert!(is_refused(&ruleset, &[("content-type", kind)], &body), "{body}");
    }
}

/// The same shapes without an attack go through, so that the tests above say something.
#[test]
fn ordinary_bodies_pass() {
    let ruleset = rules(Profile::Balanced);
    let part = "--B\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nhello\r\n--B\r\n\
                Content-Disposition: form-data; name=\"f\"; filename=\"photo 1.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n\
                \u{1}\u{2}<script>\r\n--B\r\nContent-Disposition: form-data; name=\"g\"; filename=\"\"\r\n\
                Content-Type: application/octet-stream\r\n\r\n\r\n--B--\r\n";
    for (kind, body) in [
        ("multipart/form-data; boundary=B", part),
        ("multipart/form-data; boundary=\"B\"; charset=utf-8", part),
        (
            "multipart/form-data; boundary=B",
            "--B\r\nContent-Disposition: form-data; name=f; filename*=UTF-8''na%C3%AFve.txt\r\n\r\nx\r\n--B--",
        ),
        ("text/plain", "Meet at 5 & bring the cat (or dog)."),
        ("text/plain; charset=gbk", "hello"),
        ("application/octet-stream", "\u{0}\u{1}binary <b>"),
        ("application/vnd.example.v2+json; charset=utf-8; profile=\"x\"", "{\"a\":[1,2]}"),
        (
            "application/json",
            "{\"data\":\"{\\\"name\\\":\\\"O'Brien\\\",\\\"note\\\":\\\"fine - really\\\"}\"}",
        ),
        ("application/graphql", "query Q($id: ID!) { user(id: $id) { name friends(first: 10) { name } } }"),
        (FORM, "tag=red&tag=blue&tag=dark+green&sort=name,-created"),
        (
            "application/xml; charset=utf-8",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a b=\"1\">text &amp; more</a>",
        ),
        ("application/x-protobuf", "\u{a}\u{5}hello"),
    ] {
        assert!(!is_refused(&ruleset, &[("content-type", kind)], body), "{kind}\n{body}");
    }
    assert!(!is_refused(&ruleset, &[], ""));
}
