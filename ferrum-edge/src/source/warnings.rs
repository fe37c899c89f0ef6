//! What is valid in a configuration and probably not meant, its certificates included.

use gateway_core::config::model::Model;
use gateway_core::config::warning::{self, Expiry, Warning};

use serde_json::{Value, json};

use super::certificates;

/// A warning as it is shown.
pub(crate) fn document(warning: &Warning) -> Value {
    json!({ "code": warning.code, "path": warning.path, "message": warning.message, "remedy": warning.remedy })
}

/// Every warning of a configuration that is not silenced.
pub(crate) fn of(model: &Model) -> Vec<Warning> {
    with_expiries(model, certificates::expiries(model))
}

/// The same where it is known when the certificates end.
pub(crate) fn with_expiries(model: &Model, expiries: Vec<(String, Expiry)>) -> Vec<Warning> {
    let mut warnings = warning::warnings(model);
    let expiring = warning::expiring(expiries);
    warnings.extend(warning::silenced(expiring, model));
    warnings
}
