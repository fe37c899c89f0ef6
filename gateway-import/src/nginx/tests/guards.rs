//! What keeps requests out: nothing of it opens, and what can't be said closes.

use serde_json::{Value, json};

use super::{Memory, import};
use crate::{Conversion, Import};

/// What is made of a server with these directives.
fn server(directives: &str) -> Import {
    let users = "ann:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n".to_owned();
    let files = Memory([("/etc/nginx/users".to_owned(), users)].into());
    let text = format!("http {{ server {{ listen 80;\n{directives} }} }}");
    import(&text, &files).unwrap_or_else(|error| panic!("{directives}: {error}"))
}

/// The configs of a plugin.
fn plugins<'i>(made: &'i Import, name: &str) -> Vec<&'i Value> {
    made.plugin_configs.iter().filter(|it| it["plugin_name"] == name).collect()
}

/// Whether nothing is passed on, and the report says why.
fn is_closed(made: &Import, why: &str) -> bool {
    made.proxies.iter().all(|proxy| proxy["backend_port"] == 9)
        && made.report.losses().any(|one| one.outcome == Conversion::Closed && one.to_string().contains(why))
}

#[test]
fn an_address_that_no_rule_names_is_asked_for_a_password() {
    let ask = "auth_basic x; auth_basic_user_file users; location / { proxy_pass http://10.0.0.1:1; }";
    let one = |network: &str| json!({ "clients": [network] });
    for (rules, asked) in [
        ("deny 10.0.0.1;", Some(None)),
        ("", Some(None)),
        ("deny all;", Some(None)),
        ("allow 127.0.0.1;", Some(Some(json!({ "not": one("127.0.0.1") })))),
        ("allow 127.0.0.1; deny all;", Some(Some(json!({ "not": one("127.0.0.1") })))),
        (
            "deny 10.0.0.1; allow 10.0.0.0/8;",
            Some(Some(json!({ "any": [one("10.0.0.1"), { "not": one("10.0.0.0/8") }] }))),
        ),
        ("allow all;", None),
    ] {
        let made = server(&format!("satisfy any; {rules} {ask}"));
        let found = plugins(&made, "basic_auth").first().map(|it| it.get("when").cloned());
        assert_eq!(found, asked, "{rules}");
        assert!(
            plugins(&made, "request_termination").is_empty(),
            "{rules}: nobody is refused by address alone"
        );
    }
    // Without a question, addresses decide as ever.
    let made = server("satisfy any; deny 10.0.0.1; location / { proxy_pass http://10.0.0.1:1; }");
    assert_eq!(made.proxies.len(), 2);
    assert!(made.proxies[0]["matches"].to_string().contains("10.0.0.1"));
    let limited = ask.replace("proxy_pass", "limit_except GET { allow 10.1.0.0/16; } proxy_pass");
    assert!(is_closed(&server(&format!("satisfy any; allow 10.0.0.0/8; {limited}")), "limit_except"));
}
