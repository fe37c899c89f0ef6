//! Lets pages of other origins read responses (CORS, Fetch §3.2): answers preflights, and marks responses.
//!
//! What a target says about CORS itself is replaced, but for the fields that it exposes: those are added to. A request from another
//! origin is forwarded and its response is not marked, so that the browser keeps it from the page; a preflight for what is not
//! allowed is answered with 403. A preflight is routed as the request that it asks about. Replies of the gateway's own are marked as
//! well, so that pages can read them.

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, Need, Needs, OnRequest, OnResponse, OnUnrouted, Plugin, Seat,
    SeatNumber, Step, World,
};
use gateway_plugin_common::list_fields;
use gateway_plugin_common::origin::Origin;
use gateway_plugin_common::parse::has_other_case;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `cors`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Origins whose pages may read responses: `https://example.com`, `https://*.example.com` for all its subdomains,
    /// `null`, or `*` alone for every origin. Default `*`.
    allowed_origins: Vec<String>,
    /// Methods that preflights allow. Default GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS.
    allowed_methods: Vec<String>,
    /// Request headers that preflights allow; `*` alone allows the requested ones. Default `Accept`, `Authorization`,
    /// `Content-Type`, `Origin` and `X-Requested-With`.
    allowed_headers: Vec<String>,
    /// Response headers that pages may read, in addition to those that are always readable. Default none.
    exposed_headers: Vec<String>,
    /// Allows browsers to send cookies and credentials. Not with the origin `*`. Default false.
    allow_credentials: bool,
    /// How long browsers may cache a preflight; browsers have limits of their own. Default 2 h.
    max_age: Seconds,
    /// Allows pages of public networks to reach this private address (Private Network Access). Default false.
    allow_private_network: bool,
    /// Sends preflights to the target and adds the CORS headers to its response. Default false.
    preflight_continue: bool,
}

impl Default for Config {
    fn default() -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            allowed_origins: texts(&["*"]),
            allowed_methods: texts(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
            allowed_headers: texts(&[
                "Accept",
                "Authorization",
                "Content-Type",
                "Origin",
                "X-Requested-With",
            ]),
            exposed_headers: Vec::new(),
            allow_credentials: false,
            max_age: Seconds(7200),
            allow_private_network: false,
            preflight_continue: false,
        }
    }
}

/// The plugin.
pub(crate) struct Cors {
    /// `None` is every origin.
    origins: Option<Box<[Origin]>>,
    methods: Box<[Method]>,
    methods_text: HeaderValue,
    /// `None` is whatever is asked for.
    headers: Option<(Box<[HeaderName]>, HeaderValue)>,
    exposed: Option<HeaderValue>,
    max_age: HeaderValue,
    credentials: bool,
    private_network: bool,
    preflight_continue: bool,
}

const ANY: &str = "*";
const TRUE: HeaderValue = HeaderValue::from_static("true");
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

impl Plugin for Cors {
    const NAME: &'static str = "cors";
    const FAMILY: Family = Family::Security;
    const SUMMARY: &'static str =
        "Allows pages of other origins to read responses, and answers their preflights.";
    // It opens what browsers keep closed, and protects nothing.
    const GUARDS: bool = false;
    const EXAMPLE: &'static str = include_str!("../../examples/cors.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("allowed_methods", Need::Without("preflight_continue")),
        Needs::new("allowed_headers", Need::Without("preflight_continue")),
        Needs::new("max_age", Need::Without("preflight_continue")),
        Needs::new("allow_private_network", Need::Without("preflight_continue")),
    ];
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let credentials = config.allow_credentials;
        let lists = [
            ("allowed_origins", &config.allowed_origins, credentials),
            ("allowed_headers", &config.allowed_headers, credentials),
            ("exposed_headers", &config.exposed_headers, credentials),
            ("allowed_methods", &config.allowed_methods, true),
        ];
        for (name, list, forbidden) in lists {
            check_any(name, list, forbidden, &mut problems);
        }
        if config.allowed_origins.is_empty() {
            problems.add("config.allowed_origins", "no origin is allowed");
        }
        let is_any = |list: &[String]| list.iter().any(|it| it == ANY);
        let origins =
            (!is_any(&config.allowed_origins)).then(|| origins(&config.allowed_origins, &mut problems));
        let methods = methods(&config.allowed_methods, &mut problems);
        let names = |name, list: &[String], problems: &mut Problems| header_names(name, list, problems);
        let headers = (!is_any(&config.allowed_headers)).then(|| {
            let names = names("allowed_headers", &config.allowed_headers, &mut problems);
            let text = joined(names.iter().map(HeaderName::as_str));
            (names, text)
        });
        if !is_any(&config.exposed_headers) {
            names("exposed_headers", &config.exposed_headers, &mut problems);
        }
        let exposed = (!config.exposed_headers.is_empty())
            .then(|| joined(config.exposed_headers.iter().map(String::as_str)));
        problems.into_result(Self {
            origins,
            methods_text: joined(methods.iter().map(Method::as_str)),
            methods,
            headers,
            exposed,
            max_age: HeaderValue::from(config.max_age.0),
            credentials,
            private_network: config.allow_private_network,
            preflight_continue: config.preflight_continue,
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AttendsEveryReply])
            .with_if(!self.preflight_continue, Capability::AnswersPreflights)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self.clone());
        hooks.on_response(self.clone());
        hooks.on_unrouted(self);
    }
}

