//! A shopper's own orders: read, paid, let go. Somebody else's order answers 404, as if it did not exist.
//!
//! A cancellation moves rows only, so this function needs neither the cache nor the sockets: `order-due` tells them.

use kernel::ids::{MerchantId, OrderNo};
use kernel::time::{Clock, Rfc3339, UnixMillis};
use platform::auth::{AuthConfig, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response, Text};
use sale::ledger::{Ledger, Outcome};
use sale::order::{BuyResult, EndReason, OrderStatus};
use sale::provider::{Account, Provider, ProviderError};
use sale::queue::{Reminder, Reminders};
use sale::store::orders::{Cursor, OrderRow};
use sale::store::{Offers, Orders, StoreError};
use sale::wording;
use serde::Serialize;

/// Orders on a page, unless the caller asks for fewer or more; and the most.
const PAGE: u8 = 20;
const MAX_PAGE: u8 = 100;
/// How long a cancellation may meet others at the offer's row, in seconds: the gateway waits for 11.
const CANCEL_SECS: i64 = 4;
/// When to come back to a provider that refuses: people have to see to it.
const REFUSED_RETRY_MS: u64 = 30_000;

pub struct Config {
    orders_table: String,
    offers_table: String,
    reminder_queue_url: String,
    payment_secret_arn: String,
    pay_merchant_id: MerchantId,
    pay_provider_url: String,
    pay_notify_url: String,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let offers_table = env.required("OFFERS_TABLE");
        let reminder_queue_url = env.required("REMINDER_QUEUE_URL");
        let payment_secret_arn = env.required("PAYMENT_SECRET_ARN");
        let pay_merchant_id = env.required("PAY_MERCHANT_ID");
        let pay_provider_url = env.required("PAY_PROVIDER_URL");
        let pay_notify_url = env.required("PAY_NOTIFY_URL");
        let auth = AuthConfig::from_env(env);
        Ok(Self {
            orders_table: orders_table?,
            offers_table: offers_table?,
            reminder_queue_url: reminder_queue_url?,
            payment_secret_arn: payment_secret_arn?,
            pay_merchant_id: pay_merchant_id?,
            pay_provider_url: pay_provider_url?,
            pay_notify_url: pay_notify_url?,
            auth: auth?,
        })
    }
}

pub struct State {
    ledger: Ledger,
    reminders: Reminders,
    provider: Provider,
    notify_url: String,
    verifier: Verifier,
    clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        let config = &boot.config;
        let db = aws_sdk_dynamodb::Client::new(&boot.aws);
        let (verifier, secret) =
            tokio::try_join!(boot.verifier(&config.auth), boot.secret(&config.payment_secret_arn))?;
        let account: Account = secret.json()?;
        let (signer, url) = (account.signer(), config.pay_provider_url.clone());
        Ok(Self {
            ledger: Ledger {
                orders: Orders::new(db.clone(), config.orders_table.clone()),
                offers: Offers::new(db, config.offers_table.clone()),
                clock: Clock::System,
            },
            reminders: Reminders::new(aws_sdk_sqs::Client::new(&boot.aws), config.reminder_queue_url.clone()),
            provider: Provider::new(url, config.pay_merchant_id.clone(), signer, Clock::System)?,
            notify_url: config.pay_notify_url.clone(),
            verifier,
            clock: Clock::System,
        })
    }
}

/// `GET /api/order/{orderNo}`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OrderDocument<'a> {
    order_no: &'a OrderNo,
    activity_id: &'a str,
    sku_id: &'a str,
    title: &'a str,
    qty: u32,
    price: u64,
    amount: u64,
    currency: &'a str,
    status: OrderStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<EndReason>,
    created_at: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_deadline: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid_at: Option<Rfc3339>,
}

impl<'a> From<&'a OrderRow> for OrderDocument<'a> {
    fn from(row: &'a OrderRow) -> Self {
        Self {
            order_no: &row.order_no,
            activity_id: row.activity_id.as_str(),
            sku_id: row.sku_id.as_str(),
            title: &row.terms.title,
            qty: row.qty.get(),
            price: row.terms.price.get(),
            amount: row.amount.get(),
            currency: row.terms.currency.as_str(),
            status: row.status,
            reason: row.reason,
            created_at: Rfc3339(row.created_at),
            pay_deadline: row.pay_deadline.map(Rfc3339),
            paid_at: row.paid_at.map(Rfc3339),
        }
    }
}

