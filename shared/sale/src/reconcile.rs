//! Gate and rows are compared order by order, never by totals, and the gate is put right.
//!
//! The other steps of the sweep follow what they know of: what is pending at the gate, what is due in the rows. This one
//! finds what neither knows any more, as after a failover that lost the last writes. It rolls over the orders of an offer, a
//! part in each run; a part in which a hold is missing has the whole offer compared at once.
//!
//! | row | hold | then |
//! | --- | --- | --- |
//! | live | none | it is put back; the second time for one order, the gate is made anew |
//! | PAID | HELD | it is sold |
//! | CANCELLED | HELD | it is released: the due index sees to it that the buyer hears of it |
//! | FAILED | HELD | it is released by the sweep, once it has told the buyer: nothing but the hold reminds of that |
//! | none | any, and old | the row is put FAILED/ABANDONED; the hold, see the line above |
//! | live | RELEASED | somebody else may have been promised its units: alarm, and the gate is made anew |
//!
//! Where the book's sums are not those of its holds, nothing in it can be believed: alarm, and the gate is made anew. That
//! closes it meanwhile, so a surplus is not sold. The sums are compared once in each round of the parts.
//!
//! A gate that is missing or being made has no holds, which says nothing about the orders: so after holds were read, the
//! gate must still be the one that the offer's row says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use kernel::ids::OrderNo;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;
use serde::Serialize;

use crate::admission::HoldState;
use crate::follow::Decided;
use crate::gate::{Followed, Hold, NewHold, Snapshot};
use crate::offer::Terms;
use crate::order::OrderStatus;
use crate::rebuild::is_valid;
use crate::store::offers::OfferRow;
use crate::store::orders::{NewOrder, OFFER_SHARDS, OrderRow, Put};
use crate::sweep::ABANDON_SECS;
use crate::{SaleError, Stores};

/// Rows that moved more recently may still have somebody at work on them, in seconds.
const STILL_SECS: i64 = 30;
/// The pause between the two looks that must agree before sums are called wrong.
const PAUSE: Duration = Duration::from_millis(700);

/// What does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Drift {
    /// A live order has no hold.
    HoldMissing,
    /// A paid order's units are not sold yet.
    NotSold,
    /// A dead order's units are not given back yet.
    NotReleased,
    /// A hold has no order.
    OrderMissing,
    /// A live order's units were given back.
    ReleasedLive,
}

/// What comparing an offer found, and did unless it was only to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub drifts: BTreeMap<OrderNo, Drift>,
    /// The book's sums are not those of its holds.
    pub sums_differ: bool,
    /// The gate has to be made anew.
    pub rebuild: bool,
    /// FAILED orders that still have their units; whoever has told their buyers releases them.
    pub untold: Vec<Decided>,
}

/// Whether to put right what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    Do,
    OnlyLook,
}

/// Compares one part of the offer's orders, the one whose turn it is, with their holds. The gate must be there and valid.
pub async fn rolling<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<Comparison, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let turn = stores.clock.now().secs().div_euclid(60).rem_euclid(i64::from(OFFER_SHARDS));
    let part = stores.orders.part_of_offer(&offer.id(), u8::try_from(turn).unwrap_or(0)).await?;
    let suspects = suspects(stores, offer, &part).await?;
    let mut comparison = put_right(stores, offer, suspects, Repair::Do).await?;
    if comparison.drifts.values().any(|drift| matches!(drift, Drift::HoldMissing | Drift::ReleasedLive)) {
        tracing::error!(alarm = "GATE_DRIFT", activity_id = %offer.activity_id, sku_id = %offer.sku_id, drifts = ?comparison.drifts, "the gate lost holds");
        let mut whole = whole(stores, offer, Repair::Do).await?;
        whole.rebuild |= comparison.rebuild;
        whole.drifts.extend(comparison.drifts);
        return Ok(whole);
    }
    if turn == 0
        && let Some(snapshot) = snapshot(stores, offer).await?
    {
        judge_sums(stores, offer, &snapshot, &mut comparison).await?;
    }
    Ok(comparison)
}

