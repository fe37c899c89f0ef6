//! HTTP message signatures (RFC 9421): which of a request's there are, and what they sign.

use std::collections::HashSet;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, FieldType as _, InnerList, Item, ListEntry, Parser};

use super::fault::SignatureError;
use super::keys::Method;
use super::message::Message;

/// Signatures of one request that are looked at; one with more is refused.
const MAX_SIGNATURES: usize = 4;
/// Components of one signature.
const MAX_COMPONENTS: usize = 64;

/// A signature, not verified yet.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) key_id: String,
    pub(super) method: Option<Method>,
    pub(super) created: Option<u64>,
    pub(super) expires: Option<u64>,
    pub(super) nonce: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) signature: Vec<u8>,
    input: InnerList,
}

/// The signatures of a request; only the one with `label` where that is given.
pub(super) fn all(headers: &HeaderMap, label: Option<&str>) -> Result<Vec<Signed>, SignatureError> {
    let (inputs, signatures) = (dictionary(headers, "signature-input")?, dictionary(headers, "signature")?);
    let wanted = |name: &str| label.is_none_or(|label| label == name);
    if inputs.len().max(signatures.len()) > MAX_SIGNATURES {
        return Err(SignatureError::Malformed);
    }
    let mut found = Vec::new();
    for (name, input) in &inputs {
        if !wanted(name.as_str()) {
            continue;
        }
        let (ListEntry::InnerList(input), Some(ListEntry::Item(signature))) = (input, signatures.get(name))
        else {
            return Err(SignatureError::Malformed);
        };
        let signature = signature.bare_item.as_byte_sequence().ok_or(SignatureError::Malformed)?;
        found.push(Signed::read(input, signature)?);
    }
    if found.is_empty() { Err(SignatureError::Missing) } else { Ok(found) }
}

/// A structured field; a request without it has an empty one.
pub(super) fn dictionary(headers: &HeaderMap, name: &str) -> Result<Dictionary, SignatureError> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    Parser::new(&lines.join(&b", "[..])).parse().map_err(|_| SignatureError::Malformed)
}

impl Signed {
    fn read(input: &InnerList, signature: &[u8]) -> Result<Self, SignatureError> {
        let text = |name: &str| match input.params.get(name) {
            None => Ok(None),
            Some(BareItem::String(text)) => Ok(Some(text.as_str().to_owned())),
            Some(_) => Err(SignatureError::Malformed),
        };
        let second = |name: &str| match input.params.get(name) {
            None => Ok(None),
            Some(BareItem::Integer(number)) => {
                u64::try_from(i64::from(*number)).map(Some).map_err(|_| SignatureError::Malformed)
            }
            Some(_) => Err(SignatureError::Malformed),
        };
        if input.items.len() > MAX_COMPONENTS {
            return Err(SignatureError::Malformed);
        }
        let method = match text("alg")? {
            None => None,
            Some(name) => Some(Method::named(&name).ok_or(SignatureError::Algorithm)?),
        };
        Ok(Self {
            key_id: text("keyid")?.ok_or(SignatureError::Malformed)?,
            method,
            created: second("created")?,
            expires: second("expires")?,
            nonce: text("nonce")?,
            tag: text("tag")?,
            signature: signature.to_vec(),
            input: input.clone(),
        })
    }

    /// The signature base (RFC 9421 §2.5), and the names of what it covers.
    pub(super) fn base(&self, message: &Message<'_>) -> Result<(String, HashSet<String>), SignatureError> {
        let (mut base, mut seen, mut covered) = (String::new(), HashSet::new(), HashSet::new());
        for item in &self.input.items {
            let (name, value) = component(item, message)?;
            let identifier = item.serialize();
            base.push_str(&format!("{identifier}: {value}\n"));
            if !seen.insert(identifier) {
                return Err(SignatureError::Malformed);
            }
            // A single parameter does not stand for the query.
            if name != "@query-param" {
                covered.insert(name);
            }
        }
        let list = vec![ListEntry::InnerList(self.input.clone())];
        let parameters = list.serialize().ok_or(SignatureError::Malformed)?;
        base.push_str(&format!("\"@signature-params\": {parameters}"));
        Ok((base, covered))
    }
}

/// Name and value of a component. Components with parameters of their own (`sf`, `key`, `bs`, `tr`, `req`) are refused,
/// except for the name of a query parameter.
fn component(item: &Item, message: &Message<'_>) -> Result<(String, String), SignatureError> {
    let name = item.bare_item.as_string().ok_or(SignatureError::Malformed)?.as_str();
    if name == "@query-param" {
        let parameter = match (item.params.len(), item.params.get("name")) {
            (1, Some(BareItem::String(parameter))) => parameter.as_str(),
            _ => return Err(SignatureError::Malformed),
        };
        let value = message.parameter(parameter).ok_or(SignatureError::Uncovered)?;
        return Ok((name.to_owned(), value));
    }
    if !item.params.is_empty() {
        return Err(SignatureError::Malformed);
    }
    let value = match name.strip_prefix('@') {
        Some(_) => message.derived(name).ok_or(SignatureError::Malformed)?,
        None if name.bytes().any(|c| c.is_ascii_uppercase()) => return Err(SignatureError::Malformed),
        None => message.field(name).ok_or(SignatureError::Uncovered)?.into_owned(),
    };
    Ok((name.to_owned(), value))
}
