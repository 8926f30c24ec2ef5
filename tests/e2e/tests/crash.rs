//! Functions that die, freeze or lose an answer half-way; and who picks up what they left.
//!
//! Each test runs the function's own binary beside the stack and ends it at a named step. Then somebody else goes on: the
//! buyer's retry, the queue's next delivery, or the sweep.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that fails says so by panicking, and lives by the system's clock"
)]

use std::time::Duration;

use client::Socket;
use client::documents::{ActivityAction, OrderStatus, ProblemCode, ResultStatus};
use e2e::local::SWEEPING;
use e2e::process::At;
use e2e::shop::done;
use e2e::{Buyer, FunctionProcess, LossyRedis, Offer, SOON, Shop, events, eventually};
use kernel::ids::OrderNo;
use sale::admission::HoldState;
use sale::order::{EndReason, OrderStatus as RowStatus};
use sale::queue::OrderMessage;
use sale::store::orders::OUTBOX_DELAY_SECS;
use sale::sweep::ABANDON_SECS;
use serde_json::{Value, json};

/// The promise: a hold that a killed function left is settled within this.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);

/// A hold without a row is given up, and a row that was not sent is sent, after thirty seconds.
const OLD_ENOUGH: Duration = {
    assert!(ABANDON_SECS == OUTBOX_DELAY_SECS);
    Duration::from_secs(ABANDON_SECS.unsigned_abs())
};

/// A buy that dies at `point`: the number of the order it was about.
async fn buy_dies_at(shop: &Shop, buyer: &Buyer, request_id: &str, point: &'static str) -> OrderNo {
    let mut function = FunctionProcess::start_at(&shop.local, "buy", At::Crash(point)).await;
    let _unanswered = function.send(&buyer.buy_event(1, request_id));
    function.dies_at(point).await;
    let holds = shop.holds_of(buyer).await;
    let [order_no] = &holds[..] else { panic!("{holds:?}") };
    order_no.clone()
}

/// Sweeps until the row of an order is settled: once it is old enough for any sweep to care.
async fn swept(shop: &Shop, order_no: &OrderNo) -> sale::store::orders::OrderRow {
    tokio::time::sleep(OLD_ENOUGH).await;
    eventually(&format!("a sweep settles {order_no}"), SETTLED_WITHIN, async || {
        shop.local.sweep().await;
        shop.row(order_no).await.filter(|row| row.status != RowStatus::PreCreated)
    })
    .await
}

async fn pushed(socket: &mut Socket, order_no: &OrderNo) -> (ResultStatus, OrderStatus) {
    let result = socket.result_of(order_no.as_str(), SOON).await.unwrap().result;
    (result.status, result.order_status)
}

// -------------------------------------------------------------------------- killed

/// [P4] Two buyers whose function dies when their place is taken and nothing is written down. One tries again, one does not.
#[tokio::test]
async fn killed_after_the_script_the_retry_goes_on_or_the_sweep_gives_the_place_back() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let (persistent, patient) = (shop.buyer("u1"), shop.buyer("u2"));
    let mut socket = patient.online().await;
    let kept = buy_dies_at(&shop, &persistent, "k1", "buy.after_script").await;
    let left = buy_dies_at(&shop, &patient, "k1", "buy.after_script").await;
    assert_eq!(shop.units().await, (8, 2));
    assert_eq!((shop.row(&kept).await, shop.row(&left).await), (None, None));

    // The same request is the same order, and nothing is taken twice.
    let retry = persistent.buy(1, "k1").await;
    assert!(retry.headers.is_replay());
    assert_eq!(e2e::shop::accepted(retry), kept.as_str());
    persistent.wins(kept.as_str()).await;
    assert_eq!(shop.units().await, (8, 2));

    // Nobody comes for the other: after thirty seconds it is given up, by a row first, and the unit is for sale.
    let row = swept(&shop, &left).await;
    assert_eq!((row.status, row.reason), (RowStatus::Failed, Some(EndReason::Abandoned)));
    assert_eq!(row.trail, [RowStatus::Failed]);
    eventually("the unit is given back", SOON, async || (shop.units().await == (9, 1)).then_some(())).await;
    assert_eq!(pushed(&mut socket, &left).await, (ResultStatus::Fail, OrderStatus::Failed));
    let order = patient.api.order(left.as_str()).await.unwrap().outcome.unwrap();
    assert_eq!(order.reason.as_deref(), Some("ABANDONED"));

    // The old request is over; a new one is as good as any.
    patient.refused(1, "k1", ProblemCode::RequestExpired).await;
    patient.refused(1, "k1", ProblemCode::RequestExpired).await;
    let second = patient.accepted(1, "k2").await;
    patient.wins(&second).await;
    let counts = shop.audit().await.counts;
    assert_eq!((counts.committed, counts.available, counts.held), (2, 8, 2));
}

