//! Problems of targets: unhealthy ones, failing ones, full ones, services that are not found, and folders of scripts.

use serde_json::Value;

use super::{Findings, Severity, each, or_unknown, second, text};

impl Findings {
    pub(super) fn targets(&mut self, status: &Value) {
        for upstream in each(&status["upstreams"]["list"]) {
            self.upstream(upstream);
        }
        for proxy in each(&status["proxies"]["failing"]) {
            let about = format!("proxies.{} {}", text(&proxy["id"]), text(&proxy["address"]));
            let failures = &proxy["failures"];
            let severity = if may_be_over(failures) { Severity::Warning } else { Severity::Error };
            let remedy = remedy(&text(&failures["reason"]), proxy["fastcgi"] == true);
            self.add(severity, "target_failing", &about, message(failures), remedy);
        }
        for proxy in each(&status["proxies"]["scripts_unreadable"]) {
            let about = format!("proxies.{} {}", text(&proxy["id"]), text(&proxy["folder"]));
            self.error(
                "scripts_unreadable",
                &about,
                text(&proxy["problem"]),
                "create the folder, or correct `fastcgi.root` or `fastcgi.local_root`; the proxy answers 503",
            );
        }
        for service in each(&status["services"]["list"]).filter(|service| !service["error"].is_null()) {
            let message = text(&service["error"]);
            self.error(
                "service_lookup_failed",
                &text(&service["name"]),
                message,
                "check the name and `gateway.dns_servers`",
            );
        }
    }

    fn upstream(&mut self, upstream: &Value) {
        let targets: Vec<_> = each(&upstream["targets"]).collect();
        let is_unhealthy = |target: &Value| target["healthy"] == false;
        let is_failing = |target: &Value| !target["failures"].is_null() && !may_be_over(&target["failures"]);
        let is_all = targets.iter().all(|target| is_unhealthy(target) || is_failing(target));
        let severity = if is_all { Severity::Error } else { Severity::Warning };
        for target in targets {
            let about = format!("upstreams.{} {}", text(&upstream["id"]), text(&target["address"]));
            let failures = &target["failures"];
            if !target["full"].is_null() {
                let remedy = "raise the limit, add targets, or give the upstream a `queue`";
                self.add(Severity::Warning, "targets_full", &about, full(&target["full"]), remedy);
            }
            if is_unhealthy(target) {
                let message = or_unknown(text(&target["unhealthy_because"]));
                let remedy = if is_all {
                    "every target of the upstream is out: start one"
                } else {
                    "start the target"
                };
                self.add(severity, "target_unhealthy", &about, message, remedy);
            } else if !failures.is_null() {
                let severity = if is_failing(target) { severity } else { Severity::Warning };
                let remedy = remedy(&text(&failures["reason"]), false);
                self.add(severity, "target_failing", &about, message(failures), remedy);
            }
        }
    }
}

/// Whether the target may work again: an attempt succeeded, or only datagrams failed, of which nobody reports that they arrive.
fn may_be_over(failures: &Value) -> bool {
    failures["succeeded_since"] == true || failures["reason"] == "target_refused"
}

/// `12 attempts failed since …, the last at …: connect_failed (Connection refused)`.
fn message(failures: &Value) -> String {
    let detail = text(&failures["detail"]);
    let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
    let since = if failures["succeeded_since"] == true { "; others succeeded since" } else { "" };
    let count = match failures["count"].as_u64() {
        Some(1) => format!("an attempt failed at {}", second(&failures["last_at"])),
        _ => format!(
            "{} attempts failed since {}, the last at {}",
            failures["count"],
            second(&failures["since"]),
            second(&failures["last_at"])
        ),
    };
    format!("{count}: {}{detail}{since}", text(&failures["reason"]))
}

/// `12 requests found no room since …, the last at …; max_requests is 5`.
fn full(full: &Value) -> String {
    let count = match full["count"].as_u64() {
        Some(1) => format!("a request found no room at {}", second(&full["last_at"])),
        _ => format!(
            "{} requests found no room since {}, the last at {}",
            full["count"],
            second(&full["since"]),
            second(&full["last_at"])
        ),
    };
    let limits = ["max_requests", "max_connections"].iter().filter(|key| !full[**key].is_null());
    let limits: Vec<String> = limits.map(|key| format!("`{key}` is {}", full[*key])).collect();
    format!("{count}; {}", limits.join(", "))
}

/// What an operator does about a failure of a target.
fn remedy(reason: &str, is_fastcgi: bool) -> &'static str {
    match reason {
        "connect_failed" | "target_refused" if is_fastcgi => {
            "start PHP-FPM, or correct `backend_host` and `backend_port`; for a Unix socket check its rights"
        }
        "connect_failed" | "target_refused" => "start the target, or correct its host and port",
        "connect_timeout" => "check the target and the network; the limit is `backend_connect_timeout`",
        "dns_failed" => "correct the target's name, or check `gateway.dns_servers`",
        "tls_certificate_error" | "target_certificate_refused" => {
            "renew the target's certificate, or set `backend_tls_ca_path` or `backend_tls_server_name`"
        }
        "tls_failed" => "check that the target speaks TLS; `backend_scheme` selects it",
        "upstream_timeout" => "find why the target is slow, or raise `backend_first_byte_timeout`",
        "upstream_garbage" if is_fastcgi => "see the log of PHP-FPM; the script sent an invalid header",
        "upstream_garbage" => "check `backend_scheme`: the target does not send valid HTTP",
        "upstream_closed" => "see the target's own log; if it expects TLS, set `backend_scheme: https`",
        _ => "see the target's own log",
    }
}
