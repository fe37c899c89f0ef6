//! One order for a certificate, from the names to the chain (RFC 8555, section 7.4).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_core::config::model::AcmeChallenge;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::bundle::Requested;
use super::client::{AcmeClient, CaAnswer};
use super::error::StorageError;
use super::failure::{CaProblem, Failure, cut};
use super::jose::base64url;
use super::storage::{Storage, StorageLock, StoredChallenge, StoredOrder};
use super::{Surroundings, on_disk, unix};

/// How long a CA may take for the check of all names, and as long again to issue.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// An order that was begun before so long is not gone on with.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// From one look to the next, where the CA does not say.
const LOOK: Duration = Duration::from_secs(1);
/// The longest pause before a look.
const MAX_LOOK: Duration = Duration::from_secs(30);
/// Other gateways on the storage look for challenges every second; the CA is told when each of them has.
const SETTLE: Duration = Duration::from_millis(2500);

/// An order as the CA shows it.
#[derive(Deserialize)]
struct OrderDocument {
    status: String,
    #[serde(default)]
    authorizations: Vec<String>,
    finalize: String,
    certificate: Option<String>,
    error: Option<CaProblem>,
}

/// What is to be shown for one name.
#[derive(Deserialize)]
struct Authorization {
    status: String,
    identifier: Identifier,
    #[serde(default)]
    challenges: Vec<ChallengeDocument>,
}

#[derive(Deserialize)]
struct Identifier {
    value: String,
}

/// One way to show it.
#[derive(Deserialize)]
struct ChallengeDocument {
    #[serde(rename = "type")]
    kind: String,
    url: String,
    #[serde(default)]
    token: String,
    error: Option<CaProblem>,
}

/// A name that is being checked.
struct Checked {
    authorization: String,
    challenge: String,
    answer: StoredChallenge,
}

/// What an order needs.
pub(super) struct Order<'a> {
    pub(super) client: &'a mut AcmeClient,
    pub(super) storage: &'a Storage,
    pub(super) lock: &'a Arc<StorageLock>,
    pub(super) around: &'a dyn Surroundings,
    pub(super) challenge: AcmeChallenge,
    /// The file that the certificate is for.
    pub(super) certificate: &'a Path,
    pub(super) names: &'a [Box<str>],
    pub(super) now: SystemTime,
}

