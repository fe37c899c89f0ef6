//! Upstreams: targets, how one is chosen, and health checks.

use super::settings::{Amount, Any, Flag, List, Number, Numbers, One, Text, settings};

settings! {
    /// A named group of targets.
    Upstream: "upstreams" {
        id: Text, targets: List<Target>, algorithm: Text, hash_on: Text, hash_on_cookie_config: One<Cookie>,
        sticky: One<Sticky>, slow_start: Amount, queue: One<Queue>, health_checks: One<HealthChecks>,
    }
    /// One server; a Unix socket, `unix:/run/app.sock`, and a service, `srv:_http._tcp.shop.test`, have no port.
    Target: "upstreams/targets" {
        host: Text, port: Number, weight: Number, priority: Number, max_requests: Number, max_connections: Number, path: Text,
    }
    /// A cookie that names the target.
    Sticky: "upstreams/sticky" { cookie: Text, cookie_config: One<Cookie> }
    /// Attributes of a cookie.
    Cookie: "upstreams/sticky/cookie_config" {
        path: Text, ttl: Amount, domain: Text, http_only: Flag, secure: Flag,
    }
    /// Requests that wait for a target.
    Queue: "upstreams/queue" { max_waiting: Number, timeout: Amount }
    /// Both kinds of health checks.
    HealthChecks: "upstreams/health_checks" { active: One<ActiveCheck>, passive: One<PassiveCheck> }
    /// Probes.
    ActiveCheck: "upstreams/health_checks/active" {
        probe_type: Text, http_path: Text, interval: Amount, timeout: Amount, healthy_threshold: Number,
        unhealthy_threshold: Number, healthy_status_codes: Numbers, use_tls: Flag, send: Text, expect: Any,
    }
    /// What responses say of targets.
    PassiveCheck: "upstreams/health_checks/passive" {
        unhealthy_status_codes: Numbers, unhealthy_threshold: Number, unhealthy_window: Amount, healthy_after: Amount,
    }
}
