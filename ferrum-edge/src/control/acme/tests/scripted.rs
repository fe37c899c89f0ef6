//! What a CA may answer, by one that is a script; the clock is the test's.

mod again;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use gateway_core::config::model::{AcmeChallenge, AcmeRules, CertificateFiles};
use gateway_core::http::reply::Cause;
use gateway_core::plugin::world::calls::CallError;
use gateway_telemetry::json::Rfc3339;
use http::{Method, Request, Response, StatusCode};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, IsCa, KeyPair,
    SerialNumber,
};
use serde_json::{Value, json};

use super::super::Surroundings;
use super::super::client::{Sending, Transport};
use super::super::error::{AnswerError, TransportError};
use super::super::manager::Manager;
use super::super::storage::StoredChallenge;
use super::*;
use crate::export::{AcmeCounts, AcmeStanding};

const DAY: u64 = 86_400;

/// An answer that is given in the place of the right one: what it answers, its status, `Retry-After` and problem.
struct Refusal {
    path: &'static str,
    status: u16,
    retry_after: Option<&'static str>,
    kind: &'static str,
}

/// A CA that does what it is told to.
struct Script {
    issuer: CertifiedIssuer<'static, KeyPair>,
    state: Mutex<CaState>,
}

#[derive(Default)]
struct CaState {
    is_away: bool,
    /// Requests that came, whether they were answered or not.
    asked: usize,
    /// Paths whose next answer is lost on its way back.
    lost: Vec<&'static str>,
    /// How long certificates are valid; 90 days where nothing is said.
    life: Option<Duration>,
    /// Two names are checked, each so long after the one before.
    slow: Option<Duration>,
    told_at: Option<tokio::time::Instant>,
    refusals: VecDeque<Refusal>,
    /// Paths that were asked for, with what was sent.
    heard: Vec<(String, Value)>,
    chains: HashMap<String, String>,
    /// What is answered to who asks when to renew.
    window: Option<(String, String)>,
    issued: u32,
    names: Vec<String>,
}

