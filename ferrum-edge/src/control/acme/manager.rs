//! Looks after the certificates of one CA: what is stored, what is due, and orders one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gateway_core::config::model::{AcmeRules, CertificateFiles};
use tokio::task::JoinError;

use super::bundle::life;
use super::client::{AcmeClient, Transport, directory, get};
use super::failure::{Failure, MAX_UNREACHABLE, pause, pause_after_begun};
use super::jose::AccountKey;
use super::managed::Managed;
use super::order::Order;
use super::renewal::{Window, identifier, recheck};
use super::storage::{Attempts, Storage, StorageLock, StoredAccount};
use super::{Surroundings, on_disk, unix};

/// From one look at the certificates to the next.
const LOOK: Duration = Duration::from_secs(5);
/// From one look for challenges of other gateways to the next.
const LOOK_FOR_CHALLENGES: Duration = Duration::from_secs(1);
/// A certificate that was just issued is not ordered again before so long, or a quarter of its life, whatever its dates say.
const BETWEEN: Duration = Duration::from_secs(3600);

/// Looks after the certificates of one CA.
pub(super) struct Manager {
    around: Arc<dyn Surroundings>,
    transport: Arc<dyn Transport>,
    rules: Arc<AcmeRules>,
    storage: Storage,
    certificates: Vec<Managed>,
}

impl Manager {
    pub(super) fn new(
        around: Arc<dyn Surroundings>,
        transport: Arc<dyn Transport>,
        rules: Arc<AcmeRules>,
        certificates: &[CertificateFiles],
    ) -> Self {
        let named = certificates.iter().enumerate();
        let managed = named.filter_map(|(n, files)| {
            let at = format!("gateway.tls.certificates[{n}]");
            Some(Managed::new(at, files, files.acme.as_ref()?))
        });
        let certificates = managed.collect();
        let storage = Storage::new(&rules.storage);
        Self { around, transport, rules, storage, certificates }
    }

