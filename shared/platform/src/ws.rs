//! Events of the WebSocket API: a connection opens, sends a frame, or is gone.
//!
//! A function answers with a status and no body: on AWS a body goes nowhere, while the local gateway would send it to the
//! socket. What a client is to read is posted to its connection. A refused `$connect` refuses the handshake; on the other
//! routes the status is for the logs and alarms.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;

use kernel::time::UnixMillis;
use lambda_runtime::{LambdaEvent, service_fn};
use serde::{Deserialize, Deserializer, Serialize};

use crate::MAX_BODY_BYTES;
use crate::boot::Error;
use crate::telemetry::{Stopwatch, chain};

/// What happened on a connection, reduced to what is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    request_context: RequestContext,
    #[serde(default)]
    headers: Pairs,
    #[serde(default)]
    query_string_parameters: Pairs,
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    route_key: String,
    connection_id: String,
    request_id: String,
    message_id: Option<String>,
    connected_at: i64,
    request_time_epoch: i64,
}

/// Headers, query or path parameters: few, so they are searched one by one. The gateway leaves the object out, or sends
/// `null`, when there are none.
#[derive(Default)]
struct Pairs(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<BTreeMap<String, String>>::deserialize(deserializer).map(|pairs| Self(pairs.unwrap_or_default()))
    }
}

impl Pairs {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// By a name in any case. HTTP APIs send header names in lower case, WebSocket APIs as the client wrote them.
    fn get_any_case(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Why a frame cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the frame is larger than 16 KiB")]
    TooLarge,
    #[error("the frame is not text")]
    NotText,
}

/// How an event was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// 200.
    Accepted,
    /// 400: a parameter of a `$connect` cannot be read.
    Malformed,
    /// 401: the credentials of a `$connect` are not valid.
    Unauthenticated,
    /// 403: the page that opens a `$connect` is none of ours.
    Forbidden,
    /// 503: something that is needed was down.
    Unavailable,
}

impl Event {
    /// The gateway's id of this event.
    pub fn id(&self) -> &str {
        &self.request_context.request_id
    }

    /// `$connect`, `$default` or `$disconnect`.
    pub fn route(&self) -> &str {
        &self.request_context.route_key
    }

    pub fn connection_id(&self) -> &str {
        &self.request_context.connection_id
    }

    /// The gateway's id of a frame; none on `$connect` and `$disconnect`.
    pub fn message_id(&self) -> Option<&str> {
        self.request_context.message_id.as_deref()
    }

    /// When the connection was opened.
    pub fn connected_at(&self) -> UnixMillis {
        UnixMillis::new(self.request_context.connected_at)
    }

    /// When the gateway received this event.
    pub fn request_time(&self) -> UnixMillis {
        UnixMillis::new(self.request_context.request_time_epoch)
    }

    /// A header of the handshake, by its name in any case. Only `$connect` has any.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get_any_case(name)
    }

    /// A query parameter of the handshake. Only `$connect` has any.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query_string_parameters.get(name)
    }

    /// The frame.
    pub fn text(&self) -> Result<&str, FrameError> {
        match self.body.as_deref() {
            Some(_) if self.is_base64_encoded => Err(FrameError::NotText),
            Some(text) if text.len() > MAX_BODY_BYTES => Err(FrameError::TooLarge),
            Some(text) => Ok(text),
            None => Err(FrameError::NotText),
        }
    }
}

impl fmt::Debug for Event {
    // Query, headers and body may hold tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.id()).field("route", &self.route()).finish_non_exhaustive()
    }
}

impl Reply {
    /// Something that is needed was down; the log is told what.
    pub fn failed(error: &(dyn StdError + 'static)) -> Self {
        tracing::error!(cause = chain(error), "failed");
        Self::Unavailable
    }

    const fn status(self) -> u16 {
        match self {
            Self::Accepted => 200,
            Self::Malformed => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::Unavailable => 503,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
}

/// Serves events until Lambda ends the process.
pub async fn serve<S>(state: &S, handle: impl AsyncFn(&S, Event) -> Reply) -> Result<(), Error> {
    let handle = &handle;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Event>| async move {
        Ok::<_, Error>(answer(state, handle, event.payload).await)
    }))
    .await
}

async fn answer<S>(state: &S, handle: &impl AsyncFn(&S, Event) -> Reply, event: Event) -> Answer {
    let stopwatch = Stopwatch::start();
    let (id, route, connection) = (event.id().to_owned(), event.route().to_owned(), event.connection_id().to_owned());
    // Boxed: the AWS clients' futures nest too deeply for the compiler to lay out one with all of them inside.
    let status = Box::pin(handle(state, event)).await.status();
    tracing::info!(
        gatewayRequestId = id,
        route,
        connectionId = connection,
        status,
        ms = stopwatch.millis(),
        "answered"
    );
    Answer { status_code: status }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(members: Value) -> Event {
        let mut event = json!({
            "requestContext": {
                "routeKey": "$default", "eventType": "MESSAGE", "connectionId": "c1=", "requestId": "gw-1", "messageId": "m1",
                "connectedAt": 1_780_000_000_000_i64, "requestTimeEpoch": 1_780_000_000_500_i64, "stage": "prod",
            },
            "isBase64Encoded": false,
        });
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn frames_are_text_up_to_a_bound() {
        assert_eq!(event(json!({"body": "{}"})).text(), Ok("{}"));
        assert_eq!(event(json!({"body": "x".repeat(MAX_BODY_BYTES)})).text().map(str::len), Ok(MAX_BODY_BYTES));
        assert_eq!(event(json!({"body": "x".repeat(MAX_BODY_BYTES + 1)})).text(), Err(FrameError::TooLarge));
        assert_eq!(event(json!({"body": "e30=", "isBase64Encoded": true})).text(), Err(FrameError::NotText));
        assert_eq!(event(json!({"body": null})).text(), Err(FrameError::NotText));
    }

    #[test]
    fn a_handshake_has_headers_and_a_query_and_other_events_may_have_none() {
        let handshake = event(json!({
            "headers": {"Authorization": "Bearer canary"}, "queryStringParameters": {"token": "canary", "device": "d1"}, "body": null,
        }));
        assert_eq!(handshake.header("authorization"), Some("Bearer canary"));
        assert_eq!((handshake.query("device"), handshake.query("ticket")), (Some("d1"), None));
        assert!(!format!("{handshake:?}").contains("canary"));

        let frame = event(json!({"headers": null, "queryStringParameters": null}));
        assert_eq!((frame.header("authorization"), frame.query("token")), (None, None));
        assert_eq!((frame.connection_id(), frame.message_id(), frame.route()), ("c1=", Some("m1"), "$default"));
        assert_eq!(frame.request_time().millis_since(frame.connected_at()), 500);
    }

    #[tokio::test]
    async fn an_answer_is_a_status_without_a_body() {
        for (reply, status) in [
            (Reply::Accepted, 200),
            (Reply::Malformed, 400),
            (Reply::Unauthenticated, 401),
            (Reply::Forbidden, 403),
            (Reply::Unavailable, 503),
        ] {
            let answer = answer(&(), &async |(): &(), _| reply, event(json!({}))).await;
            assert_eq!(serde_json::to_value(answer).unwrap(), json!({"statusCode": status}));
        }
        assert_eq!(Reply::failed(&std::io::Error::other("down")), Reply::Unavailable);
    }
}
