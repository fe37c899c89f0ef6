//! Who may be recognised, and who a caller was recognised as.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::credential::CredentialType;
use super::index::Index;
use super::model::{Consumer, Credential, Digest, Id};

/// Dots in the path of a claim at which it is taken apart.
const MAX_CLAIM_STEPS: usize = 16;

/// What a caller was recognised by, where that may come to its end before a session does: a login, a token.
pub trait Standing: Send + Sync + Debug {
    /// Whether it still holds, beside the consumers of now. Asked from time to time while a session lasts.
    fn holds(&self, consumers: &Consumers) -> bool;
}

/// A recognised caller: a consumer of the configuration, or a name another party vouched for.
#[derive(Debug, Clone)]
pub struct Identity {
    /// What another party said about the caller: the claims of a token, the fields of an answer. An object.
    pub claims: Option<Arc<Map<String, Value>>>,
    /// Groups the caller is in besides those of the consumer.
    pub groups: Arc<[Arc<str>]>,
    /// The consumer, when the caller is one.
    pub consumer: Option<Arc<Consumer>>,
    /// The name logs and upstreams see: the consumer's username, or the external subject.
    pub name: Arc<str>,
    /// What targets are told about it.
    pub told: IdentityHeaders,
    /// What it was recognised by, where long sessions have to ask whether that still holds.
    pub standing: Option<Arc<dyn Standing>>,
}

/// What targets are told about a caller, made when it is first asked for. A copy of an identity may be changed, so it makes
/// its own.
#[derive(Debug, Default)]
pub struct IdentityHeaders(OnceLock<Box<[(HeaderName, HeaderValue)]>>);

impl Clone for IdentityHeaders {
    fn clone(&self) -> Self {
        Self::default()
    }
}

const X_CONSUMER_USERNAME: HeaderName = HeaderName::from_static("x-consumer-username");
const X_CONSUMER_ID: HeaderName = HeaderName::from_static("x-consumer-id");
const X_CONSUMER_CUSTOM_ID: HeaderName = HeaderName::from_static("x-consumer-custom-id");
const X_CONSUMER_GROUPS: HeaderName = HeaderName::from_static("x-consumer-groups");

/// Bytes of groups that targets are told: an issuer that names hundreds must not make heads too long for them.
const MAX_GROUPS: usize = 4 << 10;

impl Identity {
    /// A consumer of the configuration.
    pub fn consumer(consumer: Arc<Consumer>) -> Self {
        Self {
            claims: None,
            groups: Arc::default(),
            name: consumer.username.clone(),
            consumer: Some(consumer),
            told: IdentityHeaders::default(),
            standing: None,
        }
    }

    /// Somebody another party vouched for, who is no consumer.
    pub fn external(name: impl Into<Arc<str>>) -> Self {
        Self {
            claims: None,
            groups: Arc::default(),
            name: name.into(),
            consumer: None,
            told: IdentityHeaders::default(),
            standing: None,
        }
    }

    /// The issuer that vouches for the name, where the caller is no consumer: names are unique within an issuer only (OpenID Connect
    /// Core §2).
    pub fn issuer(&self) -> Option<&str> {
        let claims = self.claims.as_ref().filter(|_| self.consumer.is_none())?;
        claims.get("iss")?.as_str()
    }

    /// Whether both are one caller: the same consumer, or the same name where the same issuer vouches for it. A consumer and a name that
    /// belongs to no consumer are two callers, however alike they are spelled.
    pub fn is_same_caller(&self, other: &Self) -> bool {
        match (&self.consumer, &other.consumer) {
            (Some(one), Some(other)) => one.id == other.id,
            (None, None) => self.name == other.name && self.issuer() == other.issuer(),
            _ => false,
        }
    }

    /// Whether somebody who was admitted as this caller may stay. The consumer has to be there with all the credentials of then,
    /// for any of them may be the one that was shown, and in the same groups, by which it was let in. Credentials that were
    /// added since change nothing. Who another party vouches for is known to that party, and to whom it told of it.
    pub fn may_stay(&self, consumers: &Consumers) -> bool {
        let is_there = self.consumer.as_ref().is_none_or(|then| {
            let known = consumers.by_id(then.id.as_str()).and_then(|known| known.consumer.as_ref());
            known.is_some_and(|now| Arc::ptr_eq(then, now) || stands_for(now, then))
        });
        is_there && self.standing.as_ref().is_none_or(|standing| standing.holds(consumers))
    }