/// The row is the outbox: what was not sent is sent by the retry, or by the sweep.
#[tokio::test]
async fn killed_after_the_row_the_order_is_sent_by_whoever_comes_next() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let (persistent, patient) = (shop.buyer("u1"), shop.buyer("u2"));
    let mut socket = patient.online().await;
    let retried = buy_dies_at(&shop, &persistent, "k1", "buy.after_row").await;
    let left = buy_dies_at(&shop, &patient, "k1", "buy.after_row").await;
    for order_no in [&retried, &left] {
        assert_eq!(shop.row(order_no).await.unwrap().status, RowStatus::PreCreated);
    }
    let result = patient.api.result(left.as_str()).await.unwrap().outcome.unwrap();
    assert_eq!((result.status, result.order_status), (ResultStatus::Pending, OrderStatus::PreCreated));

    assert_eq!(persistent.accepted(1, "k1").await, retried.as_str());
    persistent.wins(retried.as_str()).await;

    // Nothing but the sweep knows of the other: it sends the message again, and the consumer does the rest.
    let row = swept(&shop, &left).await;
    assert_eq!(row.trail, [RowStatus::PreCreated, RowStatus::Unpaid]);
    assert_eq!(pushed(&mut socket, &left).await, (ResultStatus::Success, OrderStatus::Unpaid));
    assert_eq!(shop.rows().await.len(), 2);
    assert_eq!(shop.audit().await.counts.committed, 2);
}

#[tokio::test]
async fn killed_after_the_queue_the_order_comes_to_be_and_a_retry_meets_it() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let mut socket = buyer.online().await;
    let order_no = buy_dies_at(&shop, &buyer, "k1", "buy.after_queue").await;
    assert_eq!(pushed(&mut socket, &order_no).await, (ResultStatus::Success, OrderStatus::Unpaid));
    let retry = buyer.buy(1, "k1").await;
    assert_eq!(retry.outcome.as_ref().unwrap().status, ResultStatus::Success);
    assert_eq!(e2e::shop::accepted(retry), order_no.as_str());
    assert_eq!((shop.rows().await.len(), shop.units().await), (1, (9, 1)));
    shop.audit().await;
}

/// The consumer dies with all orders of a batch committed and nobody told: the queue delivers again.
#[tokio::test]
async fn killed_after_the_transaction_the_next_delivery_tells_gate_and_buyers() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyers = [shop.buyer("u1"), shop.buyer("u2")];
    let mut socket = buyers[0].online().await;
    let messages = unsent(&shop, &buyers).await;

    let mut consumer =
        FunctionProcess::start_at(&shop.local, "consumer", At::Crash("consumer.after_transaction")).await;
    let _unanswered = consumer.send(&events::orders(&messages));
    consumer.dies_at("consumer.after_transaction").await;
    for message in &messages {
        let row = shop.row(&message.order_no).await.unwrap();
        assert_eq!(row.trail, [RowStatus::PreCreated, RowStatus::Unpaid]);
    }
    assert_eq!(shop.snapshot().await.pending.len(), 2, "the gate has not been told");
    e2e::shop::pong(&mut socket).await;
    assert!(socket.result_so_far(messages[0].order_no.as_str()).unwrap().is_none(), "nor have the buyers");

    redeliver(&shop, &messages).await;
    assert_eq!(pushed(&mut socket, &messages[0].order_no).await, (ResultStatus::Success, OrderStatus::Unpaid));
    once_each(&shop, &messages).await;
}

