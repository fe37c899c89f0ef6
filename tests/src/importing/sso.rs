//! Single sign-on as people put it before their sites: Authelia, Authentik, oauth2-proxy and Vouch, in nginx and Caddy.

use ferrum_edge::import::{self, Disk, Format, Options};

use super::auth_server::AuthServer;
use super::compare::{Case, compare, spec};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::standing::Standing;
use crate::support::wire::Wire;

/// Without a session, with one, with one that may not come in, and while the authorization server fails. What clients write
/// in the fields of the answer counts for nothing.
const SESSIONS: &[&str] = &[
    "",
    "cookie: sso=ann",
    "cookie: sso=blocked",
    "cookie: sso=broken",
    "remote-user: root\r\nx-authentik-username: root\r\nx-user: root\r\nx-vouch-user: root",
    "cookie: sso=ann\r\nremote-user: root\r\nx-authentik-username: root\r\nx-user: root\r\nx-vouch-user: root",
];

fn case(config: &'static str, paths: &'static [&'static str]) -> Case<'static> {
    Case { config, paths, methods: &["GET", "POST"], fields: SESSIONS, auth: true, ..Case::default() }
}

/// The same without a failing server, whose 500 is 502 here.
const CADDY_SESSIONS: &[&str] = &[
    "",
    "cookie: sso=ann",
    "cookie: sso=blocked",
    "remote-user: root\r\nx-authentik-username: root\r\nx-user: root\r\nx-vouch-user: root",
    "cookie: sso=ann\r\nremote-user: root\r\nx-authentik-username: root\r\nx-user: root\r\nx-vouch-user: root",
];

/// As Authelia's manual has it, with snippets written out.
#[tokio::test]
async fn authelia_beside_nginx() {
    compare(Case {
        ..case(
            r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        set $upstream_authelia http://@AUTH@/api/authz/auth-request;
        location /internal/authelia/authz {
            internal;
            proxy_pass $upstream_authelia;
            proxy_set_header X-Original-Method $request_method;
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header Content-Length "";
            proxy_set_header Connection "";
            proxy_pass_request_body off;
            proxy_next_upstream error timeout invalid_header http_500 http_502 http_503;
            proxy_redirect http:// $scheme://;
            proxy_http_version 1.1;
            proxy_cache_bypass $cookie_session;
            proxy_no_cache $cookie_session;
            proxy_buffers 4 32k;
            client_body_buffer_size 128k;
            send_timeout 5m;
            proxy_read_timeout 240;
            proxy_send_timeout 240;
            proxy_connect_timeout 240;
        }
        location / {
            auth_request /internal/authelia/authz;
            auth_request_set $user $upstream_http_remote_user;
            auth_request_set $name $upstream_http_remote_name;
            proxy_set_header Remote-User $user;
            proxy_set_header Remote-Name $name;
            auth_request_set $redirection_url $upstream_http_location;
            error_page 401 =302 $redirection_url;
            proxy_pass http://@A@;
        }
        location /open { proxy_pass http://@B@; }
    }
}
"#,
            &["/", "/a/b?c=d", "/open", "/internal/authelia/authz"],
        )
    })
    .await;
}

/// As the image collection of LinuxServer has it: a path of the site leads to the portal, and a named location to its login.
#[tokio::test]
async fn authelia_of_an_image_collection_beside_nginx() {
    compare(Case {
        ..case(
            r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        location = /authelia/api/authz/auth-request {
            internal;
            set $upstream_authelia @AUTH@;
            proxy_pass http://$upstream_authelia;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_set_header Early-Data $ssl_early_data;
            proxy_set_header Host $host;
            proxy_set_header Proxy "";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Host $host;
            proxy_set_header X-Forwarded-Method $request_method;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Server $host;
            proxy_set_header X-Forwarded-Ssl on;
            proxy_set_header X-Forwarded-Uri $request_uri;
            proxy_set_header X-Original-Method $request_method;
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
            proxy_set_header X-Real-IP $remote_addr;
        }
        location @authelia_proxy_signin {
            internal;
            auth_request_set $set_cookie $upstream_http_set_cookie;
            add_header Set-Cookie $set_cookie;
            auth_request_set $signin_url $upstream_http_location;
            if ($signin_url = '') { set $signin_url https://$http_host/authelia/; }
            return 302 $signin_url;
        }
        location / {
            auth_request /authelia/api/authz/auth-request;
            error_page 401 = @authelia_proxy_signin;
            auth_request_set $user $upstream_http_remote_user;
            auth_request_set $name $upstream_http_remote_name;
            proxy_set_header Remote-User $user;
            proxy_set_header Remote-Name $name;
            auth_request_set $set_cookie $upstream_http_set_cookie;
            add_header Set-Cookie $set_cookie;
            auth_request_set $signin_url $upstream_http_location;
            proxy_pass http://@A@;
        }
    }
}
"#,
            &["/", "/a/b?c=d"],
        )
    })
    .await;
}

