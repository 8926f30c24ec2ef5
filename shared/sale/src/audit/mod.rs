//! The audit: does the sale keep its promises?
//!
//! One implementation behind the admin route, the demo's verdict and every test. It reads the gate, the tables and the
//! queues, and nothing that a driver counted. Two halves: [`audit`] looks, [`judge`](judge::judge) judges what was seen and
//! touches nothing.
//!
//! A sale in motion is never seen whole: rows and holds are read one after the other. So a mismatch counts only when the
//! things concerned have been still for `bound_secs`, and when a second and a third look find it again: the same promise
//! broken in the same way about the same thing, whatever its numbers are by then. Sums are judged only in a look during which
//! they did not move. An oversell is looked at until it is certain, or gone.

mod judge;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::future::{try_join, try_join_all};
use kernel::ids::{ActivityId, OrderNo, TransactionId};
use kernel::time::{Rfc3339, UnixMillis};
use redis::aio::ConnectionLike;
use serde::{Deserialize, Serialize};

use crate::dead_letters::DeadLetters;
use crate::gate::Snapshot;
use crate::offer::Allowance;
use crate::order::OrderStatus;
use crate::queue::Depth;
use crate::store::offers::{OfferRow, claim_pk};
use crate::store::orders::OrderRow;
use crate::store::payments::{PaymentRow, PaymentState};
use crate::{SaleError, Stores};

/// How long a mismatch may be in motion on a live sale, in seconds.
pub const BOUND_SECS: u32 = 120;
/// The longest bound that may be asked for.
pub const MAX_BOUND_SECS: u32 = 600;
/// Looks in a row that must find a violation, the most looks (unless there may be an oversell), and the pause between them.
const LOOKS: usize = 3;
const MAX_LOOKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(700);

/// The promises, by the names that the documents use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// The offer's count is the sum of its UNPAID and PAID orders, and within its total.
    I1,
    /// The gate's sums add up, and each hold matches its row.
    I2,
    /// No user has more than the limit, and each claim is the sum of its orders.
    I3,
    /// Orders went legal ways only.
    I4,
    /// Nothing is left undecided, or untold, beyond the bound.
    I5,
    /// All money that came in is accounted for: each PAID order by one payment of its amount, the rest by what became of it.
    I6,
    /// One request id makes one order.
    I8,
    /// The queues are drained.
    I9,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    pub invariant: Invariant,
    pub detail: String,
    /// The orders concerned; at most [`MAX_NAMED`](judge::MAX_NAMED) of them.
    pub order_nos: Vec<OrderNo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    Pass,
    Fail,
}

/// What was counted, for people to read; the verdict comes from the violations alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub offers: usize,
    pub orders: BTreeMap<String, usize>,
    pub total: i64,
    pub committed: i64,
    pub available: i64,
    pub held: i64,
    pub sold: i64,
    pub pending: usize,
    /// By currency.
    pub money: BTreeMap<String, Money>,
    pub queued: u64,
    pub dead_letters: u64,
    /// Offers whose sums moved during the last look and were not judged in it.
    pub moving: usize,
}

/// Money of one currency, in minor units: `received` is the sum of the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Money {
    pub received: u64,
    pub paid: u64,
    pub refund_due: u64,
    pub refunded: u64,
    pub unmatched: u64,
}

/// The audit's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub activity_id: ActivityId,
    pub verdict: Verdict,
    pub violations: Vec<Violation>,
    pub counts: Counts,
    pub checked_at: Rfc3339,
}

/// One offer, as one look saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) offer: OfferRow,
    /// The offer's count stood still during the look.
    pub(crate) still: bool,
    pub(crate) rows: Vec<OrderRow>,
    pub(crate) claims: HashMap<Allowance, i64>,
    /// None: the gate has no such offer.
    pub(crate) gate: Option<Snapshot>,
    /// Payments by which orders of the offer say that they were paid.
    pub(crate) paid_by: HashMap<TransactionId, PaymentRow>,
}

/// Everything that one look saw.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) offers: Vec<Seen>,
    /// All payments that name orders of the activity.
    pub(crate) payments: Vec<PaymentRow>,
    pub(crate) queue: Depth,
    pub(crate) dead_letters: Depth,
    pub(crate) at: UnixMillis,
}

