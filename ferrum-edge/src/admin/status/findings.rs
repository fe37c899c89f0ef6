//! The problems in a status document: one list, the worst first, each with its cause and remedy.

mod targets;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

/// Maximum number of findings in one answer. The answer always contains their total number.
const MAX_FINDINGS: usize = 200;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Traffic or operation is affected.
    Error,
    /// Traffic or operation may soon be affected.
    Warning,
}

/// The findings of a status document, the worst first.
#[derive(Default)]
pub(super) struct Findings {
    list: Vec<(Severity, Value)>,
}

impl Findings {
    /// All problems in a status document.
    pub(super) fn of(status: &Value) -> Self {
        let mut findings = Self::default();
        findings.process(status);
        findings.configuration(status);
        findings.targets(status);
        findings.outside(status);
        findings.warnings(status);
        findings.list.sort_by_key(|(severity, _)| *severity);
        findings
    }

    /// The value of `problems` in the status.
    pub(super) fn document(self) -> Value {
        let count = |wanted| self.list.iter().filter(|(severity, _)| *severity == wanted).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let list: Vec<_> = self.list.into_iter().take(MAX_FINDINGS).map(|(_, finding)| finding).collect();
        json!({ "errors": errors, "warnings": warnings, "list": list })
    }

    fn add(&mut self, severity: Severity, code: &str, about: &str, message: String, remedy: &str) {
        let level = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let finding =
            json!({ "level": level, "code": code, "about": about, "message": message, "remedy": remedy });
        self.list.push((severity, finding));
    }

    fn error(&mut self, code: &str, about: &str, message: String, remedy: &str) {
        self.add(Severity::Error, code, about, message, remedy);
    }

    fn process(&mut self, status: &Value) {
        if status["draining"] == true {
            let remedy = "it ends when its exchanges have; traffic belongs to another gateway";
            self.add(Severity::Warning, "draining", "", "the gateway drains".to_owned(), remedy);
        }
        let successor = &status["successor"];
        if !successor.is_null() {
            let message =
                format!("failed at {}: {}", second(&successor["failed_at"]), text(&successor["problem"]));
            let remedy = "correct the cause, then send SIGUSR2 again; this process continues";
            self.add(Severity::Warning, "successor_failed", "", message, remedy);
        }
        let overload = &status["overload"];
        if overload["level"] != "normal" {
            let used = |used: &Value, limit: &Value, shown: fn(u64) -> String| {
                let used = shown(used.as_u64().unwrap_or_default());
                limit.as_u64().map_or_else(
                    || format!("{used}, without a limit"),
                    |limit| format!("{used} of {}", shown(limit)),
                )
            };
            let message = format!(
                "{}: memory {}, file descriptors {}, workers late by {} s",
                text(&overload["level"]),
                used(&overload["memory_bytes"], &overload["memory_limit_bytes"], mebibytes),
                used(&overload["descriptors"], &overload["descriptor_limit"], |count| count.to_string()),
                overload["delay_seconds"],
            );
            self.error("overloaded", "gateway.overload", message, "add memory, descriptors or gateways");
        }
        for task in each(&status["tasks"]).filter(|task| task["down"].as_u64() > Some(0)) {
            let message = format!("down: {}", text(&task["last_failure"]["cause"]));
            self.error(
                "task_down",
                &text(&task["name"]),
                message,
                "see the program log; restart the gateway",
            );
        }
    }

    fn configuration(&mut self, status: &Value) {
        let config = &status["config"];
        let refusal = &config["last_refusal"];
        // RFC 3339 times in UTC sort as text.
        if !refusal.is_null() && text(&refusal["at"]) > text(&config["applied_at"]) {
            let problems: Vec<_> = each(&refusal["problems"]).map(text).collect();
            let message = format!("refused at {}: {}", second(&refusal["at"]), problems.join("; "));
            let remedy = "correct it and reload; the configuration before it is in use";
            self.error("reload_refused", "configuration", message, remedy);
        }
        for proxy in each(&status["proxies"]["quarantined"]) {
            let about = format!("proxies.{}", text(&proxy["id"]));
            let problems: Vec<_> = each(&proxy["problems"]).map(text).collect();
            self.error("proxy_closed", &about, problems.join("; "), "correct what it names; it answers 503");
        }
        for proxy in each(&status["proxies"]["ports_closed"]) {
            let about = format!("proxies.{}", text(&proxy["id"]));
            self.error(
                "port_closed",
                &about,
                text(&proxy["problem"]),
                "remove the cause; the gateway tries the port again",
            );
        }
        let database = &status["database"];
        if database["answers"] == false {
            let message = format!(
                "away since {}: {}",
                second(&database["away_since"]),
                text(&database["away_because"])
            );
            let remedy = "start it; the last configuration is in use, and changes are refused";
            self.error("database_away", &text(&database["location"]), message, remedy);
        }
        for object in each(&database["broken"]) {
            let about = format!("{}.{}", text(&object["kind"]), text(&object["id"]));
            let problems: Vec<_> = each(&object["problems"]).map(text).collect();
            self.error("object_broken", &about, problems.join("; "), "correct the object");
        }
        self.unsaved(&text(&database["last_good"]["path"]), &database["last_good"]["problem"]);
        self.fleet(&status["fleet"], &status["proxies"]);
    }

