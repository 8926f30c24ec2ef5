//! The queue between admission and commitment. It may lose, double or reorder messages: the row is the outbox, and the sweep
//! sends again what did not get through.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use kernel::ids::{ActivityId, OrderNo, Quantity, SkuId, UserId};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::offer::{Allowance, OfferId};
use crate::store::orders::OrderRow;

/// SQS takes ten messages a call.
const MESSAGES_A_CALL: usize = 10;

/// All that committing an order needs, so that the consumer reads no row first. The commit is conditional on the row
/// saying the same, so a message that lies changes nothing. Members that are not known are passed over: while a new version is
/// being deployed, its buyers' messages meet consumers of the old one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderMessage {
    pub order_no: OrderNo,
    pub user_id: UserId,
    pub activity_id: ActivityId,
    pub sku_id: SkuId,
    pub qty: Quantity,
    pub limit_per_user: u32,
    /// See [`Allowance::limit_day`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_day: Option<i64>,
    pub pay_window_secs: u32,
}

impl OrderMessage {
    pub(crate) fn allowance(&self) -> Allowance {
        Allowance { user_id: self.user_id.clone(), limit_day: self.limit_day }
    }

    pub fn offer(&self) -> OfferId {
        OfferId { activity_id: self.activity_id.clone(), sku_id: self.sku_id.clone() }
    }
}

impl From<&OrderRow> for OrderMessage {
    fn from(row: &OrderRow) -> Self {
        Self {
            order_no: row.order_no.clone(),
            user_id: row.user_id.clone(),
            activity_id: row.activity_id.clone(),
            sku_id: row.sku_id.clone(),
            qty: row.qty,
            limit_per_user: row.terms.limit_per_user,
            limit_day: row.terms.limit_day,
            pay_window_secs: row.terms.pay_window_secs,
        }
    }
}

/// Messages of a queue, as SQS counts them: approximately, a moment late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub waiting: u64,
    pub in_flight: u64,
    pub delayed: u64,
}

impl Depth {
    pub fn all(self) -> u64 {
        self.waiting + self.in_flight + self.delayed
    }
}

/// The queue did not take or tell.
#[derive(Debug, thiserror::Error)]
#[error("the queue does not answer: {operation}")]
pub struct QueueError {
    operation: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl QueueError {
    pub(crate) fn new(operation: &'static str, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self { operation, source }
    }
}

/// One SQS queue.
#[derive(Debug, Clone)]
pub struct Queue {
    sqs: Client,
    url: String,
}

impl Queue {
    pub fn new(sqs: Client, url: String) -> Self {
        Self { sqs, url }
    }

    pub async fn send(&self, message: &OrderMessage) -> Result<(), QueueError> {
        const OPERATION: &str = "SendMessage";
        let body = serde_json::to_string(message)
            .map_err(|error| QueueError { operation: OPERATION, source: error.into() })?;
        match self.sqs.send_message().queue_url(&self.url).message_body(body).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(QueueError { operation: OPERATION, source: error.into() }),
        }
    }

    /// Sends many; answers the order numbers that the queue did not take.
    pub async fn send_all(&self, messages: &[OrderMessage]) -> Result<Vec<OrderNo>, QueueError> {
        let entries: Vec<(&OrderNo, &OrderMessage, i32)> =
            messages.iter().map(|message| (&message.order_no, message, 0)).collect();
        send_batches(&self.sqs, &self.url, &entries).await
    }

    pub async fn depth(&self) -> Result<Depth, QueueError> {
        const NAMES: [QueueAttributeName; 3] = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let answer =
            self.sqs.get_queue_attributes().queue_url(&self.url).set_attribute_names(Some(NAMES.to_vec())).send().await;
        let answer = answer.map_err(|error| QueueError { operation: "GetQueueAttributes", source: error.into() })?;
        let [waiting, in_flight, delayed] = NAMES.map(|name| {
            answer
                .attributes()
                .and_then(|attributes| attributes.get(&name))
                .and_then(|count| count.parse().ok())
                .unwrap_or(0)
        });
        Ok(Depth { waiting, in_flight, delayed })
    }
}

/// SQS keeps a message back for at most this long, in seconds.
pub const MAX_DELAY_SECS: i32 = 900;

