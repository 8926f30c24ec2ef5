//! The rows: DynamoDB, the truth of a sale.
//!
//! Every write is conditional, and a condition that fails is an answer, not an error: the caller learns what the row says
//! instead. [`orders`] holds one row per order, [`offers`] what is sold and the counts that guard it, [`payments`] the money
//! that came in.

pub mod offers;
pub mod orders;
pub mod payments;

use std::collections::{BTreeSet, HashMap};
use std::marker::PhantomData;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason, KeysAndAttributes, TransactWriteItem};
use futures_util::{StreamExt, stream};
use kernel::backoff::full_jitter;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use offers::Offers;
pub use orders::Orders;
pub use payments::Payments;

/// A row as DynamoDB carries it.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// How often a write that met another transaction is tried again, the first wait and the longest one: some 3 s in all.
const WRITE_TRIES: u32 = 10;
const WRITE_RETRY_BASE: Duration = Duration::from_millis(30);
const WRITE_RETRY_CAP: Duration = Duration::from_millis(800);
/// How often a batch read asks again for what it was not given.
const BATCH_READ_TRIES: u32 = 6;

/// The rows could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Throttled, unreachable or failing. Whether the write happened is not known: ask the row.
    #[error("the table does not answer: {operation}")]
    Unavailable {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row that this code cannot read or must not write.
    #[error("a row is not what it should be: {0}")]
    Corrupt(String),
}

impl StoreError {
    pub(crate) fn unavailable<E, R>(operation: &'static str) -> impl FnOnce(SdkError<E, R>) -> Self
    where
        E: std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        move |source| Self::Unavailable { operation, source: Box::new(source) }
    }
}

pub(crate) fn to_item(row: &impl Serialize) -> Result<Item, StoreError> {
    serde_dynamo::to_item(row).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub(crate) fn from_item<T: DeserializeOwned>(item: Item) -> Result<T, StoreError> {
    serde_dynamo::from_item(item).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// One value of a row.
pub(crate) fn attribute(value: &impl Serialize) -> Result<AttributeValue, StoreError> {
    serde_dynamo::to_attribute_value(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A conditional write of several rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Done,
    /// A condition refused; the index of the first action that did.
    Refused(usize),
}

/// Writes all `actions`, or none. Meeting another transaction is normal in a storm: what was cancelled, and refused by no
/// condition, is tried again.
pub(crate) async fn write_together(
    db: &Client,
    actions: Vec<TransactWriteItem>,
    operation: &'static str,
) -> Result<Written, StoreError> {
    let mut attempt = 0;
    loop {
        let Err(error) = db.transact_write_items().set_transact_items(Some(actions.clone())).send().await else {
            return Ok(Written::Done);
        };
        let SdkError::ServiceError(failed) = &error else { return Err(StoreError::unavailable(operation)(error)) };
        let TransactWriteItemsError::TransactionCanceledException(cancelled) = failed.err() else {
            return Err(StoreError::unavailable(operation)(error));
        };
        let refused = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
        if let Some(index) = cancelled.cancellation_reasons().iter().position(refused) {
            return Ok(Written::Refused(index));
        }
        if attempt == WRITE_TRIES {
            return Err(StoreError::unavailable(operation)(error));
        }
        tracing::warn!(error = &error as &dyn std::error::Error, operation, "tried again");
        tokio::time::sleep(full_jitter(attempt, WRITE_RETRY_BASE, WRITE_RETRY_CAP)).await;
        attempt += 1;
    }
}

/// The rows that can be read. One that cannot (written by a later version, say) is logged, and must not hold up the others.
pub(crate) fn readable<T: DeserializeOwned>(items: Vec<Item>) -> impl Iterator<Item = T> {
    items.into_iter().filter_map(|item| {
        let row = from_item(item);
        if let Err(error) = &row {
            tracing::error!(error = error as &dyn std::error::Error, "a row is passed over");
        }
        row.ok()
    })
}

/// Reads all pages of a query.
pub(crate) async fn query_all<T: DeserializeOwned>(
    query: QueryFluentBuilder,
    operation: &'static str,
) -> Result<Vec<T>, StoreError> {
    let mut pages = Pages::new(query, operation);
    let mut rows = Vec::new();
    while let Some(page) = pages.next().await? {
        rows.extend(page);
    }
    Ok(rows)
}

/// The pages of a query, one after the other.
pub(crate) struct Pages<T> {
    /// None: there are no more.
    query: Option<QueryFluentBuilder>,
    operation: &'static str,
    rows: PhantomData<T>,
}

impl<T: DeserializeOwned> Pages<T> {
    pub(crate) fn new(query: QueryFluentBuilder, operation: &'static str) -> Self {
        Self { query: Some(query), operation, rows: PhantomData }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Vec<T>>, StoreError> {
        let items = self.next_items().await?;
        items.map(|items| items.into_iter().map(from_item).collect()).transpose()
    }

    pub(crate) async fn next_items(&mut self) -> Result<Option<Vec<Item>>, StoreError> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let answer = query.clone().send().await.map_err(StoreError::unavailable(self.operation))?;
        if answer.last_evaluated_key.is_some() {
            self.query = Some(query.set_exclusive_start_key(answer.last_evaluated_key));
        }
        Ok(Some(answer.items.unwrap_or_default()))
    }
}

/// Reads rows of one table, consistently, asking again for what was left out. Rows that are not there are not in the answer;
/// its order is the table's. Whoever is named twice is read once: DynamoDB refuses a call with two equal keys.
pub(crate) async fn batch_get<N: Ord, T: DeserializeOwned>(
    db: &Client,
    table: &str,
    names: &[N],
    key: impl Fn(&N) -> Item,
) -> Result<Vec<T>, StoreError> {
    /// DynamoDB's own bound.
    const KEYS_A_CALL: usize = 100;
    /// The audit of a large sale reads ten thousand.
    const CALLS_AT_ONCE: usize = 8;

    let keys: Vec<Item> = names.iter().collect::<BTreeSet<_>>().into_iter().map(key).collect();
    let calls: Vec<Vec<Item>> = keys.chunks(KEYS_A_CALL).map(<[Item]>::to_vec).collect();
    let mut answers = stream::iter(calls).map(|keys| batch_get_some(db, table, keys)).buffered(CALLS_AT_ONCE);
    let mut rows = Vec::with_capacity(keys.len());
    while let Some(some) = answers.next().await {
        rows.extend(readable(some?));
    }
    Ok(rows)
}

/// One call's keys.
async fn batch_get_some(db: &Client, table: &str, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
    const OPERATION: &str = "BatchGetItem";

    let mut found = Vec::with_capacity(keys.len());
    let mut left = keys;
    for attempt in 0..=BATCH_READ_TRIES {
        let wanted = KeysAndAttributes::builder()
            .set_keys(Some(left))
            .consistent_read(true)
            .build()
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let answer = db.batch_get_item().request_items(table, wanted).send().await;
        let mut answer = answer.map_err(StoreError::unavailable(OPERATION))?;
        found.extend(answer.responses.as_mut().and_then(|tables| tables.remove(table)).unwrap_or_default());
        left = answer.unprocessed_keys.and_then(|mut tables| tables.remove(table)).map(|k| k.keys).unwrap_or_default();
        if left.is_empty() {
            return Ok(found);
        }
        tokio::time::sleep(full_jitter(attempt, Duration::from_millis(50), Duration::from_secs(1))).await;
    }
    Err(StoreError::Unavailable { operation: OPERATION, source: "keys are left unprocessed".into() })
}
