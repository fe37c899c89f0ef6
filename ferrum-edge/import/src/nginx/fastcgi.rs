//! Converts FastCGI: `fastcgi_pass`, its parameters and scripts, and front controllers in `try_files`.

use serde_json::{Map, Value};

use super::asked::Test;
use super::blocks::Directive;
use super::guards::is_guarded;
use super::location::{Location, LocationKind};
use super::site::Site;
use super::{Nginx, first, innermost, said};
use crate::draft::{FastCgi, Plug, Proxy, To, draft};
use crate::text;

/// Parameters that the gateway sends by default with the same values.
const USUAL: &[(&str, &[&str])] = &[
    ("QUERY_STRING", &["$query_string", "$args"]),
    ("REQUEST_METHOD", &["$request_method"]),
    ("CONTENT_TYPE", &["$content_type"]),
    ("CONTENT_LENGTH", &["$content_length"]),
    ("SCRIPT_NAME", &["$fastcgi_script_name"]),
    ("PATH_INFO", &["$fastcgi_path_info", "$path_info"]),
    ("PATH_TRANSLATED", &["$document_root$fastcgi_path_info", "$document_root$path_info"]),
    ("REQUEST_URI", &["$request_uri"]),
    ("DOCUMENT_URI", &["$document_uri", "$uri"]),
    ("DOCUMENT_ROOT", &["$document_root", "$realpath_root"]),
    ("SERVER_PROTOCOL", &["$server_protocol"]),
    ("REQUEST_SCHEME", &["$scheme"]),
    ("HTTPS", &["$https"]),
    ("GATEWAY_INTERFACE", &["CGI/1.1"]),
    ("REMOTE_ADDR", &["$remote_addr"]),
    ("REMOTE_PORT", &["$remote_port"]),
    ("REMOTE_USER", &["$remote_user"]),
    ("SERVER_ADDR", &["$server_addr"]),
    ("SERVER_PORT", &["$server_port"]),
    ("SERVER_NAME", &["$host", "$http_host"]),
    ("REDIRECT_STATUS", &["200"]),
    ("HTTP_PROXY", &[""]),
];
/// Script endings that the importer looks for in regexes.
const ENDINGS: [&str; 9] = ["php", "phtml", "php5", "php7", "phar", "cgi", "fcgi", "pl", "py"];

/// A FastCGI application: its address, and the settings of the proxy.
pub(super) struct Application {
    pub(super) to: To,
    pub(super) settings: Proxy,
    /// The cache of its answers.
    pub(super) cache: Option<Plug>,
}

impl Application {
    /// Whether the application runs script files.
    pub(super) fn has_scripts(&self) -> bool {
        self.settings.get("fastcgi").is_some_and(|rules| rules.get("root").is_some())
    }

    /// Replaces `try_files` by these scripts.
    pub(super) fn trying(mut self, scripts: &[String]) -> Self {
        if let Some(Value::Object(rules)) = self.settings.get_mut("fastcgi") {
            rules.insert("try_files".to_owned(), scripts.into());
        }
        self
    }
}

