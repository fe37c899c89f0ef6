//! Files of applications: their source is never sent.

use serde_json::Value;

use super::import;
use crate::NoFiles;

/// The `static_files` configs of a server with these directives.
fn static_files(server: &str) -> Vec<Value> {
    let text = format!("http {{ server {{ listen 80; root /var/www; {server} }} }}");
    let import = import(&text, &NoFiles).unwrap_or_else(|error| panic!("{server}: {error}"));
    let document = import.document();
    let plugins = document["plugin_configs"].as_array().cloned().unwrap_or_default();
    plugins
        .into_iter()
        .filter(|plugin| plugin["plugin_name"] == "static_files")
        .map(|mut plugin| plugin["config"].take())
        .collect()
}

#[test]
fn an_index_that_an_application_serves_is_not_sent() {
    let php = r"location ~ \.php$ { fastcgi_pass unix:/run/php.sock; }";
    for (server, index) in [
        (format!("index index.php; {php}"), &[][..]),
        (format!("index index.php index.html; {php}"), &[]),
        (format!("index index.html index.php; {php}"), &["index.html"]),
        (format!("index index.php; location / {{ try_files $uri $uri/ =404; }} {php}"), &[]),
        (format!("index index.php; location / {{ autoindex on; }} {php}"), &[]),
        (r"index index.php; location ~* \.(php|phtml)$ { proxy_pass http://10.0.0.1; }".to_owned(), &[]),
        (
            r"index index.php; location /app/ { } location ~ ^/app/.+\.php$ { fastcgi_pass a:9000; }"
                .to_owned(),
            &[],
        ),
        (r"index index.cgi; location ~ \.cgi$ { scgi_pass a:9000; }".to_owned(), &[]),
        ("index index.php; location = /index.php { fastcgi_pass a:9000; }".to_owned(), &[]),
        ("index index.html; location /api/ { proxy_pass http://10.0.0.1; }".to_owned(), &["index.html"]),
    ] {
        let all = static_files(&server);
        assert!(!all.is_empty(), "{server}");
        for config in all {
            let names: Vec<&str> =
                config["index"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            assert_eq!(names, index, "{server}: {config}");
            assert_ne!(config["listing"], Value::Bool(true), "{server}: {config}");
        }
    }
}

#[test]
fn a_front_controller_is_not_sent() {
    for server in [
        r"location / { try_files $uri $uri/ /index.php?$args; } location ~ \.php$ { fastcgi_pass a:9000; }",
        "location / { try_files $uri /index.php; } location = /index.php { fastcgi_pass a:9000; }",
        "location / { try_files $uri /app/front.php; } location /app/ { proxy_pass http://10.0.0.1; }",
    ] {
        for config in static_files(server) {
            assert!(!config.to_string().contains(".php"), "{server}: {config}");
        }
    }
}

#[test]
fn sockets_and_locations_that_nginx_reads_otherwise() {
    let both = "http { server { listen 443; listen 443 ssl; server_name a.test; ssl_certificate a.pem; ssl_certificate_key a.key;
        location / { proxy_pass http://10.0.0.1:1; } } server { listen 443; server_name b.test; location / { return 204; } } }";
    let document = import(both, &NoFiles).expect("is good").document();
    assert_eq!(
        (&document["gateway"]["http"], &document["gateway"]["https"]),
        (&"off".into(), &"0.0.0.0:443".into())
    );
    let without_slash =
        "http { server { listen 80; location = sw.js { return 403; } location x { return 403; }
        location / { proxy_pass http://10.0.0.1:1; } } }";
    let document = import(without_slash, &NoFiles).expect("is good").document();
    assert_eq!(document["proxies"].as_array().map(Vec::len), Some(1), "{document:#}");
}

/// An application's own settings are told with it, and warnings about directives of one name together.
#[test]
fn the_report_says_a_thing_once() {
    let text = r"http { proxy_temp_path /tmp/x; server { listen 80; root /var/www;
        location / { try_files $uri =404; expires 1d; }
        location /a/ { root /var/a; expires 2d; }
        location /b/ { root /var/b; expires 3d; }
        location ~ \.php$ { uwsgi_param A b; uwsgi_buffers 16 16k; uwsgi_pass a:9000; } } }";
    let made = import(text, &NoFiles).expect("is good");
    let groups: Vec<String> = made.report.loss_groups().iter().map(ToString::to_string).collect();
    let about = |word: &str| groups.iter().filter(|line| line.contains(word)).count();
    assert_eq!((about("expires"), about("uwsgi_param"), about("_temp_path")), (1, 0, 0), "{groups:#?}");
    assert!(groups.iter().any(|line| line.contains("[and 2 more, in lines 3, 4]")), "{groups:#?}");
    assert!(made.closed_proxies > 0);
}
