//! Imports of FastCGI applications: scripts, parameters and front controllers.

use serde_json::{Value, json};

use super::import;
use crate::NoFiles;
use crate::report::Conversion;

/// The proxies and plugin configs of a server with these directives.
fn made(server: &str) -> (Vec<Value>, Vec<Value>) {
    let text =
        format!("http {{ upstream fpm {{ server 10.0.0.7:9000; }} server {{ listen 80; {server} }} }}");
    let document = import(&text, &NoFiles).unwrap_or_else(|error| panic!("{server}: {error}")).document();
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    (list("proxies"), list("plugin_configs"))
}

/// The proxies with FastCGI targets.
fn applications(server: &str) -> Vec<Value> {
    made(server).0.into_iter().filter(|proxy| proxy["backend_protocol"] == "fastcgi").collect()
}

const USUAL: &str = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param QUERY_STRING $query_string; \
     fastcgi_param HTTP_PROXY \"\"; fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_param SERVER_SOFTWARE nginx;";

#[test]
fn scripts_run_where_nginx_finds_them() {
    let root = json!({ "root": "/var/www" });
    for (location, rules) in [
        (format!(r"location ~ \.php$ {{ fastcgi_pass unix:/run/php.sock; {USUAL} }}"), root.clone()),
        (
            format!(
                r"location ~ \.php$ {{ try_files $uri =404; fastcgi_split_path_info ^(.+\.php)(/.+)$; fastcgi_index index.php;
                  fastcgi_pass unix:/run/php.sock; {USUAL} }}"
            ),
            json!({ "root": "/var/www", "index": "index.php" }),
        ),
        (
            r"location ~ \.php(/|$) { try_files $fastcgi_script_name =404; set $path_info $fastcgi_path_info;
              fastcgi_param PATH_INFO $path_info; fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name;
              fastcgi_pass unix:/run/php.sock; }"
                .to_owned(),
            root,
        ),
        (
            "location / { fastcgi_param SCRIPT_FILENAME /srv/app/public/index.php; fastcgi_pass unix:/run/php.sock; \
             fastcgi_param APP_ENV prod; fastcgi_param X $host; fastcgi_keep_conn on; \
             fastcgi_param PHP_VALUE \"a=1 \\n b=2\"; }"
                .to_owned(),
            json!({ "root": "/srv/app/public", "try_files": ["/index.php"], "keep_alive": true,
                    "params": { "APP_ENV": "prod", "X": "${request.host}", "PHP_VALUE": ["a=1", "b=2"] } }),
        ),
        (
            r"location ~ \.(php|phtml)$ { fastcgi_param SCRIPT_FILENAME /srv$fastcgi_script_name; fastcgi_pass unix:/run/php.sock; }"
                .to_owned(),
            json!({ "root": "/srv", "split_path": [".php", ".phtml"] }),
        ),
    ] {
        let found = applications(&format!("root /var/www; {location}"));
        let [proxy] = found.as_slice() else { panic!("{location}: {found:#?}") };
        assert_eq!(proxy["fastcgi"], rules, "{location}");
        assert_eq!((&proxy["backend_host"], &proxy["backend_scheme"]), (&json!("unix:/run/php.sock"), &Value::Null));
        assert_eq!(proxy["strip_listen_path"], json!(false));
    }
}

#[test]
fn applications_without_scripts_get_the_path() {
    let found = applications(
        "location / { fastcgi_pass fpm; fastcgi_param PATH_INFO $fastcgi_script_name; fastcgi_read_timeout 5m; }",
    );
    assert_eq!(found[0]["fastcgi"], json!({ "params": { "PATH_INFO": "${request.path}" } }));
    assert_eq!(
        (&found[0]["upstream_id"], &found[0]["backend_first_byte_timeout"]),
        (&json!("fpm"), &json!("300s"))
    );
}

#[test]
fn what_can_not_be_said_answers_503() {
    for location in [
        r"location ~ \.php$ { fastcgi_pass $backend; }",
        r"location ~ \.php$ { fastcgi_pass a:9000; fastcgi_param SCRIPT_FILENAME $some$fastcgi_script_name; }",
        r"location ~ \.php$ { fastcgi_pass a:9000; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; root /srv/$host; }",
        r"location ~ \.php$ { fastcgi_pass nowhere; }",
        "location / { scgi_pass a:9000; }",
        "location / { uwsgi_pass a:9000; }",
    ] {
        let (proxies, plugins) = made(location);
        assert!(
            proxies.iter().all(|proxy| proxy["backend_protocol"] != "fastcgi"),
            "{location}: {proxies:#?}"
        );
        assert!(
            plugins.iter().any(|plugin| plugin["config"]["status_code"] == 503),
            "{location}: {plugins:#?}"
        );
    }
}

