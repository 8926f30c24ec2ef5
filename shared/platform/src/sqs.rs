//! Batches from a queue.
//!
//! A batch is answered message by message: what is [`Disposition::Done`] is deleted, the rest is reported and comes back,
//! after enough tries to the dead-letter queue. A body that is not what this queue carries is poison and never reaches the
//! handler. A report with an identifier that SQS does not know would make Lambda deliver the whole batch again, done messages
//! too, so a message without an identifier is left out of it.

use std::fmt;

use kernel::time::UnixMillis;
use lambda_runtime::{LambdaEvent, service_fn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::boot::Error;
use crate::telemetry::Stopwatch;

/// The largest body of a message, in bytes. Ours have some hundred.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Its effect is durable, or was already.
    Done,
    /// Something that is needed was down: the message comes back.
    Retry,
    /// It can never succeed: it comes back until the queue moves it to the dead-letter queue.
    Poison,
}

/// Messages to handle in one call.
#[derive(Debug)]
pub struct Batch<T> {
    pub messages: Vec<Message<T>>,
    /// When Lambda ends this call.
    pub deadline: UnixMillis,
}

#[derive(Debug)]
pub struct Message<T> {
    /// The queue's identifier of the message, for logs.
    pub id: String,
    pub body: T,
}

/// Serves batches until Lambda ends the process. `handle` returns one disposition for each message, in their order; a message
/// it says nothing about comes back.
pub async fn serve<S, T: DeserializeOwned>(
    state: &S,
    handle: impl AsyncFn(&S, Batch<T>) -> Vec<Disposition>,
) -> Result<(), Error> {
    let handle = &handle;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Event>| async move {
        let deadline = UnixMillis::new(i64::try_from(event.context.deadline).unwrap_or(i64::MAX));
        Ok::<_, Error>(answer(state, handle, event.payload, deadline).await)
    }))
    .await
}

async fn answer<S, T: DeserializeOwned>(
    state: &S,
    handle: &impl AsyncFn(&S, Batch<T>) -> Vec<Disposition>,
    event: Event,
    deadline: UnixMillis,
) -> Report {
    let stopwatch = Stopwatch::start();
    let count = event.records.len();
    let mut report = Report::default();
    let mut messages = Vec::with_capacity(count);
    for record in event.records {
        let id = record.message_id.unwrap_or_default();
        match decode(record.body.as_deref().unwrap_or_default()) {
            Ok(body) => messages.push(Message { id, body }),
            Err(error) => {
                tracing::error!(messageId = id, %error, "message is poison");
                report.add(id);
            }
        }
    }
    let poison = report.batch_item_failures.len();
    // A batch of nothing but poison is no work.
    if !messages.is_empty() {
        let ids: Vec<String> = messages.iter().map(|message| message.id.clone()).collect();
        let mut dispositions = handle(state, Batch { messages, deadline }).await.into_iter();
        for id in ids {
            match dispositions.next().unwrap_or(Disposition::Retry) {
                Disposition::Done => {}
                Disposition::Retry | Disposition::Poison => report.add(id),
            }
        }
    }
    let failed = report.batch_item_failures.len();
    tracing::info!(messages = count, failed, poison, ms = stopwatch.millis(), "batch handled");
    report
}

fn decode<T: DeserializeOwned>(body: &str) -> Result<T, BodyError> {
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(BodyError::TooLarge);
    }
    serde_json::from_str(body).map_err(|error| BodyError::Shape { line: error.line(), column: error.column() })
}

/// Why a body is poison. The parser's own message is left out: it may quote the body.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum BodyError {
    #[error("the body is larger than {MAX_MESSAGE_BYTES} bytes")]
    TooLarge,
    #[error("the body is not JSON of the expected shape (line {line}, column {column})")]
    Shape { line: usize, column: usize },
}

/// The event, reduced to what is read.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Records")]
    records: Vec<Record>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    message_id: Option<String>,
    body: Option<String>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({} records)", self.records.len())
    }
}

/// The messages that come back.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    batch_item_failures: Vec<Failure>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

