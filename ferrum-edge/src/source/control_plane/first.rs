//! The configuration that a new edge starts from while no control plane answers: a file, such as one in the image, or a URL.

use std::path::Path;
use std::time::Duration;

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::file::{self, KeepReferences, Origin};
use gateway_core::http::body::Body;
use gateway_core::plugin::world::calls::{Calls as _, Endpoint};
use gateway_fleet::{Configuration, DocumentKey, DocumentSet, Position};
use gateway_protocols::calls::PluginCalls;
use http::Request;
use serde_json::Value;

use super::error::FirstError;

/// For the whole answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a configuration file, as `--mode file` has them, from a path or an `http://` or `https://` URL. Its settings under `gateway`
/// are left out, references are resolved on this machine.
///
/// # Errors
/// In words for the operator.
pub(super) async fn read(place: &str) -> Result<Configuration, FirstError> {
    let is_url = place.starts_with("http://") || place.starts_with("https://");
    let (text, origin) = match is_url {
        true => (fetch(place).await?, Origin { name: place.to_owned(), ..Origin::default() }),
        false => {
            let text = std::fs::read_to_string(place)
                .map_err(|error| FirstError::File { place: place.to_owned(), error })?;
            (text, Origin::file(Path::new(place)))
        }
    };
    let documents = documents(&file::document(&text, &origin, &KeepReferences)?, place)?;
    let position = Position { hash: documents.hash(), ..Position::default() };
    Ok(Configuration { position, documents })
}

fn documents(document: &Value, place: &str) -> Result<DocumentSet, FirstError> {
    let mut set = DocumentSet::default();
    for kind in ObjectKind::ALL {
        let items = document.get(kind.as_str()).and_then(Value::as_array).into_iter().flatten();
        let items = items.enumerate().map(|(number, item)| {
            let id = item.get("id").and_then(Value::as_str);
            let missing = || FirstError::NoId { place: place.to_owned(), kind: kind.as_str(), number };
            let id = id.ok_or_else(missing)?;
            Ok((DocumentKey::new(kind.as_str(), id), Some(item.to_string())))
        });
        set.apply(items.collect::<Result<Vec<_>, FirstError>>()?);
    }
    Ok(set)
}

async fn fetch(url: &str) -> Result<String, FirstError> {
    let (endpoint, uri) = Endpoint::of_url(url).map_err(|error| FirstError::Url(error.to_string()))?;
    let client = PluginCalls.client(endpoint.within(TIMEOUT))?;
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = uri;
    let called = |error| FirstError::Call { url: url.to_owned(), error };
    let answer = client.fetch(request).await.map_err(called)?;
    if !answer.status().is_success() {
        return Err(FirstError::Status { url: url.to_owned(), status: answer.status() });
    }
    String::from_utf8(answer.into_body().to_vec()).map_err(|_| FirstError::NoText(url.to_owned()))
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn a_file_becomes_documents_and_one_without_ids_is_refused() {
        let path = std::env::temp_dir().join(format!("ferrum-first-{}.yaml", std::process::id()));
        let text = "gateway: {http: 127.0.0.1:0}\nproxies:\n- {id: a, listen_path: /, backend_host: h, backend_port: 1}\n";
        std::fs::write(&path, text).unwrap();
        let read = super::read(path.to_str().unwrap()).await.unwrap();
        assert_eq!((read.documents.len(), read.position.hash), (1, read.documents.hash()));
        std::fs::write(&path, text.replace("id: a, ", "")).unwrap();
        let error = super::read(path.to_str().unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("proxies[0]"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(super::read("/nowhere/first.yaml").await.is_err());
    }
}
