//! One row per order.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use futures_util::future::try_join_all;
use kernel::ids::{ActivityId, OrderNo, Quantity, RequestId, SkuId, TransactionId, UserId};
use kernel::money::Cents;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::{Item, Pages, StoreError, attribute, batch_get, from_item, number, query_all, readable, text, to_item};
use crate::admission::Fingerprint;
use crate::offer::{Allowance, OfferId, Terms};
use crate::order::{EndReason, OrderStatus};

/// Parts of the index by offer: a partition takes 1,000 writes a second, a storm of orders of one offer is more.
pub const OFFER_SHARDS: u8 = 8;
/// Parts of the index by due time, for the same reason.
pub const DUE_SHARDS: u8 = 4;
/// How long after the last change of a PAID or CANCELLED order the sweep does what is still owed for it, in seconds: by then
/// whoever was asked to do it at once has done so, or never will.
pub const OWED_SECS: i64 = 30;
/// How long after its creation an order that is still PRE_CREATED is sent to the queue again, in seconds.
pub const OUTBOX_DELAY_SECS: i64 = 30;

/// Orders of a user that are looked through for ones that ran out of time.
const RECENT: u8 = 50;

const BY_USER: &str = "byUser";
const BY_OFFER: &str = "byOffer";
const DUE: &str = "due";

/// An order as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderRow {
    pub order_no: OrderNo,
    pub user_id: UserId,
    pub activity_id: ActivityId,
    pub sku_id: SkuId,
    pub qty: Quantity,
    pub fingerprint: Fingerprint,
    /// None for an order whose row the sweep had to make: the hold does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    #[serde(flatten)]
    pub terms: Terms,
    pub amount: Cents,
    pub status: OrderStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    pub created_at: UnixMillis,
    /// When the status last changed.
    pub updated_at: UnixMillis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pay_deadline: Option<UnixMillis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paid_at: Option<UnixMillis>,
    /// The payment that made it PAID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_id: Option<TransactionId>,
    /// Every status it has had, in order; the audit checks the path.
    pub trail: Vec<OrderStatus>,
    /// How often the sweep has sent it to the queue again.
    #[serde(default)]
    pub attempts: u32,
    /// How often its hold was missing at the gate and had to be put back.
    #[serde(default)]
    pub drifts: u32,

    // Keys of the indexes.
    offer_shard: String,
    created_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_shard: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<UnixMillis>,
}

/// What an order is about, as known when it is admitted.
#[derive(Debug, Clone)]
pub struct NewOrder {
    pub order_no: OrderNo,
    pub user_id: UserId,
    pub offer: OfferId,
    pub quantity: Quantity,
    pub fingerprint: Fingerprint,
    pub request_id: Option<RequestId>,
    pub terms: Terms,
}

impl OrderRow {
    /// An admitted order.
    pub fn pre_created(order: NewOrder, now: UnixMillis) -> Self {
        Self::begin(order, OrderStatus::PreCreated, None, now)
    }

    /// An order given up before it came to be: keeps the admitted one from ever becoming real.
    pub fn abandoned(order: NewOrder, now: UnixMillis) -> Self {
        Self::begin(order, OrderStatus::Failed, Some(EndReason::Abandoned), now)
    }

    fn begin(order: NewOrder, status: OrderStatus, reason: Option<EndReason>, now: UnixMillis) -> Self {
        debug_assert!(status.may_begin());
        let waits = status == OrderStatus::PreCreated;
        Self {
            offer_shard: offer_shard(&order.offer, shard_of(&order.order_no, OFFER_SHARDS)),
            created_key: created_key(now, &order.order_no),
            due_shard: waits.then(|| due_shard(status, shard_of(&order.order_no, DUE_SHARDS))),
            due_at: waits.then(|| now.plus_secs(OUTBOX_DELAY_SECS)),
            amount: order.terms.price.times(order.quantity),
            order_no: order.order_no,
            user_id: order.user_id,
            activity_id: order.offer.activity_id,
            sku_id: order.offer.sku_id,
            qty: order.quantity,
            fingerprint: order.fingerprint,
            request_id: order.request_id,
            terms: order.terms,
            status,
            reason,
            created_at: now,
            updated_at: now,
            pay_deadline: None,
            paid_at: None,
            transaction_id: None,
            trail: vec![status],
            attempts: 0,
            drifts: 0,
        }
    }