impl Report {
    fn add(&mut self, id: String) {
        if id.is_empty() {
            // Left out, it counts as done. The order behind it is not lost: its row is the outbox.
            tracing::error!("a message that failed has no identifier and cannot come back");
        } else {
            self.batch_item_failures.push(Failure { item_identifier: id });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        #[serde(rename = "orderNo")]
        no: String,
    }

    fn good(id: &str) -> Value {
        json!({"messageId": id, "receiptHandle": "h", "body": json!({"orderNo": id}).to_string(), "eventSource": "aws:sqs"})
    }

    async fn failures(records: Vec<Value>, handle: impl AsyncFn(&(), Batch<Order>) -> Vec<Disposition>) -> Value {
        let event = serde_json::from_value(json!({"Records": records})).unwrap();
        serde_json::to_value(answer(&(), &handle, event, UnixMillis::new(5)).await).unwrap()
    }

    fn report(ids: &[&str]) -> Value {
        json!({"batchItemFailures": ids.iter().map(|id| json!({"itemIdentifier": id})).collect::<Vec<_>>()})
    }

    #[tokio::test]
    async fn only_what_is_not_done_comes_back_wherever_it_stands() {
        for disposition in [Disposition::Retry, Disposition::Poison] {
            for failing in ["m0", "m1", "m2"] {
                let handle = async |(): &(), batch: Batch<Order>| {
                    assert_eq!(batch.deadline, UnixMillis::new(5));
                    let verdict = |no: &str| {
                        if no == failing { disposition } else { Disposition::Done }
                    };
                    batch.messages.iter().map(|message| verdict(&message.body.no)).collect()
                };
                let records = ["m0", "m1", "m2"].map(good).to_vec();
                assert_eq!(failures(records, handle).await, report(&[failing]), "{disposition:?}");
            }
        }
    }

    #[tokio::test]
    async fn malformed_bodies_fail_alone() {
        let bad = [
            ("not JSON", json!({"messageId": "bad", "body": "SK1"})),
            ("unknown member", json!({"messageId": "bad", "body": r#"{"orderNo":"SK1","x":1}"#})),
            ("no body", json!({"messageId": "bad"})),
            ("null body", json!({"messageId": "bad", "body": null})),
            (
                "too large",
                json!({"messageId": "bad", "body": format!("{:1$}", r#"{"orderNo":"SK1"}"#, MAX_MESSAGE_BYTES + 1)}),
            ),
        ];
        for (name, bad) in bad {
            for position in 0..3 {
                let mut records = ["m0", "m1"].map(good).to_vec();
                records.insert(position, bad.clone());
                let handle = async |(): &(), batch: Batch<Order>| {
                    assert_eq!(
                        batch.messages.iter().map(|message| message.id.as_str()).collect::<Vec<_>>(),
                        ["m0", "m1"]
                    );
                    vec![Disposition::Done; 2]
                };
                assert_eq!(failures(records, handle).await, report(&["bad"]), "{name} at {position}");
            }
        }
    }

    #[tokio::test]
    async fn poison_alone_does_not_reach_the_handler() {
        let handle = async |(): &(), _: Batch<Order>| panic!("nothing to handle");
        assert_eq!(failures(vec![json!({"messageId": "bad", "body": "x"})], handle).await, report(&["bad"]));
        assert_eq!(failures(Vec::new(), handle).await, report(&[]));
    }

    #[tokio::test]
    async fn silence_means_retry_and_surplus_is_ignored() {
        let records = || ["m0", "m1"].map(good).to_vec();
        assert_eq!(failures(records(), async |(): &(), _| Vec::new()).await, report(&["m0", "m1"]));
        assert_eq!(failures(records(), async |(): &(), _| vec![Disposition::Done]).await, report(&["m1"]));
        assert_eq!(failures(records(), async |(): &(), _| vec![Disposition::Done; 5]).await, report(&[]));
    }

    #[tokio::test]
    async fn a_message_without_an_identifier_does_not_spoil_the_report() {
        for nameless in [
            json!({"body": "x"}),
            json!({"messageId": "", "body": "x"}),
            json!({"messageId": null, "body": r#"{"orderNo":"a"}"#}),
        ] {
            let records = vec![good("m0"), nameless, good("m1")];
            let retry_all = async |(): &(), batch: Batch<Order>| vec![Disposition::Retry; batch.messages.len()];
            assert_eq!(failures(records, retry_all).await, report(&["m0", "m1"]));
        }
    }
}
