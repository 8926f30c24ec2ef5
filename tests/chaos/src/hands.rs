//! What rows have in common.

use std::time::Duration;

use client::documents::PayParameters;
use e2e::process::{CRASH_AT, Pending};
use e2e::shop::done;
use e2e::{Buyer, FunctionProcess, Local, Offer, Shop, eventually};
use kernel::ids::OrderNo;
use kernel::time::UnixMillis;
use redis::aio::MultiplexedConnection;
use sale::order::OrderStatus;
use sale::queue::OrderMessage;
use sale::store::orders::OrderRow;
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

/// The promise: what a killed function left is settled within this. Three rows share the sweep, which is why some is added.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(150);
/// Enough for everybody, so that nobody may be told otherwise.
pub(crate) const PLENTY: u64 = 1_000;
/// What a sweep of ours is told that it has. It keeps the last 12 s for itself, and its lease as long as this.
const SHORT_SWEEP: Duration = Duration::from_secs(25);
/// To pay, where there is hardly time to.
const HASTE_SECS: u32 = 3;
/// A queue that does not answer.
pub(crate) const NO_QUEUE: &str = "http://127.0.0.1:9/000000000000/nowhere";

/// A sale that has enough for everybody.
pub(crate) async fn plenty() -> Shop {
    Shop::open(Offer { total: PLENTY, ..Offer::default() }).await
}

/// A sale where there is hardly time to pay.
pub(crate) async fn hasty() -> Shop {
    Shop::open(Offer { total: PLENTY, pay_window_secs: HASTE_SECS, ..Offer::default() }).await
}

// ------------------------------------------------------------------------------- functions

/// Runs a function of its own on one event, that dies at `point`: its number.
pub(crate) async fn dies(shop: &Shop, function: &str, point: &str, event: &Value) -> i32 {
    let mut process = FunctionProcess::start_with(&shop.local, function, &[(CRASH_AT, point)]).await;
    let _unanswered = process.send(event);
    process.dies_at(point).await;
    process.pid()
}

/// The only hold of a buyer.
pub(crate) async fn hold_of(shop: &Shop, buyer: &Buyer) -> OrderNo {
    let holds = shop.holds_of(buyer).await;
    let [order_no] = &holds[..] else { panic!("{} has {holds:?}", buyer.id) };
    order_no.clone()
}

// ---------------------------------------------------------------------------------- orders

/// Orders that are written down and not sent: a queue that does not answer loses the message, and the row is the outbox.
pub(crate) async fn unsent(shop: &Shop, count: usize) -> Vec<OrderMessage> {
    let buy = FunctionProcess::start_with(&shop.local, "buy", &[("ORDER_QUEUE_URL", NO_QUEUE)]).await;
    let mut messages = Vec::new();
    for n in 0..count {
        let buyer = shop.buyer(&format!("unsent{n}"));
        let answer = buy.invoke(&buyer.buy_event(1, "k1")).await;
        assert_eq!(answer["statusCode"], 202, "{answer}");
        let order_no = hold_of(shop, &buyer).await;
        messages.push(OrderMessage::from(&shop.row(&order_no).await.unwrap()));
    }
    messages
}

/// What the queue does with messages that nobody answered for.
pub(crate) async fn deliver(shop: &Shop, messages: &[OrderMessage]) {
    for message in messages {
        shop.local.enqueue(&serde_json::to_string(message).unwrap()).await;
    }
}

/// Each of these became an order to be paid, in one step.
pub(crate) async fn made_once(shop: &Shop, messages: &[OrderMessage]) {
    for message in messages {
        let row = decided(shop, &message.order_no).await;
        assert_eq!(row.trail, [OrderStatus::PreCreated, OrderStatus::Unpaid], "{row:?}");
    }
}

/// The row of an order, once it is not PRE_CREATED any more.
pub(crate) async fn decided(shop: &Shop, order_no: &OrderNo) -> OrderRow {
    eventually(&format!("{order_no} is decided"), SETTLED_WITHIN, async || {
        shop.row(order_no).await.filter(|row| row.status != OrderStatus::PreCreated)
    })
    .await
}

/// An order that waits for its payment, and how it is paid.
pub(crate) async fn at_the_cashier(buyer: &Buyer, request_id: &str) -> (OrderNo, PayParameters) {
    let order_no = unpaid(buyer, request_id).await;
    let payment = done(buyer.api.pay(order_no.as_str()).await);
    (order_no, payment)
}

/// An order that waits for its payment.
pub(crate) async fn unpaid(buyer: &Buyer, request_id: &str) -> OrderNo {
    let order_no = buyer.accepted(1, request_id).await;
    buyer.wins(&order_no).await;
    order_no.parse().unwrap()
}