    pub fn offer(&self) -> OfferId {
        OfferId { activity_id: self.activity_id.clone(), sku_id: self.sku_id.clone() }
    }

    /// Against which limit its units count.
    pub fn allowance(&self) -> Allowance {
        Allowance { user_id: self.user_id.clone(), limit_day: self.terms.limit_day }
    }

    /// Whether it is PAID or CANCELLED, and not everybody has been told yet.
    pub fn is_owed(&self) -> bool {
        match self.status {
            OrderStatus::Paid | OrderStatus::Cancelled => self.due_shard.is_some(),
            OrderStatus::PreCreated | OrderStatus::Unpaid | OrderStatus::Failed => false,
        }
    }
}

/// What came of putting a new row.
#[derive(Debug, Clone, PartialEq)]
pub enum Put {
    Created,
    /// There is a row by this number already; it may be this very one, put by a call whose reply was lost.
    Exists(Box<OrderRow>),
}

/// What came of giving an order up.
#[derive(Debug, Clone, PartialEq)]
pub enum GaveUp {
    Failed,
    /// It was past PRE_CREATED.
    Was(Box<OrderRow>),
    Missing,
}

/// A page of a user's orders, newest first.
#[derive(Debug, Clone)]
pub struct Page {
    pub orders: Vec<OrderRow>,
    pub next: Option<Cursor>,
}

/// Where a page of orders ended: a creation time and an order number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    created_key: String,
    order_no: OrderNo,
}

/// A text that is no cursor of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that this list gave out")]
pub struct CursorError;

impl Cursor {
    /// The opaque form for clients. Not signed: whatever it says, only the caller's own orders are listed.
    pub fn encode(&self) -> String {
        data_encoding::BASE64URL_NOPAD.encode(self.created_key.as_bytes())
    }

    pub fn decode(opaque: &str) -> Result<Self, CursorError> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(opaque.as_bytes()).map_err(|_| CursorError)?;
        let created_key = String::from_utf8(bytes).map_err(|_| CursorError)?;
        let (millis, order_no) = created_key.split_once('#').ok_or(CursorError)?;
        if millis.len() != CREATED_DIGITS || !millis.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(CursorError);
        }
        let order_no = order_no.parse().map_err(|_| CursorError)?;
        Ok(Self { created_key, order_no })
    }
}

/// Width of the instant in a creation key, so that text order is time order.
const CREATED_DIGITS: usize = 13;

fn created_key(created_at: UnixMillis, order_no: &OrderNo) -> String {
    format!("{:0CREATED_DIGITS$}#{order_no}", created_at.get())
}

fn offer_shard(offer: &OfferId, shard: u8) -> String {
    format!("{}#{}#{shard}", offer.activity_id, offer.sku_id)
}

fn due_shard(status: OrderStatus, shard: u8) -> String {
    format!("{}#{shard}", status.as_str())
}

/// Order numbers are uniform in their last characters, so any fold of them spreads evenly.
fn shard_of(order_no: &OrderNo, shards: u8) -> u8 {
    order_no.as_str().bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % shards
}

/// Key of an order row.
pub(crate) fn order_key(order_no: &OrderNo) -> Item {
    Item::from([("orderNo".to_owned(), text(order_no.as_str()))])
}

/// An update that moves a row from `from` to `to`, conditional on the row being there and at `from`. The only way that this
/// code writes a status; what else changes is the caller's to add.
pub(crate) struct Transition {
    /// Comma-separated assignments, to be prefixed with `SET`.
    pub(crate) set: String,
    pub(crate) condition: String,
    pub(crate) values: Item,
}

