//! The HTTP routes, one method each.
//!
//! [`Api`] is who calls and from where; it is cheap to clone, and `signed_in`, `on_device` and `in_language` make a
//! changed copy. Each method answers an [`Answer`]: status, headers, and the document or the [`Problem`]. [`Api::raw`]
//! sends anything, for tests of what must be refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::{ACCEPT_LANGUAGE, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderMap, RETRY_AFTER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::documents::{
    Accepted, Activity, ActivityAction, ActivityList, ActivityPut, AdminActivity, AdminProduct, AdminSku, Agent,
    AgentList, AgentPut, AuditReport, BuyRequest, MessagePage, Order, OrderPage, OrderState, PayParameters,
    PaymentList, PaymentState, Problem, ProductPut, PurchaseResult, RatePost, Rating, ResultStatus, ServerTime,
    SessionPage, SkuPut, Stats, Stretch, Ticket, UploadForm, UploadPost,
};
use crate::{Backoff, ClientError, Stack, Token};

/// The longest function behind a route may run 29 s; the gateway gives up at 30.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest document a route answers is a page of orders, well below this.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// How much of an unexpected body an error repeats.
const EXCERPT_CHARS: usize = 300;
/// Polling for a result: the first wait and the longest. A result takes about a second.
const FIRST_POLL: Duration = Duration::from_millis(400);
const LONGEST_POLL: Duration = Duration::from_secs(3);

/// A caller of the HTTP routes.
#[derive(Debug, Clone)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    token: Option<Token>,
    device: Option<String>,
    language: Option<String>,
    /// Calls that may be under way at once, over all copies.
    slots: Option<Arc<Semaphore>>,
    watch: Option<Watch>,
}

/// Sees every answer: the method and path it is to, and what came.
pub type Watch = fn(&Method, &str, &RawAnswer);

/// What a route answered.
#[derive(Debug)]
pub struct Answer<T> {
    pub status: u16,
    pub headers: Headers,
    /// From sending the request to the last byte of the answer.
    pub took: Duration,
    /// The document of a 2xx, or the refusal.
    pub outcome: Result<T, Problem>,
}

/// The headers of an answer.
#[derive(Debug, Clone)]
pub struct Headers(HeaderMap);

/// Anything to send. The caller's token, device and language go along unless `headers` names the same header.
#[derive(Debug, Clone)]
pub struct RawRequest<'a> {
    pub method: Method,
    /// With its leading slash and its query.
    pub path: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: Option<Vec<u8>>,
}

/// Anything that came back.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    pub headers: Headers,
    pub took: Duration,
    pub body: Vec<u8>,
}

/// A result that was polled for.
#[derive(Debug, Clone)]
pub struct Followed {
    pub result: PurchaseResult,
    /// Calls it took.
    pub polls: u32,
}

impl Headers {
    /// One header as text; `None` also when it is not text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str().ok())
    }

    /// The answer repeats one that was given before.
    pub fn is_replay(&self) -> bool {
        self.get("idempotency-replayed") == Some("true")
    }

    /// All of them, in lower case; those that are not text are left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }

    /// The id of the request, which the server makes up where the caller sent none.
    pub fn request_id(&self) -> Option<&str> {
        self.get("x-request-id")
    }

    pub fn retry_after_secs(&self) -> Option<u64> {
        self.get(RETRY_AFTER.as_str())?.parse().ok()
    }

    pub fn etag(&self) -> Option<&str> {
        self.get(ETAG.as_str())
    }
}

impl<T> Answer<T> {
    /// The refusal, if it is one.
    pub fn problem(&self) -> Option<&Problem> {
        self.outcome.as_ref().err()
    }

    /// How long the server asked to be left alone.
    pub fn asked_wait(&self) -> Option<Duration> {
        let exact = self.problem().and_then(|problem| problem.retry_after_ms).map(Duration::from_millis);
        exact.or_else(|| self.headers.retry_after_secs().map(Duration::from_secs))
    }
}

