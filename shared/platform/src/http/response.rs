//! Answers to requests.

use aws_lc_rs::digest;
use data_encoding::BASE64URL_NOPAD;
use lambda_http::Body;
use serde::Serialize;

use super::{Problem, Request};

/// Bytes of the hash that an entity tag shows: 96 bits tell apart all versions a document will ever have.
const ETAG_BYTES: usize = 12;

/// An answer with a text body.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    pub(super) fn new(status: u16, body: String) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    /// A JSON document that nobody may store.
    pub fn json(status: u16, document: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_string(document).map_err(|error| Problem::internal(&error))?;
        Ok(Self::new(status, body).header("content-type", "application/json").header("cache-control", "no-store"))
    }

    /// A JSON document that may be stored as `cache_control` says: 200 with an entity tag, or 304 to a caller that has this
    /// version already.
    pub fn cacheable(request: &Request, document: &impl Serialize, cache_control: &str) -> Result<Self, Problem> {
        let response = Self::json(200, document)?;
        let etag = entity_tag(response.body.as_bytes());
        let known = request.header("if-none-match").is_some_and(|tags| names(tags, &etag));
        let response = if known { Self::new(304, String::new()) } else { response };
        Ok(response.header("cache-control", cache_control).header("etag", etag))
    }

    /// Sets a header, replacing what was set before. The name is in lower case.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.into()));
        self
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    pub fn body(&self) -> &str {
        &self.body
    }

    pub fn get_header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }
}

/// As `lambda_http` passes it on to the gateway.
impl TryFrom<Response> for lambda_http::Response<Body> {
    type Error = lambda_http::http::Error;

    fn try_from(response: Response) -> Result<Self, Self::Error> {
        let mut builder = lambda_http::Response::builder().status(response.status);
        for (name, value) in response.headers {
            builder = builder.header(name, value);
        }
        builder.body(Body::Text(response.body))
    }
}

/// A strong tag: it changes with every byte.
fn entity_tag(body: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, body);
    format!("\"{}\"", BASE64URL_NOPAD.encode(&hash.as_ref()[..ETAG_BYTES]))
}

/// Whether an `If-None-Match` header names a tag, by weak comparison (RFC 9110, 13.1.2): a cache that compressed the document
/// has weakened its tag. Our tags hold no comma.
fn names(if_none_match: &str, etag: &str) -> bool {
    let mut tags = if_none_match.split(',').map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(if_none_match: Option<&str>) -> Request {
        let headers = if_none_match.map(|tags| json!({"if-none-match": tags}));
        let context = json!({"requestId": "r", "routeKey": "GET /a", "http": {"method": "GET"}});
        serde_json::from_value(json!({"headers": headers, "requestContext": context})).unwrap()
    }

    fn cacheable(if_none_match: Option<&str>) -> Response {
        Response::cacheable(&request(if_none_match), &json!({"a": 1}), "public, max-age=5").unwrap()
    }

    #[test]
    fn an_answer_is_passed_on_whole() {
        let response = Response::json(202, &json!({"orderNo": "SK1"})).unwrap().header("Idempotency-Replayed", "true");
        let passed_on = lambda_http::Response::<Body>::try_from(response).unwrap();
        assert_eq!(passed_on.status(), 202);
        assert_eq!(passed_on.headers()["content-type"], "application/json");
        assert_eq!(passed_on.headers()["cache-control"], "no-store");
        assert_eq!(passed_on.headers()["idempotency-replayed"], "true");
        assert_eq!(passed_on.body().as_ref(), br#"{"orderNo":"SK1"}"#);
    }

    #[test]
    fn a_document_that_cannot_be_written_is_a_defect_of_ours() {
        let no_text_key = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(Response::json(200, &no_text_key).unwrap_err().code(), "INTERNAL");
    }

    #[test]
    fn a_known_version_is_not_sent_again() {
        let first = cacheable(None);
        let etag = first.get_header("etag").unwrap().to_owned();
        assert_eq!((first.status(), first.get_header("cache-control")), (200, Some("public, max-age=5")));
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() == 18, "{etag}");

        for known in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), "*".into()] {
            let response = cacheable(Some(&known));
            assert_eq!((response.status(), response.body()), (304, ""), "{known}");
            assert_eq!(response.get_header("etag"), Some(etag.as_str()));
            assert_eq!(response.get_header("cache-control"), Some("public, max-age=5"));
        }
        for other in ["\"x\"", "", etag.trim_matches('"')] {
            assert_eq!(cacheable(Some(other)).status(), 200, "{other:?}");
        }
        let changed = Response::cacheable(&request(Some(&etag)), &Value::from(2), "no-cache").unwrap();
        assert_eq!(changed.status(), 200);
    }
}
