//! Header blocks of RFC 7541, Appendix C, and hostile ones.

use super::super::Value;
use super::*;

/// The octets written in `text`, two digits each.
fn octets(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |c: u8| u8::try_from((c as char).to_digit(16).unwrap()).unwrap();
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn read(decoder: &mut Decoder, block: &str) -> Result<Vec<String>, HpackError> {
    let mut fields = Vec::new();
    decoder.decode(&octets(block), usize::MAX, |field| {
        let value = match &field.value {
            Value::Text(text) => std::str::from_utf8(text).unwrap(),
            Value::Header(value) => value.to_str().unwrap(),
            Value::Bad => "(bad)",
        };
        fields.push(match &field.name {
            Name::Header(name) => format!("{name}: {value}"),
            other => format!("{other:?}: {value}"),
        });
    })?;
    Ok(fields)
}

#[track_caller]
fn dialogue(steps: &[(&str, &[&str], usize)], max: usize) {
    let mut decoder = Decoder { max, ..Decoder::default() };
    for (block, fields, size) in steps {
        assert_eq!(read(&mut decoder, block).unwrap(), *fields);
        assert_eq!(decoder.size, *size);
        assert_eq!(decoder.table.iter().map(|field| field.size).sum::<usize>(), *size);
    }
}

/// §C.2
#[test]
fn literals() {
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    dialogue(&[(custom, &["custom-key: custom-header"], 55)], 4096);
    dialogue(&[("040c 2f73 616d 706c 652f 7061 7468", &["Path: /sample/path"], 0)], 4096);
    dialogue(&[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 0)], 4096);
    dialogue(&[("82", &["Method: GET"], 0)], 4096);
}

const REQUESTS: [&[&str]; 3] = [
    &["Method: GET", "Scheme: http", "Path: /", "Authority: www.example.com"],
    &["Method: GET", "Scheme: http", "Path: /", "Authority: www.example.com", "cache-control: no-cache"],
    &[
        "Method: GET",
        "Scheme: https",
        "Path: /index.html",
        "Authority: www.example.com",
        "custom-key: custom-value",
    ],
];

/// §C.3
#[test]
fn requests() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    dialogue(
        &[(blocks[0], REQUESTS[0], 57), (blocks[1], REQUESTS[1], 110), (blocks[2], REQUESTS[2], 164)],
        4096,
    );
}

/// §C.4
#[test]
fn requests_with_huffman() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    dialogue(
        &[(blocks[0], REQUESTS[0], 57), (blocks[1], REQUESTS[1], 110), (blocks[2], REQUESTS[2], 164)],
        4096,
    );
}

const RESPONSES: [&[&str]; 3] = [
    &[
        "Status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        "Status: 307",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ],
    &[
        "Status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ],
];

/// §C.5
#[test]
fn responses_with_eviction() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
         3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
         7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
         6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    dialogue(
        &[(blocks[0], RESPONSES[0], 222), (blocks[1], RESPONSES[1], 222), (blocks[2], RESPONSES[2], 215)],
        256,
    );
}

/// §C.6
#[test]
fn responses_with_huffman_and_eviction() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
         1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
         e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    dialogue(
        &[(blocks[0], RESPONSES[0], 222), (blocks[1], RESPONSES[1], 222), (blocks[2], RESPONSES[2], 215)],
        256,
    );
}

#[test]
fn broken_blocks() {
    let cases = [
        ("80", HpackError::Index),
        ("be", HpackError::Index),
        ("7f00", HpackError::Index),
        ("ff80808080800f", HpackError::Integer),
        ("ff", HpackError::Truncated),
        ("40", HpackError::Truncated),
        ("4001", HpackError::Truncated),
        ("400178", HpackError::Truncated),
        ("40017805", HpackError::Truncated),
        ("0081ff00", HpackError::Huffman),
        ("3fe21f", HpackError::TableSize),
        ("8220", HpackError::TableSize),
    ];
    for (block, error) in cases {
        assert_eq!(read(&mut Decoder::default(), block), Err(error), "{block}");
    }
}

#[test]
fn bad_names_and_values_keep_the_tables_in_step() {
    let mut decoder = Decoder::default();
    // `X` is no lower-case name; it is kept, and so is the field that takes its name with another value.
    assert_eq!(read(&mut decoder, "400158016140016203 0d0a0d").unwrap(), ["Bad(1): a", "b: (bad)"]);
    assert_eq!(read(&mut decoder, "7f000163 c0 bf be").unwrap().len(), 4);
    assert_eq!(decoder.size, 34 + 36 + 34);
    for padded in ["0001780220 61", "000178026109"] {
        assert_eq!(read(&mut decoder, padded).unwrap(), ["x: (bad)"]);
    }
}

/// One octet names a large entry: what is beyond the limit is not even looked at, yet the table goes on.
#[test]
fn a_bomb_of_indexed_fields() {
    let mut decoder = Decoder::default();
    let mut block = vec![0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
    block.extend_from_slice(&[b'y'; 4000]);
    block.extend_from_slice(&[0xbe; 10_000]);
    let mut taken = 0;
    let listed = decoder.decode(&block.into(), 16_384, |field| taken += field.size).unwrap();
    assert_eq!(listed, Listed::BeyondLimit);
    assert!(taken <= 16_384);
    assert_eq!(read(&mut decoder, "be").unwrap().len(), 1);
}