    /// Looks until it is dropped.
    pub(super) async fn run(mut self) -> Result<(), JoinError> {
        // A CA that takes its time must not keep others from being answered for.
        let answering = answer_for_all(self.around.clone(), self.storage.clone());
        let looking = async {
            loop {
                self.look().await?;
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            ended = answering => ended,
            ended = looking => ended,
        }
    }

    /// Looks at every certificate, and orders those that are due.
    pub(super) async fn look(&mut self) -> Result<(), JoinError> {
        self.read().await?;
        self.ask_when().await;
        self.note();
        self.take_requests();
        if self.around.is_ending() || !self.certificates.iter().any(|one| one.unsaved || self.is_due(one)) {
            return Ok(());
        }
        let storage = self.storage.clone();
        match on_disk(move || storage.lock()).await? {
            // Another gateway orders; what it gets will be here.
            Ok(None) => {}
            Ok(Some(lock)) => self.order_due(&Arc::new(lock)).await?,
            Err(error) => self.all_failed(&error.into(), None).await?,
        }
        self.note();
        Ok(())
    }

    async fn read(&mut self) -> Result<(), JoinError> {
        let (storage, mut certificates) = (self.storage.clone(), std::mem::take(&mut self.certificates));
        let now = unix(self.around.now());
        let read = on_disk(move || {
            certificates.iter_mut().for_each(|one| one.read(&storage, now));
            certificates
        });
        self.certificates = read.await?;
        Ok(())
    }

    fn note(&self) {
        let statuses = self.certificates.iter().map(|one| one.status(&self.rules)).collect();
        *self.around.counts().statuses() = statuses;
    }

    /// Takes what operators have asked for since the last look.
    fn take_requests(&mut self) {
        for one in &mut self.certificates {
            one.is_requested |= self.around.counts().take_renewal(&one.files.cert_path);
        }
    }

    fn is_due(&self, one: &Managed) -> bool {
        one.is_requested || one.due(&self.rules).is_some_and(|due| due <= self.around.now())
    }

    /// Asks the CA when it would have certificates renewed, where it is time to (RFC 9773).
    async fn ask_when(&mut self) {
        let now = self.around.now();
        let is_time = |one: &Managed| one.held.is_some() && one.asked_at.is_none_or(|at| at <= now);
        if self.around.is_ending() || !self.certificates.iter().any(is_time) {
            return;
        }
        let directory = directory(&*self.transport, &self.rules.directory_url).await;
        let url = match directory {
            Ok(directory) => directory.renewal_info,
            Err(failure) => {
                // What is held goes on being used, and is renewed by its dates.
                tracing::debug!(error = failure.text, "the CA can't be asked when to renew");
                None
            }
        };
        for n in 0..self.certificates.len() {
            if !is_time(&self.certificates[n]) {
                continue;
            }
            let certificate = self.certificates[n].held.as_ref().and_then(|held| identifier(&held.leaf));
            let asked = match (&url, certificate) {
                (Some(url), Some(certificate)) => {
                    let url = format!("{}/{certificate}", url.trim_end_matches('/'));
                    get(&*self.transport, &url).await.ok()
                }
                _ => None,
            };
            let one = &mut self.certificates[n];
            one.asked_at = Some(now + recheck(asked.as_ref().and_then(|answer| answer.retry_after)));
            // A CA that does not answer now has not taken back what it said before.
            one.window = asked.and_then(|answer| Window::read(&answer.body)).or(one.window);
        }
    }

    /// Orders what is due, now that no other gateway does.
    async fn order_due(&mut self, lock: &Arc<StorageLock>) -> Result<(), JoinError> {
        self.save(lock).await?;
        // One may have been got by another gateway meanwhile.
        self.read().await?;
        for n in 0..self.certificates.len() {
            if self.around.is_ending() || !self.is_due(&self.certificates[n]) {
                continue;
            }
            let names = self.certificates[n].shown();
            tracing::info!(names, ca = &*self.rules.directory_url, "ordering a certificate");
            let ordered = match self.begin(n, lock).await {
                Ok(()) => self.order(n, lock).await,
                failed => failed,
            };
            // Carried out or failed: after that its dates and pauses count again.
            self.certificates[n].is_requested = false;
            match ordered {
                Ok(()) => {
                    self.around.counts().issued.fetch_add(1, Relaxed);
                    tracing::info!(names, "a certificate was issued");
                }
                Err(failure) => {
                    self.failed(n, &failure, Some(lock)).await?;
                    if failure.is_for_all {
                        // The others come again on their own: this one may be asked to wait for days.
                        let asked = failure.retry_after.map(|asked| asked.min(MAX_UNREACHABLE));
                        return self.all_failed(&Failure { retry_after: asked, ..failure }, Some(lock)).await;
                    }
                }
            }
            self.note();
        }
        Ok(())
    }

    /// Writes what could not be written before.
    async fn save(&mut self, lock: &Arc<StorageLock>) -> Result<(), JoinError> {
        let (storage, mut certificates) = (self.storage.clone(), std::mem::take(&mut self.certificates));
        let (lock, now) = (lock.clone(), unix(self.around.now()));
        let saved = on_disk(move || {
            certificates.iter_mut().filter(|one| one.unsaved).for_each(|one| one.save(&storage, now, &lock));
            certificates
        });
        self.certificates = saved.await?;
        Ok(())
    }

    /// Notes that an order is begun: a process that is killed in the midst of it must not order anew at each start.
    async fn begin(&mut self, n: usize, lock: &Arc<StorageLock>) -> Result<(), Failure> {
        let now = self.around.now();
        let one = &mut self.certificates[n];
        let begun = one.attempts.begun.saturating_add(1);
        let not_before = Some(unix(now + pause_after_begun(begun)));
        one.attempts = Attempts { begun, not_before, ..one.attempts.clone() };
        let (storage, lock) = (self.storage.clone(), lock.clone());
        let (path, attempts) = (one.files.cert_path.clone(), one.attempts.clone());
        Ok(on_disk(move || storage.keep_attempts(&path, &attempts, &lock)).await??)
    }

    async fn order(&mut self, n: usize, lock: &Arc<StorageLock>) -> Result<(), Failure> {
        let mut client = self.client(lock).await?;
        let pem = match self.carry_out(n, &mut client, lock).await {
            // The CA was set up anew, or removed it: the same key gets another one.
            Err(failure) if failure.kind == "accountDoesNotExist" => {
                self.register(&mut client, lock).await?;
                self.carry_out(n, &mut client, lock).await?
            }
            other => other?,
        };
        let path = self.certificates[n].files.cert_path.clone();
        let between = life(&pem).map_or(BETWEEN, |life| BETWEEN.min(life / 4));
        let again = unix(self.around.now() + between);
        let (storage, lock) = (self.storage.clone(), lock.clone());
        let keep = move || {
            // First of all: whoever is interrupted after this has what was issued.
            storage.keep_certificate(&path, &pem, &lock)?;
            storage.keep_attempts(
                &path,
                &Attempts { not_before: Some(again), ..Attempts::default() },
                &lock,
            )?;
            storage.end_order(&path, &lock)
        };
        on_disk(keep).await??;
        self.certificates[n].unsaved = false;
        self.around.stored();
        Ok(self.read().await?)
    }

    async fn carry_out(
        &self,
        n: usize,
        client: &mut AcmeClient,
        lock: &Arc<StorageLock>,
    ) -> Result<String, Failure> {
        let one = &self.certificates[n];
        let replaced = one.held.as_ref().filter(|_| client.directory.renewal_info.is_some());
        let replaced = replaced.and_then(|held| identifier(&held.leaf));
        let challenge = self.rules.challenge;
        let (storage, around) = (&self.storage, &*self.around);
        let certificate = &*one.files.cert_path;
        let (names, now) = (&*one.names, self.around.now());
        let order = Order { client, storage, lock, around, challenge, certificate, names, now };
        order.carry_out(replaced.as_deref()).await
    }

    /// The account, made where there is none.
    async fn client(&self, lock: &Arc<StorageLock>) -> Result<AcmeClient, Failure> {
        let storage = self.storage.clone();
        let stored = on_disk(move || storage.account()).await??;
        let directory_url = self.rules.directory_url.to_string();
        let mut account = match stored {
            Some(account) if account.directory_url == directory_url => account,
            Some(_) => {
                let text = "the stored account is of another CA; move its folder away";
                return Err(Failure::here(text));
            }
            None => {
                let private_key = AccountKey::generate()?;
                let account = StoredAccount { directory_url, account_url: None, email: None, private_key };
                // Kept before anybody hears of it: there is one key for good.
                self.keep(account.clone(), lock).await?;
                account
            }
        };
        let directory = directory(&*self.transport, &self.rules.directory_url).await;
        let directory = directory.map_err(|failure| Failure { is_for_all: true, ..failure })?;
        let key = AccountKey::read(&account.private_key)?;
        let mut client = AcmeClient::new(self.transport.clone(), directory, key, account.account_url.clone());
        let email = self.rules.email.as_deref();
        if account.account_url.is_none() {
            self.register(&mut client, lock).await?;
        } else if account.email.as_deref() != email {
            match client.set_email(email).await {
                Ok(()) => {
                    account.email = email.map(str::to_owned);
                    self.keep(account, lock).await?;
                }
                // It is made again with the new one.
                Err(failure) if failure.kind == "accountDoesNotExist" => {
                    self.register(&mut client, lock).await?
                }
                // It only says where the CA writes to: certificates don't depend on it.
                Err(failure) if failure.is_final => {
                    tracing::warn!(error = failure.text, "the CA does not take the change of `email`");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(client)
    }

    /// Makes an account for the stored key, and keeps what the CA calls it.
    async fn register(&self, client: &mut AcmeClient, lock: &Arc<StorageLock>) -> Result<(), Failure> {
        let (email, external) = (self.rules.email.as_deref(), self.rules.external_account.as_ref());
        let registered = client.register(email, external).await;
        let account_url = registered
            .map_err(|failure| Failure { is_for_all: true, ..failure.while_doing("making the account") })?;
        let storage = self.storage.clone();
        let stored = on_disk(move || storage.account()).await??;
        let Some(mut account) = stored else { return Err(Failure::here("the account's file is gone")) };
        account.account_url = Some(account_url);
        account.email = email.map(str::to_owned);
        self.keep(account, lock).await
    }

    async fn keep(&self, account: StoredAccount, lock: &Arc<StorageLock>) -> Result<(), Failure> {
        let (storage, lock) = (self.storage.clone(), lock.clone());
        Ok(on_disk(move || storage.keep_account(&account, &lock)).await??)
    }

    /// Notes the same failure for all that are due.
    async fn all_failed(
        &mut self,
        failure: &Failure,
        lock: Option<&Arc<StorageLock>>,
    ) -> Result<(), JoinError> {
        for n in 0..self.certificates.len() {
            if self.is_due(&self.certificates[n]) {
                self.failed(n, failure, lock).await?;
            }
        }
        Ok(())
    }

    /// Notes a failure, here and for other gateways, and when to try again.
    async fn failed(
        &mut self,
        n: usize,
        failure: &Failure,
        lock: Option<&Arc<StorageLock>>,
    ) -> Result<(), JoinError> {
        self.around.counts().failed.fetch_add(1, Relaxed);
        let now = self.around.now();
        let one = &mut self.certificates[n];
        let failures = one.attempts.failures.saturating_add(1);
        // Days without a network say nothing about refusals, and don't make the pause after one longer.
        let (refusals, unreachable) = match failure.is_unreachable {
            true => (one.attempts.refusals, one.attempts.unreachable.saturating_add(1)),
            false => (one.attempts.refusals.saturating_add(1), 0),
        };
        let of_its_kind = if failure.is_unreachable { unreachable } else { refusals };
        let pause = pause(failure, of_its_kind, fastrand::f64());
        one.attempts = Attempts {
            failures,
            refusals,
            unreachable,
            begun: 0,
            failed_at: Some(unix(now)),
            problem: Some(failure.text.clone()),
            not_before: Some(unix(now + pause)),
        };
        let names = one.shown();
        let seconds = pause.as_secs();
        tracing::warn!(
            names,
            error = failure.text,
            next_try_in_seconds = seconds,
            "no certificate was issued"
        );
        let Some(lock) = lock else {
            one.unsaved = true;
            return Ok(());
        };
        let (storage, lock) = (self.storage.clone(), lock.clone());
        let (path, attempts) = (one.files.cert_path.clone(), one.attempts.clone());
        let kept = on_disk(move || storage.keep_attempts(&path, &attempts, &lock)).await?;
        one.unsaved = kept.is_err();
        Ok(())
    }
}

/// Answers the challenges of whichever gateway orders.
async fn answer_for_all(around: Arc<dyn Surroundings>, storage: Storage) -> Result<(), JoinError> {
    let mut ticks = tokio::time::interval(LOOK_FOR_CHALLENGES);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut published = Vec::new();
    loop {
        ticks.tick().await;
        let storage = storage.clone();
        match on_disk(move || storage.challenges()).await? {
            Ok(found) if found == published => {}
            Ok(found) => {
                if let Err(error) = around.answer(&found) {
                    tracing::warn!(%error, "a challenge can't be answered");
                }
                published = found;
            }
            Err(error) => tracing::debug!(%error, "challenges of other gateways can't be read"),
        }
    }
}
