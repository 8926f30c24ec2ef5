//! What became of a user's orders, kept for a day and until it was seen.
//!
//! One row for each order and status: `USER#<user> / RESULT#<orderNo>#<orderStatus>`. An order is decided more than once in
//! its life (UNPAID, later CANCELLED), and the two must not get into each other's way: storing a status again, late and by a
//! function that was frozen meanwhile, never covers a newer one, and saying "seen" of the old never means the new. Of one
//! order only the newest status is told, by the time at which the order's row got it.
//!
//! An acknowledgement marks and never deletes, and what is stored is not stored again: the result of an order may be
//! delivered twice, and the second must find that there was a first, and whether it was seen. Only a result that was decided
//! later takes the place of one with the same status: the refund of a cancelled order has news about it.

use std::borrow::Cow;
use std::collections::HashMap;

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::ids::{OrderNo, UserId};
use kernel::text::Text;
use kernel::time::UnixMillis;
use serde::{Deserialize, Serialize};

use crate::ids::Party;
use crate::store::{Item, StoreError, TTL, Table, Written, conditional, conditional_or_found, key, number, party_pk};

/// How long a result is repeated, from when it was decided.
pub const KEPT_SECS: i64 = 24 * 60 * 60;
/// Results repeated at once. What is beyond comes when these are acknowledged.
pub const MAX_REPEATED: usize = 50;
/// How long an acknowledgement that does not name the status may be under way: a younger result that followed another one
/// may not be what it is about.
pub const ACK_FLIGHT_SECS: i64 = 10;
/// Results stored at once: a batch of the queue is two rounds.
const PUTS_AT_ONCE: usize = 25;

const SK_RESULT: &str = "RESULT#";

/// What a user has to know about an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultNotice {
    pub user_id: UserId,
    pub order_no: OrderNo,
    /// `success` or `fail`, as clients read it.
    pub status: Cow<'static, str>,
    /// The order's status: `UNPAID`, `FAILED`, …
    pub order_status: Cow<'static, str>,
    pub message: Text,
    /// When the order's row got this status, as the row says. So a result that is delivered again is the same result.
    pub decided_at: UnixMillis,
}

/// A result as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredResult {
    pub order_no: OrderNo,
    pub status: Cow<'static, str>,
    pub order_status: Cow<'static, str>,
    pub message: Text,
    pub decided_at: UnixMillis,
    stored_at: UnixMillis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acknowledged_at: Option<UnixMillis>,
}

/// What became of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledgement {
    Marked,
    /// Names no status, and the newest is too young to be what it is about: it is repeated, and acknowledged again.
    TooEarly,
    /// No such result of this user.
    Unknown,
}

/// The status of an order, as a client names it: 1 to 32 of `A-Z` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct StatusWord(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the status of an order")]
pub struct StatusWordError;

impl TryFrom<String> for StatusWord {
    type Error = StatusWordError;

    fn try_from(text: String) -> Result<Self, StatusWordError> {
        let allowed = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
        if (1..=32).contains(&text.len()) && text.bytes().all(allowed) { Ok(Self(text)) } else { Err(StatusWordError) }
    }
}

impl StoredResult {
    pub(crate) fn new(notice: &ResultNotice, now: UnixMillis) -> Self {
        Self {
            order_no: notice.order_no.clone(),
            status: notice.status.clone(),
            order_status: notice.order_status.clone(),
            message: notice.message.clone(),
            decided_at: notice.decided_at,
            stored_at: now,
            acknowledged_at: None,
        }
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged_at.is_some()
    }

    fn is_over(&self, now: UnixMillis) -> bool {
        self.decided_at.plus_secs(KEPT_SECS) <= now
    }
}

/// Only customers have orders.
fn user_pk(user_id: &UserId) -> String {
    party_pk(&Party::user(user_id.clone()))
}

fn result_key(user_id: &UserId, order_no: &OrderNo, order_status: &str) -> Item {
    key(user_pk(user_id), format!("{SK_RESULT}{order_no}#{order_status}"))
}

/// The stored results of all users.
#[derive(Debug, Clone)]
pub struct Results {
    table: Table,
}

impl Results {
    pub fn new(client: aws_sdk_dynamodb::Client, table: String) -> Self {
        Self { table: Table { client, name: table } }
    }

