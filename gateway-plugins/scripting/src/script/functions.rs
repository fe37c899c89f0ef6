//! What scripts can do with the request and the response.

use std::sync::LazyLock;

use bytes::Bytes;
use gateway_core::http::exchange::Field;
use gateway_core::http::reply;
use http::{HeaderMap, HeaderName, StatusCode};
use rhai::{
    Array, Blob, Dynamic, EvalAltResult, FuncRegistration, ImmutableString, Map, Module, NativeCallContext,
    Shared,
};

use super::bounded;
use super::convert;
use super::failure::{ScriptResult, error};
use super::view::{MessageView, OwnReply, Request, ScriptResponse, View, text};
use crate::message;

/// The methods of `request` and `response`, the same for every script.
pub(super) static MESSAGES: LazyLock<Shared<Module>> = LazyLock::new(|| {
    let mut module = Module::new();
    facts(&mut module);
    target(&mut module);
    answers(&mut module);
    message_of::<Request>(&mut module);
    message_of::<ScriptResponse>(&mut module);
    module.build_index();
    Shared::new(module)
});

macro_rules! method {
    ($module:expr, $name:literal, $method:expr) => {
        FuncRegistration::new($name).in_global_namespace().set_into_module($module, $method);
    };
}
macro_rules! getter {
    ($module:expr, $name:literal, $method:expr) => {
        FuncRegistration::new_getter($name).in_global_namespace().set_into_module($module, $method);
    };
}
macro_rules! setter {
    ($module:expr, $name:literal, $method:expr) => {
        FuncRegistration::new_setter($name).in_global_namespace().set_into_module($module, $method);
    };
}

/// A handle to one of the two messages.
trait Handle: Clone + Send + Sync + 'static {
    const IS_RESPONSE: bool;

    fn view(&self) -> &View;
}

impl Handle for Request {
    const IS_RESPONSE: bool = false;

    fn view(&self) -> &View {
        &self.0
    }
}

impl Handle for ScriptResponse {
    const IS_RESPONSE: bool = true;

    fn view(&self) -> &View {
        &self.0
    }
}

/// Does something with the header fields of a message.
fn headers<H: Handle, T>(of: &H, with: impl FnOnce(&mut HeaderMap) -> T) -> ScriptResult<T> {
    match of.view().see().message(H::IS_RESPONSE) {
        Some(message) => Ok(with(&mut message.headers)),
        None => error("there is no response yet"),
    }
}

fn shown(value: &http::HeaderValue) -> Dynamic {
    match value.to_str() {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(value.as_bytes()).into_owned().into(),
    }
}

fn write<H: Handle>(of: &H, name: &str, value: &Dynamic, keeps_others: bool) -> ScriptResult<()> {
    let value = convert::to_text(value)?;
    let written =
        headers(of, |fields| message::write(fields, name.as_bytes(), value.as_bytes(), keeps_others))?;
    written.map_err(|why| -> Box<EvalAltResult> { format!("{name}: {why}").into() })?;
    decided(of, name);
    Ok(())
}

/// Fields of which that is noted.
const MAX_DECIDED: usize = 1000;

/// Notes that a script has decided about a field, whatever comes behind the body.
fn decided<H: Handle>(of: &H, name: &str) {
    let fields = &mut of.view().see().did.fields;
    if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
        && fields.len() < MAX_DECIDED
        && !fields.contains(&name)
    {
        fields.push(name);
    }
}

