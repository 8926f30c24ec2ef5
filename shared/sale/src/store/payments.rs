//! The money that came in: one row per payment, by the provider's transaction number.
//!
//! A transaction is recorded once, by whoever is told of it first. What is recorded never goes away: it is matched with the
//! order that it made PAID, or paid back, or waits for people to find out what it was for.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use kernel::ids::{ActivityId, MerchantId, OrderNo, TransactionId, UserId};
use kernel::money::{Cents, Currency};
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::orders::{CursorError, OWED_SECS, OrderRow, Orders, STATUS_NAME, Transition, order_key};
use super::{
    Item, StoreError, Written, attribute, batch_get, from_item, number, query_all, readable, text, to_item,
    write_together,
};
use crate::order::OrderStatus;

const BY_ACTIVITY: &str = "byActivity";
const BY_STATE: &str = "byState";

/// Where a payment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PaymentState {
    /// It made its order PAID.
    Matched,
    /// Its order had ended, or was paid already: it has to be paid back.
    RefundDue,
    Refunded,
    /// Nobody knows what it is for: people have to look.
    Unmatched,
}

impl PaymentState {
    pub const ALL: [Self; 4] = [Self::Matched, Self::RefundDue, Self::Refunded, Self::Unmatched];

    /// As rows and documents write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "MATCHED",
            Self::RefundDue => "REFUND_DUE",
            Self::Refunded => "REFUNDED",
            Self::Unmatched => "UNMATCHED",
        }
    }
}

/// Why a payment fits no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mismatch {
    /// It was made to somebody else.
    Merchant,
    UnknownOrder,
    Amount,
    Currency,
}

/// A payment as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentRow {
    pub transaction_id: TransactionId,
    pub merchant_id: MerchantId,
    pub order_no: OrderNo,
    pub amount: Cents,
    pub currency: Currency,
    pub state: PaymentState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<Mismatch>,
    /// When the provider took the money, as it says.
    pub paid_at: UnixMillis,
    pub received_at: UnixMillis,
    /// Whose order it names; absent when that order is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_id: Option<ActivityId>,
    /// When people decided that it is paid back; absent when nobody had to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<UnixMillis>,
    /// How often paying it back was tried.
    #[serde(default)]
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refunded_at: Option<UnixMillis>,

    // Keys of the indexes.
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_shard: Option<String>,
    /// Absent while MATCHED: what is normal would make one hot key of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_state: Option<PaymentState>,
    /// REFUND_DUE: when to try next. REFUNDED: when it went back. Otherwise when it came.
    due_at: UnixMillis,
}

/// What the provider says of a payment that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    pub transaction_id: TransactionId,
    pub merchant_id: MerchantId,
    pub order_no: OrderNo,
    pub amount: Cents,
    pub currency: Currency,
    pub paid_at: UnixMillis,
}

impl PaymentRow {
    pub(crate) fn new(
        payment: &Payment,
        state: PaymentState,
        mismatch: Option<Mismatch>,
        order: Option<&OrderRow>,
        now: UnixMillis,
    ) -> Self {
        Self {
            transaction_id: payment.transaction_id.clone(),
            merchant_id: payment.merchant_id.clone(),
            order_no: payment.order_no.clone(),
            amount: payment.amount,
            currency: payment.currency,
            state,
            mismatch,
            paid_at: payment.paid_at,
            received_at: now,
            user_id: order.map(|order| order.user_id.clone()),
            activity_id: order.map(|order| order.activity_id.clone()),
            decided_at: None,
            attempts: 0,
            refunded_at: None,
            activity_shard: order.map(|order| activity_shard(&order.activity_id, shard_of(&payment.transaction_id))),
            open_state: (state != PaymentState::Matched).then_some(state),
            due_at: now,
        }
    }
}

/// Parts of the index by activity: a partition takes 1,000 writes a second.
const ACTIVITY_SHARDS: u8 = 8;

fn activity_shard(activity_id: &ActivityId, shard: u8) -> String {
    format!("{activity_id}#{shard}")
}

fn shard_of(transaction_id: &TransactionId) -> u8 {
    transaction_id.as_str().bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % ACTIVITY_SHARDS
}

fn payment_key(transaction_id: &TransactionId) -> Item {
    Item::from([("transactionId".to_owned(), text(transaction_id.as_str()))])
}

/// A page of payments in one state.
#[derive(Debug, Clone)]
pub struct Page {
    pub payments: Vec<PaymentRow>,
    pub next: Option<Cursor>,
}

/// Where a page of payments ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cursor {
    due_at: UnixMillis,
    transaction_id: TransactionId,
}