#[tokio::test]
async fn killed_after_the_push_the_next_delivery_does_no_harm() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyers = [shop.buyer("u1"), shop.buyer("u2")];
    let mut socket = buyers[0].online().await;
    let messages = unsent(&shop, &buyers).await;

    let mut consumer = FunctionProcess::start_at(&shop.local, "consumer", At::Crash("consumer.after_push")).await;
    let _unanswered = consumer.send(&events::orders(&messages));
    consumer.dies_at("consumer.after_push").await;
    let first = pushed(&mut socket, &messages[0].order_no).await;
    assert_eq!(first, (ResultStatus::Success, OrderStatus::Unpaid));

    redeliver(&shop, &messages).await;
    once_each(&shop, &messages).await;
    assert_eq!(pushed(&mut socket, &messages[0].order_no).await, first);
}

/// Orders whose message was never sent.
async fn unsent(shop: &Shop, buyers: &[Buyer]) -> Vec<OrderMessage> {
    let mut messages = Vec::new();
    for buyer in buyers {
        let order_no = buy_dies_at(shop, buyer, "k1", "buy.after_row").await;
        messages.push(OrderMessage::from(&shop.row(&order_no).await.unwrap()));
    }
    messages
}

/// What the queue does with a batch that nobody answered for.
async fn redeliver(shop: &Shop, messages: &[OrderMessage]) {
    for message in messages {
        shop.local.enqueue(&serde_json::to_string(message).unwrap()).await;
    }
}

async fn once_each(shop: &Shop, messages: &[OrderMessage]) {
    let counts = shop.audit().await.counts;
    assert_eq!((counts.committed, counts.held, counts.pending), (2, 2, 0));
    for message in messages {
        let row = shop.row(&message.order_no).await.unwrap();
        assert_eq!(row.trail, [RowStatus::PreCreated, RowStatus::Unpaid]);
    }
}

/// The sweep dies between the ABANDONED row and the release.
#[tokio::test]
async fn killed_after_it_gave_an_order_up_the_next_sweep_releases_its_unit() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let order_no = eventually("a sweep dies of this order", 3 * SETTLED_WITHIN, async || {
        let request_id = format!("k{}", shop.rows().await.len());
        buy_dies_at(&shop, &shop.buyer(&request_id), &request_id, "buy.after_script").await;
        tokio::time::sleep(OLD_ENOUGH).await;
        sweep_dies(&shop).await
    })
    .await;
    let row = shop.row(&order_no).await.unwrap();
    assert_eq!((row.status, row.reason), (RowStatus::Failed, Some(EndReason::Abandoned)));
    eventually("the next sweep releases the unit", SETTLED_WITHIN, async || {
        shop.local.sweep().await;
        (shop.snapshot().await.holds[&order_no].state == HoldState::Released).then_some(())
    })
    .await;
    assert_eq!(shop.units().await, (10, 0));
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    shop.audit().await;
}

/// Runs sweeps that die when they give an order up, until one gives up an order of this shop: its number, while its hold is
/// still there. None when the deployed sweep, which ticks by itself, was first. Orders of other tests may be given up on the
/// way: they wait for any sweep.
async fn sweep_dies(shop: &Shop) -> Option<OrderNo> {
    let _alone = SWEEPING.lock().await;
    let waiting: Vec<OrderNo> = shop.snapshot().await.pending.into_keys().collect();
    let [order_no] = &waiting[..] else { return None };
    while shop.row(order_no).await.is_none() {
        let mut sweep = FunctionProcess::start_at(&shop.local, "sweep", At::Crash("sweep.after_abandon")).await;
        let tick = sweep.send(&json!({}));
        if !sweep.dies_at_or_answers("sweep.after_abandon", tick).await {
            return None;
        }
    }
    let hold = shop.snapshot().await.holds.remove(order_no).unwrap();
    (hold.state == HoldState::Held).then(|| order_no.clone())
}

