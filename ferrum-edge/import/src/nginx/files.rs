//! Files: `root`, `alias`, `index` and `try_files`.

use serde_json::Value;

use super::asked::Test;
use super::blocks::{Directive, HANDLERS};
use super::fastcgi::Application;
use super::file_fields::set_cache_rules;
use super::guards::is_guarded;
use super::item::{Passed, Rewritten};
use super::location::{Location, LocationKind};
use super::site::Site;
use super::{Nginx, first, innermost, plugins};
use crate::draft::{Proxy, StaticFiles, To, draft};
use crate::report::At;

impl<'d> Nginx<'_> {
    /// Files beneath `root` or `alias`, by `try_files` and `index`.
    pub(super) fn files(
        &mut self,
        site: &Site<'d>,
        place: &str,
        levels: &[&'d Directive],
        way: &LocationKind,
        rewritten: &Rewritten,
    ) -> Passed {
        let answer = |to: To| Passed::new(to, Proxy::default());
        let at = levels.last().map(|level| level.at).unwrap_or_default();
        let own = levels.last().filter(|level| level.name == "location");
        let alias = own.and_then(|level| level.block.iter().find(|it| it.name == "alias"));
        let root = alias.or_else(|| innermost(levels, "root"));
        // Neither an `if` nor a location within it has that of a location.
        let tried = levels.last().and_then(|level| level.block.iter().find(|it| it.name == "try_files"));
        let Some(folder) = root.and_then(|root| root.arguments.first()) else {
            if let Some(tried) = tried
                && let Some(passed) = self.fallback(site, place, tried, None)
            {
                return passed;
            }
            let why = "it neither passes on nor answers; it answers 503";
            self.out.not_converted(at, place, why, "say where its files are");
            return answer(To::Closed);
        };
        let what = format!("{place}: {}", root.map(ToString::to_string).unwrap_or_default());
        let path = self.folder.join(folder);
        let is_prefix = matches!(way, LocationKind::Prefix(_));
        if folder.contains('$')
            || *rewritten != Rewritten::No
            || alias.is_some() && !is_prefix
            || !path.is_absolute()
        {
            let why = "these files can't be served here; it answers 503";
            self.out.not_converted(at, what, why, "use the plugin `static_files`");
            return answer(To::Closed);
        }
        if let (LocationKind::Prefix(own), Some(alias)) = (way, alias)
            && own.ends_with('/')
            && !folder.ends_with('/')
        {
            let why =
                "without a slash at its end, names of files are joined to that of the folder; it answers 503";
            self.out.not_converted(alias.at, what, why, "write `alias` with a slash at its end");
            return answer(To::Closed);
        }
        let mut config = folder_config(levels, &path.display().to_string());
        // `root` has the whole path beneath it, `alias` what the location leaves of it.
        let strips = alias.is_some();
        if !asks_folders(tried, way) {
            keep_indexes(&mut config, &[]);
        }
        let index = self.index_application(site, way, tried, &config).filter(|_| !strips);
        if index.is_none() {
            self.cut_index(site, at, place, way, &mut config);
        }
        self.out.converted(at, &what);
        if !strips {
            let indexes = indexes(&config);
            let (rules, is_whole) = site.cache_rules(levels, way, &indexes, tried);
            set_cache_rules(&mut config, rules);
            if !is_whole {
                let why = "files of `index` are sent without the fields of the location that they are in";
                self.out.partial(at, format_args!("{place}: index {}", indexes.join(" ")), why, "");
            }
        }
        let name = index.as_ref().map(|(name, _)| name);
        let plain = match tried {
            Some(tried) => self.tried(site, place, tried, config, strips, name),
            None => files_of(config, strips),
        };
        let has_folders = tried.is_none_or(|tried| tried.arguments.iter().any(|it| it == "$uri/"));
        match (index, plain.to) {
            (Some((name, application)), To::Files(config)) if has_folders => {
                let mut passed = beside_files(application.trying(&[format!("{{path}}/{name}")]), config);
                self.add_plugins_of_script(site, &format!("/{name}"), &mut passed);
                passed
            }
            (_, to) => Passed { to, ..plain },
        }
    }

    /// `fastcgi_pass ADDRESS`.
    pub(super) fn scripts(
        &mut self,
        site: &Site<'d>,
        place: &str,
        levels: &[&'d Directive],
        rewritten: &Rewritten,
        pass: &Directive,
    ) -> Option<Passed> {
        if *rewritten != Rewritten::No {
            // Which script a path leads to that was made anew is not known beforehand.
            let why = "the path was rewritten on the way here; it answers 503";
            self.out.not_converted(
                pass.at,
                format_args!("{place}: {pass}"),
                why,
                "use `fastcgi.try_files` of the proxy",
            );
            return None;
        }
        let Application { to, settings, cache } = self.application(site, place, levels, pass)?;
        Some(Passed { answers: cache.into_iter().collect(), ..Passed::new(to, settings) })
    }

    /// Takes away the files of `index` that another location guards, or hands to an application: nginx looks for the location of such
    /// a file. Sent as they are, the files of an application would show its source.
    fn cut_index(
        &mut self,
        site: &Site<'d>,
        at: At,
        place: &str,
        way: &LocationKind,
        config: &mut StaticFiles,
    ) {
        let names = indexes(config);
        if let Some(first) = names.iter().position(|name| site.takes_index(name, way, is_served_otherwise)) {
            let why = "another location serves the file; folders with it are answered 404";
            let todo = "put an HTTP server in front of the application, and name it for these paths";
            self.out.route_closed(at, format_args!("{place}: index {}", names[first]), why, todo);
            keep_indexes(config, &names[..first]);
            return;
        }
        let Some(first) = names.iter().position(|name| site.takes_index(name, way, is_guarded)) else {
            return;
        };
        let why = "another location guards the file; folders with it are answered 404";
        if self.out.guard_not_converted(at, format_args!("{place}: index {}", names[first]), why, "") {
            keep_indexes(config, &names[..first]);
        }
    }

    /// The application that a script in `index` is for, and the script's name: the first one that another location takes has to be
    /// one, and what is tried besides has to be files.
    fn index_application(
        &mut self,
        site: &Site<'d>,
        way: &LocationKind,
        tried: Option<&Directive>,
        config: &StaticFiles,
    ) -> Option<(String, Application)> {
        let names = config.get("index").and_then(Value::as_array)?;
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let is_taken = |name: &&&str| {
            site.takes_index(name, way, is_served_otherwise) || site.takes_index(name, way, is_guarded)
        };
        let mut taken = names.iter().filter(is_taken);
        let (script, None) = (taken.next()?, taken.next()) else { return None };
        let last = tried.and_then(|tried| tried.arguments.last());
        let is_plain = match last.map(String::as_str) {
            None | Some("=404" | "$uri/") => true,
            Some(last) => {
                let script = self.front_path(last)?;
                self.application_of(site, &script).is_some()
            }
        };
        let folder = match way {
            LocationKind::Exact(own) | LocationKind::Prefix(own) => own.trim_end_matches('/'),
            LocationKind::Regex(..) | LocationKind::Named(_) => return None,
        };
        // In folders below, too.
        let deeper = format!("{folder}/x/{script}");
        let application =
            is_plain.then(|| self.application_of(site, &format!("{folder}/{script}"))).flatten()?;
        let below = self.application_of(site, &deeper)?;
        let is_one = below.to == application.to && below.settings == application.settings;
        (is_one && application.has_scripts()).then(|| ((*script).to_owned(), application))
    }

    /// The application that the last word of `try_files` leads to, with what it tries.
    fn front(
        &mut self,
        site: &Site<'d>,
        tried: &Directive,
        config: &StaticFiles,
        index: Option<&String>,
    ) -> Option<Application> {
        let (last, before) = tried.arguments.split_last()?;
        let script = self.front_script(last)?;
        let path = self.front_path(last)?;
        let application = self.application_of(site, &path)?;
        let mut tries = Vec::new();
        let has_folders = before.iter().any(|it| it == "$uri/");
        if has_folders && let Some(name) = index {
            tries.push(format!("{{path}}/{name}"));
        }
        tries.push(script);
        // An index that somebody else serves, and is not known to be this application's, must not be sent.
        let others = config.get("index").and_then(Value::as_array).into_iter().flatten();
        let is_safe = !has_folders
            || index.is_some()
            || others.filter_map(Value::as_str).all(|name| name.ends_with(".html"));
        (application.has_scripts() && is_safe).then(|| application.trying(&tries))
    }

    /// Gives requests that lead to a script the limits, fields and pages that the script's location has of its own. Files beside it
    /// get them, too, which the report says.
    fn add_plugins_of_script(&mut self, site: &Site<'d>, script: &str, passed: &mut Passed) {
        let Some(location) = site.picked(script).cloned() else { return };
        let is_plugin = |it: &&Directive| {
            let name = it.name.as_str();
            name == "error_page" || plugins::NAMES.contains(&name) && !name.starts_with("proxy_")
        };
        let Some(own) = location.directive.block.iter().find(is_plugin) else { return };
        let levels = [site.http, site.directive, location.directive];
        let place = super::item::place(site, &levels);
        let mut made = self.plugins(&place, &levels);
        made.extend(self.error_pages(site, &place, &levels));
        let mut settings = self.settings(&place, &levels);
        settings.append(&mut passed.settings);
        (passed.plugins, passed.settings) = (Some(made), settings);
        let why = "it also applies to paths that lead to the script, and to files beside the script";
        self.out.partial(own.at, format_args!("{place}: {own}"), why, "");
    }

    /// `try_files` of a location with files.
    fn tried(
        &mut self,
        site: &Site<'d>,
        place: &str,
        tried: &'d Directive,
        mut config: StaticFiles,
        strips: bool,
        index: Option<&String>,
    ) -> Passed {
        let what = format!("{place}: {tried}");
        let has_folders = tried.arguments.iter().any(|it| it == "$uri/");
        // Folders are asked for by `$uri/` only.
        if !has_folders {
            keep_indexes(&mut config, &[]);
        }
        let mut known = self.candidates(&what, tried);
        if let Some(application) = self.front(site, tried, &config, index) {
            self.out.converted(tried.at, what);
            if known != ["{path}"] {
                config.try_files(known);
            }
            let mut passed = beside_files(application, config);
            if let Some(script) = tried.arguments.last().and_then(|last| self.front_path(last)) {
                self.add_plugins_of_script(site, &script, &mut passed);
            }
            return passed;
        }
        if let Some(mut passed) = self.fallback(site, place, tried, Some(&mut known)) {
            if passed.to != To::Closed {
                config.passthrough(true);
                config.refuse_other_methods(true);
                config.try_files(known);
                passed.files = Some(config);
            }
            return passed;
        }
        config.try_files(known);
        files_of(config, strips)
    }

    /// What `try_files` looks for, but for its last word.
    fn candidates(&mut self, what: &str, tried: &Directive) -> Vec<String> {
        let words = tried.arguments.split_last().map_or(&[][..], |(_, before)| before);
        let mut known: Vec<String> = Vec::new();
        for word in words {
            let candidate = match word.as_str() {
                "$uri/" => "{path}".to_owned(),
                word => StaticFiles::below_root(&word.replace("$document_uri", "$uri"), "$uri"),
            };
            let is_folder = !candidate.contains("{path}") && candidate.ends_with('/');
            if candidate.contains('$') || candidate.matches("{path}").count() > 1 || is_folder {
                let why = format!("`{word}` is not looked for; what comes behind it answers");
                self.out.partial(tried.at, what, why, "");
            } else if !known.contains(&candidate) {
                known.push(candidate);
            }
        }
        if known.is_empty() {
            known.push("{path}".to_owned());
        }
        known
    }
}

impl<'d> Site<'d> {
    /// A location that guards this path, or may.
    pub(super) fn guarded(&self, path: &str) -> Option<&Location<'d>> {
        let takes = |location: &&Location<'d>| {
            is_guarded(location)
                && match &location.way {
                    LocationKind::Exact(own) => own == path,
                    LocationKind::Prefix(own) => path.starts_with(own.as_str()),
                    LocationKind::Regex(regex, ignores) => Test::Regex(regex, *ignores).fits_text(path),
                    LocationKind::Named(_) => false,
                }
        };
        match self.led_to(path, true) {
            Some(location) => Some(location).filter(|location| is_guarded(location)),
            None => self.all_locations().into_iter().find(takes),
        }
    }

