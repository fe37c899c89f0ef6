//! By what callers are told apart where something is counted for each: their address, who they are, what they sent.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

use gateway_core::config::model::Proxy;
use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::dialect::Dialect;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::{Foreseen, Foresight, Hooks};
use gateway_core::request_values;
use gateway_core::stream::session::Session;
use gateway_core::template::{Facts, MAX_RENDERED, Moment, Template, TextContext};
use http::{HeaderMap, HeaderName};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::one_or_many::OneOrMany;
use gateway_core::template::Render;

/// What a plugin's settings say about it.
#[derive(Debug)]
pub struct KeySettings {
    /// What the setting with the parts is called.
    pub name: &'static str,
    pub limit_by: OneOrMany,
    pub ipv4_prefix: u8,
    pub ipv6_prefix: u8,
    pub on_missing: Missing,
}

/// What happens to a request that lacks the value it is counted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The client's address is used instead.
    #[default]
    Address,
    /// It passes and is not counted.
    Allow,
    /// It is rejected with 403.
    Deny,
}

/// The key by which callers are distinguished.
#[derive(Debug)]
pub struct KeyBy {
    /// What the setting is called.
    name: &'static str,
    parts: Box<[KeyPart]>,
    ipv4: u8,
    ipv6: u8,
    missing: Missing,
}

#[derive(Debug)]
enum KeyPart {
    Address,
    Consumer,
    Group,
    Route,
    Owner,
    Port,
    Gateway,
    GrpcMethod,
    Header(HeaderName),
    Cookie(Box<str>),
    Template(Template),
}

/// Whom a request counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keyed {
    /// This one.
    Key(u64),
    /// Nobody: it goes on uncounted.
    Nobody,
    /// It may not go on.
    Denied,
}

/// The caller of an exchange or session.
struct Caller<'a> {
    address: IpAddr,
    identity: Option<&'a Identity>,
    headers: Option<&'a HeaderMap>,
    exchange: Option<&'a Exchange>,
    proxy: CountedProxy<'a>,
    /// The port that the client connected to.
    port: u16,
}

/// Of a proxy, what traffic is counted by.
#[derive(Debug, Clone, Copy)]
pub struct CountedProxy<'a> {
    /// Its id.
    pub id: &'a str,
    /// Whom it belongs to.
    pub owner: Option<&'a str>,
}

impl<'a> From<&'a Proxy> for CountedProxy<'a> {
    fn from(proxy: &'a Proxy) -> Self {
        Self { id: proxy.id.as_str(), owner: proxy.owner().map(|owner| owner.as_str()) }
    }
}

/// A caller lacks what it is counted by.
struct Lacking;

impl KeyBy {
    /// Reads settings; what is wrong with them goes to `problems`.
    pub fn new(settings: KeySettings, problems: &mut Problems) -> Self {
        let (texts, many) = match &settings.limit_by {
            OneOrMany::One(text) => (std::slice::from_ref(text), false),
            OneOrMany::Many(texts) => (&**texts, true),
        };
        if texts.is_empty() {
            problems.add(format!("config.{}", settings.name), "there is nothing to tell callers apart by");
        }
        let mut parts = Vec::with_capacity(texts.len());
        for (n, text) in texts.iter().enumerate() {
            let path = format!("config.{}", settings.name);
            let path = if many { format!("{path}[{n}]") } else { path };
            match part(text) {
                Ok(part) => parts.push(part),
                Err((message, remedy)) => problems.add(path, message).remedy = Some(remedy),
            }
        }
        if !parts.is_empty() && parts.len() == texts.len() {
            check(&parts, &settings, problems);
        }
        for (name, bits, most) in
            [("ipv4_prefix", settings.ipv4_prefix, 32), ("ipv6_prefix", settings.ipv6_prefix, 128)]
        {
            if !(1..=most).contains(&bits) {
                problems.add(format!("config.{name}"), format!("{bits} is not within 1 to {most}"));
            }
        }
        Self {
            name: settings.name,
            parts: parts.into(),
            ipv4: settings.ipv4_prefix,
            ipv6: settings.ipv6_prefix,
            missing: settings.on_missing,
        }
    }

    /// Tells the chain where it goes by who the caller is.
    pub fn attend(&self, hooks: &mut Hooks) {
        for part in &self.parts {
            if let KeyPart::Template(template) = part {
                hooks.goes_by_captures(&format!("config.{}", self.name), template.captures());
            }
        }
        if self.asks_for_caller() {
            hooks.goes_by_caller(format!("config.{}", self.name));
        }
    }

