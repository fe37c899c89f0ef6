//! A gateway with one more plugin, which adds a greeting to every response.

use std::sync::Arc;

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::http::body::Body;
use ferrum_edge::core::http::exchange::Exchange;
use ferrum_edge::core::plugin::{Hooks, OnResponse, Plugin, Seat, Step, World};
use http::{HeaderValue, Response};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The value of `x-greeting`.
    text: String,
}

struct Greeting {
    value: HeaderValue,
}

impl Plugin for Greeting {
    const NAME: &'static str = "greeting";
    const SUMMARY: &'static str = "Adds a greeting to every response.";
    // It protects nothing.
    const GUARDS: bool = false;
    type Config = Config;

    fn build(config: Config, _world: &World) -> Result<Self, Problems> {
        let value = HeaderValue::from_str(&config.text)
            .map_err(|_| Problems::one("config.text", "is not a valid header value"))?;
        Ok(Self { value })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_response(self);
    }
}

impl OnResponse for Greeting {
    fn on_response<'a>(
        &'a self,
        _exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        _seat: Seat<'a>,
    ) -> Step<'a> {
        response.headers_mut().insert("x-greeting", self.value.clone());
        Step::Next
    }
}

fn main() -> std::process::ExitCode {
    let mut registry = ferrum_edge::plugins();
    registry.add(ferrum_edge::core::plugin::entry::<Greeting>());
    ferrum_edge::cli::main(registry)
}

#[cfg(test)]
mod tests {
    use ferrum_edge::bytes::Bytes;
    use ferrum_edge::core::plugin::entry;
    use ferrum_edge::core::testing::{ReceivedRequest, Trial};
    use serde_json::json;

    use super::*;

    fn path_of(received: &ReceivedRequest) -> Body {
        Bytes::from(received.path.clone()).into()
    }

    #[tokio::test]
    async fn greets_every_response() {
        let trial = Trial::new(&[entry::<Greeting>()], "greeting", json!({ "text": "hello" }))
            .answering(|received| Response::builder().status(201).body(path_of(received)).unwrap());
        let got = trial.request("POST", "/orders", &[("accept", "*/*")], "a body").await;
        assert_eq!((got.status, got.field("x-greeting"), got.text().as_str()), (201, "hello", "/orders"));
    }

    #[test]
    fn rejects_what_is_no_header_value() {
        let problems = Trial::refused(&[entry::<Greeting>()], "greeting", &json!({ "text": "a\nb" }));
        assert!(problems.0[0].path.ends_with("config.text"));
    }
}
