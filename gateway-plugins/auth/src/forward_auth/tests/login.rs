//! Fields that templates set in questions, and redirects to a login.

use super::*;

#[tokio::test]
async fn templates_set_fields_of_the_question() {
    let config = json!({ "convention": "nginx", "preserve_query": true, "set_request_headers": {
        "X-Original-URL": "https://${request.authority}${request.target}", "X-Original-URI": "", "Host": "auth.internal",
        "X-Token": "${request.cookie.t}", "X-Absent": "${request.header.x-none}",
    } });
    let machine = answering(200, &[], "");
    let trial = trial(&machine, &config, &[]);
    let sent = [("host", "shop.test"), ("cookie", "t=1"), ("x-token", "forged"), ("x-absent", "forged")];
    assert_eq!(trial.get("/a?b=1", &sent).await.status, 200);
    let asked = machine.net.sent().pop().expect("a question");
    assert_eq!(asked.url, "auth.test:443/check");
    let fields = ["x-original-url", "x-original-uri", "host", "x-token", "x-absent", "x-original-method"];
    let wanted = ["https://shop.test/a?b=1", "", "auth.internal", "1", "", "GET"];
    assert_eq!(fields.map(|name| asked.field(name)), wanted);
}

#[tokio::test]
async fn refused_clients_are_sent_to_the_login() {
    const FIELDS: [(&str, &str); 3] = [("x-err", "a b&c"), ("set-cookie", "s=1"), ("x-hidden", "h")];
    let back = "https://auth.test/?rd=${request.scheme}://${request.authority}${request.target}&e=${response.header.x-err}";
    for convention in ["nginx", "traefik", "envoy"] {
        let config = json!({ "convention": convention, "client_headers": ["Set-Cookie"],
            "login": { "location": back, "location_header": "Location" } });
        let machine = answering(401, &FIELDS, "no");
        let trial = trial(&machine, &config, &[]);
        let got = trial.get("/a?b=1&c=2", &[("host", "shop.test")]).await;
        let wanted = "https://auth.test/?rd=http://shop.test/a%3Fb%3D1%26c%3D2&e=a%20b%26c";
        assert_eq!((got.status, got.field("location")), (302, wanted), "{convention}");
        assert_eq!((got.field("set-cookie"), got.field("x-hidden"), got.text().as_str()), ("s=1", "", ""));
        assert_eq!(trial.records()[0].reason, Some("forward_auth_refused"));
        assert!(trial.asked().is_empty());
    }
    // What the answer names precedes the template.
    let config = json!({ "convention": "nginx", "login": { "location": "/in", "location_header": "Location", "status_code": 303 } });
    let got =
        trial(&answering(401, &[("location", "https://sso.test/x")], ""), &config, &[]).get("/", &[]).await;
    assert_eq!((got.status, got.field("location")), (303, "https://sso.test/x"));
    // Other refusals and failures stay what they are.
    for (status, wanted) in [(403, 403), (500, 503), (302, 503)] {
        let got = trial(&answering(status, &[("location", "/x")], ""), &config, &[]).get("/", &[]).await;
        assert_eq!((got.status, got.field("location")), (wanted, ""), "{status}");
    }
    // Without a URL the client gets the refusal.
    let config = json!({ "convention": "nginx", "login": { "location_header": "Location" } });
    let got = trial(&answering(401, &[], ""), &config, &[]).get("/", &[]).await;
    assert_eq!(got.status, 401);
}
