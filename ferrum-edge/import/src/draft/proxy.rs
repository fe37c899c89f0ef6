//! Proxies: their targets, and how those are asked.

use super::condition::Conditions;
use super::settings::{Amount, Any, Flag, List, Number, Numbers, One, Text, Texts, settings};

settings! {
    /// A proxy.
    Proxy: "proxies" {
        id: Text, hosts: Texts, listen_path: Text, matches: Conditions, priority: Number, plugins: List<PluginRef>,
        // Its target.
        backend_scheme: Text, backend_protocol: Text, backend_http_version: Text, backend_host: Text, backend_port: Number,
        upstream_id: Text, backend_path: Text, strip_listen_path: Flag, preserve_host_header: Flag, fastcgi: One<FastCgi>,
        send_proxy_protocol: Number,
        // TLS to it.
        backend_tls_client_cert_path: Text, backend_tls_client_key_path: Text, backend_tls_verify_server_cert: Flag,
        backend_tls_ca_path: Text, backend_tls_server_name: Text,
        // Times and limits.
        backend_connect_timeout: Amount, backend_first_byte_timeout: Amount, backend_idle_timeout: Amount,
        total_timeout: Amount, websocket_idle_timeout: Amount, max_request_body: Amount, retry: One<Retry>,
        circuit_breaker: One<CircuitBreaker>, hedging: One<Hedging>, allowed_upgrades: Texts,
        // Callers.

        // Streams.
        listen_port: Number, frontend_tls: Flag, passthrough: Flag, accept_proxy_protocol: Flag, tcp_idle_timeout: Amount,
        udp_idle_timeout: Amount,
    }
    /// A plugin config that a proxy names.
    PluginRef: "proxies/plugins" { plugin_config_id: Text }
    /// Scripts and parameters of FastCGI.
    FastCgi: "proxies/fastcgi" {
        root: Text, index: Text, split_path: Texts, try_files: Texts, params: Any, keep_alive: Flag,
    }
    /// Failed requests that are sent again.
    Retry: "proxies/retry" {
        max_retries: Number, retryable_status_codes: Numbers, retry_on_connect_failure: Flag,
        backoff: One<Backoff>,
    }
    /// The pauses between.
    Backoff: "proxies/retry/backoff" { exponential: One<Exponential> }
    /// Pauses that grow.
    Exponential: "proxies/retry/backoff/exponential" { base: Amount }
    /// What stops traffic to failing targets.
    CircuitBreaker: "proxies/circuit_breaker" {
        timeout: Amount, failure_status_codes: Numbers, trip_on_connection_errors: Flag,
    }
    /// Slow requests that go to another target, too.
    Hedging: "proxies/hedging" { delay: Amount, max_hedges: Number, budget_percent: Number, methods: Texts }
}
