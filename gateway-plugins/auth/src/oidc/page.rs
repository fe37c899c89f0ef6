//! Pages that browsers see where a login or logout stops: the sentence of the refusal, and the way on.

use gateway_core::http::body::Body;
use gateway_core::http::reply::Reply;
use gateway_plugin_common::html::escape_html;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_FRAME_OPTIONS};
use http::{HeaderValue, StatusCode};

/// No script, nothing from elsewhere, and no frame around it, in which another site could have its button pressed.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; base-uri 'none'; frame-ancestors 'none'");

/// What a page offers.
pub(super) enum WayOn<'p> {
    /// A link to this path.
    Link { path: &'p str, label: &'p str },
    /// A button that posts to this path.
    Button { path: &'p str, label: &'p str },
}

/// The same refusal as a page.
pub(super) fn of_refusal(reply: Reply, way_on: &WayOn<'_>) -> Reply {
    let text = reply.detail.clone().unwrap_or_default();
    with_page(reply, &text, way_on)
}

/// A page that asks the user something.
pub(super) fn question(text: &str, way_on: &WayOn<'_>) -> Reply {
    with_page(Reply::fixed(StatusCode::OK, ""), text, way_on)
}

fn with_page(reply: Reply, text: &str, way_on: &WayOn<'_>) -> Reply {
    let text = escape_html(text);
    let element = match way_on {
        WayOn::Link { path, label } => format!("<p><a href=\"{}\">{label}</a></p>", escape_html(path)),
        WayOn::Button { path, label } => {
            format!("<form method=\"post\" action=\"{}\"><button>{label}</button></form>", escape_html(path))
        }
    };
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Login</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\"></head>\n<body><p>{text}</p>\n{element}\n</body></html>\n"
    );
    Reply { body: Some(Body::full(page)), ..reply }
        .header(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .header(CONTENT_SECURITY_POLICY, POLICY)
        .header(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))
}
