//! Whole requests through our own rules, and rule files through the compiler.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use crate::pack::{Profile, own_rules};
use crate::{Buffers, Limits, RequestHead, RuleFile, Ruleset, Sources, Transaction, compile};

/// The strictest of our own rules.
static RULES: LazyLock<Arc<Ruleset>> = LazyLock::new(|| match compile(&own_rules(Profile::Aggressive)) {
    Ok((ruleset, _)) => Arc::new(ruleset),
    Err(problems) => panic!("{problems:?}"),
});

const TYPES: [&[u8]; 8] = [
    b"application/x-www-form-urlencoded",
    b"application/json",
    b"text/xml",
    b"multipart/form-data; boundary=B",
    b"text/plain",
    b"image/png",
    b"application/json; charset=utf-16",
    b"",
];

/// Bytes that rules may read here for each byte that comes; a value is read once by each rule that could match it.
const STEPS: u64 = 4_000;

thread_local! {
    static USED: RefCell<Option<Buffers>> = const { RefCell::new(None) };
}

/// The first byte chooses the type of the body, the first line is the target.
pub(super) fn request(data: &[u8]) {
    let (first, data) = data.split_first().unwrap_or((&0, &[]));
    let kind = TYPES[usize::from(*first) % TYPES.len()];
    let at = memchr::memchr(b'\n', data).unwrap_or(data.len());
    let (target, body) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let fresh = inspect(Buffers::without_cache(), kind, target, body);
    let used = USED.with(|used| used.borrow_mut().take()).unwrap_or_default();
    let again = inspect(used, kind, target, body);
    // What is kept of earlier requests makes no difference.
    assert_eq!(fresh.report(), again.report());
    let bytes = data.len() as u64 + 1_000;
    assert!(fresh.bytes_read() <= bytes * STEPS, "{} bytes read of {bytes}", fresh.bytes_read());
    USED.with(|used| *used.borrow_mut() = Some(again.finish()));
}

fn inspect(buffers: Buffers, kind: &[u8], target: &[u8], body: &[u8]) -> Transaction {
    let mut headers: Vec<(&[u8], &[u8])> =
        vec![(b"host", b"a.example"), (b"user-agent", b"x"), (b"cookie", target)];
    if !kind.is_empty() {
        headers.push((b"content-type", kind));
    }
    let mut transaction = Transaction::new(RULES.clone(), Limits::default(), buffers);
    transaction.only_detect();
    transaction.request_head(&RequestHead {
        method: b"POST",
        target,
        version: "HTTP/1.1",
        headers: &headers,
        client: [192, 0, 2, 1].into(),
        unique_id: b"u",
    });
    transaction.request_body(body);
    transaction
}

/// A rule file is compiled or refused with a place; what is compiled can be run.
pub(super) fn rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let file = RuleFile { name: "fuzz.conf".into(), text, setup: false };
    match compile(&Sources { files: vec![file], ..Sources::default() }) {
        Ok((ruleset, _)) => {
            let mut transaction = Transaction::new(Arc::new(ruleset), Limits::default(), Buffers::default());
            transaction.request_head(&RequestHead {
                method: b"GET",
                target: b"/a/b.php?x=1&y=%3Cscript%3E",
                version: "HTTP/1.1",
                headers: &[(b"host", b"a.example"), (b"cookie", b"a=b")],
                client: [192, 0, 2, 1].into(),
                unique_id: b"u",
            });
            transaction.request_body(b"");
        }
        Err(problems) => assert!(!problems.is_empty(), "refused without a reason"),
    }
}
