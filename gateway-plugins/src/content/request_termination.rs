//! Answers in the gateway itself: a maintenance page, a health answer, a fixed document.
//!
//! Without a trigger every request is answered; with one, only those that match it, and the others go on. A file as the trigger is looked
//! for every second, so that it switches a maintenance page on and off without a reload.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Reply, final_status};
use gateway_core::plugin::world::tasks::Starter;
use gateway_core::plugin::{Capabilities, Capability, Family, Hooks, OnRequest, Plugin, Seat, Step, World};
use gateway_core::template::Moment;
use gateway_plugin_common::facts;
use gateway_plugin_common::parse;
use gateway_plugin_common::watched::refresh_regularly;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::page::Page;

/// How often the file of a trigger is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Settings of `request_termination`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Status, 200 to 599. Default 503.
    status_code: u16,
    /// Media type of the body. Default `application/json`. A 204 or 304 has no body, and no media type.
    content_type: String,
    /// The body. Default: a JSON object with `message`.
    body: Option<String>,
    /// Whether `body` is a template, such as `${client.address}`; values are escaped for the media type. Otherwise the
    /// body is sent unchanged. Default false.
    template: bool,
    /// Text of the default body. Default `Service unavailable`.
    message: String,
    /// Requests to answer. Default: all.
    trigger: Option<Trigger>,
}

/// Requests to answer; all given conditions must match.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Trigger {
    /// Prefix of the path.
    path_prefix: Option<String>,
    /// Name of a header that the request must have.
    header: Option<String>,
    /// Exact value of the header; requires `header`.
    header_value: Option<String>,
    /// A file that must exist, such as `/srv/www/maintenance.on`. The gateway checks every second.
    #[schemars(extend("format" = "path"))]
    file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            status_code: 503,
            content_type: "application/json".into(),
            body: None,
            template: false,
            message: "Service unavailable".into(),
            trigger: None,
        }
    }
}

/// The plugin.
pub(crate) struct RequestTermination {
    status: StatusCode,
    headers: HeaderMap,
    body: AnswerBody,
    path_prefix: Option<String>,
    header: Option<(HeaderName, Option<String>)>,
    file: Option<SwitchFile>,
}

/// What is sent as the body.
enum AnswerBody {
    Fixed(Bytes),
    Page(Page),
}

/// A file that switches the answers on while it exists.
struct SwitchFile {
    path: PathBuf,
    world: World,
    exists: AtomicBool,
}

impl SwitchFile {
    fn open(path: PathBuf, world: &World) -> Self {
        let file = Self { path, world: world.clone(), exists: AtomicBool::new(false) };
        file.look();
        file
    }

    /// A file that the system does not let the gateway look at counts as there: the switch must not fail open.
    fn look(&self) {
        let found = self.world.files().modified(&self.path);
        let is_gone = found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        self.exists.store(!is_gone, Ordering::Relaxed);
    }
}

impl Plugin for RequestTermination {
    const NAME: &'static str = "request_termination";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Answers requests with a fixed status and body.";
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let status = final_status(config.status_code);
        if status.is_none() {
            problems
                .add("config.status_code", format!("{} is not a valid response status", config.status_code))
                .remedy = Some("write a number from 200 to 599".into());
        }
        let content_type = HeaderValue::from_str(&config.content_type);
        if content_type.is_err() {
            problems.add("config.content_type", "has characters that a header may not have");
        }
        let body = answer_body(&config, &mut problems);
        let trigger = config.trigger.unwrap_or_default();
        if trigger.file.as_ref().is_some_and(|path| !path.is_absolute()) {
            problems.add("config.trigger.file", "must be an absolute path");
        }
        if trigger.header_value.is_some() && trigger.header.is_none() {
            problems.add("config.trigger.header_value", "needs `header` beside it");
        }
        let header = trigger.header.and_then(|name| match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => Some((name, trigger.header_value)),
            Err(_) => {
                problems.add("config.trigger.header", format!("`{name}` is not a valid header name"));
                None
            }
        });
        let prefix = trigger.path_prefix.as_deref();
        let path_prefix =
            prefix.and_then(|text| parse::request_path("config.trigger.path_prefix", text, &mut problems));
        let (Some(status), Ok(content_type), true) = (status, content_type, problems.is_empty()) else {
            return Err(problems);
        };
        let has_content = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let headers = HeaderMap::from_iter(has_content.then_some((CONTENT_TYPE, content_type)));
        let file = trigger.file.map(|path| SwitchFile::open(path, world));
        Ok(Self { status, headers, body, path_prefix, header, file })
    }

    fn capabilities(&self) -> Capabilities {
        let ends_all = self.path_prefix.is_none() && self.header.is_none() && self.file.is_none();
        Capabilities::NONE.with_if(ends_all, Capability::NeedsNoTarget)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        if let AnswerBody::Page(page) = &self.body {
            page.values().for_each(|value| hooks.renders("config.body", Some(value)));
        }
        hooks.on_request(self);
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        let Some(file) = &self.file else { return };
        let (plugin, world) = (self.clone(), file.world.clone());
        starter.task("file", move |control| {
            let (plugin, world) = (plugin.clone(), world.clone());
            async move {
                let look = move || {
                    plugin.file.iter().for_each(SwitchFile::look);
                    Ok::<_, Infallible>(())
                };
                refresh_regularly(&world, LOOK_EVERY, control, look).await
            }
        });
    }
}

/// The body, read as a template if it is one.
fn answer_body(config: &Config, problems: &mut Problems) -> AnswerBody {
    let Some(body) = &config.body else {
        if config.template {
            problems.add("config.template", "needs `body` beside it");
        }
        return AnswerBody::Fixed(serde_json::json!({ "message": config.message }).to_string().into());
    };
    let essence = config.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let page = config
        .template
        .then(|| Page::read("config.body", body, &essence, Moment::Request, problems))
        .flatten();
    page.map_or_else(|| AnswerBody::Fixed(body.clone().into()), AnswerBody::Page)
}

impl OnRequest for RequestTermination {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        if !self.is_triggered(exchange) {
            return Step::Next;
        }
        let body = match &self.body {
            AnswerBody::Fixed(bytes) => bytes.clone(),
            AnswerBody::Page(page) => page.render(&facts::of(exchange, seat)).into(),
        };
        let mut reply = Reply::fixed(self.status, body);
        reply.headers.clone_from(&self.headers);
        Step::reply(reply)
    }
}

impl RequestTermination {
    fn is_triggered(&self, exchange: &Exchange) -> bool {
        let path_fits = self.path_prefix.as_ref().is_none_or(|prefix| exchange.path().starts_with(prefix));
        path_fits
            && self.file.as_ref().is_none_or(|file| file.exists.load(Ordering::Relaxed))
            && self.header.as_ref().is_none_or(|(name, wanted)| {
                let mut values = exchange.request.headers.get_all(name).iter();
                match wanted {
                    None => values.next().is_some(),
                    Some(wanted) => values.any(|value| value.as_bytes() == wanted.as_bytes()),
                }
            })
    }
}

#[cfg(test)]
mod tests;
