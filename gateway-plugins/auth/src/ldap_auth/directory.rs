//! Logins at a directory: each on a connection of its own, so many at a time, within a deadline.
//!
//! Workers put what they ask into a bounded queue; a task on the control runtime makes the connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions};
use thiserror::Error;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};

use super::settings::{Directory, Groups, Search, Users, bind_name};

/// Groups that a user may have.
const MAX_GROUPS: i32 = 1000;
/// Result codes of LDAP (RFC 4511 §4.1.9).
const SUCCESS: u32 = 0;
const NO_SUCH_OBJECT: u32 = 32;
const INVALID_DN_SYNTAX: u32 = 34;
const INAPPROPRIATE_AUTHENTICATION: u32 = 48;
const INVALID_CREDENTIALS: u32 = 49;
const INSUFFICIENT_ACCESS_RIGHTS: u32 = 50;

/// A user whose password is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum NoAnswer {
    #[error("too many logins wait")]
    Busy,
    #[error("the directory is not asked any more")]
    Ended,
    #[error("there is no answer in time")]
    Late,
    #[error("there is no server")]
    NoServer,
    #[error("{url}: {error}")]
    Connect { url: String, error: LdapError },
    #[error(transparent)]
    Ldap(#[from] LdapError),
    #[error("{work} ends with the result {code}")]
    Code { work: &'static str, code: u32 },
    #[error("the account that looks users up is refused")]
    Account,
    #[error("several entries fit one user name")]
    Ambiguous,
    #[error("a user has no attribute `{0}`")]
    NoAttribute(String),
    #[error("a search finds more entries than it may")]
    TooMany,
}

struct Question {
    user: String,
    password: String,
    answer: oneshot::Sender<Result<Option<User>, NoAnswer>>,
    /// Held until it is answered.
    _place: OwnedSemaphorePermit,
}

/// The queue to a directory.
pub(super) struct Logins {
    directory: Directory,
    /// As many as may have a connection, and as many as may wait for one.
    places: Arc<Semaphore>,
    sender: UnboundedSender<Question>,
    receiver: Mutex<UnboundedReceiver<Question>>,
}

impl Logins {
    pub(super) fn new(directory: Directory) -> Self {
        // No more than have a place are in it.
        let (sender, receiver) = mpsc::unbounded_channel();
        let places = Arc::new(Semaphore::new(directory.max_connections + directory.max_waiting));
        Self { directory, places, sender, receiver: Mutex::new(receiver) }
    }

    /// Asks whether a password is right: the user, or nobody.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn ask(&self, user: String, password: String) -> Result<Option<User>, NoAnswer> {
        let (answer, receiver) = oneshot::channel();
        let place = self.places.clone().try_acquire_owned().map_err(|_| NoAnswer::Busy)?;
        let question = Question { user, password, answer, _place: place };
        self.sender.send(question).map_err(|_| NoAnswer::Busy)?;
        match tokio::time::timeout(self.directory.timeout, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Ended),
            Err(_) => Err(NoAnswer::Late),
        }
    }

    /// Carries logins out, for as long as the plugin is in use.
    pub(super) async fn run(self: Arc<Self>, mut control: TaskControl) -> Result<(), TaskError> {
        // The task of the settings before this may still hold it for a moment.
        let mut receiver = tokio::select! {
            receiver = self.receiver.lock() => receiver,
            () = control.ended() => return Ok(()),
        };
        let mut under_way = FuturesUnordered::new();
        loop {
            let has_room = under_way.len() < self.directory.max_connections;
            tokio::select! {
                question = receiver.recv(), if has_room => {
                    let Some(question) = question else { return Ok(()) };
                    // Whoever waited too long is gone.
                    if !question.answer.is_closed() {
                        under_way.push(self.directory.answer(question));
                    }
                }
                Some(()) = under_way.next() => {}
                () = control.ended() => return Ok(()),
            }
        }
    }
}

impl Directory {
    async fn answer(&self, question: Question) {
        let Question { user, password, answer, _place } = question;
        let login = self.login(&user, &password);
        let answered = tokio::time::timeout(self.timeout, login).await;
        // Whoever asked may have gone.
        drop(answer.send(answered.unwrap_or(Err(NoAnswer::Late))));
    }

    /// Whether a password is right.
    async fn login(&self, user: &str, password: &str) -> Result<Option<User>, NoAnswer> {
        // An empty password would be an anonymous bind, which always succeeds (RFC 4513 §5.1.2).
        if password.is_empty() {
            return Ok(None);
        }
        let mut connection = self.connect().await?;
        let done = self.login_on(&mut connection, user, password).await;
        // The connection is over either way.
        drop(connection.unbind().await);
        done
    }

    async fn connect(&self) -> Result<Ldap, NoAnswer> {
        let mut last = NoAnswer::NoServer;
        for url in &self.urls {
            let settings = LdapConnSettings::new()
                .set_conn_timeout(self.timeout)
                .set_config(self.tls.clone())
                .set_starttls(self.start_tls);
            match LdapConnAsync::with_settings(settings, url).await {
                Ok((driver, connection)) => {
                    tokio::spawn(async move {
                        if let Err(error) = driver.drive().await {
                            tracing::debug!(%error, "a connection to a directory ended");
                        }
                    });
                    return Ok(connection);
                }
                Err(error) => last = NoAnswer::Connect { url: url.clone(), error },
            }
        }
        Err(last)
    }