/// Compares all orders of the offer and all holds. A gate that is missing or being made is left to its rebuild.
pub async fn whole<C>(stores: &Stores<C>, offer: &OfferRow, repair: Repair) -> Result<Comparison, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let id = offer.id();
    let Some(snapshot) = snapshot(stores, offer).await? else { return Ok(Comparison::default()) };
    let rows = stores.orders.all_of_offer(&id).await?;
    let mut suspects = suspects(stores, offer, &rows).await?;
    let known: HashSet<&OrderNo> = rows.iter().map(|row| &row.order_no).collect();
    let is_old = |hold: &Hold| stores.clock.now().secs() - hold.held_at.secs() >= ABANDON_SECS;
    let orphans = snapshot.holds.iter().filter(|(order_no, hold)| !known.contains(order_no) && is_old(hold));
    suspects.extend(orphans.map(|(order_no, _)| order_no.clone()));

    let mut comparison = put_right(stores, offer, suspects, repair).await?;
    judge_sums(stores, offer, &snapshot, &mut comparison).await?;
    Ok(comparison)
}

/// All that the gate has, if it is the one that the row says.
async fn snapshot<C>(stores: &Stores<C>, offer: &OfferRow) -> Result<Option<Snapshot>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let snapshot = stores.gate.snapshot(&offer.id()).await?;
    Ok(snapshot.filter(|snapshot| is_valid(offer, Some(&snapshot.counters))))
}

/// Looks a second time where the sums are not those of the holds.
async fn judge_sums<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    seen: &Snapshot,
    comparison: &mut Comparison,
) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if adds_up(seen) {
        return Ok(());
    }
    tokio::time::sleep(PAUSE).await;
    if snapshot(stores, offer).await?.is_some_and(|again| !adds_up(&again)) {
        tracing::error!(alarm = "GATE_DRIFT", activity_id = %offer.activity_id, sku_id = %offer.sku_id, "the gate's sums are wrong");
        comparison.sums_differ = true;
        comparison.rebuild = true;
    }
    Ok(())
}

/// The holds of some orders; None: the gate is not, or not any more, the one that the row says.
async fn holds<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    order_nos: &[OrderNo],
) -> Result<Option<Vec<Option<Hold>>>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let id = offer.id();
    let holds = stores.gate.holds(&id, order_nos).await?;
    Ok(is_valid(offer, stores.gate.counters(&id).await?.as_ref()).then_some(holds))
}

/// Whether the sums are those of the holds; true when they moved while they were read.
fn adds_up(snapshot: &Snapshot) -> bool {
    let sum = |state: HoldState| -> i64 {
        snapshot.holds.values().filter(|hold| hold.state == state).map(|hold| hold.quantity.units()).sum()
    };
    !snapshot.settled
        || (snapshot.counters.held() == sum(HoldState::Held) && snapshot.counters.sold == sum(HoldState::Sold))
}

/// Orders whose hold does not fit, at first sight: the rows come from an index, which may be late.
async fn suspects<C>(stores: &Stores<C>, offer: &OfferRow, rows: &[OrderRow]) -> Result<Vec<OrderNo>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let order_nos: Vec<OrderNo> = rows.iter().map(|row| row.order_no.clone()).collect();
    let Some(holds) = holds(stores, offer, &order_nos).await? else { return Ok(Vec::new()) };
    let suspects = rows.iter().zip(&holds).filter(|(row, hold)| drift(Some(row), hold.as_ref()).is_some());
    Ok(suspects.map(|(row, _)| row.order_no.clone()).collect())
}

fn drift(row: Option<&OrderRow>, hold: Option<&Hold>) -> Option<Drift> {
    match (row, hold.map(|hold| hold.state)) {
        (Some(row), None) => row.status.is_live().then_some(Drift::HoldMissing),
        (Some(row), Some(HoldState::Held)) => match row.status {
            OrderStatus::PreCreated | OrderStatus::Unpaid => None,
            OrderStatus::Paid => Some(Drift::NotSold),
            OrderStatus::Cancelled | OrderStatus::Failed => Some(Drift::NotReleased),
        },
        (Some(row), Some(HoldState::Released)) => row.status.is_live().then_some(Drift::ReleasedLive),
        (None, Some(HoldState::Held)) => Some(Drift::OrderMissing),
        (Some(_), Some(HoldState::Sold)) | (None, Some(HoldState::Sold | HoldState::Released) | None) => None,
    }
}