impl Script {
    fn new() -> Arc<Self> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Arc::new(Self { issuer, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, CaState> {
        self.state.lock().unwrap()
    }

    fn refuse(&self, path: &'static str, status: u16, kind: &'static str, retry_after: Option<&'static str>) {
        self.state().refusals.push_back(Refusal { path, status, retry_after, kind });
    }

    /// How often a path was asked for.
    fn count(&self, path: &str) -> usize {
        self.state().heard.iter().filter(|(heard, _)| heard == path).count()
    }

    fn issue(&self, payload: &Value) -> String {
        let request = URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap()).unwrap();
        let mut request = CertificateSigningRequestParams::from_der(&request.into()).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let life = self.state().life;
        let before = if life.is_some() { Duration::ZERO } else { Duration::from_secs(DAY) };
        let from = rcgen::date_time_ymd(1970, 1, 1) + now - before;
        request.params.not_before = from;
        request.params.not_after = from + life.unwrap_or(Duration::from_secs(90 * DAY));
        request.params.use_authority_key_identifier_extension = true;
        request.params.serial_number = Some(SerialNumber::from(u64::from(self.state().issued) + 1));
        request.signed_by(&self.issuer).unwrap().pem() + self.issuer.pem().as_str()
    }

    fn answer(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        self.state().asked += 1;
        if self.state().is_away {
            return Err(lost("connection refused"));
        }
        let path = request.uri().path().to_owned();
        let sent: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let part = |name: &str| -> Value {
            let text = sent[name].as_str().unwrap_or_default();
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap_or_default()
        };
        let (header, payload) = (part("protected"), part("payload"));
        if *request.method() == Method::POST {
            assert_eq!(header["url"], request.uri().to_string(), "what is signed names where it goes");
            assert!(header["nonce"].is_string());
            assert_eq!(header["kid"].is_string(), path != "/account", "{path}");
        }
        self.state().heard.push((path.clone(), payload.clone()));
        let mut state = self.state();
        if let Some(at) = state.refusals.iter().position(|refusal| refusal.path == path) {
            let Refusal { status, retry_after, kind, .. } = state.refusals.remove(at).unwrap();
            let problem = json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "no" });
            let mut response = Response::builder().status(status).header("replay-nonce", "again");
            if let Some(after) = retry_after {
                response = response.header("retry-after", after);
            }
            return Ok(response.body(problem.to_string().into()).unwrap());
        }
        drop(state);
        Ok(self.right_answer(&path, &payload))
    }

    fn right_answer(&self, path: &str, payload: &Value) -> Response<Bytes> {
        let url = |path: &str| format!("https://ca.test{path}");
        let order = |state: &str| {
            let names = if self.state().slow.is_some() { 1..=2 } else { 1..=1 };
            let names: Vec<String> = names.map(|n| url(&format!("/authorization/{n}"))).collect();
            json!({ "status": state, "authorizations": names, "finalize": url("/finalize"),
                "certificate": url("/certificate") })
        };
        let body = match path {
            "/directory" => json!({ "newNonce": url("/nonce"), "newAccount": url("/account"),
                "newOrder": url("/order"), "renewalInfo": self.state().window.as_ref().map(|_| url("/renewal")) }),
            "/order" if payload.is_object() => {
                let names = payload["identifiers"].as_array().unwrap().iter();
                self.state().names = names.map(|name| name["value"].as_str().unwrap().to_owned()).collect();
                self.state().chains.clear();
                order("pending")
            }
            "/order" if self.state().chains.is_empty() => order("ready"),
            "/order" => order("valid"),
            "/challenge" => {
                self.state().told_at.get_or_insert_with(tokio::time::Instant::now);
                json!({})
            }
            path if path.starts_with("/authorization/") => {
                let after = self.state().slow.unwrap_or_default() * if path.ends_with('1') { 1 } else { 2 };
                let is_told = self.state().told_at.is_some_and(|at| at.elapsed() >= after);
                let name = self.state().names.first().cloned();
                json!({ "status": if is_told { "valid" } else { "pending" },
                    "identifier": { "type": "dns", "value": name },
                    "challenges": [{ "type": "http-01", "url": url("/challenge"), "token": "tok" }] })
            }
            "/finalize" => {
                let chain = self.issue(payload);
                let mut state = self.state();
                state.issued += 1;
                state.chains.insert("/certificate".to_owned(), chain);
                drop(state);
                order("processing")
            }
            "/certificate" => {
                let chain = self.state().chains[path].clone();
                return Response::builder().header("replay-nonce", "n").body(chain.into()).unwrap();
            }
            path if path.starts_with("/renewal/") => {
                let (start, end) = self.state().window.clone().unwrap();
                json!({ "suggestedWindow": { "start": start, "end": end } })
            }
            _ => json!({}),
        };
        let response = Response::builder().status(StatusCode::OK).header("replay-nonce", "n");
        let location = if path == "/account" { url("/account/1") } else { url("/order") };
        response.header("location", location).body(body.to_string().into()).unwrap()
    }
}

/// What a call comes to whose connection fails.
fn lost(detail: &str) -> TransportError {
    TransportError::Call(CallError { cause: Cause::UpstreamClosed, detail: Some(detail.to_owned()) })
}

impl Transport for Script {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        let path = request.uri().path();
        let mut answer = self.answer(&request);
        let mut state = self.state();
        if let Some(at) = state.lost.iter().position(|lost| *lost == path) {
            state.lost.remove(at);
            answer = Err(lost("connection reset"));
        }
        drop(state);
        Box::pin(std::future::ready(answer))
    }
}

/// What is around a manager, by hand.
#[derive(Default)]
struct Around {
    ahead: AtomicU64,
    stored: AtomicU32,
    published: Mutex<Vec<Vec<StoredChallenge>>>,
    counts: AcmeCounts,
}

impl Surroundings for Around {
    fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.ahead.load(Ordering::Relaxed))
    }

    fn answer(&self, challenges: &[StoredChallenge]) -> Result<(), AnswerError> {
        self.published.lock().unwrap().push(challenges.to_vec());
        Ok(())
    }

    fn stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    fn is_ending(&self) -> bool {
        false
    }

    fn counts(&self) -> &AcmeCounts {
        &self.counts
    }
}

/// A manager with its CA and what is around it.
struct Bench {
    folder: Folder,
    ca: Arc<Script>,
    around: Arc<Around>,
    manager: Manager,
    names: &'static [&'static str],
    email: Option<&'static str>,
}

impl Bench {
    fn new() -> Self {
        Self::of(&["shop"])
    }

