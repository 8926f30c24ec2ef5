//! Once a minute, whatever was left lying is picked up. One sweep runs at a time; each step may be repeated, does a bounded
//! piece of work, and fails alone.
//!
//! 1. **Outbox.** An order still PRE_CREATED past its due time is sent to the queue again, less and less often; past
//!    [`MAX_ATTEMPTS`] it is FAILED and its units go back.
//! 2. **Lifecycle.** Gates are made [`PREHEAT_SECS`] before the start, and sales close at their end.
//! 3. **Gates.** A gate that is missing or of another epoch is made anew; one whose fields differ takes the row's.
//! 4. **Pending holds.** Each old one is judged by its row: the buyer is told, then the gate. No row: it is put
//!    FAILED/ABANDONED **first**, and the hold let go after, so a function that wakes up in between finds the row and loses.

use std::collections::HashMap;

use kernel::ids::OrderNo;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

use crate::follow::{Decided, Following, Told};
use crate::lifecycle::{self, Edit};
use crate::offer::{OfferId, SaleState};
use crate::order::{FailReason, OrderStatus};
use crate::queue::OrderMessage;
use crate::rebuild::{self, Readiness};
use crate::store::offers::{ActivityRow, OfferRow};
use crate::store::orders::{GaveUp, NewOrder, OUTBOX_DELAY_SECS, OrderRow, Put};
use crate::{SaleError, Stores};

/// How often an order is sent again before it is given up: about an hour of trying.
pub const MAX_ATTEMPTS: u32 = 8;
/// The longest pause between two sendings of one order.
const MAX_OUTBOX_DELAY_SECS: i64 = 600;
/// Orders taken from each part of the due index in one run.
const OUTBOX_PAGE: u16 = 250;
/// Gates are made this long before the start.
pub const PREHEAT_SECS: i64 = 300;
/// A pending hold younger than this is somebody's work in progress: the buy function is stopped after 10 s.
const PENDING_SECS: i64 = 15;
/// A hold without a row that is older than this is given up: nobody is left who could put the row in time, and whoever
/// does all the same meets the abandoned one.
pub const ABANDON_SECS: i64 = 30;
/// Pending holds of an offer judged in one page, and the pages of one run.
const PENDING_PAGE: usize = 500;
const PENDING_PAGES: usize = 20;

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    pub resent: usize,
    /// Orders that the sweep itself ended.
    pub ended: Vec<Decided>,
    pub closed: usize,
    /// Gates that are ready, and gates that are being made.
    pub gates_ready: usize,
    pub gates_waiting: usize,
    /// Gates whose fields differed from the row's.
    pub gates_corrected: usize,
    /// Pending holds that were judged by their row.
    pub followed: usize,
    /// Steps that failed, or that the deadline cut off; the next run does them.
    pub failures: usize,
}

/// Sweeps, until done or the deadline. `tell` lets buyers know what became of their orders, durably; it may be called with
/// what they know already.
pub async fn sweep<C>(stores: &Stores<C>, deadline: UnixMillis, tell: &impl AsyncFn(&[Decided]) -> Told) -> Swept
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let mut swept = Swept::default();
    let outbox = resend(stores, deadline, tell, &mut swept).await;
    settle(&mut swept, "outbox", outbox);
    let activities = match stores.offers.activities().await {
        Ok(activities) => activities,
        Err(error) => {
            settle(&mut swept, "activities", Err(error.into()));
            return swept;
        }
    };
    for activity in activities.iter().filter(|activity| activity.state != SaleState::Settled) {
        if stores.clock.now() >= deadline {
            swept.failures += 1;
            tracing::warn!("the sweep ran out of time");
            break;
        }
        let result = sweep_activity(stores, activity, deadline, tell, &mut swept).await;
        settle(&mut swept, "activity", result);
    }
    swept
}

fn settle(swept: &mut Swept, step: &'static str, result: Result<(), SaleError>) {
    if let Err(error) = result {
        swept.failures += 1;
        tracing::error!(step, error = &error as &dyn std::error::Error, "left to the next sweep");
    }
}

async fn resend<C>(
    stores: &Stores<C>,
    deadline: UnixMillis,
    tell: &impl AsyncFn(&[Decided]) -> Told,
    swept: &mut Swept,
) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let now = stores.clock.now();
    let due = stores.orders.due(OrderStatus::PreCreated, now, OUTBOX_PAGE).await?;
    let rows = stores.orders.get_many(&due).await?;
    let (worn_out, to_send): (Vec<OrderRow>, Vec<OrderRow>) = rows
        .into_iter()
        .filter(|row| row.status == OrderStatus::PreCreated)
        .partition(|row| row.attempts >= MAX_ATTEMPTS);

    let messages: Vec<OrderMessage> = to_send.iter().map(OrderMessage::from).collect();
    let refused = stores.queue.send_all(&messages).await?;
    for row in to_send.iter().filter(|row| !refused.contains(&row.order_no)) {
        if stores.clock.now() >= deadline {
            break;
        }
        let attempts = row.attempts + 1;
        let delay = OUTBOX_DELAY_SECS.saturating_mul(1 << attempts.min(10)).min(MAX_OUTBOX_DELAY_SECS);
        swept.resent += 1;
        if let Err(error) = stores.orders.postpone(&row.order_no, attempts, now.plus_secs(delay)).await {
            // It may be committed at this very moment. If not, it is sent once more than was needed.
            tracing::warn!(order_no = %row.order_no, error = &error as &dyn std::error::Error, "sent and not noted");
        }
    }

    for row in worn_out {
        let offer = row.offer();
        match stores.orders.fail(&row.order_no, FailReason::GaveUp, now).await? {
            GaveUp::Failed => {
                tracing::error!(order_no = %row.order_no, attempts = row.attempts, "an order could not be made");
                let (status, reason) = (OrderStatus::Failed, Some(FailReason::GaveUp));
                let OrderRow { user_id, order_no, .. } = row;
                let decided = Decided { user_id, order_no: order_no.clone(), status, reason, at: now };
                if tell(std::slice::from_ref(&decided)).await == Told::Stored {
                    stores.gate.release(&offer, &[order_no]).await?;
                }
                swept.ended.push(decided);
            }
            // It was decided meanwhile; whoever did so tells the gate and the buyer.
            GaveUp::Was(_) | GaveUp::Missing => {}
        }
    }
    Ok(())
}