/// Runs a function of its own on one event, that dies at `point`.
async fn dies_at(shop: &Shop, function: &str, point: &'static str, event: &Value) {
    let mut process = FunctionProcess::start_at(&shop.local, function, At::Crash(point)).await;
    let _unanswered = process.send(event);
    process.dies_at(point).await;
}

/// An order that waits for its payment.
async fn unpaid(buyer: &Buyer) -> OrderNo {
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    order_no.parse().unwrap()
}

/// Sweeps until nothing is owed to an order any more.
async fn acquitted(shop: &Shop, order_no: &OrderNo) -> sale::store::orders::OrderRow {
    eventually(&format!("everybody hears of {order_no}"), SETTLED_WITHIN, async || {
        let row = shop.row(order_no).await.unwrap();
        if row.is_owed() {
            tokio::time::sleep(Duration::from_secs(2)).await;
            shop.local.sweep().await;
        }
        (!row.is_owed()).then_some(row)
    })
    .await
}

/// Money came in and nobody was told; a cancellation stood and nobody was told. The row owes the news, and the sweep sees to it.
#[tokio::test]
async fn killed_after_it_was_paid_or_cancelled_an_order_still_reaches_everybody() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let (payer, leaver) = (shop.buyer("u1"), shop.buyer("u2"));
    let mut sockets = [payer.online().await, leaver.online().await];
    let (paid, cancelled) = (unpaid(&payer).await, unpaid(&leaver).await);
    let payment = done(payer.api.pay(paid.as_str()).await);
    let notice = events::paid(&shop.local, &payment, &format!("tx-{}", shop.activity_id));
    dies_at(&shop, "pay-notify", "pay.after_transaction", &notice).await;
    let cancelling = events::cancel(&leaver, cancelled.as_str());
    dies_at(&shop, "orders", "cancel.after_transaction", &cancelling).await;

    for (order_no, status) in [(&paid, RowStatus::Paid), (&cancelled, RowStatus::Cancelled)] {
        assert_eq!(acquitted(&shop, order_no).await.status, status);
    }
    sockets[0].order_in(paid.as_str(), OrderStatus::Paid, SOON).await.unwrap();
    sockets[1].order_in(cancelled.as_str(), OrderStatus::Cancelled, SOON).await.unwrap();
    // Asked again, it is the same answer.
    assert_eq!(done(leaver.api.cancel(cancelled.as_str()).await).status, OrderStatus::Cancelled);
    let stats = shop.stats().await;
    assert_eq!((stats.sold, stats.available, stats.held), (Some(1), Some(9), Some(0)));
    shop.audit().await;
}

/// Who sees to a paid order dies at each of its steps in turn. Each time the order is still owed, and the next one goes on.
#[tokio::test]
async fn killed_between_gate_buyer_and_warehouse_the_next_one_goes_on() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let mut orders = Vec::new();
    for (n, point) in ["due.after_gate", "due.after_push", "due.after_publish"].into_iter().enumerate() {
        let buyer = shop.buyer(&format!("u{n}"));
        let order_no = unpaid(&buyer).await;
        let payment = done(buyer.api.pay(order_no.as_str()).await);
        let mut due = FunctionProcess::start_at(&shop.local, "order-due", At::Crash(point)).await;
        let alone = SWEEPING.lock().await;
        let notice = events::paid(&shop.local, &payment, &format!("tx-{n}-{}", shop.activity_id));
        dies_at(&shop, "pay-notify", "pay.after_transaction", &notice).await;
        let reminder = due.send(&events::reminders(std::slice::from_ref(&order_no)));
        // The deployed sweep, which ticks by itself, may have been first: then there is nothing to die of.
        if due.dies_at_or_answers(point, reminder).await {
            assert!(shop.row(&order_no).await.unwrap().is_owed(), "{point}: it is told of again");
        }
        drop(alone);
        orders.push(order_no);
    }
    for order_no in &orders {
        assert_eq!(acquitted(&shop, order_no).await.status, RowStatus::Paid);
    }
    assert_eq!(shop.stats().await.sold, Some(3));
    shop.audit().await;
}