/// In a hasty sale, an order that ran out of time and that nobody was reminded of. Nobody sweeps, so it stays so.
pub(crate) async fn run_out<'a>(shop: &'a Shop, buyer: &Buyer) -> (Broom<'a>, OrderNo) {
    let buy = FunctionProcess::start_with(&shop.local, "buy", &[("ORDER_QUEUE_URL", NO_QUEUE)]).await;
    buy.invoke(&buyer.buy_event(1, "k1")).await;
    let order_no = hold_of(shop, buyer).await;
    let message = (&shop.row(&order_no).await.unwrap()).into();
    let consumer = FunctionProcess::start_with(&shop.local, "consumer", &[("REMINDER_QUEUE_URL", NO_QUEUE)]).await;
    let broom = Broom::take(&shop.local).await;
    consumer.invoke(&e2e::events::orders(&[message])).await;
    pass(Duration::from_millis(200 + u64::from(HASTE_SECS) * 1_000)).await;
    (broom, order_no)
}

/// Everybody has been told of an order, the gate too.
pub(crate) async fn acquitted(shop: &Shop, order_no: &OrderNo) -> OrderRow {
    eventually(&format!("everybody hears of {order_no}"), SETTLED_WITHIN, async || {
        shop.row(order_no).await.filter(|row| row.status != OrderStatus::PreCreated && !row.is_owed())
    })
    .await
}

// ----------------------------------------------------------------------------------- redis

/// As the one who runs the server.
pub(crate) async fn redis(local: &Local) -> MultiplexedConnection {
    let client = redis::Client::open(local.outputs.redis_url.as_str()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// A command whose answer nobody needs.
pub(crate) async fn tell(redis: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async::<redis::Value>(redis).await.unwrap();
}

/// One of the numbers of `INFO all`; of an error, how often it was answered (`errorstat_OOM`).
pub(crate) async fn number(redis: &mut MultiplexedConnection, name: &str) -> u32 {
    let text: String = redis::cmd("INFO").arg("all").query_async(redis).await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map_or(0, |value| value.trim().trim_start_matches("count=").parse().unwrap())
}

// ------------------------------------------------------------------------------- the sweep

/// The right to sweep: nobody else does while this is held.
pub(crate) struct Broom<'a> {
    local: &'a Local,
    owner: String,
    _alone: MutexGuard<'static, ()>,
}

impl<'a> Broom<'a> {
    const LEASE: &'static str = "sweep";
    const HELD: Duration = Duration::from_secs(60);

    /// Once the sweep that is running is over.
    pub(crate) async fn take(local: &'a Local) -> Self {
        let alone = e2e::local::SWEEPING.lock().await;
        let owner = format!("chaos-{:08x}", rand::random::<u32>());
        eventually("nobody else sweeps", SETTLED_WITHIN, async || {
            let now = millis();
            let until = now.plus_millis(i64::try_from(Self::HELD.as_millis()).unwrap());
            local.offers().lease(Self::LEASE, &owner, until, now).await.unwrap().then_some(())
        })
        .await;
        Self { local, owner, _alone: alone }
    }

    /// Has a sweep of ours run that dies at `point`. None: it had nothing to do there, or was not the one that swept.
    pub(crate) async fn dies(&self, point: &str) -> Option<i32> {
        let changed = [(CRASH_AT, point)];
        let mut sweep = FunctionProcess::start_for(self.local, "sweep", &changed, SHORT_SWEEP).await;
        let tick = self.lend(&sweep).await;
        sweep.dies_at_or_answers(point, tick).await.then(|| sweep.pid())
    }

    /// Lets a sweep of ours run, and nobody else.
    pub(crate) async fn lend(&self, sweep: &FunctionProcess) -> Pending {
        self.free().await;
        sweep.send(&json!({}))
    }

    /// Anybody may sweep.
    pub(crate) async fn let_go(self) {
        self.free().await;
    }

    /// Taken again by force, since a killed sweep's lease outlives it.
    async fn free(&self) {
        let far = millis().plus_secs(3_600);
        self.local.offers().lease(Self::LEASE, &self.owner, far, far).await.unwrap();
        self.local.offers().end_lease(Self::LEASE, &self.owner).await.unwrap();
    }
}

pub(crate) fn millis() -> UnixMillis {
    UnixMillis::new(jiff::Timestamp::now().as_millisecond())
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    eventually(what, SETTLED_WITHIN, async || is_so().await.then_some(())).await;
}

/// A pause that is a part of the fault.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
