//! Money that came in for nothing goes back. A payment in REFUND_DUE stays so until the provider says that it has paid back;
//! asked twice, it pays once. It is asked less and less often, and never given up.

use kernel::time::UnixMillis;

use crate::follow::{Decided, Messenger, Told};
use crate::order::OrderStatus;
use crate::provider::{Provider, ProviderError};
use crate::store::payments::PaymentRow;
use crate::store::{Orders, Payments, StoreError};

/// Payments looked at in one run.
const PAGE: u16 = 100;
/// The pause after the first try in vain, and the longest one, in seconds.
const PAUSE_SECS: i64 = 60;
const MAX_PAUSE_SECS: i64 = 3_600;
/// With this many tries in vain people have to look.
const WORRYING_ATTEMPTS: u32 = 5;

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refunds {
    pub refunded: usize,
    /// To be tried again.
    pub postponed: usize,
}

/// Why a payment is not paid back yet.
#[derive(Debug, thiserror::Error)]
enum NotBack {
    #[error("its buyer could not be told")]
    Untold,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

/// Pays back what is due, until done or over. Each payment fails alone.
pub async fn pay_back(
    orders: &Orders,
    payments: &Payments,
    provider: &Provider,
    messenger: &impl Messenger,
    now: UnixMillis,
    is_over: impl Fn() -> bool,
) -> Result<Refunds, StoreError> {
    let mut refunds = Refunds::default();
    for payment in payments.refunds_due(now, PAGE).await? {
        if is_over() {
            break;
        }
        let Err(error) = pay_one(orders, payments, provider, messenger, &payment, now).await else {
            tracing::info!(transaction_id = %payment.transaction_id, "paid back");
            refunds.refunded += 1;
            continue;
        };
        let attempts = payment.attempts + 1;
        let pause = PAUSE_SECS.saturating_mul(1 << payment.attempts.min(10)).min(MAX_PAUSE_SECS);
        let alarm = (attempts >= WORRYING_ATTEMPTS).then_some("REFUND_STUCK");
        let error = &error as &dyn std::error::Error;
        tracing::error!(alarm, transaction_id = %payment.transaction_id, attempts, error, "not paid back yet");
        refunds.postponed += 1;
        if let Err(error) = payments.postpone(&payment.transaction_id, attempts, now.plus_secs(pause)).await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(transaction_id = %payment.transaction_id, error, "tried again with the next run");
        }
    }
    Ok(refunds)
}

/// Its buyer is told first. A first try waits for that; from then on the money does not wait for the word.
async fn pay_one(
    orders: &Orders,
    payments: &Payments,
    provider: &Provider,
    messenger: &impl Messenger,
    payment: &PaymentRow,
    now: UnixMillis,
) -> Result<(), NotBack> {
    match tell(orders, messenger, payment).await {
        Ok(()) => {}
        Err(error) if payment.attempts == 0 => return Err(error),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(transaction_id = %payment.transaction_id, error, "paid back without a word");
        }
    }
    provider.refund(payment).await?;
    kernel::crash::point("refund.after_provider");
    payments.refunded(&payment.transaction_id, now).await?;
    Ok(())
}

/// Tells the buyer of an order that has ended that the money will come back. May be told again.
async fn tell(orders: &Orders, messenger: &impl Messenger, payment: &PaymentRow) -> Result<(), NotBack> {
    // What people decided to pay back may name no order of ours.
    let Some(row) = orders.get(&payment.order_no).await? else { return Ok(()) };
    match row.status {
        // The order is as it was, and what it says to its buyer stays: the other money goes back without a word about it.
        OrderStatus::PreCreated | OrderStatus::Unpaid | OrderStatus::Paid => return Ok(()),
        OrderStatus::Cancelled | OrderStatus::Failed => {}
    }
    let Some(decided) = Decided::of(&row) else { return Ok(()) };
    // What is decided later takes the place of what was said before; a repetition says the same. Wrong money may have come, and
    // been decided about, before the order's own end.
    let due_since = payment.decided_at.unwrap_or(payment.received_at);
    let notice = Decided { refund_due: true, at: due_since.max(decided.at.plus_millis(1)), ..decided };
    match messenger.tell(&[notice]).await {
        Told::Stored => Ok(()),
        Told::NotStored => Err(NotBack::Untold),
    }
}
