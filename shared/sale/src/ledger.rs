//! Turns admitted orders into real ones, and unpaid ones into cancelled ones: many at a time, each exactly once.
//!
//! A flash sale has one hot item, the offer's count. So orders are moved as a group: one transaction moves up to [`GROUP`]
//! rows (PRE_CREATED to UNPAID, or UNPAID to CANCELLED), raises or lowers each user's claim, and what remains of the offer
//! **once**. When the transaction is refused, its reasons say which of three things happened:
//!
//! 1. a row is not where the move begins any more: the row says what became of the order, and the others are tried again;
//! 2. a guard refused (a claim, the offer): those orders are tried singly, and each is committed, or FAILED with the reason;
//! 3. DynamoDB was busy (conflict, throttling): tried again until the deadline, then left for later. Never a refusal.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use futures_util::future::join_all;
use kernel::backoff::full_jitter;
use kernel::ids::OrderNo;
use kernel::time::{Clock, UnixMillis};

use crate::offer::{Allowance, OfferId};
use crate::order::{EndReason, OrderStatus};
use crate::queue::OrderMessage;
use crate::store::offers::{claim_key, offer_key};
use crate::store::orders::{GaveUp, OWED_SECS, OrderRow, STATUS_NAME, Transition, order_key};
use crate::store::{Offers, Orders, StoreError, attribute, from_item, number, text};

/// Orders a transaction: DynamoDB takes 100 actions, and `n` orders of `n` users are `2n + 1`.
pub const GROUP: usize = 49;
/// The wait before the first repetition of a transaction that met a conflict, and the longest one.
const RETRY_BASE: Duration = Duration::from_millis(20);
const RETRY_CAP: Duration = Duration::from_millis(500);

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The order's row says this since `at`, whoever wrote it.
    Settled { status: OrderStatus, reason: Option<EndReason>, at: UnixMillis },
    /// Not settled before the deadline; to be delivered again.
    Busy,
    /// There is no such order, or it is not what the message says.
    Unknown,
}

/// What a group of orders is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Commit,
    Cancel(EndReason),
}

/// The tables that a group of orders moves.
#[derive(Debug, Clone)]
pub struct Ledger {
    pub orders: Orders,
    pub offers: Offers,
    pub clock: Clock,
}

impl Ledger {
    /// Commits `messages`, of any offers, in any order, some perhaps twice. Answers one outcome for each order number.
    pub async fn commit(&self, messages: Vec<OrderMessage>, deadline: UnixMillis) -> HashMap<OrderNo, Outcome> {
        self.move_all(Move::Commit, messages, deadline).await
    }

    /// Cancels `orders` that are UNPAID, of any offers. Answers one outcome for each order number.
    pub async fn cancel(
        &self,
        orders: &[OrderRow],
        reason: EndReason,
        deadline: UnixMillis,
    ) -> HashMap<OrderNo, Outcome> {
        self.move_all(Move::Cancel(reason), orders.iter().map(OrderMessage::from).collect(), deadline).await
    }

    async fn move_all(&self, to: Move, messages: Vec<OrderMessage>, deadline: UnixMillis) -> HashMap<OrderNo, Outcome> {
        let mut seen = HashSet::new();
        let mut by_offer: HashMap<OfferId, Vec<OrderMessage>> = HashMap::new();
        for message in messages {
            if seen.insert(message.order_no.clone()) {
                by_offer.entry(message.offer()).or_default().push(message);
            }
        }
        let offers = by_offer.iter().map(|(offer, messages)| async move {
            let mut outcomes = Vec::with_capacity(messages.len());
            // One after the other: groups of one offer would only meet each other at its count.
            for group in messages.chunks(GROUP) {
                outcomes.extend(self.move_group(to, offer, group, deadline).await);
            }
            outcomes
        });
        join_all(offers).await.into_iter().flatten().collect()
    }

