//! The way to one socket: API Gateway's `@connections`.
//!
//! It may say that the socket is gone (410), that it is asked too much (429), fail (5xx), or not answer at all. The last
//! three get a few tries with full jitter, each bounded; then the caller is told, and goes on.

use std::time::Duration;

use aws_sdk_apigatewaymanagement::Client;
use aws_sdk_apigatewaymanagement::config::retry::RetryConfig;
use aws_sdk_apigatewaymanagement::config::timeout::TimeoutConfig;
use aws_sdk_apigatewaymanagement::error::SdkError;
use aws_sdk_apigatewaymanagement::primitives::Blob;
use kernel::backoff::full_jitter;

use crate::ids::ConnectionId;

/// Tries of one push, the longest time of each, and the waits between them.
const TRIES: u32 = 3;
const TRY_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_BASE: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(1);

const GONE: u16 = 410;
const TOO_MANY_REQUESTS: u16 = 429;
const SERVER_ERRORS: std::ops::RangeInclusive<u16> = 500..=599;

/// What became of a push.
#[derive(Debug)]
pub enum Posted {
    /// The gateway has taken it. Whether the client gets it, only the client can say.
    Delivered,
    /// There is no such socket, or there is none yet.
    Gone,
    Failed(GatewayError),
}

/// Not taken after all tries, or refused as it is (no permission, too large).
#[derive(Debug, thiserror::Error)]
#[error("the gateway did not take a frame")]
pub struct GatewayError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// What an answer of the gateway says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Gone,
    Transient,
    Refused,
}

#[derive(Debug, Clone)]
pub struct Gateway {
    client: Client,
}

impl Gateway {
    /// `client` has the management endpoint. Its own retries and time-outs are replaced by those above.
    pub fn new(client: &Client) -> Self {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(TRY_TIMEOUT).build();
        let config =
            client.config().to_builder().retry_config(RetryConfig::disabled()).timeout_config(timeouts).build();
        Self { client: Client::from_conf(config) }
    }

    /// Sends one text frame.
    pub async fn post(&self, connection_id: &ConnectionId, frame: &str) -> Posted {
        let call = self.client.post_to_connection().connection_id(connection_id.as_str()).data(Blob::new(frame));
        let mut attempt = 0;
        loop {
            let error = match Box::pin(call.clone().send()).await {
                Ok(_) => return Posted::Delivered,
                Err(error) => error,
            };
            attempt += 1;
            match judge(&error) {
                Verdict::Gone => return Posted::Gone,
                Verdict::Transient if attempt < TRIES => {
                    tokio::time::sleep(full_jitter(attempt - 1, RETRY_BASE, RETRY_CAP)).await;
                }
                Verdict::Transient | Verdict::Refused => {
                    return Posted::Failed(GatewayError(Box::new(error)));
                }
            }
        }
    }

    /// Closes the socket. One that is gone already is closed.
    pub async fn close(&self, connection_id: &ConnectionId) -> Result<(), GatewayError> {
        match Box::pin(self.client.delete_connection().connection_id(connection_id.as_str()).send()).await {
            Ok(_) => Ok(()),
            Err(error) if judge(&error) == Verdict::Gone => Ok(()),
            Err(error) => Err(GatewayError(Box::new(error))),
        }
    }
}

/// By the HTTP status: what stands between us and the API (and the local gateway) does not always name the error's type.
fn judge<E>(error: &SdkError<E>) -> Verdict {
    match error.raw_response().map(|response| response.status().as_u16()) {
        Some(GONE) => Verdict::Gone,
        Some(status) if status == TOO_MANY_REQUESTS || SERVER_ERRORS.contains(&status) => Verdict::Transient,
        Some(_) => Verdict::Refused,
        // No answer: refused, cut, or too slow.
        None => Verdict::Transient,
    }
}
