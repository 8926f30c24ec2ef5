//! What is due to an order that stands: its end when it is not paid in time, and once it is PAID or CANCELLED, that
//! everybody learns of it.
//!
//! Two come here with order numbers: the reminders' queue (at the deadline, or at once when something was done about an
//! order) and the sweep, for whatever a lost reminder left in the due index. Neither is believed: the row, read now, alone
//! decides. So a reminder may come early, late, twice or never.
//!
//! Whoever makes an order PAID or CANCELLED leaves it in the due index in the same write. It leaves the index when the buyer,
//! the gate and (of a paid one) the warehouse have been told, each of whom may be told twice.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::try_join_all;
use futures_util::{StreamExt, stream};
use kernel::ids::{ActivityId, OrderNo, UserId};
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
/// Rows written to at once, and buyers whose orders are looked through at once.
const WRITES_AT_ONCE: usize = 25;
const BUYERS_AT_ONCE: usize = 8;
/// How long an order waits that cannot be cancelled, in seconds: people have to look, and others must not wait behind it.
const PUT_OFF_SECS: i64 = 3_600;

/// What was done about some orders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attended {
    /// Ran out of time, and were cancelled.
    pub cancelled: usize,
    /// Everybody has been told about them.
    pub acquitted: usize,
    /// Not due yet: they will be reminded of.
    pub later: usize,
    /// Still owed something, since a store did not answer or time was over.
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
            Some(Outcome::Unknown) => {
                tracing::error!(alarm = "ORDER_STUCK", order_no = %row.order_no, "an order cannot be cancelled");
                let until = stores.clock.now().plus_secs(PUT_OFF_SECS);
                if let Err(error) = stores.orders.put_off(&row.order_no, OrderStatus::Unpaid, until).await {
                    tracing::warn!(order_no = %row.order_no, error = &error as &dyn std::error::Error, "not put off");
                    attended.left += 1;
                }
            }
            Some(Outcome::Busy) | None => attended.left += 1,
        }
    }

    let by_offer = owed.into_iter().fold(HashMap::<OfferId, Vec<OrderRow>>::new(), |mut by_offer, row| {
        by_offer.entry(row.offer()).or_default().push(row);
        by_offer
    });
    let mut followed: Vec<OrderRow> = Vec::new();
    for (offer, rows) in by_offer {
        if stores.clock.now() >= deadline {
            attended.left += rows.len();
            continue;
        }
        let mut following = Following::default();
        for row in &rows {
            following.note(row.order_no.clone(), row.status);
        }
        match following.tell(&stores.gate, &offer).await {
            Ok(()) => followed.extend(rows),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "orders are left to the sweep");
                attended.left += rows.len();
            }
        }
    }
    if followed.is_empty() {
        return Ok(attended);
    }
    kernel::crash::point("due.after_gate");
    match acquit(stores, messenger, &followed).await {
        Ok(true) => attended.acquitted += followed.len(),
        Ok(false) => attended.left += followed.len(),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "orders are left to the sweep");
            attended.left += followed.len();
        }
    }
    Ok(attended)
}

/// Tells everybody but the gate about PAID and CANCELLED orders, all in one go, then takes them out of the due index. False:
/// somebody could not be told.
async fn acquit<C>(stores: &Stores<C>, messenger: &impl Messenger, rows: &[OrderRow]) -> Result<bool, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    cool_down(stores, rows).await?;
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

/// Keeps buyers who let too many orders run out of time from buying in that activity for a while.
async fn cool_down<C>(stores: &Stores<C>, rows: &[OrderRow]) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let mut offenders: BTreeMap<(&ActivityId, &UserId), Vec<&OrderRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.reason == Some(EndReason::PayTimeout)) {
        offenders.entry((&row.activity_id, &row.user_id)).or_default().push(row);
    }
    let mut counted = stream::iter(offenders)
        .map(|((activity_id, user_id), rows)| async move {
            let mut timed_out: HashSet<OrderNo> =
                stores.orders.timed_out(user_id, activity_id).await?.into_iter().collect();
            // The index may not show yet what was done a moment ago.
            timed_out.extend(rows.iter().map(|row| row.order_no.clone()));
            let last = rows.iter().map(|row| row.updated_at).max();
            Ok::<_, SaleError>((activity_id, user_id, last.filter(|_| timed_out.len() >= UNPAID_ORDERS)))
        })
        .buffered(BUYERS_AT_ONCE);
    let mut offers: HashMap<&ActivityId, Vec<OfferId>> = HashMap::new();
    while let Some(next) = counted.next().await {
        let (activity_id, user_id, Some(last)) = next? else { continue };
        tracing::info!(%user_id, %activity_id, "cool-down");
        if !offers.contains_key(activity_id) {
            let rows = stores.offers.offers_of(activity_id).await?;
            offers.insert(activity_id, rows.iter().map(|row| row.id()).collect());
        }
        for offer in offers.get(activity_id).into_iter().flatten() {
            stores.gate.cool_down(offer, user_id, last.plus_secs(COOL_DOWN_SECS)).await?;
        }
    }
    Ok(())
}