#[tokio::test]
async fn authentik_beside_nginx() {
    compare(Case {
        ..case(
            r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        location / {
            proxy_pass http://@A@;
            auth_request /outpost.goauthentik.io/auth/nginx;
            error_page 401 = @goauthentik_proxy_signin;
            auth_request_set $auth_cookie $upstream_http_set_cookie;
            add_header Set-Cookie $auth_cookie;
            auth_request_set $authentik_username $upstream_http_x_authentik_username;
            auth_request_set $asked $upstream_http_remote_name;
            proxy_set_header X-authentik-username $authentik_username;
            proxy_set_header Remote-Name $asked;
        }
        location /outpost.goauthentik.io {
            proxy_pass http://@AUTH@/outpost.goauthentik.io;
            proxy_set_header Host $host;
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
            add_header Set-Cookie $auth_cookie;
            auth_request_set $auth_cookie $upstream_http_set_cookie;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }
        location @goauthentik_proxy_signin {
            internal;
            add_header Set-Cookie $auth_cookie;
            return 302 /outpost.goauthentik.io/start?rd=$request_uri;
        }
    }
}
"#,
            &["/", "/a/b", "/outpost.goauthentik.io/start"],
        )
    })
    .await;
}

#[tokio::test]
async fn oauth2_proxy_beside_nginx() {
    compare(Case {
        known: &[("", "responses with other statuses get it as well"), ("", "clients are sent to this page")],
        ..case(
            r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        location /oauth2/ {
            proxy_pass http://@AUTH@;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Auth-Request-Redirect $request_uri;
        }
        location = /oauth2/auth {
            proxy_pass http://@AUTH@;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-Uri $request_uri;
            proxy_set_header Content-Length "";
            proxy_pass_request_body off;
        }
        location / {
            auth_request /oauth2/auth;
            error_page 401 =403 /oauth2/sign_in;
            auth_request_set $user $upstream_http_x_auth_request_user;
            auth_request_set $asked $upstream_http_remote_name;
            proxy_set_header X-User $user;
            proxy_set_header X-Asked $asked;
            auth_request_set $auth_cookie $upstream_http_set_cookie;
            add_header Set-Cookie $auth_cookie;
            proxy_pass http://@A@/;
        }
    }
}
"#,
            &["/", "/a/b?c=d", "/oauth2/sign_in"],
        )
    })
    .await;
}

#[tokio::test]
async fn vouch_beside_nginx() {
    compare(case(
        r#"
events {}
http {
    server {
        listen 127.0.0.1:@PORT@;
        server_name a.test;
        auth_request /validate;
        location = /validate {
            proxy_pass http://@AUTH@/validate;
            proxy_set_header Host $http_host;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
        }
        auth_request_set $auth_resp_x_vouch_user $upstream_http_x_vouch_user;
        auth_request_set $auth_resp_err $upstream_http_x_vouch_err;
        error_page 401 = @error401;
        location @error401 {
            return 302 https://vouch.test/login?url=$scheme://$host$uri&error=$auth_resp_err;
        }
        location / {
            proxy_pass http://@A@;
            proxy_set_header X-Vouch-User $auth_resp_x_vouch_user;
        }
        location /open { auth_request off; proxy_pass http://@B@; }
    }
}
"#,
        &["/", "/a/b", "/open"],
    ))
    .await;
}

#[tokio::test]
async fn authelia_beside_caddy() {
    compare(Case {
        format: Format::Caddyfile,
        fields: CADDY_SESSIONS,
        ..case(
            "http://a.test:@PORT@ {
	forward_auth @AUTH@ {
		uri /api/authz/forward-auth
		copy_headers Remote-User Remote-Name
	}
	reverse_proxy @A@
}
",
            &["/", "/a/b?c=d"],
        )
    })
    .await;
}

