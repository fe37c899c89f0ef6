//! Prometheus with an Alertmanager for one test, with the rules that `deploy/observability/` ships.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::h1::Talker;
use super::soon;
use super::stream::{at, free_port};
use super::wire::Wire;

/// Both programs; ended, and their folder removed, when dropped.
pub(crate) struct Prometheus {
    programs: Vec<Child>,
    folder: PathBuf,
    server: SocketAddr,
    alertmanager: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        for program in &mut self.programs {
            drop(program.kill());
            drop(program.wait());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A program of Prometheus.
pub(crate) fn program(name: &str) -> Command {
    Command::new(test_servers::program(name))
}

/// The rules as shipped, over seconds in the place of minutes and hours, and without a time for which an alert must hold.
fn hurried(rules: &str) -> String {
    let mut text = String::new();
    for line in rules.lines().filter(|line| !line.trim_start().starts_with("for:")) {
        let mut line = line.to_owned();
        for window in ["[5m]", "[15m]", "[30m]", "[1h]", "[6h]"] {
            line = line.replace(window, "[3s]");
        }
        text.push_str(&line);
        text.push('\n');
    }
    assert!(text.contains("[3s]") && !text.contains("m]"), "another window: {text}");
    text
}

impl Prometheus {
    /// Scrapes these as the job `ferrum-edge`, and waits until it does.
    pub(crate) async fn watch(gateways: &[SocketAddr]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("ferrum-prometheus-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let [server, alertmanager] = [free_port(), free_port()].map(at);
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/observability");
        for file in ["rules.yml", "slo.yml"] {
            let rules = fs::read_to_string(shipped.join(file)).expect("rules");
            fs::write(folder.join(file), hurried(&rules)).expect("a file");
        }
        let targets: Vec<String> = gateways.iter().map(ToString::to_string).collect();
        let config = json!({
            "global": { "scrape_interval": "250ms", "evaluation_interval": "250ms" },
            "rule_files": ["rules.yml", "slo.yml"],
            "alerting": { "alertmanagers": [{ "static_configs": [{ "targets": [alertmanager.to_string()] }] }] },
            "scrape_configs": [{ "job_name": "ferrum-edge", "static_configs": [{ "targets": targets }] }],
        });
        fs::write(folder.join("prometheus.yml"), config.to_string()).expect("a file");
        let receivers = json!({ "route": { "receiver": "none" }, "receivers": [{ "name": "none" }] });
        fs::write(folder.join("alertmanager.yml"), receivers.to_string()).expect("a file");
        let file = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
        let mut programs = [program("prometheus-alertmanager"), program("prometheus")];
        programs[0].args([
            file("config.file", "alertmanager.yml"),
            file("storage.path", "alerts"),
            format!("--web.listen-address={alertmanager}"),
            "--cluster.listen-address=".to_owned(),
        ]);
        programs[1].args([
            file("config.file", "prometheus.yml"),
            file("storage.tsdb.path", "data"),
            format!("--web.listen-address={server}"),
        ]);
        let programs = programs
            .iter_mut()
            .map(|program| {
                let program = program.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
                program.spawn().expect("a program")
            })
            .collect();
        let mut watching = Self { programs, folder, server, alertmanager };
        let starting = async {
            while !(watching.is_ready(server).await && watching.is_ready(alertmanager).await) {
                for program in &mut watching.programs {
                    assert!(program.try_wait().expect("its state").is_none(), "it does not start");
                }
                tokio::task::yield_now().await;
            }
        };
        soon(starting).await;
        watching
    }

    async fn is_ready(&self, server: SocketAddr) -> bool {
        if std::net::TcpStream::connect(server).is_err() {
            return false;
        }
        get(server, "/-/ready").await.0 == 200
    }

    /// The series that an expression has now, with their labels and values.
    pub(crate) async fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let (status, answer) =
            get(self.server, &format!("/api/v1/query?query={}", percent_encoded(expression))).await;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!((status, &answer["status"]), (200, &"success".into()), "{expression}: {answer}");
        let result = answer["data"]["result"].as_array().expect("series");
        let series = result.iter().map(|series| {
            let value = series["value"][1].as_str().expect("a value").parse().expect("a number");
            (series["metric"].clone(), value)
        });
        series.collect()
    }

    /// The alerts that Alertmanager has now: their labels and summaries.
    pub(crate) async fn alerts(&self) -> Vec<(Value, String)> {
        let (_, answer) = get(self.alertmanager, "/api/v2/alerts?active=true").await;
        let alerts: Value = serde_json::from_str(&answer).expect("JSON");
        let alerts = alerts.as_array().expect("alerts").iter().map(|alert| {
            let summary = alert["annotations"]["summary"].as_str().expect("a summary");
            (alert["labels"].clone(), summary.to_owned())
        });
        alerts.collect()
    }
}

async fn get(server: SocketAddr, target: &str) -> (u16, String) {
    let mut talker = Talker::new(Wire::open(server).await);
    talker.wire.send(format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    let head = talker.response(&http::Method::GET).await.expect("an answer");
    let body = talker.body().await.expect("a body");
    (head.status(), String::from_utf8(body.to_vec()).expect("UTF-8"))
}

fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}
