//! Once a minute, whatever was left lying is picked up. One sweep runs at a time; each step may be repeated, does a bounded
//! piece of work, and fails alone.
//!
//! 1. **Outbox.** An order still PRE_CREATED past its due time is sent to the queue again, less and less often; past
//!    [`MAX_ATTEMPTS`] it is FAILED and its units go back.
//! 2. **Due.** What a lost reminder left: unpaid orders past their deadline are cancelled, and everybody is told of PAID and
//!    CANCELLED ones ([`due`]).
//! 3. **Clock.** Sales close at their end, once the gate's clock and our own say so; closed ones settle when nothing of them is
//!    undecided.
//! 4. **Gates.** They are made [`PREHEAT_SECS`] before the start; one that is missing or of another epoch is made anew; one
//!    whose fields differ takes the row's.
//! 5. **Pending holds.** Each old one is judged by its row: the buyer is told, then the gate. No row: it is put
//!    FAILED/ABANDONED **first**, and the hold let go after, so a function that wakes up in between finds the row and loses.
//! 6. **Reconcile.** A part of each sale's orders is compared with its holds ([`reconcile`]).
//!
//! Refunds are the function's own seventh step ([`crate::refund`]), since only it knows the payment provider, and in time of
//! their own.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use kernel::ids::OrderNo;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

use crate::due::{self, Attended};
use crate::follow::{Decided, Following, Messenger, Told};
use crate::lifecycle::{self, Edit, Settlement};
use crate::offer::{OfferId, SaleState};
use crate::order::{EndReason, OrderStatus};
use crate::queue::OrderMessage;
use crate::rebuild::{self, Readiness};
use crate::reconcile::{self, Comparison, Repair};
use crate::store::offers::{ActivityRow, OfferRow};
use crate::store::orders::{GaveUp, OUTBOX_DELAY_SECS, OWED_SECS, OrderRow};
use crate::{SaleError, Stores};

/// How often an order is sent again before it is given up: about an hour of trying.
pub const MAX_ATTEMPTS: u32 = 8;
/// The longest pause between two sendings of one order.
const MAX_OUTBOX_DELAY_SECS: i64 = 600;
/// Orders taken from each part of the due index at once.
const DUE_PAGE: u16 = 250;
/// How often the due index is read for one status in one run.
const DUE_PAGES: usize = 10;
/// With so many messages waiting the consumer is behind, and sending more would only put it further back.
const BACKLOG: u64 = 1_000;
/// Orders ended at once.
const ENDED_AT_ONCE: usize = 25;
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
    /// Orders that the sweep itself ended before they were made: worn out, or pending at the gate without a row.
    pub ended: Vec<Decided>,
    /// What was due to orders that stand.
    pub attended: Attended,
    pub closed: usize,
    pub settled: usize,
    /// Gates that are ready, and gates that are being made.
    pub gates_ready: usize,
    pub gates_waiting: usize,
    /// Gates whose fields differed from the row's.
    pub gates_corrected: usize,
    /// Pending holds that were judged by their row.
    pub followed: usize,
    /// Orders whose hold did not fit.
    pub drifts: usize,
    /// Steps that failed, or that the deadline cut off; the next run does them.
    pub failures: usize,
}

/// One run.
struct Sweep<'a, C, M> {
    stores: &'a Stores<C>,
    messenger: &'a M,
    deadline: UnixMillis,
    swept: Swept,
}

/// Sweeps, until done or the deadline.
pub async fn sweep<C, M: Messenger>(stores: &Stores<C>, deadline: UnixMillis, messenger: &M) -> Swept
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let mut sweep = Sweep { stores, messenger, deadline, swept: Swept::default() };
    let outbox = sweep.resend().await;
    sweep.note("outbox", outbox);
    for status in [OrderStatus::Unpaid, OrderStatus::Paid, OrderStatus::Cancelled] {
        let due = sweep.attend(status).await;
        sweep.note("due", due);
    }
    let activities = sweep.activities().await;
    sweep.note("activities", activities);
    sweep.swept
}