/// `status` is a reserved word of DynamoDB.
pub(crate) const STATUS_NAME: (&str, &str) = ("#status", "status");

impl Transition {
    pub(crate) fn new(from: OrderStatus, to: OrderStatus, now: UnixMillis) -> Result<Self, StoreError> {
        if !from.successors().contains(&to) {
            return Err(StoreError::Corrupt(format!("an order never goes from {} to {}", from.as_str(), to.as_str())));
        }
        Ok(Self {
            set: "#status = :to, updatedAt = :now, trail = list_append(trail, :step)".to_owned(),
            condition: "#status = :from".to_owned(),
            values: Item::from([
                (":from".to_owned(), text(from.as_str())),
                (":to".to_owned(), text(to.as_str())),
                (":now".to_owned(), number(now.get())),
                (":step".to_owned(), AttributeValue::L(vec![text(to.as_str())])),
            ]),
        })
    }

    /// The order now waits for `due_at` in its new status.
    pub(crate) fn due(mut self, status: OrderStatus, order_no: &OrderNo, due_at: UnixMillis) -> Self {
        self.set.push_str(", dueShard = :dueShard, dueAt = :dueAt");
        self.values.insert(":dueShard".to_owned(), text(due_shard(status, shard_of(order_no, DUE_SHARDS))));
        self.values.insert(":dueAt".to_owned(), number(due_at.get()));
        self
    }

    pub(crate) fn assign(mut self, attribute: &str, value: AttributeValue) -> Self {
        self.set.push_str(&format!(", {attribute} = :{attribute}"));
        self.values.insert(format!(":{attribute}"), value);
        self
    }

    /// Only if the row says so too.
    pub(crate) fn when(mut self, attribute: &str, value: AttributeValue) -> Self {
        self.condition.push_str(&format!(" AND {attribute} = :{attribute}"));
        self.values.insert(format!(":{attribute}"), value);
        self
    }

    /// Only if the row says nothing about it either.
    pub(crate) fn when_absent(mut self, attribute: &str) -> Self {
        self.condition.push_str(&format!(" AND attribute_not_exists({attribute})"));
        self
    }

    pub(crate) fn expression(&self) -> String {
        format!("SET {}", self.set)
    }

    /// For a status in which nothing is due any more.
    pub(crate) fn expression_undue(&self) -> String {
        format!("SET {} REMOVE dueShard, dueAt", self.set)
    }
}

/// The orders table.
#[derive(Debug, Clone)]
pub struct Orders {
    pub(crate) db: Client,
    pub(crate) table: String,
}

impl Orders {
    pub fn new(db: Client, table: String) -> Self {
        Self { db, table }
    }

    /// One order, read consistently.
    pub async fn get(&self, order_no: &OrderNo) -> Result<Option<OrderRow>, StoreError> {
        let answer = self
            .db
            .get_item()
            .table_name(&self.table)
            .set_key(Some(order_key(order_no)))
            .consistent_read(true)
            .send()
            .await
            .map_err(StoreError::unavailable("GetItem order"))?;
        answer.item.map(from_item).transpose()
    }

    /// The orders that exist among `order_nos`, read consistently, in no order, each once.
    pub async fn get_many(&self, order_nos: &[OrderNo]) -> Result<Vec<OrderRow>, StoreError> {
        batch_get(&self.db, &self.table, order_nos, order_key).await
    }

