//! The gateway signs for itself instead of sending a secret.

use super::*;
use crate::jose::{Key, Token};

#[tokio::test]
async fn the_gateway_may_sign_instead_of_sending_a_secret() {
    let (idp, signer) = (Idp::new(), Signer::ed());
    let key = crate::assertion::tests::private_pem(&signer);
    let trial = idp.trial(
        &json!({ "client_auth": "private_key_jwt", "client_secret": null, "client_private_key": key }),
    );
    let token = signed(&idp, &trial).await;
    let token = Token::read(token.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
    assert!(token.is_signed_with(&Key::pem(&signer.pem()).expect("a key")));
    assert!(token.claims["aud"].as_str().is_some_and(|url| url.ends_with("/token")), "{:?}", token.claims);
    assert_eq!(token.key_id, None);
    // Some providers find the key by its id, and want themselves named.
    let trial = idp.trial(&json!({
        "client_auth": "private_key_jwt", "client_secret": null, "client_private_key": key, "client_key_id": "k-7",
        "client_assertion_audience": "https://idp.test",
    }));
    let token = signed(&idp, &trial).await;
    let token = Token::read(token.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_eq!(
        (token.key_id.as_deref(), token.claims["aud"].as_str()),
        (Some("k-7"), Some("https://idp.test"))
    );
}

/// Logs in; what the gateway signed for it.
async fn signed(idp: &Idp, trial: &Trial) -> String {
    let mut jar = Jar::default();
    let got = jar.get(trial, "/", &[("accept", "text/html")]).await;
    let asked = parameters(got.field("location").split_once('?').expect("a query").1);
    idp.with(|it| {
        drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())))
    });
    let back = asked["redirect_uri"].split_once("client.test").expect("this site").1.to_owned();
    assert_eq!(jar.get(trial, &format!("{back}?code=c&state={}", asked["state"]), &[]).await.status, 302);
    let sent = idp.machine.net.sent();
    let sent = sent.iter().rfind(|sent| sent.url.ends_with("/token")).expect("a call");
    let form = sent.form();
    assert_eq!((form["client_id"].as_str(), form.get("client_secret")), ("shop", None));
    form["client_assertion"].clone()
}

/// What is asked of the provider goes by the settings, also its discovery document and its keys.
#[tokio::test]
async fn the_provider_is_asked_as_the_settings_say() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "timeout": "1234ms", "ca_path": "/etc/idp.pem" }));
    assert_eq!(Jar::default().log_in(&trial, &idp, "/").await.status, 302);
    let endpoints = idp.machine.net.endpoints();
    assert!(endpoints.len() >= 3, "discovery, keys and tokens: {endpoints:?}");
    for endpoint in endpoints {
        assert_eq!(endpoint.timeout, std::time::Duration::from_millis(1234), "{endpoint:?}");
        assert_eq!(
            endpoint.tls.ca_path.as_deref(),
            Some(std::path::Path::new("/etc/idp.pem")),
            "{endpoint:?}"
        );
    }
}

#[tokio::test]
async fn clocks_may_differ_as_much_as_the_settings_say() {
    for (leeway, late, expected) in [(60, 40, 302), (60, 80, 401), (120, 80, 302), (0, 5, 401)] {
        let idp = Idp::new();
        let trial = idp.trial(&json!({ "leeway": leeway }));
        idp.with(|it| it.claims = json!({ "exp": now() - late }));
        let got = Jar::default().log_in(&trial, &idp, "/").await;
        assert_eq!(got.status == 302, expected == 302, "{leeway} {late}: {}", got.status);
    }
}
