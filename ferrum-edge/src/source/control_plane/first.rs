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

/// For the whole answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a configuration file, as `--mode file` has them, from a path or an `http://` or `https://` URL. Its settings under `gateway`
/// are left out, references are resolved on this machine.
///
/// # Errors
/// In words for the operator.
pub(super) async fn read(place: &str) -> Result<Configuration, String> {
    let is_url = place.starts_with("http://") || place.starts_with("https://");
    let (text, origin) = match is_url {
        true => (fetch(place).await?, Origin { name: place.to_owned(), ..Origin::default() }),
        false => {
            let text = std::fs::read_to_string(place).map_err(|error| format!("{place}: {error}"))?;
            (text, Origin::file(Path::new(place)))
        }
    };
    let document =
        file::document(&text, &origin, &KeepReferences).map_err(|problems| problems.to_string())?;
    let documents = documents(&document).map_err(|error| format!("{place}: {error}"))?;
    let position = Position { hash: documents.hash(), ..Position::default() };
    Ok(Configuration { position, documents })
}

fn documents(document: &Value) -> Result<DocumentSet, String> {
    let mut set = DocumentSet::default();
    for kind in ObjectKind::ALL {
        let items = document.get(kind.as_str()).and_then(Value::as_array).into_iter().flatten();
        let items = items.enumerate().map(|(number, item)| {
            let id = item.get("id").and_then(Value::as_str);
            let id = id.ok_or_else(|| format!("{kind}[{number}] needs an `id`"))?;
            Ok((DocumentKey::new(kind.as_str(), id), Some(item.to_string())))
        });
        set.apply(items.collect::<Result<Vec<_>, String>>()?);
    }
    Ok(set)
}

async fn fetch(url: &str) -> Result<String, String> {
    let (endpoint, uri) = Endpoint::of_url(url)?;
    let client = PluginCalls.client(endpoint.within(TIMEOUT)).map_err(|problems| problems.to_string())?;
    let request = Request::get(uri).body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = client.fetch(request).await.map_err(|error| format!("{url}: {error}"))?;
    if !answer.status().is_success() {
        return Err(format!("{url} answers {}", answer.status()));
    }
    String::from_utf8(answer.into_body().to_vec()).map_err(|_| format!("{url} is not UTF-8"))
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
        assert!(error.contains("proxies[0]"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(super::read("/nowhere/first.yaml").await.is_err());
    }
}
