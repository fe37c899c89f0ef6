//! `import`: another gateway's configuration as one of ours.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gateway_core::config::file::{self, Origin};

use super::{BAD_CONFIG, FAILED, print};
use crate::import::{Translation, kong, nginx};
use crate::source::file::read_text;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The other configuration: decK's YAML or JSON, or nginx.conf (`nginx -T` prints one with everything it includes)
    file: PathBuf,
    /// Whose it is [default: told by the name: *.conf is nginx]
    #[arg(long, value_enum)]
    from: Option<From>,
    /// Ends with exit code 3 when something could not be translated
    #[arg(long)]
    strict: bool,
    /// Leaves open what would answer 503 because what guards it can't be translated
    #[arg(long)]
    open: bool,
}

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum From {
    /// Kong's declarative format, as decK dumps it
    Kong,
    /// nginx.conf
    Nginx,
}

/// Prints the translation on standard output, what is missing in it on standard error.
pub(super) fn import(args: &ImportArgs) -> u8 {
    let text = match read_text(&args.file) {
        Ok(text) => text,
        Err(error) => {
            print::error(format_args!("{}: {error}", args.file.display()));
            return FAILED;
        }
    };
    let is_conf = args.file.extension().is_some_and(|ending| ending == "conf");
    let from = args.from.unwrap_or(if is_conf { From::Nginx } else { From::Kong });
    let translated = match from {
        From::Nginx => nginx::translate(&text, args.open).map_err(|error| error.to_string()),
        From::Kong => {
            let document =
                file::foreign(&text, &Origin::file(&args.file)).map_err(|problems| problems.to_string());
            document
                .and_then(|document| kong::translate(&document, args.open).map_err(|error| error.to_string()))
        }
    };
    match translated {
        Ok(translation) => tell(args, &translation),
        Err(error) => {
            print::error(format_args!("{}: {error}", args.file.display()));
            BAD_CONFIG
        }
    }
}

fn tell(args: &ImportArgs, translation: &Translation) -> u8 {
    match serde_saphyr::to_string(&translation.document()) {
        Ok(text) => print::raw(format_args!("{}\n", text.trim_end())),
        Err(error) => {
            print::error(error);
            return FAILED;
        }
    }
    for closed in &translation.closed {
        print::error(format_args!("closed (503): {closed}"));
    }
    for missing in &translation.missing {
        print::error(format_args!("not translated: {missing}"));
    }
    let (closed, missing) = (translation.closed.len(), translation.missing.len());
    print::error(format_args!(
        "{} proxies, {closed} closed because of what guards them, {missing} further things not translated",
        translation.proxies.len()
    ));
    if args.strict && closed + missing > 0 { BAD_CONFIG } else { 0 }
}
