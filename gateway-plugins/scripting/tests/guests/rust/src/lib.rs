//! A Proxy-Wasm filter in Rust, with the `proxy-wasm` crate: a server decides over a gRPC stream whether a request may pass, and a call
//! tells another one about the response.
//!
//! `cargo build --release --target wasm32-wasip1`

use std::time::Duration;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(Root { service: String::new() }));
}}

struct Root {
    service: String,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let settings = self.get_plugin_configuration().unwrap_or_default();
        self.service = String::from_utf8(settings).unwrap_or_default();
        !self.service.is_empty()
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Exchange { service: self.service.clone(), stream: None }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Exchange {
    service: String,
    stream: Option<u32>,
}

impl HttpContext for Exchange {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        let path = self.get_http_request_header(":path").unwrap_or_default();
        let opened =
            self.open_grpc_stream("guard", &self.service, "Watch", vec![("x-path", path.as_bytes())]);
        let Ok(stream) = opened else {
            self.send_http_response(503, vec![], Some(b"no guard"));
            return Action::Pause;
        };
        self.stream = Some(stream);
        self.send_grpc_stream_message(stream, Some(path.as_bytes()), false);
        Action::Pause
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        // Its own replies pass here, too.
        let Some(stream) = self.stream else { return Action::Continue };
        self.send_grpc_stream_message(stream, Some(b"done"), true);
        let asked = vec![(":method", "POST"), (":path", "/seen"), (":authority", "journal")];
        match self.dispatch_http_call("journal", asked, Some(b"seen"), vec![], Duration::from_millis(500)) {
            Ok(_) => Action::Pause,
            Err(_) => Action::Continue,
        }
    }
}

impl Context for Exchange {
    fn on_grpc_stream_initial_metadata(&mut self, _stream: u32, _count: u32) {
        if let Some(by) = self.get_grpc_stream_initial_metadata_value("x-guard") {
            self.set_http_request_header("x-guard", std::str::from_utf8(&by).ok());
        }
    }

    fn on_grpc_stream_message(&mut self, stream: u32, size: usize) {
        let said = self.get_grpc_call_response_body(0, size).unwrap_or_default();
        if said == b"pass" {
            self.resume_http_request();
        } else {
            self.stream = None;
            self.cancel_grpc_stream(stream);
            self.send_http_response(403, vec![("x-reason", "guard")], Some(&said));
        }
    }

    fn on_grpc_stream_close(&mut self, _stream: u32, status: u32) {
        self.stream = None;
        log::info!("the guard has left with {status}");
        self.send_http_response(503, vec![], Some(b"the guard has left"));
    }

    fn on_http_call_response(&mut self, _call: u32, _headers: usize, size: usize, _trailers: usize) {
        let body = self.get_http_call_response_body(0, size).unwrap_or_default();
        self.set_http_response_header("x-journal", std::str::from_utf8(&body).ok());
        self.resume_http_response();
    }
}