#[tokio::test]
async fn authentik_beside_caddy() {
    compare(Case {
        format: Format::Caddyfile,
        fields: CADDY_SESSIONS,
        known: &[("remote-user: root", "what clients send as `X-Authentik-Username` is removed")],
        ..case(
            "http://a.test:@PORT@ {
	route {
		reverse_proxy /outpost.goauthentik.io/* http://@AUTH@
		forward_auth http://@AUTH@ {
			uri /outpost.goauthentik.io/auth/caddy
			copy_headers X-Authentik-Username>X-User Remote-Name
			trusted_proxies private_ranges
		}
		reverse_proxy @A@
	}
}
",
            &["/", "/a/b?c=d", "/outpost.goauthentik.io/start"],
        )
    })
    .await;
}

#[tokio::test]
async fn oauth2_proxy_beside_caddy() {
    compare(Case {
        format: Format::Caddyfile,
        fields: CADDY_SESSIONS,
        ..case(
            "http://a.test:@PORT@ {
	handle /oauth2/* {
		reverse_proxy @AUTH@ {
			header_up X-Real-IP {remote_host}
		}
	}
	handle {
		forward_auth @AUTH@ {
			uri /oauth2/auth
			header_up X-Real-IP {remote_host}
			header_up X-Token fixed
			copy_headers X-Auth-Request-User Remote-Name
			@error status 401
			handle_response @error {
				redir * /oauth2/sign_in?rd={scheme}://{host}{uri}
			}
		}
		reverse_proxy @A@
	}
}
",
            &["/", "/a/b", "/oauth2/sign_in"],
        )
    })
    .await;
}

#[tokio::test]
async fn vouch_beside_caddy() {
    compare(Case {
        format: Format::Caddyfile,
        fields: CADDY_SESSIONS,
        ..case(
            "http://a.test:@PORT@ {
	forward_auth @AUTH@ {
		uri /validate
		copy_headers X-Vouch-User
		@unauthorized status 401
		handle_response @unauthorized {
			redir https://vouch.test/login?url={scheme}://{host}{path} 302
		}
	}
	reverse_proxy @A@
}
",
            &["/", "/a/b"],
        )
    })
    .await;
}

/// Traefik is not installed here: what its manual says of `forwardAuth` is asked for by hand.
#[tokio::test]
async fn each_of_them_by_traefiks_forward_auth() {
    for (address, field, login) in [
        ("/api/authz/forward-auth", "remote-user", 302),
        ("/outpost.goauthentik.io/auth/caddy", "x-authentik-username", 302),
        ("/oauth2/auth", "x-auth-request-user", 401),
        ("/validate", "x-vouch-user", 401),
    ] {
        let (auth, target) = (AuthServer::start().await, Standing::start("A").await);
        let config = format!(
            "http:
  routers:
    site: {{ rule: 'Host(`a.test`)', middlewares: [sso], service: site }}
  middlewares:
    sso:
      forwardAuth:
        address: 'http://{}{address}'
        trustForwardHeader: true
        authResponseHeaders: ['{field}', remote-name]
  services:
    site: {{ loadBalancer: {{ servers: [{{ url: 'http://{}' }}] }} }}
",
            auth.address, target.address
        );
        let source = ("dynamic.yml".to_owned(), config);
        let imported =
            import::import(Format::Traefik, &[source], &Disk, Options::default()).expect("an import");
        let (settings, spec) = spec(&imported);
        let edge = Edge::start_with(&settings, &spec);
        for (session, wanted) in [
            ("x: y", login),
            ("cookie: sso=ann", 200),
            ("cookie: sso=blocked", 403),
            ("cookie: sso=broken", 500),
        ] {
            let mut talker = Talker::new(Wire::open(edge.http()).await);
            let request = format!(
                "GET /a?b=c HTTP/1.1\r\nhost: a.test\r\n{field}: root\r\n{session}\r\nconnection: close\r\n\r\n"
            );
            talker.wire.send(&request).await;
            let head = talker.response(&http::Method::GET).await.expect("a response");
            let body = String::from_utf8(talker.body().await.expect("a body")).expect("a text");
            assert_eq!(head.status(), wanted, "{address} {session}: {body}");
            assert_eq!(head.field("x-origin"), if wanted == 200 { "A" } else { "" }, "{address} {session}");
            assert_eq!(
                head.field("location").is_empty(),
                !matches!(wanted, 302 | 401),
                "{address} {session}"
            );
            let seen = format!("\n{field}: ann\n");
            assert_eq!(
                (body.contains(&seen), body.contains("root")),
                (wanted == 200, false),
                "{address} {body}"
            );
            assert_eq!(body.contains("x-forwarded-uri=/a?b=c"), wanted == 200, "{address}: {body}");
        }
    }
}