    /// Puts a row that must be new.
    pub async fn put(&self, row: &OrderRow) -> Result<Put, StoreError> {
        let answer = self
            .db
            .put_item()
            .table_name(&self.table)
            .set_item(Some(to_item(row)?))
            .condition_expression("attribute_not_exists(orderNo)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(Put::Created),
            Err(SdkError::ServiceError(failed)) if failed.err().is_conditional_check_failed_exception() => {
                match failed.into_err() {
                    PutItemError::ConditionalCheckFailedException(old) => match old.item {
                        Some(item) => Ok(Put::Exists(Box::new(from_item(item)?))),
                        None => self.put_met(&row.order_no).await,
                    },
                    other => Err(StoreError::Unavailable { operation: "PutItem order", source: Box::new(other) }),
                }
            }
            // Being committed at this moment, so it is there.
            Err(SdkError::ServiceError(failed)) if failed.err().is_transaction_conflict_exception() => {
                self.put_met(&row.order_no).await
            }
            Err(error) => Err(StoreError::unavailable("PutItem order")(error)),
        }
    }

    /// What a put met, when the answer did not say.
    async fn put_met(&self, order_no: &OrderNo) -> Result<Put, StoreError> {
        match self.get(order_no).await? {
            Some(row) => Ok(Put::Exists(Box::new(row))),
            None => Err(StoreError::Corrupt(format!("order {order_no} is there and is not"))),
        }
    }

    /// PRE_CREATED → FAILED, if it still is PRE_CREATED.
    pub async fn fail(&self, order_no: &OrderNo, reason: EndReason, now: UnixMillis) -> Result<GaveUp, StoreError> {
        let change =
            Transition::new(OrderStatus::PreCreated, OrderStatus::Failed, now)?.assign("reason", attribute(&reason)?);
        match self.update(order_no, change.expression_undue(), change.condition, change.values).await? {
            Updated::Done => Ok(GaveUp::Failed),
            Updated::Refused(Some(row)) => Ok(GaveUp::Was(row)),
            Updated::Refused(None) => Ok(GaveUp::Missing),
        }
    }

    /// Notes that a PRE_CREATED order was sent again, and when to look at it next.
    pub async fn postpone(&self, order_no: &OrderNo, attempts: u32, due_at: UnixMillis) -> Result<(), StoreError> {
        let values = Item::from([
            (":from".to_owned(), text(OrderStatus::PreCreated.as_str())),
            (":attempts".to_owned(), number(i64::from(attempts))),
            (":dueAt".to_owned(), number(due_at.get())),
        ]);
        // Refused means that it has moved on, which is what the sending was for.
        let set = "SET attempts = :attempts, dueAt = :dueAt".to_owned();
        self.update(order_no, set, "#status = :from".to_owned(), values).await.map(|_| ())
    }

    /// Notes that a PRE_CREATED order is being sent again, unless it was after `not_since`, or has moved on. False: it was, or has.
    pub(crate) async fn note_sending(
        &self,
        order_no: &OrderNo,
        now: UnixMillis,
        not_since: UnixMillis,
    ) -> Result<bool, StoreError> {
        let values = Item::from([
            (":from".to_owned(), text(OrderStatus::PreCreated.as_str())),
            (":now".to_owned(), number(now.get())),
            (":notSince".to_owned(), number(not_since.get())),
        ]);
        let condition = "#status = :from AND (attribute_not_exists(resentAt) OR resentAt <= :notSince)".to_owned();
        match self.update(order_no, "SET resentAt = :now".to_owned(), condition, values).await? {
            Updated::Done => Ok(true),
            Updated::Refused(_) => Ok(false),
        }
    }

    /// What is due to an order in `status` has to wait until `due_at`.
    pub(crate) async fn put_off(
        &self,
        order_no: &OrderNo,
        status: OrderStatus,
        due_at: UnixMillis,
    ) -> Result<(), StoreError> {
        let values =
            Item::from([(":from".to_owned(), text(status.as_str())), (":dueAt".to_owned(), number(due_at.get()))]);
        self.update(order_no, "SET dueAt = :dueAt".to_owned(), "#status = :from".to_owned(), values).await.map(|_| ())
    }