/// The sweep that settles a sale dies before the gates have heard of it: the next one puts the sale away.
#[tokio::test]
async fn killed_after_it_settled_a_sale_the_next_sweep_puts_it_away() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let order_no = unpaid(&buyer).await;
    done(buyer.api.cancel(order_no.as_str()).await);
    acquitted(&shop, &order_no).await;
    {
        let _alone = SWEEPING.lock().await;
        let mut sweep = FunctionProcess::start_at(&shop.local, "sweep", At::Crash("settle.after_row")).await;
        shop.act(ActivityAction::End).await;
        // The deployed sweep may be first, or be running; then it settles the sale itself.
        let tick = sweep.send(&json!({}));
        sweep.dies_at_or_answers("settle.after_row", tick).await;
    }
    let archived = async || shop.local.offers().activity(&shop.offer_id().activity_id).await.unwrap().unwrap().archived;
    eventually("a sweep puts the sale away", SETTLED_WITHIN, async || {
        shop.local.sweep().await;
        archived().await.then_some(())
    })
    .await;
    let sku = shop.local.offers().sku(&shop.offer_id().sku_id).await.unwrap().unwrap();
    assert_eq!(sku.free, 10, "what was left went back once");
    shop.audit().await;
}

// ------------------------------------------------------------------- frozen, and deaf

/// A function that was frozen between the script and the row wakes up when its order has been given up: its row comes late and
/// loses.
#[tokio::test]
async fn frozen_until_its_order_was_given_up_a_function_gets_nothing() {
    let shop = Shop::open(Offer { total: 1, limit_per_user: 1, ..Offer::default() }).await;
    let (slow, quick) = (shop.buyer("u1"), shop.buyer("u2"));
    let function = FunctionProcess::start_at(&shop.local, "buy", At::Freeze("buy.after_script")).await;
    let late = function.send(&slow.buy_event(1, "k1"));
    function.freezes().await;
    let [order_no] = &shop.holds_of(&slow).await[..] else { panic!("no hold") };
    quick.refused(1, "k1", ProblemCode::StockEmpty).await;

    let row = swept(&shop, order_no).await;
    assert_eq!((row.status, row.reason), (RowStatus::Failed, Some(EndReason::Abandoned)));
    function.thaw();
    let answer = function.answer(late).await;
    assert!(answer["statusCode"] == 409 || answer["statusCode"] == 503, "{answer}");
    assert_eq!(shop.row(order_no).await.unwrap(), row, "the late row changed nothing");

    // The unit is somebody else's now.
    eventually("the unit is given back", SOON, async || (shop.units().await == (1, 0)).then_some(())).await;
    let order_no = quick.accepted(1, "k2").await;
    quick.wins(&order_no).await;
    slow.refused(1, "k1", ProblemCode::RequestExpired).await;
    slow.refused(1, "k2", ProblemCode::StockEmpty).await;
    assert_eq!(shop.audit().await.counts.committed, 1);
}