/// Those first that can sell, and of them another one first each minute, so that none waits behind a slow one for ever.
fn in_turn(mut activities: Vec<ActivityRow>, now: UnixMillis) -> Vec<ActivityRow> {
    activities.retain(|activity| !activity.archived);
    if !activities.is_empty() {
        let turn = now.secs().div_euclid(60).rem_euclid(activities.len() as i64);
        activities.rotate_left(usize::try_from(turn).unwrap_or(0));
    }
    activities.sort_by_key(|activity| match activity.state {
        SaleState::Live | SaleState::Paused => 0,
        SaleState::Closed => 1,
        SaleState::Settled => 2,
    });
    activities
}

impl<C, M: Messenger> Sweep<'_, C, M>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    fn note(&mut self, step: &'static str, result: Result<(), SaleError>) {
        if let Err(error) = result {
            self.swept.failures += 1;
            tracing::error!(step, error = &error as &dyn std::error::Error, "left to the next sweep");
        }
    }

    fn is_over(&mut self) -> bool {
        let over = self.stores.clock.now() >= self.deadline;
        if over {
            self.swept.failures += 1;
            tracing::warn!("the sweep ran out of time");
        }
        over
    }

    async fn resend(&mut self) -> Result<(), SaleError> {
        let now = self.stores.clock.now();
        let due = self.stores.orders.due(OrderStatus::PreCreated, now, DUE_PAGE).await?;
        if due.is_empty() {
            return Ok(());
        }
        let rows = self.stores.orders.get_many(&due).await?;
        let (worn_out, to_send): (Vec<OrderRow>, Vec<OrderRow>) = rows
            .into_iter()
            .filter(|row| row.status == OrderStatus::PreCreated)
            .partition(|row| row.attempts >= MAX_ATTEMPTS);
        self.send_again(to_send, now).await?;
        for some in worn_out.chunks(ENDED_AT_ONCE) {
            if self.is_over() {
                break;
            }
            self.give_up(some, now).await?;
        }
        Ok(())
    }

    async fn send_again(&mut self, to_send: Vec<OrderRow>, now: UnixMillis) -> Result<(), SaleError> {
        let waiting = self.stores.queue.depth().await?.waiting;
        if waiting > BACKLOG {
            tracing::warn!(waiting, "the consumer is behind; nothing is sent again");
            return Ok(());
        }
        let messages: Vec<OrderMessage> = to_send.iter().map(OrderMessage::from).collect();
        let refused = self.stores.queue.send_all(&messages).await?;
        let orders = &self.stores.orders;
        let sent: Vec<&OrderRow> = to_send.iter().filter(|row| !refused.contains(&row.order_no)).collect();
        for some in sent.chunks(ENDED_AT_ONCE) {
            if self.is_over() {
                break;
            }
            let notes = some.iter().map(|row| async move {
                let attempts = row.attempts + 1;
                let delay = OUTBOX_DELAY_SECS.saturating_mul(1 << attempts.min(10)).min(MAX_OUTBOX_DELAY_SECS);
                if let Err(error) = orders.postpone(&row.order_no, attempts, now.plus_secs(delay)).await {
                    // It may be committed at this very moment. If not, it is sent once more than was needed.
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(order_no = %row.order_no, error, "sent and not noted");
                }
            });
            futures_util::future::join_all(notes).await;
            self.swept.resent += some.len();
        }
        Ok(())
    }

    async fn give_up(&mut self, worn_out: &[OrderRow], now: UnixMillis) -> Result<(), SaleError> {
        let orders = &self.stores.orders;
        let failing = worn_out.iter().map(|row| async move {
            let gave_up = orders.fail(&row.order_no, EndReason::GaveUp, now).await?;
            Ok::<_, SaleError>((row, gave_up))
        });
        let mut ended = Vec::new();
        let mut by_offer: HashMap<OfferId, Following> = HashMap::new();
        for (row, gave_up) in try_join_all(failing).await? {
            match gave_up {
                GaveUp::Failed => {
                    tracing::error!(alarm = "ORDER_GIVEN_UP", order_no = %row.order_no, attempts = row.attempts, "an order could not be made");
                    by_offer.entry(row.offer()).or_default().note(row.order_no.clone(), OrderStatus::Failed);
                    ended.push(Decided {
                        user_id: row.user_id.clone(),
                        order_no: row.order_no.clone(),
                        status: OrderStatus::Failed,
                        reason: Some(EndReason::GaveUp),
                        at: now,
                        refund_due: false,
                    });
                }
                // It was decided meanwhile; whoever did so tells the gate and the buyer.
                GaveUp::Was(_) | GaveUp::Missing => {}
            }
        }
        if self.messenger.tell(&ended).await == Told::Stored {
            for (offer, following) in by_offer {
                following.tell(&self.stores.gate, &offer).await?;
            }
        }
        self.swept.ended.extend(ended);
        Ok(())
    }

    /// Sees to orders in `status` that are due, page by page: each page leaves the index as it is seen to.
    async fn attend(&mut self, status: OrderStatus) -> Result<(), SaleError> {
        let now = self.stores.clock.now();
        let since = match status {
            // At their very deadline their reminders come; two at once would only meet each other at the offer's row.
            OrderStatus::Unpaid => now.plus_secs(-OWED_SECS),
            OrderStatus::PreCreated | OrderStatus::Paid | OrderStatus::Cancelled | OrderStatus::Failed => now,
        };
        for _ in 0..DUE_PAGES {
            let order_nos = self.stores.orders.due(status, since, DUE_PAGE).await?;
            if order_nos.is_empty() || self.is_over() {
                break;
            }
            let attended = due::attend(self.stores, self.messenger, &order_nos, self.deadline).await?;
            let sum = &mut self.swept.attended;
            sum.cancelled += attended.cancelled;
            sum.acquitted += attended.acquitted;
            sum.later += attended.later;
            sum.left += attended.left;
            if attended.left > 0 {
                self.swept.failures += 1;
                break;
            }
        }
        Ok(())
    }

    async fn activities(&mut self) -> Result<(), SaleError> {
        let now = self.stores.clock.now();
        let activities = in_turn(self.stores.offers.activities().await?, now);
        // Buyers are judged by the gate's clock, so one of ours that runs ahead ends no sale. Rows first all the same: no gate that
        // does not answer may keep a sale open.
        let over_by = match self.stores.gate.now().await {
            Ok(at_the_gate) => at_the_gate.min(now),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "sales close by this function's own clock");
                now
            }
        };
        for activity in &activities {
            let result = self.close(activity, over_by).await;
            self.note("close", result);
        }
        for activity in &activities {
            if self.is_over() {
                break;
            }
            let result = match activity.state {
                SaleState::Live | SaleState::Paused => self.offers(activity, now).await,
                SaleState::Closed => match self.offers(activity, now).await {
                    Ok(()) => self.settle(activity).await,
                    Err(error) => Err(error),
                },
                SaleState::Settled => lifecycle::archive(self.stores, activity).await,
            };
            self.note("activity", result);
        }
        Ok(())
    }

    async fn close(&mut self, activity: &ActivityRow, now: UnixMillis) -> Result<(), SaleError> {
        match activity.state {
            SaleState::Live | SaleState::Paused if now >= activity.rules.ends_at => {
                match lifecycle::close(self.stores, activity).await? {
                    Edit::Done(_) => self.swept.closed += 1,
                    // Changed at this moment; the next run sees to it.
                    Edit::Refused(_) => {}
                }
            }
            SaleState::Live | SaleState::Paused | SaleState::Closed | SaleState::Settled => {}
        }
        Ok(())
    }

    async fn settle(&mut self, activity: &ActivityRow) -> Result<(), SaleError> {
        match lifecycle::settle(self.stores, activity).await? {
            Settlement::Settled => self.swept.settled += 1,
            Settlement::Draining | Settlement::Contended => {}
        }
        Ok(())
    }

    async fn offers(&mut self, activity: &ActivityRow, now: UnixMillis) -> Result<(), SaleError> {
        let preheats = now >= activity.rules.starts_at.plus_secs(-PREHEAT_SECS);
        for offer in self.stores.offers.offers_of(&activity.activity_id).await? {
            // One that closed before it was ever preheated gets a gate all the same, which says that it is over.
            if offer.epoch == 0 && !preheats && offer.state != SaleState::Closed {
                continue;
            }
            if self.is_over() {
                break;
            }
            let result = self.offer(&offer).await;
            self.note("offer", result);
        }
        Ok(())
    }

    async fn offer(&mut self, offer: &OfferRow) -> Result<(), SaleError> {
        match rebuild::ensure(self.stores, offer).await? {
            Readiness::Ready => self.swept.gates_ready += 1,
            Readiness::Making { .. } | Readiness::Contended => {
                self.swept.gates_waiting += 1;
                return Ok(());
            }
            Readiness::Over => return Ok(()),
        }
        if lifecycle::sync_gate(self.stores, &offer.id()).await? == lifecycle::GateSync::Corrected {
            self.swept.gates_corrected += 1;
        }
        self.judge_pending(offer).await?;
        let comparison = reconcile::rolling(self.stores, offer).await?;
        self.after_comparing(offer, comparison).await
    }

    async fn after_comparing(&mut self, offer: &OfferRow, comparison: Comparison) -> Result<(), SaleError> {
        self.swept.drifts += comparison.drifts.len();
        match self.messenger.tell(&comparison.untold).await {
            Told::Stored => {
                let dead: Vec<OrderNo> = comparison.untold.into_iter().map(|decided| decided.order_no).collect();
                self.stores.gate.release(&offer.id(), &dead).await?;
            }
            Told::NotStored => self.swept.failures += 1,
        }
        if comparison.rebuild {
            // As it is now: somebody may be making it anew already.
            let offer = self.stores.offers.offer(&offer.id()).await?;
            if let Some(offer) = offer.filter(|offer| offer.rebuilding.is_none()) {
                rebuild::begin(self.stores, &offer).await?;
            }
            self.swept.gates_waiting += 1;
        }
        Ok(())
    }

    /// Judges old pending holds by their rows.
    async fn judge_pending(&mut self, offer: &OfferRow) -> Result<(), SaleError> {
        let stores = self.stores;
        let compared = &mut false;
        let id = offer.id();
        let now = stores.clock.now();
        let mut seen = 0;
        for _ in 0..PENDING_PAGES {
            if stores.clock.now() >= self.deadline {
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
                .filter(|(order_no, at)| !rows.contains_key(order_no) && now.secs() - at.secs() >= ABANDON_SECS)
                .map(|(order_no, _)| order_no.clone())
                .collect();
            decided.extend(self.abandon(offer, &orphans).await?);
            // The gate let somebody in whom the rows refused, so it has lost something. Before it gets units back it is put
            // right, or it would let the next one in.
            if decided.iter().any(|decided| decided.reason.is_some_and(EndReason::is_drift)) && !*compared {
                *compared = true;
                let comparison = reconcile::whole(stores, offer, Repair::Do).await?;
                self.after_comparing(offer, comparison).await?;
            }
            if self.messenger.tell(&decided).await == Told::NotStored {
                self.swept.failures += 1;
                break;
            }
            let mut following = Following::default();
            for decided in decided {
                following.note(decided.order_no, decided.status);
            }
            following.tell(&stores.gate, &id).await?;
            self.swept.followed += following.len();
            seen += page.len() - following.len();
        }
        Ok(())
    }

    /// Puts an ABANDONED row for each hold that has none; answers what the rows say afterwards.
    async fn abandon(&mut self, offer: &OfferRow, orphans: &[OrderNo]) -> Result<Vec<Decided>, SaleError> {
        if orphans.is_empty() {
            return Ok(Vec::new());
        }
        let mut decided = Vec::with_capacity(orphans.len());
        for (order_no, hold) in orphans.iter().zip(self.stores.gate.holds(&offer.id(), orphans).await?) {
            // Gone since: whoever settled it did so by a row.
            let Some(hold) = hold else { continue };
            let now = self.stores.clock.now();
            let (row, new) = reconcile::abandon(self.stores, offer, order_no, hold, now).await?;
            if new {
                self.swept.ended.extend(Decided::of(&row));
            }
            decided.extend(Decided::of(&row));
        }
        Ok(decided)
    }
}
