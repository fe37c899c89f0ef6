//! Guards of a Caddyfile: which requests their matchers mean, and when they are asked.

use ferrum_edge::import::Format;

use super::compare::{Case, compare};

const HEAD: &str = "{\n\tadmin off\n\tauto_https off\n\thttp_port @PORT@\n}\n";

/// Compares a Caddyfile, and the JSON that Caddy makes of it.
async fn run(config: &str, case: Case<'_>) {
    let config = format!("{HEAD}{config}");
    for format in [Format::Caddyfile, Format::CaddyJson] {
        let Case { hosts, paths, methods, fields, known, files, .. } = case;
        compare(Case {
            format,
            config: &config,
            hosts,
            paths,
            methods,
            fields,
            known,
            files,
            php: false,
            auth: false,
        })
        .await;
    }
}

/// A block behind `not` on the matcher's own line belongs to `not`.
#[tokio::test]
async fn blocks_behind_not() {
    run(
        "http://a.test:@PORT@ {
	@m not {
		path /x
		method POST
	}
	respond @m 403
	reverse_proxy @A@
}
http://b.test:@PORT@ {
	@m not {
		path /x /x/*
	}
	respond @m \"outside\" 403
	respond /x/deeper 404
	reverse_proxy @B@
}
",
        Case {
            hosts: &["a.test", "b.test"],
            paths: &["/", "/x", "/x/deeper", "/y"],
            methods: &["GET", "POST"],
            ..Case::default()
        },
    )
    .await;
}

/// A prefix that is the whole path leaves nothing, which is no slash.
#[tokio::test]
async fn what_is_left_of_a_prefix() {
    run(
        "http://a.test:@PORT@ {
	handle_path /api* {
		reverse_proxy / @C@
		respond /x 403
		respond 404
	}
	handle_path /img* {
		@root path /
		respond @root 403
		reverse_proxy @A@
	}
	reverse_proxy @B@
}
",
        Case {
            hosts: &["a.test"],
            paths: &["/", "/api", "/api/", "/api/x", "/api/y", "/img", "/img/", "/img/x", "/other"],
            ..Case::default()
        },
    )
    .await;
}

/// Of `header` with and without `!` in one set, the last one counts.
#[tokio::test]
async fn the_last_word_on_a_header() {
    run(
        "http://a.test:@PORT@ {
	@m {
		header X-Key *
		header !X-Key
	}
	respond @m 403
	reverse_proxy @A@
}
http://b.test:@PORT@ {
	@m {
		header !X-Key
		header X-Key good
	}
	@other not header X-Key *
	respond @m 403
	respond @other 404
	reverse_proxy @B@
}
",
        Case { hosts: &["a.test", "b.test"], fields: &["", "x-key: good", "x-key: bad"], ..Case::default() },
    )
    .await;
}

/// Neighbours with the same matcher are one route, whose matcher is asked before any of them.
#[tokio::test]
async fn neighbours_with_one_matcher() {
    run(
        "http://a.test:@PORT@ {
	uri /admin/* strip_prefix /admin
	basicauth /admin/* {
		ann $2a$04$TPz9f2sxTZ8PmGDBNUAXXOlGSRIpbbIg3fUpQCRO9pAHMcqJQvGmW
	}
	reverse_proxy @A@
}
http://b.test:@PORT@ {
	@k header X-K b
	request_header @k -X-K
	respond @k 403
	reverse_proxy @B@
}
http://c.test:@PORT@ {
	handle_path /x/* {
		request_header X-Role guest
	}
	respond /x/* 404
	reverse_proxy @C@
}
http://d.test:@PORT@ {
	rewrite /admin/* /open
	respond /admin/* 403
	reverse_proxy @D@
}
http://e.test:@PORT@ {
	@long {
		path /api/*
	}
	uri /api/* strip_prefix /api
	request_header @long X-Api yes
	respond /v2 403
	reverse_proxy @A@
}
",
        Case {
            hosts: &["a.test", "b.test", "c.test", "d.test", "e.test"],
            paths: &["/", "/admin/y", "/y", "/x/y", "/open", "/api/x", "/api/v2", "/v2"],
            fields: &["", "x-k: b", "x-k: c"],
            ..Case::default()
        },
    )
    .await;
}

/// In a `route`, nothing is joined, and every block that fits runs.
#[tokio::test]
async fn blocks_of_a_route() {
    run(
        "http://a.test:@PORT@ {
	route {
		handle /a* {
			request_header X-One 1
		}
		handle /ab* {
			respond 403
		}
		handle_path /c/* {
			request_header X-Two 2
		}
		respond /c/* 404
		reverse_proxy @A@
	}
}
",
        Case { paths: &["/", "/a", "/ab", "/abc", "/c/x", "/c/c/x"], ..Case::default() },
    )
    .await;
}

/// A path in a site's address belongs to what the site takes.
#[tokio::test]
async fn sites_with_paths() {
    run(
        "http://a.test:@PORT@/api/* {
	reverse_proxy @A@
}
http://a.test:@PORT@/api/v2/*, http://b.test:@PORT@/v2* {
	respond /api/v2/closed 403
	reverse_proxy @B@
}
http://b.test:@PORT@ {
	reverse_proxy @C@
}
http://c.test:@PORT@/only {
	reverse_proxy @D@
}
http://:@PORT@ {
	respond \"any\" 404
}
",
        Case {
            hosts: &["a.test", "b.test", "c.test", "d.test"],
            paths: &[
                "/",
                "/api",
                "/api/x",
                "/api/v2/x",
                "/api/v2/closed",
                "/v2",
                "/v2/x",
                "/only",
                "/only/x",
                "/none",
            ],
            methods: &["GET", "POST"],
            ..Case::default()
        },
    )
    .await;
}

/// What a placeholder names may be changed by then: the report says so, and of bodies that they are sent as written.
#[tokio::test]
async fn placeholders_of_changed_requests() {
    let config = format!(
        "{HEAD}http://a.test:@PORT@ {{
	handle_path /admin* {{
		redir https://else.test{{uri}}
	}}
	rewrite /api/* /secret{{uri}}
	respond /hello/* \"{{method}} {{host}}\" 200
	reverse_proxy @A@ {{
		header_up X-P {{path}}
	}}
}}
"
    );
    compare(Case {
        format: Format::Caddyfile,
        config: &config,
        paths: &["/", "/x", "/y", "/admin", "/admin/x", "/api/x", "/hello/x", "/z", "/q?r=1"],
        known: &[
            ("a.test/admin", "directives before it change what"),
            ("a.test/api/", "directives before it change what"),
            ("a.test/hello", "placeholders in a body"),
        ],
        ..Case::default()
    })
    .await;
}

/// What a `try_files` in a block may have rewritten is not passed on, wherever it is; what it does not take is.
#[tokio::test]
async fn tries_within_blocks() {
    let config = r#"
http://a.test:@PORT@ {
    root * @DIR@/www
    handle /app/* {
        try_files {path} /x
    }
    @digits path_regexp ^/[0-9]+$
    respond @digits "digits" 200
    reverse_proxy @A@
}
http://b.test:@PORT@ {
    root * @DIR@/www
    route {
        try_files {path} /12
        @digits path_regexp ^/[0-9]+$
        respond @digits 403
        reverse_proxy @A@
    }
}
"#;
    let case = Case {
        hosts: &["a.test", "a.test:1", "A.test", "b.test"],
        paths: &["/app/x", "/app/none", "/x", "/12", "/other", "/y", "/1", "/z", "/z/1", "/2"],
        known: &[
            ("/app/", "which path it passes on depends on files"),
            ("b.test/", "its matcher can't be converted; all that gets here is closed"),
        ],
        files: &[("www/x", "x"), ("www/12", "twelve"), ("www/app/x", "own")],
        ..Case::default()
    };
    // Of the JSON, all of such a site is closed.
    compare(Case { format: Format::Caddyfile, config: &format!("{HEAD}{config}"), ..case }).await;
}

/// Of a prefix that ends within a segment, no path with a slash is made.
#[tokio::test]
async fn prefixes_within_segments() {
    let config = r#"
http://a.test:@PORT@ {
    handle_path /admin* {
        respond /secret 403
        reverse_proxy @A@
    }
    handle_path /whole/* {
        reverse_proxy @B@
    }
    uri strip_prefix api
    respond /secret 403
    reverse_proxy @C@
}
"#;
    let case = Case {
        paths: &[
            "/admin",
            "/admin/secret",
            "/adminsecret",
            "/admin/x",
            "/whole/x",
            "/whole",
            "/api/secret",
            "/apisecret",
            "/apix",
            "/api/x",
            "/api",
            "/x",
        ],
        known: &[
            ("/adminsecret", "a path whose prefix is stripped within a segment"),
            ("/apisecret", "a path whose prefix is stripped within a segment"),
            ("/apix", "a path whose prefix is stripped within a segment"),
        ],
        ..Case::default()
    };
    run(config, case).await;
}
