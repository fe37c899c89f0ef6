//! Serves files from a folder.
//!
//! Nothing outside the folder is ever read: the kernel resolves each path beneath it (`openat2`), links included, whatever
//! is renamed meanwhile. Paths are decoded once; encoded slashes, backslashes and NUL are refused, names that begin with a
//! dot are not there. Small files are kept in memory, large ones open, and their paths are looked at again every second; what the
//! kernel has in its cache is read on the worker, and the rest on other threads, piece by piece as the client takes it.
//!
//! Conditions (RFC 9110 §13) and ranges, also several, are answered for every file. GET and HEAD are served, OPTIONS says
//! so, other methods are refused with 405. A request for a WebSocket is answered as the GET that it is.

mod answer;
mod content;
mod find;
mod kept;
mod listing;
mod mime;
mod path;
mod root;
mod settings;

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{Starter, TaskControl, TaskError};
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, Plugin, Seat, Step, Verdict, World,
};
use http::header::{ACCEPT, ACCEPT_ENCODING, ALLOW, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use answer::Answers;
use find::{File, Resolved, Wanted};
use gateway_plugin_common::accept;
use gateway_plugin_common::coding::Coding;
use gateway_plugin_common::query;
use kept::{CacheLookup, KeptFile, KeptFiles};
use root::{Root, Wait};
pub(crate) use settings::Config;

/// The folder is opened anew after this time.
const REOPEN: Duration = Duration::from_secs(1);
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
/// The same where all other methods are refused.
const READING: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// The plugin.
pub(crate) struct StaticFiles {
    shared: Arc<SharedFiles>,
    codings: Vec<Coding>,
    passes: bool,
    /// Other methods than GET and HEAD on what is there, where the rest passes.
    refuses: bool,
    hidden: bool,
    answers: Answers,
    world: World,
    counts: Counts,
}

/// What other threads need as well.
struct SharedFiles {
    root: Root,
    places: find::FileFinder,
    kept: KeptFiles,
}

/// What became of requests.
struct Counts {
    outcomes: Vec<(&'static str, Counter)>,
    bytes: Counter,
}

const REQUESTS: Metric = Metric::counter(
    "ferrum_static_files_requests_total",
    "Requests for files, by where the answer came from.",
);
const BYTES: Metric = Metric::counter(
    "ferrum_static_files_bytes_total",
    "Bytes of files in answers, whether or not the client took all of them.",
);

impl Counts {
    fn new(world: &World) -> Self {
        const OUTCOMES: [&str; 8] =
            ["memory", "open", "file", "not_modified", "listing", "redirect", "not_found", "refused"];
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count =
            |outcome| world.meters().counter(REQUESTS, &["plugin_config", "outcome"], &[owner, outcome]);
        Self {
            outcomes: OUTCOMES.iter().map(|outcome| (*outcome, count(outcome))).collect(),
            bytes: world.meters().counter(BYTES, &["plugin_config"], &[owner]),
        }
    }

    fn add(&self, outcome: &str) {
        if let Some((_, counter)) = self.outcomes.iter().find(|(known, _)| *known == outcome) {
            counter.add(1);
        }
    }
}

impl Plugin for StaticFiles {
    const NAME: &'static str = "static_files";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Serves files from a folder.";
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let read = config.read()?;
        let root = Root::open(&read.root, read.follows_links).map_err(|error| {
            let mut problems = Problems::default();
            let shown = read.root.display();
            let problem = problems.add("config.root", format!("`{shown}` can't be served: {error}"));
            if error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error()) {
                problem.remedy = Some("the system needs `openat2` (Linux 5.6), and has to permit it".into());
            }
            problems
        })?;
        let kept = KeptFiles::new(read.keeps, Instant::now());
        Ok(Self {
            shared: Arc::new(SharedFiles { root, places: read.places, kept }),
            codings: read.codings.clone(),
            passes: read.passes,
            refuses: read.refuses,
            hidden: read.hidden,
            answers: Answers {
                tags: read.tags,
                cache_control: read.cache_control,
                types: read.types,
                default_type: read.default_type,
                charset: read.charset,
                varies: !read.codings.is_empty(),
            },
            world: world.clone(),
            counts: Counts::new(world),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AnswersAnybody]).with_if(!self.passes, Capability::NeedsNoTarget)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let Some(every) = self.shared.kept.closes_every() else { return };
        let shared = self.shared.clone();
        starter.task("open_files", move |control| close_idle(shared.clone(), every, control));
    }
}