/// Looks at the suspects again, rows read consistently and holds after them, and puts right what still does not fit.
async fn put_right<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    suspects: Vec<OrderNo>,
    repair: Repair,
) -> Result<Comparison, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let id = offer.id();
    let mut comparison = Comparison::default();
    if suspects.is_empty() {
        return Ok(comparison);
    }
    let now = stores.clock.now();
    let rows: HashMap<OrderNo, OrderRow> =
        stores.orders.get_many(&suspects).await?.into_iter().map(|row| (row.order_no.clone(), row)).collect();
    let Some(holds) = holds(stores, offer, &suspects).await? else { return Ok(comparison) };
    let mut found = Vec::new();
    for (order_no, hold) in suspects.iter().zip(holds) {
        let row = rows.get(order_no);
        if row.is_some_and(|row| now.secs() - row.updated_at.secs() < STILL_SECS) {
            continue;
        }
        if let Some(drift) = drift(row, hold.as_ref()) {
            found.push((drift, order_no, row, hold));
        }
    }
    // What was lost comes back before anything is given back, or the gate would sell it in between.
    found.sort_by_key(|(drift, ..)| *drift != Drift::HoldMissing);
    for (drift, order_no, row, hold) in found {
        comparison.drifts.insert(order_no.clone(), drift);
        match (drift, row, hold) {
            (Drift::HoldMissing, Some(row), _) => {
                comparison.rebuild |= row.drifts > 0;
                if repair == Repair::Do {
                    if stores.gate.take(&id, &[NewHold::of(row)]).await?.contains(&Followed::NotReady) {
                        // It is being made anew since, from the rows: nothing of this is known any more.
                        return Ok(Comparison::default());
                    }
                    stores.orders.note_drift(row).await?;
                    if row.status == OrderStatus::Paid {
                        stores.gate.sell(&id, std::slice::from_ref(order_no)).await?;
                    }
                }
            }
            (Drift::NotSold, ..) if repair == Repair::Do => {
                stores.gate.sell(&id, std::slice::from_ref(order_no)).await?;
            }
            (Drift::NotReleased, Some(row), _) if repair == Repair::Do => match row.status {
                OrderStatus::Failed => comparison.untold.extend(Decided::of(row)),
                OrderStatus::Cancelled => {
                    stores.gate.release(&id, std::slice::from_ref(order_no)).await?;
                }
                OrderStatus::PreCreated | OrderStatus::Unpaid | OrderStatus::Paid => {}
            },
            (Drift::OrderMissing, _, Some(hold)) if repair == Repair::Do => {
                let (row, _) = abandon(stores, offer, order_no, hold, now).await?;
                if row.status == OrderStatus::Failed {
                    comparison.untold.extend(Decided::of(&row));
                }
            }
            (Drift::ReleasedLive, ..) => comparison.rebuild = true,
            _ => {}
        }
    }
    Ok(comparison)
}

/// Puts an ABANDONED row for a hold that has none; answers what the row says afterwards, and whether it is that one.
pub(crate) async fn abandon<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    order_no: &OrderNo,
    hold: Hold,
    now: UnixMillis,
) -> Result<(OrderRow, bool), SaleError> {
    let order = NewOrder {
        order_no: order_no.clone(),
        user_id: hold.user_id,
        offer: offer.id(),
        quantity: hold.quantity,
        fingerprint: hold.fingerprint,
        request_id: None,
        terms: Terms { limit_day: hold.limit_day, ..offer.terms() },
    };
    let row = OrderRow::abandoned(order, now);
    Ok(match stores.orders.put(&row).await? {
        Put::Created => {
            kernel::crash::point("sweep.after_abandon");
            tracing::warn!(%order_no, "a hold without an order is given up");
            (row, true)
        }
        Put::Exists(row) => (*row, false),
    })
}
