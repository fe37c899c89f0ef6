//! Settings of `upload`.

use std::path::PathBuf;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of `upload`. The plugin stores POST requests with `multipart/form-data` and rejects other POST requests
/// with 415. Requests with other methods pass. An upload must end within the proxy's total timeout, or 60 s.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Absolute path of the folder. The gateway creates it if it does not exist, for its own user only. Required.
    #[schemars(extend("format" = "path"))]
    path: PathBuf,
    /// Size of a whole request. A larger one is rejected with 413. Default 100 MiB.
    #[serde(default = "body")]
    max_body: Bytes,
    /// Size of one file. A larger one is rejected with 413. Default 50 MiB.
    #[serde(default = "file")]
    max_file_size: Bytes,
    /// Files of one request. More are rejected with 413. Default 10.
    #[serde(default = "files")]
    #[schemars(range(min = 1, max = 1000))]
    max_files: usize,
    /// Fields of a request that are not files; the response contains their values. More are rejected with 413. Default
    /// 100.
    #[serde(default = "fields")]
    #[schemars(range(max = 1000))]
    max_fields: usize,
    /// Size of such a field. A larger one is rejected with 413. Default 64 KiB; at most 1 MiB.
    #[serde(default = "field")]
    max_field: Bytes,
    /// Allowed media types, such as `image/png` or `image/*`, as detected from a file's content; the type that the
    /// client sends is ignored. Plain text is `text/plain`, unknown content `application/octet-stream`. Others are
    /// rejected with 415. Default all.
    #[serde(default)]
    types: Vec<String>,
    /// Names of form fields that may contain files. Others are rejected with 400. Default all.
    #[serde(default)]
    file_fields: Vec<String>,
    /// Mode of stored files, in octal digits without execute bits. Default `"0600"`.
    #[serde(default = "mode")]
    file_mode: String,
    /// Space that must stay free on the file system. If an upload would leave less, it is rejected with 507. Default 64
    /// MiB.
    #[serde(default = "free")]
    min_free: Bytes,
    /// Concurrent uploads. More are rejected with 503. Default 64.
    #[serde(default = "at_once")]
    #[schemars(range(min = 1, max = 10_000))]
    max_concurrent: usize,
    /// Concurrent uploads of one client, by its address (IPv6: its /64 network). More are rejected with 503. Default a
    /// quarter of `max_concurrent`, at least 1.
    #[schemars(range(min = 1, max = 10_000))]
    max_per_client: Option<usize>,
    /// Bytes a second that a client must send on average, after the first 10 s; a slower upload is rejected with 408. 0
    /// disables the limit. Default 1 KiB.
    #[serde(default = "rate")]
    min_bytes_per_second: Bytes,
}

fn rate() -> Bytes {
    Bytes(1 << 10)
}

fn body() -> Bytes {
    Bytes(100 << 20)
}

fn file() -> Bytes {
    Bytes(50 << 20)
}

fn files() -> usize {
    10
}

fn fields() -> usize {
    100
}

fn field() -> Bytes {
    Bytes(64 << 10)
}

fn mode() -> String {
    "0600".into()
}

fn free() -> Bytes {
    Bytes(64 << 20)
}

fn at_once() -> usize {
    64
}

/// The largest field that can be asked for: fields are held in memory.
const MAX_FIELD: u64 = 1 << 20;

/// Settings, checked.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) folder: PathBuf,
    pub(super) body: u64,
    pub(super) file: u64,
    pub(super) files: usize,
    pub(super) fields: usize,
    pub(super) field: u64,
    types: Vec<String>,
    file_fields: Vec<String>,
    pub(super) mode: u32,
    pub(super) free: u64,
    pub(super) at_once: usize,
    pub(super) per_client: usize,
    pub(super) rate: u64,
}

impl Config {
    /// Checks settings.
    pub(super) fn read(self) -> Result<Limits, Problems> {
        let mut problems = Problems::default();
        if !self.path.is_absolute() {
            problems.add("config.path", format!("`{}` is not an absolute path", self.path.display()));
        }
        for (name, bytes) in [
            ("max_body", self.max_body.0),
            ("max_file_size", self.max_file_size.0),
            ("max_field", self.max_field.0),
        ] {
            if bytes == 0 {
                problems.add(format!("config.{name}"), "must be at least 1 byte");
            }
        }
        if self.max_file_size.0 > self.max_body.0 {
            problems.add("config.max_file_size", "is more than `max_body`, so it has no effect");
        }
        if self.max_field.0 > MAX_FIELD {
            problems.add("config.max_field", "is more than 1 MiB");
        }
        for (n, kind) in self.types.iter().enumerate() {
            let (main, sub) = kind.split_once('/').unwrap_or((kind, ""));
            let is_part = |part: &str| {
                !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-._".contains(&c))
            };
            if !is_part(main) || !(sub == "*" || is_part(sub)) {
                problems.add(format!("config.types[{n}]"), format!("`{kind}` is not a media type")).remedy =
                    Some("such as `image/png` or `image/*`".into());
            }
        }
        let mode = u32::from_str_radix(&self.file_mode, 8)
            .ok()
            .filter(|mode| mode & !0o666 == 0 && mode & 0o400 != 0);
        if mode.is_none() {
            problems
                .add("config.file_mode", format!("`{}` is not the mode of a file here", self.file_mode))
                .remedy = Some("octal digits without execute bits, such as `\"0640\"`".into());
        }
        let per_client = self.max_per_client.unwrap_or(self.max_concurrent / 4).max(1);
        if per_client > self.max_concurrent {
            problems.add("config.max_per_client", "is more than `max_concurrent`, so it has no effect");
        }
        problems.into_result(Limits {
            folder: self.path,
            body: self.max_body.0,
            file: self.max_file_size.0,
            files: self.max_files,
            fields: self.max_fields,
            field: self.max_field.0,
            types: self.types.iter().map(|kind| kind.to_ascii_lowercase()).collect(),
            file_fields: self.file_fields,
            mode: mode.unwrap_or(0o600),
            free: self.min_free.0,
            at_once: self.max_concurrent,
            per_client,
            rate: self.min_bytes_per_second.0,
        })
    }
}

impl Limits {
    /// Whether files of this type are taken.
    pub(super) fn takes(&self, kind: &str) -> bool {
        let fits = |wanted: &String| match wanted.strip_suffix('*') {
            Some(main) => kind.starts_with(main),
            None => wanted == kind,
        };
        self.types.is_empty() || self.types.iter().any(fits)
    }

    /// Whether this form field may have files.
    pub(super) fn takes_files_in(&self, field: &str) -> bool {
        self.file_fields.is_empty() || self.file_fields.iter().any(|name| name == field)
    }
}
