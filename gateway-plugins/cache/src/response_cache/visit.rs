//! What the cache does with one request, and with its response.

use std::sync::Arc;
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Seat, Step, Verdict};
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::ResponseCache;
use super::answer::{self, Content, How};
use super::control::RequestControl;
use super::fill::Fill;
use super::flights::{FlightRole, Lead, Phase};
use super::key::{self, Chooser, Key};
use super::policy::{Asker, Use};
use super::store::{Lookup, Start};
use super::stored::Stored;
use super::tier::Tier;

/// Fields of a request that the cache sends on in its own words, and puts back when the response is there.
pub(super) const TAKEN: [http::HeaderName; 3] = [ACCEPT_ENCODING, IF_NONE_MATCH, IF_MODIFIED_SINCE];

/// What the response hook has to know of a request.
pub(super) struct CacheVisit {
    pub(super) key: Key,
    pub(super) role: Role,
}

/// Why it came.
pub(super) enum Role {
    /// It may change what is stored.
    Unsafe,
    /// Its response is not stored: why it is forwarded, and more about that.
    Bypass(&'static str, &'static str),
    /// It fetches a response.
    Fetch(Box<Fetch>),
}

/// A request whose response may be stored.
pub(super) struct Fetch {
    /// Others wait for it.
    pub(super) lead: Option<Lead<Fill>>,
    /// What is stored already; the target is asked whether it is still right.
    pub(super) known: Option<Arc<Stored>>,
    pub(super) asks_again: bool,
    pub(super) start: Start,
    pub(super) why: &'static str,
    pub(super) asker: Asker,
    pub(super) accept_encoding: &'static str,
    pub(super) taken: HeaderMap,
}

/// What a [`Fetch`] begins with: what is stored, why the target is asked, the lead, and when it began, where that was before.
type Beginning = (Option<Arc<Stored>>, &'static str, Option<Lead<Fill>>, Option<Start>);

/// What a request asks for.
struct Wanted {
    key: Key,
    asked: RequestControl,
    accept_encoding: &'static str,
    /// Where it is found, where there are several places.
    tier: Option<Tier>,
}

/// What is to be done about a request.
enum Course {
    Answer(Box<Response<Body>>, How),
    /// It is not in the store, and whatever the target says won't be.
    Bypass(&'static str, &'static str),
    /// As [`Fetch::why`]; whether others may wait for it.
    Fetch(Option<Arc<Stored>>, &'static str, bool),
}

impl Wanted {
    fn chooser<'e>(&self, exchange: &'e Exchange) -> Chooser<'e> {
        Chooser { headers: &exchange.request.headers, accept_encoding: self.accept_encoding }
    }
}

