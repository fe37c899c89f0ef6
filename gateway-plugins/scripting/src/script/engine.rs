//! The engine: its limits, the functions of one plugin config, and scripts compiled for it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gateway_core::plugin::world::meters::Counter;
use rhai::packages::{Package, StandardPackage};
use rhai::{AST, Dynamic, Engine, EvalAltResult, Module, ParseError, Position, Scope, Shared};

use super::bounded;
use super::captured::{self, Captured};
use super::convert;
use super::deadline;
use super::failure::{ScriptResult, error};
use super::functions;
use super::settings::{Limits, Server};
use super::tools;
use super::view::{Fetch, Request, View};
use crate::shared_table::{MAX_KEY, SharedTable};

/// What the functions of one plugin config work with.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) shared: Arc<SharedTable<SharedValue>>,
    pub(super) counters: Arc<[(String, Counter)]>,
    pub(super) servers: Arc<[Server]>,
    pub(super) fields: Arc<[(Box<str>, &'static str)]>,
    pub(super) upstreams: Arc<[Arc<str>]>,
}

/// A value that all requests share.
#[derive(Debug, Clone)]
pub(super) enum SharedValue {
    Number(i64),
    Text(Box<str>),
}

/// Bytes of a shared text.
const MAX_SHARED_TEXT: usize = 4096;
/// Operations between two looks at the clock. One may be a digest of a whole body, so that they are few.
const OPERATIONS_A_LOOK: u64 = 16;
/// Functions that a script may have.
const MAX_FUNCTIONS: usize = 1000;
/// Variables that a function may have at a time.
const MAX_VARIABLES: usize = 1000;
/// How deep expressions may be nested, outside of functions and in them.
const MAX_EXPRESSION_DEPTHS: (usize, usize) = (64, 64);

thread_local! {
    /// What it sees. A closure that is handed to `fetch` may have captured `request`, which can't be lent out to `fetch` at
    /// the same time.
    static VIEW: RefCell<Option<View>> = const { RefCell::new(None) };
}

/// Runs something of a script with so much time, on this thread. What its closures capture is freed with `captured`.
///
/// # Errors
/// Those of what is run, and that it went beyond a limit.
pub(super) fn within<T>(
    time: Duration,
    view: Option<View>,
    captured: &mut Captured,
    run: impl FnOnce() -> ScriptResult<T>,
) -> ScriptResult<T> {
    deadline::begin(time);
    VIEW.set(view);
    let result = captured.collect(run);
    deadline::clear();
    VIEW.set(None);
    if bounded::was_over() { Err(bounded::too_long()) } else { result }
}

static STANDARD: LazyLock<Shared<Module>> = LazyLock::new(|| StandardPackage::new().as_shared_module());

/// The engine for one script.
fn engine(limits: &Limits, parts: Parts) -> Engine {
    let mut engine = Engine::new_raw();
    engine.register_global_module(STANDARD.clone());
    // Later ones come first.
    engine.register_global_module(bounded::BOUNDED.clone());
    engine.register_global_module(tools::TOOLS.clone());
    engine.register_global_module(functions::MESSAGES.clone());
    engine.register_type_with_name::<Request>("request");
    engine.register_type_with_name::<super::view::ScriptResponse>("response");
    engine
        .set_max_operations(limits.operations)
        .set_max_call_levels(limits.depth)
        .set_max_expr_depths(MAX_EXPRESSION_DEPTHS.0, MAX_EXPRESSION_DEPTHS.1)
        .set_max_string_size(limits.string)
        .set_max_array_size(limits.array)
        .set_max_map_size(limits.map)
        .set_max_functions(MAX_FUNCTIONS)
        .set_max_variables(MAX_VARIABLES)
        .disable_symbol("eval")
        // It lengthens a list that no limit is about; closures capture what they need.
        .disable_symbol("curry")
        .on_print(|text| tracing::info!(target: "script", "{text}"))
        .on_debug(|text, _, position| tracing::debug!(target: "script", "{position:?}: {text}"))
        .on_progress(|operations| {
            let is_late = operations % OPERATIONS_A_LOOK == 0 && deadline::is_over();
            (is_late || bounded::is_over()).then(|| Dynamic::from("timeout"))
        });
    shared(&mut engine, parts.shared);
    of_request(&mut engine, parts.servers, parts.fields, parts.upstreams);
    let counters = parts.counters;
    engine.register_fn("count", move |name: &str| -> ScriptResult<()> {
        match counters.iter().find(|(known, _)| known == name) {
            Some((_, counter)) => counter.add(1),
            None => return error(format_args!("`{name}` is not one of `counters`")),
        }
        Ok(())
    });
    engine
}

fn shared(engine: &mut Engine, table: Arc<SharedTable<SharedValue>>) {
    let key_of = |key: &str| match key.len() {
        0..=MAX_KEY => Ok(()),
        _ => error(format_args!("a shared key has at most {MAX_KEY} bytes")),
    };
    let ttl = |seconds: i64| u64::try_from(seconds).ok().filter(|it| *it > 0).map(Duration::from_secs);
    let known = table.clone();
    engine.register_fn("shared_get", move |key: &str| -> Dynamic {
        let value = known.get(key.as_bytes(), SharedValue::clone);
        value.map_or(Dynamic::UNIT, |value| match value {
            SharedValue::Number(number) => number.into(),
            SharedValue::Text(text) => (&*text).into(),
        })
    });
    let known = table.clone();
    engine.register_fn("shared_set", move |key: &str, value: Dynamic, seconds: i64| -> ScriptResult<()> {
        key_of(key)?;
        let value = match value.as_int() {
            Ok(number) => SharedValue::Number(number),
            Err(_) => SharedValue::Text(convert::to_text(&value)?.into()),
        };
        if matches!(&value, SharedValue::Text(text) if text.len() > MAX_SHARED_TEXT) {
            return error(format_args!("a shared text has at most {MAX_SHARED_TEXT} bytes"));
        }
        known.change(key.as_bytes(), ttl(seconds), true, |_| (Some(value), ()));
        Ok(())
    });
    let known = table.clone();
    engine.register_fn("shared_add", move |key: &str, amount: i64, seconds: i64| -> ScriptResult<i64> {
        key_of(key)?;
        known.change(key.as_bytes(), ttl(seconds), false, |known| match known {
            Some(SharedValue::Text(_)) => (None, error(format_args!("the shared value `{key}` is a string"))),
            Some(SharedValue::Number(sum)) => {
                let sum = sum.saturating_add(amount);
                (Some(SharedValue::Number(sum)), Ok(sum))
            }
            None => (Some(SharedValue::Number(amount)), Ok(amount)),
        })
    });
    engine.register_fn("shared_remove", move |key: &str| table.remove(key.as_bytes()));
}

fn of_request(
    engine: &mut Engine,
    servers: Arc<[Server]>,
    fields: Arc<[(Box<str>, &'static str)]>,
    upstreams: Arc<[Arc<str>]>,
) {
    engine.register_fn("note", move |it: &mut Request, name: &str, value: Dynamic| -> ScriptResult<()> {
        let Some((_, full)) = fields.iter().find(|(known, _)| **known == *name) else {
            return error(format_args!("`{name}` is not one of `record_fields`"));
        };
        let value = functions::field(&value)?;
        let notes = &mut it.0.see().did.notes;
        notes.retain(|(known, _)| known != full);
        notes.push((full, value));
        Ok(())
    });
    engine.register_set("upstream", move |it: &mut Request, id: &str| -> ScriptResult<()> {
        let Some(upstream) = upstreams.iter().find(|known| ***known == *id) else {
            return error(format_args!("`{id}` is not one of `upstreams`"));
        };
        let mut seen = it.0.see();
        if seen.response.is_some() {
            return error("the request has been sent");
        }
        seen.did.upstream = Some(upstream.clone());
        Ok(())
    });
    engine.register_fn("send_once", |it: &mut Request| -> ScriptResult<()> {
        let mut seen = it.0.see();
        if seen.response.is_some() {
            return error("the request has been sent");
        }
        seen.did.send_once = true;
        Ok(())
    });
    engine.register_fn(
        "fetch",
        move |name: &str, options: rhai::Map, then: rhai::FnPtr| -> ScriptResult<()> {
            let Some(server) = servers.iter().position(|server| server.name == name) else {
                return error(format_args!("`{name}` is not one of `calls`"));
            };
            let request = super::fetch::request(&servers[server].uri, options)?;
            let Some(view) = VIEW.with_borrow(Clone::clone) else {
                return error("calls are made in functions only");
            };
            let did = &mut view.see().did;
            if did.fetch.is_some() {
                return error("one call at a time; fetch the next one in the callback");
            }
            did.fetch = Some(Box::new(Fetch { server, request, then }));
            Ok(())
        },
    );
}

/// Has an engine hold what closures capture, if the script has any.
fn hold_captured(engine: &mut Engine, ast: &AST, elsewhere: HashSet<usize>) {
    if ast.iter_functions().any(|function| function.name.starts_with(CLOSURE)) {
        #[expect(deprecated, reason = "marked as an interface that may change")]
        engine.on_var(move |name, from_end, context| {
            captured::note(name, from_end, &context, &elsewhere).map(|()| None)
        });
    }
}

/// What Rhai's names of closures begin with.
const CLOSURE: &str = "anon$";

/// A script, ready to run.
pub(super) struct Program {
    /// With the script's constants in it.
    pub(super) engine: Engine,
    ast: AST,
    pub(super) on_request: bool,
    pub(super) on_response: bool,
    /// What closures among the script's constants have captured.
    _captured: Captured,
}

/// What is wrong with a script, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{message}", place(*position))]
pub(super) struct ScriptFault {
    position: Position,
    message: String,
}

fn place(position: Position) -> String {
    match (position.line(), position.position()) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: "),
        (Some(line), None) => format!("line {line}: "),
        _ => String::new(),
    }
}

impl From<ParseError> for ScriptFault {
    fn from(error: ParseError) -> Self {
        Self { position: error.1, message: error.0.to_string() }
    }
}

impl From<Box<EvalAltResult>> for ScriptFault {
    fn from(mut error: Box<EvalAltResult>) -> Self {
        let inner = error.unwrap_inner();
        let position = if inner.position().is_none() { error.position() } else { inner.position() };
        let message = match inner {
            EvalAltResult::ErrorTerminated(..) => "it takes longer than `timeout`".to_owned(),
            EvalAltResult::ErrorTooManyOperations(_) => {
                "it takes more operations than `max_operations`".to_owned()
            }
            EvalAltResult::ErrorRuntime(value, _) if bounded::is_short(value) => value.to_string(),
            EvalAltResult::ErrorRuntime(..) => "it throws a value that is too large to be shown".to_owned(),
            _ => {
                error.clear_position();
                error.unwrap_inner().to_string()
            }
        };
        Self { position, message }
    }
}

impl Program {
    /// Compiles a script, runs what is outside of its functions once, and looks at its functions.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(super) fn compile(
        source: &str,
        settings: &serde_json::Map<String, serde_json::Value>,
        limits: &Limits,
        parts: Parts,
    ) -> Result<Self, ScriptFault> {
        let mut engine = engine(limits, parts);
        let mut scope = Scope::new();
        scope.push_constant_dynamic("settings", convert::from_object(settings));
        engine.set_strict_variables(false);
        let first = engine.compile_with_scope(&scope, source)?;
        hold_captured(&mut engine, &first, HashSet::new());
        let mut captured = Captured::default();
        within(limits.time.max(LOAD_TIME), None, &mut captured, || {
            engine.run_ast_with_scope(&mut scope, &first)
        })?;
        hold_captured(&mut engine, &first, captured.places());
        let constants: Vec<(String, Dynamic)> = scope
            .iter()
            .filter(|(_, is_constant, _)| *is_constant)
            .map(|(name, _, value)| (name.to_owned(), value))
            .collect();
        // Compiled again, so that the functions know the constants, and an unknown name is found now and not by a request.
        let (mut known, mut module) = (Scope::new(), Module::new());
        for (name, value) in constants {
            known.push_constant_dynamic(name.clone(), value.clone());
            module.set_var(name, value);
        }
        engine.register_global_module(Shared::new(module));
        engine.set_strict_variables(true);
        let ast = engine.compile_with_scope(&known, source)?.clone_functions_only();
        let has = |name: &str, parameters: usize| -> Result<bool, ScriptFault> {
            let mut named = ast.iter_functions().filter(|function| function.name == name);
            match named.next() {
                None => Ok(false),
                Some(function) if function.params.len() == parameters && named.next().is_none() => Ok(true),
                Some(_) => Err(ScriptFault {
                    position: Position::NONE,
                    message: match parameters {
                        1 => format!("`{name}` takes one parameter: the request"),
                        _ => format!("`{name}` takes two parameters: the request and the response"),
                    },
                }),
            }
        };
        let (on_request, on_response) = (has("on_request", 1)?, has("on_response", 2)?);
        if !on_request && !on_response {
            let message =
                "there is neither a function `on_request(request)` nor `on_response(request, response)`";
            return Err(ScriptFault { position: Position::NONE, message: message.to_owned() });
        }
        Ok(Self { engine, ast, on_request, on_response, _captured: captured })
    }

    pub(super) fn ast(&self) -> &AST {
        &self.ast
    }
}

/// Time that a script may take while it is loaded.
const LOAD_TIME: Duration = Duration::from_millis(500);

impl ScriptFault {
    /// A fault of the whole script.
    pub(super) fn of(message: &str) -> Self {
        Self { position: Position::NONE, message: message.to_owned() }
    }
}