/// Closes files that nobody has asked for of late, until the plugin ends.
async fn close_idle(
    shared: Arc<SharedFiles>,
    every: Duration,
    mut control: TaskControl,
) -> Result<(), TaskError> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => shared.kept.close_idle(Instant::now()),
            () = control.ended() => return Ok(()),
        }
    }
}

/// Whether a method asks for a file.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a file is a script that the proxy's target runs: its source is never sent.
fn is_script(seat: Seat<'_>, path: &str) -> bool {
    let scripts = seat.proxy().backend.fastcgi().and_then(|rules| rules.scripts.as_ref());
    scripts.is_some_and(|scripts| scripts.is_script(path.as_bytes()))
}

/// What is found, where it may be sent.
fn without_scripts(found: Resolved, seat: Seat<'_>) -> Resolved {
    match found {
        Resolved::File(file) if is_script(seat, &file.path) => Resolved::Nothing,
        found => found,
    }
}

impl OnRequest for StaticFiles {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        // A target behind may have WebSockets at the paths of files.
        if exchange.dialect == Dialect::Upgrade && self.passes {
            return Step::Next;
        }
        match *exchange.method() {
            Method::GET | Method::HEAD => {}
            _ if self.passes && !self.refuses => return Step::Next,
            _ if self.passes => {}
            Method::OPTIONS => {
                let mut reply = Reply::fixed(StatusCode::NO_CONTENT, "").header(ALLOW, METHODS);
                reply.is_error = Some(false);
                return Step::reply(reply.reason("options"));
            }
            _ => return Step::Reply(self.refuse_method()),
        }
        let wanted = match self.wanted(exchange, seat) {
            Ok(wanted) => wanted,
            Err(path::BadPath::Malformed) => {
                self.counts.add("refused");
                let reply = Reply::new(Cause::BadRequest).detail("the path is malformed");
                return Step::reply(reply.reason("bad_path"));
            }
            // What is hidden looks like what is not there.
            Err(path::BadPath::Nowhere) => return self.nowhere(exchange, seat),
        };
        let now = exchange.started;
        let known = match self.shared.kept.get(&wanted, now) {
            CacheLookup::Current(kept) => {
                if is_script(seat, &kept.file.path) {
                    return self.nowhere(exchange, seat);
                }
                return Step::Reply(match is_read(exchange.method()) {
                    true => self.file(exchange, &kept.file, kept.source()),
                    false => self.refuse_method(),
                });
            }
            CacheLookup::Stale(kept) => Some(kept),
            CacheLookup::Nothing => None,
        };
        if self.shared.root.age(now) <= REOPEN {
            let known = known.as_ref().map(|kept| &kept.file);
            match self.shared.find(&wanted, known, now, Wait::Never) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                found => {
                    let found = found.map(|found| without_scripts(found, seat));
                    return self.answer(exchange, found).map_or(Step::Next, Step::Reply);
                }
            }
        }
        Step::wait(self.look(exchange, wanted, known, now, seat))
    }
}

