//! Messages that failed too often. None is an end: its order is in the rows, where the sweep finds it. So a dead letter is a
//! sign that something is wrong, and once that is put right, the letters are sent again as they are, or done away with.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use kernel::ids::OrderNo;
use kernel::time::UnixMillis;
use serde::Serialize;

use crate::order::EndReason;
use crate::queue::{Depth, OrderMessage, Queue, QueueError};
use crate::store::Orders;
use crate::store::orders::GaveUp;
use crate::{SaleError, store};

/// SQS gives ten messages a call.
const MESSAGES_A_CALL: i32 = 10;
/// The most letters looked at, sent again or settled in one go.
pub const MAX_LETTERS: usize = 100;
/// How long letters are kept from others while they are worked on, in seconds.
const WORK_SECS: i32 = 60;
/// A queue on several servers may say that it is empty when it is not: asked so often.
const EMPTY_ANSWERS: usize = 3;

/// One dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    pub message_id: String,
    /// As it was sent.
    pub body: String,
    /// Absent when the body is not what this queue carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_no: Option<OrderNo>,
    /// When it was first sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<UnixMillis>,
}

/// What settling a letter found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Settled {
    /// The order was still being made, and is FAILED now; the sweep gives its units back and tells the buyer.
    Failed,
    /// The order was decided already.
    Decided,
    /// There is no such order.
    NoOrder,
    /// The body is not what this queue carries. If there was an order behind it, its row is the sweep's.
    Malformed,
}

/// The dead-letter queue of the orders queue.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    sqs: Client,
    url: String,
    /// Where letters came from.
    origin: String,
}

impl DeadLetters {
    pub fn new(sqs: Client, url: String, origin: String) -> Self {
        Self { sqs, url, origin }
    }

    pub async fn depth(&self) -> Result<Depth, QueueError> {
        Queue::new(self.sqs.clone(), self.url.clone()).depth().await
    }

    /// At most [`MAX_LETTERS`] letters; they stay where they are.
    pub async fn list(&self) -> Result<Vec<Letter>, QueueError> {
        let mut letters = Vec::new();
        let mut handles = Vec::new();
        while letters.len() < MAX_LETTERS {
            let messages = self.receive().await?;
            if messages.is_empty() {
                break;
            }
            handles.extend(messages.iter().filter_map(|message| message.receipt_handle.clone()));
            letters.extend(messages.iter().map(letter));
        }
        for handle in handles {
            // One that is not given back now comes back by itself.
            let back = self.sqs.change_message_visibility().queue_url(&self.url).receipt_handle(handle);
            if let Err(error) = back.visibility_timeout(0).send().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "a dead letter is back in a minute");
            }
        }
        Ok(letters)
    }

    /// Sends letters again, byte for byte; answers how many. One that is sent and not yet deleted when this stops is sent once
    /// more the next time, which does no harm.
    pub async fn redrive(&self) -> Result<usize, QueueError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| QueueError::new("redrive", error);
        let mut redriven = 0;
        while redriven < MAX_LETTERS {
            let messages = self.receive().await?;
            if messages.is_empty() {
                break;
            }
            for message in messages {
                let body = message.body.clone().unwrap_or_default();
                let sending = self.sqs.send_message().queue_url(&self.origin).message_body(body);
                sending.send().await.map_err(|error| failed(error.into()))?;
                kernel::crash::point("redrive.after_send");
                self.delete(&message).await?;
                redriven += 1;
            }
        }
        Ok(redriven)
    }

    /// Ends what the letters are about, and does away with them.
    pub async fn settle(&self, orders: &Orders, now: UnixMillis) -> Result<Vec<(Letter, Settled)>, SaleError> {
        let mut settled = Vec::new();
        while settled.len() < MAX_LETTERS {
            let messages = self.receive().await?;
            if messages.is_empty() {
                break;
            }
            for message in messages {
                let letter = letter(&message);
                let what = match &letter.order_no {
                    None => Settled::Malformed,
                    Some(order_no) => end(orders, order_no, now).await?,
                };
                tracing::warn!(message_id = letter.message_id, order_no = ?letter.order_no, ?what, "a dead letter is settled");
                self.delete(&message).await?;
                settled.push((letter, what));
            }
        }
        Ok(settled)
    }

    async fn receive(&self) -> Result<Vec<Message>, QueueError> {
        for _ in 0..EMPTY_ANSWERS {
            let answer = self
                .sqs
                .receive_message()
                .queue_url(&self.url)
                .max_number_of_messages(MESSAGES_A_CALL)
                .visibility_timeout(WORK_SECS)
                .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
                .send()
                .await
                .map_err(|error| QueueError::new("ReceiveMessage", error.into()))?;
            if let Some(messages) = answer.messages.filter(|messages| !messages.is_empty()) {
                return Ok(messages);
            }
        }
        Ok(Vec::new())
    }

    async fn delete(&self, message: &Message) -> Result<(), QueueError> {
        let handle = message.receipt_handle.clone().unwrap_or_default();
        let deleting = self.sqs.delete_message().queue_url(&self.url).receipt_handle(handle);
        deleting.send().await.map_err(|error| QueueError::new("DeleteMessage", error.into()))?;
        Ok(())
    }
}

fn letter(message: &Message) -> Letter {
    let body = message.body.clone().unwrap_or_default();
    let sent_at = message.attributes.as_ref().and_then(|attributes| {
        attributes.get(&MessageSystemAttributeName::SentTimestamp)?.parse().ok().map(UnixMillis::new)
    });
    Letter {
        message_id: message.message_id.clone().unwrap_or_default(),
        order_no: serde_json::from_str::<OrderMessage>(&body).ok().map(|order| order.order_no),
        body,
        sent_at,
    }
}

async fn end(orders: &Orders, order_no: &OrderNo, now: UnixMillis) -> Result<Settled, store::StoreError> {
    match orders.fail(order_no, EndReason::GaveUp, now).await? {
        GaveUp::Failed => Ok(Settled::Failed),
        GaveUp::Was(_) => Ok(Settled::Decided),
        GaveUp::Missing => Ok(Settled::NoOrder),
    }
}