impl ResponseCache {
    /// A GET or HEAD came.
    pub(super) fn arrive<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if has_body(exchange) {
            return self.bypass(exchange, seat, Key::default(), "bypass", "BODY");
        }
        let Some(key) = self.recipe.key(exchange, seat) else {
            return self.bypass(exchange, seat, Key::default(), "bypass", "KEY");
        };
        let headers = &exchange.request.headers;
        if headers.contains_key(IF_MATCH) || headers.contains_key(IF_UNMODIFIED_SINCE) {
            return self.bypass(exchange, seat, key, "bypass", "PRECONDITION");
        }
        let asked = if self.obeys_clients { RequestControl::of(headers) } else { RequestControl::default() };
        let tier = self.store.tiers.any().then_some(Tier::Memory);
        let wanted = Wanted { key, asked, accept_encoding: key::accept_encoding(headers), tier };
        let now = exchange.started;
        let course = self.course(&wanted, exchange, seat, now);
        if tier.is_some() && self.looks_below(&wanted, &course) {
            return Step::wait(self.look_below(exchange, seat, wanted, course));
        }
        let (known, why, waits) = match course {
            Course::Answer(response, how) => {
                return Step::Reply(Box::new(self.reply(exchange, *response, how)));
            }
            _ if wanted.asked.only_if_cached => return self.refuse(exchange),
            Course::Bypass(why, detail) => return self.bypass(exchange, seat, wanted.key, why, detail),
            Course::Fetch(known, why, waits) => (known, why, waits),
        };
        if !waits {
            self.fetch(exchange, seat, wanted, (known, why, None, None));
            return Step::Next;
        }
        match self.flights.join(self.flight(&wanted, exchange, known.as_ref())) {
            FlightRole::Lead(lead) => {
                self.fetch(exchange, seat, wanted, (known, why, Some(lead), None));
                Step::Next
            }
            FlightRole::Behind(phase) => Step::wait(self.follow(exchange, seat, wanted, phase)),
        }
    }

    /// Whether the tiers below memory could have what memory has not.
    fn looks_below(&self, wanted: &Wanted, course: &Course) -> bool {
        let knows_better = match course {
            Course::Answer(..) => false,
            // Memory knows that nothing is stored, or the client wants it fetched anew.
            Course::Fetch(_, "miss" | "request", _) => false,
            Course::Fetch(..) | Course::Bypass(..) => true,
        };
        knows_better && !wanted.asked.no_cache && self.store.tiers.is_worth_asking(&wanted.key)
    }

    /// Looks into the tiers below memory, and goes on by what is found. Others that ask for the same wait.
    async fn look_below(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        mut wanted: Wanted,
        course: Course,
    ) -> Verdict {
        let mut lead = None;
        if let Course::Fetch(known, _, true) = &course {
            match self.flights.join(self.flight(&wanted, exchange, known.as_ref())) {
                FlightRole::Lead(it) => lead = Some(it),
                FlightRole::Behind(phase) => return self.follow(exchange, seat, wanted, phase).await,
            }
        }
        let mut start = self.store.start(&wanted.key);
        let chooser = Chooser { headers: &exchange.request.headers, accept_encoding: wanted.accept_encoding };
        let (found, since) = self.store.tiers.find(&wanted.key, &chooser, Instant::now()).await;
        start.since = since.or(start.since);
        let mut course = course;
        if let Some((stored, tier)) = found {
            let known = match &course {
                Course::Fetch(Some(known), ..) => Some(known.head.received),
                _ => None,
            };
            // What memory has may be the later one.
            if known.is_none_or(|known| stored.head.received > known)
                && self.store.promote(&wanted.key, &stored, &start)
            {
                wanted.tier = Some(tier);
                course = self.course(&wanted, exchange, seat, Instant::now());
            }
        }
        match course {
            Course::Answer(response, how) => {
                if let Some(lead) = &lead {
                    lead.settle();
                }
                if let Some(tier) = wanted.tier {
                    exchange.note("response_cache.tier", tier.word());
                }
                Verdict::Reply(Box::new(self.reply(exchange, *response, how)))
            }
            _ if wanted.asked.only_if_cached => Verdict::Reply(Box::new(self.not_cached(exchange))),
            Course::Bypass(why, detail) => {
                let role = Role::Bypass(why, detail);
                exchange.state.put(seat, Some(CacheVisit { key: wanted.key, role }));
                Verdict::Next
            }
            Course::Fetch(known, why, waits) => {
                self.fetch(exchange, seat, wanted, (known, why, lead.filter(|_| waits), Some(start)));
                Verdict::Next
            }
        }
    }

    /// What is to be done about a request, by what is stored.
    fn course(&self, wanted: &Wanted, exchange: &mut Exchange, seat: Seat<'_>, now: Instant) -> Course {
        let found = self.store.find(&wanted.key, &wanted.chooser(exchange), now);
        let (known, why) = match found {
            Lookup::Response(stored) => {
                let (age, stale) = (stored.head.age(now), stored.stale_for(now));
                let how = match stored.head.policy.allows(age, stale, &wanted.asked) {
                    Use::Fresh => {
                        if self.is_due(&stored, age, stale) {
                            self.counts.ahead.add(1);
                            self.refresh(wanted, exchange, seat, &stored);
                        }
                        Some(How::Hit)
                    }
                    Use::WhileRevalidated => {
                        self.refresh(wanted, exchange, seat, &stored);
                        Some(How::WhileRevalidated)
                    }
                    Use::Validated => None,
                };
                if let Some(how) = how {
                    let answer = self.kept_answer(&stored, exchange, now, how, wanted.tier);
                    return Course::Answer(Box::new(answer), how);
                }
                let is_fresh =
                    stored.head.policy.allows(age, stale, &RequestControl::default()) == Use::Fresh;
                (Some(stored), if is_fresh { "request" } else { "stale" })
            }
            Lookup::Others(_) => (None, "vary-miss"),
            Lookup::Pass => (None, "miss"),
            Lookup::Nothing => (None, "uri-miss"),
        };
        let headers = &exchange.request.headers;
        let detail = match () {
            () if *exchange.method() == Method::HEAD => "HEAD",
            () if headers.contains_key(RANGE) => "RANGE",
            () if wanted.asked.no_store => "NO_STORE",
            () if self.recipe.is_overridden(headers) => "OVERRIDE",
            () => "",
        };
        if !detail.is_empty() {
            return Course::Bypass("bypass", detail);
        }
        // Who asks for an answer of its own, or may get one, neither waits nor is waited for.
        let waits = !matches!(why, "request" | "miss") && !self.recipe.is_somebody(exchange, seat);
        Course::Fetch(known, why, waits)
    }

    /// What requests for the same have in common.
    fn flight(&self, wanted: &Wanted, exchange: &Exchange, known: Option<&Arc<Stored>>) -> Arc<[u8]> {
        let chooser = wanted.chooser(exchange);
        let variant = match (known.cloned(), self.store.find(&wanted.key, &chooser, exchange.started)) {
            (Some(stored), _) | (None, Lookup::Others(stored)) => Some(stored.head.variant.clone()),
            _ => None,
        };
        chooser.flight(&wanted.key, variant.as_ref())
    }

    pub(super) fn kept_answer(
        &self,
        stored: &Stored,
        exchange: &Exchange,
        now: Instant,
        how: How,
        tier: Option<Tier>,
    ) -> Response<Body> {
        let mut response =
            answer::response(&Content::Stored(stored), exchange.method(), &exchange.request.headers, now);
        self.counts.served.add(response.body().exact_length().unwrap_or(0));
        let ttl = stored.head.policy.ttl(stored.head.age(now));
        self.labels.put(response.headers_mut(), how, Some(ttl), tier);
        response
    }

    /// Whether a fresh response is so near to its end that it is fetched anew already.
    fn is_due(&self, stored: &Stored, age: Duration, stale: Option<Duration>) -> bool {
        let lifetime = stored.head.policy.lifetime;
        self.refresh_ahead > 0 && stale.is_none() && age >= lifetime * (100 - self.refresh_ahead) / 100
    }

    pub(super) fn reply(&self, exchange: &mut Exchange, response: Response<Body>, how: How) -> Reply {
        self.note(exchange, how);
        answer::reply(response, how)
    }

    pub(super) fn note(&self, exchange: &mut Exchange, how: How) {
        self.counts.add(how.word());
        exchange.note("response_cache.outcome", how.word());
    }

    /// `only-if-cached`, and it is not (RFC 9111 §5.2.1.7).
    fn refuse<'a>(&self, exchange: &mut Exchange) -> Step<'a> {
        Step::reply(self.not_cached(exchange))
    }

    fn not_cached(&self, exchange: &mut Exchange) -> Reply {
        self.counts.add("only_if_cached");
        exchange.note("response_cache.outcome", "only_if_cached");
        let reply = Reply::new(Cause::Plugin).status(StatusCode::GATEWAY_TIMEOUT);
        reply.detail("there is no stored response for this request").reason("only_if_cached")
    }

    fn bypass<'a>(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'a>,
        key: Key,
        why: &'static str,
        detail: &'static str,
    ) -> Step<'a> {
        exchange.state.put(seat, Some(CacheVisit { key, role: Role::Bypass(why, detail) }));
        Step::Next
    }

    /// A request that may change what is stored.
    pub(super) fn watch(&self, exchange: &mut Exchange, seat: Seat<'_>) {
        if let Some(key) = self.recipe.place(exchange, seat) {
            exchange.state.put(seat, Some(CacheVisit { key, role: Role::Unsafe }));
        }
    }

    /// Sends a request to the target for its response to be stored.
    fn fetch(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        wanted: Wanted,
        (known, why, lead, start): Beginning,
    ) {
        let asker = Asker {
            is_somebody: self.recipe.is_somebody(exchange, seat),
            has_cookie: self.recipe.has_cookie(&exchange.request.headers),
        };
        let headers = &mut exchange.request.headers;
        let taken = take(headers);
        if why == "miss" {
            // Nothing is likely to be stored: let the target answer the client's own conditions.
            put_back(headers, taken.clone(), &[IF_NONE_MATCH, IF_MODIFIED_SINCE]);
        }
        if !wanted.accept_encoding.is_empty() {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(wanted.accept_encoding));
        }
        let asks_again = known.as_ref().is_some_and(|known| answer::ask_again(headers, &known.head.headers));
        let start = start.unwrap_or_else(|| self.store.start(&wanted.key));
        let accept_encoding = wanted.accept_encoding;
        let fetch = Fetch { lead, known, asks_again, start, why, asker, accept_encoding, taken };
        exchange.state.put(seat, Some(CacheVisit { key: wanted.key, role: Role::Fetch(Box::new(fetch)) }));
    }

    /// The target's 304 is not about what is stored: that goes, and the target is asked for all of it.
    pub(super) fn fetch_anew(&self, key: Key, fetch: Fetch, exchange: &mut Exchange, seat: Seat<'_>) {
        self.store.invalidate(&key, None);
        let (asked, accept_encoding) = (RequestControl::default(), fetch.accept_encoding);
        let wanted = Wanted { key, asked, accept_encoding, tier: None };
        self.fetch(exchange, seat, wanted, (None, fetch.why, fetch.lead, None));
        exchange.ask_again();
    }

    /// Has a stale response fetched anew without this client.
    fn refresh(&self, wanted: &Wanted, exchange: &mut Exchange, seat: Seat<'_>, stored: &Arc<Stored>) {
        // What comes back is stored for all: it must not be asked for with what makes an answer somebody's own.
        if wanted.asked.no_store || self.recipe.is_overridden(&exchange.request.headers) {
            return;
        }
        let chooser = wanted.chooser(exchange);
        let flight = chooser.flight(&wanted.key, Some(&stored.head.variant));
        let FlightRole::Lead(lead) = self.flights.join(flight) else { return };
        let Some(mut fork) = exchange.fork(seat) else { return };
        fork.exchange.request.method = Method::GET;
        for name in [RANGE, IF_RANGE] {
            fork.exchange.request.headers.remove(name);
        }
        let wanted = Wanted {
            key: wanted.key.clone(),
            asked: RequestControl::default(),
            accept_encoding: wanted.accept_encoding,
            tier: None,
        };
        self.fetch(&mut fork.exchange, seat, wanted, (Some(stored.clone()), "stale", Some(lead), None));
        exchange.detach(fork);
    }

    /// Waits for another request's response.
    async fn follow(
        &self,
        exchange: &mut Exchange,
        seat: Seat<'_>,
        wanted: Wanted,
        mut phase: Receiver<Phase<Fill>>,
    ) -> Verdict {
        let deadline = Instant::now() + self.wait;
        loop {
            let ahead = tokio::time::timeout_at(deadline, next(&mut phase)).await;
            match ahead {
                Err(_) => break,
                Ok(Next::Answered(fill)) => {
                    let now = Instant::now();
                    let none = RequestControl::default();
                    let is_fresh = fill.head.policy.allows(fill.head.age(now), None, &none) == Use::Fresh;
                    if !is_fresh || !wanted.chooser(exchange).fits(&fill.head.variant) {
                        break;
                    }
                    if fill.length.is_none() {
                        // How much will come is not known; it may be too much to be shared.
                        continue;
                    }
                    let mut response = answer::response(
                        &Content::Coming(&fill),
                        exchange.method(),
                        &exchange.request.headers,
                        now,
                    );
                    self.labels.put(response.headers_mut(), How::Collapsed, None, None);
                    return Verdict::Reply(Box::new(self.reply(exchange, response, How::Collapsed)));
                }
                Ok(over) => match self.course(&wanted, exchange, seat, Instant::now()) {
                    Course::Answer(response, how) => {
                        return Verdict::Reply(Box::new(self.reply(exchange, *response, how)));
                    }
                    Course::Fetch(known, why, true) if matches!(over, Next::Gone) => {
                        match self.flights.join(self.flight(&wanted, exchange, known.as_ref())) {
                            FlightRole::Behind(another) => phase = another,
                            FlightRole::Lead(lead) => {
                                self.fetch(exchange, seat, wanted, (known, why, Some(lead), None));
                                return Verdict::Next;
                            }
                        }
                    }
                    Course::Fetch(..) | Course::Bypass(..) => break,
                },
            }
        }
        self.fetch(exchange, seat, wanted, (None, "miss", None, None));
        Verdict::Next
    }
}

