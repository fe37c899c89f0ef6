//! `import`: another gateway's configuration as one of ours.

#[cfg(feature = "import")]
mod compare;
#[cfg(feature = "import")]
mod recorded;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gateway_core::plugin::Registry;

#[cfg(feature = "import")]
use super::BAD_CONFIG;
use super::{FAILED, OutputFormat, print};

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The other configuration, or its folder; several files if it consists of several (Traefik, Ingress)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Format of the configuration [default: detected from the file's name and contents]
    #[arg(long, value_enum)]
    from: Option<From>,
    /// Exits with code 3 if anything is lost or closed
    #[arg(long)]
    strict: bool,
    /// Keeps routes open whose access rules cannot be converted, instead of answering 503
    #[arg(long)]
    open: bool,
    /// Also lists what was converted
    #[arg(long)]
    all: bool,
    /// A value for the placeholders of the original: `{$NAME}` (Caddy), `${NAME}` (HAProxy, Traefik, Compose); it precedes `--env-file`
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// A file with such values, one NAME=VALUE per line
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Keeps placeholders without a value or default as `${env:NAME}`, which the gateway resolves at start
    #[arg(long)]
    keep_env: bool,
    /// Access log of the original or a HAR file: prints the requests that the imported configuration would answer differently, instead of
    /// the configuration; exit code 4 if there are any
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Host of recorded requests without one, or `https://HOST` if the log does not contain the scheme [default: the first host of the configuration]
    #[arg(long, value_name = "HOST", requires = "compare")]
    host: Option<String>,
    /// Writes the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Format of the report on standard error
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    /// nginx.conf, a file of sites-enabled, or the output of `nginx -T`
    Nginx,
    /// Kong's declarative format, as dumped by decK
    Kong,
    /// A Caddyfile
    #[value(alias = "caddy")]
    Caddyfile,
    /// Caddy's JSON, as printed by `caddy adapt`
    CaddyJson,
    /// Traefik's static and dynamic files in YAML or TOML, or a Compose file with its labels
    Traefik,
    /// haproxy.cfg
    Haproxy,
    /// An Envoy bootstrap with static resources
    Envoy,
    /// An OpenAPI 3 document
    Openapi,
    /// Kubernetes manifests with Ingresses and Services
    #[value(aliases = ["ingress-nginx", "kubernetes"])]
    Ingress,
}

/// Says that this program has no importers.
#[cfg(not(feature = "import"))]
pub(super) fn import(args: &ImportArgs, _registry: &Registry) -> u8 {
    let ImportArgs { files: _, from: _, strict: _, open: _, all: _, set: _, env_file: _, .. } = args;
    print::error(
        "this program was built without the feature `import`; build it with default features to import",
    );
    FAILED
}

/// Prints the configuration on standard output, and the report on standard error.
#[cfg(feature = "import")]
pub(super) fn import(args: &ImportArgs, registry: &Registry) -> u8 {
    use gateway_import::Disk;

    let mut sources = Vec::new();
    for path in &args.files {
        let Some(path) = main_file(path) else {
            let names = MAIN_FILES.join(", ");
            print::error(format_args!(
                "{}: the folder contains none of {names}; name the file",
                path.display()
            ));
            return BAD_CONFIG;
        };
        let path = &path;
        match crate::source::file::read_text(path) {
            Ok(text) => sources.push((path.display().to_string(), text)),
            Err(error) => {
                print::error(format_args!("{}: {error}", path.display()));
                return BAD_CONFIG;
            }
        }
    }
    let detected = sources.first().and_then(|(name, text)| gateway_import::detect(name.as_ref(), text));
    let Some(format) = args.from.map(format).or(detected) else {
        let name = sources.first().map_or("", |(name, _)| name.as_str());
        print::error(format_args!("{name}: the format is not recognised; name it with --from"));
        return BAD_CONFIG;
    };
    let values = match values(args) {
        Ok(values) => values,
        Err(why) => {
            print::error(why);
            return BAD_CONFIG;
        }
    };
    for (_, text) in &mut sources {
        *text = values.fill(format, text);
    }
    let files = gateway_import::FilledFiles { files: &Disk, values: &values, format };
    match gateway_import::import(format, &sources, &files, gateway_import::Options { open: args.open }) {
        Ok(mut import) => {
            import.name_environment();
            tell(args, &import, registry)
        }
        Err(error) => {
            print::error(error);
            BAD_CONFIG
        }
    }
}

/// What the main file of a configuration is called.
#[cfg(feature = "import")]
const MAIN_FILES: [&str; 8] = [
    "nginx.conf",
    "haproxy.cfg",
    "Caddyfile",
    "kong.yml",
    "kong.yaml",
    "envoy.yaml",
    "traefik.yml",
    "docker-compose.yml",
];

/// The file itself, or the main file in a folder.
#[cfg(feature = "import")]
fn main_file(path: &std::path::Path) -> Option<PathBuf> {
    if !path.is_dir() {
        return Some(path.to_owned());
    }
    MAIN_FILES.iter().map(|name| path.join(name)).find(|file| file.is_file())
}

/// The values for placeholders.
#[cfg(feature = "import")]
fn values(args: &ImportArgs) -> Result<gateway_import::Values, String> {
    let mut values = gateway_import::Values::default();
    values.keep_missing(args.keep_env);
    if let Some(path) = &args.env_file {
        let name = path.display();
        let text = gateway_import::Files::read(&gateway_import::Disk, path)
            .map_err(|error| format!("{name}: {error}"))?;
        values.read(&text).map_err(|(line, why)| format!("{name}:{line}: {why}"))?;
    }
    for pair in &args.set {
        // The value may be a secret.
        values.set(pair).map_err(|why| format!("--set: {why}"))?;
    }
    Ok(values)
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
fn tell(args: &ImportArgs, import: &gateway_import::Import, registry: &Registry) -> u8 {
    match serde_saphyr::to_string(&import.document()) {
        _ if args.compare.is_some() => {}
        Ok(text) => print::raw(format_args!("{}\n", text.trim_end())),
        Err(error) => {
            print::error(error);
            return FAILED;
        }
    }
    let report = &import.report;
    match args.output {
        OutputFormat::Text => tell_people(args, import),
        OutputFormat::Json => print::error(format_args!("{:#}", import.report_json())),
    }
    if let Some(path) = &args.report
        && let Err(error) = std::fs::write(path, format!("{:#}\n", import.report_json()))
    {
        print::error(format_args!("{}: {error}", path.display()));
        return FAILED;
    }
    if args.strict && report.has_loss() {
        return BAD_CONFIG;
    }
    match &args.compare {
        Some(log) => compare::compare(import, log, args.host.as_deref(), registry),
        None => 0,
    }
}

#[cfg(feature = "import")]
fn tell_people(args: &ImportArgs, import: &gateway_import::Import) {
    let report = &import.report;
    let count = import.proxies.len();
    import.closed_summary().iter().for_each(print::error);
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
}
