//! The transformations of the rule language (`t:lowercase` and so on).
//!
//! Each takes bytes and writes bytes, in time proportional to their number, and never writes more than
//! six times what it reads. Which bytes make a difference at all is known beforehand ([`Transform::triggers`]), so that
//! most values are never touched.

mod command;
mod comments;
mod css;
mod encodings;
mod html;
mod javascript;
mod path;
mod simple;
mod url;
mod utf8;

use crate::bytes::ByteSet;

pub(crate) use url::{decode_form, is_valid as url_is_valid};
pub(crate) use utf8::is_valid as utf8_is_valid;

/// How many times larger than its input an output can be.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) const GROWTH: usize = 6;

/// Declares [`Transform`]: variant, name, function.
macro_rules! transforms {
    ($($variant:ident = $name:literal, $function:path;)+) => {
        /// A transformation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Transform {
            $(#[doc = $name] $variant,)+
        }

        impl Transform {
            /// Every transformation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name, as rules write it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Appends what becomes of `input`.
            pub fn apply(self, input: &[u8], out: &mut Vec<u8>) {
                match self { $(Self::$variant => $function(input, out),)+ }
            }
        }
    };
}

transforms! {
    Lowercase = "lowercase", simple::lowercase;
    Uppercase = "uppercase", simple::uppercase;
    UrlDecode = "urlDecode", url::decode;
    UrlDecodeUni = "urlDecodeUni", url::decode_uni;
    UrlEncode = "urlEncode", url::encode;
    HtmlEntityDecode = "htmlEntityDecode", html::decode;
    JsDecode = "jsDecode", javascript::decode;
    CssDecode = "cssDecode", css::decode;
    Utf8ToUnicode = "utf8toUnicode", utf8::to_unicode;
    RemoveNulls = "removeNulls", simple::remove_nulls;
    ReplaceNulls = "replaceNulls", simple::replace_nulls;
    RemoveWhitespace = "removeWhitespace", simple::remove_whitespace;
    CompressWhitespace = "compressWhitespace", simple::compress_whitespace;
    Trim = "trim", simple::trim;
    TrimLeft = "trimLeft", simple::trim_left;
    TrimRight = "trimRight", simple::trim_right;
    RemoveComments = "removeComments", comments::remove;
    ReplaceComments = "replaceComments", comments::replace;
    RemoveCommentsChar = "removeCommentsChar", comments::remove_chars;
    NormalizePath = "normalizePath", path::normalize;
    NormalizePathWin = "normalizePathWin", path::normalize_windows;
    CmdLine = "cmdLine", command::normalize;
    EscapeSeqDecode = "escapeSeqDecode", encodings::escape_sequences;
    Base64Decode = "base64Decode", encodings::base64;
    Base64DecodeExt = "base64DecodeExt", encodings::base64_lax;
    Base64Encode = "base64Encode", encodings::base64_encode;
    HexDecode = "hexDecode", encodings::hex_decode;
    HexEncode = "hexEncode", encodings::hex_encode;
    SqlHexDecode = "sqlHexDecode", encodings::sql_hex_decode;
    Length = "length", simple::length;
    Md5 = "md5", encodings::md5;
    Sha1 = "sha1", encodings::sha1;
}

impl Transform {
    /// The transformation of this name, in whatever case.
    pub fn named(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("normalisePath") {
            "normalizePath"
        } else if name.eq_ignore_ascii_case("normalisePathWin") {
            "normalizePathWin"
        } else {
            name
        };
        Self::ALL.iter().find(|it| it.name().eq_ignore_ascii_case(name)).copied()
    }

    /// A value without any of these bytes stays as it is. `None`: any value may change.
    pub(crate) fn triggers(self) -> Option<ByteSet> {
        const SPACES: &[u8] = b" \t\n\x0b\x0c\r\xa0";
        Some(match self {
            Self::Lowercase => ByteSet::range(b'A', b'Z'),
            Self::Uppercase => ByteSet::range(b'a', b'z'),
            Self::UrlDecode | Self::UrlDecodeUni => ByteSet::of(b"%+"),
            Self::HtmlEntityDecode => ByteSet::of(b"&"),
            Self::JsDecode | Self::CssDecode | Self::EscapeSeqDecode => ByteSet::of(b"\\"),
            Self::Utf8ToUnicode => ByteSet::range(0x80, 0xff),
            Self::RemoveNulls | Self::ReplaceNulls => ByteSet::of(b"\0"),
            Self::RemoveWhitespace | Self::Trim | Self::TrimLeft | Self::TrimRight => ByteSet::of(SPACES),
            Self::CompressWhitespace => ByteSet::of(SPACES),
            Self::RemoveComments | Self::RemoveCommentsChar => ByteSet::of(b"/*-#<>"),
            Self::ReplaceComments => ByteSet::of(b"/"),
            Self::NormalizePath => ByteSet::of(b"/."),
            Self::NormalizePathWin => ByteSet::of(b"/.\\"),
            Self::CmdLine => ByteSet::of(b"\\\"'^,;/( \t\n\r\x0b\x0c").with(ByteSet::range(b'A', b'Z')),
            Self::SqlHexDecode => ByteSet::of(b"xX"),
            Self::UrlEncode
            | Self::Base64Decode
            | Self::Base64DecodeExt
            | Self::Base64Encode
            | Self::HexDecode
            | Self::HexEncode
            | Self::Length
            | Self::Md5
            | Self::Sha1 => return None,
        })
    }

    /// Percent-decodes a path, in which `+` is a plus.
    pub(crate) fn apply_path(self, path: &[u8], out: &mut Vec<u8>) {
        for (n, part) in path.split(|byte| *byte == b'+').enumerate() {
            if n > 0 {
                out.push(b'+');
            }
            self.apply(part, out);
        }
    }

    /// Whether the literals found in a value, without regard to case, are the same before and after.
    pub(crate) fn keeps_letters(self) -> bool {
        matches!(self, Self::Lowercase | Self::Uppercase)
    }
}

#[cfg(test)]
mod tests;
