//! Who may come in, by annotations: passwords of a Secret, and a server that is asked.

use super::annotations::{Annotation, get};
use super::{Common, Ingress};
use crate::draft::{ForwardAuth, Password, Plug, basic_auth, draft, only_group};
use crate::text;
use crate::tree::Node;

impl Ingress<'_> {
    /// `auth-type: basic`, with the accounts of its Secret where that is in the files.
    pub(super) fn auth_type(
        &mut self,
        one: Annotation<'_>,
        namespace: &str,
        ingress: &Node,
        made: &mut Common,
    ) {
        let Annotation { what, said, value, .. } = one;
        let secret = get(ingress, "auth-secret").unwrap_or_default();
        let (space, name) = secret.split_once('/').unwrap_or((namespace, &secret));
        let lines = self.secrets.get(&(space.to_owned(), name.to_owned())).and_then(accounts);
        let map = get(ingress, "auth-secret-type").as_deref() == Some("auth-map");
        let Some(lines) = lines.filter(|lines| said == "basic" && !lines.is_empty() && !map) else {
            let why = "only `basic` with a Secret that is in the files can be converted";
            return self.close_routes(what, value, why, made);
        };
        self.accounts += 1;
        let group = format!("ingress-{}", self.accounts);
        for (user, hash) in lines {
            let is_known = ["$2", "$apr1$", "$argon2id$"].iter().any(|start| hash.starts_with(start));
            if !is_known {
                return self.close_routes(what, value, "its hashes are not bcrypt, argon2id or apr1", made);
            }
            if !self.out.account(&user, Password::Hash(&hash), std::slice::from_ref(&group)) {
                return self.close_routes(what, value, "one name has two passwords", made);
            }
        }
        let realm = get(ingress, "auth-realm")
            .filter(|realm| !realm.is_empty())
            .unwrap_or_else(|| "Authentication Required".to_owned());
        made.plugins.push(basic_auth(&realm, false));
        made.plugins.push(only_group(&group));
        self.out.converted(value.at, what);
    }

    pub(super) fn auth_url(&mut self, one: Annotation<'_>, ingress: &Node, made: &mut Common) {
        let Annotation { what, said, value, .. } = one;
        // Of one host without other names it is known which one it is.
        let rules = ingress.path(&["spec", "rules"]).map_or(&[][..], Node::items);
        let only = match rules {
            [rule] => rule.text_of("host").filter(|host| !host.is_empty() && !host.contains('*')),
            _ => None,
        };
        let only = only.map(str::to_ascii_lowercase).filter(|host| !self.hosts.has_aliases(host));
        let said = only.map_or_else(|| said.to_owned(), |host| with_host(said, &host));
        if said.contains('$') || text::url(&said).is_none() {
            return self.close_routes(what, value, "its URL has variables, or is none", made);
        }
        let fields: Vec<String> = get(ingress, "auth-response-headers")
            .map(|it| it.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect())
            .unwrap_or_default();
        made.plugins.push(Plug::of(draft!(ForwardAuth {
            url: said,
            convention: "nginx",
            response_headers: fields,
            status_on_error: 500,
        })));
        self.out.converted(value.at, what);
    }
}

/// Names and hashes of a Secret with an htpasswd file under `auth`.
fn accounts(secret: &Node) -> Option<Vec<(String, String)>> {
    let plain = secret.path(&["stringData", "auth"]).and_then(Node::str).map(str::to_owned);
    let text = match plain {
        Some(text) => text,
        None => {
            let encoded: String = secret.path(&["data", "auth"])?.str()?.split_whitespace().collect();
            String::from_utf8(text::base64(&encoded)?).ok()?
        }
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(':').map(|(name, hash)| (name.to_owned(), hash.to_owned()))).collect()
}

/// A text with a host for `$host`, and no variable whose name only begins so.
fn with_host(text: &str, host: &str) -> String {
    let mut pieces = text.split("$host");
    let mut made = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let goes_on = piece.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        made.push_str(if goes_on { "$host" } else { host });
        made.push_str(piece);
    }
    made
}