    /// Whether it goes by who the caller was recognised as.
    pub fn asks_for_caller(&self) -> bool {
        self.parts.iter().any(|part| match part {
            KeyPart::Consumer | KeyPart::Group => true,
            KeyPart::Template(template) => template.asks_for_caller(),
            _ => false,
        })
    }

    /// What is foreseen of a request whose caller is not known, where that decides.
    pub fn foresee_unknown(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        let is_unknown = !foresight.is_caller_known && self.asks_for_caller();
        is_unknown.then(|| Foreseen::Unknown(format!("`{}` depends on who the caller is", self.name)))
    }

    /// Whether it refuses what lacks what it is counted by.
    pub fn denies(&self) -> bool {
        self.missing == Missing::Deny
    }

    /// Whether any byte stream counts: one without headers has nothing to be counted by where what is missing is let pass.
    pub fn counts_sessions(&self) -> bool {
        let is_there = |part: &KeyPart| {
            !matches!(
                part,
                KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Template(_) | KeyPart::GrpcMethod
            )
        };
        self.missing != Missing::Allow || self.parts.iter().all(is_there)
    }

    /// Whom an exchange counts for.
    pub fn of_exchange<'a>(
        &self,
        exchange: &'a Exchange,
        proxy: impl Into<CountedProxy<'a>>,
        hasher: impl Hasher,
    ) -> Keyed {
        self.key(
            &Caller {
                address: exchange.client_address,
                identity: exchange.identity.as_deref(),
                headers: Some(&exchange.request.headers),
                exchange: Some(exchange),
                proxy: proxy.into(),
                port: exchange.client.port,
            },
            hasher,
        )
    }

    /// Whom a session counts for. A byte stream has no headers and no caller that was recognised.
    pub fn of_session<'a>(
        &self,
        session: &'a Session,
        proxy: impl Into<CountedProxy<'a>>,
        hasher: impl Hasher,
    ) -> Keyed {
        self.key(
            &Caller {
                address: session.client_address,
                identity: session.identity.as_deref(),
                headers: session.head.as_ref().map(|head| &head.headers),
                exchange: None,
                proxy: proxy.into(),
                port: session.client.port,
            },
            hasher,
        )
    }

    fn key(&self, caller: &Caller<'_>, mut hasher: impl Hasher) -> Keyed {
        for (n, part) in self.parts.iter().enumerate() {
            // What comes from two parts never reads as if it came from one.
            hasher.write_usize(n);
            if self.write(part, caller, &mut hasher).is_ok() {
                continue;
            }
            match self.missing {
                Missing::Allow => return Keyed::Nobody,
                Missing::Deny => return Keyed::Denied,
                Missing::Address => {
                    hasher.write_u8(0);
                    self.address(caller.address, &mut hasher);
                }
            }
        }
        Keyed::Key(hasher.finish())
    }

    fn write(&self, part: &KeyPart, caller: &Caller<'_>, hasher: &mut impl Hasher) -> Result<(), Lacking> {
        let headers = caller.headers;
        match part {
            KeyPart::Address => {
                self.address(caller.address, hasher);
                Ok(())
            }
            KeyPart::Consumer => {
                text(caller.identity.map(|who| who.name.as_bytes()), hasher)?;
                caller
                    .identity
                    .and_then(Identity::issuer)
                    .map_or(Ok(()), |issuer| text(Some(issuer.as_bytes()), hasher))
            }
            KeyPart::Group => {
                let group = caller.identity.and_then(|who| who.groups().next());
                text(group.map(|group| group.as_bytes()), hasher)
            }
            KeyPart::Route => text(Some(caller.proxy.id.as_bytes()), hasher),
            KeyPart::Owner => {
                // Where a proxy is nobody's, the traffic is that of who was recognised.
                let recognised = caller.identity.and_then(|who| who.consumer.as_deref());
                let own = || recognised.map(|consumer| &*consumer.username);
                let owner = caller.proxy.owner.or_else(own);
                text(owner.map(str::as_bytes), hasher)
            }
            KeyPart::Port => {
                hasher.write_u16(caller.port);
                Ok(())
            }
            KeyPart::Gateway => Ok(()),
            KeyPart::GrpcMethod => {
                let call = caller.exchange.filter(|exchange| exchange.dialect == Dialect::Grpc);
                text(call.map(|exchange| exchange.path().as_bytes()), hasher)
            }
            KeyPart::Header(name) => {
                let value = headers.and_then(|headers| request_values::header(headers, name));
                text(value.as_deref(), hasher)
            }
            KeyPart::Cookie(name) => {
                text(headers.and_then(|headers| request_values::cookie(headers, name)), hasher)
            }
            KeyPart::Template(template) => {
                let facts =
                    Facts { proxy: Some(caller.proxy.id), ..Facts::of(caller.exchange.ok_or(Lacking)?) };
                let mut made = Vec::new();
                let done = template.render(&facts, TextContext::Text, MAX_RENDERED, &mut made);
                text(done.is_ok().then_some(&*made), hasher)
            }
        }
    }

    fn address(&self, address: IpAddr, hasher: &mut impl Hasher) {
        match address.to_canonical() {
            IpAddr::V4(address) => hasher.write_u32(network(address.into(), 32, self.ipv4)),
            IpAddr::V6(address) => hasher.write_u128(network_v6(address, self.ipv6)),
        }
    }
}

