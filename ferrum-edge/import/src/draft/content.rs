//! Plugins that answer by themselves: redirects, files, pages, and what is cached.

use super::settings::{Amount, Any, Flag, List, Number, Numbers, One, Text, Texts, settings};

impl StaticFiles {
    /// A path below the root in which this placeholder stands for the request's path, which begins with a slash.
    pub(crate) fn below_root(text: &str, placeholder: &str) -> String {
        let text = text.trim_start_matches('/');
        match text.split_once(placeholder) {
            Some((before, behind)) if !before.is_empty() && !before.ends_with('/') => {
                format!("{before}/{{path}}{}", behind.replace(placeholder, "{path}"))
            }
            _ => text.replace(placeholder, "{path}"),
        }
    }
}

settings! {
    Redirect: "redirect" {
        status_code: Number, location: Text, table: Any, scheme: Text, port: Number, query: Text,
    }
    StaticFiles: "static_files" {
        root: Text, index: Texts, try_files: Texts, passthrough: Flag, refuse_other_methods: Flag, refuse_folders: Flag,
        listing: Flag, dotfiles: Flag, default_type: Text, charset: Text, cache_control: List<CacheRule>,
    }
    /// `Cache-Control` of some files.
    CacheRule: "static_files/cache_control" { path: Text, value: Text }
    ErrorPages: "error_pages" { of: Text, pages: List<Page> }
    /// What is shown for a status.
    Page: "error_pages/pages" {
        status: Any, content_type: Text, body: Text, redirect: Text, root: Text, url: Text, upstream_id: Text, path: Text,
        response_status: Number,
    }
    InternalRedirect: "internal_redirect" { headers: Texts, locations: List<Location> }
    /// Where a path leads.
    Location: "internal_redirect/locations" { prefix: Text, root: Text, url: Text, upstream_id: Text, strip_prefix: Flag }
    ResponseCache: "response_cache" {
        statuses: Numbers, default_ttl: Amount, negative_ttl: Amount, negative_statuses: Numbers,
        stale_while_revalidate: Amount, stale_if_error: Amount, client_directives: Flag, key: One<CacheKey>, cache_status: Flag,
        x_cache: Flag,
    }
    /// What tells responses apart.
    CacheKey: "response_cache/key" { headers: Texts, cookies: Texts }
}
