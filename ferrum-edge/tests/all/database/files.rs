//! Files and Unix sockets that proxies and upstreams in a database name.

use ferrum_edge::source::database::Database;
use serde_json::{Value, json};

use crate::client::{target, until};
use crate::database::place::{Api, Folder, Running, proxy};

/// A gateway that permits objects these files.
fn permitting(folder: &Folder, permitted: &str) -> Running {
    let references = permitted.parse().unwrap();
    Running::on(Database { references, ..Running::database(folder.location()) })
}

/// A proxy with some fields of its own.
fn with(fields: &Value) -> Value {
    let mut document = proxy("a", "/a", target("behind"));
    document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    document
}

fn refused(api: &mut Api, path: &str, document: &Value, pointer: &str, says: &str) {
    let answer = api.send("PUT", path, document);
    assert_eq!(answer.status, 422, "{document}: {answer:?}");
    assert_eq!(answer.json()["errors"][0]["pointer"], json!(pointer), "{answer:?}");
    assert!(answer.text.contains(says), "{answer:?}");
    assert_eq!(api.get(path).status, 404, "it was written: {document}");
}

/// Certificate and key in a folder.
fn pair(folder: &Folder) -> (String, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, cert.pem()).unwrap();
    std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    (certificate.display().to_string(), key.display().to_string())
}

#[test]
fn no_object_names_a_file_or_socket_that_is_not_permitted() {
    let folder = Folder::new();
    let (certificate, key) = pair(&folder);
    let running = permitting(&folder, "");
    let mut api = running.api();
    let identity = json!({ "backend_scheme": "https", "backend_tls_client_cert_path": certificate, "backend_tls_client_key_path": key });
    let ca = json!({ "backend_scheme": "https", "backend_tls_ca_path": certificate });
    let socket = format!("unix:{}/admin.sock", folder.path().display());
    let says = "FERRUM_DB_REFERENCES";
    refused(&mut api, "/v1/proxies/a", &with(&identity), "/backend_tls_client_cert_path", says);
    refused(&mut api, "/v1/proxies/a", &with(&ca), "/backend_tls_ca_path", says);
    let mut local = proxy("a", "/a", target("behind"));
    local["backend_host"] = json!(socket);
    local.as_object_mut().unwrap().remove("backend_port");
    refused(&mut api, "/v1/proxies/a", &local, "/backend_host", says);
    let group = json!({ "id": "g", "targets": [{ "host": "127.0.0.1", "port": 9 }, { "host": socket }] });
    refused(&mut api, "/v1/upstreams/g", &group, "/targets/1/host", says);
    let group = json!({ "id": "g", "targets": [{ "host": "127.0.0.1", "port": 9 }], "backend_tls_client_key_path": key, "backend_tls_client_cert_path": certificate });
    refused(&mut api, "/v1/upstreams/g", &group, "/backend_tls_client_cert_path", says);
}

#[test]
fn files_for_tls_are_read_before_a_write_is_accepted() {
    let folder = Folder::new();
    let (certificate, key) = pair(&folder);
    let permitted = format!("file:{}", folder.path().display());
    let running = permitting(&folder, &permitted);
    let mut api = running.api();
    let says = "TLS towards its targets";
    let ca = |path: &str| json!({ "backend_scheme": "https", "backend_tls_ca_path": path });
    refused(&mut api, "/v1/proxies/a", &with(&ca(&format!("{certificate}.none"))), "", says);
    refused(&mut api, "/v1/proxies/a", &with(&ca(&key)), "", says);
    api.good("PUT", "/v1/proxies/a", &with(&ca(&certificate)));
    // Of an upstream that proxies name as well.
    let group = |path: &str| json!({ "id": "g", "targets": [{ "host": "127.0.0.1", "port": 9 }], "backend_tls_ca_path": path });
    api.good("PUT", "/v1/upstreams/g", &group(&certificate));
    api.good(
        "PUT",
        "/v1/proxies/b",
        &json!({ "id": "b", "listen_path": "/b", "backend_scheme": "https", "upstream_id": "g" }),
    );
    let answer = api.send("PUT", "/v1/upstreams/g", &group(&key));
    assert!(answer.status == 422 && answer.text.contains(says), "{answer:?}");
    drop((running, api));
    // A gateway that lacks the file says so, and one that does not permit it closes the proxy.
    std::fs::remove_file(&certificate).unwrap();
    let running = permitting(&folder, &permitted);
    let mut api = running.api();
    until("the missing file is told", || {
        let status = api.get("/v1/status").json();
        let list = status["warnings"]["list"].as_array().unwrap().clone();
        list.iter().any(|it| it["code"] == "target_tls_unusable" && it["path"] == "proxies.a")
    });
    drop((running, api));
    assert_eq!(permitting(&folder, "").client().get("/a/x", None).status, 503);
}
