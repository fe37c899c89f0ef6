//! What is valid in a configuration and probably not meant, its certificates included.

use gateway_core::config::model::Model;
use gateway_core::config::problem::Problems;
use gateway_core::config::warning::{self, Expiry, Warning};
use gateway_core::plugin::Registry;
use gateway_core::snapshot::Snapshot;
use gateway_core::snapshot::compile::Compiler;

use serde_json::{Value, json};

use super::file::unknown_variables;
use crate::control::certificate_files;

/// A warning as it is shown.
pub(crate) fn document(warning: &Warning) -> Value {
    json!({ "code": warning.code, "path": warning.path, "message": warning.message, "remedy": warning.remedy })
}

/// The warning of a setting that a reload has changed and that is read at the start only.
pub(crate) fn restart_needed(setting: &str) -> Warning {
    Warning {
        code: "restart_needed",
        path: setting.to_owned(),
        message: "it changed, and the gateway still uses what it was started with".to_owned(),
        remedy: "restart the gateway",
    }
}

/// Every warning of a configuration that is not silenced. Compiles it.
///
/// # Errors
/// Mistakes in the plugins of its proxies, with which no gateway starts.
pub(crate) fn of(model: &Model, registry: &Registry) -> Result<Vec<Warning>, Problems> {
    let empty = Snapshot::empty(model.settings.clone());
    let compiled = Compiler::new(registry.clone()).compile(model, &empty, tokio::time::Instant::now());
    compiled.reject_mistakes()?;
    Ok(of_served(model, &compiled.snapshot))
}

/// The same of a configuration that is in use, which is not compiled again.
pub(crate) fn of_served(model: &Model, snapshot: &Snapshot) -> Vec<Warning> {
    let mut warnings = of_compiled(model, snapshot, certificate_files::expiries(model));
    let unusable = certificate_files::unusable(model.proxies.iter().map(|proxy| &**proxy));
    let unusable: Vec<_> = unusable.into_iter().map(|(proxy, why)| (proxy.id.clone(), why)).collect();
    warnings.extend(warning::silenced(certificate_files::unusable_warnings(&unusable), model));
    warnings.extend(of_environment(model));
    warnings
}

/// Unknown variables of the environment.
pub(crate) fn of_environment(model: &Model) -> Vec<Warning> {
    warning::silenced(unknown_variables(), model)
}

/// The same of what is compiled already, where it is known when the certificates end.
pub(crate) fn of_compiled(
    model: &Model,
    snapshot: &Snapshot,
    expiries: Vec<(String, Expiry)>,
) -> Vec<Warning> {
    let mut warnings = warning::warnings(model);
    let more = gateway_core::snapshot::warnings(snapshot).into_iter().chain(warning::expiring(expiries));
    warnings.extend(warning::silenced(more.collect(), model));
    warnings
}
