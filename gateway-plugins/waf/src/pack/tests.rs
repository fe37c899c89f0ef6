//! Our own rules: evasions, bodies, honest requests.

mod bodies;
mod evasions;
mod ordinary;
mod steps;

use std::sync::Arc;

use super::*;
use crate::{Buffers, Limits, RequestHead, Ruleset, Transaction, compile};

fn rules(profile: Profile) -> Arc<Ruleset> {
    match compile(&own_rules(profile)) {
        Ok((ruleset, _)) => Arc::new(ruleset),
        Err(problems) => panic!("{}", problems.iter().map(|it| format!("{it}\n")).collect::<String>()),
    }
}

/// The rules that a request matches.
fn ids(ruleset: &Arc<Ruleset>, target: &str, body: Option<(&str, &str)>) -> Vec<u64> {
    let mut headers: Vec<(&[u8], &[u8])> = vec![
        (b"host", b"shop.example"),
        (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64)"),
        (b"accept", b"*/*"),
    ];
    if let Some((kind, _)) = body {
        headers.push((b"content-type", kind.as_bytes()));
    }
    let mut transaction = Transaction::new(ruleset.clone(), Limits::default(), Buffers::default());
    transaction.request_head(&RequestHead {
        method: if body.is_some() { b"POST" } else { b"GET" },
        target: target.as_bytes(),
        version: "HTTP/1.1",
        headers: &headers,
        client: [203, 0, 113, 9].into(),
        unique_id: b"",
    });
    transaction.request_body(body.map_or("", |(_, body)| body).as_bytes());
    transaction.matched_ids().collect()
}

/// Encodings, comments, case and the like do not hide an attack.
#[test]
fn evasions_are_seen_through() {
    let ruleset = rules(Profile::Balanced);
    for target in [
        "/?q=1%27%20OR%20%271%27=%271",
        "/?q=1%2527%2520OR%2520%25271%2527=%25271",
        "/?q=UnIoN%0aSeLeCt%201,2",
        "/?q=un%69on/**/all/**/sel%65ct%201",
        "/?q=1/*!50000union*//*!50000select*/1,2",
        "/?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/?q=%253Cscript%253Ealert(1)%253C/script%253E",
        "/?q=%C0%BCscript%C0%BEalert(1)",
        "/?q=%u003cscript%u003ealert(1)",
        "/?q=%EF%BC%9Cscript%EF%BC%9Ealert(1)",
        "/?q=%26lt;script%26gt;alert(1)",
        "/?q=%5Cx3cscript%5Cx3ealert(1)",
        "/?q=%3Csvg/onload=alert(1)%3E",
        "/?q=java%09script:alert(1)",
        "/?q=../../../../etc/passwd",
        "/?q=..%252f..%252f..%252fetc%252fpasswd",
        "/?q=%2e%2e/%2e%2e/etc/passwd",
        "/?q=..%c0%af..%c0%afetc/passwd",
        "/?q=....//....//etc/passwd",
        "/?q=..%5c..%5cwindows%5cwin.ini",
        "/static/..%2f..%2fetc%2fpasswd",
        "/?q=;cat%20/etc/hosts",
        "/?q=%7Cc%5Ea%5Et%20/etc/hosts",
        "/?q=;c%27%27at%20/e?c/h?sts",
        "/?q=$(whoami)",
        "/?q=%60id%60",
        "/?q=%24%7Bjndi:ldap://x/a%7D",
        "/?q=%24%7B%24%7Blower:j%7Dndi:ldap://x/a%7D",
        "/?q=http://169.254.169.254/latest/meta-data/",
        "/?q=%7B%7B7*7%7D%7D",
        "/?q[$ne]=1",
        "/?__proto__[admin]=1",
        "/?q=php://filter/convert.base64-encode/resource=index",
        "/?q=a%0d%0aSet-Cookie:%20x=1",
        "/?q=a%00b",
        "/.git/config",
        "/?a=1&a=%27;DROP%20TABLE%20users--",
    ] {
        assert!(ids(&ruleset, target, None).contains(&1_000_900), "{target} passes");
    }
}

