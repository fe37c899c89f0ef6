//! Logins by a passkey: `/console/passkey` answers a challenge, `/console/session` takes what the authenticator made of it.

use axum::Json;
use axum::extract::State;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;

use super::super::Admin;
use super::super::problem::{Refused, problem, store};
use super::super::resources::answer;
use super::challenges::Purpose;
use super::login_refusal::LoginRefusal;
use super::{Console, own_page};
use crate::access::passkey::{Expected, NewPasskey, PasskeyError, is_host, verify_login, verify_new};
use crate::store::{Passkey, User};

/// What an authenticator answers to a challenge, in base64url.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PasskeyLogin {
    id: String,
    client_data: String,
    authenticator_data: String,
    signature: String,
}

/// Where the console is opened, as its browser names it.
pub(in super::super) struct ConsoleHost(Authority);

impl ConsoleHost {
    /// Of a request of the console.
    ///
    /// # Errors
    /// `no_passkeys` where the host is an address: browsers make no passkeys for it.
    pub(in super::super) fn of(headers: &HeaderMap) -> Result<Self, Refused> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.parse().ok());
        let place = host.map(Self).filter(|place| is_host(place.0.host()));
        place.ok_or_else(|| {
            let detail = "Browsers make and use passkeys for host names only: open the console by one, over HTTPS or as localhost";
            Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "no_passkeys", detail)) as Refused
        })
    }

    /// The host without a port, in lower case.
    pub(in super::super) fn host(&self) -> String {
        self.0.host().to_ascii_lowercase()
    }
}

/// `POST /console/passkey`: a challenge for a login.
pub(super) async fn begin(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let begun = async {
        own_page(&headers)?;
        let place = ConsoleHost::of(&headers)?;
        let challenge = admin.console.challenges.issue(Purpose::Login).ok_or_else(no_randomness)?;
        Ok(Json(json!({ "challenge": URL_SAFE_NO_PAD.encode(challenge), "host": place.host() }))
            .into_response())
    };
    answer(begun.await)
}

pub(in super::super) fn no_randomness() -> Refused {
    let detail = "The system has no random numbers; try again";
    Box::new(problem(StatusCode::SERVICE_UNAVAILABLE, "no_randomness", detail))
}

/// The challenge that an answer is to. What it says of itself is checked where the answer is.
fn challenge_of(client_data: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct ClientData {
        challenge: String,
    }
    let data: ClientData = serde_json::from_slice(client_data).ok()?;
    URL_SAFE_NO_PAD.decode(data.challenge).ok()
}

impl Console {
    /// A challenge for a new passkey of a user.
    pub(in super::super) fn enrolment_challenge(&self, user: &str) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(self.challenges.issue(Purpose::Enrolment(user))?))
    }

    /// The new passkey of a user that an answer has. Its challenge is used up.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub(in super::super) fn new_passkey(
        &self,
        user: &str,
        place: &ConsoleHost,
        client_data: &[u8],
        authenticator_data: &[u8],
    ) -> Result<NewPasskey, PasskeyError> {
        let challenge = challenge_of(client_data).ok_or(PasskeyError::ClientData)?;
        if !self.challenges.is_issued(Purpose::Enrolment(user), &challenge) {
            return Err(PasskeyError::Challenge);
        }
        let host = place.host();
        let expected = Expected { challenge: &challenge, rp_id: &host, authority: place.0.as_str() };
        let made = verify_new(expected, client_data, authenticator_data)?;
        if self.challenges.spend(&challenge) { Ok(made) } else { Err(PasskeyError::Challenge) }
    }
}

/// The user whom a passkey logs in; `Err` says why it logs in nobody.
pub(super) async fn user_of(
    admin: &Admin,
    headers: &HeaderMap,
    login: &PasskeyLogin,
) -> Result<Result<User, LoginRefusal>, Refused> {
    let place = ConsoleHost::of(headers)?;
    let Some(reconciler) = &admin.reconciler else {
        return Ok(Err(LoginRefusal::NoDatabase));
    };
    let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let parts = (decoded(&login.client_data), decoded(&login.authenticator_data), decoded(&login.signature));
    let (Some(client_data), Some(data), Some(signature)) = parts else {
        return Ok(Err(PasskeyError::AuthenticatorData.into()));
    };
    let challenges = &admin.console.challenges;
    let challenge = challenge_of(&client_data).filter(|it| challenges.is_issued(Purpose::Login, it));
    let Some(challenge) = challenge else { return Ok(Err(PasskeyError::Challenge.into())) };
    let failed = |error| Box::new(store(&error)) as Refused;
    let users = reconciler.store().users().await.map_err(failed)?;
    let has = |user: &&User| user.passkeys.iter().any(|passkey| passkey.id == login.id);
    let Some(user) = users.iter().find(has).cloned() else { return Ok(Err(LoginRefusal::UnknownPasskey)) };
    let host = place.host();
    let expected = Expected { challenge: &challenge, rp_id: &host, authority: place.0.as_str() };
    let mut why = Ok(());
    let decide = |user: &User, now: u64| {
        let mut passkeys = user.passkeys.clone();
        let passkey = passkeys.iter_mut().find(|passkey| passkey.id == login.id)?;
        match used(passkey, expected, &client_data, &data, &signature) {
            // One of two logins with one answer is refused.
            Ok(counter) if challenges.spend(&challenge) => {
                (passkey.counter, passkey.used_at) = (counter, now);
                Some(passkeys)
            }
            Ok(_) => {
                why = Err(PasskeyError::Challenge);
                None
            }
            Err(error) => {
                why = Err(error);
                None
            }
        }
    };
    let is_accepted = reconciler.store().use_passkey(&user.name, decide).await.map_err(failed)?;
    if let Err(PasskeyError::Counter) = why {
        tracing::warn!(user = user.name, "the counter of a passkey went back: it may have been copied");
    }
    Ok(match (is_accepted, why) {
        (true, _) => Ok(user),
        (false, Err(error)) => Err(error.into()),
        (false, Ok(())) => Err(LoginRefusal::UnknownPasskey),
    })
}

fn used(
    passkey: &Passkey,
    expected: Expected<'_>,
    client_data: &[u8],
    data: &[u8],
    signature: &[u8],
) -> Result<u32, PasskeyError> {
    let key = URL_SAFE_NO_PAD.decode(&passkey.key).map_err(|_| PasskeyError::Key)?;
    if passkey.host != expected.rp_id {
        return Err(PasskeyError::Host);
    }
    verify_login(expected, client_data, data, signature, &key, passkey.counter)
}
