//! The queue between admission and commitment. It may lose, double or reorder messages: the row is the outbox, and the sweep
//! sends again what did not get through.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use kernel::ids::{ActivityId, OrderNo, Quantity, SkuId, UserId};
use serde::{Deserialize, Serialize};

use crate::offer::OfferId;
use crate::store::orders::OrderRow;

/// SQS takes ten messages a call.
const MESSAGES_A_CALL: usize = 10;

/// All that committing an order needs, so that the consumer reads no row first. The commit is conditional on the row
/// saying the same, so a message that lies changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrderMessage {
    pub order_no: OrderNo,
    pub user_id: UserId,
    pub activity_id: ActivityId,
    pub sku_id: SkuId,
    pub qty: Quantity,
    pub limit_per_user: u32,
    pub pay_window_secs: u32,
}

impl OrderMessage {
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
        const OPERATION: &str = "SendMessageBatch";
        let failed =
            |error: Box<dyn std::error::Error + Send + Sync>| QueueError { operation: OPERATION, source: error };
        let mut refused = Vec::new();
        for chunk in messages.chunks(MESSAGES_A_CALL) {
            let mut entries = Vec::with_capacity(chunk.len());
            for (index, message) in chunk.iter().enumerate() {
                let body = serde_json::to_string(message).map_err(|error| failed(error.into()))?;
                let entry = SendMessageBatchRequestEntry::builder().id(index.to_string()).message_body(body).build();
                entries.push(entry.map_err(|error| failed(error.into()))?);
            }
            let answer = self
                .sqs
                .send_message_batch()
                .queue_url(&self.url)
                .set_entries(Some(entries))
                .send()
                .await
                .map_err(|e| failed(e.into()))?;
            let indexes = answer.failed().iter().filter_map(|entry| entry.id().parse::<usize>().ok());
            refused.extend(indexes.filter_map(|index| chunk.get(index)).map(|message| message.order_no.clone()));
        }
        Ok(refused)
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