impl Cursor {
    /// The opaque form for clients.
    pub fn encode(&self) -> String {
        data_encoding::BASE64URL_NOPAD.encode(format!("{}#{}", self.due_at.get(), self.transaction_id).as_bytes())
    }

    pub fn decode(opaque: &str) -> Result<Self, CursorError> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(opaque.as_bytes()).map_err(|_| CursorError)?;
        let text = String::from_utf8(bytes).map_err(|_| CursorError)?;
        let (due_at, transaction_id) = text.split_once('#').ok_or(CursorError)?;
        Ok(Self {
            due_at: UnixMillis::new(due_at.parse().map_err(|_| CursorError)?),
            transaction_id: transaction_id.parse().map_err(|_| CursorError)?,
        })
    }
}

/// What came of paying an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaidOrder {
    Paid,
    /// This transaction is recorded already.
    Recorded,
    /// The order is not UNPAID any more.
    Moved,
}

/// The payments table.
#[derive(Debug, Clone)]
pub struct Payments {
    db: Client,
    table: String,
}

impl Payments {
    pub fn new(db: Client, table: String) -> Self {
        Self { db, table }
    }

    /// One payment, read consistently.
    pub async fn get(&self, transaction_id: &TransactionId) -> Result<Option<PaymentRow>, StoreError> {
        let answer = self
            .db
            .get_item()
            .table_name(&self.table)
            .set_key(Some(payment_key(transaction_id)))
            .consistent_read(true)
            .send()
            .await
            .map_err(StoreError::unavailable("GetItem payment"))?;
        answer.item.map(from_item).transpose()
    }

    /// The payments that exist among `transaction_ids`, read consistently, in no order, each once.
    pub async fn get_many(&self, transaction_ids: &[TransactionId]) -> Result<Vec<PaymentRow>, StoreError> {
        batch_get(&self.db, &self.table, transaction_ids, payment_key).await
    }

    /// Records a payment that must be new. False: it is recorded already.
    pub(crate) async fn record(&self, row: &PaymentRow) -> Result<bool, StoreError> {
        let answer = self
            .db
            .put_item()
            .table_name(&self.table)
            .set_item(Some(to_item(row)?))
            .condition_expression("attribute_not_exists(transactionId)")
            .send()
            .await;
        written("PutItem payment", answer)
    }

    /// Records a payment and makes its order PAID, both or neither.
    pub(crate) async fn pay(
        &self,
        orders: &Orders,
        row: &PaymentRow,
        now: UnixMillis,
    ) -> Result<PaidOrder, StoreError> {
        let corrupt = |error: aws_sdk_dynamodb::error::BuildError| StoreError::Corrupt(error.to_string());
        let put = Put::builder()
            .table_name(&self.table)
            .set_item(Some(to_item(row)?))
            .condition_expression("attribute_not_exists(transactionId)")
            .build()
            .map_err(corrupt)?;
        let change = Transition::new(OrderStatus::Unpaid, OrderStatus::Paid, now)?
            .assign("transactionId", text(row.transaction_id.as_str()))
            .assign("paidAt", number(row.paid_at.get()))
            .due(OrderStatus::Paid, &row.order_no, now.plus_secs(OWED_SECS));
        let update = Update::builder()
            .table_name(&orders.table)
            .set_key(Some(order_key(&row.order_no)))
            .update_expression(change.expression())
            .condition_expression(&change.condition)
            .expression_attribute_names(STATUS_NAME.0, STATUS_NAME.1)
            .set_expression_attribute_values(Some(change.values))
            .build()
            .map_err(corrupt)?;
        let actions =
            vec![TransactWriteItem::builder().put(put).build(), TransactWriteItem::builder().update(update).build()];
        match write_together(&self.db, actions, "pay").await? {
            Written::Done => Ok(PaidOrder::Paid),
            Written::Refused(0) => Ok(PaidOrder::Recorded),
            Written::Refused(_) => Ok(PaidOrder::Moved),
        }
    }

