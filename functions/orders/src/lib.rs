//! A shopper's own orders. Somebody else's order answers 404, as if it did not exist.

use kernel::ids::OrderNo;
use kernel::time::{Clock, Rfc3339};
use platform::auth::{AuthConfig, Role, Verifier};
use platform::boot::{self, Boot};
use platform::config::{Env, FromEnv, Noted};
use platform::http::{Problem, Request, Response, Text};
use sale::order::{BuyResult, FailReason, OrderStatus};
use sale::store::orders::{Cursor, OrderRow};
use sale::store::{Orders, StoreError};
use sale::wording;
use serde::Serialize;

/// Orders on a page, unless the caller asks for fewer or more; and the most.
const PAGE: u8 = 20;
const MAX_PAGE: u8 = 100;

pub struct Config {
    orders_table: String,
    auth: AuthConfig,
}

impl FromEnv for Config {
    fn from_env(env: &mut Env) -> Result<Self, Noted> {
        let orders_table = env.required("ORDERS_TABLE");
        let auth = AuthConfig::from_env(env);
        Ok(Self { orders_table: orders_table?, auth: auth? })
    }
}

pub struct State {
    orders: Orders,
    verifier: Verifier,
    clock: Clock,
}

impl State {
    pub async fn start(boot: &Boot<Config>) -> Result<Self, boot::Error> {
        Ok(Self {
            orders: Orders::new(aws_sdk_dynamodb::Client::new(&boot.aws), boot.config.orders_table.clone()),
            verifier: boot.verifier(&boot.config.auth).await?,
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
    reason: Option<FailReason>,
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
    reason: Option<FailReason>,
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
        _ => Err(Problem::not_found()),
    }
}

/// The order that the path names, if it is the caller's. A text that is no order number is an order that is not there.
async fn own(state: &State, request: &Request) -> Result<OrderRow, Problem> {
    let principal = request.authenticate(&state.verifier, state.clock.now(), Role::User)?;
    let order_no: OrderNo = request.path("orderNo").map_err(|_| Problem::not_found())?;
    match state.orders.get(&order_no).await.map_err(failed)? {
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

async fn list(state: &State, request: &Request) -> Result<Response, Problem> {
    let principal = request.authenticate(&state.verifier, state.clock.now(), Role::User)?;
    let limit = request.query::<u8>("limit")?.unwrap_or(PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Problem::validation(Text::of(
            format!("limit is 1 to {MAX_PAGE}."),
            format!("limit 的取值范围为 1 到 {MAX_PAGE}。"),
        )));
    }
    let cursor = match request.query::<String>("cursor")? {
        None => None,
        Some(opaque) => Some(Cursor::decode(&opaque).map_err(|_| {
            Problem::validation(Text::new(
                "cursor is not one that this list gave out.",
                "cursor 不是本列表返回的游标。",
            ))
        })?),
    };
    let page = state.orders.list_by_user(&principal.id, limit, cursor.as_ref()).await.map_err(failed)?;
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