/// What would have no effect, or be there twice.
fn check(parts: &[KeyPart], settings: &KeySettings, problems: &mut Problems) {
    let texts = match &settings.limit_by {
        OneOrMany::One(_) => &[][..],
        OneOrMany::Many(texts) => texts,
    };
    for (n, text) in texts.iter().enumerate() {
        if texts.iter().take(n).any(|earlier| earlier == text) {
            problems.add(format!("config.{}[{n}]", settings.name), format!("`{text}` is there twice"));
        }
    }
    let is_there =
        |part: &KeyPart| matches!(part, KeyPart::Address | KeyPart::Route | KeyPart::Port | KeyPart::Gateway);
    let always_there = parts.iter().all(is_there);
    if always_there && settings.on_missing != Missing::Address {
        let why = format!("has no effect: what `{}` names is never missing", settings.name);
        problems.add("config.on_missing", why);
    }
    let by_address = parts.iter().any(|part| matches!(part, KeyPart::Address))
        || (!always_there && settings.on_missing == Missing::Address);
    // 32 and 64 are the defaults.
    for (name, is_set) in
        [("ipv4_prefix", settings.ipv4_prefix != 32), ("ipv6_prefix", settings.ipv6_prefix != 64)]
    {
        if is_set && !by_address {
            problems.add(format!("config.{name}"), "has no effect: no address is counted by");
        }
    }
}

fn network(address: u32, width: u32, bits: u8) -> u32 {
    address & u32::MAX.checked_shl(width.saturating_sub(bits.into())).unwrap_or(0)
}

fn network_v6(address: Ipv6Addr, bits: u8) -> u128 {
    u128::from(address) & u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0)
}

fn text(value: Option<&[u8]>, hasher: &mut impl Hasher) -> Result<(), Lacking> {
    let value = value.filter(|value| !value.is_empty()).ok_or(Lacking)?;
    hasher.write_u8(1);
    hasher.write_usize(value.len());
    hasher.write(value);
    Ok(())
}

/// Whether a cookie can have this name (RFC 6265 §4.1.1).
fn is_cookie_name(name: &str) -> bool {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.bytes().all(is_token)
}

fn part(text: &str) -> Result<KeyPart, (String, String)> {
    let remedy = || {
        "write `address`, `consumer`, `group`, `route`, `owner`, `port`, `gateway`, `grpc_method`, `header:NAME`, `cookie:NAME`, `claim:NAME` or `template:TEXT`"
            .to_owned()
    };
    let template = |text: &str| {
        Template::parse(text, Moment::Request).map(KeyPart::Template).map_err(|bad| (bad.message, bad.remedy))
    };
    match text.split_once(':') {
        None if text == "address" => Ok(KeyPart::Address),
        None if text == "consumer" => Ok(KeyPart::Consumer),
        None if text == "group" => Ok(KeyPart::Group),
        None if text == "route" => Ok(KeyPart::Route),
        None if text == "owner" => Ok(KeyPart::Owner),
        None if text == "port" => Ok(KeyPart::Port),
        None if text == "gateway" => Ok(KeyPart::Gateway),
        None if text == "grpc_method" => Ok(KeyPart::GrpcMethod),
        Some(("header", name)) => HeaderName::from_bytes(name.as_bytes())
            .map(KeyPart::Header)
            .map_err(|_| (format!("`{name}` is not a valid header name"), remedy())),
        Some(("cookie", name)) if is_cookie_name(name) => Ok(KeyPart::Cookie(name.into())),
        Some(("claim", name)) if !name.is_empty() && !name.contains(['}', '$']) && !name.contains(":-") => {
            template(&format!("${{identity.claim.{name}}}"))
        }
        Some(("template", text)) if text.contains("${") => template(text),
        _ => Err((format!("`{text}` is nothing to count by"), remedy())),
    }
}

#[cfg(test)]
mod tests;
