//! What users write, and what it is checked to mean.

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Seconds};
use gateway_core::template::{Moment, Template};
use gateway_plugin_common::origin::Origin;
use gateway_plugin_common::parse::has_other_case;
use http::{HeaderName, Method};
use schemars::JsonSchema;
use serde::Deserialize;

use super::origin_check::Origins;
use super::token::Tokens;

/// Settings of `csrf`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Secret that signs tokens, at least 32 bytes; the same on every gateway of a site. Required with `token`.
    #[schemars(extend("format" = "secret"))]
    secret: Option<String>,
    /// Previous secret: its tokens are accepted and replaced. Default none.
    #[schemars(extend("format" = "secret"))]
    previous_secret: Option<String>,
    /// Whether requests with unsafe methods need a token. Default true.
    token: bool,
    /// Whether requests with unsafe methods must come from the site's own pages. Default true.
    origin: bool,
    /// Safe methods, which are not checked. Default GET, HEAD and OPTIONS.
    safe_methods: Vec<String>,
    /// Other origins whose pages may send requests: `https://example.com` or `https://*.example.com`. Default none.
    trusted_origins: Vec<String>,
    /// Also admits pages of other hosts of the same registrable domain (`Sec-Fetch-Site: same-site`). Default false.
    allow_same_site: bool,
    /// Admits requests without `Sec-Fetch-Site`, `Origin` and `Referer`, as clients other than browsers send them. They
    /// still need the token. Default true; without `token` false.
    allow_without_origin: Option<bool>,
    /// Cookie that contains the token. Default `csrf_token`.
    cookie_name: String,
    /// `Domain` of the cookie. Default none: this host only.
    cookie_domain: Option<String>,
    /// `Path` of the cookie. Default `/`.
    cookie_path: String,
    /// Whether browsers send the cookie over HTTPS only (`Secure`). Default true.
    cookie_secure: bool,
    /// `SameSite` of the cookie: `lax`, `strict` or `none`. Default `lax`.
    cookie_same_site: SameSite,
    /// Header in which pages return the token. Default `X-CSRF-Token`.
    header_name: String,
    /// Field of a URL-encoded form in which pages may return the token instead. The gateway buffers the form. Default
    /// none.
    form_field: Option<String>,
    /// Size of such a form, 1 byte to 16 MiB. Default 64 KiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    max_form: Bytes,
    /// Lifetime of a token, 1 min to 30 d. The gateway renews it after half of that time. Default 12 h.
    #[schemars(range(min = 60, max = 2_592_000))]
    ttl: Seconds,
    /// Binds tokens to a session, so that a caller cannot use another caller's token: a template such as
    /// `${request.cookie.session}`. Default none.
    bind_to: Option<String>,
    /// Counts violations and logs `csrf.would_refuse`, but rejects nothing. Default false.
    dry_run: bool,
}

/// `SameSite` of a cookie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SameSite {
    /// Sent if the user follows a link from another site.
    #[default]
    Lax,
    /// Never sent with requests from another site.
    Strict,
    /// Always sent.
    None,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            secret: None,
            previous_secret: None,
            token: true,
            origin: true,
            safe_methods: ["GET", "HEAD", "OPTIONS"].map(str::to_owned).into(),
            trusted_origins: Vec::new(),
            allow_same_site: false,
            allow_without_origin: None,
            cookie_name: "csrf_token".into(),
            cookie_domain: None,
            cookie_path: "/".into(),
            cookie_secure: true,
            cookie_same_site: SameSite::Lax,
            header_name: "X-CSRF-Token".into(),
            form_field: None,
            max_form: Bytes(64 << 10),
            ttl: Seconds(12 * 3600),
            bind_to: None,
            dry_run: false,
        }
    }
}

/// Settings, checked.
pub(super) struct Settings {
    pub(super) safe_methods: Box<[Method]>,
    pub(super) cookie: Box<str>,
    /// What follows the token in `Set-Cookie`.
    pub(super) attributes: Box<str>,
    pub(super) header: HeaderName,
    pub(super) form_field: Option<Box<str>>,
    pub(super) max_form: u64,
    pub(super) bind_to: Option<Template>,
    pub(super) dry_run: bool,
}

const MIN_SECRET: usize = 32;

/// Checks settings.
pub(super) fn read(config: Config) -> Result<(Settings, Option<Origins>, Option<Tokens>), Problems> {
    let mut problems = Problems::default();
    if !config.token && !config.origin {
        problems.add("config", "neither origins nor tokens are checked").remedy =
            Some("leave `origin` or `token` on".into());
    }
    let tokens = config.token.then(|| tokens(&config, &mut problems));
    let origins = config.origin.then(|| origins(&config, &mut problems));
    let header =
        gateway_plugin_common::parse::header_name("config.header_name", &config.header_name, &mut problems);
    let bind_to = config.bind_to.as_ref();
    let bind_to = bind_to.and_then(|text| {
        gateway_plugin_common::parse::template("config.bind_to", text, Moment::Request, &mut problems)
    });
    let settings = Settings {
        safe_methods: methods(&config.safe_methods, &mut problems),
        attributes: attributes(&config, &mut problems).into(),
        cookie: config.cookie_name.into(),
        header: header.unwrap_or(http::header::COOKIE),
        form_field: config.form_field.map(Into::into),
        max_form: config.max_form.0,
        bind_to,
        dry_run: config.dry_run,
    };
    problems.into_result((settings, origins, tokens.flatten()))
}

