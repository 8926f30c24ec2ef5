//! Money comes in. The provider says so, perhaps twice, perhaps late, perhaps about something else; whatever it says, the
//! money is recorded once, and the order's row alone decides what it is for.

use kernel::ids::MerchantId;
use kernel::time::Clock;

use crate::order::OrderStatus;
use crate::store::orders::OrderRow;
use crate::store::payments::{Mismatch, PaidOrder, Payment, PaymentRow, PaymentState};
use crate::store::{Orders, Payments, StoreError};

/// How often an order that moved at the very moment of being paid is looked at again. It moves at most twice in its life.
const TRIES: usize = 4;

/// What a payment was taken for.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// Its order is PAID.
    Paid(Box<OrderRow>),
    /// It was recorded before; nothing changed.
    Recorded,
    /// Its order has ended, or was paid by another transaction: it goes back.
    RefundDue(Box<OrderRow>),
    Unmatched(Mismatch),
}

/// Where money is taken.
#[derive(Debug, Clone)]
pub struct Till {
    pub orders: Orders,
    pub payments: Payments,
    /// Us, as the provider knows us.
    pub merchant_id: MerchantId,
    pub clock: Clock,
}

impl Till {
    /// Takes a payment that was made. On an error nothing may have been recorded: the provider says it again.
    pub async fn take(&self, payment: &Payment) -> Result<Taken, StoreError> {
        if payment.merchant_id != self.merchant_id {
            return self.set_aside(payment, Mismatch::Merchant, None).await;
        }
        for _ in 0..TRIES {
            let Some(order) = self.orders.get(&payment.order_no).await? else {
                return self.set_aside(payment, Mismatch::UnknownOrder, None).await;
            };
            if payment.currency != order.terms.currency {
                return self.set_aside(payment, Mismatch::Currency, Some(&order)).await;
            }
            if payment.amount != order.amount {
                return self.set_aside(payment, Mismatch::Amount, Some(&order)).await;
            }
            let now = self.clock.now();
            match order.status {
                OrderStatus::Unpaid => {
                    let row = PaymentRow::new(payment, PaymentState::Matched, None, Some(&order), now);
                    match self.payments.pay(&self.orders, &row, now).await? {
                        PaidOrder::Paid => return Ok(Taken::Paid(Box::new(order))),
                        PaidOrder::Recorded => return Ok(Taken::Recorded),
                        // Cancelled, or paid, since it was read.
                        PaidOrder::Moved => {}
                    }
                }
                OrderStatus::PreCreated | OrderStatus::Paid | OrderStatus::Cancelled | OrderStatus::Failed => {
                    let row = PaymentRow::new(payment, PaymentState::RefundDue, None, Some(&order), now);
                    let new = self.payments.record(&row).await?;
                    return Ok(if new { Taken::RefundDue(Box::new(order)) } else { Taken::Recorded });
                }
            }
        }
        Err(StoreError::Corrupt(format!("order {} does not stand still", payment.order_no)))
    }

    async fn set_aside(
        &self,
        payment: &Payment,
        mismatch: Mismatch,
        order: Option<&OrderRow>,
    ) -> Result<Taken, StoreError> {
        let row = PaymentRow::new(payment, PaymentState::Unmatched, Some(mismatch), order, self.clock.now());
        Ok(if self.payments.record(&row).await? { Taken::Unmatched(mismatch) } else { Taken::Recorded })
    }
}
