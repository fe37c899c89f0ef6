//! Imported configurations beside the originals: nginx, HAProxy and Caddy get a configuration, the gateway what the
//! importer makes of it, and both the same requests.
//!
//! What one of them lets through and the gateway refuses, or answers otherwise, has to be in the importer's report. What
//! they refuse and the gateway lets through is a failure, whatever the report says.

mod answers;
mod auth_server;
mod caddy;
mod caddy_guards;
mod compare;
mod counterparts;
mod declared;
mod error_pages;
mod gateways;
mod haproxy;
mod haproxy_rules;
mod importers;
mod kong;
mod nginx;
mod nginx_files;
mod nginx_guards;
mod nginx_places;
mod nginx_rewrites;
mod nginx_sites;
mod paths_and_queries;
mod php;
mod proxy_sites;
mod response_rewrites;
mod routes;
mod server;
mod sites;
mod sso;
mod streams;