    async fn move_group(
        &self,
        to: Move,
        offer: &OfferId,
        group: &[OrderMessage],
        deadline: UnixMillis,
    ) -> Vec<(OrderNo, Outcome)> {
        let mut outcomes = Vec::with_capacity(group.len());
        let mut open: Vec<&OrderMessage> = group.iter().collect();
        let mut singly: Vec<&OrderMessage> = Vec::new();
        let mut attempt = 0;
        while !open.is_empty() {
            let now = self.clock.now();
            if now >= deadline {
                outcomes.extend(open.drain(..).map(|message| (message.order_no.clone(), Outcome::Busy)));
                break;
            }
            match self.transact(to, offer, &open, now).await {
                Attempt::Committed => {
                    let moved = match to {
                        Move::Commit => Outcome::Settled { status: OrderStatus::Unpaid, reason: None, at: now },
                        Move::Cancel(reason) => {
                            Outcome::Settled { status: OrderStatus::Cancelled, reason: Some(reason), at: now }
                        }
                    };
                    outcomes.extend(open.drain(..).map(|message| (message.order_no.clone(), moved.clone())));
                }
                Attempt::Moved(moved) => {
                    open.retain(|message| !moved.contains_key(&message.order_no));
                    outcomes.extend(moved);
                }
                Attempt::Guarded { users, offer_refused } => {
                    if let [message] = open.as_slice() {
                        if let Move::Cancel(_) = to {
                            // Its units are not where its commit put them. A defect, and nothing to be guessed at.
                            tracing::warn!(order_no = %message.order_no, "claim or offer know nothing of a live order");
                            outcomes.push((message.order_no.clone(), Outcome::Unknown));
                            break;
                        }
                        let reason = if users.is_empty() { EndReason::StockEmpty } else { EndReason::LimitExceeded };
                        outcomes.push((message.order_no.clone(), self.refuse(message, reason).await));
                        open.clear();
                    } else {
                        let (alone, together) =
                            open.into_iter().partition(|message| offer_refused || users.contains(&message.allowance()));
                        singly.extend::<Vec<_>>(alone);
                        open = together;
                    }
                }
                Attempt::Busy => {
                    let wait = full_jitter(attempt, RETRY_BASE, RETRY_CAP);
                    attempt += 1;
                    tokio::time::sleep(wait).await;
                }
            }
        }
        for message in singly {
            // A group of one cannot come back here, so this ends.
            outcomes.extend(Box::pin(self.move_group(to, offer, std::slice::from_ref(message), deadline)).await);
        }
        outcomes
    }

    /// One try to move `group` whole.
    async fn transact(&self, to: Move, offer: &OfferId, group: &[&OrderMessage], now: UnixMillis) -> Attempt {
        let transaction = match self.transaction(to, offer, group, now) {
            Ok(transaction) => transaction,
            Err(error) => {
                // Cannot come from a message: a defect. The dead-letter queue shows it, and keeps the orders.
                tracing::error!(error = &error as &dyn std::error::Error, "a move of orders cannot be written");
                return Attempt::Moved(
                    group.iter().map(|message| (message.order_no.clone(), Outcome::Unknown)).collect(),
                );
            }
        };
        let users = transaction.users;
        let answer = self.orders.db.transact_write_items().set_transact_items(Some(transaction.items)).send().await;
        let reasons = match answer {
            Ok(_) => return Attempt::Committed,
            Err(SdkError::ServiceError(error)) => match error.into_err() {
                TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                    cancelled.cancellation_reasons.unwrap_or_default()
                }
                other => return busy(&other),
            },
            Err(error) => return busy(&error),
        };
        match read_reasons(&reasons, group, &users) {
            Ok(attempt) => attempt,
            Err(error) => busy(&error),
        }
    }

    fn transaction(
        &self,
        to: Move,
        offer: &OfferId,
        group: &[&OrderMessage],
        now: UnixMillis,
    ) -> Result<Transaction, StoreError> {
        let mut items = Vec::with_capacity(2 * group.len() + 1);
        let mut users: Vec<Claim> = Vec::with_capacity(group.len());
        let mut units = 0;
        for message in group {
            let change = match to {
                Move::Commit => {
                    let deadline = now.plus_secs(i64::from(message.pay_window_secs));
                    Transition::new(OrderStatus::PreCreated, OrderStatus::Unpaid, now)?
                        .assign("payDeadline", number(deadline.get()))
                        .due(OrderStatus::Unpaid, &message.order_no, deadline)
                }
                Move::Cancel(reason) => Transition::new(OrderStatus::Unpaid, OrderStatus::Cancelled, now)?
                    .assign("reason", attribute(&reason)?)
                    .due(OrderStatus::Cancelled, &message.order_no, now.plus_secs(OWED_SECS)),
            };
            let change = change
                .when("userId", text(message.user_id.as_str()))
                .when("activityId", text(message.activity_id.as_str()))
                .when("skuId", text(message.sku_id.as_str()))
                .when("qty", number(message.qty.units()))
                .when("limitPerUser", number(i64::from(message.limit_per_user)))
                .when("payWindowSecs", number(i64::from(message.pay_window_secs)));
            let change = match message.limit_day {
                Some(day) => change.when("limitDay", number(day)),
                None => change.when_absent("limitDay"),
            };
            let (placeholder, name) = STATUS_NAME;
            items.push(
                Update::builder()
                    .table_name(&self.orders.table)
                    .set_key(Some(order_key(&message.order_no)))
                    .update_expression(change.expression())
                    .condition_expression(&change.condition)
                    .expression_attribute_names(placeholder, name)
                    .set_expression_attribute_values(Some(change.values))
                    .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld),
            );
            units += message.qty.units();
            // One item may stand in a transaction once: orders of one user share a claim.
            match users.iter_mut().find(|claim| claim.allowance == message.allowance()) {
                Some(claim) => {
                    claim.units += message.qty.units();
                    claim.limit = claim.limit.min(i64::from(message.limit_per_user));
                }
                None => users.push(Claim {
                    allowance: message.allowance(),
                    units: message.qty.units(),
                    limit: i64::from(message.limit_per_user),
                }),
            }
        }
        for claim in &users {
            let update =
                Update::builder().table_name(&self.offers.table).set_key(Some(claim_key(&claim.allowance, offer)));
            items.push(match to {
                Move::Commit => {
                    // `units + q ≤ limit`, in the form that a condition can take. A missing claim is zero units.
                    let room = claim.limit - claim.units;
                    let condition =
                        if room < 0 { "units <= :room" } else { "attribute_not_exists(units) OR units <= :room" };
                    update
                        .update_expression("ADD units :units")
                        .condition_expression(condition)
                        .expression_attribute_values(":units", number(claim.units))
                        .expression_attribute_values(":room", number(room))
                }
                Move::Cancel(_) => update
                    .update_expression("SET units = units - :units")
                    .condition_expression("units >= :units")
                    .expression_attribute_values(":units", number(claim.units)),
            });
        }
        let (set, condition) = match to {
            Move::Commit => ("SET remaining = remaining - :units", "remaining >= :units"),
            Move::Cancel(_) => ("SET remaining = remaining + :units", "attribute_exists(pk)"),
        };
        items.push(
            Update::builder()
                .table_name(&self.offers.table)
                .set_key(Some(offer_key(offer)))
                .update_expression(set)
                .condition_expression(condition)
                .expression_attribute_values(":units", number(units)),
        );
        let items = items
            .into_iter()
            .map(|update| update.build().map(|update| TransactWriteItem::builder().update(update).build()))
            .collect::<Result<_, _>>()
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Transaction { items, users: users.into_iter().map(|claim| claim.allowance).collect() })
    }

    /// PRE_CREATED → FAILED, unless the row has moved meanwhile: then what it says counts.
    async fn refuse(&self, message: &OrderMessage, reason: EndReason) -> Outcome {
        let now = self.clock.now();
        match self.orders.fail(&message.order_no, reason, now).await {
            Ok(GaveUp::Failed) => Outcome::Settled { status: OrderStatus::Failed, reason: Some(reason), at: now },
            Ok(GaveUp::Was(row)) => settled(&row),
            Ok(GaveUp::Missing) => Outcome::Unknown,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a refusal is left to the next delivery");
                Outcome::Busy
            }
        }
    }
}

