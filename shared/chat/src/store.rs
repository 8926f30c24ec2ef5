//! What both tables of this crate are used through: the connections table (one partition for each connection, one for each
//! party with their connections and results) and the chat table ([`crate::desk`]). Everything is read consistently and by
//! key; there are no indexes.
//!
//! Calls of the SDK are boxed: its futures are some kilobytes each, and everything that awaits one would be as large.
//!
//! A condition that fails is an outcome. A write that another one is in the way of is tried again here, within bounds;
//! throttling and lost connections the SDK has retried already. What is left is a [`StoreError`].

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason, KeysAndAttributes, TransactWriteItem, WriteRequest};
use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::backoff::full_jitter;

use crate::ids::{Party, Side};

/// A row as DynamoDB has it.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// The key's two attributes, and the one by which DynamoDB drops a row (epoch seconds).
pub(crate) const PK: &str = "pk";
pub(crate) const SK: &str = "sk";
pub(crate) const TTL: &str = "ttl";

/// Tries of a write that met another one, and the waits between them.
const WRITE_TRIES: u32 = 6;
const RETRY_BASE: Duration = Duration::from_millis(20);
const RETRY_CAP: Duration = Duration::from_millis(400);
/// Rows in one BatchGetItem: DynamoDB's own bound.
pub(crate) const MAX_GET: usize = 100;
/// BatchGetItem calls under way at once.
const GETS_AT_ONCE: usize = 8;
/// Writes in one BatchWriteItem: DynamoDB's own bound.
const BATCH: usize = 25;
/// BatchWriteItem calls under way at once.
const BATCHES_AT_ONCE: usize = 4;
/// Pages of one query (1 MB each): thousands of rows of a single user, more than any real one has.
const MAX_PAGES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The table does not answer, throttles, or refuses us. What was asked for may or may not have happened; everything
    /// this crate writes may be written again.
    #[error("{operation} failed")]
    Unavailable {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Other writes were in the way at every try.
    #[error("{operation} met other writes at every try")]
    Contended { operation: &'static str },
    /// A row that this code cannot have written.
    #[error("a row cannot be read")]
    Corrupt(#[source] serde_dynamo::Error),
    /// A row that others name, and that nothing ever deletes, is not there.
    #[error("a row that others name is not there")]
    Missing,
    /// What was read cannot be written as a frame.
    #[error("a frame cannot be written")]
    Frame(#[from] serde_json::Error),
    /// The operating system gave no randomness.
    #[error("no randomness for a new identifier")]
    Randomness(#[from] getrandom::Error),
}

/// What became of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written<T> {
    Done(T),
    /// The condition failed; nothing changed.
    Refused,
}

/// What an error of one write says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Refused,
    /// Not applied, and worth another try.
    Busy,
    Failed,
}

/// What became of a transaction, where it matters which condition failed.
#[derive(Debug)]
pub(crate) enum Transacted {
    Done,
    /// For each action, in order: what it found, if its condition failed. Nothing changed.
    Refused(Vec<Option<Found>>),
    /// Another transaction was at one of the rows. Nothing changed, and nothing is known.
    Busy,
}

/// The row that a failed condition met, if it asked for it and there is one.
#[derive(Debug)]
pub(crate) struct Found(pub(crate) Option<Item>);

/// One table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: String,
}

/// The partition of somebody who may be connected.
pub(crate) fn party_pk(party: &Party) -> String {
    match party.side {
        Side::User => format!("USER#{}", party.id),
        Side::Agent => format!("AGENT#{}", party.id),
    }
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn key(pk: String, sk: String) -> Item {
    HashMap::from([(PK.to_owned(), text(pk)), (SK.to_owned(), text(sk))])
}

pub(crate) fn unavailable<E>(operation: &'static str) -> impl FnOnce(E) -> StoreError
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |source| StoreError::Unavailable { operation, source: Box::new(source) }
}

/// The wait before a change is tried again that another one was in the way of: about as long as that one takes.
pub(crate) async fn pause(attempt: u32) {
    tokio::time::sleep(full_jitter(attempt, RETRY_BASE, RETRY_CAP)).await;
}

impl Table {
    /// All rows of a partition whose sort key begins with `prefix`, up to [`MAX_PAGES`]. The empty prefix is every row's.
    pub(crate) async fn rows(&self, pk: String, prefix: String) -> Result<Vec<Item>, StoreError> {
        let query = self
            .client
            .query()
            .table_name(&self.name)
            .consistent_read(true)
            .expression_attribute_values(":pk", text(pk));
        // DynamoDB knows no empty text in a key's condition.
        let query = if prefix.is_empty() {
            query.key_condition_expression("pk = :pk")
        } else {
            let query = query.key_condition_expression("pk = :pk AND begins_with(sk, :prefix)");
            query.expression_attribute_values(":prefix", text(prefix))
        };
        let mut rows = Vec::new();
        let mut from = None;
        for _ in 0..MAX_PAGES {
            let page =
                Box::pin(query.clone().set_exclusive_start_key(from).send()).await.map_err(unavailable("Query"))?;
            rows.extend(page.items.unwrap_or_default());
            from = page.last_evaluated_key;
            if from.is_none() {
                break;
            }
        }
        Ok(rows)
    }

    /// One row.
    pub(crate) async fn get(&self, key: Item) -> Result<Option<Item>, StoreError> {
        let call = self.client.get_item().table_name(&self.name).set_key(Some(key)).consistent_read(true);
        Ok(Box::pin(call.send()).await.map_err(unavailable("GetItem"))?.item)
    }

    /// Any number of rows by their keys, which differ, in no order. What is not there is left out.
    pub(crate) async fn get_all(&self, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        let batches: Vec<_> = keys.chunks(MAX_GET).map(<[Item]>::to_vec).collect();
        let read: Vec<Vec<Item>> = stream::iter(batches)
            .map(|keys| async move {
                let read = get_together(&self.client, [(self, keys)]).await?;
                Ok::<_, StoreError>(read.into_values().flatten().collect())
            })
            .buffer_unordered(GETS_AT_ONCE)
            .try_collect()
            .await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// Puts and deletes without conditions, any number, each key at most once. On an error some may have happened.
    pub(crate) async fn write_all(&self, requests: Vec<WriteRequest>) -> Result<(), StoreError> {
        let batches: Vec<_> = requests.chunks(BATCH).map(<[WriteRequest]>::to_vec).collect();
        stream::iter(batches).map(|batch| self.write_batch(batch)).buffer_unordered(BATCHES_AT_ONCE).try_collect().await
    }

    async fn write_batch(&self, mut left: Vec<WriteRequest>) -> Result<(), StoreError> {
        const OPERATION: &str = "BatchWriteItem";
        for attempt in 0..WRITE_TRIES {
            let answer = self
                .client
                .batch_write_item()
                .request_items(&self.name, left)
                .send()
                .await
                .map_err(unavailable(OPERATION))?;
            left = answer.unprocessed_items.and_then(|mut tables| tables.remove(&self.name)).unwrap_or_default();
            if left.is_empty() {
                return Ok(());
            }
            pause(attempt).await;
        }
        Err(StoreError::Contended { operation: OPERATION })
    }

    /// All of it or, when a condition fails, nothing; one try, for whoever decides again by what was found.
    pub(crate) async fn try_transact(&self, actions: Vec<TransactWriteItem>) -> Result<Transacted, StoreError> {
        const OPERATION: &str = "TransactWriteItems";
        let call = self.client.transact_write_items().set_transact_items(Some(actions));
        let error = match Box::pin(call.send()).await {
            Ok(_) => return Ok(Transacted::Done),
            Err(error) => error,
        };
        match error.as_service_error().map_or(Verdict::Failed, judge_transaction) {
            Verdict::Busy => Ok(Transacted::Busy),
            Verdict::Failed => Err(unavailable(OPERATION)(error)),
            Verdict::Refused => match error.into_service_error() {
                TransactWriteItemsError::TransactionCanceledException(canceled) => {
                    let found = |reason: CancellationReason| {
                        (reason.code() == Some(CONDITION_FAILED)).then_some(Found(reason.item))
                    };
                    let reasons = canceled.cancellation_reasons.unwrap_or_default();
                    Ok(Transacted::Refused(reasons.into_iter().map(found).collect()))
                }
                other => Err(unavailable(OPERATION)(other)),
            },
        }
    }

    /// All of it or, when a condition fails, nothing.
    pub(crate) async fn transact(&self, actions: Vec<TransactWriteItem>) -> Result<Written<()>, StoreError> {
        let call = self.client.transact_write_items().set_transact_items(Some(actions));
        let written = retried("TransactWriteItems", || call.clone().send(), judge_transaction).await?;
        Ok(match written {
            Written::Done(_) => Written::Done(()),
            Written::Refused => Written::Refused,
        })
    }
}

/// Rows of several tables in one call, at most [`MAX_GET`] in all, by the name of their table.
pub(crate) async fn get_together(
    client: &Client,
    wanted: impl IntoIterator<Item = (&Table, Vec<Item>)>,
) -> Result<HashMap<String, Vec<Item>>, StoreError> {
    const OPERATION: &str = "BatchGetItem";
    let request = |(table, keys): (&Table, Vec<Item>)| {
        let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        keys.map(|keys| (table.name.clone(), keys)).map_err(unavailable(OPERATION))
    };
    let wanted = wanted.into_iter().filter(|(_, keys)| !keys.is_empty());
    let mut left: HashMap<String, KeysAndAttributes> = wanted.map(request).collect::<Result<_, _>>()?;
    let mut read: HashMap<String, Vec<Item>> = HashMap::new();
    for attempt in 0..WRITE_TRIES {
        if left.is_empty() {
            return Ok(read);
        }
        if attempt > 0 {
            pause(attempt).await;
        }
        let answer = Box::pin(client.batch_get_item().set_request_items(Some(left)).send())
            .await
            .map_err(unavailable(OPERATION))?;
        for (table, rows) in answer.responses.unwrap_or_default() {
            read.entry(table).or_default().extend(rows);
        }
        left = answer.unprocessed_keys.unwrap_or_default();
    }
    if left.is_empty() { Ok(read) } else { Err(StoreError::Contended { operation: OPERATION }) }
}

/// One conditional write of one row.
pub(crate) async fn conditional<T, E, R, F>(
    operation: &'static str,
    call: impl Fn() -> F,
) -> Result<Written<T>, StoreError>
where
    F: Future<Output = Result<T, SdkError<E, R>>>,
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    retried(operation, call, judge_write).await
}

/// One conditional write of one row that asks for the row in its way: `Ok(None)`, written; or the row that refused it.
/// `found`: where the operation's error has it.
pub(crate) async fn conditional_or_found<T, E, R, F>(
    operation: &'static str,
    call: impl Fn() -> F,
    found: impl Fn(&E) -> Option<Item>,
) -> Result<Option<Item>, StoreError>
where
    F: Future<Output = Result<T, SdkError<E, R>>>,
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    let found = &found;
    let written = conditional(operation, || {
        let sending = call();
        async move {
            match sending.await {
                Ok(_) => Ok(None),
                Err(error) => error.as_service_error().and_then(found).map(Some).ok_or(error),
            }
        }
    });
    match written.await? {
        Written::Done(in_the_way) => Ok(in_the_way),
        // It went away between the refusal and the answer.
        Written::Refused => Err(StoreError::Contended { operation }),
    }
}

async fn retried<T, E, R, F>(
    operation: &'static str,
    call: impl Fn() -> F,
    judge: impl Fn(&E) -> Verdict,
) -> Result<Written<T>, StoreError>
where
    F: Future<Output = Result<T, SdkError<E, R>>>,
    E: std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    for attempt in 0..WRITE_TRIES {
        let error = match Box::pin(call()).await {
            Ok(output) => return Ok(Written::Done(output)),
            Err(error) => error,
        };
        match error.as_service_error().map_or(Verdict::Failed, &judge) {
            Verdict::Refused => return Ok(Written::Refused),
            Verdict::Busy => pause(attempt).await,
            Verdict::Failed => {
                return Err(StoreError::Unavailable { operation, source: Box::new(error) });
            }
        }
    }
    Err(StoreError::Contended { operation })
}