    /// Nothing is owed any more for an order in `status`.
    pub(crate) async fn acquit(&self, order_no: &OrderNo, status: OrderStatus) -> Result<(), StoreError> {
        let values = Item::from([(":from".to_owned(), text(status.as_str()))]);
        let set = "REMOVE dueShard, dueAt".to_owned();
        self.update(order_no, set, "#status = :from".to_owned(), values).await.map(|_| ())
    }

    /// Notes that the gate had lost this order's hold.
    pub(crate) async fn note_drift(&self, row: &OrderRow) -> Result<(), StoreError> {
        let values = Item::from([
            (":from".to_owned(), text(row.status.as_str())),
            (":drifts".to_owned(), number(i64::from(row.drifts) + 1)),
        ]);
        let set = "SET drifts = :drifts".to_owned();
        self.update(&row.order_no, set, "#status = :from".to_owned(), values).await.map(|_| ())
    }

    async fn update(
        &self,
        order_no: &OrderNo,
        set: String,
        condition: String,
        values: Item,
    ) -> Result<Updated, StoreError> {
        let (placeholder, name) = STATUS_NAME;
        let answer = self
            .db
            .update_item()
            .table_name(&self.table)
            .set_key(Some(order_key(order_no)))
            .update_expression(set)
            .condition_expression(condition)
            .expression_attribute_names(placeholder, name)
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(Updated::Done),
            Err(SdkError::ServiceError(failed)) if failed.err().is_conditional_check_failed_exception() => {
                match failed.into_err() {
                    UpdateItemError::ConditionalCheckFailedException(old) => {
                        Ok(Updated::Refused(old.item.map(from_item).transpose()?.map(Box::new)))
                    }
                    other => Err(StoreError::Unavailable { operation: "UpdateItem order", source: Box::new(other) }),
                }
            }
            Err(error) => Err(StoreError::unavailable("UpdateItem order")(error)),
        }
    }

    /// A user's orders, newest first. Read from an index: an order made a moment ago may be missing.
    pub async fn list_by_user(&self, user_id: &UserId, limit: u8, after: Option<&Cursor>) -> Result<Page, StoreError> {
        let start = after.map(|cursor| {
            Item::from([
                ("userId".to_owned(), text(user_id.as_str())),
                ("createdKey".to_owned(), text(cursor.created_key.as_str())),
                ("orderNo".to_owned(), text(cursor.order_no.as_str())),
            ])
        });
        let answer = self
            .db
            .query()
            .table_name(&self.table)
            .index_name(BY_USER)
            .key_condition_expression("userId = :user")
            .expression_attribute_values(":user", text(user_id.as_str()))
            .scan_index_forward(false)
            .limit(i32::from(limit))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(StoreError::unavailable("Query orders by user"))?;
        let more = answer.last_evaluated_key.is_some();
        let orders: Vec<OrderRow> = readable(answer.items.unwrap_or_default()).collect();
        let next = orders
            .last()
            .filter(|_| more)
            .map(|last| Cursor { created_key: last.created_key.clone(), order_no: last.order_no.clone() });
        Ok(Page { orders, next })
    }

    /// Every order of an offer, whatever its status. Read from an index: what was written in the last moments may be
    /// missing or old, so callers wait, or look again, before they judge.
    pub async fn all_of_offer(&self, offer: &OfferId) -> Result<Vec<OrderRow>, StoreError> {
        let shards = (0..OFFER_SHARDS).map(|shard| self.part_of_offer(offer, shard));
        Ok(try_join_all(shards).await?.into_iter().flatten().collect())
    }

    /// The orders of one part of the offer's index, 0 to [`OFFER_SHARDS`] − 1; see [`Orders::all_of_offer`].
    pub async fn part_of_offer(&self, offer: &OfferId, shard: u8) -> Result<Vec<OrderRow>, StoreError> {
        query_all(self.query_part(offer, shard), "Query orders by offer").await
    }

    /// The same, page by page.
    pub(crate) fn pages_of_offer(&self, offer: &OfferId, shard: u8) -> Pages<OrderRow> {
        Pages::new(self.query_part(offer, shard), "Query orders by offer")
    }

    fn query_part(&self, offer: &OfferId, shard: u8) -> QueryFluentBuilder {
        self.db
            .query()
            .table_name(&self.table)
            .index_name(BY_OFFER)
            .key_condition_expression("offerShard = :shard")
            .expression_attribute_values(":shard", text(offer_shard(offer, shard)))
    }

    /// A user's orders of an activity that ran out of time unpaid, among the newest [`RECENT`] of that user. Read from an
    /// index.
    pub(crate) async fn timed_out(
        &self,
        user_id: &UserId,
        activity_id: &ActivityId,
    ) -> Result<Vec<OrderNo>, StoreError> {
        let page = self.list_by_user(user_id, RECENT, None).await?;
        let orders = page.orders.into_iter();
        let orders = orders.filter(|row| row.activity_id == *activity_id && row.reason == Some(EndReason::PayTimeout));
        Ok(orders.map(|row| row.order_no).collect())
    }

    /// Numbers of orders in `status` that are due by `now`, the longest due first within each part of the index; at most
    /// `limit` of each part.
    pub async fn due(&self, status: OrderStatus, now: UnixMillis, limit: u16) -> Result<Vec<OrderNo>, StoreError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Due {
            order_no: OrderNo,
        }
        let shards = (0..DUE_SHARDS).map(|shard| async move {
            let answer = self
                .db
                .query()
                .table_name(&self.table)
                .index_name(DUE)
                .key_condition_expression("dueShard = :shard AND dueAt <= :now")
                .expression_attribute_values(":shard", text(due_shard(status, shard)))
                .expression_attribute_values(":now", number(now.get()))
                .limit(i32::from(limit))
                .send()
                .await
                .map_err(StoreError::unavailable("Query due orders"))?;
            answer
                .items
                .unwrap_or_default()
                .into_iter()
                .map(|item| from_item(item).map(|due: Due| due.order_no))
                .collect()
        });
        let parts: Vec<Vec<OrderNo>> = try_join_all(shards).await?;
        Ok(parts.into_iter().flatten().collect())
    }
}

