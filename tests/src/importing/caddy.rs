//! Caddyfiles as people run them, with names of our own.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

const HEAD: &str = "{\n\tadmin off\n\tauto_https off\n\thttp_port @PORT@\n}\n";

async fn run(config: &str, case: Case<'_>) {
    let config = format!("{HEAD}{config}");
    compare(Case { format: Format::Caddyfile, config: &config, ..case }).await;
}

#[tokio::test]
async fn sites_with_handles() {
    run(
        "http://shop.test:@PORT@, http://www.shop.test:@PORT@ {
	handle /api/* {
		reverse_proxy @B@
	}
	handle_path /files/* {
		reverse_proxy @C@
	}
	handle /health {
		respond \"ok\" 200
	}
	handle {
		reverse_proxy @A@
	}
}
http://*.tenants.test:@PORT@ {
	reverse_proxy @D@
}
http://closed.test:@PORT@ {
	respond 403
}
",
        Case {
            hosts: &["shop.test", "www.shop.test", "one.tenants.test", "closed.test"],
            paths: &[
                "/",
                "/api",
                "/api/x",
                "/API/x",
                "/files/a/b?c",
                "/files/",
                "/files",
                "/Files/x",
                "/health",
                "/healthx",
                "/x",
            ],
            methods: &["GET", "POST", "DELETE"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn matchers_and_their_order() {
    run(
        "http://a.test:@PORT@ {
	@post method POST
	@v2 header X-Version v2*
	@beta {
		path /beta/*
		header Cookie *beta=1*
	}
	@ids path_regexp ^/items/[0-9]+$
	@admin {
		path /admin/*
		not remote_ip 10.0.0.0/8
	}
	@here remote_ip 127.0.0.1
	respond @admin 403
	respond @ids \"item\" 200
	redir /old/* /new 301
	redir /moved https://b.test{uri} permanent
	reverse_proxy @post @B@
	reverse_proxy @v2 @C@
	reverse_proxy @beta @D@
	reverse_proxy /here* @A@
	respond /here/long \"no\" 404
	reverse_proxy @A@
}
",
        Case {
            hosts: &["a.test"],
            paths: &[
                "/",
                "/admin/x",
                "/Admin/x",
                "/admin",
                "/items/7",
                "/items/x",
                "/old/x",
                "/old",
                "/moved",
                "/moved/x",
                "/beta/x",
                "/here",
                "/here/long",
                "/hereafter",
            ],
            methods: &["GET", "POST"],
            fields: &["", "x-version: v2.1", "cookie: a=1; beta=1"],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn passwords_and_other_servers() {
    run(
        "(headers) {
	header_up X-Team {args.0}
	header_up -X-Gone
}
http://a.test:@PORT@ {
	basicauth /secret/* {
		ann $2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW
	}
	forward_auth /asked/* @D@ {
		uri /verify
		copy_headers X-Origin
	}
	reverse_proxy @A@ {
		import headers blue
		header_up Host inner.test
	}
}
",
        Case {
            hosts: &["a.test"],
            paths: &["/", "/secret/x", "/SECRET/x", "/secret", "/asked/x"],
            methods: &["GET", "POST"],
            fields: &[
                "",
                "x-gone: here",
                "authorization: Basic YW5uOndyb25n",
                "authorization: Basic YW5uOnNlY3JldA==",
            ],
            ..Case::default()
        },
    )
    .await;
}

#[tokio::test]
async fn rewrites_and_routes() {
    run(
        "http://a.test:@PORT@ {
	route /strip/* {
		uri strip_prefix /strip
		reverse_proxy @B@
	}
	route /fixed/* {
		rewrite * /always{path}
		reverse_proxy @C@
	}
	route {
		request_header X-Added yes
		request_header -X-Gone
		respond /stop 410
		reverse_proxy @A@
	}
}
",
        Case {
            hosts: &["a.test"],
            paths: &["/", "/strip/a/b?c=d", "/strip/", "/fixed/x?y", "/stop", "/stop/x", "/x"],
            methods: &["GET", "POST"],
            fields: &["", "x-gone: here", "x-added: no"],
            ..Case::default()
        },
    )
    .await;
}

/// Files that are there, hidden, missing, and without their ending.
const FILE_PATHS: &[&str] = &[
    "/",
    "/index.html",
    "/a.txt",
    "/a",
    "/.git/config",
    "/x.bak",
    "/sub/.git",
    "/gitx",
    "/.gitx",
    "/none",
    "/odd/x",
];

#[tokio::test]
async fn files_and_balancing() {
    run(
        "http://files.test:@PORT@ {
	root * @DIR@/www
	file_server
}
http://app.test:@PORT@ {
	root * @DIR@/www
	try_files {path} /index.html
	file_server
}
http://below.test:@PORT@ {
	root * @DIR@
	try_files /www{path} /www{path}.txt
	file_server
}
http://hidden.test:@PORT@ {
	root * @DIR@/www
	try_files {path} =404
	file_server {
		hide .git secret* a.txt
	}
}
http://many.test:@PORT@ {
	reverse_proxy @A@ {
		lb_policy round_robin
		health_uri /up
		health_interval 60s
		fail_duration 10s
	}
}
http://unknown.test:@PORT@ {
	@odd expression `{http.request.uri.path}.startsWith(\"/odd\")`
	respond @odd 403
	reverse_proxy @A@
}
",
        Case {
            hosts: &["files.test", "app.test", "below.test", "hidden.test", "many.test", "unknown.test"],
            paths: FILE_PATHS,
            methods: &["GET"],
            known: &[
                ("unknown.test", "@odd"),
                ("files.test/index.html", "own answers"),
                ("app.test/index.html", "own answers"),
                ("below.test/index.html", "own answers"),
                ("hidden.test/index.html", "own answers"),
            ],
            files: &[
                ("www/index.html", "index"),
                ("www/a.txt", "a"),
                ("www/.git/a.txt", "hidden"),
                ("www/secret-x.txt", "hidden"),
                ("www/gitx.txt", "shown"),
                ("www/.gitx.txt", "shown"),
            ],
            ..Case::default()
        },
    )
    .await;
}

/// Sites are chosen by port before they are by name.
#[tokio::test]
async fn several_ports() {
    compare(Case {
        format: Format::Caddyfile,
        config: r#"
{
	admin off
	auto_https off
}
http://a.test:@PORT@ {
	bind 127.0.0.1
	respond /private 403
	reverse_proxy @A@
}
http://a.test:@PORT2@, http://b.test:@PORT2@ {
	bind 127.0.0.1
	reverse_proxy @B@
}
http://:@PORT2@ {
	bind 127.0.0.1
	reverse_proxy @C@
}
"#,
        hosts: &["a.test", "b.test", "c.test"],
        paths: &["/", "/private"],
        known: &[("on ", "bind")],
        ..Case::default()
    })
    .await;
}

/// What matchers ask is asked of the request as the directives before left it, in both forms of the configuration.
const CHANGED: &str = "http://pub.test:@PORT@ {
	@admin {
		path /admin/*
		not remote_ip 127.0.0.9
	}
	respond @admin \"no\" 403
	rewrite /pub/* /admin/x
	uri strip_prefix /strip
	reverse_proxy @A@
}
http://route.test:@PORT@ {
	route /r/* {
		uri strip_prefix /r
		@adm path /admin*
		respond @adm 403
		reverse_proxy @A@
	}
	handle_path /api/* {
		@number path_regexp ^/[0-9]+$
		basicauth /admin* {
			ann $2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW
		}
		respond @number 410
		reverse_proxy @B@
	}
	handle_path /a/* {
		handle_path /b/* {
			respond /no* 403
			reverse_proxy @C@
		}
		respond /no* 404
		reverse_proxy @D@
	}
	reverse_proxy @D@
}
http://head.test:@PORT@ {
	request_header -X-Internal
	request_header X-Role guest
	@int header X-Internal 1
	@guest header X-Role gue*
	handle @int {
		reverse_proxy @B@
	}
	handle /guests* {
		respond @guest \"guests\" 200
		respond 403
	}
	handle {
		respond 403
	}
}
http://two.test:@PORT@ {
	@two {
		header X-C 1
		header X-C 2
	}
	@bad header_regexp User-Agent (?i)evil
	@word header_regexp X-D ^one$
	respond @two 411
	respond @bad 403
	respond @word 405
	reverse_proxy @A@
}
http://before.test:@PORT@ {
	rewrite /in/* /secret{uri}
	rewrite /api/* /v2{path}
	respond /secret/* 403
	respond /v2/api/a* 404
	reverse_proxy @A@
}
http://first.test:@PORT@ {
	rewrite /api/* /admin/x
	rewrite /admin/* /open
	handle /in/* {
		handle /in/x {
			respond /never 410
		}
		request_header X-Inner yes
	}
	respond /admin/* 403
	respond /in/in/* 404
	reverse_proxy @A@
}
http://both.test:@PORT@ {
	route {
		request_header /in/* X-Path inner
		uri strip_prefix /in
		request_header /in/* X-Path other
		reverse_proxy @A@
	}
}
";

async fn changed(format: Format) {
    compare(Case {
        format,
        config: &format!("{HEAD}{CHANGED}"),
        hosts: &["pub.test", "route.test", "head.test", "two.test", "both.test", "before.test", "first.test"],
        paths: &[
            "/",
            "/admin/x",
            "/pub/x",
            "/strip/admin/x",
            "/STRIP/Admin/x",
            "/strip/x",
            "/r/admin",
            "/r/x",
            "/api/admin",
            "/api/x",
            "/api/7",
            "/a/b/no",
            "/a/b/x",
            "/a/no",
            "/a/x",
            "/guests",
            "/in/in/x",
            "/in/x",
        ],
        methods: &["GET"],
        fields: &[
            "",
            "x-internal: 1",
            "x-role: admin",
            "x-c: 1",
            "x-c: 2",
            "x-c: 0\r\nx-c: 1",
            "user-agent: an EVIL\u{ff} one",
            "x-d: two\r\nx-d: one\r\nx-d: three",
            "x-d: ones",
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn guards_behind_changes() {
    changed(Format::Caddyfile).await;
}

#[tokio::test]
async fn guards_behind_changes_in_json() {
    changed(Format::CaddyJson).await;
}

#[tokio::test]
async fn guards_behind_changes_that_are_not_known_are_closed() {
    run(
        "http://a.test:@PORT@ {
	uri replace /foo/ /admin/
	respond /admin/* 403
	reverse_proxy @A@
}
http://b.test:@PORT@ {
	try_files {path}.html /app.html
	basicauth /secret.html {
		ann $2a$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW
	}
	root * @DIR@/www
	file_server
}
http://*.open.test:@PORT@ {
	reverse_proxy @A@
}
",
        Case {
            hosts: &["a.test", "b.test", "a.open.test", "b.open.test", "c.open.test"],
            paths: &["/", "/foo/x", "/secret", "/x", "/admin/x", "/y", "/z"],
            known: &[("a.test", "respond /admin/* 403"), ("b.test", "basicauth /secret.html")],
            files: &[("www/secret.html", "secret"), ("www/app.html", "app")],
            ..Case::default()
        },
    )
    .await;
}

/// The order in which directives run may be another one.
#[tokio::test]
async fn another_order() {
    compare(Case {
        format: Format::Caddyfile,
        config: r#"
{
	admin off
	auto_https off
	http_port @PORT@
	order respond before rewrite
	order request_header first
}
http://a.test:@PORT@ {
	rewrite /x /y
	respond /y 403
	respond /x 404
	@role header X-Role admin
	request_header X-Role guest
	redir @role /admin
	reverse_proxy @A@
}
"#,
        paths: &["/", "/x", "/y"],
        fields: &["", "x-role: admin"],
        ..Case::default()
    })
    .await;
}

/// Two neighbours with one matcher are one block: what the second guards is guarded.
#[tokio::test]
async fn neighbours_with_one_matcher_are_joined() {
    compare(Case {
        format: Format::Caddyfile,
        config: r#"
{
	admin off
	auto_https off
	http_port @PORT@
}
http://a.test:@PORT@ {
	handle /a/* {
		header X-First yes
	}
	handle /a/* {
		respond /a/admin 403
		header X-Second yes
	}
	handle_path /b/* {
		respond /admin 403
	}
	handle_path /b/* {
		respond "b"
	}
	handle /c/* {
		respond /c/x "first"
	}
	handle {
		respond "others"
	}
	handle /c/* {
		respond /c/y 403
		reverse_proxy @A@
	}
	reverse_proxy @A@
}
"#,
        paths: &["/", "/a/x", "/a/admin", "/b/admin", "/b/x", "/c/x", "/c/y", "/c/z"],
        ..Case::default()
    })
    .await;
}
