//! Purges: which stored responses one covers, and those of late, for responses that are still on their way.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use gateway_core::config::problem::{Problem, Problems};
use http::{HeaderMap, HeaderName, Uri};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::control;
use super::key::{Recipe, normal_authority};

/// Purges that are remembered. A response that set out before the oldest of them is not stored.
const REMEMBERED: usize = 256;
/// Tags of one response that are kept; with more it is not stored.
pub(super) const MAX_TAGS: usize = 128;
/// Fields that name the tags of a response: separated by spaces, and by commas.
static TAG_FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("surrogate-key"), HeaderName::from_static("cache-tag")];

/// Which responses go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Purge {
    pub(super) what: What,
    /// They are only marked stale, so that they can be validated, or served while they are.
    pub(super) soft: bool,
}

/// By what they are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// Exactly this host, path and query, but for the parameters that don't count.
    Url(String),
    /// A host and the beginning of a path.
    Prefix(String),
    /// A tag that the target gave them.
    Tag(String),
    /// All of them.
    All,
}

/// A purge as it is written: exactly one of the four.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PurgeRequest {
    url: Option<String>,
    prefix: Option<String>,
    tag: Option<String>,
    all: bool,
    soft: bool,
}

impl Purge {
    /// Reads a purge.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(input: &Value, recipe: &Recipe) -> Result<Self, Problems> {
        let written =
            PurgeRequest::deserialize(input).map_err(|error| Problems::one("", error.to_string()))?;
        let given = [written.url.is_some(), written.prefix.is_some(), written.tag.is_some(), written.all];
        if given.iter().filter(|it| **it).count() != 1 {
            let problem = Problem::new("", "a purge names exactly one of `url`, `prefix`, `tag` and `all`");
            return Err(Problems(vec![problem.remedy("such as `{\"url\": \"https://example.com/a?b=c\"}`")]));
        }
        let what = match (&written.url, &written.prefix, written.tag) {
            (Some(url), _, _) => What::Url(place("url", url, |target| recipe.target(target).into_owned())?),
            (_, Some(prefix), _) => What::Prefix(place("prefix", prefix, str::to_owned)?),
            (_, _, Some(tag)) if tag.is_empty() => return Err(Problems::one("tag", "is empty")),
            (_, _, Some(tag)) => What::Tag(tag),
            _ => What::All,
        };
        Ok(Self { what, soft: written.soft })
    }

    /// A purge of everything.
    pub(super) fn of_all() -> Self {
        Self { what: What::All, soft: false }
    }

    /// A purge of one host, path and query.
    pub(super) fn of_url(url: &str) -> Self {
        Self { what: What::Url(url.to_owned()), soft: false }
    }

    /// As a text that other gateways read, with an id by which its sender knows it.
    pub(super) fn written(&self, id: u64) -> String {
        serde_json::to_string(&(id, self)).unwrap_or_default()
    }

    /// Reads [`Self::written`].
    pub(super) fn of_written(text: &str) -> Option<(u64, Self)> {
        serde_json::from_str(text).ok()
    }

    /// Whether a response goes. `url` is its host, path and query.
    pub(super) fn covers(&self, url: &str, tags: &[Box<str>]) -> bool {
        match &self.what {
            What::Url(wanted) => wanted == url,
            What::Prefix(prefix) => url.starts_with(prefix.as_str()),
            What::Tag(tag) => tags.iter().any(|known| **known == **tag),
            What::All => true,
        }
    }
}

/// The purges of late, numbered.
#[derive(Debug, Default)]
pub(super) struct Log(Mutex<(u64, VecDeque<Purge>)>);

impl Log {
    /// How many there were.
    pub(super) fn number(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn add(&self, purge: Purge) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.0 += 1;
        if log.1.len() == REMEMBERED {
            log.1.pop_front();
        }
        log.1.push_back(purge);
    }

    /// Whether one of those after the first `number` covers a response, as far as they are remembered.
    pub(super) fn covers_since(&self, number: u64, url: &str, tags: &[Box<str>]) -> bool {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let later = usize::try_from(log.0 - number).unwrap_or(usize::MAX);
        later > log.1.len() || log.1.iter().rev().take(later).any(|purge| purge.covers(url, tags))
    }
}

/// The tags of a response; `None` where there are too many.
pub(super) fn tags(headers: &HeaderMap) -> Option<Box<[Box<str>]>> {
    let [spaced, listed] = &TAG_FIELDS;
    let mut tags: Vec<Box<str>> = Vec::new();
    for value in headers.get_all(spaced) {
        tags.extend(value.to_str().unwrap_or_default().split_ascii_whitespace().map(Box::from));
    }
    for value in headers.get_all(listed) {
        let members = control::members(value.to_str().unwrap_or_default());
        tags.extend(members.filter(|tag| !tag.is_empty()).map(Box::from));
    }
    (tags.len() <= MAX_TAGS).then(|| tags.into())
}

/// Host, path and query of a URL, as stored responses have them. The scheme makes no difference, but for the port it stands for.
fn place(at: &str, url: &str, target_of: impl FnOnce(&str) -> String) -> Result<String, Problems> {
    let bad = |why: String| {
        let problem = Problem::new(at, why);
        Problems(vec![problem.remedy("a whole URL, such as `https://example.com/a`")])
    };
    let uri: Uri = url.parse().map_err(|error| bad(format!("`{url}` is not a URL: {error}")))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(bad(format!("`{url}` names no host")));
    };
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let target = gateway_core::http::path::normalise(target, false)
        .map_err(|_| bad("the path is malformed".into()))?
        .text;
    Ok(format!("{}{}", normal_authority(authority.as_str(), scheme), target_of(&target)))
}
