//! What is due to an order that stands: its end when it is not paid in time, and once it is PAID or CANCELLED, that
//! everybody learns of it.
//!
//! Two come here with order numbers: the reminders' queue (at the deadline, or at once when something was done about an
//! order) and the sweep, for whatever a lost reminder left in the due index. Neither is believed: the row, read now, alone
//! decides. So a reminder may come early, late, twice or never.
//!
//! Whoever makes an order PAID or CANCELLED leaves it in the due index in the same write. It leaves the index when the buyer,
//! the gate and (of a paid one) the warehouse have been told, each of whom may be told twice.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use kernel::ids::OrderNo;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

use crate::follow::{Decided, Following, Messenger, Told};
use crate::ledger::Outcome;
use crate::offer::OfferId;
use crate::order::{EndReason, OrderStatus};
use crate::queue::Reminder;
use crate::store::orders::OrderRow;
use crate::{SaleError, Stores};

/// Orders of an activity that a user may let run out of time; with this many a cool-down begins.
pub const UNPAID_ORDERS: usize = 3;
/// How long the cool-down lasts after the last of them, in seconds.
pub const COOL_DOWN_SECS: i64 = 900;
/// Rows written to at once.
const WRITES_AT_ONCE: usize = 25;

/// What was done about some orders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attended {
    /// Ran out of time, and were cancelled.
    pub cancelled: usize,
    /// Everybody has been told about them.
    pub acquitted: usize,
    /// Not due yet: they will be reminded of.
    pub later: usize,
    /// Still owed something, since a store did not answer.
    pub left: usize,
}

/// Sees to what is due to `order_nos`. Orders to which nothing is due, and numbers of none, are passed over.
pub async fn attend<C>(
    stores: &Stores<C>,
    messenger: &impl Messenger,
    order_nos: &[OrderNo],
    deadline: UnixMillis,
) -> Result<Attended, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let mut attended = Attended::default();
    let now = stores.clock.now();
    let mut owed: Vec<OrderRow> = Vec::new();
    let mut expired: Vec<OrderRow> = Vec::new();
    let mut early: Vec<Reminder> = Vec::new();
    for row in stores.orders.get_many(order_nos).await? {
        match (row.status, row.pay_deadline) {
            (OrderStatus::Unpaid, Some(pay_deadline)) if pay_deadline > now => {
                early.push(Reminder::at(row.order_no, pay_deadline, now));
            }
            (OrderStatus::Unpaid, _) => expired.push(row),
            _ if row.is_owed() => owed.push(row),
            _ => {}
        }
    }
    attended.later = early.len();
    if let Err(error) = stores.reminders.send(&early).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "reminders are left to the sweep");
    }

    let outcomes = stores.ledger().cancel(&expired, EndReason::PayTimeout, deadline).await;
    kernel::crash::point("due.after_transaction");
    for mut row in expired {
        match outcomes.get(&row.order_no) {
            Some(Outcome::Settled { status, reason, at }) => {
                if *status == OrderStatus::Cancelled && *reason == Some(EndReason::PayTimeout) {
                    attended.cancelled += 1;
                }
                // One that was paid meanwhile is reminded of by whoever took the money.
                if *status == OrderStatus::Cancelled {
                    (row.status, row.reason, row.updated_at) = (*status, *reason, *at);
                    owed.push(row);
                }
            }
            Some(Outcome::Busy | Outcome::Unknown) | None => attended.left += 1,
        }
    }

    let by_offer = owed.into_iter().fold(HashMap::<OfferId, Vec<OrderRow>>::new(), |mut by_offer, row| {
        by_offer.entry(row.offer()).or_default().push(row);
        by_offer
    });
    for (offer, rows) in by_offer {
        let count = rows.len();
        match acquit(stores, messenger, &offer, rows).await {
            Ok(true) => attended.acquitted += count,
            Ok(false) => attended.left += count,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "orders are left to the sweep");
                attended.left += count;
            }
        }
    }
    Ok(attended)
}

/// Tells everybody about PAID and CANCELLED orders of one offer, then takes them out of the due index. False: somebody could
/// not be told.
async fn acquit<C>(
    stores: &Stores<C>,
    messenger: &impl Messenger,
    offer: &OfferId,
    rows: Vec<OrderRow>,
) -> Result<bool, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let mut following = Following::default();
    for row in &rows {
        following.note(row.order_no.clone(), row.status);
    }
    following.tell(&stores.gate, offer).await?;
    kernel::crash::point("due.after_gate");
    let timed_out = rows.iter().filter(|row| row.reason == Some(EndReason::PayTimeout));
    for row in timed_out {
        cool_down(stores, row).await?;
    }
    let decided: Vec<Decided> = rows.iter().filter_map(Decided::of).collect();
    if messenger.tell(&decided).await == Told::NotStored {
        return Ok(false);
    }
    kernel::crash::point("due.after_push");
    let paid: Vec<&OrderRow> = rows.iter().filter(|row| row.status == OrderStatus::Paid).collect();
    if !paid.is_empty() && messenger.publish_paid(&paid).await == Told::NotStored {
        return Ok(false);
    }
    kernel::crash::point("due.after_publish");
    for some in rows.chunks(WRITES_AT_ONCE) {
        try_join_all(some.iter().map(|row| stores.orders.acquit(&row.order_no, row.status))).await?;
    }
    Ok(true)
}

/// Keeps a buyer who let too many orders run out of time from buying in this activity for a while.
async fn cool_down<C>(stores: &Stores<C>, row: &OrderRow) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if stores.orders.others_timed_out(row).await? + 1 < UNPAID_ORDERS {
        return Ok(());
    }
    let until = row.updated_at.plus_secs(COOL_DOWN_SECS);
    tracing::info!(user_id = %row.user_id, activity_id = %row.activity_id, "cool-down");
    for offer in stores.offers.offers_of(&row.activity_id).await? {
        stores.gate.cool_down(&offer.id(), &row.user_id, until).await?;
    }
    Ok(())
}
