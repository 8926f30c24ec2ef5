//! One call of the admin API.

use std::time::Duration;

use reqwest::header::{ACCEPT_LANGUAGE, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Failure, Problem};
use crate::target::is_loopback;

/// The gateway gives up after 30 s.
const CALL_TIMEOUT: Duration = Duration::from_secs(35);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A function answers at most 6 MB.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// How much of an answer that is not the application's is shown.
const EXCERPT_CHARS: usize = 200;
/// How often a call is repeated that was told to come back later.
const MAX_REPEATS: u32 = 3;
/// Who is told to come back after longer than this has the time to type it again.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// When nobody says how long.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// The admin API of a deployment. No `Debug`: it has a token.
pub(crate) struct Api {
    http: Client,
    base: Url,
    token: HeaderValue,
}

/// Whether doing it twice is doing it once. A call that is answered with 503 may have been done all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twice {
    IsOnce,
    IsTwice,
}

/// A document that was answered.
#[derive(Debug)]
pub(crate) struct Answer(String);

impl Answer {
    /// As it came.
    pub(crate) fn raw(&self) -> &str {
        self.0.trim_end()
    }

    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.0).map_err(Failure::Unreadable)
    }
}

impl Api {
    pub(crate) fn new(base: Url, token: &str) -> Result<Self, Failure> {
        let mut token = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Failure::Misused("the token has characters that no token has".to_owned()))?;
        token.set_sensitive(true);
        // A token goes where it was sent and nowhere else.
        let mut http =
            Client::builder().timeout(CALL_TIMEOUT).connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none());
        if is_loopback(&base) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|source| Failure::NoAnswer { host: host(&base), source })?;
        Ok(Self { http, base, token })
    }

    /// `GET /api/admin/` and the parts of the path.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Answer, Failure> {
        self.call(Method::GET, path, query, None, Twice::IsOnce).await
    }

    pub(crate) async fn put(&self, path: &[&str], body: &Value) -> Result<Answer, Failure> {
        self.call(Method::PUT, path, &[], Some(body), Twice::IsOnce).await
    }

    pub(crate) async fn delete(&self, path: &[&str]) -> Result<Answer, Failure> {
        self.call(Method::DELETE, path, &[], None, Twice::IsOnce).await
    }

    pub(crate) async fn post(&self, path: &[&str], query: &[(&str, &str)], twice: Twice) -> Result<Answer, Failure> {
        self.call(Method::POST, path, query, None, twice).await
    }

    /// Calls, and again when told to come back, if that is safe.
    async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
        twice: Twice,
    ) -> Result<Answer, Failure> {
        let url = self.url(path, query)?;
        let mut repeats = 0;
        loop {
            let failure = match self.once(&method, &url, body).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let wait = asked_wait(&failure).filter(|wait| *wait <= LONGEST_WAIT);
            let Some(wait) = wait.filter(|_| twice == Twice::IsOnce && repeats < MAX_REPEATS) else {
                return Err(failure);
            };
            repeats += 1;
            tokio::time::sleep(wait).await;
        }
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| Failure::Misused("the address has no path".to_owned()))?
            .pop_if_empty()
            .extend(["api", "admin"])
            .extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn once(&self, method: &Method, url: &Url, body: Option<&Value>) -> Result<Answer, Failure> {
        let mut request = self
            .http
            .request(method.clone(), url.clone())
            .header(AUTHORIZATION, self.token.clone())
            .header(ACCEPT_LANGUAGE, "en");
        if let Some(body) = body {
            request = request.json(body);
        }
        let no_answer = |error: reqwest::Error| Failure::NoAnswer { host: host(url), source: error.without_url() };
        let mut answer = request.send().await.map_err(no_answer)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(no_answer)? {
            if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(Failure::TooLong(MAX_ANSWER_BYTES));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status.is_success() {
            return Ok(Answer(text));
        }
        Err(refusal(status.as_u16(), &headers, text, url))
    }
}

/// What an answer that is no success says.
fn refusal(status: u16, headers: &HeaderMap, body: String, url: &Url) -> Failure {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_problem = header(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/problem+json"));
    if is_problem && let Ok(problem) = serde_json::from_str::<Problem>(&body) {
        return Failure::Refused(problem);
    }
    Failure::NotOurs {
        status,
        host: host(url),
        body: body.chars().take(EXCERPT_CHARS).collect(),
        retry_after: header(RETRY_AFTER).and_then(|secs| secs.parse().ok()).map(Duration::from_secs),
    }
}

/// How long to wait before the same call may be made again, if it is one to be made again.
fn asked_wait(failure: &Failure) -> Option<Duration> {
    match failure {
        Failure::Refused(problem) if matches!(problem.status, 429 | 503) => {
            Some(problem.retry_after_ms.map_or(DEFAULT_WAIT, Duration::from_millis))
        }
        Failure::NotOurs { status: 429 | 503, retry_after, .. } => Some(retry_after.unwrap_or(DEFAULT_WAIT)),
        Failure::Refused(_)
        | Failure::NotOurs { .. }
        | Failure::Misused(_)
        | Failure::NoAnswer { .. }
        | Failure::Unreadable(_)
        | Failure::TooLong(_)
        | Failure::Output(_) => None,
    }
}

fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base: &str, path: &[&str], query: &[(&str, &str)]) -> String {
        Api::new(base.parse().unwrap(), "t").unwrap().url(path, query).unwrap().to_string()
    }

    #[test]
    fn paths_are_below_the_address_with_or_without_a_slash() {
        let path = ["activities", "a1", "audit"];
        let expected = "http://127.0.0.1:1/_aws/api1/api/admin/activities/a1/audit";
        assert_eq!(url("http://127.0.0.1:1/_aws/api1", &path, &[]), expected);
        assert_eq!(url("http://127.0.0.1:1/_aws/api1/", &path, &[]), expected);
        assert_eq!(
            url("https://shop.example", &["payments"], &[("state", "A&B")]),
            "https://shop.example/api/admin/payments?state=A%26B"
        );
    }

    #[test]
    fn whoever_is_told_to_come_back_knows_when() {
        let here: Url = "https://shop.example".parse().unwrap();
        let problem = |status: u16, rest: &str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))]);
            let body = format!(r#"{{"status":{status},"code":"C","detail":"d","requestId":"r"{rest}}}"#);
            asked_wait(&refusal(status, &headers, body, &here))
        };
        assert_eq!(problem(503, r#","retryAfterMs":250"#), Some(Duration::from_millis(250)));
        assert_eq!(problem(429, ""), Some(DEFAULT_WAIT));
        assert_eq!(problem(409, ""), None);
        // The gateway's own.
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("2"))]);
        let own = refusal(429, &headers, r#"{"message":"Too Many Requests"}"#.to_owned(), &here);
        assert_eq!(asked_wait(&own), Some(Duration::from_secs(2)));
        assert_eq!(
            own.to_string(),
            r#"429 from shop.example is not the application's: {"message":"Too Many Requests"}"#
        );
    }
}
