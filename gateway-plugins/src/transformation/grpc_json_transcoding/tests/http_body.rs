//! `google.api.HttpBody`, in one piece and in several.

use super::*;

fn raw(content_type: &str, data: &str) -> Value {
    json!({ "contentType": content_type, "data": STANDARD.encode(data) })
}

#[tokio::test]
async fn an_http_body_is_a_body_as_it_is() {
    let cover = trial(json!({}), "google.api.HttpBody", raw("image/png", "\u{1}png"));
    let got = cover.get("/v1/covers/x", &[]).await;
    assert_eq!((got.status, got.field("content-type"), got.text()), (200, "image/png", "\u{1}png".into()));
    let unsaid = trial(json!({}), "google.api.HttpBody", raw("", "?"));
    assert_eq!(unsaid.get("/v1/covers/x", &[]).await.field("content-type"), "application/octet-stream");
    // As one field of the message, in both directions; JSON that is sent is no field by field.
    let image = json!({ "image": raw("text/css", "a {}") });
    let put = trial(json!({}), "library.v1.Cover", image);
    for body in ["a {}", r#"{"name": 1}"#, " ", ""] {
        let got = put.request("POST", "/v1/covers/x", &[("content-type", "text/x")], body).await;
        assert_eq!((got.status, got.field("content-type"), got.text()), (200, "text/css", "a {}".into()));
        let asked = called(put.asked().last().unwrap(), "library.v1.Cover");
        let mut image = raw("text/x", body);
        if body.is_empty() {
            image.as_object_mut().unwrap().remove("data");
        }
        assert_eq!(asked, json!({ "name": "x", "image": image }), "{body}");
    }
}

#[tokio::test]
async fn an_http_body_comes_in_pieces() {
    let pieces = || {
        ["one, ", "", "two"]
            .map(|text| frame(&message("google.api.HttpBody", &raw("text/csv", text))))
            .concat()
    };
    let trial = Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({})));
    let good = trial.answering(move |_| grpc(pieces(), OK));
    let got = good.request("POST", "/v1/print", &[("content-type", "text/x")], "page").await;
    assert_eq!((got.status, got.field("content-type"), got.text()), (200, "text/csv", "one, two".into()));
    assert_eq!(called(good.asked().last().unwrap(), "google.api.HttpBody"), raw("text/x", "page"));
    let trial = Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({})));
    let refused = trial.answering(|_| grpc(Vec::new(), &[("grpc-status", "7"), ("grpc-message", "no")]));
    let got = refused.request("POST", "/v1/print", &[], "page").await;
    assert_eq!((got.status, got.json()["message"].clone()), (403, json!("no")));
    let trial = Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({})));
    let packed = trial.answering(|_| grpc([&[1, 0, 0, 0, 1, 9][..], &[0; 4096]].concat(), OK));
    let got = packed.request("POST", "/v1/print", &[], "page").await;
    assert_eq!((got.status, got.field("content-type")), (500, "application/json"));
    let trial = Trial::new(PLUGINS, "grpc_json_transcoding", settings(json!({})));
    let failed = trial.answering(move |_| grpc(pieces(), &[("grpc-status", "13")]));
    let got = failed.request("POST", "/v1/print", &[], "page").await;
    assert!(got.cut.is_some(), "half a body looks whole");
}