/// `GET /api/seckill/result/{orderNo}`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultDocument<'a> {
    order_no: &'a OrderNo,
    status: BuyResult,
    order_status: OrderStatus,
    message: &'a str,
    amount: u64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_deadline: Option<Rfc3339>,
}

/// `GET /api/order/{orderNo}/status`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusDocument<'a> {
    order_no: &'a OrderNo,
    status: OrderStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<EndReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_deadline: Option<Rfc3339>,
}

/// `GET /api/orders`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListDocument<'a> {
    items: Vec<OrderDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

pub async fn handle(state: &State, request: Request) -> Result<Response, Problem> {
    match request.route() {
        "GET /api/seckill/result/{orderNo}" => result(state, &request).await,
        "GET /api/orders" => list(state, &request).await,
        "GET /api/order/{orderNo}" => order(state, &request).await,
        "GET /api/order/{orderNo}/status" => status(state, &request).await,
        "POST /api/order/{orderNo}/pay" => pay(state, &request).await,
        "POST /api/order/{orderNo}/cancel" => cancel(state, &request).await,
        _ => Err(Problem::not_found()),
    }
}

/// The order that the path names, if it is the caller's. A text that is no order number is an order that is not there.
async fn own(state: &State, request: &Request) -> Result<OrderRow, Problem> {
    let principal = request.authenticate(&state.verifier, state.clock.now(), Role::User)?;
    let order_no: OrderNo = request.path("orderNo").map_err(|_| Problem::not_found())?;
    match state.ledger.orders.get(&order_no).await.map_err(failed)? {
        Some(row) if row.user_id == principal.id => Ok(row),
        Some(_) | None => Err(Problem::not_found()),
    }
}

async fn order(state: &State, request: &Request) -> Result<Response, Problem> {
    let row = own(state, request).await?;
    Response::json(200, &OrderDocument::from(&row))
}

async fn status(state: &State, request: &Request) -> Result<Response, Problem> {
    let row = own(state, request).await?;
    let document = StatusDocument {
        order_no: &row.order_no,
        status: row.status,
        reason: row.reason,
        pay_deadline: row.pay_deadline.map(Rfc3339),
    };
    Response::json(200, &document)
}

async fn result(state: &State, request: &Request) -> Result<Response, Problem> {
    let row = own(state, request).await?;
    let message = wording::about(row.status, row.reason);
    let document = ResultDocument {
        order_no: &row.order_no,
        status: row.status.result(),
        order_status: row.status,
        message: message.in_language(request.language()),
        amount: row.amount.get(),
        currency: row.terms.currency.as_str(),
        pay_deadline: row.pay_deadline.map(Rfc3339),
    };
    Response::json(200, &document)
}

/// `POST /api/order/{orderNo}/pay`: what the buyer's client opens the cashier with.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PayDocument<'a> {
    order_no: &'a OrderNo,
    merchant_id: &'a str,
    prepay_id: &'a str,
    pay_url: &'a str,
    amount: u64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_deadline: Option<Rfc3339>,
}

async fn pay(state: &State, request: &Request) -> Result<Response, Problem> {
    let row = own(state, request).await?;
    request.no_body()?;
    let now = state.clock.now();
    let may_pay = row.status == OrderStatus::Unpaid && row.pay_deadline.is_none_or(|deadline| now < deadline);
    if !may_pay {
        return Err(order_state(&row, now));
    }
    let prepared = state.provider.prepare(&row, &state.notify_url).await.map_err(|error| not_prepared(&error))?;
    let document = PayDocument {
        order_no: &row.order_no,
        merchant_id: state.provider.merchant_id().as_str(),
        prepay_id: &prepared.prepay_id,
        pay_url: &prepared.pay_url,
        amount: row.amount.get(),
        currency: row.terms.currency.as_str(),
        pay_deadline: row.pay_deadline.map(Rfc3339),
    };
    Response::json(200, &document)
}

