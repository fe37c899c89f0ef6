//! What the program knows about itself: schema, plugins, settings, version, completions.

mod markdown;

use clap::{Args, CommandFactory, ValueEnum};
use gateway_core::config::file::File;
use gateway_core::config::nearest::nearest;
use gateway_core::config::resolve::feature_of_plugin;
use gateway_core::config::settings::SETTINGS;
use gateway_core::plugin::{Entry, Registry};
use serde_json::{Value, json};

use crate::admin::catalogue::document;
use crate::source::file;
use crate::variables::VARIABLES;

use super::{OutputFormat, print};

/// Arguments of `plugins`.
#[derive(Debug, Args)]
pub(super) struct PluginsArgs {
    /// This plugin, with its settings and an example
    name: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: ReferenceFormat,
}

/// How a reference is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReferenceFormat {
    /// For people
    Text,
    /// For machines
    Json,
    /// As a page
    Markdown,
}

/// Arguments of `settings`.
#[derive(Debug, Args)]
pub(super) struct SettingsArgs {
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Arguments of `version`.
#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
    /// The same as --output json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
    /// Also print features, commit and TLS provider
    #[arg(long)]
    verbose: bool,
}

/// The features of this program that can be left out when it is built.
const FEATURES: &[(&str, bool)] = &[
    ("console", cfg!(feature = "console")),
    ("fleet", cfg!(feature = "fleet")),
    ("import", cfg!(feature = "import")),
    ("jemalloc", cfg!(feature = "jemalloc")),
    ("kafka", cfg!(feature = "kafka")),
    ("ldap", cfg!(feature = "ldap")),
    ("script", cfg!(feature = "script")),
    ("top", cfg!(feature = "top")),
    ("wasm", cfg!(feature = "wasm")),
];

/// The JSON Schema of configurations.
pub(super) fn schema() -> u8 {
    print::line(pretty(File::schema().as_value()));
    0
}

/// The plugins in execution order, or one with its settings.
pub(super) fn plugins(args: &PluginsArgs, registry: &Registry) -> u8 {
    let wanted = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    let entries: Vec<_> = registry.entries().iter().filter(|entry| wanted(entry.name)).collect();
    if let (true, Some(name)) = (entries.is_empty(), &args.name) {
        match feature_of_plugin(name) {
            Some(feature) => print::error(format_args!(
                "The plugin `{name}` is not in this build; build it with the feature `{feature}`."
            )),
            None => {
                let near = nearest(name, registry.entries().iter().map(|entry| entry.name));
                let near = near.map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
                print::error(format_args!(
                    "There is no plugin `{name}`{near}; `ferrum-edge plugins` lists them."
                ));
            }
        }
        return super::MISUSED;
    }
    if args.output == ReferenceFormat::Markdown {
        print::raw(format_args!("{}", markdown::plugins(&entries, registry)));
        return 0;
    }
    if args.output == ReferenceFormat::Json {
        let list = entries.into_iter().map(document).collect();
        print::line(pretty(&Value::Array(list)));
        return 0;
    }
    if args.name.is_none() {
        list(&entries);
        return 0;
    }
    for entry in entries {
        print::line(format_args!("{}\n  {}", entry.name, entry.summary));
        let schema = (entry.schema)();
        options(schema.as_value(), schema.as_value(), 4);
        for (name, about) in entry.actions {
            print::line(format_args!("    action {name}: {about}"));
        }
        if !entry.example.is_empty() {
            if let Some(protocols) = protocols(entry, registry) {
                print::line(format_args!("\n  Runs for {protocols}."));
            }
            print::line(format_args!("\n  Example:\n"));
            entry.example.lines().for_each(|line| print::line(format_args!("    {line}")));
        }
    }
    0
}

/// The names of plugins with what each does.
fn list(entries: &[&Entry]) {
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or_default();
    for entry in entries {
        print::line(format_args!("{:width$}  {}", entry.name, entry.summary));
    }
    print::line(
        "\nThey run in this order. `ferrum-edge plugins NAME` shows the settings of one, with an example.",
    );
}

/// The traffic that the plugin of an example runs for.
fn protocols(entry: &Entry, registry: &Registry) -> Option<String> {
    let model = file::parse(entry.example, "example", registry).ok()?;
    let config = model.plugin_configs.iter().find(|config| *config.plugin_name == *entry.name)?;
    let built = config.built.as_ref()?;
    Some(built.capabilities().protocols(built.hooks()).join("; "))
}

/// How deep options are within options, at most.
const MAX_INDENT: usize = 12;