/// What those behind get to know.
enum Next {
    /// A response that is coming.
    Answered(Arc<Fill>),
    /// There is nothing to wait for any more.
    Settled,
    /// The one ahead is gone, without a response.
    Gone,
}

async fn next(phase: &mut Receiver<Phase<Fill>>) -> Next {
    if phase.changed().await.is_err() {
        let had_answer = !matches!(*phase.borrow(), Phase::Asked);
        return if had_answer { Next::Settled } else { Next::Gone };
    }
    match &*phase.borrow_and_update() {
        Phase::Answered(fill) => Next::Answered(fill.clone()),
        Phase::Settled => Next::Settled,
        Phase::Asked => Next::Gone,
    }
}

/// Takes the fields that the cache sends in its own words.
fn take(headers: &mut HeaderMap) -> HeaderMap {
    let mut taken = HeaderMap::new();
    for name in &TAKEN {
        for value in headers.get_all(name) {
            taken.append(name, value.clone());
        }
        headers.remove(name);
    }
    taken
}

/// Puts some of them back.
pub(super) fn put_back(headers: &mut HeaderMap, taken: HeaderMap, names: &[http::HeaderName]) {
    for name in names {
        headers.remove(name);
        for value in taken.get_all(name) {
            headers.append(name, value.clone());
        }
    }
}

fn has_body(exchange: &Exchange) -> bool {
    !exchange.body.is_empty()
        || exchange.request.headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0")
}
