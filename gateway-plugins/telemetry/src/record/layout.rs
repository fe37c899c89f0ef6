//! Writes a record as an operator wants it.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_core::config::model::{LogDestination, LogLayout, LogSink};
use gateway_core::record::{ExchangeRecord, SessionRecord};
use gateway_core::template::{Facts, TextContext};
use gateway_core::trace::TraceContext;

use super::ecs::Ecs;
use super::logfmt::Logfmt;
use super::{Chosen, Extras, FieldVisitor, combined};
use crate::json::{JsonLine, Rfc3339};
use crate::otlp::{Encoder, Encoding, Field, Signal};
use crate::redact::Secrets;
use gateway_core::template::Render;

/// Bytes of a line made from a template.
const MAX_LINE: usize = 64 << 10;

/// A record of either kind.
#[derive(Debug, Clone, Copy)]
pub enum Record<'r> {
    /// An exchange.
    Exchange(&'r ExchangeRecord<'r>),
    /// A session.
    Session(&'r SessionRecord<'r>),
}

/// How a sink's records are written.
#[derive(Debug, Clone)]
pub struct Layout {
    layout: LogLayout,
    fields: Option<Box<[Box<str>]>>,
    extras: Extras,
}

impl Layout {
    /// As a sink's settings say.
    pub fn of(sink: &LogSink) -> Self {
        let named = |names: &[http::HeaderName], kind: &str| {
            names.iter().map(|name| (name.clone(), format!("http.{kind}.header.{name}").into())).collect()
        };
        let extras = Extras {
            request_headers: named(&sink.request_headers, "request"),
            response_headers: named(&sink.response_headers, "response"),
            redact_query: sink.redact_query.clone(),
        };
        Self { layout: sink.layout.clone(), fields: sink.fields.clone(), extras }
    }

    /// Whether it has a line for sessions: formats of requests have not.
    pub fn has_sessions(&self, destination: &LogDestination) -> bool {
        matches!(destination, LogDestination::Otlp(_))
            || matches!(self.layout, LogLayout::Json | LogLayout::Ecs | LogLayout::Logfmt)
    }

    /// Whether the record has any of the fields that were chosen.
    pub fn has_fields(&self, record: Record<'_>) -> bool {
        let Some(fields) = &self.fields else { return true };
        let mut any = AnyField(false);
        each(&mut Chosen { fields, visit: &mut any }, record, &self.extras);
        any.0
    }

    /// Appends a line, without a line feed; nothing where there is none for it.
    pub fn write(&self, out: &mut Vec<u8>, record: Record<'_>) {
        match &self.layout {
            LogLayout::Json => {
                let mut line = JsonLine::begin(out);
                self.fields(&mut line, record);
                line.close();
            }
            LogLayout::Ecs => {
                let mut line = JsonLine::begin(out);
                self.fields(&mut Ecs::new(&mut line), record);
                line.close();
            }
            LogLayout::Logfmt => self.fields(&mut Logfmt::begin(out), record),
            LogLayout::Combined => {
                if let Record::Exchange(record) = record {
                    {
                        let secrets = Secrets::of(record.route, &self.extras.redact_query);
                        combined::exchange(out, record, secrets);
                    }
                }
            }
            LogLayout::Template(template) => {
                if let Record::Exchange(record) = record {
                    let before = out.len();
                    let now = SystemTime::now();
                    let begun = Rfc3339(now.checked_sub(record.duration).unwrap_or(now)).to_string();
                    let facts = Facts::ended(record, &begun);
                    let rendered = template.render(&facts, TextContext::Log, MAX_LINE, out);
                    // What is too long with all its values is not written; its line is still there.
                    if rendered.is_err() {
                        out.truncate(before);
                        out.extend_from_slice(b"-");
                    }
                }
            }
        }
    }

    fn fields(&self, visit: &mut impl FieldVisitor, record: Record<'_>) {
        match &self.fields {
            Some(fields) => each(&mut Chosen { fields, visit }, record, &self.extras),
            None => each(visit, record, &self.extras),
        }
    }

    /// Appends a log record of OTLP, as one item.
    pub fn write_otlp(&self, out: &mut Vec<u8>, encoding: Encoding, record: Record<'_>) {
        let now = SystemTime::now();
        let (lasted, trace, is_failure, body) = match record {
            Record::Exchange(record) => {
                let exchange = record.exchange;
                let body = format!("{} {} {}", exchange.method(), exchange.uri().path(), record.status);
                (record.duration, exchange.trace, record.status >= 500, body)
            }
            Record::Session(record) => {
                let body = format!("{} session {}", record.protocol, record.reason);
                (record.duration, record.session.trace, false, body)
            }
        };
        let nanos = |time: SystemTime| {
            u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
        };
        let (severity, word) = if is_failure { (17, "ERROR") } else { (9, "INFO") };
        Encoder::new(out, encoding).item(Signal::Logs.item(), |log| {
            log.fixed(Field(1, "timeUnixNano"), nanos(now.checked_sub(lasted).unwrap_or(now)));
            log.number(Field(2, "severityNumber"), severity);
            log.text(Field(3, "severityText"), word);
            log.message(Field(5, "body"), |value| value.text(Field(1, "stringValue"), &body));
            log.attributes(Field(6, "attributes"), |all| self.fields(all, record));
            if let Some(TraceContext { trace, span, sampled }) = trace {
                log.flags(Field(8, "flags"), u32::from(sampled));
                log.id(Field(9, "traceId"), &trace.0);
                log.id(Field(10, "spanId"), &span.0);
            }
            log.fixed(Field(11, "observedTimeUnixNano"), nanos(now));
        });
    }
}

fn each(visit: &mut impl FieldVisitor, record: Record<'_>, extras: &Extras) {
    match record {
        Record::Exchange(record) => super::exchange(visit, record, extras),
        Record::Session(record) => super::session(visit, record, extras),
    }
}

/// Sees whether there is any field.
struct AnyField(bool);

impl FieldVisitor for AnyField {
    fn text(&mut self, _key: &str, _text: impl AsRef<[u8]>) {
        self.0 = true;
    }

    fn plain(&mut self, _key: &str, _value: impl Display) {
        self.0 = true;
    }

    fn number(&mut self, _key: &str, _number: u64) {
        self.0 = true;
    }

    fn fraction(&mut self, _key: &str, _number: f64) {
        self.0 = true;
    }

    fn seconds(&mut self, _key: &str, _duration: Duration) {
        self.0 = true;
    }

    fn time(&mut self, _key: &str, _time: SystemTime) {
        self.0 = true;
    }
}