#[test]
fn bodies_of_every_kind_are_read() {
    let ruleset = rules(Profile::Balanced);
    let part =
        "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n<script>alert(1)</script>\r\n--B--\r\n";
    for (kind, body) in [
        ("application/x-www-form-urlencoded", "a=1&b=%3Cscript%3Ealert(1)%3C/script%3E"),
        ("application/json", r#"{"a":{"b":["x","\u003cscript\u003ealert(1)"]}}"#),
        ("application/vnd.api+json", r#"{"<script>alert(1)</script>":1}"#),
        ("application/xml", "<a><b>&lt;script&gt;alert(1)</b></a>"),
        ("text/xml", "<a b='&lt;script&gt;alert(1)'/>"),
        ("multipart/form-data; boundary=B", part),
        ("application/octet-stream", "<?php system($_GET['c']); ?>"),
    ] {
        assert!(ids(&ruleset, "/", Some((kind, body))).contains(&1_000_900), "{kind} passes");
    }
}

#[test]
fn honest_requests_pass() {
    let ruleset = rules(Profile::Balanced);
    for target in [
        "/",
        "/search?q=how+to+select+a+union+representative&page=2",
        "/items/42?fields=id,name,price&sort=-created_at&filter=price%3E10",
        "/api/v1/users?email=jane.doe%2Btest@example.com&limit=50",
        "/oauth/callback?code=4/0AX4XfWh&state=https%3A%2F%2Fshop.example%2Fcart%3Fa%3D1",
        "/?name=O%27Brien&comment=It%27s%20fine%20-%20really%2C%20%22thanks%22%21",
        "/?text=Meet+at+5+%26+bring+cat+%28or+dog%29",
        "/?redirect=https%3A%2F%2Fwww.example.com%2Fpath%3Fx%3Dy",
        "/?date=2026-11-22T08:00:00%2B01:00&tz=Europe/Berlin",
        "/?q=C%2B%2B%20templates%20%3Cvector%3E",
        "/?token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_123",
        "/?ids[]=1&ids[]=2&user[name]=x",
    ] {
        assert_eq!(ids(&ruleset, target, None), Vec::<u64>::new(), "{target}");
    }
    let json = r#"{"title":"Order #5 & more","items":[{"sku":"A-1","price":9.99}],"note":"Please ring the bell; thanks!"}"#;
    assert_eq!(ids(&ruleset, "/orders", Some(("application/json", json))), Vec::<u64>::new());
}

/// Words of SQL are words of English, too.
#[test]
fn sentences_with_select_and_from_are_no_sql() {
    let ruleset = rules(Profile::Balanced);
    for text in [
        "select a good laptop from dell or hp",
        "Please select a date from the list",
        "select a room from our list",
        "please select two colours from the catalogue",
        "Select one from the list",
        "Select items from shops where they are sold, by order of price",
        "Select Node.js from the drop-down",
        "Select the item(s) from the list (up to 3), then press Buy.",
        "select a shirt, a tie and a hat from the shop",
        "Select \"Dates\" from the menu \"File\"",
        "(Select a date from the calendar)",
        "How do I select the best of them from 2 - 3 offers - or from more?",
        "We select *only* the best beans from Peru -- and roast them here",
        "Select your seat from the plan; your ticket is valid from Monday, or update your profile",
        "Open the menu; select a date; update your profile; delete the old file; create a new one; begin anew",
        "Put it down; insert the coin; drop me a line; alter nothing",
        "The union has a right to select members from each group by vote, having asked them",
    ] {
        let target = format!("/?q={}", text.replace(' ', "+").replace(';', "%3B"));
        assert!(!ids(&ruleset, &target, None).contains(&1_000_900), "{text}");
        let json = format!(r#"{{"a":"{}"}}"#, text.replace('"', "\\\""));
        let found = ids(&ruleset, "/", Some(("application/json", &json)));
        assert!(!found.contains(&1_000_900), "{text}: {found:?}");
    }
    for text in [
        "1 and (select password from users limit 1)='x'",
        "(select pass from users)",
        "1;select pass,name from users",
        "select name, pass from users",
        "select * from users",
        "select distinct u.name, u.pass from users u",
        "select count(*) from users",
        "select max(pass) from users",
        "select(pass)from(users)",
        "select pass from users where id=1",
        "select pass from users where name like 'a%25'",
        "select`pass`from`users`",
        "select concat(name,0x3a,pass) from users",
        "select pass from users order by 1",
        "select pass from users-- -",
        "select pass from users where name is not null",
        "select a from (select 1)x",
        "1;select pass from users",
        "1;select(1)",
        "1; drop table users",
        "1 group by name having 1=1",
    ] {
        let target = format!("/?q={}", text.replace(' ', "+").replace(';', "%3B").replace('#', "%23"));
        assert!(ids(&ruleset, &target, None).contains(&1_000_900), "{text} passes");
    }
}

#[test]
fn the_aggressive_profile_sees_more() {
    let target = "/?q=select+name+from+users";
    assert!(ids(&rules(Profile::Aggressive), "/?q=%3Cb%3Ebold%3C/b%3E", None).contains(&1_000_900));
    assert!(!ids(&rules(Profile::Balanced), "/?q=%3Cb%3Ebold%3C/b%3E", None).contains(&1_000_900));
    assert!(ids(&rules(Profile::Aggressive), target, None).contains(&1_001_001));
}

#[test]
fn a_folder_is_put_in_order() {
    let file = |name: &str| (name.to_owned(), Vec::new());
    let sources = from_files(vec![
        file("rules/REQUEST-942.conf"),
        file("plugins/x-after.conf"),
        file("crs-setup.conf.example"),
        file("rules/REQUEST-901.conf"),
        file("plugins/x-before.conf"),
        file("plugins/x-config.conf"),
        file("rules/list.data"),
        file("README.md"),
        file("rules/REQUEST-900-EXCLUSION.conf.example"),
    ]);
    let names: Vec<&str> = sources.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "crs-setup.conf.example",
            "plugins/x-config.conf",
            "plugins/x-before.conf",
            "rules/REQUEST-901.conf",
            "rules/REQUEST-942.conf",
            "plugins/x-after.conf"
        ]
    );
    assert!(sources.data.contains_key("list.data") && sources.variables.is_empty());
}