impl Api {
    pub fn new(stack: &Stack) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .build()
            .map_err(|source| ClientError::NoAnswer { method: "setup".into(), path: String::new(), source })?;
        Ok(Self {
            http,
            base: stack.http_url.clone(),
            token: None,
            device: None,
            language: None,
            slots: None,
            watch: None,
        })
    }

    /// The same caller with a token.
    #[must_use]
    pub fn signed_in(&self, token: Token) -> Self {
        Self { token: Some(token), ..self.clone() }
    }

    /// The same caller on a device (`X-Device-Id`).
    #[must_use]
    pub fn on_device(&self, device_id: &str) -> Self {
        Self { device: Some(device_id.to_owned()), ..self.clone() }
    }

    /// The same caller, reading `zh` or `en`.
    #[must_use]
    pub fn in_language(&self, language: &str) -> Self {
        Self { language: Some(language.to_owned()), ..self.clone() }
    }

    /// The same caller with at most `calls` under way at once, shared by all further copies; more wait in line. (A
    /// browser does the same with its few connections to one host.)
    #[must_use]
    pub fn at_most(&self, calls: usize) -> Self {
        Self { slots: Some(Arc::new(Semaphore::new(calls))), ..self.clone() }
    }

    /// The same caller, whose answers are shown to `watch` before anything is made of them.
    #[must_use]
    pub fn watched(&self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self.clone() }
    }

    // ---- shopping

    /// `POST /api/seckill/buy`. `request_id` is made once per wish to buy and is the same on every retry; without one
    /// there is no protection against buying twice.
    pub async fn buy(&self, request: &BuyRequest, request_id: Option<&str>) -> Result<Answer<Accepted>, ClientError> {
        let id = request_id.map(|id| ("x-request-id", id));
        self.call(Method::POST, "/api/seckill/buy", id.as_slice(), Some(request)).await
    }

    /// `GET /api/seckill/result/{orderNo}`.
    pub async fn result(&self, order_no: &str) -> Result<Answer<PurchaseResult>, ClientError> {
        self.get(&format!("/api/seckill/result/{order_no}")).await
    }

    /// Polls the result until it is terminal, with growing random waits. Calls that fail are tried again; the last
    /// failure is the answer when the time is up.
    pub async fn follow(&self, order_no: &str, within: Duration) -> Result<Followed, ClientError> {
        let started = Instant::now();
        let mut backoff = Backoff::new(FIRST_POLL, LONGEST_POLL);
        let mut polls = 0;
        let mut asked_wait = Some(FIRST_POLL);
        let mut failure = None;
        loop {
            let wait = backoff.next_wait(asked_wait.take());
            if started.elapsed() + wait > within {
                return Err(failure
                    .unwrap_or_else(|| ClientError::TimedOut { what: format!("the result of {order_no}"), within }));
            }
            tokio::time::sleep(wait).await;
            polls += 1;
            match self.result(order_no).await {
                Ok(answer) => {
                    asked_wait = answer.asked_wait();
                    match answer.outcome {
                        Ok(result) if result.status != ResultStatus::Pending => return Ok(Followed { result, polls }),
                        Ok(_) => failure = None,
                        Err(problem) => {
                            failure = Some(ClientError::NotOurs {
                                status: problem.status,
                                path: format!("result of {order_no}"),
                                body: problem.detail,
                            });
                        }
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
    }

    /// `GET /api/orders`.
    pub async fn orders(&self, limit: Option<u32>, cursor: Option<&str>) -> Result<Answer<OrderPage>, ClientError> {
        let limit = limit.map(|limit| format!("limit={limit}"));
        let cursor = cursor.map(|cursor| format!("cursor={cursor}"));
        self.get(&format!("/api/orders{}", query(limit.into_iter().chain(cursor)))).await
    }

    /// `GET /api/order/{orderNo}`.
    pub async fn order(&self, order_no: &str) -> Result<Answer<Order>, ClientError> {
        self.get(&format!("/api/order/{order_no}")).await
    }

    /// `GET /api/order/{orderNo}/status`.
    pub async fn order_state(&self, order_no: &str) -> Result<Answer<OrderState>, ClientError> {
        self.get(&format!("/api/order/{order_no}/status")).await
    }

    /// `POST /api/order/{orderNo}/pay`: what the cashier is opened with. Asked again, it is the same payment.
    pub async fn pay(&self, order_no: &str) -> Result<Answer<PayParameters>, ClientError> {
        self.call(Method::POST, &format!("/api/order/{order_no}/pay"), &[], None::<&()>).await
    }

    /// `POST /api/order/{orderNo}/cancel`. Of an order that is cancelled already the answer is the same.
    pub async fn cancel(&self, order_no: &str) -> Result<Answer<Order>, ClientError> {
        self.call(Method::POST, &format!("/api/order/{order_no}/cancel"), &[], None::<&()>).await
    }

    // ---- looking

    /// `GET /api/seckill/time`.
    pub async fn time(&self) -> Result<Answer<ServerTime>, ClientError> {
        self.get("/api/seckill/time").await
    }

    /// `GET /api/seckill/activities`.
    pub async fn activities(&self) -> Result<Answer<ActivityList>, ClientError> {
        self.get("/api/seckill/activities").await
    }

    /// `GET /api/seckill/activities/{activityId}`.
    pub async fn activity(&self, activity_id: &str) -> Result<Answer<Activity>, ClientError> {
        self.get(&format!("/api/seckill/activities/{activity_id}")).await
    }

    // ---- running a sale

    /// `PUT /api/admin/skus/{skuId}`.
    pub async fn put_sku(&self, sku_id: &str, sku: &SkuPut) -> Result<Answer<AdminSku>, ClientError> {
        self.call(Method::PUT, &format!("/api/admin/skus/{sku_id}"), &[], Some(sku)).await
    }

    /// `PUT /api/admin/activities/{activityId}`.
    pub async fn put_activity(
        &self,
        activity_id: &str,
        activity: &ActivityPut,
    ) -> Result<Answer<AdminActivity>, ClientError> {
        self.call(Method::PUT, &format!("/api/admin/activities/{activity_id}"), &[], Some(activity)).await
    }

    /// `PUT /api/admin/activities/{activityId}/products/{skuId}`.
    pub async fn put_product(
        &self,
        activity_id: &str,
        sku_id: &str,
        product: &ProductPut,
    ) -> Result<Answer<AdminProduct>, ClientError> {
        let path = format!("/api/admin/activities/{activity_id}/products/{sku_id}");
        self.call(Method::PUT, &path, &[], Some(product)).await
    }

    /// `POST /api/admin/activities/{activityId}/{action}`.
    pub async fn activity_action(
        &self,
        activity_id: &str,
        action: ActivityAction,
    ) -> Result<Answer<AdminActivity>, ClientError> {
        let path = format!("/api/admin/activities/{activity_id}/{}", action.as_str());
        self.call(Method::POST, &path, &[], None::<&()>).await
    }

    /// `GET /api/admin/activities/{activityId}/stats`.
    pub async fn stats(&self, activity_id: &str) -> Result<Answer<Stats>, ClientError> {
        self.get(&format!("/api/admin/activities/{activity_id}/stats")).await
    }

    /// `GET /api/admin/activities/{activityId}/audit`. `bound_secs` is how long a mismatch may be in motion before it
    /// counts: 0 on a quiet sale, the server's default without one.
    pub async fn audit(&self, activity_id: &str, bound_secs: Option<u32>) -> Result<Answer<AuditReport>, ClientError> {
        let query = bound_secs.map(|secs| format!("?boundSecs={secs}")).unwrap_or_default();
        self.get(&format!("/api/admin/activities/{activity_id}/audit{query}")).await
    }

    /// `GET /api/admin/payments?state=&cursor=`: those that need people, or went back.
    pub async fn payments(
        &self,
        state: PaymentState,
        cursor: Option<&str>,
    ) -> Result<Answer<PaymentList>, ClientError> {
        let cursor = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        self.get(&format!("/api/admin/payments?state={}{cursor}", state.as_str())).await
    }

    // ---- talking to the customer service

    /// `POST /api/chat/ticket`: what a socket is opened with, once.
    pub async fn chat_ticket(&self) -> Result<Answer<Ticket>, ClientError> {
        self.call(Method::POST, "/api/chat/ticket", &[], None::<&()>).await
    }

    /// `GET /api/chat/sessions`.
    pub async fn chat_sessions(
        &self,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<Answer<SessionPage>, ClientError> {
        let limit = limit.map(|limit| format!("limit={limit}"));
        let cursor = cursor.map(|cursor| format!("cursor={cursor}"));
        self.get(&format!("/api/chat/sessions{}", query(limit.into_iter().chain(cursor)))).await
    }

    /// `GET /api/chat/sessions/{sessionId}/messages`.
    pub async fn chat_messages(
        &self,
        session_id: &str,
        stretch: Stretch,
        limit: Option<u32>,
    ) -> Result<Answer<MessagePage>, ClientError> {
        let stretch = match stretch {
            Stretch::Newest => None,
            Stretch::Before(seq) => Some(format!("before={seq}")),
            Stretch::After(seq) => Some(format!("after={seq}")),
        };
        let limit = limit.map(|limit| format!("limit={limit}"));
        let query = query(stretch.into_iter().chain(limit));
        self.get(&format!("/api/chat/sessions/{session_id}/messages{query}")).await
    }

    /// `POST /api/chat/sessions/{sessionId}/rate`, once it is closed.
    pub async fn rate(&self, session_id: &str, rating: &RatePost) -> Result<Answer<Rating>, ClientError> {
        self.call(Method::POST, &format!("/api/chat/sessions/{session_id}/rate"), &[], Some(rating)).await
    }

    /// `POST /api/chat/uploads`: leave to upload one image.
    pub async fn chat_upload(&self, upload: &UploadPost) -> Result<Answer<UploadForm>, ClientError> {
        self.call(Method::POST, "/api/chat/uploads", &[], Some(upload)).await
    }

    /// Sends the file to the store of images, with the form that [`Api::chat_upload`] answered: 204 when it was taken. Our
    /// token is not for that store and stays here.
    pub async fn post_form(&self, form: &UploadForm, file: &[u8]) -> Result<RawAnswer, ClientError> {
        let no_answer =
            |source| ClientError::NoAnswer { method: Method::POST.to_string(), path: "the upload form".into(), source };
        let boundary = format!("hotcake-{:032x}", rand::random::<u128>());
        let outgoing = self
            .http
            .post(&form.url)
            .header(CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}"))
            .body(multipart(&boundary, form, file));
        let sent_at = Instant::now();
        let incoming = outgoing.send().await.map_err(no_answer)?;
        received(incoming, sent_at, "the upload form", no_answer).await
    }

    /// `GET /api/chat/agents`.
    pub async fn chat_agents(&self) -> Result<Answer<AgentList>, ClientError> {
        self.get("/api/chat/agents").await
    }

    /// `PUT /api/admin/agents/{agentId}`.
    pub async fn put_agent(&self, agent_id: &str, agent: &AgentPut) -> Result<Answer<Agent>, ClientError> {
        self.call(Method::PUT, &format!("/api/admin/agents/{agent_id}"), &[], Some(agent)).await
    }

    // ---- anything

    /// Sends a request as it stands and hands back what came.
    pub async fn raw(&self, request: RawRequest<'_>) -> Result<RawAnswer, ClientError> {
        let no_answer = |source| ClientError::NoAnswer {
            method: request.method.to_string(),
            path: request.path.to_owned(),
            source,
        };
        let mut outgoing = self.http.request(request.method.clone(), format!("{}{}", self.base, request.path));
        let own = [
            (AUTHORIZATION.as_str(), self.token.as_ref().map(|token| format!("Bearer {}", token.text()))),
            ("x-device-id", self.device.clone()),
            (ACCEPT_LANGUAGE.as_str(), self.language.clone()),
        ];
        for (name, value) in own {
            let overruled = request.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
            if let Some(value) = value
                && !overruled
            {
                outgoing = outgoing.header(name, value);
            }
        }
        for (name, value) in request.headers {
            outgoing = outgoing.header(*name, *value);
        }
        if let Some(body) = request.body {
            outgoing = outgoing.body(body);
        }
        let _slot = match &self.slots {
            // The semaphore is never closed; without a slot the call goes ahead all the same.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let sent_at = Instant::now();
        let incoming = outgoing.send().await.map_err(no_answer)?;
        let answer = received(incoming, sent_at, request.path, no_answer).await?;
        if let Some(watch) = self.watch {
            watch(&request.method, request.path, &answer);
        }
        Ok(answer)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, ClientError> {
        self.call(Method::GET, path, &[], None::<&()>).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&impl Serialize>,
    ) -> Result<Answer<T>, ClientError> {
        let body = body.map(serde_json::to_vec).transpose().map_err(|source| ClientError::Drift {
            status: 0,
            path: path.to_owned(),
            body: "the request".to_owned(),
            source,
        })?;
        let mut headers = headers.to_vec();
        if body.is_some() {
            headers.push((CONTENT_TYPE.as_str(), "application/json"));
        }
        self.raw(RawRequest { method, path, headers: &headers, body }).await?.read(path)
    }
}

/// All of an answer, up to the bound.
async fn received(
    mut incoming: reqwest::Response,
    sent_at: Instant,
    path: &str,
    no_answer: impl Fn(reqwest::Error) -> ClientError,
) -> Result<RawAnswer, ClientError> {
    let mut body = Vec::new();
    while let Some(chunk) = incoming.chunk().await.map_err(&no_answer)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(ClientError::AnswerTooLong { path: path.to_owned(), limit: MAX_ANSWER_BYTES });
        }
        body.extend_from_slice(&chunk);
    }
    let headers = Headers(incoming.headers().clone());
    Ok(RawAnswer { status: incoming.status().as_u16(), headers, took: sent_at.elapsed(), body })
}

fn query(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

/// A form as browsers send it (RFC 7578). The file comes last: the store reads no field after it.
fn multipart(boundary: &str, form: &UploadForm, file: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in &form.fields {
        let value = value.reveal();
        let field = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(field.as_bytes());
    }
    let head =
        "content-disposition: form-data; name=\"file\"; filename=\"image\"\r\ncontent-type: application/octet-stream";
    body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

impl RawAnswer {
    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the body as the contract's document or problem.
    pub fn read<T: DeserializeOwned>(self, path: &str) -> Result<Answer<T>, ClientError> {
        let media = self.headers.get(CONTENT_TYPE.as_str()).and_then(|text| text.split(';').next()).map(str::trim);
        let outcome = match (self.status, media) {
            (200..=299, Some("application/json")) => serde_json::from_slice(&self.body).map(Ok),
            (_, Some("application/problem+json")) => serde_json::from_slice(&self.body).map(Err),
            _ => {
                return Err(ClientError::NotOurs { status: self.status, path: path.to_owned(), body: self.excerpt() });
            }
        };
        match outcome {
            Ok(outcome) => Ok(Answer { status: self.status, headers: self.headers, took: self.took, outcome }),
            Err(source) => {
                let body = self.excerpt();
                Err(ClientError::Drift { status: self.status, path: path.to_owned(), body, source })
            }
        }
    }

    fn excerpt(&self) -> String {
        self.text().chars().take(EXCERPT_CHARS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::ProblemCode;
    use reqwest::header::HeaderValue;

    fn answer(status: u16, media: &'static str, body: &str) -> RawAnswer {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        RawAnswer { status, headers: Headers(headers), took: Duration::ZERO, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn a_form_has_its_fields_before_the_file() {
        let form: UploadForm = serde_json::from_str(
            r#"{"key":"s1/a.png","url":"http://h/b","fields":{"key":"s1/a.png","policy":"p"},"expiresAt":"2026-06-01T02:05:00Z"}"#,
        )
        .unwrap();
        let body = String::from_utf8(multipart("b", &form, b"PNG")).unwrap();
        let parts: Vec<&str> = body.split("--b").collect();
        assert_eq!(parts.len(), 5, "{body}");
        assert_eq!(parts[1], "\r\ncontent-disposition: form-data; name=\"key\"\r\n\r\ns1/a.png\r\n");
        assert!(parts[3].contains("name=\"file\"") && parts[3].ends_with("\r\n\r\nPNG\r\n"), "{body}");
        assert_eq!(parts[4], "--\r\n");
    }

    #[test]
    fn a_document_a_problem_and_anything_else_are_told_apart() {
        let time: Answer<ServerTime> =
            answer(200, "application/json; charset=utf-8", r#"{"now":5}"#).read("/t").unwrap();
        assert_eq!(time.outcome.unwrap().now, 5);

        let refusal = r#"{"type":"about:blank","title":"t","status":429,"detail":"d","code":"RATE_LIMITED","requestId":"r","retryAfterMs":70}"#;
        let refused: Answer<ServerTime> = answer(429, "application/problem+json", refusal).read("/t").unwrap();
        assert_eq!(refused.problem().unwrap().code, ProblemCode::RateLimited);
        assert_eq!(refused.asked_wait(), Some(Duration::from_millis(70)));

        let gateway =
            answer(404, "application/json", r#"{"message":"Not Found"}"#).read::<ServerTime>("/t").unwrap_err();
        assert!(matches!(gateway, ClientError::NotOurs { status: 404, .. }), "{gateway}");
        let drift = answer(200, "application/json", r#"{"now":"5"}"#).read::<ServerTime>("/t").unwrap_err();
        assert!(matches!(drift, ClientError::Drift { status: 200, .. }), "{drift}");
    }
}
