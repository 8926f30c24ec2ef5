//! One press of the button: take a place at the gate, write it down, pass it on.
//!
//! The hold at the gate is the idempotency record: the order number follows from the request, so a retry meets its own hold,
//! and then its own row. Each step may be the last one that this process takes; whoever comes next (the retry, or the sweep)
//! goes on from what it finds.

use aws_lc_rs::hmac;
use kernel::ids::{OrderNo, Quantity, RequestId, UserId};
use kernel::time::Clock;
use redis::aio::ConnectionLike;

use crate::admission::{Admission, AdmitRequest, Blocked, Fingerprint, Refusal};
use crate::gate::{Gate, GateError, NewHold};
use crate::offer::OfferId;
use crate::order::{self, EndReason, OrderStatus};
use crate::queue::{OrderMessage, Queue};
use crate::store::orders::{NewOrder, OrderRow, Put};
use crate::store::{Orders, StoreError};

/// How long after one retry sent an order's message again the next one may, in seconds.
const RESEND_SECS: i64 = 5;

/// What a buyer asks for, verified and parsed.
#[derive(Debug, Clone)]
pub struct Purchase {
    pub user_id: UserId,
    pub offer: OfferId,
    pub quantity: Quantity,
    pub request_id: RequestId,
    /// `<device>|<address>`; see [`AdmitRequest::device_address`].
    pub device_address: String,
    /// See [`AdmitRequest::blocked`].
    pub blocked: Option<Blocked>,
}

/// What the buyer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bought {
    /// The right to the goods is held. `replayed`: this is not the first answer to this request.
    Accepted {
        order_no: OrderNo,
        status: OrderStatus,
        reason: Option<EndReason>,
        replayed: bool,
    },
    Refused(Refusal),
    /// An earlier try with this id was given up before it became an order.
    RequestExpired,
}

/// The purchase could not be carried through. A retry with the same request id goes on where this one stopped.
#[derive(Debug, thiserror::Error)]
pub enum BuyError {
    #[error("the gate failed a purchase")]
    Gate(#[from] GateError),
    #[error("the orders table failed a purchase")]
    Store(#[from] StoreError),
    #[error("no order number can be made")]
    OrderNo(#[from] kernel::ids::IdError),
}

/// What a purchase needs.
#[derive(Debug)]
pub struct Shop<C> {
    pub gate: Gate<C>,
    pub orders: Orders,
    pub queue: Queue,
    /// Keys the order numbers.
    pub order_no_key: hmac::Key,
    pub clock: Clock,
}

/// Buys.
pub async fn buy<C>(shop: &Shop<C>, purchase: Purchase) -> Result<Bought, BuyError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let Purchase { user_id, offer, quantity, request_id, device_address, blocked } = purchase;
    let order_no = order::order_no(&shop.order_no_key, &user_id, &offer, &request_id)?;
    let fingerprint = Fingerprint::of(quantity);
    let request = AdmitRequest {
        order_no: order_no.clone(),
        user_id: user_id.clone(),
        quantity,
        fingerprint: fingerprint.clone(),
        device_address,
        blocked,
    };
    let (terms, mut replayed) = match shop.gate.admit(&offer, &request).await? {
        Admission::Admitted(terms) => (terms, false),
        Admission::Replayed(_, terms) => (terms, true),
        Admission::Refused(refusal) => return Ok(Bought::Refused(refusal)),
    };
    kernel::crash::point("buy.after_script");

    let row = OrderRow::pre_created(
        NewOrder { order_no, user_id, offer, quantity, fingerprint, request_id: Some(request_id), terms },
        shop.clock.now(),
    );
    let met = shop.orders.put(&row).await?;
    kernel::crash::point("buy.after_row");
    let mut met_again = false;
    let row = match met {
        Put::Created => row,
        Put::Exists(old) if old.fingerprint != row.fingerprint => return reused(shop, &row, &old).await,
        Put::Exists(old) => {
            // A gate that lost the hold took this for a new wish. The row knows better, unless it was put by this very call.
            replayed |= old.created_at != row.created_at;
            met_again = true;
            *old
        }
    };

    match row.status {
        OrderStatus::PreCreated => {
            // The row is the outbox: what is not sent now, the sweep sends.
            if met_again && !may_send_again(shop, &row).await {
                tracing::info!(order_no = %row.order_no, "sent again a moment ago");
            } else if let Err(error) = shop.queue.send(&OrderMessage::from(&row)).await {
                tracing::warn!(order_no = %row.order_no, error = &error as &dyn std::error::Error, "left to the sweep to send");
            }
            kernel::crash::point("buy.after_queue");
        }
        OrderStatus::Unpaid | OrderStatus::Paid => {}
        OrderStatus::Cancelled | OrderStatus::Failed => {
            let_go(shop, &row).await;
            if row.reason == Some(EndReason::Abandoned) {
                return Ok(Bought::RequestExpired);
            }
        }
    }
    Ok(Bought::Accepted { status: row.status, reason: row.reason, order_no: row.order_no, replayed })
}

/// Whether a retry sends the message again: whoever put the row may have died before, but not time after time, and impatient
/// buyers must not fill the queue.
async fn may_send_again<C>(shop: &Shop<C>, row: &OrderRow) -> bool {
    let now = shop.clock.now();
    match shop.orders.note_sending(&row.order_no, now, now.plus_secs(-RESEND_SECS)).await {
        Ok(noted) => noted,
        Err(error) => {
            tracing::warn!(order_no = %row.order_no, error = &error as &dyn std::error::Error, "left to the sweep to send");
            false
        }
    }
}

/// The gate had lost the hold of an order, and admitted another wish under its request id. The row stands: the new hold is
/// let go, and the lost one put back.
async fn reused<C>(shop: &Shop<C>, wished: &OrderRow, stands: &OrderRow) -> Result<Bought, BuyError>
where
    C: ConnectionLike + Clone + Send + Sync,
{
    let offer = wished.offer();
    shop.gate.release(&offer, std::slice::from_ref(&wished.order_no)).await?;
    if stands.status.is_live() {
        shop.gate.take(&offer, &[NewHold::of(stands)]).await?;
    }
    Ok(Bought::Refused(Refusal::RequestIdReused))
}

/// A hold whose order is dead already. If the gate fails now, the hold is still pending there and the sweep lets it go.
async fn let_go<C>(shop: &Shop<C>, row: &OrderRow)
where
    C: ConnectionLike + Clone + Send + Sync,
{
    if let Err(error) = shop.gate.release(&row.offer(), std::slice::from_ref(&row.order_no)).await {
        tracing::warn!(order_no = %row.order_no, error = &error as &dyn std::error::Error, "left to the sweep to release");
    }
}
