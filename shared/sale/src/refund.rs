//! Money that came in for nothing goes back. A payment in REFUND_DUE stays so until the provider says that it has paid back;
//! asked twice, it pays once. It is asked less and less often, and never given up.

use kernel::time::UnixMillis;

use crate::follow::{Decided, Messenger, Told};
use crate::order::OrderStatus;
use crate::provider::Provider;
use crate::store::payments::{PaymentRow, PaymentState};
use crate::store::{Orders, Payments, StoreError};

/// Payments looked at in one run.
const PAGE: u16 = 100;
/// The pause after the first refusal, and the longest one, in seconds.
const PAUSE_SECS: i64 = 60;
const MAX_PAUSE_SECS: i64 = 3_600;
/// With this many refusals people have to look.
const WORRYING_ATTEMPTS: u32 = 5;

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refunds {
    pub refunded: usize,
    /// To be tried again.
    pub postponed: usize,
}

/// Pays back what is due, until done or `deadline`. Its buyer is told first.
pub async fn pay_back(
    orders: &Orders,
    payments: &Payments,
    provider: &Provider,
    messenger: &impl Messenger,
    now: UnixMillis,
    is_over: impl Fn() -> bool,
) -> Result<Refunds, StoreError> {
    let mut refunds = Refunds::default();
    for payment in payments.in_state(PaymentState::RefundDue, now, PAGE).await? {
        if is_over() {
            break;
        }
        // Told once, before the first try; a retry has no news.
        if payment.attempts == 0 && !tell(orders, messenger, &payment).await? {
            refunds.postponed += 1;
            continue;
        }
        match provider.refund(&payment).await {
            Ok(()) => {
                kernel::crash::point("refund.after_provider");
                payments.refunded(&payment.transaction_id, now).await?;
                tracing::info!(transaction_id = %payment.transaction_id, "paid back");
                refunds.refunded += 1;
            }
            Err(error) => {
                let attempts = payment.attempts + 1;
                let pause = PAUSE_SECS.saturating_mul(1 << attempts.min(10)).min(MAX_PAUSE_SECS);
                let alarm = (attempts >= WORRYING_ATTEMPTS).then_some("REFUND_STUCK");
                let error = &error as &dyn std::error::Error;
                tracing::error!(alarm, transaction_id = %payment.transaction_id, attempts, error, "not paid back yet");
                payments.postpone(&payment.transaction_id, attempts, now.plus_secs(pause)).await?;
                refunds.postponed += 1;
            }
        }
    }
    Ok(refunds)
}

/// Tells the buyer that the money will come back. False: the word is not stored.
async fn tell(orders: &Orders, messenger: &impl Messenger, payment: &PaymentRow) -> Result<bool, StoreError> {
    // What people decided to pay back may name no order of ours.
    let Some(row) = orders.get(&payment.order_no).await? else { return Ok(true) };
    let Some(decided) = Decided::of(&row) else { return Ok(true) };
    if row.status == OrderStatus::Paid {
        // Paid twice: the order is as it was, and the second payment goes back without a word about it.
        return Ok(true);
    }
    let notice = Decided { refund_due: true, at: payment.received_at, ..decided };
    Ok(messenger.tell(&[notice]).await == Told::Stored)
}