impl StaticFiles {
    /// Serves files of a folder that another plugin names: hidden ones as well, but no folders.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub(crate) fn of_folder(root: PathBuf, world: &World) -> Result<Self, Problems> {
        Self::build(Config::of_folder(root), world)
    }

    /// The file at a decoded path beneath the root, whatever the method and path of the request are.
    pub(crate) async fn serve_path(&self, exchange: &mut Exchange, path: &str, seat: Seat<'_>) -> Box<Reply> {
        let name = percent_encoding::utf8_percent_encode(path, percent_encoding::NON_ALPHANUMERIC);
        let escaped = format!("/{name}").replace("%2F", "/");
        let method = exchange.request.method.clone();
        if method != Method::HEAD {
            exchange.request.method = Method::GET;
        }
        let verdict = match path::beneath(&escaped, true) {
            Ok((path, false)) => {
                let wanted = Wanted { path: Some(path), ..Wanted::default() };
                let now = exchange.started;
                self.look(exchange, wanted, None, now, seat).await
            }
            _ => self.nothing().map_or(Verdict::Next, Verdict::Reply),
        };
        exchange.request.method = method;
        match verdict {
            Verdict::Reply(reply) => reply,
            Verdict::Next => Box::new(Reply::new(Cause::Internal)),
        }
    }

    /// What a request looks for.
    fn wanted(&self, exchange: &Exchange, seat: Seat<'_>) -> Result<Wanted, path::BadPath> {
        let target = exchange.stripped_path(seat);
        let (path, has_slash) = path::beneath(&target, self.hidden)?;
        let takes_page = self.shared.places.fallback.is_some()
            && mime::ending(&path).is_none()
            && wants(exchange, "text/html") > 0;
        Ok(Wanted { path: Some(path), has_slash, codings: self.codings(exchange), takes_page })
    }

    /// The codings the client takes, the one it likes best first.
    fn codings(&self, exchange: &Exchange) -> Vec<Coding> {
        let headers = &exchange.request.headers;
        let mut codings: Vec<(Coding, u16)> = Vec::new();
        for coding in &self.codings {
            let rank = |member: &str| match member {
                "*" => 1,
                _ => 2 * u8::from(member.eq_ignore_ascii_case(coding.name())),
            };
            let wanted = accept::quality(headers, ACCEPT_ENCODING, rank).unwrap_or(0);
            if wanted > 0 {
                codings.push((*coding, wanted));
            }
        }
        // Those the client likes alike stay in the order of the settings.
        codings.sort_by_key(|(_, wanted)| std::cmp::Reverse(*wanted));
        codings.into_iter().map(|(coding, _)| coding).collect()
    }

    /// Looks for a file where the disk may be waited for.
    #[allow(
        clippy::needless_pass_by_ref_mut,
        reason = "an exchange may go to another thread, and can't be shared with one"
    )]
    async fn look(
        &self,
        exchange: &mut Exchange,
        wanted: Wanted,
        known: Option<Arc<KeptFile>>,
        now: Instant,
        seat: Seat<'_>,
    ) -> Verdict {
        let shared = self.shared.clone();
        let looked = self.world.run_blocking(move || {
            if shared.root.age(now) > REOPEN {
                shared.root.reopen(now)?;
            }
            shared.find(&wanted, known.as_ref().map(|kept| &kept.file), now, Wait::May)
        });
        let reply = match looked.await {
            Ok(found) => self.answer(exchange, found.map(|found| without_scripts(found, seat))),
            Err(_) => Some(Box::new(Reply::new(Cause::Overloaded).reason("files_busy"))),
        };
        reply.map_or(Verdict::Next, Verdict::Reply)
    }

    /// The answer; `None` leaves the request to the target.
    fn answer(&self, exchange: &Exchange, found: io::Result<Resolved>) -> Option<Box<Reply>> {
        match found {
            Ok(Resolved::File(file)) if file.is_not_found && self.passes => None,
            // A form for a folder is redirected, as by nginx; other methods are not.
            Ok(Resolved::Folder) if *exchange.method() == Method::POST => Some(self.with_slash(exchange)),
            Ok(Resolved::File(_) | Resolved::Folder | Resolved::Listing(_))
                if !is_read(exchange.method()) =>
            {
                Some(self.refuse_method())
            }
            Ok(Resolved::File(file)) => Some(self.file(exchange, &file, "file")),
            Ok(Resolved::Folder) => Some(self.with_slash(exchange)),
            Ok(Resolved::Listing(entries)) => Some(self.listing(exchange, &entries)),
            Ok(Resolved::Nothing) => self.nothing(),
            Ok(Resolved::Forbidden) => {
                self.counts.add("refused");
                Some(Box::new(Reply::new(Cause::Forbidden).reason("file_forbidden")))
            }
            Err(error) => {
                self.counts.add("refused");
                let is_busy = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                let cause = if is_busy { Cause::Overloaded } else { Cause::Internal };
                Some(Box::new(Reply::new(cause).reason("file_unreadable")))
            }
        }
    }

    fn refuse_method(&self) -> Box<Reply> {
        self.counts.add("refused");
        let allow = if self.refuses { READING } else { METHODS };
        Box::new(Reply::new(Cause::MethodNotAllowed).header(ALLOW, allow))
    }

    fn file(&self, exchange: &Exchange, file: &File, from: &str) -> Box<Reply> {
        let response = self.answers.file(file, exchange.method(), &exchange.request.headers, &self.world);
        self.counts.add(match response.status().as_u16() {
            304 => "not_modified",
            404 => "not_found",
            412 | 416 => "refused",
            _ => from,
        });
        self.counts.bytes.add(response.body().exact_length().unwrap_or(0));
        let mut reply = Reply::response(response);
        reply.is_error = Some(false);
        Box::new(reply.reason(if file.is_not_found { "file_not_found" } else { "file" }))
    }

    /// The answer where nothing is looked for.
    fn nowhere<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        let places = &self.shared.places;
        let has_fixed = places.candidates.iter().any(|it| matches!(it, find::Candidate::Fixed(_)));
        if !has_fixed && (self.passes || places.not_found.is_none()) {
            return self.nothing().map_or(Step::Next, Step::Reply);
        }
        let wanted = Wanted { codings: self.codings(exchange), ..Wanted::default() };
        let now = exchange.started;
        Step::wait(self.look(exchange, wanted, None, now, seat))
    }

    fn nothing(&self) -> Option<Box<Reply>> {
        if self.passes {
            return None;
        }
        self.counts.add("not_found");
        let reply = Reply::new(Cause::Plugin).status(StatusCode::NOT_FOUND);
        Some(Box::new(reply.detail("there is no such file").reason("file_not_found")))
    }

    /// Sends the client to the folder's own path, so that links in it lead where they should.
    fn with_slash(&self, exchange: &Exchange) -> Box<Reply> {
        self.counts.add("redirect");
        let query = exchange.uri().query();
        // The path begins with one slash: it can't name another host.
        let path = format!("/{}/", exchange.path().trim_matches('/'));
        let target = query::join(&path, query);
        let location = HeaderValue::from_str(&target).unwrap_or_else(|_| HeaderValue::from_static("./"));
        let mut reply = Reply::fixed(StatusCode::MOVED_PERMANENTLY, "").header(LOCATION, location);
        reply.is_error = Some(false);
        Box::new(reply.reason("folder"))
    }

    fn listing(&self, exchange: &Exchange, entries: &[root::DirectoryEntry]) -> Box<Reply> {
        self.counts.add("listing");
        let as_json = wants(exchange, "application/json") > wants(exchange, "text/html");
        let path = percent_encoding::percent_decode_str(exchange.path()).decode_utf8_lossy();
        let (media_type, text) = match as_json {
            true => ("application/json", listing::as_json(entries)),
            false => ("text/html; charset=utf-8", listing::as_html(&path, entries, path == "/")),
        };
        Box::new(answer::page(media_type, text))
    }
}

impl SharedFiles {
    /// Looks for what answers, and keeps it.
    fn find(&self, wanted: &Wanted, known: Option<&File>, now: Instant, wait: Wait) -> io::Result<Resolved> {
        let found = self.places.find(&self.root, wanted, known, wait)?;
        if let Resolved::File(file) = &found {
            self.kept.put(wanted, file, self.places.whole, now);
        }
        Ok(found)
    }
}

/// How much the client wants a media type, in thousandths.
fn wants(exchange: &Exchange, media_type: &str) -> u16 {
    let headers = &exchange.request.headers;
    if !headers.contains_key(ACCEPT) {
        return 1000;
    }
    let main = media_type.split('/').next().unwrap_or_default();
    let rank = |member: &str| match member {
        "*/*" => 1,
        _ if member.eq_ignore_ascii_case(media_type) => 3,
        _ => 2 * u8::from(member.strip_suffix("/*").is_some_and(|it| it.eq_ignore_ascii_case(main))),
    };
    accept::quality(headers, ACCEPT, rank).unwrap_or(0)
}

#[cfg(test)]
mod tests;