async fn sweep_activity<C>(
    stores: &Stores<C>,
    activity: &ActivityRow,
    deadline: UnixMillis,
    tell: &impl AsyncFn(&[Decided]) -> Told,
    swept: &mut Swept,
) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let now = stores.clock.now();
    match activity.state {
        SaleState::Live | SaleState::Paused if now >= activity.rules.ends_at => {
            match lifecycle::close(stores, activity).await? {
                Edit::Done(_) => swept.closed += 1,
                // Changed at this moment; the next run sees to it.
                Edit::Refused(_) => {}
            }
        }
        SaleState::Live | SaleState::Paused | SaleState::Closed | SaleState::Settled => {}
    }
    let preheats = now >= activity.rules.starts_at.plus_secs(-PREHEAT_SECS);
    for offer in stores.offers.offers_of(&activity.activity_id).await? {
        // A sale that closed before it was ever preheated needs no gate.
        if offer.epoch == 0 && (!preheats || offer.state == SaleState::Closed) {
            continue;
        }
        let result = sweep_offer(stores, &offer, deadline, tell, swept).await;
        settle(swept, "offer", result);
    }
    Ok(())
}

async fn sweep_offer<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    deadline: UnixMillis,
    tell: &impl AsyncFn(&[Decided]) -> Told,
    swept: &mut Swept,
) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    match rebuild::ensure(stores, offer).await? {
        Readiness::Ready => swept.gates_ready += 1,
        Readiness::Making { .. } | Readiness::Contended => {
            swept.gates_waiting += 1;
            return Ok(());
        }
        Readiness::Over => return Ok(()),
    }
    if lifecycle::sync_gate(stores, &offer.id()).await? == lifecycle::GateSync::Corrected {
        swept.gates_corrected += 1;
    }
    judge_pending(stores, offer, deadline, tell, swept).await
}

/// Judges old pending holds by their rows.
async fn judge_pending<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    deadline: UnixMillis,
    tell: &impl AsyncFn(&[Decided]) -> Told,
    swept: &mut Swept,
) -> Result<(), SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let id = offer.id();
    let now = stores.clock.now();
    let mut seen = 0;
    for _ in 0..PENDING_PAGES {
        if stores.clock.now() >= deadline {
            break;
        }
        // What stays pending (not decided yet) is met again by the next page, so that one is larger by as much.
        let page = stores.gate.pending(&id, now.plus_secs(-PENDING_SECS), seen + PENDING_PAGE).await?;
        let page = page.get(seen..).unwrap_or_default();
        if page.is_empty() {
            break;
        }
        let order_nos: Vec<OrderNo> = page.iter().map(|(order_no, _)| order_no.clone()).collect();
        let rows: HashMap<OrderNo, OrderRow> =
            stores.orders.get_many(&order_nos).await?.into_iter().map(|row| (row.order_no.clone(), row)).collect();
        let mut decided: Vec<Decided> = rows.values().filter_map(Decided::of).collect();
        let orphans: Vec<OrderNo> = page
            .iter()
            .filter(|(order_no, held_at)| !rows.contains_key(order_no) && now.secs() - held_at.secs() >= ABANDON_SECS)
            .map(|(order_no, _)| order_no.clone())
            .collect();
        decided.extend(abandon(stores, offer, &orphans, swept).await?);
        if tell(&decided).await == Told::NotStored {
            swept.failures += 1;
            break;
        }
        let mut following = Following::default();
        for decided in decided {
            following.note(decided.order_no, decided.status);
        }
        following.tell(&stores.gate, &id).await?;
        swept.followed += following.len();
        seen += page.len() - following.len();
    }
    Ok(())
}

/// Puts an ABANDONED row for each hold that has none; answers what the rows say afterwards.
async fn abandon<C>(
    stores: &Stores<C>,
    offer: &OfferRow,
    orphans: &[OrderNo],
    swept: &mut Swept,
) -> Result<Vec<Decided>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if orphans.is_empty() {
        return Ok(Vec::new());
    }
    let id: OfferId = offer.id();
    let mut decided = Vec::with_capacity(orphans.len());
    for (order_no, hold) in orphans.iter().zip(stores.gate.holds(&id, orphans).await?) {
        // Gone since: whoever settled it did so by a row.
        let Some(hold) = hold else { continue };
        let row = OrderRow::abandoned(
            NewOrder {
                order_no: order_no.clone(),
                user_id: hold.user_id,
                offer: id.clone(),
                quantity: hold.quantity,
                fingerprint: hold.fingerprint,
                request_id: None,
                terms: offer.terms(),
            },
            stores.clock.now(),
        );
        let row = match stores.orders.put(&row).await? {
            Put::Created => {
                kernel::crash::point("sweep.after_abandon");
                tracing::warn!(%order_no, "a hold without an order is given up");
                swept.ended.extend(Decided::of(&row));
                row
            }
            Put::Exists(row) => *row,
        };
        decided.extend(Decided::of(&row));
    }
    Ok(decided)
}