    async fn login_on(
        &self,
        connection: &mut Ldap,
        user: &str,
        password: &str,
    ) -> Result<Option<User>, NoAnswer> {
        let (search, found) = match &self.users {
            Users::Named(template) => {
                let name = user.to_ascii_lowercase();
                (None, UserEntry { dn: bind_name(template, user), name, groups: Vec::new() })
            }
            Users::Searched(search) => {
                search.bind(connection).await?;
                match search.find(connection, user).await? {
                    Some(found) => (Some(search), found),
                    None => {
                        // For the time it takes: nobody is let in by it.
                        let nobody = format!("cn=nobody,{}", search.base);
                        drop(connection.simple_bind(&nobody, password).await);
                        return Ok(None);
                    }
                }
            }
        };
        if !bind(connection, &found.dn, password).await? {
            return Ok(None);
        }
        let UserEntry { dn, name, mut groups } = found;
        if let Some(wanted) = &self.groups {
            if let Some(search) = search {
                search.bind(connection).await?;
            }
            groups = wanted.find(connection, user, &dn).await?;
        }
        Ok(Some(User { name, groups }))
    }
}

/// A user's entry.
struct UserEntry {
    dn: String,
    name: String,
    groups: Vec<String>,
}

/// Whether a name binds with a password.
async fn bind(connection: &mut Ldap, dn: &str, password: &str) -> Result<bool, NoAnswer> {
    let result = connection.simple_bind(dn, password).await?;
    match result.rc {
        SUCCESS => Ok(true),
        NO_SUCH_OBJECT
        | INVALID_DN_SYNTAX
        | INAPPROPRIATE_AUTHENTICATION
        | INVALID_CREDENTIALS
        | INSUFFICIENT_ACCESS_RIGHTS => Ok(false),
        code => Err(NoAnswer::Code { work: "binding", code }),
    }
}

impl Search {
    /// Binds as who looks up.
    async fn bind(&self, connection: &mut Ldap) -> Result<(), NoAnswer> {
        let Some((dn, password)) = &self.as_ else { return Ok(()) };
        match bind(connection, dn, password).await? {
            true => Ok(()),
            false => Err(NoAnswer::Account),
        }
    }

    async fn find(&self, connection: &mut Ldap, user: &str) -> Result<Option<UserEntry>, NoAnswer> {
        let attributes: Vec<&str> = match (&self.group_attribute, &self.name_attribute) {
            // No attributes at all (RFC 4511 §4.5.1.8).
            (None, None) => vec!["1.1"],
            (groups, name) => [groups, name].into_iter().flatten().map(String::as_str).collect(),
        };
        let entries = search(connection, &self.base, &self.filter(user), attributes, 2).await?;
        let [entry] = entries.as_slice() else {
            return match entries.is_empty() {
                true => Ok(None),
                false => Err(NoAnswer::Ambiguous),
            };
        };
        let name = match &self.name_attribute {
            None => user.to_ascii_lowercase(),
            Some(attribute) => match values(entry, attribute) {
                [name, ..] => name.clone(),
                [] => return Err(NoAnswer::NoAttribute(attribute.clone())),
            },
        };
        let groups = self.group_attribute.iter().flat_map(|attribute| values(entry, attribute));
        let groups = groups.map(|group| first_part(group)).collect();
        Ok(Some(UserEntry { dn: entry.dn.clone(), name, groups }))
    }
}

impl Groups {
    async fn find(&self, connection: &mut Ldap, user: &str, dn: &str) -> Result<Vec<String>, NoAnswer> {
        let filter = self.filter(user, dn);
        let attributes = vec![self.attribute.as_str()];
        let entries = search(connection, &self.base, &filter, attributes, MAX_GROUPS).await?;
        let names: BTreeSet<&String> =
            entries.iter().flat_map(|entry| values(entry, &self.attribute)).collect();
        Ok(names.into_iter().cloned().collect())
    }
}

/// The entries under a base that fit a filter, with these attributes; at most so many.
async fn search(
    connection: &mut Ldap,
    base: &str,
    filter: &str,
    attributes: Vec<&str>,
    most: i32,
) -> Result<Vec<SearchEntry>, NoAnswer> {
    connection.with_search_options(SearchOptions::new().sizelimit(most));
    let mut found = connection.streaming_search(base, Scope::Subtree, filter, attributes).await?;
    let mut entries = Vec::new();
    while let Some(entry) = found.next().await? {
        // Referrals have no entry, and are not followed.
        if entry.is_ref() || entry.is_intermediate() {
            continue;
        }
        if entries.len() >= usize::try_from(most).unwrap_or(0) {
            return Err(NoAnswer::TooMany);
        }
        entries.push(SearchEntry::construct(entry));
    }
    match found.finish().await.rc {
        SUCCESS => Ok(entries),
        NO_SUCH_OBJECT => Ok(Vec::new()),
        code => Err(NoAnswer::Code { work: "a search", code }),
    }
}

/// The values of an attribute, whose name is written in any case.
fn values<'e>(entry: &'e SearchEntry, attribute: &str) -> &'e [String] {
    let found = entry.attrs.iter().find(|(name, _)| name.eq_ignore_ascii_case(attribute));
    found.map_or(&[], |(_, values)| values)
}

/// Of a name in the directory its first value, else the whole text.
fn first_part(text: &str) -> String {
    let Some((_, rest)) = text.split_once('=') else { return text.to_owned() };
    let mut value = String::with_capacity(rest.len());
    let mut letters = rest.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' | '+' => break,
            '\\' => value.extend(letters.next()),
            letter => value.push(letter),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::first_part;

    #[test]
    fn groups_are_called_by_their_first_part() {
        for (text, name) in [
            ("cn=staff,ou=groups,dc=example,dc=org", "staff"),
            ("CN=Domain Users,DC=a", "Domain Users"),
            (r"cn=a\,b,dc=c", "a,b"),
            ("staff", "staff"),
            ("cn=", ""),
        ] {
            assert_eq!(first_part(text), name);
        }
    }
}
