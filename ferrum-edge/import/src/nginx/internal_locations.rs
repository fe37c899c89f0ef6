//! `internal` locations, to which servers lead clients by `X-Accel-Redirect`.

use super::Nginx;
use super::blocks::Directive;
use super::guards::is_guarded;
use super::location::{Location, LocationKind};
use super::site::Site;
use crate::draft::{InternalRedirect, Location as Source, Plug, draft};
use crate::text;

/// Directives of an `internal` location that change nothing of what it sends, or are converted.
const PLAIN: &[&str] = &["internal", "alias", "root", "proxy_pass", "access_log", "proxy_redirect"];

impl<'d> Nginx<'_> {
    /// The plugin that serves a server's `internal` locations; `None` if it has none. Where none can be converted, it has no
    /// locations, and hides what targets name.
    pub(super) fn internal_redirect(&mut self, site: &Site<'d>) -> Option<Plug> {
        let is_internal = |it: &&Location<'d>| it.directive.block.iter().any(|it| it.name == "internal");
        let internal: Vec<&Location<'d>> = site.locations.iter().filter(is_internal).collect();
        if internal.is_empty() {
            return None;
        }
        let mut locations = Vec::new();
        for location in internal {
            let at = location.directive.at;
            let what = format!(
                "{}, location {}: X-Accel-Redirect",
                site.place,
                location.directive.arguments.join(" ")
            );
            let levels = [site.http, site.directive, location.directive];
            let is_plain = location.directive.block.iter().all(|it| PLAIN.contains(&it.name.as_str()));
            let source = match &location.way {
                LocationKind::Prefix(prefix) if is_plain && !is_guarded(location) => {
                    self.internal_source(&levels, prefix)
                }
                _ => None,
            };
            match source {
                Some(source) => {
                    let why = "of names in `X-Accel-Redirect`, only those of `internal` locations are served; others are answered 502";
                    self.out.partial(at, what, why, "");
                    locations.push(source);
                }
                None => {
                    let why = "where it leads cannot be converted; targets that name it are answered 502";
                    self.out.not_converted(at, what, why, "add it to `locations` of `internal_redirect`");
                }
            }
        }
        Some(Plug::of(draft!(InternalRedirect { headers: ["x-accel-redirect"], locations })))
    }

    /// A location of `internal_redirect`.
    pub(super) fn internal_source(&self, levels: &[&Directive], prefix: &str) -> Option<Source> {
        let own = levels.last()?;
        let first = |name: &str| own.block.iter().find(|it| it.name == name)?.arguments.first();
        let mut made = draft!(Source { prefix });
        let folder = match (first("proxy_pass"), first("alias"), super::first(levels, "root")) {
            (Some(pass), ..) => {
                let url = text::url(pass).filter(|_| !pass.contains('$') && !pass.contains("unix:"))?;
                match self.upstreams.get(&url.host) {
                    Some(upstream) if url.path.is_empty() && url.scheme == "http" => {
                        made.upstream_id(upstream.id.clone());
                    }
                    Some(_) => return None,
                    None => made.url(pass.as_str()),
                }
                if url.path.is_empty() {
                    made.strip_prefix(false);
                }
                return Some(made);
            }
            (None, Some(alias), _) => alias.as_str(),
            (None, None, Some(root)) => {
                made.strip_prefix(false);
                root
            }
            (None, None, None) => return None,
        };
        if folder.contains('$') {
            return None;
        }
        made.root(self.folder.join(folder).display().to_string());
        Some(made)
    }
}
