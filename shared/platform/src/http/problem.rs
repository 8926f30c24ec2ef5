//! Answers that are no success (RFC 9457).

use std::error::Error;

use serde_json::{Map, Value};

use super::{Language, Response, Text};
use crate::telemetry;

/// What a client that was told to come back later waits when nothing better is known.
const DEFAULT_RETRY_AFTER_MS: u64 = 1_000;

/// Why a request was not granted: what the client is told, and what only the log is.
///
/// On the wire: `{"type", "title", "status", "detail", "code", "requestId", "retryAfterMs"?}` and members of its own.
///
/// Boxed, so that results that may be problems stay small.
#[derive(Debug)]
pub struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: u16,
    code: &'static str,
    detail: Text,
    members: Map<String, Value>,
    headers: Vec<(&'static str, String)>,
    cause: Option<String>,
}

impl Problem {
    /// A problem with a code of the contract, in capitals with underscores. 429 and 503 say when to come back: after a second,
    /// unless [`Problem::retry_after_ms`] says otherwise.
    pub fn new(status: u16, code: &'static str, detail: Text) -> Self {
        let parts = Parts { status, code, detail, members: Map::new(), headers: Vec::new(), cause: None };
        let problem = Self(Box::new(parts));
        match status {
            429 | 503 => problem.retry_after_ms(DEFAULT_RETRY_AFTER_MS),
            _ => problem,
        }
    }

    /// Adds a member of the problem's own, in camel case.
    #[must_use]
    pub fn with(mut self, member: &'static str, value: impl Into<Value>) -> Self {
        self.0.members.insert(member.to_owned(), value.into());
        self
    }

    /// Adds a header of the problem's own.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// How long the client should wait before it tries again.
    #[must_use]
    pub fn retry_after_ms(self, millis: u64) -> Self {
        self.with("retryAfterMs", millis)
    }

