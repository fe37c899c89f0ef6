//! The names of the gateway's own metrics, all of them: OpenTelemetry's where it has one, written the way Prometheus writes them.

use super::Metric;

/// One constant a metric, whose documentation is also its help text, and the table of all of them.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $constant:ident: $kind:ident = $name:literal;)+) => {
        $(
            $(#[doc = $help])+
            pub const $constant: Metric = Metric::$kind($name, concat!($($help),+));
        )+

        /// Every metric.
        pub const ALL: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    /// Seconds from a request's head to the end of its exchange, by HTTP version and status class.
    REQUEST_DURATION: histogram = "http_server_request_duration_seconds";
    /// Open exchanges.
    ACTIVE_REQUESTS: gauge = "http_server_active_requests";
    /// Seconds from the start of the last attempt to the target's first byte.
    UPSTREAM_DURATION: histogram = "http_client_request_duration_seconds";
    /// Seconds from the start of the last attempt to the target's last byte.
    UPSTREAM_RESPONSE_DURATION: histogram = "http_client_response_duration_seconds";
    /// Body bytes from clients.
    REQUEST_BYTES: counter = "http_server_request_body_bytes_total";
    /// Body bytes to clients.
    RESPONSE_BYTES: counter = "http_server_response_body_bytes_total";
    /// Exchanges by proxy and status class; proxies beyond the limit share _other, _none means that no proxy matched.
    PROXY_REQUESTS: counter = "ferrum_proxy_requests_total";
    /// Exchanges by authenticated caller and status class; callers beyond the first thousand share _other.
    CONSUMER_REQUESTS: counter = "ferrum_consumer_requests_total";
    /// From the request's head to the response's end, by proxy; for the first thousand proxies.
    PROXY_DURATION: histogram = "ferrum_proxy_request_duration_seconds";
    /// From the start of the attempt that answered to the head of its response, by proxy; for the first thousand proxies.
    PROXY_UPSTREAM_DURATION: histogram = "ferrum_proxy_upstream_duration_seconds";
    /// From the start of the attempt that answered to the target's last byte, by proxy; for the first thousand proxies.
    PROXY_UPSTREAM_RESPONSE_DURATION: histogram = "ferrum_proxy_upstream_response_duration_seconds";
    /// Seconds to open connections to targets, by upstream and phase (dns, connect, tls), for the first thousand upstreams.
    UPSTREAM_CONNECTION: histogram = "ferrum_upstream_connection_duration_seconds";
    /// Exchanges that the gateway answered or that were cut off, by reason.
    REPLIES: counter = "ferrum_replies_total";
    /// gRPC calls by status.
    GRPC_RESPONSES: counter = "ferrum_grpc_responses_total";
    /// Attempts after the first.
    RETRIES: counter = "ferrum_upstream_retries_total";
    /// Hedged requests by result: won, lost, or withheld by the budget.
    HEDGES: counter = "ferrum_upstream_hedges_total";
    /// Open client connections.
    CONNECTIONS: gauge = "ferrum_client_connections";
    /// Client connections accepted.
    ACCEPTED: counter = "ferrum_client_connections_accepted_total";
    /// Overload level: 0 none, 1 closes idle connections, 2 rejects low-priority proxies, 3 rejects all but high-priority ones.
    OVERLOAD_LEVEL: gauge = "ferrum_overload_level";
    /// Bytes of memory beyond which load is shed; absent without a limit.
    OVERLOAD_MEMORY_LIMIT: gauge = "ferrum_overload_memory_limit_bytes";
    /// Seconds until the slowest worker handled new work, at the last check.
    WORKER_DELAY: gauge = "ferrum_worker_delay_seconds";
    /// Client connections refused at the limit.
    REFUSED: counter = "ferrum_client_connections_refused_total";
    /// Sessions ended, by protocol.
    SESSIONS: counter = "ferrum_sessions_total";
    /// Sessions by protocol and end reason, including failed TLS handshakes of HTTP clients.
    SESSION_ENDS: counter = "ferrum_session_ends_total";
    /// Records of sessions that were refused before their client's address was proved, and that were not written: of those there
    /// are 10 a second and worker at most.
    SESSIONS_WITHHELD: counter = "ferrum_session_records_withheld_total";
    /// Bytes of sessions, also of those that are open, by protocol and direction.
    SESSION_BYTES: counter = "ferrum_session_bytes_total";
    /// Datagrams of sessions that a limit dropped, also of those that are open, by protocol.
    SESSION_DROPPED: counter = "ferrum_session_datagrams_dropped_total";
    /// Revision of the active configuration.
    CONFIG_REVISION: gauge = "ferrum_config_revision";
    /// When the active configuration was applied, in seconds since the epoch.
    CONFIG_APPLIED: gauge = "ferrum_config_last_applied_timestamp_seconds";
    /// Rejected configurations; the previous one stayed active.
    CONFIG_REFUSED: counter = "ferrum_config_refused_total";
    /// Proxies in the active configuration.
    CONFIG_PROXIES: gauge = "ferrum_config_proxies";
    /// Proxies that are closed because their configuration can't be applied.
    CONFIG_QUARANTINED: gauge = "ferrum_config_proxies_quarantined";
    /// Objects in the database that can't be used; 0 while the configuration comes from a file.
    CONFIG_BROKEN: gauge = "ferrum_config_objects_broken";
    /// Control plane: edges that are enrolled and not revoked.
    FLEET_EDGES: gauge = "ferrum_fleet_edges";
    /// Control plane: edges that are connected to it.
    FLEET_EDGES_CONNECTED: gauge = "ferrum_fleet_edges_connected";
    /// Control plane: connected edges that do not serve the newest configuration of their group.
    FLEET_EDGES_BEHIND: gauge = "ferrum_fleet_edges_behind";
    /// Control plane: connected edges that refused the newest configuration of their group.
    FLEET_EDGES_REFUSING: gauge = "ferrum_fleet_edges_refusing";
    /// Control plane: objects that connected edges can't use, over all of them.
    FLEET_BROKEN_OBJECTS: gauge = "ferrum_fleet_broken_objects";
    /// Whether the database is reachable: 1 or 0; always 1 while the configuration comes from a file.
    DATABASE_UP: gauge = "ferrum_database_up";
    /// Changed certificate files that could not be used; the previous certificates stayed active.
    CERTIFICATES_REFUSED: counter = "ferrum_certificates_refused_total";
    /// When the certificate or revocation list in a file ends, in seconds since the epoch.
    CERTIFICATE_ENDS: gauge = "ferrum_certificate_not_after_timestamp_seconds";
    /// Certificate orders at a CA (ACME), by result.
    ACME_ORDERS: counter = "ferrum_acme_orders_total";
    /// Certificates that the gateway gets from a CA by itself (ACME), by how they stand: good, missing, or failing where the
    /// last order failed.
    ACME_CERTIFICATES: gauge = "ferrum_acme_certificates";
    /// Requests to the admin API without sufficient authorization, by reason.
    ADMIN_REFUSED: counter = "ferrum_admin_refused_total";
    /// Logins at the console by outcome: accepted, refused, or throttled after too many that were refused.
    CONSOLE_LOGINS: counter = "ferrum_console_logins_total";
    /// Changes that need an approval, by outcome: `proposed`, `approved`, `rejected`,
    /// `withdrawn`, `forced` (applied in an emergency), `conflict` (an object had changed meanwhile).
    APPROVALS: counter = "ferrum_admin_approvals_total";
    /// Changes in the database that wait for the approval of another user. Gateways on one database count the same ones, within 15 s.
    CHANGES_PENDING: gauge = "ferrum_admin_changes_pending";
    /// Audit entries by outcome.
    AUDIT_ENTRIES: counter = "ferrum_audit_entries_total";
    /// Refused attempts without an audit entry, because there were too many.
    AUDIT_SUPPRESSED: counter = "ferrum_audit_suppressed_total";
    /// Audit entries that could not be written to the database or the audit log.
    AUDIT_LOST: counter = "ferrum_audit_lost_total";
    /// Access records written.
    LOG_WRITTEN: counter = "ferrum_access_log_written_total";
    /// Access records dropped because the writer was behind or could not write.
    LOG_DROPPED: counter = "ferrum_access_log_dropped_total";
    /// Access records by sink and result: sent, queue_full, failed or refused.
    LOG_SINK_RECORDS: counter = "ferrum_access_log_sink_records_total";
    /// Pushes of metrics by destination and result: sent or failed.
    METRICS_PUSHED: counter = "ferrum_metrics_pushes_total";
    /// Lines of the program log, by what became of them: written, lost as the reader was slow or gone, or left out
    /// as they repeated too fast.
    PROGRAM_LOG_LINES: counter = "ferrum_log_lines_total";
    /// Failed writes of the program log.
    PROGRAM_LOG_ERRORS: counter = "ferrum_log_write_errors_total";
    /// Tasks that failed and wait for a restart, by name.
    TASKS_DOWN: gauge = "ferrum_tasks_down";
    /// Failures of tasks, by name.
    TASK_FAILURES: counter = "ferrum_task_failures_total";
    /// Tasks that panicked and were caught.
    PANICS: counter = "ferrum_panics_total";
    /// Whether a target is healthy: 1 or 0.
    TARGET_HEALTHY: gauge = "ferrum_target_healthy";
    /// Connections of a target with a limit: in use, idle and being opened.
    TARGET_CONNECTIONS: gauge = "ferrum_target_connections";
    /// Limit of a target's connections.
    TARGET_MAX_CONNECTIONS: gauge = "ferrum_target_max_connections";
    /// Changes of targets' health, by new state.
    TARGET_CHANGES: counter = "ferrum_target_health_changes_total";
    /// Health probes by result.
    PROBES: counter = "ferrum_health_probes_total";
    /// Lookups of services by SRV records, by result.
    SERVICE_LOOKUPS: counter = "ferrum_service_lookups_total";
    /// Servers that the last successful lookup of a service found.
    SERVICE_SERVERS: gauge = "ferrum_service_servers";
    /// Worker threads.
    WORKERS: gauge = "ferrum_workers";
    /// The running version; always 1.
    BUILD_INFO: gauge = "ferrum_build_info";
    /// CPU time of the process, user and system, in seconds.
    PROCESS_CPU: counter = "process_cpu_seconds_total";
    /// Resident memory of the process in bytes.
    PROCESS_MEMORY: gauge = "process_resident_memory_bytes";
    /// Virtual memory of the process in bytes.
    PROCESS_VIRTUAL_MEMORY: gauge = "process_virtual_memory_bytes";
    /// Open file descriptors.
    PROCESS_FDS: gauge = "process_open_fds";
    /// Limit of open file descriptors.
    PROCESS_MAX_FDS: gauge = "process_max_fds";
    /// Threads of the process.
    PROCESS_THREADS: gauge = "process_threads";
    /// When the process started, in seconds since the epoch.
    PROCESS_START: gauge = "process_start_time_seconds";
}
