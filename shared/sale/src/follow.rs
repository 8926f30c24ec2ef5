//! The gate follows the rows, once the buyers have been told.

use kernel::ids::{OrderNo, UserId};
use kernel::text::Text;
use kernel::time::UnixMillis;
use redis::aio::ConnectionLike;

use crate::gate::{Gate, GateError};
use crate::offer::OfferId;
use crate::order::{EndReason, OrderStatus};
use crate::store::orders::OrderRow;
use crate::wording;

/// An order that is past PRE_CREATED, and so something to tell its buyer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub user_id: UserId,
    pub order_no: OrderNo,
    pub status: OrderStatus,
    pub reason: Option<EndReason>,
    /// Since when the row says so.
    pub at: UnixMillis,
    /// Money came in for it after its end.
    pub refund_due: bool,
}

impl Decided {
    /// None while the row is PRE_CREATED.
    pub fn of(row: &OrderRow) -> Option<Self> {
        (row.status != OrderStatus::PreCreated).then(|| Self {
            user_id: row.user_id.clone(),
            order_no: row.order_no.clone(),
            status: row.status,
            reason: row.reason,
            at: row.updated_at,
            refund_due: false,
        })
    }

    /// What its buyer reads.
    pub fn message(&self) -> Text {
        if self.refund_due { wording::refund_due() } else { wording::about(self.status, self.reason) }
    }
}

/// Who has to learn what became of orders, besides the gate.
#[allow(async_fn_in_trait, reason = "used on one thread only, where nothing has to be Send")]
pub trait Messenger {
    /// Lets buyers know. May be called with what they know already.
    async fn tell(&self, decided: &[Decided]) -> Told;

    /// Lets the warehouse know of orders that are PAID. May be called with what it knows already.
    async fn publish_paid(&self, orders: &[&OrderRow]) -> Told;
}

/// Whether what was to be told is stored, and so will be learnt: at once, or when they next come. Of orders that are still
/// pending at the gate, the gate is told after it, since that hold is what reminds the sweep of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Stored,
    NotStored,
}

/// Orders of one offer, by what the gate has to do about them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Following {
    confirm: Vec<OrderNo>,
    sell: Vec<OrderNo>,
    release: Vec<OrderNo>,
}

impl Following {
    /// Notes what the row of `order_no` says.
    pub fn note(&mut self, order_no: OrderNo, status: OrderStatus) {
        match status {
            // Not decided yet: it stays pending.
            OrderStatus::PreCreated => {}
            OrderStatus::Unpaid => self.confirm.push(order_no),
            OrderStatus::Paid => self.sell.push(order_no),
            OrderStatus::Cancelled | OrderStatus::Failed => self.release.push(order_no),
        }
    }

    pub fn len(&self) -> usize {
        self.confirm.len() + self.sell.len() + self.release.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells the gate. What it is not told now stays pending there, and the sweep tells it.
    pub async fn tell<C>(&self, gate: &Gate<C>, offer: &OfferId) -> Result<(), GateError>
    where
        C: ConnectionLike + Clone + Send + Sync,
    {
        if !self.confirm.is_empty() {
            gate.confirm(offer, &self.confirm).await?;
        }
        if !self.sell.is_empty() {
            gate.sell(offer, &self.sell).await?;
        }
        if !self.release.is_empty() {
            gate.release(offer, &self.release).await?;
        }
        Ok(())
    }
}