/// A word to look at an order, after a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reminder {
    pub order_no: OrderNo,
    /// 0 to [`MAX_DELAY_SECS`].
    pub(crate) delay_secs: i32,
}

impl Reminder {
    /// At once.
    pub fn now(order_no: OrderNo) -> Self {
        Self { order_no, delay_secs: 0 }
    }

    /// At the instant `due`, or as near to it as the queue can: then another hop follows.
    pub fn at(order_no: OrderNo, due: UnixMillis, now: UnixMillis) -> Self {
        // Rounded up: a reminder that comes a moment early costs another one.
        let secs = due.millis_since(now).max(0).saturating_add(999) / 1_000;
        Self { order_no, delay_secs: i32::try_from(secs).unwrap_or(MAX_DELAY_SECS).min(MAX_DELAY_SECS) }
    }
}

/// What a reminder says. The order's row says the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReminderMessage {
    pub order_no: OrderNo,
}

/// The queue that brings order numbers back when something is due to them. A reminder that is lost is the sweep's to make
/// good, so the queue needs no dead letters.
#[derive(Debug, Clone)]
pub struct Reminders {
    sqs: Client,
    url: String,
}

impl Reminders {
    pub fn new(sqs: Client, url: String) -> Self {
        Self { sqs, url }
    }

    /// Sends some. What the queue does not take is only logged.
    pub async fn send(&self, reminders: &[Reminder]) -> Result<(), QueueError> {
        let messages: Vec<ReminderMessage> =
            reminders.iter().map(|reminder| ReminderMessage { order_no: reminder.order_no.clone() }).collect();
        let entries: Vec<(&OrderNo, &ReminderMessage, i32)> = reminders
            .iter()
            .zip(&messages)
            .map(|(reminder, message)| (&reminder.order_no, message, reminder.delay_secs))
            .collect();
        let refused = send_batches(&self.sqs, &self.url, &entries).await?;
        if !refused.is_empty() {
            tracing::warn!(refused = refused.len(), "reminders are left to the sweep");
        }
        Ok(())
    }
}

/// Sends bodies with their delays in seconds; answers the order numbers that the queue did not take.
async fn send_batches<T: Serialize>(
    sqs: &Client,
    url: &str,
    entries: &[(&OrderNo, &T, i32)],
) -> Result<Vec<OrderNo>, QueueError> {
    const OPERATION: &str = "SendMessageBatch";
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| QueueError { operation: OPERATION, source: error };
    let mut refused = Vec::new();
    for chunk in entries.chunks(MESSAGES_A_CALL) {
        let mut batch = Vec::with_capacity(chunk.len());
        for (index, (_, message, delay_secs)) in chunk.iter().enumerate() {
            let body = serde_json::to_string(message).map_err(|error| failed(error.into()))?;
            let entry = SendMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .message_body(body)
                .set_delay_seconds((*delay_secs > 0).then_some(*delay_secs))
                .build();
            batch.push(entry.map_err(|error| failed(error.into()))?);
        }
        let answer = sqs.send_message_batch().queue_url(url).set_entries(Some(batch)).send().await;
        let answer = answer.map_err(|error| failed(error.into()))?;
        let indexes = answer.failed().iter().filter_map(|entry| entry.id().parse::<usize>().ok());
        refused.extend(indexes.filter_map(|index| chunk.get(index)).map(|(order_no, ..)| (*order_no).clone()));
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_delay_is_longer_than_the_queue_can_keep() {
        let now = UnixMillis::new(1_780_000_000_000);
        let order_no: OrderNo = "SK1".parse().unwrap();
        for (millis, delay_secs) in [
            (i64::MIN, 0),
            (-1, 0),
            (0, 0),
            (1, 1),
            (1_000, 1),
            (1_001, 2),
            (899_000, 899),
            (900_000, 900),
            (900_001, 900),
            (1_800_000, 900),
            (i64::MAX, 900),
        ] {
            assert_eq!(Reminder::at(order_no.clone(), now.plus_millis(millis), now).delay_secs, delay_secs, "{millis}");
        }
        assert_eq!(Reminder::now(order_no).delay_secs, 0);
    }
}