fn message_of<H: Handle>(module: &mut Module) {
    method!(module, "header", |of: &mut H, name: &str| -> ScriptResult<Dynamic> {
        headers(of, |fields| fields.get(name).map_or(Dynamic::UNIT, shown))
    });
    method!(module, "headers", |of: &mut H, name: &str| -> ScriptResult<Array> {
        headers(of, |fields| fields.get_all(name).iter().map(shown).collect())
    });
    method!(module, "header_names", |of: &mut H| -> ScriptResult<Array> {
        headers(of, |fields| fields.keys().map(|name| name.as_str().into()).collect())
    });
    method!(module, "set_header", |of: &mut H, name: &str, value: Dynamic| -> ScriptResult<()> {
        write(of, name, &value, false)
    });
    method!(module, "add_header", |of: &mut H, name: &str, value: Dynamic| -> ScriptResult<()> {
        write(of, name, &value, true)
    });
    method!(module, "remove_header", |of: &mut H, name: &str| -> ScriptResult<()> {
        match message::writable(name.as_bytes()) {
            Ok(field) => {
                decided(of, name);
                headers(of, |fields| drop(fields.remove(field)))
            }
            Err(why) => error(format_args!("{name}: {why}")),
        }
    });
    getter!(module, "body", |of: &mut H| -> ScriptResult<ImmutableString> {
        let body = body(of)?;
        match std::str::from_utf8(&body) {
            Ok(text) => Ok(text.into()),
            Err(_) => error("the body is not UTF-8; read `body_bytes`"),
        }
    });
    getter!(module, "body_bytes", |of: &mut H| -> ScriptResult<Blob> { Ok(body(of)?.to_vec()) });
    setter!(module, "body", |of: &mut H, new: Dynamic| -> ScriptResult<()> { replace(of, new) });
    setter!(module, "body_bytes", |of: &mut H, new: Dynamic| -> ScriptResult<()> { replace(of, new) });
}

fn body<H: Handle>(of: &H) -> ScriptResult<Bytes> {
    let mut seen = of.view().see();
    match seen.message(H::IS_RESPONSE).and_then(|message| message.body().cloned()) {
        Some(body) => Ok(body),
        None => error(match H::IS_RESPONSE {
            true => "the body is not there; it is read with `read_response_body: true`",
            false => "the body is not there; it is read with `read_request_body: true`, before `on_request`",
        }),
    }
}

fn replace<H: Handle>(of: &H, new: Dynamic) -> ScriptResult<()> {
    let bytes = convert::to_bytes(new)?;
    let mut seen = of.view().see();
    if !H::IS_RESPONSE && seen.response.is_some() {
        return error("the request has been sent");
    }
    match seen.message(H::IS_RESPONSE) {
        Some(message) => message.replace_body(bytes),
        None => return error("there is no response yet"),
    }
    Ok(())
}

/// What can only be read.
fn facts(module: &mut Module) {
    getter!(module, "method", |it: &mut Request| -> ImmutableString { it.0.see().method.as_str().into() });
    getter!(module, "scheme", |it: &mut Request| -> ImmutableString { it.0.see().scheme.into() });
    getter!(module, "version", |it: &mut Request| -> String { format!("{:?}", it.0.see().version) });
    getter!(module, "proxy", |it: &mut Request| -> ImmutableString { (&*it.0.see().proxy).into() });
    getter!(module, "client_ip", |it: &mut Request| -> String { it.0.see().client_address.to_string() });
    getter!(module, "client_port", |it: &mut Request| -> i64 { i64::from(it.0.see().client.peer.port()) });
    getter!(module, "id", |it: &mut Request| it.0.see().request_id.as_ref().map_or(Dynamic::UNIT, shown));
    getter!(module, "host", |it: &mut Request| -> Dynamic {
        let seen = it.0.see();
        let host = seen.request.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        text(seen.uri.authority().map(http::uri::Authority::as_str).or(host))
    });
    getter!(module, "captures", |it: &mut Request| -> Map {
        let seen = it.0.see();
        let all = seen.captures.iter().flat_map(|captures| captures.iter());
        all.map(|(name, value)| (name.into(), value.into())).collect()
    });
    getter!(module, "identity", |it: &mut Request| -> Dynamic { convert::identity(&it.0.see()) });
    getter!(module, "tls", |it: &mut Request| -> Dynamic { convert::tls(&it.0.see()) });
    method!(module, "param", |it: &mut Request, name: &str| -> Dynamic {
        convert::parameter(it.0.see().query(), name)
    });
    method!(module, "cookie", |it: &mut Request, name: &str| -> Dynamic {
        convert::cookie(&it.0.see().request.headers, name)
    });
    method!(module, "get", |it: &mut Request, name: &str| -> Dynamic {
        it.0.see().did.values.get(name).cloned().unwrap_or(Dynamic::UNIT)
    });
    method!(module, "set", |ctx: NativeCallContext<'_>,
                            it: &mut Request,
                            name: &str,
                            value: Dynamic|
     -> ScriptResult<()> {
        bounded::check(ctx.engine(), std::iter::once(&value))?;
        let values = &mut it.0.see().did.values;
        if values.len() >= MAX_VALUES && !values.contains_key(name) {
            return error("the request keeps as many values as it may");
        }
        // A closure would keep alive what it has captured, this request among it.
        values.insert(name.into(), convert::plain(value)?);
        Ok(())
    });
}

