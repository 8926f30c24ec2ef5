//! The rows: DynamoDB, the truth of a sale.
//!
//! Every write is conditional, and a condition that fails is an answer, not an error: the caller learns what the row says
//! instead. [`orders`] holds one row per order, [`offers`] what is sold and the counts that guard it.

pub mod offers;
pub mod orders;

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::AttributeValue;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use offers::Offers;
pub use orders::Orders;

/// A row as DynamoDB carries it.
pub(crate) type Item = HashMap<String, AttributeValue>;

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

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Reads rows of one table by key, consistently: up to 100 a call, asking again for what was left out. Rows that are not
/// there are not in the answer; its order is the table's.
pub(crate) async fn batch_get<T: DeserializeOwned>(
    db: &aws_sdk_dynamodb::Client,
    table: &str,
    keys: Vec<Item>,
) -> Result<Vec<T>, StoreError> {
    use aws_sdk_dynamodb::types::KeysAndAttributes;
    const OPERATION: &str = "BatchGetItem";
    /// DynamoDB's own bound.
    const KEYS_A_CALL: usize = 100;

    let mut rows = Vec::with_capacity(keys.len());
    for chunk in keys.chunks(KEYS_A_CALL) {
        let mut left = chunk.to_vec();
        for attempt in 0.. {
            let wanted = KeysAndAttributes::builder()
                .set_keys(Some(left))
                .consistent_read(true)
                .build()
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            let mut answer = db
                .batch_get_item()
                .request_items(table, wanted)
                .send()
                .await
                .map_err(StoreError::unavailable(OPERATION))?;
            for item in answer.responses.as_mut().and_then(|tables| tables.remove(table)).unwrap_or_default() {
                rows.push(from_item(item)?);
            }
            left =
                answer.unprocessed_keys.and_then(|mut tables| tables.remove(table)).map(|k| k.keys).unwrap_or_default();
            if left.is_empty() {
                break;
            }
            if attempt == BATCH_READ_TRIES {
                return Err(StoreError::Unavailable {
                    operation: OPERATION,
                    source: "keys are left unprocessed".into(),
                });
            }
            tokio::time::sleep(kernel::backoff::full_jitter(
                attempt,
                Duration::from_millis(50),
                Duration::from_secs(1),
            ))
            .await;
        }
    }
    Ok(rows)
}
