//! The queue that a new connection goes through before it is greeted.
//!
//! `$connect` cannot write to its own socket: it is open only after `$connect` has been answered. So it leaves a word here
//! that comes back two seconds later, when whoever has not spoken by then is made live and told what they missed. A greeting
//! that is lost costs nothing that the first frame does not make good.

use std::error::Error;

use aws_sdk_sqs::Client;
use serde::{Deserialize, Serialize};

use crate::ids::ConnectionId;

/// Longer than a handshake takes to be over once `$connect` is answered; most clients have spoken by then.
const DELAY_SECS: i32 = 2;

/// What a greeting says; the connection's row says the rest. Members that are not known are passed over: old and new
/// functions run side by side during a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Greeting {
    pub connection_id: ConnectionId,
}

/// The queue did not take a greeting.
#[derive(Debug, thiserror::Error)]
#[error("the queue of greetings does not answer")]
pub struct GreetingError(#[source] Box<dyn Error + Send + Sync>);

/// One SQS queue.
#[derive(Debug, Clone)]
pub struct Greetings {
    sqs: Client,
    url: String,
}

impl Greetings {
    pub fn new(sqs: Client, url: String) -> Self {
        Self { sqs, url }
    }

    pub async fn send(&self, connection_id: ConnectionId) -> Result<(), GreetingError> {
        let greeting = Greeting { connection_id };
        let body = serde_json::to_string(&greeting).map_err(|error| GreetingError(error.into()))?;
        let call = self.sqs.send_message().queue_url(&self.url).message_body(body).delay_seconds(DELAY_SECS);
        match call.send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(GreetingError(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_names_its_connection() {
        let connection_id = ConnectionId::try_from("L0SM9cOFvHcCIhw=".to_owned()).unwrap();
        let greeting = Greeting { connection_id };
        let json = r#"{"connectionId":"L0SM9cOFvHcCIhw="}"#;
        assert_eq!(serde_json::to_string(&greeting).unwrap(), json);
        assert_eq!(serde_json::from_str::<Greeting>(json).unwrap(), greeting);
        assert!(serde_json::from_str::<Greeting>(r#"{"connectionId":"c1","new":1}"#).is_ok());
        assert!(serde_json::from_str::<Greeting>(r#"{"connectionId":"a#b"}"#).is_err());
    }
}
