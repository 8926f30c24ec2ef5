//! `POST /api/pay/notify`: the payment provider says that money came in. It is answered SUCCESS once the money is recorded,
//! whatever it was for; until then the provider says it again. The rest (gate, buyer, warehouse) is left to `order-due`.

use kernel::ids::{MerchantId, OrderNo, TransactionId};
use kernel::money::{Cents, Currency};
use kernel::time::{Clock, Rfc3339};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response, Text};
use sale::pay::{Taken, Till};
use sale::provider::{Account, SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER};
use sale::queue::{Reminder, Reminders};
use sale::store::payments::Payment;
use sale::store::{Orders, Payments, StoreError};
use serde::{Deserialize, Serialize};

/// The most money that one notice may speak of: what every JSON reader keeps exact.
const MAX_AMOUNT: u64 = (1 << 53) - 1;

pub struct Config {
    orders_table: String,
    payments_table: String,
    reminder_queue_url: String,
    payment_secret_arn: String,
    pay_merchant_id: MerchantId,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let payments_table = env.required("PAYMENTS_TABLE");
        let reminder_queue_url = env.required("REMINDER_QUEUE_URL");
        let payment_secret_arn = env.required("PAYMENT_SECRET_ARN");
        let pay_merchant_id = env.required("PAY_MERCHANT_ID");
        Ok(Self {
            orders_table: orders_table?,
            payments_table: payments_table?,
            reminder_queue_url: reminder_queue_url?,
            payment_secret_arn: payment_secret_arn?,
            pay_merchant_id: pay_merchant_id?,
        })
    }
}

pub struct State {
    till: Till,
    reminders: Reminders,
    signer: Signer,
    clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let account: Account = boot.secret(&config.payment_secret_arn).await?.json()?;
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        Ok(Self {
            signer: account.signer(),
            till: Till {
                orders: Orders::new(db.clone(), config.orders_table.clone()),
                payments: Payments::new(db, config.payments_table.clone()),
                merchant_id: config.pay_merchant_id.clone(),
                clock: Clock::System,
            },
            reminders: Reminders::new(aws_sdk_sqs::Client::new(&boot.aws), config.reminder_queue_url.clone()),
            clock: Clock::System,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Notice {
    transaction_id: TransactionId,
    merchant_id: MerchantId,
    order_no: OrderNo,
    amount: u64,
    currency: Currency,
    status: NoticeStatus,
    paid_at: Rfc3339,
}

#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum NoticeStatus {
    Success,
    Failed,
}

#[derive(Serialize)]
struct Received {
    code: &'static str,
}

pub async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
    match request.route() {
        "POST /api/pay/notify" => notify(state, &request).await,
        _ => Err(Problem::not_found()),
    }
}

async fn notify(state: &State, request: &Request) -> Result<Response, Problem> {
    let (timestamp, signature) = (request.header(TIMESTAMP_HEADER), request.header(SIGNATURE_HEADER));
    // Judged before the body is read: who signed nothing learns nothing.
    if let Err(error) = state.signer.verify(timestamp, signature, request.body()?, state.clock.now()) {
        tracing::warn!(%error, "a notice is not the provider's");
        return Err(Problem::new(401, "UNAUTHENTICATED", Text::new("The signature is not valid.", "签名无效。")));
    }
    let notice: Notice = request.json()?;
    if !(1..=MAX_AMOUNT).contains(&notice.amount) {
        return Err(Problem::validation(Text::new(
            "amount is a positive number of minor units.",
            "amount 须为正整数（分）。",
        )));
    }
    let received = Response::json(200, &Received { code: "SUCCESS" })?;
    match notice.status {
        // The buyer may try again with the same transaction; nothing is used up.
        NoticeStatus::Failed => return Ok(received),
        NoticeStatus::Success => {}
    }
    let payment = Payment {
        transaction_id: notice.transaction_id,
        merchant_id: notice.merchant_id,
        order_no: notice.order_no,
        amount: Cents::new(notice.amount),
        currency: notice.currency,
        paid_at: notice.paid_at.0,
    };
    let taken = state.till.take(&payment).await.map_err(failed)?;
    kernel::crash::point("pay.after_transaction");
    let (transaction_id, order_no) = (&payment.transaction_id, &payment.order_no);
    match taken {
        Taken::Paid(_) => {
            tracing::info!(%transaction_id, %order_no, "paid");
            // What this does not bring about at once, the sweep does.
            if let Err(error) = state.reminders.send(&[Reminder::now(payment.order_no.clone())]).await {
                tracing::warn!(%order_no, error = &error as &dyn std::error::Error, "left to the sweep to tell");
            }
        }
        Taken::Recorded => tracing::info!(%transaction_id, %order_no, "known already"),
        Taken::RefundDue(order) => {
            tracing::error!(alarm = "REFUND_DUE", %transaction_id, %order_no, status = order.status.as_str(), "money for an ended order");
        }
        Taken::Unmatched(mismatch) => {
            tracing::error!(alarm = "UNMATCHED_PAYMENT", %transaction_id, %order_no, ?mismatch, "money that fits no order");
        }
    }
    Ok(received)
}

fn failed(error: StoreError) -> Problem {
    match &error {
        StoreError::Unavailable { .. } => Problem::unavailable(&error),
        StoreError::Corrupt(_) => Problem::internal(&error),
    }
}