enum Updated {
    Done,
    Refused(Option<Box<OrderRow>>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_given_out_and_nothing_else_does() {
        let order_no: OrderNo = "SK1".parse().unwrap();
        let cursor = Cursor { created_key: created_key(UnixMillis::new(1_780_000_000_000), &order_no), order_no };
        assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
        let encode = |text: &str| data_encoding::BASE64URL_NOPAD.encode(text.as_bytes());
        for bad in
            ["", "?", "AA", &encode("SK1"), &encode("178#SK1"), &encode("1780000000000#"), &encode("178000000000x#SK1")]
        {
            assert_eq!(Cursor::decode(bad), Err(CursorError), "{bad}");
        }
    }

    #[test]
    fn an_illegal_transition_cannot_be_written() {
        let now = UnixMillis::new(1_780_000_000_000);
        assert!(Transition::new(OrderStatus::PreCreated, OrderStatus::Unpaid, now).is_ok());
        assert!(Transition::new(OrderStatus::Failed, OrderStatus::Unpaid, now).is_err());
        assert!(Transition::new(OrderStatus::PreCreated, OrderStatus::Paid, now).is_err());
    }

    #[test]
    fn shards_are_even() {
        let mut counts = [0; OFFER_SHARDS as usize];
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"k");
        let offer = OfferId { activity_id: "a".parse().unwrap(), sku_id: "s".parse().unwrap() };
        for user in 0..8_000 {
            let user = format!("u{user}").parse().unwrap();
            let order_no = crate::order::order_no(&key, &user, &offer, &"k".parse().unwrap()).unwrap();
            counts[usize::from(shard_of(&order_no, OFFER_SHARDS))] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
