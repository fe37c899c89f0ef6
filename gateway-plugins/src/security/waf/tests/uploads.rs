//! Uploads: files are large, and no argument is in them.

use super::*;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const FORM: &str = "multipart/form-data; boundary=B";

/// A form with a file of this content, and a field.
fn form(name: &str, content: &[u8], field: &str) -> Vec<u8> {
    let head = format!(
        "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\nContent-Type: image/png\r\n\r\n"
    );
    let tail =
        format!("\r\n--B\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n{field}\r\n--B--\r\n");
    [head.as_bytes(), content, tail.as_bytes()].concat()
}

#[tokio::test]
async fn images_are_no_arguments_however_large() {
    let image = [PNG, &vec![7; 200 << 10]].concat();
    let text = vec![b'a'; 200 << 10];
    let trial = trial(json!({}));
    for (kind, body, status) in [
        (FORM, form("Ann's photo.jpg", &image, "Please confirm (yes/no)"), 200),
        (FORM, form("photo.png", &image, "' or 1=1 -- -"), 400),
        (FORM, form("photo.php", &image, "a"), 400),
        (FORM, form("photo.png", b"small", &"b".repeat(200 << 10)), 400),
        ("image/png", image.clone(), 200),
        ("application/octet-stream", image.clone(), 200),
        ("image/png", text.clone(), 413),
        ("text/plain", image.clone(), 413),
        ("application/json", image.clone(), 413),
        ("application/x-www-form-urlencoded", image.clone(), 413),
        ("image/png", [PNG, b"<?php system($_GET['c']); ?>", &image].concat(), 400),
    ] {
        let length = body.len();
        let got = post(&trial, kind, body).await;
        assert_eq!(got.status, status, "{kind} {length}");
        if status == 200 {
            assert_eq!(trial.asked().pop().expect("a request").body.len(), length, "{kind}");
        }
    }
}

#[tokio::test]
async fn uploads_have_a_limit_of_their_own() {
    let image = [PNG, &vec![7; 4000]].concat();
    let small = trial(json!({"body": {"max_size": 1000, "max_upload": 3000}}));
    assert_eq!(post(&small, FORM, form("a.png", &image, "a")).await.status, 413);
    assert_eq!(post(&small, FORM, form("a.png", &image[..2000], "a")).await.status, 200);
    let lower = trial(json!({"body": {"max_size": 6000, "max_upload": 1}}));
    assert_eq!(
        post(&lower, FORM, form("a.png", &image, "a")).await.status,
        200,
        "not less than other bodies"
    );
}