/// `*` stands alone, and not beside credentials: every page could act as whoever is logged in.
fn check_any(name: &str, list: &[String], forbidden: bool, problems: &mut Problems) {
    let any = list.iter().position(|it| it == ANY);
    let Some(n) = any else { return };
    let path = format!("config.{name}[{n}]");
    if forbidden {
        let why = if name == "allowed_methods" {
            "methods are listed"
        } else {
            "`*` can't be used with `allow_credentials`"
        };
        problems.add(path, why).remedy = Some(format!("list what may be used in `{name}`"));
    } else if list.len() > 1 {
        problems.add(path, "`*` allows all of them").remedy = Some("remove the others".into());
    }
}

fn origins(list: &[String], problems: &mut Problems) -> Box<[Origin]> {
    let mut origins = Vec::with_capacity(list.len());
    for (n, text) in list.iter().enumerate() {
        match Origin::read(text) {
            Some(origin) => origins.push(origin),
            None => {
                let message = format!("`{text}` is no origin as browsers write it");
                problems.add(format!("config.allowed_origins[{n}]"), message).remedy =
                    Some("write scheme, host in lower case, and a port other than the scheme's own".into());
            }
        }
    }
    origins.into()
}

fn methods(list: &[String], problems: &mut Problems) -> Box<[Method]> {
    let mut methods = Vec::with_capacity(list.len());
    for (n, text) in list.iter().enumerate().filter(|(_, text)| *text != ANY) {
        match Method::from_bytes(text.as_bytes()) {
            Ok(_) if has_other_case(text) => {
                let message = format!("no request has the method `{text}`: methods are in capitals");
                problems.add(format!("config.allowed_methods[{n}]"), message).remedy =
                    Some(format!("write `{}`", text.to_ascii_uppercase()));
            }
            Ok(method) => methods.push(method),
            Err(_) => {
                problems
                    .add(format!("config.allowed_methods[{n}]"), format!("`{text}` is not a valid method"));
            }
        }
    }
    methods.into()
}

fn header_names(name: &str, list: &[String], problems: &mut Problems) -> Box<[HeaderName]> {
    let mut names = Vec::with_capacity(list.len());
    for (n, text) in list.iter().enumerate() {
        match HeaderName::from_bytes(text.as_bytes()) {
            Ok(known) => names.push(known),
            Err(_) => {
                problems.add(format!("config.{name}[{n}]"), format!("`{text}` is not a valid header name"));
            }
        }
    }
    names.into()
}

fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> HeaderValue {
    let text = parts.collect::<Vec<_>>().join(", ");
    // Names and methods were looked at; a list with others is refused.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

impl OnRequest for Cors {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        if self.preflight_continue || !exchange.is_preflight() {
            return Step::Next;
        }
        Step::reply(match self.preflight(&exchange.request.headers) {
            Ok(reply) => reply,
            Err(reason) => {
                Reply::new(Cause::Forbidden).reason(reason).detail("the page may not make this request")
            }
        })
    }
}