fn settled(row: &OrderRow) -> Outcome {
    Outcome::Settled { status: row.status, reason: row.reason, at: row.updated_at }
}

struct Claim {
    allowance: Allowance,
    units: i64,
    limit: i64,
}

struct Transaction {
    /// The orders, then the claims, then the offer.
    items: Vec<TransactWriteItem>,
    /// Whose claims they are, in the order of the items.
    users: Vec<Allowance>,
}

enum Attempt {
    Committed,
    /// Rows that were not as the commit needs them, and what they say.
    Moved(HashMap<OrderNo, Outcome>),
    /// Which guards refused.
    Guarded {
        users: HashSet<Allowance>,
        offer_refused: bool,
    },
    Busy,
}

/// Whatever is not a judgement on rows: throttled, unreachable, internal. The row will tell whether it happened all the same.
fn busy(error: &(dyn std::error::Error + 'static)) -> Attempt {
    tracing::warn!(error, "a transaction is tried again");
    Attempt::Busy
}

/// Reads why a transaction was cancelled: own rows before guards, and guards before conflicts, since a row or a guard that
/// refused would do so again.
fn read_reasons(
    reasons: &[CancellationReason],
    group: &[&OrderMessage],
    users: &[Allowance],
) -> Result<Attempt, StoreError> {
    if reasons.len() != group.len() + users.len() + 1 {
        return Err(StoreError::Corrupt(format!(
            "{} reasons for {} actions",
            reasons.len(),
            group.len() + users.len() + 1
        )));
    }
    let refused = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
    let (own, guards) = reasons.split_at(group.len());
    let mut moved = HashMap::new();
    for (reason, message) in own.iter().zip(group).filter(|(reason, _)| refused(reason)) {
        let outcome = match reason.item().map(|item| from_item::<OrderRow>(item.clone())) {
            None => Outcome::Unknown,
            Some(Ok(row)) => {
                if OrderMessage::from(&row) == **message {
                    settled(&row)
                } else {
                    Outcome::Unknown
                }
            }
            Some(Err(error)) => {
                // One row that cannot be read must not hold up the others.
                tracing::error!(order_no = %message.order_no, error = &error as &dyn std::error::Error, "not moved");
                Outcome::Unknown
            }
        };
        moved.insert(message.order_no.clone(), outcome);
    }
    if !moved.is_empty() {
        return Ok(Attempt::Moved(moved));
    }
    let (claims, offer) = guards.split_at(users.len());
    let refused_users: HashSet<Allowance> =
        claims.iter().zip(users).filter(|(reason, _)| refused(reason)).map(|(_, user)| user.clone()).collect();
    let offer_refused = offer.iter().any(refused);
    if offer_refused || !refused_users.is_empty() {
        return Ok(Attempt::Guarded { users: refused_users, offer_refused });
    }
    let codes: HashSet<&str> =
        reasons.iter().filter_map(CancellationReason::code).filter(|code| *code != "None").collect();
    Err(StoreError::Unavailable {
        operation: "TransactWriteItems orders",
        source: format!("cancelled: {codes:?}").into(),
    })
}