impl<'d> Nginx<'_> {
    /// Converts `fastcgi_pass` of a location. `None` if it cannot be converted; the report then contains the reason.
    pub(super) fn application(
        &mut self,
        site: &Site<'d>,
        place: &str,
        levels: &[&'d Directive],
        pass: &Directive,
    ) -> Option<Application> {
        let what = format!("{place}: {pass}");
        let to = self.application_target(pass, &what)?;
        let mut rules = FastCgi::default();
        let root = self.script_root(levels, &what, &mut rules)?;
        let own_tries = levels.last().and_then(|level| level.block.iter().find(|it| it.name == "try_files"));
        if let Some(tried) = own_tries
            && !self.script_tries(place, tried, &mut rules)
        {
            return None;
        }
        if root.is_some() {
            self.endings(levels, &mut rules);
            if let Some(index) = first(levels, "fastcgi_index").filter(|name| !name.contains(['$', '/'])) {
                rules.index(index);
            }
        }
        self.params(site, place, levels, root.as_deref(), &mut rules);
        if first(levels, "fastcgi_keep_conn") == Some("on") {
            rules.keep_alive(true);
        }
        let mut settings = draft!(Proxy { backend_protocol: "fastcgi", strip_listen_path: false });
        if !rules.is_empty() {
            settings.fastcgi(rules);
        }
        let millis = |name: &str| {
            let said = first(levels, name).and_then(|time| text::millis(time, 1000));
            said.unwrap_or(60_000).min(86_400_000)
        };
        let (read, send) = (millis("fastcgi_read_timeout"), millis("fastcgi_send_timeout"));
        settings.backend_connect_timeout(text::duration(millis("fastcgi_connect_timeout").max(1)));
        settings.backend_first_byte_timeout(text::duration(read));
        settings.backend_idle_timeout(text::duration(read.max(send)));
        for name in ["fastcgi_intercept_errors", "fastcgi_ignore_headers"] {
            if let Some(said) = innermost(levels, name).filter(|it| it.arguments.iter().any(|it| it != "off"))
            {
                self.out.not_converted(
                    said.at,
                    format_args!("{place}: {said}"),
                    "the gateway does not support this here",
                    "",
                );
            }
        }
        let cache = self.cache(place, levels);
        self.out.converted(pass.at, what);
        Some(Application { to, settings, cache })
    }

    fn application_target(&mut self, pass: &Directive, what: &str) -> Option<To> {
        let url = pass.arguments.first().map_or("", String::as_str);
        if url.contains('$') {
            let why = "where it passes to is not known beforehand: a variable of the request; it answers 503";
            self.out.not_converted(pass.at, what, why, "name the targets, one proxy for each");
            return None;
        }
        let url = url.trim_start_matches("fastcgi://");
        if let Some(upstream) = self.upstreams.get(url) {
            return Some(To::Upstream { id: upstream.id.clone(), is_tls: false });
        }
        if url.starts_with("unix:/") {
            let host = url.trim_end_matches(':').to_owned();
            return Some(To::Host { host, port: 0, is_tls: false });
        }
        match text::host_port(url) {
            Some((host, Some(port))) if !host.is_empty() => Some(To::Host { host, port, is_tls: false }),
            _ => {
                self.out.not_converted(
                    pass.at,
                    what,
                    format_args!("`{url}` is no address; it answers 503"),
                    "",
                );
                None
            }
        }
    }

    /// The folder of the scripts, from `SCRIPT_FILENAME`. A fixed script also sets `try_files`. Returns `Some(None)` for an
    /// application without scripts, and `None` if the value cannot be converted.
    fn script_root(
        &mut self,
        levels: &[&Directive],
        what: &str,
        rules: &mut FastCgi,
    ) -> Option<Option<String>> {
        let params = said(levels, "fastcgi_param");
        let file =
            params.iter().rev().find(|it| it.arguments.first().is_some_and(|it| it == "SCRIPT_FILENAME"));
        let Some(file) = file else { return Some(None) };
        let root = innermost(levels, "root").and_then(|it| it.arguments.first()).cloned();
        let has_alias = levels.last().is_some_and(|level| level.block.iter().any(|it| it.name == "alias"));
        let root = root.filter(|root| !root.contains('$') && !has_alias);
        let root = root.map(|root| self.folder.join(root).display().to_string());
        let value = file.arguments.get(1).map_or("", String::as_str);
        let value = value.replace("$realpath_root", "$document_root");
        let value =
            value.replace("$document_root/$fastcgi_script_name", "$document_root$fastcgi_script_name");
        let value = if value == "$request_filename" { "$document_root$fastcgi_script_name" } else { &value };
        let resolved = match &root {
            Some(root) => value.replace("$document_root", root.trim_end_matches('/')),
            None => value.to_owned(),
        };
        if let Some(folder) = resolved.strip_suffix("$fastcgi_script_name")
            && folder.starts_with('/')
            && !folder.contains('$')
        {
            rules.root(folder.trim_end_matches('/'));
            return Some(Some(folder.trim_end_matches('/').to_owned()));
        }
        if let Some((folder, script)) = resolved.rsplit_once('/')
            && resolved.starts_with('/')
            && !resolved.contains('$')
            && script.contains('.')
        {
            rules.root(if folder.is_empty() { "/" } else { folder });
            rules.try_files([format!("/{script}")]);
            return Some(Some(folder.to_owned()));
        }
        let why = "which file it runs can't be said here; it answers 503";
        self.out.not_converted(file.at, what, why, "set `fastcgi.root` and `fastcgi.try_files` of the proxy");
        None
    }

    /// Converts `try_files` beside `fastcgi_pass`: an existing script, else 404 or a fixed script. Returns false if it cannot be
    /// converted.
    fn script_tries(&mut self, place: &str, tried: &Directive, rules: &mut FastCgi) -> bool {
        let what = format!("{place}: {tried}");
        let Some((last, before)) = tried.arguments.split_last() else { return true };
        let is_script = |it: &String| matches!(it.as_str(), "$uri" | "$fastcgi_script_name" | "$uri/");
        if !before.iter().all(is_script) {
            self.out.not_converted(tried.at, what, "only `$uri` is known in it; it answers 503", "");
            return false;
        }
        if last == "=404" {
            self.out.converted(tried.at, what);
            return true;
        }
        match self.front_script(last) {
            Some(script) if script.starts_with('/') && !rules.contains_key("try_files") => {
                rules.try_files(["{path}", &script]);
                self.out.converted(tried.at, what);
                true
            }
            _ => {
                self.out.not_converted(
                    tried.at,
                    what,
                    "its last word can't be said here; it answers 503",
                    "",
                );
                false
            }
        }
    }

    /// Sets `split_path` from the endings in the location and in `fastcgi_split_path_info`.
    fn endings(&self, levels: &[&Directive], rules: &mut FastCgi) {
        let location = levels.iter().rev().filter(|level| level.name == "location");
        let regexes = location.flat_map(|level| &level.arguments);
        let split = innermost(levels, "fastcgi_split_path_info");
        let fixed = rules.get("try_files").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut text: Vec<String> =
            regexes.chain(split.iter().flat_map(|it| &it.arguments)).cloned().collect();
        text.extend(fixed.iter().filter_map(Value::as_str).map(str::to_owned));
        let is_word = |text: &str, ending: &str| {
            text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word.eq_ignore_ascii_case(ending))
        };
        let named = ENDINGS.iter().filter(|ending| text.iter().any(|text| is_word(text, ending)));
        let named: Vec<String> = named.map(|ending| format!(".{ending}")).collect();
        if !named.is_empty() && named != [".php"] {
            if !named.iter().any(|ending| ending == ".php") {
                let index = format!("index{}", named[0]);
                rules.index(index);
            }
            rules.split_path(named);
        }
    }

