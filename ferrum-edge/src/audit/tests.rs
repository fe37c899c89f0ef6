//! The chain, and what filters find in it.

use serde_json::json;

use super::*;

fn draft(actor: &str) -> Draft {
    let who = Who { actor: actor.to_owned(), source: "admin-api", ..Who::default() };
    Draft::new(who, "PUT /v1/proxies/shop", AuditOutcome::Allowed)
}

fn chain(count: usize) -> Vec<ChainLine> {
    let mut tip = Tip::default();
    let mut lines = Vec::new();
    for n in 0..count {
        let line = draft(&format!("actor {}", n % 2)).chained(&tip);
        tip = line.tip();
        lines.push(line);
    }
    lines
}

fn verified(lines: &[ChainLine]) -> Verified {
    let mut verifier = Verifier::default();
    lines.iter().for_each(|line| verifier.add(line));
    verifier.finish()
}

#[test]
fn a_chain_holds_until_somebody_touches_it() {
    let lines = chain(5);
    let whole = verified(&lines);
    assert_eq!((whole.valid, whole.entries, whole.first, whole.last), (true, 5, 1, 5));
    assert_eq!(whole.hash, lines[4].hash);
    // Old entries are pruned from the front, and the rest still holds.
    assert!(verified(&lines[2..]).valid);
    assert!(verified(&[]).valid);
    let broken = |change: fn(&mut Vec<ChainLine>)| {
        let mut lines = chain(5);
        change(&mut lines);
        verified(&lines).broken.map(|broken| broken.seq)
    };
    let changed = |lines: &mut Vec<ChainLine>| lines[2].entry = lines[2].entry.replace("shop", "door");
    assert_eq!(broken(changed), Some(3));
    // With a hash that fits it is the next one that does not.
    let rehashed = |lines: &mut Vec<ChainLine>| {
        lines[2].entry = lines[2].entry.replace("shop", "door");
        lines[2].hash = hash(&lines[2].entry);
    };
    assert_eq!(broken(rehashed), Some(4));
    assert_eq!(broken(|lines| drop(lines.remove(2))), Some(4));
    assert_eq!(broken(|lines| lines.swap(1, 2)), Some(3));
    assert_eq!(broken(|lines| lines[3].seq = 9), Some(9));
    let cut_front = |lines: &mut Vec<ChainLine>| {
        let moved =
            Draft::new(Who::default(), "x", AuditOutcome::Allowed).chained(&Tip { seq: 0, hash: "f".into() });
        lines[0] = moved;
    };
    assert_eq!(broken(cut_front), Some(1));
}

#[test]
fn filters_look_at_what_an_entry_says() {
    let mut draft = draft("ann");
    draft.changes.push(Touched {
        kind: "proxies".to_owned(),
        id: "shop".to_owned(),
        action: "update".to_owned(),
        after: Some(json!({ "name": "bob" })),
        ..Touched::default()
    });
    let line = draft.chained(&Tip::default());
    let text = |text: &str| Some(text.to_owned());
    let all = Query { limit: 10, ..Query::default() };
    for (query, fits) in [
        (all.clone(), true),
        (Query { actor: text("ann"), outcome: text("allowed"), ..all.clone() }, true),
        // The name is in the entry, and it is somebody else's.
        (Query { actor: text("bob"), ..all.clone() }, false),
        (Query { outcome: text("refused"), ..all.clone() }, false),
        (Query { source: text("file"), ..all.clone() }, false),
        (Query { kind: text("proxies"), id: text("shop"), ..all.clone() }, true),
        (Query { kind: text("consumers"), id: text("shop"), ..all.clone() }, false),
        (Query { since: Some(line.at), until: Some(line.at), ..all.clone() }, true),
        (Query { since: Some(line.at + 1), ..all.clone() }, false),
        (Query { until: Some(line.at - 1), ..all.clone() }, false),
        (Query { before: Some(1), ..all }, false),
    ] {
        assert_eq!(query.fits(&line), fits, "{query:?}");
    }
}

#[test]
fn what_clients_send_is_cut_and_never_breaks_the_line() {
    let mut draft = draft(&"ü\n\"".repeat(1000));
    draft.note = "x".repeat(10_000);
    let line = draft.chained(&Tip::default());
    let entry = line.read().unwrap();
    assert!(entry.actor.len() <= MAX_NAME && entry.note.len() == MAX_TEXT);
    assert!(!line.with_hash().contains('\n'));
    let read: Value = serde_json::from_str(&line.with_hash()).unwrap();
    assert_eq!(read["hash"], line.hash);
}
