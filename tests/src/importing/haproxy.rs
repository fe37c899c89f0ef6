//! Configurations of HAProxy as people run them, with names of our own.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

const HEAD: &str = "global\n  maxconn 100\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 10s\n  timeout server 10s\n  option forwardfor\n";

async fn run(config: &str, case: Case<'_>) {
    let config = format!("{HEAD}{config}");
    compare(Case { format: Format::Haproxy, config: &config, ..case }).await;
}

#[tokio::test]
async fn backends_by_host_and_path() {
    run(
        r"
frontend web
  bind 127.0.0.1:@PORT@
  acl is_api hdr(host) -i api.test
  acl is_static path_beg /static /img
  acl is_picture path_end -i .png .jpg
  acl is_admin path_beg /admin
  acl is_put method PUT DELETE
  http-request deny if is_admin !is_api
  http-request deny deny_status 405 if is_put is_static
  use_backend api if is_api
  use_backend files if is_static or is_picture
  default_backend web
backend web
  balance leastconn
  server w1 @A@ check inter 60s
backend api
  http-request set-header X-Api yes
  server a1 @B@
backend files
  server f1 @C@ weight 10
",
        Case {
            hosts: &["api.test", "API.test", "www.test"],
            paths: &[
                "/",
                "/static",
                "/staticx",
                "/static/a",
                "/img/a",
                "/x.PNG",
                "/x.png?y",
                "/admin",
                "/admin/x",
                "/administrator",
                "/a/admin",
            ],
            methods: &["GET", "PUT", "DELETE", "POST"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn redirects_and_answers() {
    run(
        r#"
frontend web
  bind 127.0.0.1:@PORT@
  monitor-uri /up
  http-request redirect location https://new.test%[path] code 301 if { hdr(host) -i old.test }
  http-request redirect prefix https://secure.test code 302 if { path_beg /login }
  http-request return status 200 content-type text/plain string "ok" if { path /health }
  http-request deny deny_status 404 if { path_reg ^/internal/[0-9]+$ }
  redirect location /home code 303 if { path / }
  default_backend web
backend web
  server w1 @A@
"#,
        Case {
            hosts: &["old.test", "new.test"],
            paths: &[
                "/",
                "/up",
                "/login",
                "/login/x?y=1",
                "/health",
                "/healthx",
                "/internal/12",
                "/internal/x",
                "/x?y",
            ],
            methods: &["GET", "POST"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn guards_by_address_password_and_header() {
    run(
        r#"
userlist staff
  group admins users ann
  user ann insecure-password secret
  user bob insecure-password builder
frontend web
  bind 127.0.0.1:@PORT@
  acl office src 10.0.0.0/8
  acl here src 127.0.0.0/8
  acl key hdr(x-key) sesame
  acl bots hdr_sub(user-agent) -i badbot
  acl staff http_auth(staff)
  acl admins http_auth_group(staff) admins
  http-request deny if { path_beg /office } !office
  http-request deny if { path_beg /here } !here
  http-request deny deny_status 401 if { path_beg /key } !key
  http-request deny if bots
  http-request auth realm Staff if { path_beg /staff } !staff
  http-request auth realm Admins if { path_beg /admins } !admins
  http-request deny unless METH_GET or METH_POST
  default_backend web
backend web
  server w1 @A@
"#,
        Case {
            paths: &["/", "/office/x", "/here/x", "/key/x", "/staff/x", "/admins/x"],
            methods: &["GET", "POST", "PUT", "HEAD"],
            fields: &[
                "",
                "x-key: sesame",
                "x-key: other, sesame",
                "user-agent: xBadBotx",
                "authorization: Basic YW5uOnNlY3JldA==",
                "authorization: Basic Ym9iOmJ1aWxkZXI=",
                "authorization: Basic YW5uOndyb25n",
            ],
            // Somebody known who is not in the group gets 403 here, and is asked again there.
            known: &[
                ("/admins/x authorization: Basic Ym9i", "own answers"),
                ("PUT a.test/staff/x", "go before the question"),
                ("PUT a.test/admins/x", "go before the question"),
            ],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn rewrites_and_headers() {
    run(
        r"
frontend web
  bind 127.0.0.1:@PORT@
  http-request set-header X-Client-Path %[path]
  http-request del-header X-Gone
  http-request add-header X-More more if { hdr(x-want) yes }
  use_backend strip if { path_beg /strip/ }
  use_backend regex if { path_beg /shop/ }
  use_backend by_query if { url_param(v) 2 }
  use_backend by_cookie if { cook(group) test }
  default_backend web
backend web
  server w1 @A@
backend strip
  http-request replace-path /strip/(.*) /\1
  server s1 @B@
backend regex
  http-request replace-path ^/shop/([a-z]+)/(.*)$ /\2/\1
  server r1 @C@
backend by_query
  http-request set-path /v2%[path]
  server q1 @D@
backend by_cookie
  http-request set-header Host inner.test
  server c1 @D@
",
        Case {
            paths: &["/", "/x?v=2", "/x?v=1", "/strip/a/b", "/strip/", "/shop/cart/7?x=1", "/shop/7"],
            methods: &["GET", "POST"],
            fields: &["", "x-gone: here", "x-want: yes", "x-client-path: forged", "cookie: group=test"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn what_is_not_known_is_closed() {
    run(
        r#"
listen app
  bind 127.0.0.1:@PORT@
  acl odd path_len 5
  acl listed hdr(host) -f @DIR@/hosts
  http-request set-var(txn.x) str(y)
  http-request deny if !listed
  http-request deny if { path_beg /odd } odd
  server a1 @A@
  errorfile 503 @DIR@/503.http
"#,
        Case {
            hosts: &["listed.test", "other.test", "third.test"],
            paths: &["/", "/x", "/y", "/odd/x"],
            methods: &["GET"],
            known: &[("", "path_beg /odd } odd")],
            files: &[("hosts", "listed.test\n# nobody\n"), ("503.http", "HTTP/1.0 503 No\r\n\r\n")],
            ..Case::default()
        },
    )
    .await;
}

/// Frontends have ports of their own.
#[tokio::test]
async fn several_ports() {
    compare(Case {
        format: Format::Haproxy,
        config: r#"
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend public
  bind 127.0.0.1:@PORT@
  acl is_admin path_beg /admin
  http-request deny if is_admin
  use_backend a if { hdr(host) -i a.test }
  default_backend b
frontend internal
  bind 127.0.0.1:@PORT2@
  use_backend c if { hdr(host) -i c.test }
  default_backend d
backend a
  server one @A@
backend b
  server one @B@
backend c
  server one @C@
backend d
  server one @D@
"#,
        hosts: &["a.test", "c.test", "x.test"],
        paths: &["/", "/admin/x"],
        ..Case::default()
    })
    .await;
}

/// What conditions ask is asked of the request as the rules before left it, also those of a frontend for its backends.
#[tokio::test]
async fn guards_behind_changes() {
    run(
        r#"
frontend web
  bind 127.0.0.1:@PORT@
  acl is_admin path_beg /admin
  http-request del-header X-Internal
  http-request set-header X-Role guest
  http-request set-path /admin/x if { path_beg /pub }
  http-request set-path /admin%[path] if { path_beg /x }
  http-request set-header Host internal.test if { hdr(host) in.test }
  http-request deny deny_status 404 if is_admin { hdr(host) direct.test }
  use_backend inner if { req.hdr(X-Internal) -m found }
  use_backend role if { path_beg /role }
  use_backend guests if { path_beg /guests }
  default_backend web
backend web
  http-request deny if { path_beg /admin }
  http-request deny deny_status 405 if { hdr(host) internal.test }
  server w1 @A@
backend inner
  server i1 @B@
backend role
  http-request deny unless { req.hdr(X-Role) admin }
  server r1 @C@
backend guests
  http-request deny unless { req.hdr(X-Role) -m sub -i GUE }
  server g1 @D@
"#,
        Case {
            hosts: &["in.test", "internal.test", "direct.test", "b.test"],
            paths: &["/", "/pub", "/admin", "/role", "/guests", "/x"],
            fields: &["", "x-internal: 1", "x-role: admin"],
            ..Case::default()
        },
    )
    .await;
}

/// HAProxy looks at all values of one name.
#[tokio::test]
async fn several_values() {
    run(
        r#"
frontend web
  bind 127.0.0.1:@PORT@
  acl debug urlp(debug) 1
  acl nosy req.cook(adm) -m found
  acl key cook(key) -i sesame
  acl line req.fhdr(x-line) one
  acl last req.hdr(x-ip,-1) 10.0.0.1
  acl first hdr(x-ip,1) 10.0.0.2
  acl evil hdr(user-agent) -m sub -i curlbad
  http-request deny if debug
  http-request deny deny_status 404 if nosy
  http-request deny deny_status 405 if key
  http-request deny deny_status 410 if line
  http-request deny deny_status 429 if evil
  http-request deny deny_status 401 if { path /last } !last
  http-request deny deny_status 404 if { path /first } !first
  default_backend web
backend web
  server w1 @A@
"#,
        Case {
            paths: &[
                "/",
                "/?debug=1",
                "/?debug=2&debug=1",
                "/?a;debug=1",
                "/?debug=11",
                "/?xdebug=1",
                "/?debug=%31",
                "/last",
                "/first",
            ],
            fields: &[
                "",
                "cookie: x=1, adm=2",
                "cookie: x=1; adm=2",
                "cookie: xadm=2; key=a; key=SESAME",
                "cookie: key=sesames",
                "x-line: two\r\nx-line: one",
                "x-line: two\r\nx-line: ones",
                "x-ip: 10.0.0.1, 10.0.0.2",
                "x-ip: 10.0.0.2\r\nx-ip: 10.0.0.1",
                "user-agent: a CurlBad\u{ff}",
            ],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn guards_behind_changes_that_are_not_known_are_closed() {
    run(
        r#"
frontend web
  bind 127.0.0.1:@PORT@
  use_backend a if { hdr(host) a.test }
  use_backend b if { hdr(host) b.test }
  default_backend c
backend a
  http-request replace-path /foo/(.*) /admin/\1
  http-request deny if { path_beg /admin }
  server a1 @A@
backend b
  http-request set-header X-Role %[hdr(x-want)]
  http-request deny if { req.hdr(x-role) guest }
  server b1 @B@
backend c
  server c1 @C@
"#,
        Case {
            hosts: &["a.test", "b.test", "c.test", "d.test", "e.test"],
            paths: &["/", "/foo/x", "/admin"],
            fields: &["", "x-want: guest"],
            known: &[("a.test", "path_beg /admin"), ("b.test", "req.hdr(x-role) guest")],
            ..Case::default()
        },
    )
    .await;
}

/// Rules of `defaults` that a section names hold for it, too.
#[tokio::test]
async fn rules_of_defaults() {
    let times = "  mode http\n  timeout connect 2s\n  timeout client 10s\n  timeout server 10s\n";
    let config = format!(
        r#"
defaults base
{times}
  http-request deny deny_status 404 if {{ path /x }}
  http-request set-header X-Base 1
defaults more
{times}
  http-request deny deny_status 405 if {{ path /z }}
defaults others
{times}
  http-request deny if {{ path /w }}
frontend web from base
  bind 127.0.0.1:@PORT@
  http-request deny if {{ path /y }}
  use_backend a if {{ hdr(x-base) 1 }} {{ path /a /z }}
  default_backend b
backend a from more
  server s @A@
backend b from others
  server s @B@
"#
    );
    compare(Case {
        format: Format::Haproxy,
        config: &config,
        paths: &["/", "/a", "/x", "/y", "/z", "/w"],
        ..Case::default()
    })
    .await;
}