    /// Converts `fastcgi_param`.
    fn params(
        &mut self,
        site: &Site<'d>,
        place: &str,
        levels: &[&'d Directive],
        root: Option<&str>,
        rules: &mut FastCgi,
    ) {
        let mut params = Map::new();
        for param in said(levels, "fastcgi_param") {
            let [name, value, rest @ ..] = param.arguments.as_slice() else { continue };
            let is_usual =
                USUAL.iter().any(|(known, values)| known == name && values.contains(&value.as_str()));
            let is_told = matches!(name.as_str(), "SCRIPT_FILENAME" | "SERVER_SOFTWARE" | "PATH_TRANSLATED");
            if is_told
                || root.is_some() && is_usual
                || is_usual && !value.contains("fastcgi")
                || name == "HTTP_PROXY"
            {
                continue;
            }
            let value = match name.as_str() {
                "SERVER_NAME" if value == "$server_name" => match site.names.first() {
                    Some(name) if !name.starts_with('*') => name.clone(),
                    _ => continue,
                },
                // A variable that this location sets to the path info.
                "PATH_INFO" if root.is_some() && is_path_info(levels, value) => continue,
                "CONTENT_LENGTH" => continue,
                _ => value.clone(),
            };
            let value = value.replace("$fastcgi_script_name", "$uri").replace("$fastcgi_path_info", "$uri");
            let value = match root {
                Some(root) => value.replace("$document_root", root).replace("$realpath_root", root),
                None => value,
            };
            match self.vars_here.template(&value) {
                Some(value) if value.contains('\n') && !value.contains("${") => {
                    let lines: Vec<&str> = value.lines().map(str::trim).collect();
                    params.insert(name.clone(), lines.into());
                }
                // The gateway also sends an empty value. Programs treat it like a missing one.
                Some(value) if rest.is_empty() || rest == ["if_not_empty"] => {
                    params.insert(name.clone(), value.into());
                }
                _ => {
                    let why = "its value can't be said here; it is not sent";
                    self.out.not_converted(
                        param.at,
                        format_args!("{place}: {param}"),
                        why,
                        "add it to `fastcgi.params`",
                    );
                }
            }
        }
        if !params.is_empty() {
            rules.params(params);
        }
    }

    /// The last argument of `try_files` in the gateway's syntax: a script with its query.
    pub(super) fn front_script(&self, last: &str) -> Option<String> {
        let last = last.replace("$is_args$query_string", "?$args").replace("$is_args$args", "?$args");
        // The path info of the script is the path of the request.
        let last = last.replace("/$request_uri", "$request_uri").replace("/$uri", "$uri");
        let is_path = |script: &&str| !script.contains('?');
        let last = match last.strip_suffix("$request_uri").filter(is_path) {
            Some(script) => format!("{script}{{path}}?$args"),
            None => match last.strip_suffix("$uri").filter(is_path) {
                Some(script) => format!("{script}{{path}}"),
                None => last,
            },
        };
        let (path, query) = last.split_once('?').map_or((last.as_str(), None), |(a, b)| (a, Some(b)));
        if path.trim_end_matches("{path}").contains(['$', '{', '}']) || !path.starts_with('/') {
            return None;
        }
        match query {
            // Without a query, the script receives none.
            None | Some("") => Some(format!("{path}?")),
            Some("$args" | "$query_string") => Some(path.to_owned()),
            Some(query) => self.vars_here.template(query).map(|query| format!("{path}?{query}")),
        }
    }

    /// The path of the script in the last argument of `try_files`, without path info and query.
    pub(super) fn front_path(&self, last: &str) -> Option<String> {
        let script = self.front_script(last)?;
        let path = script.split('?').next().unwrap_or_default();
        Some(path.trim_end_matches("{path}").to_owned())
    }

    /// The application that runs this script, if nginx selects a location for it that no access rule protects.
    pub(super) fn application_of(&mut self, site: &Site<'d>, script: &str) -> Option<Application> {
        let location = site.picked(script)?.clone();
        let pass = location.directive.block.iter().find(|it| it.name == "fastcgi_pass")?.clone();
        if is_guarded(&location) {
            return None;
        }
        let levels = [site.http, site.directive, location.directive];
        let place = super::item::place(site, &levels);
        let mut application = self.application(site, &place, &levels, &pass)?;
        let decides = |it: &Directive| matches!(it.name.as_str(), "set" | "if" | "rewrite");
        if location.directive.block.iter().any(decides)
            && let Some(cache) = application.cache.take()
        {
            // What the location decides on the way is not known before it is picked.
            let why = "paths that lead to the location are not cached: it has directives of its own that may forbid it";
            let todo = "add them to `when` of the plugin `response_cache`, and the plugin to the proxy";
            self.out.partial(location.directive.at, format_args!("{place}: {}", cache.name), why, todo);
        }
        Some(application)
    }
}

impl<'d> Site<'d> {
    /// The location that nginx selects for a path.
    pub(super) fn picked(&self, path: &str) -> Option<&Location<'d>> {
        picked(&self.locations, path)
    }
}

