//! Which of Traefik's routers goes first.

use crate::tree::Node;

/// Priorities that a file may ask for, in either direction.
const MOST: i64 = 1_000_000_000;

/// The routers of a document for HTTP.
pub(super) fn routers(document: &Node) -> &[(String, Node)] {
    document.path(&["http", "routers"]).map_or(&[][..], Node::entries)
}

/// The priorities of all routers, in the order of the files. The greater one that was said goes first, which is the length of
/// the rule where none was; of equal ones the alphabetically first. No two are the same, as the gateway refuses ties.
pub(super) fn priorities(documents: &[Node]) -> Vec<i64> {
    let all: Vec<(i64, &str)> =
        documents.iter().flat_map(routers).map(|(name, router)| (said(router), name.as_str())).collect();
    let mut last_first: Vec<usize> = (0..all.len()).collect();
    last_first.sort_by_key(|n| all.get(*n).map(|(said, name)| (*said, std::cmp::Reverse((*name, *n)))));
    let mut made = vec![0; all.len()];
    let mut before = i64::MIN;
    for n in last_first {
        // Those behind are moved as well where equal ones need numbers: none of them overtakes.
        before = all.get(n).map_or(0, |(said, _)| said + 1).max(before.saturating_add(1));
        if let Some(place) = made.get_mut(n) {
            *place = before;
        }
    }
    made
}

/// What a router asks for.
fn said(router: &Node) -> i64 {
    let length = i64::try_from(router.text_of("rule").map_or(0, str::len)).unwrap_or(MOST);
    let said = router.get("priority").and_then(Node::plain).and_then(|it| it.parse::<i64>().ok());
    said.filter(|it| *it != 0).unwrap_or(length).clamp(-MOST, MOST)
}
