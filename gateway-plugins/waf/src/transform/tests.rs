//! What transformations make of values, and that they keep their promises.

use super::*;

fn applied(transform: Transform, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    transform.apply(input, &mut out);
    out
}

#[track_caller]
fn becomes(transform: Transform, pairs: &[(&str, &str)]) {
    for (input, output) in pairs {
        let got = applied(transform, input.as_bytes());
        assert_eq!(String::from_utf8_lossy(&got), *output, "{} of {input:?}", transform.name());
    }
}

#[test]
fn percent_encoding() {
    becomes(
        Transform::UrlDecodeUni,
        &[("%41+%zz%", "A %zz%"), ("%u003cscript%uFF1E", "<script>"), ("%%34%31", "%41"), ("%u00", "%u00")],
    );
    becomes(Transform::UrlDecode, &[("%u0041%42", "%u0041B")]);
    becomes(Transform::UrlEncode, &[("a b/*", "a+b%2f*")]);
}

#[test]
fn scripts_styles_and_markup() {
    becomes(
        Transform::JsDecode,
        &[("\\x61\\u0062\\143\\n\\q\\", "abc\nq\\"), ("\\u{3c}\\uff1c", "<<"), ("\\400", " 0")],
    );
    becomes(
        Transform::CssDecode,
        &[("\\6a\\61 vascript", "javascript"), ("a\\\nb\\", "ab"), ("\\00000a", "\n")],
    );
    becomes(
        Transform::HtmlEntityDecode,
        &[
            ("&lt;&#60;&#x3c&#x00003C;", "<<<<"),
            ("java&Tab;script&colon;", "java\tscript:"),
            ("&nope;&;&#;&", "&nope;&;&#;&"),
            ("&#8364;", "€"),
        ],
    );
    becomes(Transform::EscapeSeqDecode, &[("\\x41\\101\\?\\q", "AA?\\q")]);
}

#[test]
fn comments_and_white_space() {
    becomes(Transform::ReplaceComments, &[("un/**/ion", "un ion"), ("a/*b", "a "), ("a*/b", "a*/b")]);
    becomes(Transform::RemoveComments, &[("a/*b*/c<!-- d -->e--f", "ace"), ("a#b", "a")]);
    becomes(Transform::RemoveCommentsChar, &[("/*!union*/<!--a-->#--", "!uniona")]);
    becomes(Transform::CompressWhitespace, &[("a \t\n b", "a b")]);
    becomes(Transform::RemoveWhitespace, &[(" a\x0bb ", "ab")]);
    becomes(Transform::CmdLine, &[("C^A\\t   /etc, ;\"x\" (y", "cat/etc x(y")]);
    becomes(Transform::Trim, &[("  a b ", "a b"), ("  ", "")]);
}

#[test]
fn paths() {
    becomes(
        Transform::NormalizePath,
        &[
            ("/a/./b//../c", "/a/c"),
            ("../../x", "../../x"),
            ("/../../etc/", "/etc/"),
            ("a/..", ""),
            ("/a/b/..", "/a/"),
            ("a.b", "a.b"),
        ],
    );
    becomes(Transform::NormalizePathWin, &[("..\\..\\boot.ini", "../../boot.ini")]);
}

#[test]
fn encodings() {
    becomes(
        Transform::Base64Decode,
        &[("YWxlcnQoMSk=", "alert(1)"), ("YQ", "a"), ("YQ==!!!", "a"), ("", "")],
    );
    becomes(Transform::Base64DecodeExt, &[("P.H.N\nj", "<sc")]);
    becomes(Transform::Base64Encode, &[("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")]);
    becomes(Transform::SqlHexDecode, &[("x0x414243,", "xABC,"), ("0xg", "0xg")]);
    becomes(Transform::HexEncode, &[("\x01a", "0161")]);
    becomes(Transform::HexDecode, &[("6162", "ab")]);
    becomes(Transform::Length, &[("abc", "3"), ("", "0")]);
    assert_eq!(applied(Transform::Sha1, b"abc")[..4], [0xa9, 0x99, 0x3e, 0x36]);
    assert_eq!(applied(Transform::Md5, b"abc")[..4], [0x90, 0x01, 0x50, 0x98]);
}

#[test]
fn overlong_forms_are_seen_as_what_they_stand_for() {
    assert_eq!(applied(Transform::Utf8ToUnicode, b"\xc0\xbc\xe0\x80\xafa\xff"), b"%u003c%u002fa\xff");
    becomes(Transform::Utf8ToUnicode, &[("＜", "%uff1c")]);
}

/// Whatever comes: nothing panics, nothing grows without bound, and a value without triggers stays as it is.
#[test]
fn every_transformation_keeps_its_promises() {
    let mut inputs: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte; 8 << 10]).collect();
    for seed in 0..400u32 {
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        let alphabet = b"%u\\x&#;/*-<>!+ \0\xc0\xbc'\"^,(.aZ09fF\n\xa0{}";
        let length = next() as usize % 40;
        inputs.push((0..length).map(|_| alphabet[next() as usize % alphabet.len()]).collect());
    }
    for transform in Transform::ALL {
        for input in &inputs {
            let out = applied(*transform, input);
            assert!(out.len() <= input.len() * GROWTH + 32, "{} grows {input:?}", transform.name());
            if transform.triggers().is_some_and(|it| !it.meets(&ByteSet::of(input))) {
                assert_eq!(&out, input, "{} changes {input:?}", transform.name());
            }
        }
    }
}

#[test]
fn names_are_found_in_any_case() {
    assert_eq!(Transform::named("URLDECODEUNI"), Some(Transform::UrlDecodeUni));
    assert_eq!(Transform::named("normalisePath"), Some(Transform::NormalizePath));
    assert_eq!(Transform::named("parityEven7bit"), None);
}
