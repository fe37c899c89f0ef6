//! Converts `php_fastcgi`: scripts, front controllers, and the files of the site.

use serde_json::{Map, Value};

use super::proxy::Proxying;
use super::sites::Scope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::draft::{FastCgi, Plug, StaticFiles, To, draft};
use crate::steps::RouteEnd;
use crate::text;

/// The scripts that a `php_fastcgi` directive specifies.
struct Scripts {
    root: Option<String>,
    index: Option<String>,
    tries: Option<Vec<String>>,
    endings: Vec<String>,
    params: Map<String, Value>,
}

impl Caddy<'_> {
    /// Converts `php_fastcgi TARGET… { … }`.
    pub(super) fn php_fastcgi(&mut self, line: &CaddyLine, words: &[&str], scope: &Scope) -> RouteEnd {
        let what = line.text();
        let mut proxy =
            Proxying { to: words.iter().map(|it| (*it).to_owned()).collect(), ..Proxying::default() };
        let mut scripts = Scripts {
            root: scope.root.clone(),
            index: Some("index.php".to_owned()),
            tries: None,
            endings: Vec::new(),
            params: Map::new(),
        };
        for inner in line.inner() {
            self.script_line(line, inner, &mut scripts, &mut proxy);
        }
        let root = scripts.root.as_ref().filter(|root| root.starts_with('/') && !root.contains('{'));
        let Some(root) = root.cloned() else {
            let why = "its root is not known; it answers 503";
            self.out.not_converted(line.at, what, why, "set `fastcgi.root` of the proxy");
            return RouteEnd::new(line.at, To::Closed);
        };
        let Some(tries) = scripts.try_files_entries() else {
            let why = "its `try_files` can't be converted; it answers 503";
            self.out.not_converted(line.at, what, why, "set `fastcgi.try_files` of the proxy");
            return RouteEnd::new(line.at, To::Closed);
        };
        let mut ending = self.proxied(line.at, &what, proxy);
        if !matches!(ending.to, To::Host { .. } | To::Upstream { .. }) {
            return ending;
        }
        let index = scripts.index.clone();
        let mut rules = draft!(FastCgi { root: &root, try_files: tries });
        if let Some(index) = index.as_ref().filter(|it| *it != "index.php") {
            rules.index(index);
        }
        if !scripts.endings.is_empty() && scripts.endings != [".php"] {
            rules.split_path(scripts.endings);
        }
        if !scripts.params.is_empty() {
            rules.params(scripts.params);
        }
        ending.settings.shift_remove("preserve_host_header");
        ending.settings.backend_protocol("fastcgi");
        ending.settings.fastcgi(rules);
        if scope.has_files {
            let why = "a folder without its slash is answered 301, in Caddy 308; other methods than GET and HEAD on files are for PHP";
            self.out.partial(line.at, &what, why, "");
            // PHP handles a folder, whatever else the folder contains.
            let names: Vec<String> = index.into_iter().collect();
            let config = draft!(StaticFiles { root, index: names, passthrough: true, dotfiles: true });
            ending.plugins.push(Plug::of(config));
        }
        ending
    }

    fn script_line(
        &mut self,
        whole: &CaddyLine,
        line: &CaddyLine,
        scripts: &mut Scripts,
        proxy: &mut Proxying,
    ) {
        let what = format!("{}: {}", whole.text(), line.text());
        let first = line.arguments().first().map(String::as_str);
        let millis = first.and_then(|time| text::millis(time, 1_000));
        match (line.name(), first) {
            ("root", Some(root)) => scripts.root = Some(root.to_owned()),
            ("split", Some(_)) => scripts.endings = line.arguments().to_vec(),
            ("index", Some("off")) => scripts.index = None,
            ("index", Some(index)) => scripts.index = Some(index.to_owned()),
            ("try_files", Some(_)) => scripts.tries = Some(line.arguments().to_vec()),
            ("env", Some(name)) => {
                match line.arguments().get(1).and_then(|value| matchers::template(value)) {
                    Some(value) => drop(scripts.params.insert(name.to_owned(), value.into())),
                    None => self.out.not_converted(
                        line.at,
                        what,
                        "targets do not get it: the gateway has no value for a placeholder in it",
                        "",
                    ),
                }
            }
            ("resolve_root_symlink" | "capture_stderr", _) => {
                self.out.not_needed(
                    line.at,
                    what,
                    "what PHP reports is logged, and paths are those of the root",
                );
            }
            ("dial_timeout", _) => {
                let timeout = millis.map(|it| text::duration(it.max(1)));
                proxy.settings.backend_connect_timeout(timeout);
            }
            ("read_timeout" | "write_timeout", _) => {
                proxy.settings.backend_idle_timeout(millis.map(text::duration));
            }
            _ => self.proxy_line(whole, line, proxy),
        }
    }
}

impl Scripts {
    /// `try_files` in the gateway's syntax; `None` if it contains anything but paths and scripts.
    fn try_files_entries(&self) -> Option<Vec<String>> {
        let Some(tries) = &self.tries else {
            let path = "{path}".to_owned();
            return Some(match &self.index {
                Some(index) => vec![path, format!("{{path}}/{index}"), format!("/{index}")],
                None => vec![path],
            });
        };
        let ours = |text: &String| {
            let text = text.replace("{http.request.uri.path}", "{path}").replace("{index}", "index.php");
            let rest = text.replacen("{path}", "", 1);
            let is_plain = !rest.contains(['{', '=', '$', '?']);
            let is_whole = text.starts_with("{path}") || text.starts_with('/');
            is_plain.then(|| if is_whole { text } else { format!("/{text}") })
        };
        let made: Option<Vec<String>> = tries.iter().map(ours).collect();
        // The file server, if there is one, serves files that are no scripts.
        made.filter(|made| made.iter().all(|it| it.contains("{path}") || it.contains(".php")))
    }
}
