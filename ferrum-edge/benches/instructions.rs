//! What one request's thinking costs, in instructions: run by `benches/instructions` under callgrind, which counts the
//! same on every machine. `instructions SCENARIO COUNT` does the scenario's work COUNT times and prints nothing; the
//! difference between two counts is what one costs.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrum_edge::core::config::model::Settings;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::downstream::{Delivery, Downstream};
use ferrum_edge::core::http::exchange::{Client, Exchange};
use ferrum_edge::core::http::tunnel::Tunnel;
use ferrum_edge::core::http::upstream::{Call, Failure, TargetResponse, Upstream};
use ferrum_edge::core::limit::overload::Overload;
use ferrum_edge::core::pipeline::http::Pipeline;
use ferrum_edge::core::snapshot::Snapshot;
use ferrum_edge::core::snapshot::compile::{Compiled, Compiler};
use ferrum_edge::export::Telemetry;
use ferrum_edge::source::file::parse;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::time::Instant;

/// Proxies of the large configuration.
const MANY: usize = 30_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo bench` runs every bench; without a scenario there is nothing to do.
    let (Some(scenario), Some(count)) = (arguments.get(1), arguments.get(2).and_then(|n| n.parse().ok()))
    else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(run(scenario, count));
}

async fn run(scenario: &str, count: usize) {
    match scenario {
        "route" => find(&compiled(1, false), count),
        "route-30000" => find(&compiled(MANY, false), count),
        "exchange" => serve(compiled(1, false), &[], count).await,
        "exchange-30000" => serve(compiled(MANY, false), &[], count).await,
        "exchange-key-auth" => serve(compiled(1, true), &[], count).await,
        "exchange-key-auth-30000" => serve(compiled(MANY, true), &[], count).await,
        "exchange-script" => serve(scripted(), &[], count).await,
        "change-30000" => change(count),
        other => match PLUGINS.iter().find(|(name, ..)| *name == other) {
            Some((_, plugin, config, fields)) => serve(with_plugin(plugin, config), fields, count).await,
            None => eprintln!("there is no scenario {other}"),
        },
    }
}

/// A token of consumer `u0` that ends in 2100.
const TOKEN: &str = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MCIsImV4cCI6NDEwMjQ0NDgwMH0.\
    b2SVCf_Eg8hRIR_gVAymwOLxGr-jMazF6ijfsSPeMAA";

/// A plugin, its settings, and what requests have besides the usual.
type Scenario = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// An exchange with one plugin: against `exchange` it says what the plugin costs.
const PLUGINS: &[Scenario] = &[
    ("exchange-rate-limiting", "rate_limiting", r#"{"limits":[{"rate":1000000}]}"#, &[]),
    (
        "exchange-rate-limiting-silent",
        "rate_limiting",
        r#"{"limits":[{"rate":1000000}],"headers":"none"}"#,
        &[],
    ),
    (
        "exchange-cors",
        "cors",
        r#"{"allowed_origins":["https://shop.example"]}"#,
        &[("origin", "https://shop.example")],
    ),
    ("exchange-ip-restriction", "ip_restriction", r#"{"deny":["10.0.0.0/8","2001:db8::/32"]}"#, &[]),
    ("exchange-jwt-hs256", "jwt_auth", r#"{"cached_tokens":0}"#, &[("authorization", TOKEN)]),
    ("exchange-jwt-hs256-cached", "jwt_auth", "{}", &[("authorization", TOKEN)]),
    ("exchange-traces-none", "otel_tracing", r#"{"sampler":"always_off"}"#, &[]),
];

/// One proxy with one plugin, and one consumer.
fn with_plugin(plugin: &str, config: &str) -> Compiled {
    let text = format!(
        r#"{{"proxies":[{{"id":"p0","listen_path":"/p0","backend_host":"127.0.0.1","backend_port":1}}],
            "consumers":[{{"id":"c0","username":"u0","credentials":{{"jwt_auth":"a secret of thirty-two bytes, ok"}}}}],
            "plugin_configs":[{{"id":"s","plugin_name":"{plugin}","proxy_id":"p0","config":{config}}}]}}"#
    );
    let mut compiler = Compiler::new(ferrum_edge::plugins());
    let model = parse(&text, "bench", compiler.registry()).expect("the configuration is good");
    compiler.compile(&model, &Snapshot::empty(Arc::default()), Instant::now())
}

fn compiled(proxies: usize, protected: bool) -> Compiled {
    compile(&mut Compiler::new(ferrum_edge::plugins()), proxies, protected)
}

fn compile(compiler: &mut Compiler, proxies: usize, protected: bool) -> Compiled {
    let proxy = |n| {
        format!(
            r#"{{"id":"p{n}","listen_path":"/p{n}","backend_host":"127.0.0.1","backend_port":{}}}"#,
            1 + n % 9
        )
    };
    let consumer = |n| format!(r#"{{"id":"c{n}","username":"u{n}","credentials":{{"key_auth":"key-{n}"}}}}"#);
    let config = |n| {
        format!(
            r#"{{"id":"k{n}","plugin_name":"key_auth","proxy_id":"p{n}"}},
               {{"id":"a{n}","plugin_name":"access_control","proxy_id":"p{n}","config":{{"allowed_consumers":["u{n}"]}}}}"#
        )
    };
    let list = |each: &dyn Fn(usize) -> String| (0..proxies).map(each).collect::<Vec<_>>().join(",");
    let (consumers, configs) = if protected { (list(&consumer), list(&config)) } else { Default::default() };
    let text =
        format!(r#"{{"proxies":[{}],"consumers":[{consumers}],"plugin_configs":[{configs}]}}"#, list(&proxy));
    let model = parse(&text, "bench", compiler.registry()).expect("the configuration is good");
    compiler.compile(&model, &Snapshot::empty(Arc::default()), Instant::now())
}

/// One proxy with a script that takes some 50 operations and sets a header.
fn scripted() -> Compiled {
    let source = "fn on_request(request) { let sum = 0; for n in 0..16 { sum += n * 3; } request.set_header(`x-sum`, sum); }";
    let text = format!(
        r#"{{"proxies":[{{"id":"p0","listen_path":"/p0","backend_host":"127.0.0.1","backend_port":1}}],
            "plugin_configs":[{{"id":"s","plugin_name":"script","proxy_id":"p0","config":{{"source":"{source}","timeout": "1000ms"}}}}]}}"#
    );
    let mut compiler = Compiler::new(ferrum_edge::plugins());
    let model = parse(&text, "bench", compiler.registry()).expect("the configuration is good");
    compiler.compile(&model, &Snapshot::empty(Arc::default()), Instant::now())
}

fn find(compiled: &Compiled, count: usize) {
    for _ in 0..count {
        black_box(
            compiled.snapshot.routes.find(Some("api.example.com"), black_box("/p0/users/17"), |_| true),
        );
    }
}

/// The pipeline between a client and a target that cost next to nothing.
async fn serve(compiled: Compiled, fields: &[(&str, &str)], count: usize) {
    let settings = Settings::default();
    let telemetry = Telemetry::new(1, &settings).expect("no log to open");
    telemetry.applied(&compiled);
    let pipeline = Pipeline::new(Target, telemetry.worker(0), Overload::new(&settings.limits));
    let address = SocketAddr::from(([192, 0, 2, 7], 54321));
    let client = Arc::new(Client::new(address, address, false, None));
    for _ in 0..count {
        let request = Request::get("/p0/users/17?page=2")
            .header("host", "api.example.com")
            .header("user-agent", "curl/8.0")
            .header("accept", "*/*")
            .header("x-api-key", "key-0");
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Body::empty()).expect("the request is good");
        let delivery = pipeline
            .serve(&compiled.snapshot, Box::new(Exchange::new(request, client.clone())), &mut Screen)
            .await;
        assert_eq!(black_box(delivery).cut, None, "it is answered");
    }
}

/// One proxy changed among many: what it costs goes by the change.
fn change(count: usize) {
    use ferrum_edge::core::config::changes::{Changes, Edits};
    let mut compiler = Compiler::new(ferrum_edge::plugins());
    let compiled = compile(&mut compiler, MANY, false);
    let mut snapshot = compiled.snapshot;
    let proxy = snapshot.by_id.get("p7").expect("it is there").proxy.clone();
    for _ in 0..count {
        let proxies = Edits { put: vec![proxy.clone()], gone: Vec::new() };
        let next = compiler.apply(Changes { proxies, ..Changes::default() }, &snapshot, Instant::now());
        compiler.adopt(&next);
        snapshot = next.snapshot;
    }
    black_box(snapshot);
}

struct Target;

impl Upstream for Target {
    async fn send<D: Downstream>(
        &self,
        call: &Call<'_>,
        _: &mut Body,
        _: &mut D,
    ) -> Result<TargetResponse, Failure> {
        black_box((call.path, call.headers));
        let response = Response::new(Body::full("hello"));
        Ok(TargetResponse { response, first_byte: Duration::ZERO, reused: true, tunnel: None })
    }
}

struct Screen;

impl Downstream for Screen {
    async fn interim(&mut self, _status: StatusCode, _headers: &HeaderMap) {}

    async fn upgrade(&mut self, _response: Response<()>) -> Option<Tunnel> {
        None
    }

    async fn respond(&mut self, response: Response<Body>) -> Delivery {
        assert_eq!(response.status(), StatusCode::OK, "it is let through");
        let (_, mut body) = response.into_parts();
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.into_data().map_or(0, |data| data.len() as u64);
        }
        Delivery { bytes, cut: None, ..Delivery::default() }
    }
}