    /// With a certificate each for these names below `test`.
    fn of(names: &'static [&'static str]) -> Self {
        let (folder, ca, around) = (Folder::new(), Script::new(), Arc::<Around>::default());
        let manager = Self::manager(&folder, &ca, &around, names, None);
        Self { folder, ca, around, manager, names, email: None }
    }

    fn manager(
        folder: &Folder,
        ca: &Arc<Script>,
        around: &Arc<Around>,
        names: &[&str],
        email: Option<&str>,
    ) -> Manager {
        let rules = AcmeRules {
            directory_url: "https://ca.test/directory".into(),
            email: email.map(Into::into),
            storage: folder.path("ca"),
            challenge: AcmeChallenge::Http01,
            external_account: None,
            root_ca_path: None,
            renew_before: None,
        };
        let files = names.iter().map(|name| {
            let path = folder.path(&format!("ca/certificates/{name}.pem"));
            let acme = Some(Arc::from([format!("{name}.test").into_boxed_str()]));
            CertificateFiles { cert_path: path.clone(), key_path: path, acme }
        });
        Manager::new(around.clone(), ca.clone(), Arc::new(rules), &files.collect::<Vec<_>>())
    }

    /// As after a start.
    fn restart(&mut self) {
        self.manager = Self::manager(&self.folder, &self.ca, &self.around, self.names, self.email);
    }

    async fn look(&mut self) -> AcmeStatus {
        self.manager.look().await.unwrap();
        self.status()
    }

    fn status(&self) -> AcmeStatus {
        self.around.counts.statuses()[0].clone()
    }

    /// Sets the clock so many seconds ahead.
    async fn at(&mut self, seconds: u64) -> AcmeStatus {
        self.around.ahead.store(seconds, Ordering::Relaxed);
        self.look().await
    }

    fn issued(&self) -> u32 {
        self.ca.state().issued
    }
}

#[tokio::test(start_paused = true)]
async fn nonces_that_are_refused_are_replaced() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        bench.ca.refuse("/order", 400, "badNonce", None);
    }
    bench.ca.refuse("/account", 400, "badNonce", None);
    assert_eq!(bench.look().await.standing(), AcmeStanding::Good);
    assert_eq!((bench.issued(), bench.around.stored.load(Ordering::Relaxed)), (1, 1));
    let published = bench.around.published.lock().unwrap().clone();
    assert_eq!((published.len(), published[0][0].token.as_str(), published[1].len()), (2, "tok", 0));
}

