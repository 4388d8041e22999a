//! What can be asked for. Every answer is ready or made from the snapshot: none waits for the host.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::base::clock::Clock;
use crate::publish::Published;
use crate::publish::metrics::CONTENT_TYPE;

/// Seconds after which a browser asks for the page again.
const REFRESH_SECONDS: &str = "5";

/// On every answer: nothing here is for frames, scripts, guesses or caches.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    (header::CACHE_CONTROL, "no-store"),
];

#[derive(Clone)]
struct Site {
    published: Arc<Published>,
    clock: Arc<dyn Clock>,
}

/// `/metrics`, `/`, `/-/healthy` and `/-/ready`.
pub fn router(published: Arc<Published>, clock: Arc<dyn Clock>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/", get(page))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .method_not_allowed_fallback(not_allowed)
        .fallback(not_found)
        .layer(map_response(with_headers))
        .with_state(Site { published, clock })
}

async fn metrics(State(site): State<Site>, headers: HeaderMap) -> Response {
    let body = site.published.metrics(site.clock.now(), accepts_gzip(&headers));
    let mut response = typed(CONTENT_TYPE, body.bytes);
    let sent = response.headers_mut();
    sent.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if body.gzip {
        sent.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

async fn page(State(site): State<Site>) -> Response {
    let mut response = typed("text/html; charset=utf-8", site.published.page(site.clock.now()));
    response.headers_mut().insert(header::REFRESH, HeaderValue::from_static(REFRESH_SECONDS));
    response
}

async fn healthy() -> &'static str {
    "loadline is up\n"
}

async fn ready(State(site): State<Site>) -> (StatusCode, &'static str) {
    if site.published.ready() {
        (StatusCode::OK, "loadline has readings\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no reading yet\n")
    }
}

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not here: try / or /metrics\n")
}

async fn not_allowed(method: Method, uri: Uri) -> (StatusCode, String) {
    (StatusCode::METHOD_NOT_ALLOWED, format!("{method} {}: only GET and HEAD\n", uri.path()))
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn typed(content_type: &'static str, bytes: Bytes) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], bytes).into_response()
}

/// Whether gzip is named with a weight above 0 (RFC 9110, 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(
        |coding| {
            let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
            let weight = parameters.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f64>);
            name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|q| q > 0.0)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_only_where_it_is_asked_for() {
        let accepts = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, value)]))
        };
        for yes in ["gzip", "deflate, gzip;q=0.5", "GZIP", "br;q=1.0, gzip; q=0.8, *;q=0.1"] {
            assert!(accepts(yes), "{yes}");
        }
        for no in ["", "identity", "gzip;q=0", "gzip;q=0.000", "xgzip", "gzip;q=nan", "br, *;q=0"] {
            assert!(!accepts(no), "{no}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
