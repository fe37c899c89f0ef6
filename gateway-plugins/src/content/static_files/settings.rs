//! Settings of `static_files`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Bytes, Millis};
use gateway_plugin_common::coding::Coding;
use gateway_plugin_common::wildcard::Wildcard;
use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::find::{Candidate, FileFinder};
use super::kept::KeepLimits;
use super::path;

/// Patterns, candidates and indexes that can be named each.
const MAX_NAMES: usize = 256;
/// What stands for the path in `try_files`.
const PATH: &str = "{path}";

/// Settings of `static_files`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Folder to serve. A symbolic link is resolved again every second.
    #[schemars(extend("format" = "path"))]
    pub(super) root: PathBuf,
    /// Index files of folders; the first that exists is served. Default `index.html`.
    index: Vec<String>,
    /// Paths below the root to try in this order, with `{path}` for the request's path, such as `{path}.html`. An entry
    /// without `{path}`, such as `index.html`, is a fixed file. Default `{path}`.
    try_files: Vec<String>,
    /// File to serve if nothing is found, for applications that route in the browser. Not for paths with an extension,
    /// such as `/app.js`, and only for clients that accept HTML. Default none.
    spa_fallback: Option<String>,
    /// File to send with 404 if nothing is found. Default none: the gateway's own response.
    not_found: Option<String>,
    /// Sends requests without a matching file to the target instead of answering 404. Default false.
    passthrough: bool,
    /// With `passthrough`: answers 405 if a file exists and the method is not GET or HEAD, instead of sending the
    /// request to the target. Default false.
    refuse_other_methods: bool,
    /// Answers 403 for folders without an index file, instead of trying the rest of `try_files` and the target. A path
    /// without a final slash is redirected to the folder's first. Not together with `listing`. Default false.
    refuse_folders: bool,
    /// Content codings of precompressed files (`.br`, `.zst`, `.gz`) to send to clients that accept them, by
    /// preference. Files older than the uncompressed one are not used. Default none.
    precompressed: Vec<Coding>,
    /// Lists folders without an index file, as HTML or, by `Accept`, as JSON. Default false.
    listing: bool,
    /// Serves files and folders whose names begin with a dot; `/.well-known` is always served. Default false.
    dotfiles: bool,
    /// Follows symbolic links that stay below the root. Others are never followed. Default true.
    symlinks: bool,
    /// Entity tags: `strong`, `weak` or `off`. Default `strong`.
    etag: Tags,
    /// `Cache-Control` by pattern; the first match applies. `*` matches any text, including slashes. Default none.
    cache_control: Vec<CacheControl>,
    /// Media types by extension, such as `wasm: application/wasm`, in addition to the built-in ones.
    mime_types: BTreeMap<String, String>,
    /// Media type of files with an unknown extension. Default `application/octet-stream`.
    default_type: String,
    /// Charset of text files; an empty text omits it. Default `utf-8`.
    charset: String,
    /// Memory for files; 0 disables it. Default 32 MiB.
    memory: Bytes,
    /// Size of the largest file in memory; larger ones are read while they are sent. Default 256 KiB.
    memory_file_size: Bytes,
    /// Larger files that stay open between requests; 0 disables it. Each takes a file descriptor. Default 64.
    #[schemars(range(max = 100_000))]
    open_files: usize,
    /// How long such a file stays open without a request. Default 20 s.
    #[schemars(range(min = 1, max = 3600))]
    open_files_idle: Millis,
    /// How long a cached or open file is served before the gateway checks whether the path now leads to another file.
    /// Default 1 s.
    #[schemars(range(max = 3600))]
    recheck: Millis,
}

/// How entity tags are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tags {
    /// From size, modification time in nanoseconds and inode.
    Strong,
    /// The same, marked as weak.
    Weak,
    /// None.
    Off,
}

/// `Cache-Control` of some files.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CacheControl {
    /// Path below the root, such as `assets/*` or `*.css`.
    path: String,
    /// The value, such as `public, max-age=31536000, immutable`.
    value: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            root: PathBuf::new(),
            index: vec!["index.html".to_owned()],
            try_files: vec![PATH.to_owned()],
            spa_fallback: None,
            not_found: None,
            passthrough: false,
            refuse_other_methods: false,
            refuse_folders: false,
            precompressed: Vec::new(),
            listing: false,
            dotfiles: false,
            symlinks: true,
            etag: Tags::Strong,
            cache_control: Vec::new(),
            mime_types: BTreeMap::new(),
            default_type: "application/octet-stream".to_owned(),
            charset: "utf-8".to_owned(),
            memory: Bytes(32 << 20),
            memory_file_size: Bytes(256 << 10),
            open_files: 64,
            open_files_idle: Millis(20_000),
            recheck: Millis(1000),
        }
    }
}

/// Settings as they are meant.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) root: PathBuf,
    pub(super) places: FileFinder,
    pub(super) codings: Vec<Coding>,
    pub(super) passes: bool,
    pub(super) refuses: bool,
    pub(super) hidden: bool,
    pub(super) follows_links: bool,
    pub(super) tags: Tags,
    pub(super) cache_control: Vec<(Wildcard, HeaderValue)>,
    pub(super) types: BTreeMap<String, HeaderValue>,
    pub(super) default_type: HeaderValue,
    pub(super) charset: String,
    pub(super) keeps: KeepLimits,
}

impl Config {
    /// Files of a folder without an index, none of them kept open.
    pub(super) fn of_folder(root: PathBuf) -> Self {
        Self { root, index: Vec::new(), dotfiles: true, open_files: 0, ..Self::default() }
    }

