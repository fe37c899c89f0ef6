//! Ordinary traffic that looks like attacks to a careless rule: what people write in forms, names of files, Markdown, the JSON of editors
//! and configurations. Each case was refused once, or is close to one that was.

use super::*;

/// One text a line; `\n` and `\r` are line ends.
const TEXTS: &str = include_str!("ordinary.txt");
/// One document a line.
const DOCUMENTS: &str = include_str!("ordinary.jsonl");

const DECISION: u64 = 1_000_900;

fn texts() -> impl Iterator<Item = String> {
    TEXTS.lines().map(|line| line.replace("\\n", "\n").replace("\\r", "\r"))
}

/// As forms and queries write it.
fn encoded(text: &str) -> String {
    let octets = text.bytes().map(|octet| match octet {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(octet).to_string(),
        other => format!("%{other:02X}"),
    });
    octets.collect()
}

/// As JSON writes it.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    format!("\"{escaped}\"")
}

#[test]
fn texts_of_people_pass() {
    let ruleset = rules(Profile::Balanced);
    let mut refused = Vec::new();
    for text in texts() {
        let form = format!("a=1&text={}", encoded(&text));
        let json = format!("{{\"text\":{}}}", quoted(&text));
        let query = format!("/?q={}", encoded(&text));
        let all = [
            ids(&ruleset, "/", Some((bodies::FORM, &form))),
            ids(&ruleset, "/", Some(("application/json", &json))),
            // Relative links in a query are how folders are left.
            if text.contains("../") { Vec::new() } else { ids(&ruleset, &query, None) },
        ];
        if all.iter().any(|ids| ids.contains(&DECISION)) {
            refused.push(format!("{text:?}: {all:?}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn documents_of_editors_and_programs_pass() {
    let ruleset = rules(Profile::Balanced);
    let found = |document: &str| ids(&ruleset, "/", Some(("application/json", document)));
    let all = DOCUMENTS.lines().map(|document| (document, found(document)));
    let refused: Vec<_> = all.filter(|(_, ids)| ids.contains(&DECISION)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A form with a file of this name.
fn upload(name: &str) -> String {
    let head = "Content-Disposition: form-data; name=\"f\"";
    format!("--B\r\n{head}; filename=\"{name}\"\r\nContent-Type: image/png\r\n\r\nabc\r\n--B--\r\n")
}

#[test]
fn names_of_files_pass_and_tricks_with_them_do_not() {
    let ruleset = rules(Profile::Balanced);
    let found = |name: &str| ids(&ruleset, "/", Some(("multipart/form-data; boundary=B", &upload(name))));
    for name in [
        "Ann's photo.jpg",
        "Ann's & Bob's trip.png",
        "the boys' trip.png",
        "rock 'n' roll.mp3",
        "Report; final (v2).pdf",
        "E=mc2 notes.pdf",
        "2+2=4.txt",
        "café's menu.pdf",
        "L'été à la mer.jpeg",
        "Angebot Nr. 5 [neu].docx",
        "100% cotton.png",
        "#1 plan.xlsx",
        "allegro.pl zamowienie.pdf",
        "www.example.pl.pdf",
        "backup.tar.gz",
        "Meeting @ 5pm.ics",
        "notes~1.txt",
        "photo,1.jpg",
        "{draft}.md",
        "$5 coupon.png",
        "main.py",
    ] {
        assert!(!found(name).contains(&DECISION), "{name}: {:?}", found(name));
    }
    for name in [
        "'quoted'.jpg",
        "a'; drop table users.jpg",
        "x.php",
        "x.php;.jpg",
        "a; filename=b.php",
        "a;name=b",
        "shell.pl",
        "..\\\\a.jpg",
        "../../etc/passwd",
        "file=.txt",
        "<script>alert(1)</script>.png",
    ] {
        assert!(found(name).contains(&DECISION), "{name} passes");
    }
}

/// What stays refused beside what passes now.
#[test]
fn attacks_close_to_ordinary_texts_are_refused() {
    let ruleset = rules(Profile::Balanced);
    for text in [
        "confirm(1)",
        "alert(document.cookie)",
        "alert (1)",
        "prompt`x`",
        "javascript:alert(1)",
        "java\tscript:x=1",
        "vbscript:msgbox",
        "@import 'http://evil.test/x.css'",
        "data:text/html;base64,PHNjcmlwdD4=",
        "data:text/plain;base64,PD9waHA=",
        "data:;base64,PD9waHA=",
        "data:image/svg+xml;base64,PHN2Zz4=",
        "1 union all select null,null",
        "1 union values(1)",
        "drop table users",
        "x; drop table users",
        "delete from users where 1=1",
        "1 order by 10-- -",
        "1' order by 10",
        "exec xp_cmdshell('dir')",
        "select * from users",
        "${IFS}cat /etc/passwd",
        "a|id",
        "$(id)",
        "; cat /etc/passwd",
        "system(ls)",
        "{cat,/etc/passwd}",
        "/b?n/c?t",
        "net user hacker pw /add",
        "en\r\nLocation: http://evil.test/",
        "x\r\nSet-Cookie: a=1",
        "<object data=x>",
        "<link rel=stylesheet href=//evil.test>",
        "include('/etc/x')",
        "process.exit()",
        "self['alert'](1)",
    ] {
        let form = format!("text={}", encoded(text));
        let found = ids(&ruleset, "/", Some((bodies::FORM, &form)));
        assert!(found.contains(&DECISION), "{text:?} passes: {found:?}");
    }
}
