//! What the admin API reads of a configuration file, and where settings come from.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::process::{Folder, Gateway, until};

const TOKEN: &str = "a-token-of-enough-bytes";

fn ask(admin: SocketAddr, method: &str, path: &str, token: &str) -> (u16, Value) {
    let mut connection = TcpStream::connect(admin).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn spec(path: &str) -> String {
    format!(
        "gateway: {{ http: '127.0.0.1:0', https: off, admin: '127.0.0.1:0', workers: 1 }}
proxies:
  - {{ id: shop, listen_path: {path}, backend_host: 127.0.0.1, backend_port: 9 }}
consumers:
  - {{ id: ann, username: ann, credentials: {{ key_auth: the-key-of-ann }} }}
plugin_configs:
  - {{ id: key, plugin_name: key_auth, scope: proxy, proxy_id: shop, when: {{ methods: [GET] }}, config: {{}} }}
"
    )
}

#[test]
fn the_objects_of_a_file_are_read_and_not_written() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec("/shop"));
    let gateway = Gateway::start(&folder, |command| {
        command.env("FERRUM_ADMIN_READ_TOKEN", TOKEN);
    });
    let get = |path: &str| ask(gateway.admin, "GET", path, TOKEN);
    assert_eq!(ask(gateway.admin, "GET", "/v1/proxies", "another token").0, 401);
    let (status, page) = get("/v1/proxies");
    assert_eq!(
        (status, &page["items"][0]["listen_path"], &page["next"]),
        (200, &json!("/shop"), &Value::Null)
    );
    assert_eq!(get("/v1/proxies?limit=1").1["next"], "shop");
    assert_eq!(get("/v1/proxies?limit=1&after=shop").1["items"], json!([]));
    assert_eq!(get("/v1/proxies?listen_path=/shop").0, 400, "a file is not searched by fields");
    assert_eq!(get("/v1/proxies/shop").1["id"], "shop");
    assert_eq!((get("/v1/proxies/other").0, get("/v1/others").0), (404, 404));
    let effective = get("/v1/proxies/shop/effective").1;
    assert_eq!(effective["plugins"][0]["id"], "key");
    assert_eq!(effective["plugins"][0]["when"], json!({ "methods": ["GET"] }));
    let export = get("/v1/export").1;
    assert_eq!(export["plugin_configs"][0]["id"], "key");
    assert!(!export.to_string().contains("the-key-of-ann"), "{export}");
    for (method, path) in
        [("PUT", "/v1/proxies/shop"), ("DELETE", "/v1/proxies/shop"), ("GET", "/v1/revisions")]
    {
        let (status, problem) = ask(gateway.admin, method, path, TOKEN);
        assert_eq!((status, &problem["code"]), (404, &json!("file_mode")), "{method} {path}");
    }
    // What is shown is what was loaded, not what the file has by now.
    folder.write("ferrum.yaml", &spec("/other"));
    assert_eq!(get("/v1/proxies/shop").1["listen_path"], "/shop");
    gateway.signal("HUP");
    until("the file is read again", || get("/v1/proxies/shop").1["listen_path"] == "/other");
}

#[test]
fn settings_name_where_they_come_from() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec("/shop"));
    let gateway = Gateway::start(&folder, |command| {
        command
            .args(["--https-port", "0"])
            .env("FERRUM_ADMIN_READ_TOKEN", TOKEN)
            .env("FERRUM_MAX_CONNECTIONS", "77");
    });
    let (_, settings) = ask(gateway.admin, "GET", "/v1/settings", TOKEN);
    let of = |name: &str| {
        let all = settings["items"].as_array().unwrap();
        let found = all.iter().find(|one| one["setting"] == name).unwrap_or_else(|| panic!("{name}"));
        (found["origin"].as_str().unwrap().to_owned(), found["value"].clone())
    };
    assert_eq!(of("gateway.workers"), ("file".to_owned(), json!(1)));
    assert_eq!(of("gateway.limits.max_connections"), ("environment".to_owned(), json!("77")));
    assert_eq!(of("gateway.https").0, "flag");
    assert_eq!(of("gateway.http3"), ("default".to_owned(), Value::Null));
    assert_eq!(of("FERRUM_ADMIN_READ_TOKEN"), ("environment".to_owned(), json!("***")));
    assert_eq!(ask(gateway.admin, "GET", "/v1/settings", "").0, 401);
}