    pub(super) fn read(self) -> Result<Read, Problems> {
        let mut problems = Problems::default();
        if self.root.as_os_str().is_empty() {
            problems.add("config.root", "names no folder");
        }
        let file = |at: &str, name: &str, problems: &mut Problems| {
            let found = path::beneath(&format!("/{}", name.trim_start_matches('/')), true);
            let good = name.trim_start_matches('/');
            if !matches!(found, Ok((ref clean, false)) if clean == good) {
                problems.add(at, format!("`{name}` is not the path of a file beneath the root"));
            }
            good.to_owned()
        };
        let index = self.index.iter().enumerate();
        let index = index.map(|(n, name)| file(&format!("config.index[{n}]"), name, &mut problems)).collect();
        let candidates = candidates(&self.try_files, &mut problems);
        let fallback =
            self.spa_fallback.as_deref().map(|name| file("config.spa_fallback", name, &mut problems));
        let not_found = self.not_found.as_deref().map(|name| file("config.not_found", name, &mut problems));
        if self.passthrough && (not_found.is_some() || fallback.is_some()) {
            let problem =
                problems.add("config.passthrough", "with it, what is not found is the target's to answer");
            problem.remedy = Some("leave out `not_found` and `spa_fallback`".into());
        }
        let (whole, keeps) = (self.check_rest(&mut problems), self.keeps());
        let mut types = BTreeMap::new();
        for (ending, name) in &self.mime_types {
            let at = format!("config.mime_types.{ending}");
            if let Some(value) = media_type(&at, name, &mut problems) {
                types.insert(ending.trim_start_matches('.').to_ascii_lowercase(), value);
            }
        }
        let default_type = media_type("config.default_type", &self.default_type, &mut problems);
        if !self.charset.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.:".contains(&c)) {
            problems.add("config.charset", format!("`{}` is not a charset", self.charset));
        }
        let cache_control = self.cache_control.iter().enumerate().filter_map(|(n, rule)| {
            let value = HeaderValue::from_str(&rule.value).ok().filter(|value| !value.is_empty());
            if value.is_none() {
                problems.add(format!("config.cache_control[{n}].value"), "is not a value of a header field");
            }
            Some((Wildcard::read(rule.path.trim_start_matches('/')), value?))
        });
        let cache_control = cache_control.collect();
        let (Some(default_type), true) = (default_type, problems.is_empty()) else { return Err(problems) };
        Ok(Read {
            root: self.root,
            places: FileFinder {
                index,
                candidates,
                fallback,
                not_found,
                lists: self.listing,
                refuses_folders: self.refuse_folders,
                hidden: self.dotfiles,
                whole,
            },
            codings: self.precompressed,
            passes: self.passthrough,
            refuses: self.refuse_other_methods,
            hidden: self.dotfiles,
            follows_links: self.symlinks,
            tags: self.etag,
            cache_control,
            types,
            default_type,
            charset: self.charset,
            keeps,
        })
    }
}

impl Config {
    /// What is kept between requests.
    fn keeps(&self) -> KeepLimits {
        KeepLimits {
            memory: self.memory.0,
            open: self.open_files,
            recheck: self.recheck.duration(),
            idle: self.open_files_idle.duration(),
        }
    }

    /// Looks at what stands by itself, and says up to which size files are kept in memory.
    fn check_rest(&self, problems: &mut Problems) -> u64 {
        if self.refuse_other_methods && !self.passthrough {
            let problem =
                problems.add("config.refuse_other_methods", "they are refused without `passthrough` anyway");
            problem.remedy = Some("remove it".into());
        }
        if self.refuse_folders && self.listing {
            let problem = problems.add("config.refuse_folders", "folders are listed");
            problem.remedy = Some("remove it, or `listing`".into());
        }
        for (name, count) in [
            ("index", self.index.len()),
            ("try_files", self.try_files.len()),
            ("cache_control", self.cache_control.len()),
            ("mime_types", self.mime_types.len()),
        ] {
            if count > MAX_NAMES {
                problems
                    .add(format!("config.{name}"), format!("has {count} entries; {MAX_NAMES} are the most"));
            }
        }
        for (n, coding) in self.precompressed.iter().enumerate() {
            if self.precompressed.iter().take(n).any(|known| known == coding) {
                problems
                    .add(format!("config.precompressed[{n}]"), format!("`{}` is named twice", coding.name()));
            }
        }
        let whole = if self.memory.0 == 0 { 0 } else { self.memory_file_size.0 };
        if whole > self.memory.0 / 4 {
            problems.add("config.memory_file_size", "must be at most a quarter of `memory`");
        }
        whole
    }
}

/// What is tried, in this order.
fn candidates(texts: &[String], problems: &mut Problems) -> Vec<Candidate> {
    if texts.is_empty() {
        problems.add("config.try_files", "there is none, so nothing would be found");
    }
    let mut candidates = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let plain = text.trim_start_matches('/');
        let sample = path::beneath(&format!("/{}", plain.replace(PATH, "x")), true);
        match (plain.split_once(PATH), sample) {
            (Some((before, behind)), Ok(_)) if !behind.contains(PATH) => {
                candidates.push(Candidate::OfPath(before.to_owned(), behind.to_owned()));
            }
            // A percent sign would be decoded: the name would be another one.
            (None, Ok((file, false))) if file == plain && !plain.contains(['{', '}']) => {
                candidates.push(Candidate::Fixed(file));
            }
            _ => {
                let problem =
                    problems.add(format!("config.try_files[{n}]"), format!("`{text}` is not a candidate"));
                problem.remedy = Some("`{path}` once, such as `{path}.html`, or the path of a file".into());
            }
        }
    }
    candidates
}

fn media_type(at: &str, name: &str, problems: &mut Problems) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(name).ok().filter(|_| name.contains('/'));
    if value.is_none() {
        problems.add(at, format!("`{name}` is not a media type"));
    }
    value
}
