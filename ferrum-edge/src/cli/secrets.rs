//! Secrets for a configuration: `hash-password`, `generate-key`.

use std::io::{BufRead as _, IsTerminal as _, stdin};

use clap::{Args, ValueEnum};

use super::{FAILED, print};
use crate::access::password_hash::hashed;
use crate::store::seal::hex;

/// Bytes of a password that are read.
const MAX_PASSWORD_BYTES: u64 = 1024;

/// Arguments of `hash-password`.
#[derive(Debug, Args)]
pub(super) struct HashPasswordArgs {}

/// Arguments of `generate-key`.
#[derive(Debug, Args)]
pub(super) struct GenerateKeyArgs {
    /// Random bytes of the key, 16 to 64
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(16..=64))]
    bytes: u8,
    /// How the key is printed
    #[arg(long, value_enum, default_value = "base64url")]
    format: KeyFormat,
}

/// How a key is printed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum KeyFormat {
    /// For keys of consumers, secrets of tokens and cookies
    Base64url,
    /// For FERRUM_ENCRYPTION_KEYS
    Hex,
}

/// Prints the hash of the password on standard input. A password in an argument would be seen by everybody on the machine.
pub(super) fn hash_password(_args: &HashPasswordArgs) -> u8 {
    if stdin().is_terminal() {
        print::notice(
            "Type the password, which is shown, and Enter; or send it: `ferrum-edge hash-password < FILE`",
        );
    }
    let mut input = stdin().lock();
    let mut line = String::new();
    let read = std::io::Read::take(&mut input, MAX_PASSWORD_BYTES + 2).read_line(&mut line);
    let is_typed = stdin().is_terminal();
    let password = line.strip_suffix('\n').unwrap_or(&line);
    let password = password.strip_suffix('\r').unwrap_or(password);
    let problem = match read {
        Err(error) => Some(format!("the password cannot be read: {error}")),
        Ok(_) if password.is_empty() => Some("there is no password on standard input".to_owned()),
        Ok(_) if password.len() as u64 > MAX_PASSWORD_BYTES => {
            Some(format!("the password has more than {MAX_PASSWORD_BYTES} bytes"))
        }
        Ok(_) if !is_typed && input.fill_buf().is_ok_and(|rest| !rest.is_empty()) => {
            Some("there is more than one line on standard input; send the password alone".to_owned())
        }
        Ok(_) => None,
    };
    if let Some(problem) = problem {
        print::error(problem);
        return FAILED;
    }
    let Some(hash) = hashed(password) else {
        print::error("the system has no random bits");
        return FAILED;
    };
    print::line(hash);
    0
}

/// Prints a random key.
pub(super) fn generate_key(args: &GenerateKeyArgs) -> u8 {
    let mut key = vec![0; usize::from(args.bytes)];
    if aws_lc_rs::rand::fill(&mut key).is_err() {
        print::error("the system has no random bits");
        return FAILED;
    }
    match args.format {
        KeyFormat::Base64url => {
            print::line(base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, &key));
        }
        KeyFormat::Hex => print::line(hex(&key)),
    }
    0
}