/// The options of an object, each with those within it.
fn options(whole: &Value, object: &Value, indent: usize) {
    for (name, option) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        print::line(format_args!("{:indent$}{name}: {}", "", sentence(option)));
        if indent < MAX_INDENT
            && let Some(within) = within(whole, option)
        {
            options(whole, within, indent + 4);
        }
    }
}

/// The object that an option is, or a list of which it is.
fn within<'a>(whole: &'a Value, option: &'a Value) -> Option<&'a Value> {
    let name = |it: &'a Value| it.get("$ref")?.as_str()?.strip_prefix("#/$defs/");
    let alternatives = option.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let all = [Some(option), option.get("items")].into_iter().flatten().chain(alternatives);
    let named = all.filter_map(name).filter_map(|name| whole.get("$defs")?.get(name));
    named.into_iter().find(|it| it.get("properties").is_some())
}

/// An option's documentation on one line.
fn sentence(option: &Value) -> String {
    let text = option.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The environment variables.
pub(super) fn settings(args: &SettingsArgs) -> u8 {
    if matches!(args.output, OutputFormat::Json) {
        let named = |name: &str, key: Option<&str>, doc: &str| json!({"name": name, "key": key, "doc": doc});
        let keyed = SETTINGS.iter().map(|it| named(it.name, Some(&format!("gateway.{}", it.key)), it.doc));
        let others = VARIABLES.iter().map(|it| (it.name, it.doc)).chain(COMMAND_LINE.iter().copied());
        let list = keyed.chain(others.map(|(name, doc)| named(name, None, doc)));
        print::line(pretty(&list.collect()));
        return 0;
    }
    for setting in SETTINGS {
        print::line(format_args!("{} (gateway.{})\n  {}", setting.name, setting.key, setting.doc));
    }
    for variable in VARIABLES {
        let used = if variable.doc.starts_with("For commands") { "commands" } else { "database mode" };
        print::line(format_args!("{} ({used})\n  {}", variable.name, variable.doc));
    }
    for (name, doc) in COMMAND_LINE {
        print::line(format_args!("{name} (command line)\n  {doc}"));
    }
    print::line(
        "A name with _FILE behind it, such as FERRUM_ADMIN_TOKEN_FILE, names a file that has the value; those of the command line \
         have no such form. Durations and sizes may have units: 30s, 1m30s, 10MiB. Flags take \
         precedence over the environment, and the environment over the configuration file.",
    );
    0
}

/// Variables that stand for flags.
const COMMAND_LINE: &[(&str, &str)] = &[
    (
        "FERRUM_SPEC",
        "The configuration file, as --spec. Default ./ferrum.yaml, ./ferrum.json, /etc/ferrum-edge/ferrum-edge.yaml, /etc/ferrum/ferrum.yaml.",
    ),
    ("FERRUM_FILE_CONFIG_PATH", "Older name of FERRUM_SPEC."),
    ("FERRUM_PID_FILE", "File with the process ID, as --pid-file. Default none."),
    (
        "FERRUM_LOG_LEVEL",
        "error, warn, info, debug or trace, instead of -v; or levels by module, such as `warn,gateway_core=debug`; other modules then have info. Default RUST_LOG, else info: listeners, configuration changes and failures.",
    ),
];

/// The version.
pub(super) fn version(args: &VersionArgs) -> u8 {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let features: Vec<_> = FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
    // `ferrum-edge/build-dist` sets it; a build from a folder may be of anything.
    let commit = option_env!("FERRUM_EDGE_COMMIT").unwrap_or("unknown");
    let build = if cfg!(debug_assertions) { "without optimisation" } else { "optimised" };
    let target = format_args!("{}-{}", std::env::consts::ARCH, std::env::consts::OS).to_string();
    let facts = [
        ("commit", commit),
        ("features", &features.join(" ")),
        ("tls", "rustls with aws-lc-rs"),
        ("target", &target),
        ("build", build),
    ];
    if args.json || matches!(args.output, OutputFormat::Json) {
        let mut document = json!({ "name": name, "version": version });
        for (name, fact) in facts.iter().filter(|_| args.verbose) {
            document[*name] = json!(fact);
        }
        print::line(document);
        return 0;
    }
    print::line(format_args!("{name} {version}"));
    for (name, fact) in facts.iter().filter(|_| args.verbose) {
        print::line(format_args!("{name}: {fact}"));
    }
    0
}

/// A shell's completion script.
pub(super) fn completions<C: CommandFactory>(shell: clap_complete::Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut C::command(), env!("CARGO_PKG_NAME"), &mut script);
    print::raw(format_args!("{}", String::from_utf8_lossy(&script)));
    0
}

fn pretty(value: &Value) -> String {
    // A value of this kind can always be written.
    serde_json::to_string_pretty(value).unwrap_or_default()
}
