//! Answers while a file exists.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{io, time};

use bytes::Bytes;
use gateway_core::plugin::world::files::Files;
use gateway_core::plugin::world::tasks::TaskControl;
use gateway_core::plugin::world::{Reach, blocking, calls, meters::Meters};
use gateway_core::plugin::{Entry, Plugin, World, entry};
use gateway_core::testing::Trial;
use serde_json::json;

use super::{LOOK_EVERY, RequestTermination, refresh_regularly};

const PLUGINS: &[Entry] = &[entry::<RequestTermination>()];

/// One file, or the error of looking for it.
struct Switch(Mutex<Option<io::ErrorKind>>);

impl Switch {
    fn set(&self, error: Option<io::ErrorKind>) {
        *self.0.lock().unwrap() = error;
    }
}

impl Files for Switch {
    fn read(&self, _path: &Path, _limit: u64) -> io::Result<Bytes> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn modified(&self, _path: &Path) -> io::Result<u128> {
        self.0.lock().unwrap().map_or(Ok(1), |kind| Err(kind.into()))
    }

    fn list(&self, _folder: &Path, _limit: usize) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn world(files: &Arc<Switch>) -> World {
    World::new(Reach {
        gateway: Arc::from("test"),
        calls: Arc::new(calls::Nowhere),
        files: files.clone(),
        blocking: Arc::new(blocking::Inline),
        meters: Meters::default(),
        variables: Default::default(),
    })
}

/// Lets the other tasks of this thread do all they can do now.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_switches_answers_on_and_off() {
    let files = Arc::new(Switch(Mutex::new(Some(io::ErrorKind::NotFound))));
    let config = json!({ "trigger": { "file": "/srv/maintenance" } });
    let world = world(&files);
    let plugin =
        Arc::new(RequestTermination::build(serde_json::from_value(config).unwrap(), &world).unwrap());
    let (_handle, control) = TaskControl::new();
    let watched = plugin.clone();
    let look = move || {
        watched.file.iter().for_each(super::SwitchFile::look);
        Ok::<_, Infallible>(())
    };
    let looking = tokio::spawn(async move { refresh_regularly(&world, LOOK_EVERY, control, look).await });
    let exists = |plugin: &RequestTermination| {
        plugin.file.as_ref().unwrap().exists.load(std::sync::atomic::Ordering::Relaxed)
    };
    assert!(!exists(&plugin));
    settle().await;
    let states =
        [(None, true), (Some(io::ErrorKind::NotFound), false), (Some(io::ErrorKind::PermissionDenied), true)];
    for (error, wanted) in states {
        files.set(error);
        tokio::time::advance(LOOK_EVERY + time::Duration::from_millis(1)).await;
        settle().await;
        assert_eq!(exists(&plugin), wanted, "{error:?}");
    }
    looking.abort();
}

#[tokio::test]
async fn requests_are_answered_while_the_file_exists() {
    for (error, status) in [(None, 503), (Some(io::ErrorKind::NotFound), 200)] {
        let spec = json!({
            "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "target.test", "backend_port": 80 }],
            "plugin_configs": [{
                "id": "p", "plugin_name": "request_termination", "proxy_id": "a",
                "config": { "trigger": { "file": "/srv/maintenance" } },
            }],
        });
        let files = Arc::new(Switch(Mutex::new(error)));
        let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &world(&files));
        assert_eq!(trial.get("/", &[]).await.status, status);
    }
    Trial::refused(PLUGINS, "request_termination", &json!({ "trigger": { "file": "maintenance" } }));
}

/// A body is sent as it is written, or as a template whose values are escaped for its media type.
#[tokio::test]
async fn bodies_as_they_are_and_as_templates() {
    let path = "/a%3Cb?q=%3Cb%3E%26";
    let body = "${request.query.q} $$ ${request.header.x-a:-none}";
    for (kind, template, expected) in [
        ("text/plain", false, body),
        ("text/plain", true, "<b>& $ none"),
        ("text/html; charset=utf-8", true, "&lt;b&gt;&amp; $ none"),
        ("application/json", true, "\\u003cb>& $ none"),
    ] {
        let config = json!({ "status_code": 200, "content_type": kind, "body": body, "template": template });
        let trial = Trial::new(PLUGINS, "request_termination", config);
        assert_eq!(trial.get(path, &[]).await.text(), expected, "{kind} {template}");
    }
    for config in [json!({ "template": true }), json!({ "body": "${response.status}", "template": true })] {
        Trial::refused(PLUGINS, "request_termination", &config);
    }
}

/// Without content there is no media type, so that another one is not beside it.
#[tokio::test]
async fn an_answer_without_content_has_no_media_type() {
    for (status, kind) in [(200, "application/json"), (204, ""), (304, "")] {
        let trial = Trial::new(PLUGINS, "request_termination", json!({ "status_code": status, "body": "" }));
        assert_eq!(trial.get("/", &[]).await.field("content-type"), kind, "{status}");
    }
}
