//! What `deploy/observability/` ships fits the gateway: every metric it names exists, and every file is well-formed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ferrum_edge::core::config::model::LOG_FIELDS;
use ferrum_edge::core::metrics::{MetricKind, names};
use ferrum_edge::core::template::Template;
use serde_json::Value;

/// Counters of plugins, which register theirs when they are built.
const OF_PLUGINS: &[&str] = &[
    "ferrum_otel_spans_total",
    "ferrum_rate_limiting_requests_total",
    "ferrum_quota_requests_total",
    "ferrum_concurrency_limiting_requests_total",
    "ferrum_waf_requests_total",
    "ferrum_waf_rule_matches_total",
    "ferrum_response_cache_requests_total",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn folder() -> PathBuf {
    root().join("deploy/observability")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The names of metrics in a text: rules of our own are written with colons, and are left out.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let is_metric = |word: &&str| {
        !word.contains(':')
            && ["ferrum_", "http_server_", "http_client_", "process_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
    };
    words.filter(is_metric).collect()
}

#[test]
fn every_metric_that_is_named_exists() {
    for file in ["rules.yml", "slo.yml", "grafana.json"] {
        let text = read(file);
        let names = named(&text);
        assert!(!names.is_empty(), "{file} names no metric");
        for name in names {
            let is_there = names::ALL.iter().any(|known| {
                let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
                known.name == name
                    || known.kind == MetricKind::Histogram && parts.into_iter().any(|base| base == known.name)
            });
            assert!(is_there || OF_PLUGINS.contains(&name), "{file} names `{name}`, which does not exist");
        }
    }
}

#[test]
fn rules_that_alerts_use_are_recorded() {
    for file in ["rules.yml", "slo.yml"] {
        let text = read(file);
        let recorded: BTreeSet<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
        for line in text.lines().filter(|line| line.trim().starts_with("expr:")) {
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
            for word in words.filter(|word| word.starts_with("proxy:")) {
                assert!(recorded.contains(word), "{file} uses `{word}`, which is not recorded");
            }
        }
    }
}

#[test]
fn the_board_has_panels_that_do_not_overlap() {
    let board: Value = serde_json::from_str(&read("grafana.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let mut places = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        assert!(
            places.insert((place["x"].as_u64(), place["y"].as_u64())),
            "{}: another panel is there",
            panel["title"]
        );
        let targets = panel["targets"].as_array().expect("targets");
        assert!(targets.iter().all(|target| !target["expr"].as_str().unwrap_or_default().is_empty()));
    }
    assert!(panels.len() > 10);
}

/// Whether a page of the book is there, and has the heading that a link names.
fn is_in_the_book(link: &str) -> bool {
    let (page, anchor) = link.split_once('#').unwrap_or((link, ""));
    let path = root().join("website/src/content/docs").join(format!("{}.md", page.trim_matches('/')));
    let Ok(text) = fs::read_to_string(path) else { return false };
    let slug = |heading: &str| {
        let kept = |c: char| c.is_ascii_alphanumeric() || c == ' ' || c == '-';
        heading.to_lowercase().chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-")
    };
    let mut headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    anchor.is_empty() || headings.any(|heading| slug(heading) == anchor)
}

#[test]
fn alerts_and_panels_lead_to_pages_that_are_there() {
    let mut alerts = 0;
    for file in ["rules.yml", "slo.yml"] {
        let text = read(file);
        for alert in text.split("- alert: ").skip(1) {
            let name = alert.lines().next().unwrap_or_default();
            let runbook = alert.lines().find_map(|line| line.trim().strip_prefix("runbook: "));
            assert!(runbook.is_some_and(is_in_the_book), "{name}: {runbook:?}");
            alerts += 1;
        }
    }
    assert!(alerts > 15);
    let board: Value = serde_json::from_str(&read("grafana.json")).expect("JSON");
    for panel in board["panels"].as_array().expect("panels") {
        let title = &panel["title"];
        assert!(
            panel["description"].as_str().is_some_and(|text| !text.is_empty()),
            "{title} has no description"
        );
        let link = panel["links"][0]["url"].as_str().and_then(|link| link.strip_prefix("${docs}"));
        assert!(link.is_some_and(is_in_the_book), "{title}: {link:?}");
    }
}

#[test]
fn every_value_of_templates_is_documented() {
    let page = root().join("website/src/content/docs/reference/templates.md");
    let page = fs::read_to_string(page).expect("the page");
    let section = page.split("## Values in templates").nth(1).expect("the section");
    let section = section.split("\n#").next().unwrap_or_default();
    let documented: BTreeSet<&str> = section.split('`').skip(1).step_by(2).collect();
    let missing: Vec<String> = Template::names()
        .map(|name| if name.ends_with('.') { format!("{name}NAME") } else { name.to_owned() })
        .filter(|name| !documented.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The names in a file that the site's reference is made from.
fn reference_names(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("website/data/reference").join(file)).expect(file);
    let rows: Value = serde_json::from_str(&text).expect(file);
    let rows = rows.as_array().expect("a list").iter();
    rows.map(|row| row.as_str().or_else(|| row["name"].as_str()).expect("a name").to_owned()).collect()
}

#[test]
fn the_site_lists_every_metric_and_field() {
    let metrics: BTreeSet<String> = names::ALL.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(reference_names("metrics.json"), metrics, "write it anew with `npm run reference` in website");
    let fields: BTreeSet<String> = LOG_FIELDS.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(reference_names("fields.json"), fields, "write it anew with `npm run reference` in website");
}