    /// Payments that name an order of the activity. Read from an index: what came a moment ago may be missing.
    pub async fn of_activity(&self, activity_id: &ActivityId) -> Result<Vec<PaymentRow>, StoreError> {
        let shards = (0..ACTIVITY_SHARDS).map(|shard| {
            let query = self
                .db
                .query()
                .table_name(&self.table)
                .index_name(BY_ACTIVITY)
                .key_condition_expression("activityShard = :shard")
                .expression_attribute_values(":shard", text(activity_shard(activity_id, shard)));
            query_all(query, "Query payments by activity")
        });
        let parts: Vec<Vec<PaymentRow>> = futures_util::future::try_join_all(shards).await?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// At most `limit` payments that are to be paid back by `now`, the longest due first.
    pub(crate) async fn refunds_due(&self, now: UnixMillis, limit: u16) -> Result<Vec<PaymentRow>, StoreError> {
        let query = self
            .query_state(PaymentState::RefundDue, limit)
            .key_condition_expression("openState = :state AND dueAt <= :now")
            .expression_attribute_values(":now", number(now.get()));
        let answer = query.send().await.map_err(StoreError::unavailable("Query payments by state"))?;
        Ok(readable(answer.items.unwrap_or_default()).collect())
    }

    /// A page of at most `limit` payments in `state`: what went back last first, of others the oldest. MATCHED ones are not
    /// listed.
    pub async fn list(&self, state: PaymentState, limit: u16, after: Option<&Cursor>) -> Result<Page, StoreError> {
        let start = after.map(|cursor| {
            let mut key = payment_key(&cursor.transaction_id);
            key.insert("openState".to_owned(), text(state.as_str()));
            key.insert("dueAt".to_owned(), number(cursor.due_at.get()));
            key
        });
        let query = self
            .query_state(state, limit)
            .key_condition_expression("openState = :state")
            .scan_index_forward(state != PaymentState::Refunded)
            .set_exclusive_start_key(start);
        let answer = query.send().await.map_err(StoreError::unavailable("Query payments by state"))?;
        Ok(Page {
            next: answer.last_evaluated_key.map(from_item).transpose()?,
            payments: readable(answer.items.unwrap_or_default()).collect(),
        })
    }

    fn query_state(&self, state: PaymentState, limit: u16) -> QueryFluentBuilder {
        let query = self.db.query().table_name(&self.table).index_name(BY_STATE).limit(i32::from(limit));
        query.expression_attribute_values(":state", text(state.as_str()))
    }

    /// UNMATCHED → REFUND_DUE: people decided that it is paid back. False: it is not UNMATCHED, or was made to somebody else,
    /// from whom we can pay nothing back.
    pub async fn decide_refund(&self, transaction_id: &TransactionId, now: UnixMillis) -> Result<bool, StoreError> {
        let values = Item::from([
            (":from".to_owned(), text(PaymentState::Unmatched.as_str())),
            (":to".to_owned(), text(PaymentState::RefundDue.as_str())),
            (":now".to_owned(), number(now.get())),
            (":merchant".to_owned(), attribute(&Mismatch::Merchant)?),
        ]);
        let condition = "#state = :from AND (attribute_not_exists(mismatch) OR mismatch <> :merchant)";
        self.update(
            transaction_id,
            "SET #state = :to, openState = :to, dueAt = :now, decidedAt = :now",
            condition,
            values,
        )
        .await
    }

    /// REFUND_DUE → REFUNDED. False: it is not REFUND_DUE.
    pub(crate) async fn refunded(&self, transaction_id: &TransactionId, now: UnixMillis) -> Result<bool, StoreError> {
        let values = Item::from([
            (":from".to_owned(), text(PaymentState::RefundDue.as_str())),
            (":to".to_owned(), text(PaymentState::Refunded.as_str())),
            (":now".to_owned(), number(now.get())),
        ]);
        let set = "SET #state = :to, openState = :to, refundedAt = :now, dueAt = :now";
        self.update(transaction_id, set, "#state = :from", values).await
    }

    /// Paying it back did not work; to be tried again at `due_at`.
    pub(crate) async fn postpone(
        &self,
        transaction_id: &TransactionId,
        attempts: u32,
        due_at: UnixMillis,
    ) -> Result<(), StoreError> {
        let values = Item::from([
            (":from".to_owned(), text(PaymentState::RefundDue.as_str())),
            (":attempts".to_owned(), number(i64::from(attempts))),
            (":dueAt".to_owned(), number(due_at.get())),
        ]);
        let set = "SET attempts = :attempts, dueAt = :dueAt";
        self.update(transaction_id, set, "#state = :from", values).await.map(|_| ())
    }

    /// Updates a payment under a condition; false: it refused.
    async fn update(
        &self,
        transaction_id: &TransactionId,
        set: &str,
        condition: &str,
        values: Item,
    ) -> Result<bool, StoreError> {
        let answer = self
            .db
            .update_item()
            .table_name(&self.table)
            .set_key(Some(payment_key(transaction_id)))
            .update_expression(set)
            .condition_expression(condition)
            .expression_attribute_names("#state", "state")
            .set_expression_attribute_values(Some(values))
            .send()
            .await;
        written("UpdateItem payment", answer)
    }
}

/// Whether a conditional write was done; false: its condition refused it.
fn written<T, E, R>(operation: &'static str, answer: Result<T, SdkError<E, R>>) -> Result<bool, StoreError>
where
    E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(false),
        Err(error) => Err(StoreError::unavailable(operation)(error)),
    }
}