/// [P5] The script ran and its reply was lost.
#[tokio::test]
async fn a_lost_reply_is_asked_for_again_and_counted_once() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    // The server has to know the script, or the first reply is that it does not.
    shop.buyer("u0").accepted(1, "k1").await;
    let redis_url = shop.local.deployed("buy").await.environment["REDIS_URL"].clone();

    // Lost once: the function itself asks again.
    let buyer = shop.buyer("u1");
    let redis = LossyRedis::before(&redis_url, 1).await;
    let function = FunctionProcess::start_with(&shop.local, "buy", &[("REDIS_URL", redis.url())]).await;
    let answer = function.invoke(&buyer.buy_event(1, "k1")).await;
    assert_eq!((&answer["statusCode"], redis.left()), (&json!(202), 0), "{answer}");
    let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    buyer.wins(body["orderNo"].as_str().unwrap()).await;
    assert_eq!(shop.units().await, (8, 2));

    // Lost again and again: the buyer is told to come back, and comes back with the same id.
    let buyer = shop.buyer("u2");
    let redis = LossyRedis::before(&redis_url, u32::MAX).await;
    let function = FunctionProcess::start_with(&shop.local, "buy", &[("REDIS_URL", redis.url())]).await;
    let answer = function.invoke(&buyer.buy_event(1, "k1")).await;
    assert!(redis.left() < u32::MAX, "no reply was lost");
    assert_unavailable(&answer);
    let [order_no] = &shop.holds_of(&buyer).await[..] else { panic!("no hold") };
    let retry = buyer.buy(1, "k1").await;
    assert!(retry.headers.is_replay());
    assert_eq!(e2e::shop::accepted(retry), order_no.as_str());
    buyer.wins(order_no.as_str()).await;
    assert_eq!(shop.units().await, (7, 3));
    assert_eq!(shop.audit().await.counts.committed, 3);
}

#[tokio::test]
async fn without_redis_a_buyer_is_told_to_come_back_and_never_sold_out() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let function = FunctionProcess::start_with(&shop.local, "buy", &[("REDIS_URL", "redis://127.0.0.1:9")]).await;
    assert_unavailable(&function.invoke(&buyer.buy_event(1, "k1")).await);
    assert_eq!((shop.units().await, shop.rows().await.len()), ((10, 0), 0));
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    shop.audit().await;
}

/// The queue is down when an order should be sent: the buyer is not bothered, and the sweep sends it.
#[tokio::test]
async fn without_the_queue_an_order_is_accepted_and_sent_later() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let nowhere = ("ORDER_QUEUE_URL", "http://127.0.0.1:9/000000000000/nowhere");
    let function = FunctionProcess::start_with(&shop.local, "buy", &[nowhere]).await;
    let answer = function.invoke(&buyer.buy_event(1, "k1")).await;
    assert_eq!(answer["statusCode"], 202, "{answer}");
    let [order_no] = &shop.holds_of(&buyer).await[..] else { panic!("no hold") };
    assert_eq!(shop.row(order_no).await.unwrap().status, RowStatus::PreCreated);
    let row = swept(&shop, order_no).await;
    assert_eq!(row.trail, [RowStatus::PreCreated, RowStatus::Unpaid]);
    shop.audit().await;
}

fn assert_unavailable(answer: &Value) {
    assert_eq!(answer["statusCode"], 503, "{answer}");
    assert!(answer["headers"]["retry-after"].is_string(), "{answer}");
    let problem: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
    assert_eq!(problem["code"], "UNAVAILABLE", "{answer}");
}

// ------------------------------------------------------------------ a bad start

#[tokio::test]
async fn a_function_that_is_configured_wrong_does_not_start_and_says_what_is_wrong() {
    let shop = Shop::publish(Offer::default()).await;
    for function in shop.local.outputs.functions.keys() {
        let environment = shop.local.deployed(function).await.environment;
        // Each variable that a function must have, taken away.
        for variable in ["ORDERS_TABLE", "OFFERS_TABLE", "CONNECTIONS_TABLE", "REDIS_URL", "AUTH_SECRET_ARN"] {
            if environment.contains_key(variable) {
                assert_names(&shop, function, &[(variable, "")], variable).await;
            }
        }
    }
    assert_names(&shop, "buy", &[("REDIS_CLUSTER", "maybe")], "REDIS_CLUSTER").await;
    assert_names(&shop, "chat-connect", &[("ALLOW_TOKEN_IN_QUERY", "2")], "ALLOW_TOKEN_IN_QUERY").await;
}

async fn assert_names(shop: &Shop, function: &str, changed: &[(&str, &str)], variable: &str) {
    let mut process = FunctionProcess::start_with(&shop.local, function, changed).await;
    assert_ne!(process.exit_code().await, 0);
    assert!(process.said().contains(variable), "{function} does not name {variable}: {}", process.said());
}