    /// Whether such a location takes files of this name in a folder of another one.
    fn takes_index(&self, name: &str, folder: &LocationKind, is_such: fn(&Location<'_>) -> bool) -> bool {
        let folder = match folder {
            LocationKind::Exact(own) | LocationKind::Prefix(own) => own.as_str(),
            LocationKind::Regex(..) | LocationKind::Named(_) => "/",
        };
        // Where regexes are not looked at, they take no file of the folder.
        let own = self.index.of_outer_path(folder);
        let before_regexes =
            own.iter().any(|it| it.before_regexes && !matches!(it.way, LocationKind::Exact(_)));
        let is_outer = |it: &Location<'_>| {
            self.locations.iter().any(|outer| std::ptr::eq(outer.directive, it.directive))
        };
        let ending = name.rsplit_once('.').map(|(_, ending)| ending).filter(|ending| *ending != "html");
        self.all_locations().into_iter().filter(|location| is_such(location)).any(|location| {
            match &location.way {
                LocationKind::Exact(own) => own.starts_with(folder) && own.rsplit('/').next() == Some(name),
                LocationKind::Prefix(own) => {
                    let last = own.rsplit('/').next().filter(|last| !last.is_empty());
                    own.starts_with(folder) && last.is_some_and(|last| name.starts_with(last))
                }
                LocationKind::Regex(..) if before_regexes && is_outer(location) => false,
                LocationKind::Regex(regex, ignores) => {
                    let test = Test::Regex(regex, *ignores);
                    // One that names the ending may be for folders that are not known here.
                    ending.is_some_and(|ending| regex.contains(ending))
                        || ["/", "/x/", folder, &format!("{folder}x/")]
                            .iter()
                            .any(|before| test.fits_text(&format!("{before}{name}")))
                }
                LocationKind::Named(_) => false,
            }
        })
    }
}