/// Cancels an order that waits for its payment. Cancelled already: the same answer, and nothing changes.
async fn cancel(state: &State, request: &Request) -> Result<Response, Problem> {
    let row = own(state, request).await?;
    request.no_body()?;
    match row.status {
        OrderStatus::Unpaid => {}
        OrderStatus::Cancelled => return Response::json(200, &OrderDocument::from(&row)),
        OrderStatus::PreCreated | OrderStatus::Paid | OrderStatus::Failed => {
            return Err(order_state(&row, state.clock.now()));
        }
    }
    let orders = std::slice::from_ref(&row);
    let stop = state.clock.now().plus_secs(CANCEL_SECS);
    let outcome = state.ledger.cancel(orders, EndReason::CancelledByBuyer, stop).await.remove(&row.order_no);
    kernel::crash::point("cancel.after_transaction");
    match outcome {
        Some(Outcome::Settled { .. }) => {}
        Some(Outcome::Busy | Outcome::Unknown) | None => {
            return Err(Problem::new(
                503,
                "UNAVAILABLE",
                Text::new("Please try again in a moment.", "系统繁忙，请稍后重试。"),
            ));
        }
    }
    // What this does not bring about at once, the sweep does.
    if let Err(error) = state.reminders.send(&[Reminder::now(row.order_no.clone())]).await {
        tracing::warn!(order_no = %row.order_no, error = &error as &dyn std::error::Error, "left to the sweep to release");
    }
    // As it is now: it may have been paid at the very moment.
    match state.ledger.orders.get(&row.order_no).await.map_err(failed)? {
        Some(row) if row.status == OrderStatus::Cancelled => Response::json(200, &OrderDocument::from(&row)),
        Some(row) => Err(order_state(&row, state.clock.now())),
        None => Err(Problem::not_found()),
    }
}

/// Nothing was prepared. Whoever is refused by the provider is not at fault, and nor is the order: it may be paid as soon as
/// people have seen to it.
fn not_prepared(error: &ProviderError) -> Problem {
    match error {
        ProviderError::Unreachable(_) | ProviderError::Refused { status: 408 | 429 | 500.., .. } => {
            Problem::unavailable(error)
        }
        ProviderError::Refused { .. } | ProviderError::Answer(_) => {
            let cause: &dyn std::error::Error = error;
            tracing::error!(
                alarm = "PAY_REFUSED",
                error = cause,
                "the payment provider takes no payments as we ask for them"
            );
            Problem::new(
                503,
                "UNAVAILABLE",
                Text::new(
                    "The payment provider does not take this payment at the moment. Please try again in a while.",
                    "支付平台暂时无法受理此笔付款，请稍后再试。",
                ),
            )
            .retry_after_ms(REFUSED_RETRY_MS)
        }
    }
}

/// The order is not in a state for it.
fn order_state(row: &OrderRow, now: UnixMillis) -> Problem {
    let is_over = row.status == OrderStatus::Unpaid && row.pay_deadline.is_some_and(|deadline| deadline <= now);
    let why = if is_over {
        Text::new("The time to pay this order is over.", "订单付款时间已过。")
    } else {
        wording::about(row.status, row.reason)
    };
    Problem::new(409, "ORDER_STATE", why).with("orderStatus", row.status.as_str())
}

async fn list(state: &State, request: &Request) -> Result<Response, Problem> {
    let principal = request.authenticate(&state.verifier, state.clock.now(), Role::User)?;
    let limit = request.query::<i64>("limit")?.unwrap_or(PAGE.into());
    let limit = u8::try_from(limit).ok().filter(|limit| (1..=MAX_PAGE).contains(limit)).ok_or_else(|| {
        Problem::validation(Text::of(
            format!("limit is 1 to {MAX_PAGE}."),
            format!("limit 的取值范围为 1 到 {MAX_PAGE}。"),
        ))
    })?;
    let cursor = match request.query::<String>("cursor")? {
        None => None,
        Some(opaque) => Some(Cursor::decode(&opaque).map_err(|_| {
            Problem::validation(Text::new(
                "cursor is not one that this list gave out.",
                "cursor 不是本列表返回的游标。",
            ))
        })?),
    };
    let page = state.ledger.orders.list_by_user(&principal.id, limit, cursor.as_ref()).await.map_err(failed)?;
    let document = ListDocument {
        items: page.orders.iter().map(OrderDocument::from).collect(),
        next_cursor: page.next.as_ref().map(Cursor::encode),
    };
    Response::json(200, &document)
}

fn failed(error: StoreError) -> Problem {
    match &error {
        StoreError::Unavailable { .. } => Problem::unavailable(&error),
        StoreError::Corrupt(_) => Problem::internal(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_refuses_is_to_be_asked_again() {
        let refused = |status| not_prepared(&ProviderError::Refused { status, said: "no such merchant".to_owned() });
        for status in [400, 401, 404, 409, 429, 500, 503] {
            let problem = refused(status);
            assert_eq!((problem.status(), problem.code()), (503, "UNAVAILABLE"), "{status}");
            assert!(problem.member("retryAfterMs").is_some(), "{status}");
        }
        assert_eq!(not_prepared(&ProviderError::Answer("not JSON".into())).code(), "UNAVAILABLE");
    }
}
