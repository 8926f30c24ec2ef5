//! Payments that need people, or needed a refund.

use kernel::ids::{ActivityId, MerchantId, OrderNo, TransactionId, UserId};
use kernel::time::Rfc3339;
use platform::http::{Problem, Request, Response, Text};
use sale::store::offers::SYSTEM;
use sale::store::payments::{Cursor, Mismatch, PaymentRow, PaymentState};
use serde::Serialize;

use crate::{PAGE, State, cursor, failed, note};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PaymentList {
    items: Vec<PaymentDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PaymentDocument {
    transaction_id: TransactionId,
    merchant_id: MerchantId,
    order_no: OrderNo,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<UserId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity_id: Option<ActivityId>,
    amount: u64,
    currency: String,
    state: PaymentState,
    #[serde(skip_serializing_if = "Option::is_none")]
    mismatch: Option<Mismatch>,
    paid_at: Rfc3339,
    received_at: Rfc3339,
    /// How often paying it back was tried in vain.
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    refunded_at: Option<Rfc3339>,
}

impl From<PaymentRow> for PaymentDocument {
    fn from(row: PaymentRow) -> Self {
        Self {
            transaction_id: row.transaction_id,
            merchant_id: row.merchant_id,
            order_no: row.order_no,
            user_id: row.user_id,
            activity_id: row.activity_id,
            amount: row.amount.get(),
            currency: row.currency.as_str().to_owned(),
            state: row.state,
            mismatch: row.mismatch,
            paid_at: Rfc3339(row.paid_at),
            received_at: Rfc3339(row.received_at),
            attempts: row.attempts,
            refunded_at: row.refunded_at.map(Rfc3339),
        }
    }
}

/// `GET /api/admin/payments?state=&cursor=`: a hundred a page; what went back last first, of others the oldest.
pub(crate) async fn list(state: &State, request: &Request) -> Result<Response, Problem> {
    let wanted: Option<String> = request.query("state")?;
    let listed = [PaymentState::RefundDue, PaymentState::Unmatched, PaymentState::Refunded];
    let Some(wanted) = listed.into_iter().find(|state| Some(state.as_str()) == wanted.as_deref()) else {
        return Err(Problem::validation(Text::new(
            "state is REFUND_DUE, UNMATCHED or REFUNDED.",
            "state 须为 REFUND_DUE、UNMATCHED 或 REFUNDED。",
        )));
    };
    let cursor = cursor(request, Cursor::decode)?;
    let page = state.stores.payments.list(wanted, PAGE, cursor.as_ref()).await;
    let page = page.map_err(|error| failed(&error.into()))?;
    let document = PaymentList {
        items: page.payments.into_iter().map(PaymentDocument::from).collect(),
        next_cursor: page.next.as_ref().map(Cursor::encode),
    };
    Response::json(200, &document)
}

/// `POST /api/admin/payments/{transactionId}/refund`: an unmatched payment is to be paid back. Of one that is to be, or is,
/// already, nothing changes. One that was made to somebody else cannot be.
pub(crate) async fn refund(state: &State, request: &Request, admin: &UserId) -> Result<Response, Problem> {
    let transaction_id: TransactionId = request.path("transactionId").map_err(|_| Problem::not_found())?;
    let payments = &state.stores.payments;
    let decided = payments.decide_refund(&transaction_id, state.stores.clock.now()).await;
    let decided = decided.map_err(|error| failed(&error.into()))?;
    let row = payments.get(&transaction_id).await.map_err(|error| failed(&error.into()))?;
    let Some(row) = row else { return Err(Problem::not_found()) };
    let answer = PaymentDocument::from(row);
    if decided {
        note(state, SYSTEM, admin, format!("refund {transaction_id}"), &answer).await;
        return Response::json(200, &answer);
    }
    let why = match answer.state {
        PaymentState::RefundDue | PaymentState::Refunded => return Response::json(200, &answer),
        PaymentState::Matched => Text::new("This payment made its order PAID.", "该笔付款对应的订单已支付完成。"),
        PaymentState::Unmatched => Text::new(
            "This payment was made to another merchant, who alone can pay it back.",
            "该笔付款的收款方是其他商户，只能由对方退款。",
        ),
    };
    Err(Problem::new(409, "ORDER_STATE", why))
}