#[test]
fn a_front_controller_stands_behind_the_files() {
    let php = format!(r"location ~ \.php$ {{ fastcgi_pass fpm; {USUAL} }}");
    for (location, tries, index) in [
        (
            "index index.php; location / { try_files $uri $uri/ /index.php?$args; }",
            json!(["{path}/index.php", "/index.php"]),
            json!(["index.php"]),
        ),
        (
            "index index.html index.php; location / { try_files $uri $uri/ /index.php$is_args$args; }",
            json!(["{path}/index.php", "/index.php"]),
            json!(["index.html", "index.php"]),
        ),
        ("location / { try_files $uri /index.php; }", json!(["/index.php?"]), json!([])),
        (
            "location / { try_files $uri /index.php?q=$uri&$args; }",
            json!(["/index.php?q=${request.path}&${request.query}"]),
            json!([]),
        ),
        (
            "index index.php; location / { try_files $uri $uri/ =404; }",
            json!(["{path}/index.php"]),
            json!(["index.php"]),
        ),
        ("index index.php; location / { }", json!(["{path}/index.php"]), json!(["index.php"])),
    ] {
        let server = format!("root /var/www; {location} {php}");
        let (proxies, plugins) = made(&server);
        let found = proxies.iter().find(|it| it["fastcgi"]["try_files"] == tries);
        let id = found.unwrap_or_else(|| panic!("{server}: {proxies:#?}"))["id"].clone();
        let files = plugins.iter().find(|it| it["proxy_id"] == id && it["plugin_name"] == "static_files");
        let config = &files.unwrap_or_else(|| panic!("{server}: {plugins:#?}"))["config"];
        assert_eq!((&config["index"], &config["passthrough"]), (&index, &json!(true)), "{server}");
    }
}

#[test]
fn a_guarded_front_controller_is_closed() {
    let php = format!(r"location ~ \.php$ {{ deny all; fastcgi_pass fpm; {USUAL} }}");
    let (proxies, plugins) =
        made(&format!("root /var/www; location / {{ try_files $uri /index.php?$args; }} {php}"));
    assert!(proxies.iter().all(|proxy| proxy["fastcgi"]["try_files"].is_null()), "{proxies:#?}");
    assert!(plugins.iter().any(|plugin| plugin["config"]["status_code"] == 503), "{plugins:#?}");
}

/// Files that every nginx has need not be there.
#[test]
fn files_that_come_with_nginx_are_known() {
    for (includes, is_known) in [
        ("include fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;", true),
        ("include fastcgi.conf;", true),
        ("include snippets/fastcgi-php.conf;", true),
        ("include /etc/nginx/snippets/fastcgi-php.conf;", true),
        ("include /srv/other/fastcgi.conf;", false),
        ("include snippets/own.conf;", false),
    ] {
        let text = format!(
            r"http {{ server {{ listen 80; root /var/www; location ~ \.php$ {{ {includes} fastcgi_pass unix:/run/php.sock; }} }} }}"
        );
        let made = import(&text, &NoFiles).expect("an import");
        let found = made.proxies.iter().find(|it| it.get("backend_protocol").is_some());
        let root = found.map(|it| it["fastcgi"]["root"].clone());
        assert_eq!(root, is_known.then(|| json!("/var/www")), "{includes}");
        assert_eq!(made.report.count(Conversion::Closed) == 0, is_known, "{includes}");
    }
}

/// What the location of a front controller says of requests holds for the paths that lead to it.
#[test]
fn paths_that_lead_to_a_script_have_the_limits_of_its_location() {
    let plugins = |inside: &str| {
        let text = format!(
            r"http {{ limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s; limit_conn_zone $binary_remote_addr zone=conn:1m; server {{
              listen 80; root /var/www; index index.php; location / {{ try_files $uri $uri/ /index.php?$args; }}
              location ~ \.php$ {{ {inside} {USUAL} fastcgi_pass unix:/run/php.sock; }} }} }}"
        );
        let made = import(&text, &NoFiles).expect("an import");
        let root =
            made.proxies.iter().find(|it| it["matches"][0]["path"]["prefix"] == "/").expect("the root");
        let id = root["id"].as_str().expect("an id");
        assert!(root.get("backend_protocol").is_some(), "{root}");
        let is_of_root = |it: &&Value| {
            let named = root["plugins"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|named| named["plugin_config_id"] == it["id"]);
            it["proxy_id"] == id || named
        };
        let found = made.plugin_configs.iter().filter(is_of_root);
        let names = found.filter_map(|it| it["plugin_name"].as_str()).filter(|name| *name != "static_files");
        (names.map(str::to_owned).collect::<Vec<_>>().join(" "), made.report.has_loss())
    };
    for (inside, expected) in [
        ("", ""),
        ("limit_req zone=one burst=5 nodelay;", "rate_limiting"),
        ("limit_conn conn 3;", "concurrency_limiting"),
        ("add_header X-A b;", "response_transformer"),
        ("error_page 404 https://a.test/;", "error_pages"),
    ] {
        assert_eq!(plugins(inside), (expected.to_owned(), !inside.is_empty()), "{inside}");
    }
}