impl OnResponse for Cors {
    fn on_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        self.mark(&exchange.request.headers, response.headers_mut());
        Step::Next
    }
}

impl OnUnrouted for Cors {
    fn on_unrouted(&self, exchange: &mut Exchange, reply: &mut Reply, _place: SeatNumber) {
        self.mark(&exchange.request.headers, &mut reply.headers);
    }
}

impl Cors {
    /// The origin that a response may name, when its page may read it.
    fn allowed<'h>(&self, request: &'h HeaderMap) -> Option<&'h HeaderValue> {
        let mut sent = request.get_all(ORIGIN).iter();
        let (Some(origin), None) = (sent.next(), sent.next()) else { return None };
        let Some(known) = &self.origins else { return Some(origin) };
        known.iter().any(|known| known.is(origin.as_bytes())).then_some(origin)
    }

    fn preflight(&self, request: &HeaderMap) -> Result<Reply, &'static str> {
        if self.allowed(request).is_none() {
            return Err("cors_origin");
        }
        let method = request.get(ACCESS_CONTROL_REQUEST_METHOD);
        if !method
            .is_some_and(|asked| self.methods.iter().any(|it| it.as_str().as_bytes() == asked.as_bytes()))
        {
            return Err("cors_method");
        }
        let mut reply = Reply::fixed(StatusCode::NO_CONTENT, "")
            .header(ACCESS_CONTROL_ALLOW_METHODS, self.methods_text.clone())
            .header(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        let asked: Vec<&HeaderValue> = request.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().collect();
        let names = |value: &&HeaderValue| {
            Some(value.to_str().ok()?.split(',').map(str::trim).map(str::to_owned).collect())
        };
        let names: Option<Vec<Vec<String>>> = asked.iter().map(names).collect();
        let names: Vec<String> =
            names.ok_or("cors_header")?.into_iter().flatten().filter(|it| !it.is_empty()).collect();
        for name in &names {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "cors_header")?;
            if self.headers.as_ref().is_some_and(|(known, _)| !known.contains(&name)) {
                return Err("cors_header");
            }
        }
        let told = match &self.headers {
            Some((_, text)) => text.clone(),
            None => joined(names.iter().map(String::as_str)),
        };
        if !told.is_empty() {
            reply = reply.header(ACCESS_CONTROL_ALLOW_HEADERS, told);
        }
        if self.private_network && request.get(REQUEST_PRIVATE_NETWORK).is_some_and(|asked| *asked == TRUE) {
            reply = reply.header(ALLOW_PRIVATE_NETWORK, TRUE);
        }
        let vary = "Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network";
        Ok(reply.header(VARY, HeaderValue::from_static(vary)))
    }

    /// Says on a response who may read it. A cache must not give one origin's answer to another. Each field is looked up
    /// once: this is on the path of every request.
    fn mark(&self, request: &HeaderMap, response: &mut HeaderMap) {
        if self.origins.is_some() {
            list_fields::add_names(response, VARY, &BY_ORIGIN);
        }
        let origin = self.allowed(request);
        let told =
            origin.map(
                |origin| {
                    if self.origins.is_some() { origin.clone() } else { HeaderValue::from_static(ANY) }
                },
            );
        let is_allowed = told.is_some();
        put(response, &ACCESS_CONTROL_ALLOW_ORIGIN, told);
        put(response, &ACCESS_CONTROL_ALLOW_CREDENTIALS, (is_allowed && self.credentials).then_some(TRUE));
        match &self.exposed {
            // What others name stays: `grpc_web` makes its calls' status readable there.
            Some(names) if is_allowed => {
                list_fields::add_names(response, ACCESS_CONTROL_EXPOSE_HEADERS, names)
            }
            None if is_allowed => {}
            _ => drop(response.remove(ACCESS_CONTROL_EXPOSE_HEADERS)),
        }
    }
}

const BY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// Sets a field, or removes what the target says.
fn put(response: &mut HeaderMap, name: &HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => drop(response.insert(name, value)),
        None => drop(response.remove(name)),
    }
}

#[cfg(test)]
mod tests;
