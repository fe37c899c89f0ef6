//! Rules of HAProxy whose order and comparisons matter.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

const HEAD: &str =
    "defaults\n  mode http\n  timeout connect 2s\n  timeout client 10s\n  timeout server 10s\n";

async fn run(config: &str, case: Case<'_>) {
    let config = format!("{HEAD}{config}");
    compare(Case { format: Format::Haproxy, config: &config, ..case }).await;
}

/// What a converter makes is compared as a whole, whatever the fetch is called.
#[tokio::test]
async fn converters_behind_prefixes() {
    run(
        "frontend main
  bind 127.0.0.1:@PORT@
  acl api path_beg,lower /api
  acl begins path,lower -m beg /v2
  acl ends path_end,lower .php
  use_backend api if api
  use_backend other if begins
  http-request deny if ends
  default_backend web
backend web
  server w @A@
backend api
  server a @B@
backend other
  server o @C@
",
        Case {
            paths: &["/api", "/API", "/api/x", "/v2", "/V2/x", "/x.php", "/.php", ".php"],
            ..Case::default()
        },
    )
    .await;
}

/// Redirects to a prefix: with a slash where it is missing, and by the path that was sent.
#[tokio::test]
async fn redirects_to_prefixes() {
    run(
        "frontend main
  bind 127.0.0.1:@PORT@
  http-request redirect prefix https://q.test drop-query append-slash if { path_beg /a }
  http-request redirect prefix https://q.test append-slash if { path_beg /keep }
  http-request set-path /v2%[path] if { path_beg /b }
  http-request redirect prefix https://r.test if { path_beg /v2 }
  http-request set-pathq /pq?z=1 if { path_beg /pq }
  http-request del-header Connection
  http-request set-header Connection close if { path_beg /x }
  http-response del-header Transfer-Encoding
  default_backend web
backend web
  server w @A@
",
        Case {
            paths: &["/a/x", "/a/x/", "/a/x?q=1", "/keep?q", "/b/x", "/v2/x", "/pq?q=1", "/pq", "/x", "/y"],
            known: &[
                ("a.test/keep?q", "`append-slash` without `drop-query`"),
                ("a.test/b/x", "rules before it change what its text names"),
                ("a.test/pq?q=1", "the query of the request stays"),
            ],
            ..Case::default()
        },
    )
    .await;
}

/// The header `Host` is compared as it was sent, unless its port is cut off.
#[tokio::test]
async fn hosts_with_ports() {
    run(
        "frontend main
  bind 127.0.0.1:@PORT@
  acl local req.hdr(host),host_only -i local.test
  http-request deny unless { hdr(host) -i a.test } or { hdr_dom(host) -i b.test } or local
  http-request set-header Host c.test:81 if { path /c }
  http-request deny deny_status 404 if { hdr(host) c.test:81 }
  use_backend exact if { hdr(host) a.test }
  use_backend beg if { hdr_beg(host) -i www. }
  default_backend web
backend web
  server w @A@
backend exact
  server e @B@
backend beg
  server b @C@
",
        Case {
            hosts: &[
                "a.test",
                "A.test",
                "a.test:8080",
                "a.test.",
                "b.test:80",
                "www.b.test",
                "local.test:1",
                "x.test",
            ],
            paths: &["/", "/c", "/x"],
            ..Case::default()
        },
    )
    .await;
}

/// Of a path nothing may be left, which has to be named; what a log would have kept is not known here.
#[tokio::test]
async fn paths_to_nothing() {
    let config = r#"
frontend main
  bind 127.0.0.1:@PORT@
  http-request return status 200 content-type text/plain string hi hdr X-Own 1 hdr X-Path %[path] if { path /own }
  http-request replace-path ^/api(/.*)?$ \1
  http-response set-header X-Uri %[capture.req.uri]
  default_backend web
backend web
  server s1 @A@
"#;
    let case = Case {
        paths: &["/own", "/api", "/api/", "/api/x", "/x"],
        known: &[
            ("/api ", "a path that it leaves nothing of"),
            ("/", "HAProxy knows it only where requests are logged or captured"),
        ],
        ..Case::default()
    };
    run(config, case).await;
}

