//! The alert rules and the board of `deploy/observability/` with the programs they are for: promtool, Prometheus and Alertmanager.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::edge::Edge;
use crate::support::prometheus::{Prometheus, program};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::stream::{at, free_port};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// What a program says when it succeeds.
fn output(mut command: std::process::Command) -> String {
    let done = command.output().expect("a program");
    let said = [&*done.stdout, &*done.stderr].map(String::from_utf8_lossy).concat();
    assert!(done.status.success(), "{said}");
    said
}

#[test]
fn each_alert_comes_when_it_has_to() {
    let tests = workspace().join("tests/src/alerting/rules.test.yml");
    let mut promtool = program("promtool");
    promtool.args(["test", "rules"]).arg(&tests);
    output(promtool);
    let tested = fs::read_to_string(&tests).expect("a file");
    for file in ["rules.yml", "slo.yml"] {
        let rules = fs::read_to_string(workspace().join("deploy/observability").join(file)).expect("rules");
        let alerts: Vec<&str> =
            rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        assert!(alerts.len() > 1, "{file}");
        for alert in alerts {
            assert!(tested.contains(&format!("        alertname: {alert}\n")), "{alert} has no test");
        }
    }
}

#[test]
fn promtool_takes_the_configuration_and_the_metrics() {
    let mut promtool = program("promtool");
    promtool
        .args(["check", "config", "prometheus.yml"])
        .current_dir(workspace().join("deploy/observability"));
    output(promtool);
}

/// Labels of an alert, some of them.
type Wanted = (&'static str, &'static [(&'static str, &'static str)]);

/// What goes wrong in [`a_gateway_in_trouble_raises_the_alerts_that_say_so`], by the alerts for it.
const TROUBLES: &[Wanted] = &[
    ("GatewayDown", &[]),
    ("GatewayProxyErrors", &[("proxy", "bad")]),
    ("GatewayRetries", &[]),
    ("GatewayTargetUnhealthy", &[("upstream", "gone")]),
    ("GatewayUpstreamWithoutTargets", &[("upstream", "gone")]),
    ("GatewayRecordsLost", &[("sink", "nobody")]),
    ("GatewaySpansLost", &[("plugin_config", "t")]),
    ("GatewaySloBurnsFast", &[("proxy", "bad")]),
    ("GatewaySloBurns", &[("proxy", "bad")]),
];

fn has(alerts: &[(Value, String)], (name, labels): Wanted) -> bool {
    alerts.iter().any(|(alert, summary)| {
        // What a template could not fill in is shown as this.
        assert!(!summary.contains("<no value>") && !summary.is_empty(), "{alert}: {summary}");
        alert["alertname"] == name && labels.iter().all(|(label, value)| alert[*label] == **value)
    })
}

#[tokio::test]
async fn a_gateway_in_trouble_raises_the_alerts_that_say_so() {
    let good = Standing::start("good").await;
    let pair = [Standing::start("bad").await, Standing::start("worse").await];
    let (gone, nobody) = (free_port(), free_port());
    let edge = Edge::start_with(
        &format!(
            "    sinks:\n      - {{name: nobody, interval: 10ms, retry_for: 0ms, tcp: {{address: 'tcp://{}'}}}}",
            at(nobody)
        ),
        &format!(
            "proxies:\n  - {{id: good, listen_path: /good, {}}}\n  \
               - {{id: bad, listen_path: /bad, upstream_id: pair, retry: {{max_retries: 1, retryable_status_codes: [503], budget_percent: 1000}}}}\n  \
               - {{id: lost, listen_path: /lost, upstream_id: gone}}\n\
             upstreams:\n  - {{id: pair, targets: [{}, {}]}}\n  - {{id: gone, targets: [{{host: 127.0.0.1, port: {gone}}}], health_checks: \
               {{active: {{interval: 1, healthy_threshold: 1, unhealthy_threshold: 1}}}}}}\n\
             plugin_configs:\n  - {{id: t, plugin_name: otel_tracing, scope: global, config: \
               {{exporter: {{endpoint: 'http://{}'}}, queue: {{interval: 10ms, retry_for: 0ms}}}}}}\n",
            good.backend(),
            pair[0].target(),
            pair[1].target(),
            at(nobody),
        ),
    );
    pair.iter().for_each(|target| target.answer(503));
    let admin = edge.gateway.serve_admin(([127, 0, 0, 1], 0).into()).expect("an admin listener");
    let watching = Prometheus::watch(&[admin, at(nobody)]).await;
    for trouble in TROUBLES {
        let raised = async {
            while !has(&watching.alerts().await, *trouble) {
                edge.get("/bad").await;
                edge.get("/good").await;
                edge.get("/lost").await;
            }
        };
        soon(raised).await;
    }
    let alerts = watching.alerts().await;
    assert!(!has(&alerts, ("GatewayProxyErrors", &[("proxy", "good")])), "{alerts:?}");
    the_board_shows_it(&watching).await;
    // It is well again.
    pair.iter().for_each(|target| target.answer(200));
    let _back = Standing::start_at(at(gone), "back").await;
    let healed = ["GatewayProxyErrors", "GatewayRetries", "GatewayTargetUnhealthy", "GatewaySloBurnsFast"];
    let resolved = async {
        loop {
            edge.get("/bad").await;
            let alerts = watching.alerts().await;
            if !healed.iter().any(|name| has(&alerts, (*name, &[]))) {
                return alerts;
            }
        }
    };
    let alerts = soon(resolved).await;
    assert!(has(&alerts, ("GatewayDown", &[])), "the other gateway is still away: {alerts:?}");
}

/// Panels that are empty while there are no sessions, no certificates and no database.
const MAY_BE_EMPTY: &[&str] = &[
    "ferrum_certificate_not_after_timestamp_seconds",
    // Of plugins and callers that this gateway does not have.
    "ferrum_rate_limiting_requests_total",
    "ferrum_quota_requests_total",
    "ferrum_concurrency_limiting_requests_total",
    "ferrum_waf_",
    "ferrum_response_cache_",
    "ferrum_consumer_requests_total",
];

/// Each expression of the board is one that Prometheus carries out, and that has something to show.
async fn the_board_shows_it(watching: &Prometheus) {
    let board = fs::read_to_string(workspace().join("deploy/observability/grafana.json")).expect("a board");
    let board: Value = serde_json::from_str(&board).expect("JSON");
    let mut empty = BTreeSet::new();
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let written = target["expr"].as_str().expect("an expression");
            let expression = written
                .replace("$__rate_interval", "3s")
                .replace("$job", "ferrum-edge")
                .replace("$instance", ".*")
                .replace("$proxy", ".*");
            assert!(!expression.contains('$'), "another variable: {written}");
            let series = watching.query(&expression).await;
            if series.is_empty() && !MAY_BE_EMPTY.iter().any(|name| written.contains(name)) {
                empty.insert(written.to_owned());
            }
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            for label in legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")) {
                let (label, _) = label;
                assert!(
                    series.iter().all(|(labels, _)| !labels[label].is_null()),
                    "{written} has no {label}"
                );
            }
        }
    }
    assert!(empty.is_empty(), "{empty:?}");
}
