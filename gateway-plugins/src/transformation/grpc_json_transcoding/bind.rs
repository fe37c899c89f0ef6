//! A request message made of a request's path, query and body.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};
use serde_json::Value as Json;

use super::encode::{self, Encoding, RequestReading};
use super::field_path::resolved;
use super::http_body;
use super::service::{Binding, BodyTo};

/// Parameters that a query may have.
const MAX_PARAMETERS: usize = 1000;

/// Why a request is no call. Texts are as the client sent them.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindError {
    #[error("the path is not UTF-8")]
    PathNotUtf8,
    #[error("the query is not UTF-8")]
    QueryNotUtf8,
    #[error("there are more than {MAX_PARAMETERS} query parameters")]
    TooManyParameters,
    #[error("this call takes no body")]
    UnexpectedBody,
    #[error("the body: {0}")]
    Body(#[from] serde_json::Error),
    #[error("there is no field `{0}`")]
    NoField(String),
    #[error("`{0}` is given twice")]
    GivenTwice(String),
    #[error("`{0}` is not a message")]
    NotMessage(String),
    #[error("`{0}` is a message, which only a body can have")]
    Message(String),
    #[error("`{0}` is a map, which only a body can have")]
    Map(String),
    #[error("`{text}` is not a value of `{field}`")]
    Value { text: String, field: String },
    #[error(transparent)]
    Set(#[from] prost_reflect::SetFieldError),
    #[error(transparent)]
    Encode(#[from] prost::EncodeError),
}

/// The message of a call, as bytes.
///
/// # Errors
/// What is wrong with the request, for its client.
pub(super) fn message(
    binding: &Binding,
    path: &str,
    query: Option<&str>,
    body: &[u8],
    content_type: &str,
    reading: RequestReading,
) -> Result<Vec<u8>, BindError> {
    let is_blank = body.iter().all(u8::is_ascii_whitespace);
    let values = binding.template.values(path).ok_or(BindError::PathNotUtf8)?;
    let from_path: Vec<&str> = binding.template.variables.iter().map(|variable| &*variable.field).collect();
    let mut bytes = Vec::new();
    let how = Encoding { reading, skipped: &from_path };
    match &binding.body {
        BodyTo::Nothing if !is_blank => return Err(BindError::UnexpectedBody),
        BodyTo::All if http_body::is_raw(&binding.input, None) => {
            bytes = http_body::encode_http_body(content_type, body, None);
        }
        BodyTo::Field(field) if http_body::is_raw_field(field) => {
            bytes = http_body::encode_http_body(content_type, body, Some(field));
        }
        _ if is_blank => {}
        BodyTo::All => encode::message(&binding.input, body, how, &mut bytes)?,
        BodyTo::Field(field) => encode::field(field, body, how, &mut bytes)?,
        BodyTo::Nothing => {}
    }
    // Behind the body's: of two fields of a oneof, the last counts.
    let mut message = DynamicMessage::new(binding.input.clone());
    for (field, value) in from_path.iter().zip(&values) {
        set(&mut message, field, value, Source::Path)?;
    }
    if binding.body != BodyTo::All {
        of_query(&mut message, query.unwrap_or_default(), binding, &from_path, reading)?;
    }
    message.encode(&mut bytes)?;
    Ok(bytes)
}

fn of_query(
    message: &mut DynamicMessage,
    query: &str,
    binding: &Binding,
    from_path: &[&str],
    reading: RequestReading,
) -> Result<(), BindError> {
    for (n, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
        if n >= MAX_PARAMETERS {
            return Err(BindError::TooManyParameters);
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8().map(|it| it.into_owned())
        };
        let (Ok(name), Ok(value)) = (decode(name), decode(value)) else {
            return Err(BindError::QueryNotUtf8);
        };
        let Ok(names) = resolved(&binding.input, &name) else {
            if reading.ignores_unknown {
                continue;
            }
            return Err(BindError::NoField(name));
        };
        let first = names.split('.').next().unwrap_or_default();
        let is_body = matches!(&binding.body, BodyTo::Field(field) if field.name() == first);
        if is_body || from_path.iter().any(|field| names == *field) {
            return Err(BindError::GivenTwice(name));
        }
        set(message, &names, &value, Source::Query)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Path,
    Query,
}

/// Sets one field, whose path is known to be right, to a text.
fn set(message: &mut DynamicMessage, path: &str, text: &str, source: Source) -> Result<(), BindError> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let field = message.descriptor().get_field_by_name(name);
    let field = field.ok_or_else(|| BindError::NoField(name.to_owned()))?;
    if let Some(rest) = rest {
        let Value::Message(inner) = message.get_field_mut(&field) else {
            return Err(BindError::NotMessage(name.to_owned()));
        };
        return set(inner, rest, text, source);
    }
    if field.is_map() {
        return Err(BindError::Map(name.to_owned()));
    }
    let value = scalar(&field, text)?;
    if field.is_list() {
        if let Value::List(list) = message.get_field_mut(&field) {
            list.push(value);
        }
        return Ok(());
    }
    if source == Source::Query && message.has_field(&field) {
        return Err(BindError::GivenTwice(name.to_owned()));
    }
    Ok(message.try_set_field(&field, value)?)
}

/// Either alphabet, with or without padding.
const BASE64: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

fn scalar(field: &FieldDescriptor, text: &str) -> Result<Value, BindError> {
    let bad = || BindError::Value { text: text.to_owned(), field: field.name().to_owned() };
    Ok(match field.kind() {
        Kind::String => Value::String(text.to_owned()),
        Kind::Bool => match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => return Err(bad()),
        },
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(text.parse().map_err(|_| bad())?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(text.parse().map_err(|_| bad())?),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(text.parse().map_err(|_| bad())?),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(text.parse().map_err(|_| bad())?),
        Kind::Float => Value::F32(text.parse().map_err(|_| bad())?),
        Kind::Double => Value::F64(text.parse().map_err(|_| bad())?),
        Kind::Bytes => {
            let alphabet = match text.contains(['-', '_']) {
                true => &base64::alphabet::URL_SAFE,
                false => &base64::alphabet::STANDARD,
            };
            let bytes = GeneralPurpose::new(alphabet, BASE64).decode(text).map_err(|_| bad())?;
            Value::Bytes(bytes.into())
        }
        Kind::Enum(about) => {
            let by_name = about.get_value_by_name(text).map(|value| value.number());
            Value::EnumNumber(by_name.or_else(|| text.parse().ok()).ok_or_else(bad)?)
        }
        // Times, durations, wrappers: what is one value in JSON.
        Kind::Message(about) if about.full_name().starts_with("google.protobuf.") => {
            let quoted = Json::String(text.to_owned()).to_string();
            let read = |json: &str| {
                let mut json = serde_json::Deserializer::from_str(json);
                DynamicMessage::deserialize_with_options(about.clone(), &mut json, &DeserializeOptions::new())
            };
            Value::Message(read(&quoted).or_else(|_| read(text)).map_err(|_| bad())?)
        }
        Kind::Message(_) => {
            return Err(BindError::Message(field.name().to_owned()));
        }
    })
}
