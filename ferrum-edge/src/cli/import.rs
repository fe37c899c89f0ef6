//! `import`: another gateway's configuration as one of ours.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[cfg(feature = "import")]
use super::BAD_CONFIG;
use super::{FAILED, print};

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The other configuration; several files where it is made of several (Traefik, Ingress)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Whose it is [default: detected from the file's name and contents]
    #[arg(long, value_enum)]
    from: Option<From>,
    /// Ends with exit code 3 when anything is lost or closed
    #[arg(long)]
    strict: bool,
    /// Leaves open what would answer 503 because what guards it can't be translated
    #[arg(long)]
    open: bool,
    /// Lists what was converted, too
    #[arg(long)]
    all: bool,
    /// Writes the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    /// nginx.conf, a file of sites-enabled, or what `nginx -T` prints
    Nginx,
    /// Kong's declarative format, as decK dumps it
    Kong,
    /// A Caddyfile
    Caddyfile,
    /// Caddy's JSON, as `caddy adapt` prints it
    CaddyJson,
    /// Traefik's static and dynamic files in YAML or TOML, or a Compose file with its labels
    Traefik,
    /// haproxy.cfg
    Haproxy,
    /// An Envoy bootstrap with static resources
    Envoy,
    /// A description by OpenAPI 3
    Openapi,
    /// Kubernetes manifests with Ingresses and Services
    Ingress,
}

/// Says that this program has no importers.
#[cfg(not(feature = "import"))]
pub(super) fn import(args: &ImportArgs) -> u8 {
    let ImportArgs { files: _, from: _, strict: _, open: _, all: _, report: _ } = args;
    print::error(
        "this program was built without the feature `import`; build it with default features to import",
    );
    FAILED
}

/// Prints the configuration on standard output, and the report on standard error.
#[cfg(feature = "import")]
pub(super) fn import(args: &ImportArgs) -> u8 {
    use gateway_import::{Disk, Files};

    let mut sources = Vec::new();
    for path in &args.files {
        match Disk.read(path) {
            Ok(text) => sources.push((path.display().to_string(), text)),
            Err(error) => {
                print::error(format_args!("{}: {error}", path.display()));
                return FAILED;
            }
        }
    }
    let detected = sources.first().and_then(|(name, text)| gateway_import::detect(name.as_ref(), text));
    let Some(format) = args.from.map(format).or(detected) else {
        let name = sources.first().map_or("", |(name, _)| name.as_str());
        print::error(format_args!("{name}: the format is not recognised; name it with --from"));
        return BAD_CONFIG;
    };
    match gateway_import::import(format, &sources, &Disk, gateway_import::Options { open: args.open }) {
        Ok(import) => tell(args, &import),
        Err(error) => {
            print::error(error);
            BAD_CONFIG
        }
    }
}

#[cfg(feature = "import")]
fn format(from: From) -> gateway_import::Format {
    use gateway_import::Format;
    match from {
        From::Nginx => Format::Nginx,
        From::Kong => Format::Kong,
        From::Caddyfile => Format::Caddyfile,
        From::CaddyJson => Format::CaddyJson,
        From::Traefik => Format::Traefik,
        From::Haproxy => Format::Haproxy,
        From::Envoy => Format::Envoy,
        From::Openapi => Format::OpenApi,
        From::Ingress => Format::Ingress,
    }
}

#[cfg(feature = "import")]
fn tell(args: &ImportArgs, import: &gateway_import::Import) -> u8 {
    match serde_saphyr::to_string(&import.document()) {
        Ok(text) => print::raw(format_args!("{}\n", text.trim_end())),
        Err(error) => {
            print::error(error);
            return FAILED;
        }
    }
    let report = &import.report;
    let count = import.proxies.len();
    if import.closed_proxies > 0 {
        let closed = import.closed_proxies;
        print::error(format_args!("{closed} of {count} proxies answer 503 until they are completed by hand"));
    }
    match args.all {
        true => report.findings().iter().for_each(print::error),
        false => report.loss_groups().iter().for_each(print::error),
    }
    for note in report.notes() {
        print::error(format_args!("note: {note}"));
    }
    print::error(format_args!(
        "{count} {}; of the original: {report}",
        if count == 1 { "proxy" } else { "proxies" }
    ));
    if let Some(path) = &args.report
        && let Err(error) = std::fs::write(path, format!("{:#}\n", report.to_json()))
    {
        print::error(format_args!("{}: {error}", path.display()));
        return FAILED;
    }
    if args.strict && report.has_loss() { BAD_CONFIG } else { 0 }
}