/// Whether a location does not send files of the folder that other locations send: it passes requests on, or has a folder of its own.
pub(super) fn is_served_otherwise(location: &Location<'_>) -> bool {
    let is_own =
        |it: &Directive| HANDLERS.contains(&it.name.as_str()) || matches!(&*it.name, "root" | "alias");
    location.directive.block.iter().any(is_own)
}

/// Whether requests for folders come to a location: where nothing is tried, or one by its slash, and not by the ending of a file.
fn asks_folders(tried: Option<&Directive>, way: &LocationKind) -> bool {
    let is_tried = tried.is_none_or(|tried| tried.arguments.iter().any(|it| it.ends_with('/')));
    let LocationKind::Regex(regex, _) = way else { return is_tried };
    let names_ending = regex.ends_with('$') && !regex.contains(['/', '[', '*', '+', '?']);
    is_tried && !names_ending
}

pub(super) fn closed_route() -> Passed {
    Passed::new(To::Closed, Proxy::default())
}

/// The files that are looked for in folders.
fn indexes(config: &StaticFiles) -> Vec<String> {
    match config.get("index").and_then(Value::as_array) {
        Some(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec!["index.html".to_owned()],
    }
}

/// Leaves these files for folders, which are looked for by no others.
fn keep_indexes(config: &mut StaticFiles, names: &[String]) {
    config.index(names);
    config.shift_remove("listing");
    config.shift_remove("refuse_folders");
}

/// Serves files, and passes requests for other paths to an application.
fn beside_files(application: Application, mut config: StaticFiles) -> Passed {
    config.passthrough(true);
    config.refuse_other_methods(true);
    let asks_folders = config.get("index").and_then(Value::as_array).is_none_or(|names| !names.is_empty());
    if !asks_folders || config.contains_key("listing") {
        config.shift_remove("refuse_folders");
    }
    let Application { to, settings, cache } = application;
    Passed { files: Some(config), answers: cache.into_iter().collect(), ..Passed::new(to, settings) }
}

fn files_of(config: StaticFiles, strips: bool) -> Passed {
    Passed::new(To::Files(config), draft!(Proxy { strip_listen_path: strips }))
}

/// Settings of `static_files` for a folder.
fn folder_config(levels: &[&Directive], path: &str) -> StaticFiles {
    let mut config = draft!(StaticFiles { root: path });
    if let Some(index) = innermost(levels, "index") {
        let names: Vec<&String> = index.arguments.iter().filter(|name| !name.contains(['$', '/'])).collect();
        config.index(names);
    }
    if first(levels, "autoindex") == Some("on") {
        config.listing(true);
    }
    config.default_type(first(levels, "default_type").unwrap_or("text/plain"));
    // A folder without an index is refused, unless another path stands in for it.
    let index = innermost(levels, "index").map(|it| &it.arguments);
    let lists = config.contains_key("listing");
    if !lists && index.is_none_or(|names| names.iter().all(|name| !name.contains(['$', '/']))) {
        config.refuse_folders(true);
    }
    // nginx serves files whose names begin with a dot.
    config.dotfiles(true);
    config.charset(first(levels, "charset").unwrap_or(""));
    config
}