    /// What went wrong, for the log.
    #[must_use]
    pub fn caused_by(mut self, error: &(dyn Error + 'static)) -> Self {
        self.0.cause = Some(telemetry::chain(error));
        self
    }

    /// The request cannot be used; nothing was changed.
    pub fn validation(detail: Text) -> Self {
        Self::new(400, "VALIDATION", detail)
    }

    pub fn unauthenticated() -> Self {
        let detail = Text::new("A valid bearer token is required.", "需要有效的登录凭证。");
        Self::new(401, "UNAUTHENTICATED", detail)
    }

    pub fn forbidden() -> Self {
        Self::new(403, "FORBIDDEN", Text::new("This is not open to you.", "您无权执行此操作。"))
    }

    /// Nothing is there, or something that belongs to somebody else: the two cannot be told apart.
    pub fn not_found() -> Self {
        Self::new(404, "NOT_FOUND", Text::new("There is nothing here.", "未找到请求的内容。"))
    }

    pub fn payload_too_large() -> Self {
        let detail = Text::new("The body is larger than 16 KiB.", "请求内容超过 16 KiB。");
        Self::new(413, "PAYLOAD_TOO_LARGE", detail)
    }

    pub fn rate_limited(retry_after_ms: u64) -> Self {
        let detail = Text::new("Too many requests. Please wait a moment.", "操作过于频繁，请稍候再试。");
        Self::new(429, "RATE_LIMITED", detail).retry_after_ms(retry_after_ms)
    }

    /// Something that is needed is down or slow. The same request may succeed later.
    pub fn unavailable(error: &(dyn Error + 'static)) -> Self {
        let detail = Text::new("The service is busy. Please try again shortly.", "服务繁忙，请稍后重试。");
        Self::new(503, "UNAVAILABLE", detail).caused_by(error)
    }

    /// A defect of ours.
    pub fn internal(error: &(dyn Error + 'static)) -> Self {
        let detail = Text::new("Something went wrong on our side.", "系统出现异常，请稍后再试。");
        Self::new(500, "INTERNAL", detail).caused_by(error)
    }

    pub fn status(&self) -> u16 {
        self.0.status
    }

    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// A member of the problem's own.
    pub fn member(&self, name: &str) -> Option<&Value> {
        self.0.members.get(name)
    }

    pub(super) fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// The answer. `request_id` is the gateway's.
    pub(super) fn render(&self, language: Language, request_id: &str) -> Response {
        let mut body = self.0.members.clone();
        body.extend([
            ("type".to_owned(), format!("urn:hotcake:problem:{}", self.0.code).into()),
            ("title".to_owned(), title(self.0.code).into()),
            ("status".to_owned(), self.0.status.into()),
            ("detail".to_owned(), self.0.detail.in_language(language).into()),
            ("code".to_owned(), self.0.code.into()),
            ("requestId".to_owned(), request_id.into()),
        ]);
        let response = Response::new(self.0.status, Value::Object(body).to_string())
            .header("content-type", "application/problem+json")
            .header("content-language", language.tag())
            .header("vary", "accept-language")
            .header("cache-control", "no-store");
        let response =
            self.0.headers.iter().fold(response, |response, (name, value)| response.header(name, value.as_str()));
        match self.0.status {
            401 => response.header("www-authenticate", "Bearer"),
            429 | 503 => response.header("retry-after", self.retry_after_secs().to_string()),
            _ => response,
        }
    }

    /// Whole seconds, rounded up: who comes back then is not too early.
    fn retry_after_secs(&self) -> u64 {
        self.member("retryAfterMs").and_then(Value::as_u64).unwrap_or(DEFAULT_RETRY_AFTER_MS).div_ceil(1_000)
    }
}

/// A code in words: `STOCK_EMPTY` is "Stock empty".
fn title(code: &str) -> String {
    let words = code.to_ascii_lowercase().replace('_', " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(response: &Response) -> Value {
        serde_json::from_str(response.body()).unwrap()
    }

    #[test]
    fn a_problem_has_the_members_of_the_contract_and_its_own() {
        let problem = Problem::new(409, "LIMIT_EXCEEDED", Text::new("At most 3.", "最多 3 件。")).with("remaining", 1);
        let response = problem.render(Language::Zh, "gw-1");
        assert_eq!(response.status(), 409);
        assert_eq!(
            body(&response),
            json!({
                "type": "urn:hotcake:problem:LIMIT_EXCEEDED", "title": "Limit exceeded", "status": 409, "detail": "最多 3 件。",
                "code": "LIMIT_EXCEEDED", "requestId": "gw-1", "remaining": 1,
            })
        );
        assert_eq!(response.get_header("content-type"), Some("application/problem+json"));
        assert_eq!(response.get_header("content-language"), Some("zh"));
        assert_eq!(response.get_header("cache-control"), Some("no-store"));
        assert_eq!(response.get_header("retry-after"), None);
        assert_eq!(body(&problem.render(Language::En, "gw-1"))["detail"], "At most 3.");
    }

    #[test]
    fn whoever_may_come_back_is_told_when() {
        for (millis, secs) in [(1, "1"), (999, "1"), (1_000, "1"), (1_001, "2"), (0, "0")] {
            let response = Problem::rate_limited(millis).render(Language::En, "");
            assert_eq!(response.get_header("retry-after"), Some(secs), "{millis}");
            assert_eq!(body(&response)["retryAfterMs"], millis);
        }
        let paused = Problem::new(503, "PAUSED", Text::new("Paused.", "已暂停。")).render(Language::En, "");
        assert_eq!(paused.get_header("retry-after"), Some("1"));
        assert_eq!(body(&paused)["retryAfterMs"], 1_000);
        // A cool-down names its end, but it is no invitation to repeat.
        let blocked = Problem::new(403, "BLOCKED", Text::new("Blocked.", "已限制。")).retry_after_ms(5_000);
        assert_eq!(blocked.render(Language::En, "").get_header("retry-after"), None);
        assert_eq!(blocked.member("retryAfterMs"), Some(&5_000.into()));
    }

    #[test]
    fn the_cause_is_for_the_log_only() {
        let problem = Problem::internal(&std::io::Error::other("canary"));
        assert_eq!(problem.cause(), Some("canary"));
        let response = problem.render(Language::En, "gw-1");
        assert_eq!((response.status(), &body(&response)["code"]), (500, &"INTERNAL".into()));
        assert!(!response.body().contains("canary"));
    }

    #[test]
    fn each_code_has_its_status_and_speaks_both_languages() {
        let error = std::io::Error::other("down");
        let problems = [
            (Problem::validation(Text::new("qty", "数量")), 400, "VALIDATION"),
            (Problem::unauthenticated(), 401, "UNAUTHENTICATED"),
            (Problem::forbidden(), 403, "FORBIDDEN"),
            (Problem::not_found(), 404, "NOT_FOUND"),
            (Problem::payload_too_large(), 413, "PAYLOAD_TOO_LARGE"),
            (Problem::rate_limited(1), 429, "RATE_LIMITED"),
            (Problem::internal(&error), 500, "INTERNAL"),
            (Problem::unavailable(&error), 503, "UNAVAILABLE"),
        ];
        for (problem, status, code) in problems {
            assert_eq!((problem.status(), problem.code()), (status, code));
            let [en, zh] =
                [Language::En, Language::Zh].map(|language| body(&problem.render(language, ""))["detail"].clone());
            assert_ne!(en, zh, "{code}");
        }
        let unauthenticated = Problem::unauthenticated().render(Language::En, "");
        assert_eq!(unauthenticated.get_header("www-authenticate"), Some("Bearer"));
    }
}