fn tokens(config: &Config, problems: &mut Problems) -> Option<Tokens> {
    let given = [("secret", &config.secret), ("previous_secret", &config.previous_secret)];
    for (name, secret) in given {
        if secret.as_ref().is_some_and(|secret| secret.len() < MIN_SECRET) {
            problems.add(format!("config.{name}"), format!("the secret has less than {MIN_SECRET} bytes"));
        }
    }
    let Some(secret) = &config.secret else {
        problems.add("config.secret", "tokens need a secret that signs them").remedy =
            Some("such as the output of `openssl rand -base64 48`".into());
        return None;
    };
    Some(Tokens::new(
        secret.as_bytes(),
        config.previous_secret.as_ref().map(|it| it.as_bytes()),
        config.ttl.0,
    ))
}

fn origins(config: &Config, problems: &mut Problems) -> Origins {
    let mut trusted = Vec::with_capacity(config.trusted_origins.len());
    for (n, text) in config.trusted_origins.iter().enumerate() {
        match Origin::read(text).filter(|_| text != "null") {
            Some(origin) => trusted.push(origin),
            None => {
                let message = format!("`{text}` is not an origin as browsers write it");
                problems.add(format!("config.trusted_origins[{n}]"), message).remedy =
                    Some("write scheme, host in lower case, and a port other than the scheme's own".into());
            }
        }
    }
    Origins {
        trusted: trusted.into(),
        same_site: config.allow_same_site,
        without: config.allow_without_origin.unwrap_or(config.token),
    }
}

fn methods(texts: &[String], problems: &mut Problems) -> Box<[Method]> {
    let mut methods = Vec::with_capacity(texts.len());
    for (n, text) in texts.iter().enumerate() {
        let is_unsafe = ["POST", "PUT", "PATCH", "DELETE"].contains(&text.as_str());
        match Method::from_bytes(text.as_bytes()) {
            Ok(_) if has_other_case(text) => {
                let message = format!("no request has the method `{text}`: methods are in capitals");
                problems.add(format!("config.safe_methods[{n}]"), message).remedy =
                    Some(format!("write `{}`", text.to_ascii_uppercase()));
            }
            Ok(method) if !is_unsafe => methods.push(method),
            Ok(_) => {
                let message = format!("`{text}` changes something");
                problems.add(format!("config.safe_methods[{n}]"), message);
            }
            Err(_) => {
                let message = format!("`{text}` is not a valid method");
                problems.add(format!("config.safe_methods[{n}]"), message);
            }
        }
    }
    methods.into()
}

/// The cookie's attributes (RFC 6265bis §4.1.2).
fn attributes(config: &Config, problems: &mut Problems) -> String {
    let is_name = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if config.cookie_name.is_empty() || !config.cookie_name.bytes().all(is_name) {
        problems.add("config.cookie_name", format!("`{}` is not a valid cookie name", config.cookie_name));
    }
    let is_value = |text: &str| text.bytes().all(|c| (0x21..0x7f).contains(&c) && c != b';');
    if !config.cookie_path.starts_with('/') || !is_value(&config.cookie_path) {
        problems.add("config.cookie_path", format!("`{}` is not a path", config.cookie_path));
    }
    let domain = config.cookie_domain.as_deref();
    if domain.is_some_and(|domain| domain.is_empty() || !is_value(domain)) {
        problems.add("config.cookie_domain", "this is not a host name");
    }
    let of_host = config.cookie_name.starts_with("__Host-");
    if (of_host && (domain.is_some() || config.cookie_path != "/" || !config.cookie_secure))
        || (config.cookie_name.starts_with("__Secure-") && !config.cookie_secure)
    {
        problems
            .add("config.cookie_name", "browsers refuse a cookie of this name with these attributes")
            .remedy = Some(
            "`__Host-` needs `cookie_secure`, path `/` and no domain; `__Secure-` needs `cookie_secure`"
                .into(),
        );
    }
    if config.cookie_same_site == SameSite::None && !config.cookie_secure {
        problems.add("config.cookie_same_site", "browsers refuse `none` without `cookie_secure`");
    }
    let same_site = match config.cookie_same_site {
        SameSite::Lax => "Lax",
        SameSite::Strict => "Strict",
        SameSite::None => "None",
    };
    let secure = if config.cookie_secure { "; Secure" } else { "" };
    let domain = domain.map(|domain| format!("; Domain={domain}")).unwrap_or_default();
    let (path, ttl) = (&config.cookie_path, config.ttl.0);
    format!("; Path={path}{domain}; Max-Age={ttl}; SameSite={same_site}{secure}")
}