#[tokio::test(start_paused = true)]
async fn renewal_fires_when_a_third_of_the_life_is_left_and_not_before() {
    let mut bench = Bench::new();
    let status = bench.look().await;
    let due = status.next_order_at.unwrap();
    let ends = status.ends_at.unwrap();
    let left = ends.duration_since(due).unwrap().as_secs();
    assert!((30 * DAY..=32 * DAY).contains(&left), "{left}");
    let ahead = due.duration_since(SystemTime::now()).unwrap().as_secs();
    bench.at(ahead - 60).await;
    assert_eq!(bench.issued(), 1);
    bench.at(ahead + 60).await;
    assert_eq!(bench.issued(), 2);
    let (account, key) = (bench.ca.count("/account"), bench.folder.path("ca/account.json"));
    assert_eq!(account, 1, "there is one account");
    assert!(fs::read_to_string(key).unwrap().contains("https://ca.test/account/1"));
    // What was just issued is not ordered at once again, though it is due by the clock.
    bench.at(ahead + 120).await;
    assert_eq!(bench.issued(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_operator_renews_a_certificate_before_its_time() {
    let mut bench = Bench::new();
    bench.look().await;
    assert_eq!(bench.around.counts.request_renewal("other.test"), None);
    let names = bench.status().names;
    bench.look().await;
    assert_eq!(bench.issued(), 1);
    assert_eq!(bench.around.counts.request_renewal(&names[0].to_uppercase()), Some(names));
    bench.look().await;
    assert_eq!(bench.issued(), 2);
    bench.look().await;
    assert_eq!(bench.issued(), 2, "once for each request");
}

#[tokio::test(start_paused = true)]
async fn the_ca_says_when_to_renew() {
    let mut bench = Bench::new();
    let date = |days: u64| Rfc3339(SystemTime::now() + Duration::from_secs(days * DAY)).to_string();
    bench.ca.state().window = Some((date(10), date(11)));
    bench.look().await;
    // It was asked when the certificate was there.
    let status = bench.look().await;
    let due = status.next_order_at.unwrap().duration_since(SystemTime::now()).unwrap().as_secs();
    assert!((10 * DAY - 60..=11 * DAY).contains(&due), "{due}");
    // It changes its mind, as for a mass revocation.
    bench.ca.state().window = Some(("2020-01-01T00:00:00Z".into(), "2020-01-02T00:00:00Z".into()));
    bench.at(7 * 3600).await;
    assert_eq!(bench.issued(), 2);
    let orders: Vec<Value> = bench
        .ca
        .state()
        .heard
        .iter()
        .filter(|(path, _)| path == "/order")
        .map(|(_, it)| it.clone())
        .collect();
    let replaced: Vec<&str> = orders.iter().filter_map(|order| order["replaces"].as_str()).collect();
    assert_eq!(replaced.len(), 1, "the second order says what it replaces");
    assert!(bench.ca.count(&format!("/renewal/{}", replaced[0])) > 0, "by the name it was asked by");
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_does_not_take_what_is_replaced_gets_the_order_without_it() {
    let mut bench = Bench::new();
    bench.ca.state().window = Some(("2020-01-01T00:00:00Z".into(), "2020-01-02T00:00:00Z".into()));
    bench.look().await;
    bench.ca.refuse("/order", 409, "alreadyReplaced", None);
    let status = bench.at(2 * 3600).await;
    assert_eq!((bench.issued(), status.problem), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_kept_to_also_after_a_start() {
    let mut bench = Bench::new();
    bench.ca.refuse("/order", 429, "rateLimited", Some("86400"));
    let status = bench.look().await;
    assert_eq!(status.problem.as_deref(), Some("ordering: the CA's rate limit is reached: no"));
    let pause = status.next_order_at.unwrap().duration_since(status.failed_at.unwrap()).unwrap();
    assert_eq!(pause.as_secs(), DAY);
    bench.at(DAY - 60).await;
    bench.restart();
    assert_eq!(bench.look().await.failures, 1);
    assert_eq!((bench.ca.count("/order"), bench.issued()), (1, 0));
    let status = bench.at(DAY + 60).await;
    assert_eq!((status.standing(), status.failures), (AcmeStanding::Good, 0));
}

#[tokio::test(start_paused = true)]
async fn a_ca_that_is_away_costs_what_is_stored_nothing() {
    let mut bench = Bench::new();
    bench.look().await;
    bench.ca.state().is_away = true;
    bench.restart();
    assert_eq!(bench.look().await.standing(), AcmeStanding::Good);
    let failed = bench.at(70 * DAY).await;
    assert_eq!((failed.standing(), failed.failures), (AcmeStanding::Failing, 1));
    assert!(failed.warning().unwrap().message.contains("the certificate before goes on being used"));
    let failed = bench.at(70 * DAY + 60).await;
    assert_eq!(failed.failures, 2, "pauses are short while it can't be reached");
    bench.ca.state().is_away = false;
    bench.at(70 * DAY + 3600).await;
    assert_eq!(bench.issued(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_the_ca_forgot_is_made_again_with_the_same_key() {
    let mut bench = Bench::new();
    bench.look().await;
    let key = || Storage::new(&bench.folder.path("ca")).account().unwrap().unwrap().private_key;
    let before = key();
    bench.ca.refuse("/order", 400, "accountDoesNotExist", None);
    bench.around.ahead.store(80 * DAY, Ordering::Relaxed);
    bench.manager.look().await.unwrap();
    assert_eq!((bench.issued(), bench.ca.count("/account")), (2, 2));
    assert_eq!(key(), before);
}

#[tokio::test(start_paused = true)]
async fn storage_that_can_not_be_written_is_said() {
    let mut bench = Bench::new();
    fs::create_dir(bench.folder.path("ca")).unwrap();
    fs::write(bench.folder.path("ca/attempts"), "a file").unwrap();
    let status = bench.look().await;
    assert!(status.problem.unwrap().contains("can't be made"));
    assert_eq!(bench.issued(), 0);
    fs::remove_file(bench.folder.path("ca/attempts")).unwrap();
    assert_eq!(bench.at(3600).await.standing(), AcmeStanding::Good);
}
