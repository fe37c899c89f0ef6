//! The environment variables, one a row.

use super::{How, Setting};

/// Every environment variable that sets something of the `gateway` section.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "FERRUM_PROXY_BIND_ADDRESS",
        key: "http",
        doc: "Address of the http and https listeners, and of stream proxies unless those have one of their own. Default 0.0.0.0.",
        how: How::Address(&["http", "https", "stream_address"]),
    },
    Setting {
        name: "FERRUM_PROXY_HTTP_PORT",
        key: "http",
        doc: "Port of plain HTTP. Default 8000; 0 switches it off.",
        how: How::Port,
    },
    Setting {
        name: "FERRUM_PROXY_HTTPS_PORT",
        key: "https",
        doc: "Port of HTTP over TLS, used once there is a certificate. Default 8443; 0 switches it off.",
        how: How::Port,
    },
    Setting {
        name: "FERRUM_STREAM_PROXY_BIND_ADDRESS",
        key: "stream_address",
        doc: "Address stream proxies listen on. Default 0.0.0.0.",
        how: How::Address(&["stream_address"]),
    },
    Setting {
        name: "FERRUM_ADMIN_BIND_ADDRESS",
        key: "admin",
        doc: "Address of the admin API. Default 127.0.0.1: this machine only.",
        how: How::Address(&["admin"]),
    },
    Setting {
        name: "FERRUM_ADMIN_HTTP_PORT",
        key: "admin",
        doc: "Port of the admin API. Default 9000; 0 switches it off.",
        how: How::Port,
    },
    Setting {
        name: "FERRUM_ENABLE_HTTP3",
        key: "http3",
        doc: "Serves HTTP/3 on the https port. Default false.",
        how: How::Switch,
    },
    Setting {
        name: "FERRUM_WORKER_THREADS",
        key: "workers",
        doc: "Threads that carry traffic. Default 0: one for each core the process may use.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_FRONTEND_TLS_CERT_PATH",
        key: "tls.certificates",
        doc: "PEM file of the certificate chain shown to clients, with FERRUM_FRONTEND_TLS_KEY_PATH in the place of all certificates of the file.",
        how: How::Certificate,
    },
    Setting {
        name: "FERRUM_FRONTEND_TLS_KEY_PATH",
        key: "tls.certificates",
        doc: "PEM file of that certificate's key.",
        how: How::Key,
    },
    Setting {
        name: "FERRUM_FRONTEND_TLS_CLIENT_CA_BUNDLE_PATH",
        key: "tls.client_ca_path",
        doc: "PEM file of the roots that client certificates are checked against. Default none are asked for.",
        how: How::Path,
    },
    Setting {
        name: "FERRUM_TLS_MIN_VERSION",
        key: "tls.min_version",
        doc: "The lowest TLS version spoken, 1.2 or 1.3. Default 1.2.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_TLS_EARLY_DATA",
        key: "tls.early_data",
        doc: "Takes safe requests before the TLS handshake is over (0-RTT). Default false.",
        how: How::Switch,
    },
    Setting {
        name: "FERRUM_MAX_CONNECTIONS",
        key: "limits.max_connections",
        doc: "Open client connections. Default 100000.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_MAX_REQUESTS",
        key: "limits.max_requests",
        doc: "Exchanges in flight; beyond it 503. Default 0: no limit.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_MAX_HEADER_SIZE_BYTES",
        key: "limits.max_header_bytes",
        doc: "Bytes of a request line and headers together; beyond it 431. Default 32768.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_MAX_HEADER_COUNT",
        key: "limits.max_headers",
        doc: "Header fields in one message; beyond it 431. Default 100.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_MAX_URL_LENGTH_BYTES",
        key: "limits.max_uri_bytes",
        doc: "Bytes of a request target; beyond it 414. Default 8192.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_MAX_REQUEST_BODY_SIZE_BYTES",
        key: "limits.max_request_body_bytes",
        doc: "Bytes of a request body; beyond it 413. Default 104857600 (100 MiB); 0 is no limit.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_SERVER_HTTP2_MAX_CONCURRENT_STREAMS",
        key: "limits.max_concurrent_streams",
        doc: "Streams a client may have open on one HTTP/2 or HTTP/3 connection. Default 128.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_HTTP_HEADER_READ_TIMEOUT_SECONDS",
        key: "client_timeouts.header_ms",
        doc: "Seconds from a request's first byte to the end of its headers; then 408. Default 10; 0 is off.",
        how: How::Seconds,
    },
    Setting {
        name: "FERRUM_HTTP_KEEP_ALIVE_TIMEOUT_SECONDS",
        key: "client_timeouts.keep_alive_ms",
        doc: "Seconds a client's connection may be silent between two exchanges. Default 75; 0 is off.",
        how: How::Seconds,
    },
    Setting {
        name: "FERRUM_HTTP_BODY_TIMEOUT_SECONDS",
        key: "client_timeouts.body_ms",
        doc: "Seconds between two reads of a request body or two writes of a response. Default 60; 0 is off.",
        how: How::Seconds,
    },
    Setting {
        name: "FERRUM_TLS_HANDSHAKE_TIMEOUT_SECONDS",
        key: "client_timeouts.handshake_ms",
        doc: "Seconds for a client's TLS handshake. Default 10; 0 is off.",
        how: How::Seconds,
    },
    Setting {
        name: "FERRUM_TRUSTED_PROXIES",
        key: "trusted_proxies",
        doc: "Addresses and CIDR blocks, with commas between, whose forwarding headers and PROXY protocol headers are believed. Default none.",
        how: How::List,
    },
    Setting {
        name: "FERRUM_ACCEPT_PROXY_PROTOCOL",
        key: "accept_proxy_protocol",
        doc: "Accepts a PROXY protocol header on http and https, from trusted proxies only. Default false.",
        how: How::Switch,
    },
    Setting {
        name: "FERRUM_ADD_FORWARDED_HEADER",
        key: "forwarded_header",
        doc: "Adds RFC 7239 Forwarded beside X-Forwarded-*. Default false.",
        how: How::Switch,
    },
    Setting {
        name: "FERRUM_VIA_PSEUDONYM",
        key: "via",
        doc: "What the gateway calls itself in Via. Default ferrum-edge.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_ADD_VIA_HEADER",
        key: "via",
        doc: "Adds Via; false goes before a pseudonym. Default true.",
        how: How::Via,
    },
    Setting {
        name: "FERRUM_ACCESS_LOG",
        key: "access_log.path",
        doc: "File for access records as JSON lines, or - for standard output. Default none are written.",
        how: How::Path,
    },
    Setting {
        name: "FERRUM_ACCESS_LOG_QUEUE",
        key: "access_log.queue",
        doc: "Access records waiting to be written; beyond it they are dropped and counted. Default 8192.",
        how: How::Value,
    },
    Setting {
        name: "FERRUM_SHUTDOWN_DRAIN_SECONDS",
        key: "drain_timeout_seconds",
        doc: "Seconds a drain waits for exchanges to end before it cuts them off. Default 30.",
        how: How::Value,
    },
];