    /// The fields that tell a target who the caller is. A name that no field can hold is left out.
    pub fn fields(&self) -> &[(HeaderName, HeaderValue)] {
        self.told.0.get_or_init(|| {
            let consumer = self.consumer.as_deref();
            let groups = Some(self.told_groups()).filter(|all| !all.is_empty());
            let fields = [
                (X_CONSUMER_USERNAME, Some(&*self.name)),
                (X_CONSUMER_ID, consumer.map(|consumer| consumer.id.as_str())),
                (X_CONSUMER_CUSTOM_ID, consumer.and_then(|consumer| consumer.custom_id.as_deref())),
                (X_CONSUMER_GROUPS, groups.as_deref()),
            ];
            let field = |(name, text): (_, Option<&str>)| Some((name, HeaderValue::from_str(text?).ok()?));
            fields.into_iter().filter_map(field).collect()
        })
    }

    /// The groups as a list for a field. Those that another party told are left out where they would be read as something else:
    /// with a comma or blanks around them, with what no field can hold, or beyond [`MAX_GROUPS`].
    fn told_groups(&self) -> String {
        let own = self.consumer.as_ref().map_or(&[][..], |consumer| &consumer.acl_groups);
        let mut text = own.join(", ");
        let is_plain = |group: &str| {
            !group.is_empty()
                && group.trim() == group
                && !group.contains(',')
                && HeaderValue::from_str(group).is_ok()
        };
        let mut known: HashSet<&str> = own.iter().map(|group| &**group).collect();
        for group in self.groups.iter() {
            if !known.insert(group) || !is_plain(group) || text.len() + 2 + group.len() > MAX_GROUPS {
                continue;
            }
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(group);
        }
        text
    }

    /// Every group of the caller: the consumer's and those another party told.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        let own = self.consumer.as_ref().map_or(&[][..], |consumer| &consumer.acl_groups);
        own.iter().chain(self.groups.iter())
    }
}

/// Every consumer by what identifies it. Part of the snapshot, so a request sees routes and consumers of one moment.
///
/// A clone is cheap and shares everything; a change copies what leads to the consumer it touches.
#[derive(Debug, Clone, Default)]
pub struct Consumers {
    by_id: Index<Indexed, ()>,
    by_name: Index<Indexed, ()>,
    by_credential: Index<Indexed, ()>,
    hasher: RandomState,
}

/// A consumer as an entry of an index: what it is found by is its own, and not written there once more.
#[derive(Debug, Clone)]
struct Indexed(Arc<Identity>);

/// The same consumer, in the same state.
impl PartialEq for Indexed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Indexed {}

impl Indexed {
    fn has_id(&self, id: &str) -> bool {
        self.0.consumer.as_ref().is_some_and(|consumer| consumer.id.as_str() == id)
    }

    fn has_name(&self, name: &str) -> bool {
        self.0.consumer.as_ref().is_some_and(|consumer| names(consumer).any(|own| **own == *name))
    }

    fn has_credential(&self, print: &Fingerprint) -> bool {
        self.0.consumer.as_ref().is_some_and(|consumer| fingerprints(consumer).any(|own| own == *print))
    }
}

/// The digest of a credential's text.
pub fn digest(text: &[u8]) -> Digest {
    Sha256::digest(text).into()
}

/// A digest with its type of credential: a key is not another plugin's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Fingerprint {
    kind: &'static CredentialType,
    digest: Digest,
}

/// What two consumers may not have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedTrait {
    /// The username, or one's username and the other's custom id.
    Name(Arc<str>),
    /// A credential of this type.
    Credential(&'static CredentialType),
}

