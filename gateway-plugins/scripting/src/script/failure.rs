//! What a function that scripts call comes to, and how it fails.

use rhai::EvalAltResult;

/// What a function of ours comes to; the engine adds the line and column.
pub(super) type ScriptResult<T> = Result<T, Box<EvalAltResult>>;

/// An error with this message.
pub(super) fn error<T>(message: impl std::fmt::Display) -> ScriptResult<T> {
    Err(message.to_string().into())
}
