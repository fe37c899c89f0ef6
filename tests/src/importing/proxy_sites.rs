//! HAProxy and Caddy before applications, with maps, tables, snippets and placeholders: one row for each, beside the original.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

const HAPROXY: &str = "defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
";

/// Runs a configuration of HAProxy.
async fn haproxy(text: &str, case: Case<'_>) {
    let config = format!("{HAPROXY}{text}");
    compare(Case { format: Format::Haproxy, config: &config, ..case }).await;
}

/// Runs a Caddyfile.
async fn caddy(text: &str, case: Case<'_>) {
    compare(Case { format: Format::Caddyfile, config: text, ..case }).await;
}

const SITES: &[&str] = &["a.test", "b.test", "www.c.test", "d.test"];

#[tokio::test]
async fn backends_by_maps_of_hosts_and_paths() {
    haproxy(
        "frontend main
    bind 127.0.0.1:@PORT@
    use_backend %[path,map_beg(@DIR@/paths.map)] if { path,map_beg(@DIR@/paths.map) -m found }
    use_backend %[req.hdr(host),field(1,:),lower,map(@DIR@/hosts.map,none)]
backend one
    server one @A@
backend two
    server two @B@
backend api
    http-request set-header X-Api yes
    server three @C@
backend none
    http-request return status 404 content-type text/plain string \"none\\n\"
",
        Case {
            hosts: SITES,
            paths: &["/", "/api/x", "/apiary", "/img/a.png"],
            files: &[("hosts.map", "a.test one\nb.test two\n"), ("paths.map", "/api api\n/img two\n")],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn limits_by_a_stick_table() {
    haproxy(
        "frontend main
    bind 127.0.0.1:@PORT@
    stick-table type ip size 100k expire 30s store http_req_rate(10s)
    http-request track-sc0 src
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000 }
    acl login path_beg /login
    http-request deny deny_status 405 if login !{ method GET POST }
    http-request set-header X-Client %[src]
    default_backend one
backend one
    balance leastconn
    stick-table type ip size 10k expire 30m
    stick on src
    server one @A@
",
        Case { paths: &["/", "/login", "/x?y"], methods: &["GET", "POST", "PUT"], ..Case::default() },
    )
    .await;
}

#[tokio::test]
async fn redirects_of_a_frontend() {
    haproxy(
        "frontend main
    bind 127.0.0.1:@PORT@
    http-request redirect location https://%[hdr(host)]%[capture.req.uri] code 301 if { hdr(host) -i a.test }
    http-request redirect prefix https://www.b.test code 301 if { hdr(host) -i b.test }
    redirect scheme https code 308 if !{ ssl_fc } { hdr(host) -i d.test }
    http-request redirect location https://%[hdr(host),field(1,:)]:8443%[path]?%[query] if { path_beg /q }
    http-request redirect location https://%[base] if { path /base }
    http-request redirect location /login?to=x drop-query if { path /need }
    http-request redirect location %HU/ code 302 if { path /slash }
    default_backend one
backend one
    server one @A@
",
        Case {
            hosts: SITES,
            paths: &["/", "/x?y=z", "/q/a?b=c", "/base", "/need?x", "/slash"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn pages_of_backends() {
    haproxy(
        "frontend main
    bind 127.0.0.1:@PORT@
    http-error status 403 content-type text/plain string \"front\"
    http-request deny if { path /front }
    use_backend dead if { path_beg /dead }
    default_backend one
backend one
    http-error status 403 content-type text/plain string \"back\"
    http-request allow if { path /no/free }
    http-request deny if { path_beg /no }
    server one @A@
backend dead
    errorfile 503 @DIR@/503.http
    server gone @DEAD@
",
        Case {
            paths: &["/", "/front", "/no/x", "/no/free", "/dead/x"],
            files: &[(
                "503.http",
                "HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/html\r\n\r\n<p>later</p>",
            )],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn access_lists_and_rewritten_paths() {
    haproxy(
        "userlist ops
    user ada insecure-password secret
frontend main
    bind 127.0.0.1:@PORT@
    option forwardfor
    acl is_ops path_beg /ops
    acl blocked path -f @DIR@/blocked.lst
    acl agents hdr_reg(user-agent) -i ^(curl|wget)/
    http-request auth realm ops if is_ops !{ http_auth(ops) }
    http-request deny if blocked
    http-request deny deny_status 400 if agents { path_beg /api }
    http-request set-header X-Path %[path]
    http-response del-header server
    http-response set-header X-Served yes
    use_backend two if { hdr_end(host) -i .c.test } || { url_param(to) two }
    default_backend one
backend one
    http-request replace-path /v1/(.*) /\\1
    server one @A@
backend two
    server two @B@
",
        Case {
            hosts: SITES,
            paths: &["/", "/ops/x", "/secret", "/api/x", "/v1/x?y", "/x?to=two"],
            fields: &["", "user-agent: curl/8", "authorization: Basic YWRhOnNlY3JldA=="],
            files: &[("blocked.lst", "/secret\n/hidden\n")],
            known: &[("", "`http-response` rules hold for redirects and other answers")],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn errors_of_caddy_get_pages() {
    caddy(
        "http://a.test:@PORT@ {
	root * @DIR@/www
	handle_errors {
		rewrite * /{err.status_code}.html
		file_server
	}
	file_server
}
http://b.test:@PORT@ {
	root * @DIR@/www
	handle_errors {
		rewrite * /gone
		reverse_proxy @A@
	}
	file_server
}
http://www.c.test:@PORT@ {
	root * @DIR@/www
	handle_errors {
		@missing expression `{err.status_code} == 404`
		handle @missing {
			respond \"nothing at {path}\" 404
		}
		respond \"error {err.status_code}\"
	}
	file_server
}
http://d.test:@PORT@ {
	root * @DIR@/www
	handle_errors {
		redir * /index.html
	}
	file_server
}
",
        Case {
            hosts: SITES,
            paths: &["/", "/none", "/index.html"],
            known: &[("b.test", "the status is that of the error")],
            files: &[("www/index.html", "index"), ("www/404.html", "gone")],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn snippets_with_arguments_and_placeholders() {
    caddy(
        "(common) {
	encode gzip
	header {
		X-Content-Type-Options nosniff
		X-Host {host}
		-Server
	}
	@secret path *.env /.git/*
	respond @secret 404
}
(to) {
	import common
	reverse_proxy {args.0} {
		header_up X-Real-IP {remote_host}
		header_up X-Original-URI {uri}
	}
}
http://a.test:@PORT@, http://b.test:@PORT@ {
	@old path /old/*
	redir @old /new{uri} permanent
	@post method POST
	handle @post {
		reverse_proxy @B@
	}
	import to @A@
}
http://www.c.test:@PORT@ {
	redir https://c.test{uri} 308
}
http://d.test:@PORT@ {
	import common
	handle_path /api/* {
		reverse_proxy @C@
	}
	@lang query lang=de
	rewrite @lang /de{path}
	uri strip_prefix /v1
	reverse_proxy @D@
}
",
        Case {
            hosts: SITES,
            paths: &["/", "/old/x?y", "/x.env", "/.git/config", "/api/x?y", "/v1/x", "/page?lang=de"],
            methods: &["GET", "POST"],
            known: &[("d.test", "header")],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn an_application_of_one_page_with_its_api() {
    caddy(
        "http://a.test:@PORT@ {
	root * @DIR@/www
	@static path *.css *.js
	header @static Cache-Control \"public, max-age=3600\"
	handle /api/* {
		reverse_proxy @A@
	}
	handle {
		try_files {path} /index.html
		file_server
	}
}
http://b.test:@PORT@ {
	root * @DIR@/www
	try_files {path}.html {path}
	file_server
}
http://d.test:@PORT@ {
	@inside remote_ip 10.0.0.0/8
	@outside not remote_ip 10.0.0.0/8
	respond @outside \"closed\" 403
	reverse_proxy @inside @A@
}
",
        Case {
            hosts: &["a.test", "b.test", "d.test"],
            paths: &["/", "/index.html", "/page", "/a.css", "/none", "/none.js", "/api/x"],
            files: &[("www/index.html", "index"), ("www/page.html", "page"), ("www/a.css", "css")],
            ..Case::default()
        },
    )
    .await;
}
