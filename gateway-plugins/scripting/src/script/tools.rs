//! Functions that have nothing to do with an exchange: encodings, digests, time, chance.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gateway_plugin_common::hex::hex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rhai::{Blob, Dynamic, FuncRegistration, Module, NativeCallContext, Shared};
use sha2::{Digest as _, Sha256};

use super::bounded;
use super::convert;
use super::failure::{ScriptResult, error};

/// What `url_encode` leaves as it is: RFC 3986's unreserved characters.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// SHA-256's block.
const BLOCK: usize = 64;

/// The same for every script.
pub(super) static TOOLS: LazyLock<Shared<Module>> = LazyLock::new(|| {
    let mut module = Module::new();
    macro_rules! tool {
        ($name:literal, $tool:expr) => {
            FuncRegistration::new($name).in_global_namespace().set_into_module(&mut module, $tool);
        };
    }
    tool!("json_decode", |text: &str| -> ScriptResult<Dynamic> {
        match serde_json::from_str(text) {
            Ok(value) => Ok(convert::from_json(&value)),
            Err(why) => error(format_args!("this is not JSON: {why}")),
        }
    });
    tool!("json_encode", |ctx: NativeCallContext<'_>, value: Dynamic| -> ScriptResult<String> {
        let value = value.flatten();
        bounded::check(ctx.engine(), std::iter::once(&value))?;
        convert::to_json(&value, 0).map(|value| value.to_string())
    });
    tool!("base64_encode", |value: Dynamic| -> ScriptResult<String> {
        Ok(BASE64_STANDARD.encode(convert::to_bytes(value)?))
    });
    tool!("base64_decode", |text: &str| -> ScriptResult<Blob> {
        BASE64_STANDARD.decode(text).map_err(|why| format!("this is not base64: {why}").into())
    });
    tool!("url_encode", |text: &str| -> String { utf8_percent_encode(text, UNRESERVED).to_string() });
    tool!("url_decode", |text: &str| -> ScriptResult<String> {
        match percent_decode_str(text).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => error("this is not UTF-8 when it is decoded"),
        }
    });
    tool!("sha256", |value: Dynamic| -> ScriptResult<String> {
        Ok(hex(&Sha256::digest(convert::to_bytes(value)?)))
    });
    tool!("hmac_sha256", |key: Dynamic, value: Dynamic| -> ScriptResult<String> {
        Ok(hex(&hmac(&convert::to_bytes(key)?, &convert::to_bytes(value)?)))
    });
    tool!("equal", |a: Dynamic, b: Dynamic| -> ScriptResult<bool> {
        // Digests take the same time however much is equal.
        let digest = |value| convert::to_bytes(value).map(Sha256::digest);
        let (a, b) = (digest(a)?, digest(b)?);
        Ok(a.iter().zip(b.iter()).fold(0, |all, (a, b)| all | (a ^ b)) == 0)
    });
    tool!("random", |limit: i64| -> ScriptResult<i64> {
        if limit < 1 {
            error("the limit is at least 1")
        } else {
            Ok(fastrand::i64(..limit).rem_euclid(limit))
        }
    });
    tool!("now_ms", || -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    });
    module.build_index();
    Shared::new(module)
});

/// RFC 2104 with SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner =
        Sha256::default().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::default().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_gives_what_rfc_4231_says() {
        let short = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