/// Values that `request.set` keeps.
const MAX_VALUES: usize = 64;

/// Changes something that has no effect any more once the request was sent.
fn unsent<T>(seen: &mut MessageView, change: impl FnOnce(&mut MessageView) -> T) -> ScriptResult<T> {
    if seen.response.is_some() { error("the request has been sent") } else { Ok(change(seen)) }
}

/// What the target will see.
fn target(module: &mut Module) {
    getter!(module, "path", |it: &mut Request| -> ImmutableString { it.0.see().path().into() });
    setter!(module, "path", |it: &mut Request, path: &str| -> ScriptResult<()> {
        if !message::is_path(path) {
            return error("a path begins with `/`, is percent-encoded, and has no dot segments");
        }
        unsent(&mut it.0.see(), |seen| seen.did.path = Some(path.to_owned()))
    });
    getter!(module, "query", |it: &mut Request| -> ImmutableString { it.0.see().query().into() });
    setter!(module, "query", |it: &mut Request, query: &str| -> ScriptResult<()> {
        if !message::is_query(query) {
            return error("a query is percent-encoded");
        }
        unsent(&mut it.0.see(), |seen| seen.did.query = Some(query.to_owned()))
    });
}

/// What the client gets.
fn answers(module: &mut Module) {
    method!(module, "reply", |it: &mut Request, status: i64| -> ScriptResult<()> {
        reply(it, status, Dynamic::UNIT, Map::new())
    });
    method!(module, "reply", |it: &mut Request, status: i64, body: Dynamic| -> ScriptResult<()> {
        reply(it, status, body, Map::new())
    });
    method!(module, "reply", |it: &mut Request,
                              status: i64,
                              body: Dynamic,
                              headers: Map|
     -> ScriptResult<()> { reply(it, status, body, headers) });
    getter!(module, "status", |it: &mut ScriptResponse| -> i64 {
        it.0.see().response.as_ref().map_or(0, |(status, _)| i64::from(status.as_u16()))
    });
    setter!(module, "status", |it: &mut ScriptResponse, status: i64| -> ScriptResult<()> {
        let status = final_status(status)?;
        if let Some((old, _)) = &mut it.0.see().response {
            *old = status;
        }
        Ok(())
    });
    getter!(module, "from_target", |it: &mut ScriptResponse| -> bool { it.0.see().from_target });
}

fn final_status(status: i64) -> ScriptResult<StatusCode> {
    match reply::final_status(status) {
        Some(status) => Ok(status),
        None => error(format_args!("{status} is not a status from 200 to 599")),
    }
}

fn reply(it: &Request, status: i64, body: Dynamic, fields: Map) -> ScriptResult<()> {
    let status = final_status(status)?;
    let body = if body.is_unit() { None } else { Some(convert::to_bytes(body)?) };
    let is_text = body.as_ref().is_some_and(|body| std::str::from_utf8(body).is_ok());
    let mut reply = OwnReply { status, headers: HeaderMap::new(), body: body.unwrap_or_default() };
    for (name, value) in fields {
        let is_list = value.is_array();
        let values = if is_list { value.into_array().unwrap_or_default() } else { vec![value] };
        for value in values {
            let value = convert::to_text(&value)?;
            let written = message::write(&mut reply.headers, name.as_bytes(), value.as_bytes(), true);
            written.map_err(|why| format!("{name}: {why}"))?;
        }
    }
    if is_text && !reply.headers.contains_key(http::header::CONTENT_TYPE) {
        let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
        reply.headers.insert(http::header::CONTENT_TYPE, plain);
    }
    it.0.see().did.reply = Some(reply);
    Ok(())
}

/// A value for the access record.
pub(super) fn field(value: &Dynamic) -> ScriptResult<Field> {
    if let Ok(number) = value.as_int() {
        return Ok(u64::try_from(number).map_or_else(|_| Field::from(&*number.to_string()), Field::from));
    }
    if let Ok(flag) = value.as_bool() {
        return Ok(flag.into());
    }
    if let Ok(fraction) = value.as_float() {
        return Ok(fraction.into());
    }
    Ok(Field::from(&*convert::to_text(value)?))
}