    /// Tells of a last good configuration that is older than what is served.
    fn unsaved(&mut self, path: &str, problem: &Value) {
        if let Some(problem) = problem.as_str() {
            let remedy =
                "free its disk; until it can be written, a restart alone begins with an older configuration";
            self.error("last_good_unsaved", path, problem.to_owned(), remedy);
        }
    }

    fn fleet(&mut self, fleet: &Value, proxies: &Value) {
        if fleet["role"] != "edge" {
            return;
        }
        let is_listed = |object: &&Value| {
            let mut closed = each(&proxies["ports_closed"]).chain(each(&proxies["quarantined"]));
            object["kind"] == "proxies" && closed.any(|proxy| proxy["id"] == object["id"])
        };
        for object in each(&fleet["broken"]).filter(|object| !is_listed(object)) {
            let about = format!("{}.{}", text(&object["kind"]), text(&object["id"]));
            self.error(
                "object_broken",
                &about,
                text(&object["reason"]),
                "correct the object at the control plane",
            );
        }
        self.unsaved("FERRUM_EDGE_STATE", &fleet["last_good_problem"]);
        // It learns its name from a control plane.
        let name = fleet["name"].as_str().filter(|name| !name.is_empty());
        let about = format!("edge {}", name.map_or_else(|| text(&fleet["edge"]), str::to_owned));
        if let Some(why) = fleet["revoked"].as_str() {
            self.error("edge_revoked", &about, why.to_owned(), "enrol it with a new invitation");
        } else if fleet["control_plane"].is_null() {
            let since =
                if fleet["since"].is_null() { "its start".to_owned() } else { second(&fleet["since"]) };
            let message = format!("no control plane since {since}: {}", or_unknown(text(&fleet["problem"])));
            self.error(
                "control_plane_away",
                &about,
                message,
                "check the address and the control plane's log; the last configuration is in use",
            );
        }
        if let Some(why) = fleet["refused"]["reason"].as_str() {
            self.error("configuration_refused", &about, why.to_owned(), "correct it at the control plane");
        }
    }

    fn outside(&mut self, status: &Value) {
        for sink in each(&status["log_sinks"]).filter(|sink| !sink["failing_since"].is_null()) {
            let message =
                format!("fails since {}: {}", second(&sink["failing_since"]), text(&sink["last_error"]));
            let about = format!("gateway.access_log.sinks {}", text(&sink["name"]));
            self.error("sink_failing", &about, message, "check its server; records wait in a bounded queue");
        }
        for task in each(&status["plugin_tasks"]["tasks"]).filter(|task| !task["failing_since"].is_null()) {
            let name = text(&task["plugin_config"]);
            let message =
                format!("fails since {}: {}", second(&task["failing_since"]), text(&task["last_error"]));
            match text(&task["plugin"]).as_str() {
                // The sink above.
                "access_log" => {}
                "metrics" => {
                    let about = format!("gateway.metrics.{name}");
                    self.error("metrics_push_failing", &about, message, "check its server");
                }
                _ => {
                    let about = format!("plugin_configs.{name} {}", text(&task["task"]));
                    self.error(
                        "plugin_task_failing",
                        &about,
                        message,
                        "check the server that the plugin uses",
                    );
                }
            }
        }
        for connection in each(&status["redis"]).filter(|connection| connection["up"] == false) {
            let about = format!("gateway.redis.{}", text(&connection["name"]));
            let message = or_unknown(text(&connection["last_error"]));
            self.error("redis_down", &about, message, "check its address, password and rights");
        }
    }

    fn warnings(&mut self, status: &Value) {
        for warning in each(&status["warnings"]["list"]) {
            let code = text(&warning["code"]);
            // `configuration` reports it with more details.
            if code == "proxy_closed" {
                continue;
            }
            let severity = match code.as_str() {
                "certificate_expired" | "acme_failing" => Severity::Error,
                _ => Severity::Warning,
            };
            let remedy = text(&warning["remedy"]);
            self.add(severity, &code, &text(&warning["path"]), text(&warning["message"]), &remedy);
        }
    }
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A time to the second; nobody reads more of it.
fn second(time: &Value) -> String {
    let time = text(time);
    match time.split_once('.') {
        Some((time, _)) => format!("{time}Z"),
        None => time,
    }
}

/// A size for people: `17.2 MiB`.
fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

fn or_unknown(text: String) -> String {
    if text.is_empty() { "the cause is not known yet".to_owned() } else { text }
}
