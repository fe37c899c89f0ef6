//! The gateway signs for itself instead of sending a secret.

use super::*;
use crate::jose::{Key, Token};

#[tokio::test]
async fn the_gateway_may_sign_instead_of_sending_a_secret() {
    let (idp, signer) = (Idp::new(), Signer::ed());
    let key = crate::shared::assertion::tests::private_pem(&signer);
    let trial = idp.trial(
        &json!({ "client_auth": "private_key_jwt", "client_secret": null, "client_private_key": key }),
    );
    let mut jar = Jar::default();
    let got = jar.get(&trial, "/", &[("accept", "text/html")]).await;
    let asked = parameters(got.field("location").split_once('?').expect("a query").1);
    idp.with(|it| {
        drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())))
    });
    let back = asked["redirect_uri"].split_once("client.test").expect("this site").1.to_owned();
    assert_eq!(jar.get(&trial, &format!("{back}?code=c&state={}", asked["state"]), &[]).await.status, 302);
    let sent = idp.machine.net.sent().into_iter().find(|sent| sent.url.ends_with("/token")).expect("a call");
    let form = sent.form();
    let token = Token::read(form["client_assertion"].as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}"));
    assert!(token.is_signed_with(&Key::pem(&signer.pem()).expect("a key")));
    assert!(token.claims["aud"].as_str().is_some_and(|url| url.ends_with("/token")), "{:?}", token.claims);
    assert_eq!((form["client_id"].as_str(), form.get("client_secret")), ("shop", None));
}