    /// Stores what is not stored yet, any number. Answers each result once, as it is stored now. On an error some are stored;
    /// storing all again does no harm.
    pub async fn put(
        &self,
        notices: &[ResultNotice],
        now: UnixMillis,
    ) -> Result<Vec<(UserId, StoredResult)>, StoreError> {
        // A queue delivers more than once, and two writes of one row at once would only be in each other's way.
        let mut places = HashMap::new();
        let mut distinct: Vec<&ResultNotice> = Vec::with_capacity(notices.len());
        for notice in notices {
            let place =
                *places.entry((&notice.user_id, &notice.order_no, &notice.order_status)).or_insert(distinct.len());
            match distinct.get_mut(place) {
                Some(known) if known.decided_at < notice.decided_at => *known = notice,
                Some(_) => {}
                None => distinct.push(notice),
            }
        }
        stream::iter(distinct)
            .map(|notice| async move { Ok((notice.user_id.clone(), self.put_one(notice, now).await?)) })
            .buffered(PUTS_AT_ONCE)
            .try_collect()
            .await
    }

    async fn put_one(&self, notice: &ResultNotice, now: UnixMillis) -> Result<StoredResult, StoreError> {
        let result = StoredResult::new(notice, now);
        let mut row: Item = serde_dynamo::to_item(&result).map_err(StoreError::Corrupt)?;
        row.insert(TTL.to_owned(), number(result.decided_at.plus_secs(KEPT_SECS).secs()));
        row.extend(result_key(&notice.user_id, &notice.order_no, &notice.order_status));
        let call = self
            .table
            .client
            .put_item()
            .table_name(&self.table.name)
            .set_item(Some(row))
            .condition_expression("attribute_not_exists(pk) OR decidedAt < :decidedAt")
            .expression_attribute_values(":decidedAt", number(result.decided_at.get()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let known = conditional_or_found(
            "PutItem",
            || call.clone().send(),
            |error| match error {
                PutItemError::ConditionalCheckFailedException(refused) => refused.item.clone(),
                _ => None,
            },
        );
        known.await?.map_or(Ok(result), |known| serde_dynamo::from_item(known).map_err(StoreError::Corrupt))
    }

    /// What `user_id` has not acknowledged, oldest first, at most [`MAX_REPEATED`].
    pub async fn unacknowledged(&self, user_id: &UserId, now: UnixMillis) -> Result<Vec<StoredResult>, StoreError> {
        let mut newest: HashMap<OrderNo, StoredResult> = HashMap::new();
        for result in self.stored(user_id, SK_RESULT.to_owned(), now).await? {
            match newest.get(&result.order_no) {
                Some(known) if known.decided_at >= result.decided_at => {}
                Some(_) | None => {
                    newest.insert(result.order_no.clone(), result);
                }
            }
        }
        let mut open: Vec<_> = newest.into_values().filter(|result| !result.is_acknowledged()).collect();
        open.sort_by(|a, b| (a.decided_at, &a.order_no).cmp(&(b.decided_at, &b.order_no)));
        open.truncate(MAX_REPEATED);
        Ok(open)
    }

    /// The user has seen the result of an order: the one with the status they name, or else the newest, provided that it
    /// is old enough for them to have seen it.
    pub async fn acknowledge(
        &self,
        user_id: &UserId,
        order_no: &OrderNo,
        order_status: Option<&StatusWord>,
        now: UnixMillis,
    ) -> Result<Acknowledgement, StoreError> {
        if let Some(StatusWord(order_status)) = order_status {
            return self.mark(user_id, order_no, order_status, now).await;
        }
        let mut stored = self.stored(user_id, format!("{SK_RESULT}{order_no}#"), now).await?;
        stored.sort_by_key(|result| result.decided_at);
        match &stored[..] {
            [] => Ok(Acknowledgement::Unknown),
            [_, .., newest] if newest.stored_at.plus_secs(ACK_FLIGHT_SECS) > now => Ok(Acknowledgement::TooEarly),
            [.., newest] => self.mark(user_id, order_no, &newest.order_status, now).await,
        }
    }

    async fn mark(
        &self,
        user_id: &UserId,
        order_no: &OrderNo,
        order_status: &str,
        now: UnixMillis,
    ) -> Result<Acknowledgement, StoreError> {
        let call = self
            .table
            .client
            .update_item()
            .table_name(&self.table.name)
            .set_key(Some(result_key(user_id, order_no, order_status)))
            .condition_expression("attribute_exists(pk)")
            .update_expression("SET acknowledgedAt = :now")
            .expression_attribute_values(":now", number(now.get()));
        Ok(match conditional("UpdateItem", || call.clone().send()).await? {
            Written::Done(_) => Acknowledgement::Marked,
            Written::Refused => Acknowledgement::Unknown,
        })
    }

    async fn stored(&self, user_id: &UserId, prefix: String, now: UnixMillis) -> Result<Vec<StoredResult>, StoreError> {
        let rows = self.table.rows(user_pk(user_id), prefix).await?;
        let stored: Vec<StoredResult> =
            rows.into_iter().map(serde_dynamo::from_item).collect::<Result<_, _>>().map_err(StoreError::Corrupt)?;
        Ok(stored.into_iter().filter(|result| !result.is_over(now)).collect())
    }
}