/// The reason of a cancelled transaction whose condition failed.
const CONDITION_FAILED: &str = "ConditionalCheckFailed";

fn judge_write<E: ProvideErrorMetadata>(error: &E) -> Verdict {
    match error.code() {
        Some("ConditionalCheckFailedException") => Verdict::Refused,
        Some("TransactionConflictException") => Verdict::Busy,
        Some(_) | None => Verdict::Failed,
    }
}

fn judge_transaction(error: &TransactWriteItemsError) -> Verdict {
    let TransactWriteItemsError::TransactionCanceledException(canceled) = error else {
        return Verdict::Failed;
    };
    let codes = || canceled.cancellation_reasons().iter().filter_map(|reason| reason.code());
    // A failed condition will fail again, whatever else was in the way.
    if codes().any(|code| code == CONDITION_FAILED) {
        Verdict::Refused
    } else if codes()
        .any(|code| matches!(code, "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded"))
    {
        Verdict::Busy
    } else {
        Verdict::Failed
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ErrorMetadata;
    use aws_sdk_dynamodb::operation::put_item::PutItemError;
    use aws_sdk_dynamodb::types::error::TransactionCanceledException;

    use super::*;

    fn canceled(codes: &[&str]) -> TransactWriteItemsError {
        let reasons = codes.iter().map(|code| CancellationReason::builder().code(*code).build()).collect();
        let canceled = TransactionCanceledException::builder().set_cancellation_reasons(Some(reasons)).build();
        TransactWriteItemsError::TransactionCanceledException(canceled)
    }

    #[test]
    fn a_conflict_is_tried_again_and_a_failed_condition_is_an_answer() {
        for (codes, verdict) in [
            (&["None", "TransactionConflict"][..], Verdict::Busy),
            (&["ThrottlingError", "None"], Verdict::Busy),
            (&["ConditionalCheckFailed", "None"], Verdict::Refused),
            (&["ConditionalCheckFailed", "TransactionConflict"], Verdict::Refused),
            (&["ValidationError", "None"], Verdict::Failed),
            (&[], Verdict::Failed),
        ] {
            assert_eq!(judge_transaction(&canceled(codes)), verdict, "{codes:?}");
        }
        for (code, verdict) in [
            ("ConditionalCheckFailedException", Verdict::Refused),
            ("TransactionConflictException", Verdict::Busy),
            ("ResourceNotFoundException", Verdict::Failed),
        ] {
            let error = PutItemError::generic(ErrorMetadata::builder().code(code).build());
            assert_eq!(judge_write(&error), verdict, "{code}");
        }
    }
}