impl Consumers {
    /// An index of these consumers.
    pub fn new<'a>(consumers: impl IntoIterator<Item = &'a Arc<Consumer>>) -> Self {
        let mut index = Self::default();
        for consumer in consumers {
            index.insert(consumer);
        }
        index
    }

    /// Adds a consumer, or puts it in the place of the one with its id.
    pub fn insert(&mut self, consumer: &Arc<Consumer>) {
        self.remove(&consumer.id);
        let identity = Arc::new(Identity::consumer(consumer.clone()));
        for name in names(consumer) {
            let hash = self.hasher.hash_one(&**name);
            self.by_name.remove_hashed(hash, |known| known.has_name(name));
            self.by_name.insert_hashed(hash, Indexed(identity.clone()), ());
        }
        for print in fingerprints(consumer) {
            let hash = self.hasher.hash_one(&print);
            self.by_credential.remove_hashed(hash, |known| known.has_credential(&print));
            self.by_credential.insert_hashed(hash, Indexed(identity.clone()), ());
        }
        self.by_id.insert_hashed(self.hasher.hash_one(consumer.id.as_str()), Indexed(identity), ());
    }

    /// Forgets a consumer with its names and credentials.
    pub fn remove(&mut self, id: &Id) {
        let Some(identity) = self.by_id(id.as_str()).cloned() else { return };
        let is_it = |known: &Indexed| Arc::ptr_eq(&known.0, &identity);
        self.by_id.remove_hashed(self.hasher.hash_one(id.as_str()), is_it);
        let Some(consumer) = &identity.consumer else { return };
        for name in names(consumer) {
            self.by_name.remove_hashed(self.hasher.hash_one(&**name), is_it);
        }
        for print in fingerprints(consumer) {
            self.by_credential.remove_hashed(self.hasher.hash_one(&print), is_it);
        }
    }

    /// Another consumer that has something in common with this one which identifies both, and what it is. Those that are
    /// `ignored` don't count.
    pub fn collision(
        &self,
        consumer: &Consumer,
        ignored: impl Fn(&Consumer) -> bool,
    ) -> Option<(SharedTrait, &Arc<Identity>)> {
        let is_other = |found: &&Arc<Identity>| {
            found.consumer.as_ref().is_none_or(|other| other.id != consumer.id && !ignored(other))
        };
        let named = names(consumer)
            .find_map(|name| Some((SharedTrait::Name(name.clone()), self.by_name(name).filter(is_other)?)));
        named.or_else(|| {
            fingerprints(consumer).find_map(|print| {
                Some((SharedTrait::Credential(print.kind), self.by_fingerprint(&print).filter(is_other)?))
            })
        })
    }

    /// The consumer with this id.
    pub fn by_id(&self, id: &str) -> Option<&Arc<Identity>> {
        let hash = self.hasher.hash_one(id);
        self.by_id.entry_hashed(hash, |known| known.has_id(id)).map(|(known, ())| &known.0)
    }

    /// The consumer with this username or custom id.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Identity>> {
        let hash = self.hasher.hash_one(name);
        self.by_name.entry_hashed(hash, |known| known.has_name(name)).map(|(known, ())| &known.0)
    }

    /// The owner of a credential that identifies by itself: `key_auth`'s key, `mtls_auth`'s identity.
    pub fn by_credential(&self, kind: &'static CredentialType, text: &[u8]) -> Option<&Arc<Identity>> {
        self.by_fingerprint(&Fingerprint { kind, digest: digest(text) })
    }

    fn by_fingerprint(&self, print: &Fingerprint) -> Option<&Arc<Identity>> {
        let hash = self.hasher.hash_one(print);
        self.by_credential.entry_hashed(hash, |known| known.has_credential(print)).map(|(known, ())| &known.0)
    }

    /// Number of consumers.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True without consumers.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Every consumer, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &Arc<Identity>)> {
        self.by_id.iter().filter_map(|(Indexed(known), ())| Some((&known.consumer.as_ref()?.id, known)))
    }
}

/// Whether a consumer's new state admits whoever the old one did.
fn stands_for(now: &Consumer, then: &Consumer) -> bool {
    let is_same = |all: &[Arc<str>], other: &[Arc<str>]| all.iter().all(|group| other.contains(group));
    now.username == then.username
        && now.custom_id == then.custom_id
        && is_same(&now.acl_groups, &then.acl_groups)
        && is_same(&then.acl_groups, &now.acl_groups)
        && then.credentials.iter().all(|credential| now.credentials.contains(credential))
}

fn names(consumer: &Consumer) -> impl Iterator<Item = &Arc<str>> {
    // A consumer may have its username as custom id, too.
    let custom = consumer.custom_id.as_ref().filter(|id| **id != consumer.username);
    std::iter::once(&consumer.username).chain(custom)
}

fn fingerprints(consumer: &Consumer) -> impl Iterator<Item = Fingerprint> {
    consumer.credentials.iter().filter_map(|credential| match credential {
        Credential::Digest { kind, digest } => Some(Fingerprint { kind, digest: *digest }),
        Credential::Secret { .. } => None,
    })
}

