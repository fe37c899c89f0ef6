//! A roster on a database, alone and beside another one.

use gateway_fleet::{new_code, signing_request};

use super::super::rows::{InvitationRow, MAX_CERTIFICATES};
use super::*;
use crate::store::{Location, Options};

/// A migrated database of its own.
struct Database(std::path::PathBuf);

impl Database {
    async fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ferrum-roster-{name}-{}", std::process::id()));
        let database = Self(folder);
        database.store().migrate().await.unwrap();
        database
    }

    fn store(&self) -> Store {
        Store::open(Location::sqlite(self.0.join("fleet.db")), Options::default())
    }

    /// A roster, as a control plane has it that was just started.
    async fn roster(&self, authority: &(String, String)) -> Arc<Roster> {
        let keys = Keys::parse(&"01".repeat(32)).unwrap();
        let authority = Authority::from_pem(&authority.0, &authority.1, "test").unwrap();
        let hub = Arc::new(Hub::default());
        Roster::load(self.store(), keys, authority, hub, Skew::default()).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn row(name: &str) -> EdgeRow {
    let certificate = AcceptedCertificate { serial: name.to_owned(), not_after: u64::MAX };
    let (name, group) = (name.to_owned(), DEFAULT_GROUP.to_owned());
    EdgeRow { name, group, certificates: vec![certificate], enrolled: 0, revoked: None }
}

/// Adds edges, as if they had enrolled.
async fn add(roster: &Roster, numbers: std::ops::Range<usize>) {
    let ops = numbers.map(|number| {
        let id = format!("e{number}");
        FleetOp { kind: EDGE, document: document(&row(&id)), id, expected: None }
    });
    roster.change(&ops.collect::<Vec<_>>()).await.unwrap();
}

async fn enrol(roster: &Roster) -> CertifiedEdge {
    let invited = roster.invite(Some("new"), None, None, "127.0.0.1:1").await.unwrap();
    let (_, request) = signing_request().unwrap();
    let edge = roster.take_in(&invited.invitation.code, &request).await.unwrap().edge;
    let serial = roster.edge(&edge).unwrap().certificates[0].serial.clone();
    CertifiedEdge { edge, group: DEFAULT_GROUP.to_owned(), serial, not_before: 0, not_after: u64::MAX }
}

/// Statements and rows that each operation on an edge needs.
async fn work(roster: &Roster) -> Vec<(&'static str, (u64, u64))> {
    let mut all = Vec::new();
    Store::counted_work();
    let edge = enrol(roster).await;
    all.push(("enrol", Store::counted_work()));
    let (_, request) = signing_request().unwrap();
    roster.reissue(&edge, &request).await.unwrap();
    all.push(("renew", Store::counted_work()));
    roster.rename(&edge.edge, Some("other"), Some("eu")).await.unwrap();
    all.push(("move", Store::counted_work()));
    roster.revoke(&edge.edge).await.unwrap();
    all.push(("revoke", Store::counted_work()));
    roster.remove(&edge.edge).await.unwrap();
    all.push(("remove", Store::counted_work()));
    roster.follow().await.unwrap();
    all.push(("follow", Store::counted_work()));
    all
}

#[tokio::test]
async fn the_work_for_an_edge_does_not_grow_with_the_fleet() {
    let database = Database::new("work").await;
    let roster = database.roster(&Authority::generate("test").unwrap()).await;
    add(&roster, 0..10).await;
    let small = work(&roster).await;
    add(&roster, 10..310).await;
    assert_eq!(roster.enrolled(), 310);
    let large = work(&roster).await;
    assert_eq!(small, large, "statements and rows for each operation, with 10 edges and with 310");
    assert!(small.iter().all(|(_, (statements, rows))| *statements < 40 && *rows < 40), "{small:?}");
}

#[tokio::test]
async fn rosters_on_one_database_follow_each_other_row_by_row() {
    let database = Database::new("two").await;
    let authority = Authority::generate("test").unwrap();
    let (one, two) = (database.roster(&authority).await, database.roster(&authority).await);
    add(&one, 0..200).await;
    two.follow().await.unwrap();
    assert_eq!((two.enrolled(), two.groups().len()), (200, 1));
    let edge = enrol(&one).await;
    assert_eq!(two.membership_of(&edge.edge, &edge.serial), Membership::Unknown);
    Store::counted_work();
    two.follow().await.unwrap();
    let (_, rows) = Store::counted_work();
    assert!(rows < 10, "{rows} rows to learn of one edge");
    assert_eq!(two.membership_of(&edge.edge, &edge.serial), Membership::Enrolled);
    // What two changes, one learns; a row that both change is changed by one of them.
    two.rename(&edge.edge, None, Some("eu")).await.unwrap();
    one.follow().await.unwrap();
    assert_eq!(one.groups(), [DEFAULT_GROUP.to_owned(), "eu".to_owned()].into());
    one.revoke(&edge.edge).await.unwrap();
    two.follow().await.unwrap();
    assert_eq!(two.membership_of(&edge.edge, &edge.serial), Membership::Revoked);
    assert_eq!((two.enrolled(), two.groups().len()), (200, 1));
    one.remove(&edge.edge).await.unwrap();
    two.follow().await.unwrap();
    assert_eq!(two.membership_of(&edge.edge, &edge.serial), Membership::Unknown);
}

/// Rows that are gone from a database that is read whole, as after a restored backup, are gone from the roster.
#[tokio::test]
async fn a_roster_that_reads_everything_forgets_what_is_gone() {
    let database = Database::new("whole").await;
    let authority = Authority::generate("test").unwrap();
    let (one, two) = (database.roster(&authority).await, database.roster(&authority).await);
    add(&one, 0..600).await;
    two.follow().await.unwrap();
    assert_eq!(two.enrolled(), 600);
    let removals = (0..599).map(|number| removal(EDGE, &format!("e{number}"), 1));
    one.change(&removals.collect::<Vec<_>>()).await.unwrap();
    Store::counted_work();
    two.follow().await.unwrap();
    assert!(Store::counted_work().0 < 10, "one statement reads what is left");
    assert_eq!((one.enrolled(), two.enrolled()), (1, 1));
    assert_eq!(two.membership_of("e7", "e7"), Membership::Unknown);
    assert_eq!(two.membership_of("e599", "e599"), Membership::Enrolled);
}

#[tokio::test]
async fn expired_invitations_are_removed_by_the_first_of_two_control_planes() {
    let database = Database::new("expired").await;
    let authority = Authority::generate("test").unwrap();
    let (one, two) = (database.roster(&authority).await, database.roster(&authority).await);
    let (id, _, code) = new_code().unwrap();
    let (name, group) = (String::new(), DEFAULT_GROUP.to_owned());
    let expired = InvitationRow { code, expires: now() - 1, name, group, edge: None };
    let op = FleetOp { kind: INVITATION, id: id.clone(), expected: None, document: document(&expired) };
    one.change(&[op]).await.unwrap();
    two.follow().await.unwrap();
    for roster in [&one, &two] {
        roster.invite(None, None, None, "127.0.0.1:1").await.unwrap();
        assert!(!roster.members().invitations.contains_key(&id));
    }
    assert_eq!(two.members().invitations.len(), 2);
}

/// An edge that can't write what it gets, or whose connection breaks before it does, asks again and again.
#[tokio::test]
async fn the_certificate_in_use_stays_accepted_however_often_another_is_asked_for() {
    let database = Database::new("renewals").await;
    let roster = database.roster(&Authority::generate("test").unwrap()).await;
    let edge = enrol(&roster).await;
    let (_, request) = signing_request().unwrap();
    for attempt in 1..=2 * MAX_CERTIFICATES {
        roster.reissue(&edge, &request).await.unwrap();
        assert_eq!(roster.membership_of(&edge.edge, &edge.serial), Membership::Enrolled, "attempt {attempt}");
        let accepted = roster.edge(&edge.edge).unwrap().certificates.len();
        assert_eq!(accepted, (attempt + 1).min(MAX_CERTIFICATES));
    }
}

/// A revocation succeeds although the edge renews its certificate, or somebody renames it, at the same moment.
#[tokio::test]
async fn changes_of_one_edge_through_two_control_planes_are_all_made() {
    let database = Database::new("collisions").await;
    let authority = Authority::generate("test").unwrap();
    let (one, two) = (database.roster(&authority).await, database.roster(&authority).await);
    for number in 0..10 {
        let edge = enrol(&one).await;
        let (_, request) = signing_request().unwrap();
        let name = format!("renamed-{number}");
        let (renamed, revoked, renewed) = tokio::join!(
            two.rename(&edge.edge, Some(&name), None),
            one.revoke(&edge.edge),
            two.reissue(&edge, &request)
        );
        renamed.unwrap();
        revoked.unwrap();
        // It was renewed before it was revoked, or not at all.
        drop(renewed);
        two.follow().await.unwrap();
        let row = two.edge(&edge.edge).unwrap();
        assert_eq!((&row.name, row.revoked.is_some(), row.certificates.len()), (&name, true, 0));
    }
}