fn picked<'l, 'd>(locations: &'l [Location<'d>], path: &str) -> Option<&'l Location<'d>> {
    let exact = |it: &&Location<'_>| matches!(&it.way, LocationKind::Exact(own) if own == path);
    if let Some(exact) = locations.iter().find(exact) {
        return Some(exact);
    }
    let length = |it: &&Location<'_>| match &it.way {
        LocationKind::Prefix(own) if path.starts_with(own.as_str()) => Some(own.len()),
        _ => None,
    };
    let prefix = locations.iter().filter(|it| length(it).is_some()).max_by_key(|it| length(it));
    let within = prefix.and_then(|prefix| picked(&prefix.inner, path));
    if let Some(within) = within.filter(|within| !matches!(within.way, LocationKind::Prefix(_))) {
        return Some(within);
    }
    let regex = || {
        locations.iter().find(|it| {
            matches!(&it.way, LocationKind::Regex(regex, ignores) if Test::Regex(regex, *ignores).fits_text(path))
        })
    };
    match prefix {
        Some(prefix) if prefix.before_regexes => within.or(Some(prefix)),
        other => regex().or(within).or(other),
    }
}

/// Whether a variable is set to the path info.
fn is_path_info(levels: &[&Directive], value: &str) -> bool {
    let sets = levels.iter().flat_map(|level| level.all("set"));
    let mut made = sets.filter(|it| it.arguments.first().is_some_and(|name| name == value));
    made.any(|it| it.arguments.get(1).is_some_and(|value| value == "$fastcgi_path_info"))
}