impl Order<'_> {
    /// Orders a certificate, or goes on with the order before; what is to be stored comes back. `replaces` is what the CA
    /// calls the certificate before.
    pub(super) async fn carry_out(mut self, replaces: Option<&str>) -> Result<String, Failure> {
        if let Some(pem) = self.resume().await? {
            return Ok(pem);
        }
        let (url, order) = self.begin(replaces).await?;
        let proven = self.prove(&order).await;
        self.end_challenges().await;
        proven?;
        let order = self.until(&url, &["ready", "valid"]).await?;
        let requested = Requested::new(self.names)?;
        // Who can't keep the key has no use for a certificate: the CA is told to issue only once it is kept.
        self.keep(&url, &requested).await?;
        self.issue_or_forget(&url, order, &requested).await
    }

    /// Goes on with an order that the CA may have carried out already; `None` where there is none to go on with.
    async fn resume(&mut self) -> Result<Option<String>, Failure> {
        let (storage, certificate) = (self.storage.clone(), self.certificate.to_owned());
        let kept = match on_disk(move || storage.order(&certificate)).await? {
            Ok(None) => return Ok(None),
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(%error, "the order before can't be gone on with");
                None
            }
        };
        let kept = kept.filter(|kept| {
            kept.names == self.names && unix(self.now).abs_diff(kept.kept_at) < MAX_AGE.as_secs()
        });
        let kept =
            kept.and_then(|kept| Some((Requested::again(&kept.private_key, self.names).ok()?, kept.url)));
        let Some((requested, url)) = kept else {
            self.forget().await;
            return Ok(None);
        };
        let order: OrderDocument = match self.client.post(&url, None).await {
            Err(failure) if failure.is_final => {
                self.forget().await;
                return Ok(None);
            }
            answer => answer?.read()?,
        };
        if !matches!(order.status.as_str(), "ready" | "processing" | "valid") {
            self.forget().await;
            return Ok(None);
        }
        self.issue_or_forget(&url, order, &requested).await.map(Some)
    }

    async fn issue_or_forget(
        &mut self,
        url: &str,
        order: OrderDocument,
        requested: &Requested,
    ) -> Result<String, Failure> {
        let issued = self.issue(url, order, requested).await.map_err(Failure::after_finalizing);
        if issued.as_ref().is_err_and(|failure| failure.is_final) {
            self.forget().await;
        }
        issued
    }

    /// Has the CA issue, where it was not told to yet, and gets what it issued.
    async fn issue(
        &mut self,
        url: &str,
        mut order: OrderDocument,
        requested: &Requested,
    ) -> Result<String, Failure> {
        if order.status == "ready" {
            let request = json!({ "csr": base64url(&requested.request) });
            self.client
                .post(&order.finalize, Some(&request))
                .await
                .map_err(|it| it.while_doing("issuing"))?;
        }
        if order.status != "valid" {
            order = self.until(url, &["valid"]).await?;
        }
        let certificate = order.certificate.ok_or_else(|| Failure::here("the CA named no certificate"))?;
        let chain = self.client.post(&certificate, None).await?;
        let chain = String::from_utf8_lossy(&chain.body).into_owned();
        requested.with_chain(&chain, self.names, self.now).map_err(|error| Failure::from(error).for_good())
    }

    async fn keep(&self, url: &str, requested: &Requested) -> Result<(), Failure> {
        let (url, names) = (url.to_owned(), self.names.to_vec());
        let order = StoredOrder { url, names, private_key: requested.key(), kept_at: unix(self.now) };
        let (storage, lock) = (self.storage.clone(), self.lock.clone());
        let certificate = self.certificate.to_owned();
        Ok(on_disk(move || storage.keep_order(&certificate, &order, &lock)).await??)
    }

    /// The next try begins with a new order.
    async fn forget(&self) {
        let (storage, lock) = (self.storage.clone(), self.lock.clone());
        let certificate = self.certificate.to_owned();
        if let Err(failure) = done(on_disk(move || storage.end_order(&certificate, &lock)).await) {
            tracing::warn!(error = failure.text, "an order that is over is still there");
        }
    }

    async fn begin(&mut self, replaces: Option<&str>) -> Result<(String, OrderDocument), Failure> {
        let identifiers: Vec<Value> =
            self.names.iter().map(|name| json!({ "type": "dns", "value": &**name })).collect();
        let url = self.client.directory.new_order.clone();
        let mut order = json!({ "identifiers": identifiers });
        if let Some(certificate) = replaces {
            order["replaces"] = certificate.into();
        }
        let answer = match self.client.post(&url, Some(&order)).await {
            // It only says to the CA which one this replaces: whatever is wrong with that, the order itself may be right.
            Err(failure) if replaces.is_some() && is_about_replacing(&failure) => {
                self.client.post(&url, Some(&json!({ "identifiers": identifiers }))).await
            }
            other => other,
        };
        let answer: CaAnswer = answer.map_err(|failure| failure.while_doing("ordering"))?;
        let order = answer.read()?;
        Ok((answer.location.ok_or_else(|| Failure::here("the CA did not name the order"))?, order))
    }

    /// Has the CA check every name that it does not know to be ours.
    async fn prove(&mut self, order: &OrderDocument) -> Result<(), Failure> {
        let mut checked = Vec::new();
        for url in &order.authorizations {
            checked.extend(self.asked(url).await?);
        }
        if checked.is_empty() {
            return Ok(());
        }
        let answers: Vec<StoredChallenge> = checked.iter().map(|one| one.answer.clone()).collect();
        let (storage, lock, kept) = (self.storage.clone(), self.lock.clone(), answers.clone());
        let keep = move || kept.iter().try_for_each(|challenge| storage.keep_challenge(challenge, &lock));
        on_disk(keep).await??;
        self.around.answer(&answers)?;
        tokio::time::sleep(SETTLE).await;
        for one in &checked {
            self.client.post(&one.challenge, Some(&json!({}))).await.map_err(|it| one.failed(it))?;
        }
        let until = Instant::now() + TIMEOUT;
        for one in &checked {
            self.until_checked(one, until).await?;
        }
        Ok(())
    }

    /// What the CA asks for a name; `None` where it knows already that the name is ours.
    async fn asked(&mut self, url: &str) -> Result<Option<Checked>, Failure> {
        let asked: Authorization = self.client.post(url, None).await?.read()?;
        let name = cut(&asked.identifier.value.to_ascii_lowercase());
        match asked.status.as_str() {
            "valid" => return Ok(None),
            "pending" => {}
            other => return Err(Failure::here(format!("{name}: the CA's authorization is {other}"))),
        }
        let kind = self.challenge.as_str();
        let Some(challenge) = asked.challenges.iter().find(|challenge| challenge.kind == kind) else {
            let offered: Vec<&str> = asked.challenges.iter().map(|it| it.kind.as_str()).take(10).collect();
            // A CA may write anything there.
            let offered: Vec<String> = offered.into_iter().map(cut).collect();
            let offered = offered.join(", ");
            return Err(Failure::here(format!("{name}: the CA does not check by {kind}, only by {offered}")));
        };
        let answer = StoredChallenge {
            kind: kind.to_owned(),
            name,
            token: challenge.token.clone(),
            authorization: self.client.key.authorization(&challenge.token),
        };
        Ok(Some(Checked { authorization: url.to_owned(), challenge: challenge.url.clone(), answer }))
    }

    async fn until_checked(&mut self, one: &Checked, until: Instant) -> Result<(), Failure> {
        let mut looks = Looks::until(until);
        loop {
            let answer = self.client.post(&one.authorization, None).await?;
            let asked: Authorization = answer.read()?;
            match asked.status.as_str() {
                "valid" => return Ok(()),
                "pending" => {}
                other => {
                    let error = asked.challenges.iter().find_map(|challenge| challenge.error.as_ref());
                    let failure = match error {
                        Some(problem) => Failure::of(problem, None),
                        None => Failure::here(format!("the CA's authorization is {other}")),
                    };
                    return Err(one.failed(failure));
                }
            }
            if !looks.wait(answer.retry_after).await {
                return Err(one.failed(Failure::here("the CA has not checked it in time")));
            }
        }
    }

    async fn until(&mut self, url: &str, wanted: &[&str]) -> Result<OrderDocument, Failure> {
        let mut looks = Looks::until(Instant::now() + TIMEOUT);
        loop {
            let answer = self.client.post(url, None).await?;
            let order: OrderDocument = answer.read()?;
            if wanted.contains(&order.status.as_str()) {
                return Ok(order);
            }
            if order.status == "invalid" {
                let invalid = || Failure::here("the CA has called the order invalid");
                let failure = order.error.as_ref().map_or_else(invalid, |problem| Failure::of(problem, None));
                return Err(failure.for_good());
            }
            if !looks.wait(answer.retry_after).await {
                let text = format!("the CA has not finished the order in time; it is {}", order.status);
                return Err(Failure::here(text));
            }
        }
    }

    /// Nothing is answered any more, here or by others.
    async fn end_challenges(&self) {
        let (storage, lock) = (self.storage.clone(), self.lock.clone());
        let ended = done(on_disk(move || storage.end_challenges(&lock)).await);
        // Whatever became of the files: nothing is under way any more.
        let unanswered = self.around.answer(&[]).map_err(Failure::from);
        for failure in [ended, unanswered].into_iter().filter_map(Result::err) {
            tracing::warn!(error = failure.text, "challenges are still there");
        }
    }
}

/// What came of work on the disk, which may have ended by a panic.
fn done(ended: Result<Result<(), StorageError>, JoinError>) -> Result<(), Failure> {
    Ok(ended??)
}

impl Checked {
    fn failed(&self, failure: Failure) -> Failure {
        failure.while_doing(&self.answer.name)
    }
}

fn is_about_replacing(failure: &Failure) -> bool {
    matches!(failure.kind.as_str(), "alreadyReplaced" | "malformed" | "conflict" | "unauthorized")
}

/// Looks at something that takes a CA its time.
struct Looks {
    until: Instant,
    pause: Duration,
}

impl Looks {
    fn until(until: Instant) -> Self {
        Self { until, pause: LOOK }
    }

    /// Waits before the next look; false when there is none.
    async fn wait(&mut self, asked: Option<Duration>) -> bool {
        let pause = asked.unwrap_or(self.pause).clamp(LOOK, MAX_LOOK);
        self.pause = (self.pause * 2).min(MAX_LOOK / 3);
        if Instant::now() + pause > self.until {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