/// Audits an activity. `bound_secs`: how long a mismatch may be in motion; 0 on a sale that is known to be still. None: there
/// is no such activity.
pub async fn audit<C>(
    stores: &Stores<C>,
    dead_letters: &DeadLetters,
    activity_id: &ActivityId,
    bound_secs: u32,
) -> Result<Option<Report>, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if stores.offers.activity(activity_id).await?.is_none() {
        return Ok(None);
    }
    let mut seen = look(stores, dead_letters, activity_id).await?;
    let mut findings = judge::judge(&seen, bound_secs);
    for looks in 1.. {
        let certain = findings.values().all(|finding| finding.looks >= LOOKS);
        // Nothing wrong with a sale that stood still: right. One that moved is looked at again before it may be called so.
        let moving = findings.is_empty() && seen.offers.iter().any(|offer| !judge::is_still(offer));
        let may_be_oversold = findings.values().any(|finding| finding.is_oversell && finding.looks < LOOKS);
        if certain && !moving || looks >= MAX_LOOKS && !may_be_oversold {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        seen = look(stores, dead_letters, activity_id).await?;
        findings = judge::again(&findings, judge::judge(&seen, bound_secs));
    }
    findings.retain(|_, finding| finding.looks >= LOOKS);
    Ok(Some(Report {
        activity_id: activity_id.clone(),
        verdict: if findings.is_empty() { Verdict::Pass } else { Verdict::Fail },
        violations: findings.into_iter().map(judge::violation).collect(),
        counts: count(&seen),
        checked_at: Rfc3339(seen.at),
    }))
}

async fn look<C>(stores: &Stores<C>, dead_letters: &DeadLetters, activity_id: &ActivityId) -> Result<Look, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let offers = stores.offers.offers_of(activity_id).await?;
    let offers = try_join_all(offers.into_iter().map(|offer| look_at(stores, offer))).await?;
    Ok(Look {
        offers,
        payments: stores.payments.of_activity(activity_id).await?,
        queue: stores.queue.depth().await?,
        dead_letters: dead_letters.depth().await?,
        at: stores.clock.now(),
    })
}

async fn look_at<C>(stores: &Stores<C>, before: OfferRow) -> Result<Seen, SaleError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let id = before.id();
    let gate = async { Ok::<_, SaleError>(stores.gate.snapshot(&id).await?) };
    let rows = async { Ok(stores.orders.all_of_offer(&id).await?) };
    let (gate, rows) = try_join(gate, rows).await?;
    let holders = gate.iter().flat_map(|gate| gate.units.keys());
    let allowances: BTreeSet<Allowance> = rows.iter().map(OrderRow::allowance).chain(holders.cloned()).collect();
    let allowances: Vec<Allowance> = allowances.into_iter().collect();
    let transactions: Vec<TransactionId> = rows.iter().filter_map(|row| row.transaction_id.clone()).collect();
    let claims = stores.offers.claims(&id, &allowances);
    let (claims, paid_by) = try_join(claims, stores.payments.get_many(&transactions)).await?;
    let by_key: HashMap<String, i64> = claims.into_iter().map(|claim| (claim.pk, claim.units)).collect();
    let claims = allowances
        .into_iter()
        .map(|allowance| {
            let units = by_key.get(&claim_pk(&allowance, &id)).copied().unwrap_or(0);
            (allowance, units)
        })
        .collect();
    let paid_by = paid_by.into_iter().map(|payment| (payment.transaction_id.clone(), payment)).collect();
    let after = stores.offers.offer(&id).await?;
    let still =
        after.as_ref().is_some_and(|after| after.remaining == before.remaining && after.version == before.version);
    Ok(Seen { offer: after.unwrap_or(before), still, rows, claims, gate, paid_by })
}

fn count(look: &Look) -> Counts {
    let mut counts = Counts {
        offers: look.offers.len(),
        queued: look.queue.all(),
        dead_letters: look.dead_letters.all(),
        ..Counts::default()
    };
    for status in OrderStatus::ALL {
        let orders = look.offers.iter().flat_map(|seen| &seen.rows).filter(|row| row.status == status).count();
        counts.orders.insert(status.as_str().to_owned(), orders);
    }
    for seen in &look.offers {
        counts.total += seen.offer.total;
        counts.committed += seen.offer.committed();
        if let Some(gate) = &seen.gate {
            counts.available += gate.counters.available;
            counts.held += gate.counters.held();
            counts.sold += gate.counters.sold;
            counts.pending += gate.pending.len();
        }
        if !judge::is_still(seen) {
            counts.moving += 1;
        }
    }
    for payment in &look.payments {
        let money = counts.money.entry(payment.currency.as_str().to_owned()).or_default();
        let amount = payment.amount.get();
        money.received += amount;
        match payment.state {
            PaymentState::Matched => money.paid += amount,
            PaymentState::RefundDue => money.refund_due += amount,
            PaymentState::Refunded => money.refunded += amount,
            PaymentState::Unmatched => money.unmatched += amount,
        }
    }
    counts
}