/// The claim of this name; or, where there is none, what the dotted path leads to: `realm_access.roles`. Names within the path may
/// contain dots themselves, as `https://example.com/app.roles` does; the longest name that is there counts.
pub fn find_claim<'c>(claims: &'c Map<String, Value>, path: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let splits = path.rmatch_indices('.').filter_map(|(at, _)| path.split_at_checked(at));
    splits
        .take(MAX_CLAIM_STEPS)
        .find_map(|(name, rest)| find_claim(claims.get(name)?.as_object()?, rest.strip_prefix('.')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(own: &[&str], others: &[&str]) -> Option<String> {
        let texts = |all: &[&str]| all.iter().map(|text| Arc::from(*text)).collect::<Vec<Arc<str>>>();
        let consumer = Consumer {
            id: Id("ann".into()),
            username: "ann".into(),
            custom_id: None,
            acl_groups: texts(own),
            credentials: Box::default(),
        };
        let identity = Identity::consumer(Arc::new(consumer));
        let identity = Identity { groups: texts(others).into(), ..identity };
        let fields = identity.fields();
        let field = fields.iter().find(|(name, _)| *name == X_CONSUMER_GROUPS)?;
        Some(String::from_utf8_lossy(field.1.as_bytes()).into_owned())
    }

    #[test]
    fn who_may_stay_has_all_that_it_was_admitted_by() {
        let key = |n: u8| Credential::Digest { kind: &KEY, digest: [n; 32] };
        let ann = |groups: &[&str], keys: &[u8]| {
            Arc::new(Consumer {
                id: Id("ann".into()),
                username: "ann".into(),
                custom_id: None,
                acl_groups: groups.iter().map(|text| Arc::from(*text)).collect(),
                credentials: keys.iter().map(|n| key(*n)).collect(),
            })
        };
        let before = Identity::consumer(ann(&["a", "b"], &[1, 2]));
        for (now, expected) in [
            (ann(&["a", "b"], &[1, 2]), true),
            (ann(&["b", "a"], &[3, 2, 1]), true),
            (ann(&["a", "b"], &[1]), false),
            (ann(&["a"], &[1, 2]), false),
            (ann(&["a", "b", "c"], &[1, 2]), false),
            (Arc::new(Consumer { username: "eve".into(), ..one(&ann(&["a", "b"], &[1, 2])) }), false),
            (Arc::new(Consumer { custom_id: Some("7".into()), ..one(&ann(&["a", "b"], &[1, 2])) }), false),
            (Arc::new(Consumer { id: Id("eve".into()), ..one(&ann(&["a", "b"], &[1, 2])) }), false),
        ] {
            assert_eq!(before.may_stay(&Consumers::new([&now])), expected, "{now:?}");
        }
        assert!(Identity::external("ann").may_stay(&Consumers::default()), "another party knows");
    }

    fn one(consumer: &Consumer) -> Consumer {
        let Consumer { id, username, custom_id, acl_groups, credentials } = consumer;
        Consumer {
            id: id.clone(),
            username: username.clone(),
            custom_id: custom_id.clone(),
            acl_groups: acl_groups.clone(),
            credentials: credentials.clone(),
        }
    }

    static KEY: CredentialType = CredentialType {
        name: "key",
        aliases: &[],
        key: "key",
        instead: &[],
        optional: &[],
        check: crate::credential::any_text,
        min_bytes: 1,
        is_unique: true,
        at_rest: crate::credential::AtRest::Clear,
    };

    #[test]
    fn targets_are_told_all_groups_that_a_list_can_hold() {
        for (own, others, expected) in [
            (&[][..], &[][..], None),
            (&["vip", "a"], &[], Some("vip, a")),
            (&["vip"], &["staff", "vip", "staff"], Some("vip, staff")),
            (&[], &["a, admin", " admin", "", "a\nb", "j\u{fc}rgen", "b c"], Some("j\u{fc}rgen, b c")),
        ] {
            assert_eq!(told(own, others).as_deref(), expected, "{own:?} {others:?}");
        }
        let long = "g".repeat(MAX_GROUPS - 10);
        assert_eq!(told(&["vip"], &[&long, "too long", "b"]), Some(format!("vip, {long}, b")));
    }
}
