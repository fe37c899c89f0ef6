//! Takes files of forms (`multipart/form-data`) into a folder, in the place of a target.
//!
//! Each file gets a random name; what the client calls it is only repeated in the answer. What a file is, is seen from its
//! content, not from what the client says. A request's files appear in the folder together, when all of it has come and is
//! allowed; otherwise none does. They are written on other threads, piece by piece, so that no file is held in memory.

mod form;
mod kind;
mod pace;
mod settings;
mod shares;
mod write;

use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Capabilities, Capability, Family, Hooks, OnRequest, Plugin, Seat, Step, Verdict, World,
};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;

use form::{Form, Taken};
pub(crate) use settings::Config;
use settings::Limits;
use shares::{NoPlace, Shares};

const UPLOADS: Metric =
    Metric::counter("ferrum_upload_requests_total", "Uploads: stored, refused, or failed.");
const FILES: Metric = Metric::counter("ferrum_upload_files_total", "Files that were stored.");
const BYTES: Metric = Metric::counter("ferrum_upload_bytes_total", "Bytes of files that were stored.");

/// The plugin.
pub(crate) struct Upload {
    limits: Arc<Limits>,
    places: Arc<Shares>,
    world: World,
    stored: Counter,
    refused: Counter,
    failed: Counter,
    files: Counter,
    bytes: Counter,
}

/// Why an upload is not stored.
#[derive(Debug)]
enum UploadRefusal {
    /// The status, a word for the record, and a sentence for the client.
    Status(u16, &'static str, String),
    /// The body ended early, or another plugin refused it.
    Reply(Box<Reply>),
}

impl UploadRefusal {
    fn reply(self) -> Reply {
        match self {
            Self::Status(status, reason, detail) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
                // What is left of the body is of no interest to anybody.
                Reply::new(Cause::Plugin).status(status).reason(reason).detail(detail).closing()
            }
            Self::Reply(reply) => *reply,
        }
    }
}

impl Plugin for Upload {
    const NAME: &'static str = "upload";
    const FAMILY: Family = Family::Content;
    const SUMMARY: &'static str = "Stores uploaded files in a folder.";
    const EXAMPLE: &'static str = include_str!("../../examples/upload.yaml");
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let limits = config.read()?;
        let owner = world.owner().map_or("", |owner| owner.config.as_str());
        let count = |metric| world.meters().counter(metric, &["plugin_config"], &[owner]);
        let outcome =
            |outcome| world.meters().counter(UPLOADS, &["plugin_config", "outcome"], &[owner, outcome]);
        Ok(Self {
            places: Shares::new(limits.at_once, limits.per_client),
            limits: Arc::new(limits),
            world: world.clone(),
            stored: outcome("stored"),
            refused: outcome("refused"),
            failed: outcome("failed"),
            files: count(FILES),
            bytes: count(BYTES),
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of(&[Capability::AnswersForTarget])
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for Upload {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _seat: Seat<'a>) -> Step<'a> {
        if exchange.method() != Method::POST {
            return Step::Next;
        }
        let kind = exchange.request.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let Some(boundary) = kind.and_then(|kind| multer::parse_boundary(kind).ok()) else {
            self.refused.add(1);
            let why = "only multipart/form-data is taken".to_owned();
            return Step::reply(UploadRefusal::Status(415, "upload_type", why).reply());
        };
        if exchange.body.exact_length().is_some_and(|length| length > self.limits.body) {
            self.refused.add(1);
            return Step::reply(Reply::new(Cause::BodyTooLarge).closing());
        }
        Step::wait(self.take(exchange, boundary))
    }
}

impl Upload {
    async fn take(&self, exchange: &mut Exchange, boundary: String) -> Verdict {
        let _place = match self.places.take(exchange.client_address) {
            Ok(place) => place,
            Err(why) => {
                self.refused.add(1);
                let detail = match why {
                    NoPlace::Full => "too many uploads at a time",
                    NoPlace::Share => "too many uploads of one client at a time",
                };
                return Verdict::Reply(Box::new(Reply::new(Cause::Overloaded).detail(detail).closing()));
            }
        };
        let body = std::mem::take(&mut exchange.body);
        let form = Form::new(self.limits.clone(), self.world.clone());
        match form.take(body, boundary).await {
            Ok(taken) => {
                self.stored.add(1);
                self.files.add(taken.files.len() as u64);
                self.bytes.add(taken.files.iter().map(|file| file.bytes).sum());
                Verdict::Reply(Box::new(answer(&taken)))
            }
            Err(refused) => {
                let is_ours = matches!(refused, UploadRefusal::Status(500.., ..));
                if is_ours {
                    self.failed.add(1)
                } else {
                    self.refused.add(1)
                }
                Verdict::Reply(Box::new(refused.reply()))
            }
        }
    }
}

/// 201, with the files as they are stored.
fn answer(taken: &Taken) -> Reply {
    let files: Vec<_> = (taken.files.iter())
        .map(|file| {
            json!({
                "field": file.field, "filename": file.filename, "stored": file.stored, "bytes": file.bytes,
                "type": file.kind, "sha256": file.sha256,
            })
        })
        .collect();
    let fields: Vec<_> =
        taken.fields.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let body = json!({ "files": files, "fields": fields }).to_string();
    let mut reply = Reply::fixed(StatusCode::CREATED, body)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .reason("upload_stored");
    reply.is_error = Some(false);
    reply
}

#[cfg(test)]
mod tests;
