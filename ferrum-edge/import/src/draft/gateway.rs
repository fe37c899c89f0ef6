//! The gateway as a whole.

use super::settings::{Amount, Any, Flag, List, Number, One, Text, Texts, settings};

settings! {
    /// Settings of the gateway.
    Gateway: "gateway" {
        http: Text, additional_http: Texts, https: Text, additional_https: Texts, dns_servers: Texts, redis: Any, http3: Flag, host_fallthrough: Flag, tls: One<GatewayTls>, acme: One<Acme>,
        client_timeouts: One<ClientTimeouts>, trusted_proxies: Texts, real_ip_header: Text, merge_slashes: Flag,
        access_log: One<AccessLog>, accept_proxy_protocol: Flag, underscores_in_headers: Text,
    }
    /// TLS with clients.
    GatewayTls: "gateway/tls" {
        certificates: Any, client_ca_path: Text, client_crl_path: Text, client_cert_required: Flag,
        min_version: Text,
    }
    /// A certificate, from files or from a certificate authority.
    CertificateFile: "gateway/tls/certificates" { cert_path: Text, key_path: Text, acme: Texts }
    /// The certificate authority.
    Acme: "gateway/acme" {
        directory_url: Text, email: Text, accept_terms: Flag, storage: Text, challenge: Text,
        external_account: One<ExternalAccount>, root_ca_path: Text,
    }
    /// An account that the authority knows by other means.
    ExternalAccount: "gateway/acme/external_account" { key_id: Text, hmac_key: Text }
    /// A connection to Redis.
    Redis: "gateway/redis" {
        urls: Texts, username: Text, password: Text, database: Number, timeout: Amount,
    }
    /// How long clients may take.
    ClientTimeouts: "gateway/client_timeouts" { header: Amount, keep_alive: Amount, body: Amount }
    /// Access records.
    AccessLog: "gateway/access_log" { sinks: List<Sink> }
    /// Where access records go.
    Sink: "gateway/access_log/sinks" {
        name: Text, format: Text, template: Text, when: Any, proxies: Texts, stdout: One<LogStdout>, file: One<LogFile>,
        http: One<LogHttp>, tcp: One<LogTcp>, syslog: One<LogSyslog>,
    }
    /// The program's output.
    LogStdout: "gateway/access_log/sinks/stdout" {}
    /// A file of them.
    LogFile: "gateway/access_log/sinks/file" { path: Text, max_size: Amount, keep: Number }
    /// A server that they are posted to.
    LogHttp: "gateway/access_log/sinks/http" { url: Text, headers: Any, timeout: Amount }
    /// A syslog server that they are sent to.
    LogSyslog: "gateway/access_log/sinks/syslog" { address: Text, facility: Number, app_name: Text }
    /// A connection that they are written to.
    LogTcp: "gateway/access_log/sinks/tcp" { address: Text }
}