/// Where there is nothing to look for, a map's default does not hold; cookies are on redirects.
#[tokio::test]
async fn defaults_of_maps_and_cookies_of_redirects() {
    let config = r#"
frontend main
  bind 127.0.0.1:@PORT@
  redirect location /a set-cookie seen=1 if { path /set }
  redirect location /b clear-cookie seen if { path /clear }
  http-request deny if { method -i post } { path / }
  http-request deny if { path /after }
  http-after-response set-header X-After all
  http-after-response set-header X-Last after
  http-response set-header X-Last before
  http-response set-header X-Twice one
  http-response set-header X-Twice two
  use_backend %[req.hdr(x-role),map_str(@DIR@/roles.map,other)] if { path_beg /roles }
  use_backend %[path,map_beg(@DIR@/paths.map,other)] if { path_beg /paths }
  use_backend %[req.hdr(x-role),map_str(@DIR@/roles.map)] if { path_beg /none }
  default_backend web
backend web
  http-request deny if { method POST }
  http-response set-header X-Twice backend
  http-response set-header X-Own one
  http-response set-header X-Own two
  server s1 @A@
backend staff
  server s1 @B@
backend other
  server s1 @C@
"#;
    let case = Case {
        paths: &["/after", "/set", "/clear", "/roles", "/paths", "/paths/x", "/none", "/"],
        methods: &["GET", "POST"],
        fields: &["", "x-role: admin", "x-role: guest"],
        known: &[("/", "`http-response` rules hold for redirects")],
        files: &[("roles.map", "admin staff\n"), ("paths.map", "/paths/x staff\n")],
        ..Case::default()
    };
    run(config, case).await;
}

/// Variables within double quotes, of those that `global` sets.
#[tokio::test]
async fn variables_of_the_environment() {
    let config = "global
  setenv D /x
  setenv L \"/p1 /p2\"
defaults
  mode http
  timeout connect 2s
  timeout client 10s
  timeout server 10s
frontend main
  bind 127.0.0.1:@PORT@
  http-request deny if { path_beg \"${D}\" }
  http-request deny if { path_beg \"${L[*]}\" }
  http-request set-header X-D \"$D|\\$D\"
  http-request set-header X-S '$D'
  default_backend web
backend web
  server w @A@
";
    let paths = &["/x", "/$D", "/$%7BD%7D", "/p1", "/p2", "/p3"];
    compare(Case { format: Format::Haproxy, config, paths, ..Case::default() }).await;
}

/// A cookie without a value is not always found.
#[tokio::test]
async fn cookies_without_a_value() {
    run(
        "frontend main
  bind 127.0.0.1:@PORT@
  http-request deny unless { cook(s) -m found }
  default_backend web
backend web
  server w @A@
",
        Case {
            fields: &[
                "cookie: s=",
                "cookie: s=1",
                "cookie: s=;",
                "cookie: a=1;s=",
                "cookie: a=1; s=",
                "cookie: s=; a=b",
                "cookie: s=,a=b",
                "cookie: s =",
                "cookie: s=\"\"",
            ],
            ..Case::default()
        },
    )
    .await;
}

/// Redirects to what a map names: of paths, hosts and both, with a default and without, few entries and many.
#[tokio::test]
async fn redirects_by_maps() {
    let many: String = (0..30).map(|n| format!("/many/{n} /new/{n}?from=$map\n")).collect();
    run(
        "frontend main
  bind 127.0.0.1:@PORT@
  acl is_many path,map(@DIR@/many.map) -m found
  http-request deny if { path /many/13 }
  http-request redirect code 301 location %[path,map(@DIR@/few.map)] if { path,map(@DIR@/few.map) -m found }
  http-request redirect location https://n.test%[path,map_str(@DIR@/many.map)] code 308 if is_many { method GET }
  http-request redirect prefix https://%[req.hdr(host),lower,map(@DIR@/hosts.map)] if { req.hdr(host),lower,map(@DIR@/hosts.map) -m found }
  http-request redirect prefix https://%[req.hdr(host),map_end(@DIR@/ends.map,other.test)] drop-query if { path_beg /moved }
  http-request redirect location https://b.test/%[base,map_beg(@DIR@/bases.map)] if { path_beg /base }
  default_backend web
backend web
  server w @A@
",
        Case {
            hosts: &["a.test", "OLD.test", "x.end"],
            paths: &[
                "/",
                "/a",
                "/a?q=1",
                "/A",
                "/a/",
                "/b",
                "/many/3",
                "/many/13",
                "/many/29?q=1",
                "/many/30",
                "/moved/x?q=1",
                "/base/x",
                "/base/one/x",
                "/base",
            ],
            methods: &["GET", "POST"],
            files: &[
                ("few.map", "# old new\n/a https://c.test/a\n/b /c\n"),
                ("many.map", &many),
                ("hosts.map", "old.test new.test\n"),
                ("ends.map", ".end end.test\n"),
                ("bases.map", "a.test/base/one one\nx.end/base two\n"),
            ],
            ..Case::default()
        },
    )
    .await;
}
