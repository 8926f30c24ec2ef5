//! The money: paid, paid twice, paid wrongly, paid too late; and orders that nobody pays for.
//!
//! The payment provider is the local stack's own. It keeps a ledger that the shop knows nothing of.

use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use client::documents::{Mismatch, Money, OrderStatus, PayParameters, PaymentState, ProblemCode, ResultStatus};
use client::{Cashier, Method, Movement, Outcome, Paying, RawAnswer, RawRequest};
use e2e::shop::{CURRENCY, PRICE, done};
use e2e::{Buyer, FunctionProcess, Local, Offer, SOON, Shop, eventually, refusal};
use jiff::Timestamp;
use sale::order::OrderStatus as RowStatus;
use sale::provider::{SIGNATURE_HEADER, Signer, TIMESTAMP_HEADER};
use serde_json::{Value, json};

/// The price as the books have it.
const COST: u64 = PRICE.unsigned_abs();
/// A refund is a step of the sweep, and the stack's own sweep may be at it.
const REFUNDED_WITHIN: Duration = Duration::from_secs(90);

fn cashier(shop: &Shop) -> Cashier {
    Cashier::new(&shop.local.outputs).unwrap()
}

/// Buys a unit and asks what to open the cashier with.
async fn at_the_cashier(buyer: &Buyer, request_id: &str) -> PayParameters {
    let order_no = buyer.accepted(1, request_id).await;
    buyer.wins(&order_no).await;
    done(buyer.api.pay(&order_no).await)
}

async fn status(buyer: &Buyer, order_no: &str) -> OrderStatus {
    done(buyer.api.order_state(order_no).await).status
}

/// What the provider has in its ledger about a transaction.
async fn movement(shop: &Shop, transaction_id: &str) -> Movement {
    let movements = cashier(shop).ledger().await.unwrap();
    movements.into_iter().find(|paid| paid.transaction_id == transaction_id).expect("the provider took it")
}

async fn state(local: &Local, transaction_id: &str) -> Option<sale::store::payments::PaymentState> {
    let row = local.payments().get(&transaction_id.parse().unwrap()).await.unwrap();
    row.map(|row| row.state)
}

fn money(counts: &client::documents::AuditCounts) -> Money {
    counts.money.get(CURRENCY).copied().unwrap_or_default()
}

/// Sends a notice as it stands, signed with `key` at `at`.
async fn notice(local: &Local, key: &str, at: i64, body: &Value) -> RawAnswer {
    let body = body.to_string().into_bytes();
    let signature = Signer::new(key.as_bytes()).sign(at, &body);
    let at = at.to_string();
    let headers =
        [("content-type", "application/json"), (TIMESTAMP_HEADER, at.as_str()), (SIGNATURE_HEADER, signature.as_str())];
    let request = RawRequest { method: Method::POST, path: "/api/pay/notify", headers: &headers, body: Some(body) };
    local.api.raw(request).await.unwrap()
}

fn notice_of(local: &Local, order_no: &str, transaction_id: &str, paid_at: Timestamp) -> Value {
    json!({
        "transactionId": transaction_id,
        "merchantId": local.outputs.merchant_id,
        "orderNo": order_no,
        "amount": PRICE,
        "currency": CURRENCY,
        "status": "SUCCESS",
        "paidAt": paid_at.to_string(),
    })
}

#[tokio::test]
async fn a_payment_makes_the_order_paid_and_everybody_hears_of_it() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let warehouse = Warehouse::of(&shop).await;
    let mut socket = buyer.online().await;
    let order_no = buyer.accepted(2, "k1").await;
    socket.result_of(&order_no, SOON).await.unwrap();

    let parameters = done(buyer.api.pay(&order_no).await);
    assert_eq!((parameters.amount, parameters.currency.as_str()), (2 * PRICE, CURRENCY));
    assert_eq!(parameters.merchant_id, shop.local.outputs.merchant_id);
    assert!(parameters.pay_deadline.is_some_and(|deadline| deadline > Timestamp::now()));
    // Asked again, it is the same payment.
    assert_eq!(done(buyer.api.pay(&order_no).await).prepay_id, parameters.prepay_id);
    let receipt = cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
    assert_eq!(receipt.notified, 1);

    let told = socket.order_in(&order_no, OrderStatus::Paid, SOON).await.unwrap().result;
    assert_eq!(told.status, ResultStatus::Success);
    let order = done(buyer.api.order(&order_no).await);
    assert_eq!(order.status, OrderStatus::Paid);
    assert_eq!(order.paid_at, Some(movement(&shop, &receipt.transaction_id).await.paid_at));
    let event = warehouse.told_of(&order_no).await;
    assert_eq!((&event["source"], &event["detail-type"]), (&json!("hotcake.sale"), &json!("OrderPaid")));
    let detail = &event["detail"];
    assert_eq!(detail["transactionId"], receipt.transaction_id);
    assert_eq!(
        (&detail["qty"], &detail["amount"], &detail["userId"]),
        (&json!(2), &json!(2 * PRICE), &json!(buyer.id))
    );
    warehouse.close().await;

    let problem = refusal(buyer.api.pay(&order_no).await.unwrap(), ProblemCode::OrderState);
    assert_eq!(problem.order_status, Some(OrderStatus::Paid));
    eventually("the units are sold at the gate", SOON, async || (shop.stats().await.sold == Some(2)).then_some(()))
        .await;
    let report = shop.audit().await;
    assert_eq!(money(&report.counts), Money { received: 2 * COST, paid: 2 * COST, ..Money::default() });
}

/// [P22]
#[tokio::test]
async fn five_notices_at_once_are_one_payment_with_the_time_of_the_first() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let parameters = at_the_cashier(&buyer, "k1").await;
    let order_no = &parameters.order_no;
    let receipt = cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Success).told(5)).await.unwrap();
    assert_eq!(receipt.notified, 5, "each is answered SUCCESS");
    let paid_at = movement(&shop, &receipt.transaction_id).await.paid_at;
    // And a sixth, that says another time.
    let (key, now) = (shop.local.outputs.pay_notify_secret.reveal(), Timestamp::now());
    let late = notice_of(&shop.local, order_no, &receipt.transaction_id, now);
    assert_eq!(notice(&shop.local, key, now.as_second(), &late).await.status, 200);

    let order = done(buyer.api.order(order_no).await);
    assert_eq!((order.status, order.paid_at), (OrderStatus::Paid, Some(paid_at)));
    let row = shop.row(&order_no.parse().unwrap()).await.unwrap();
    assert_eq!(row.trail, [RowStatus::PreCreated, RowStatus::Unpaid, RowStatus::Paid]);
    let report = shop.audit().await;
    assert_eq!(money(&report.counts), Money { received: COST, paid: COST, ..Money::default() });
}

/// [P21] The money is recorded, people are told, and no order moves.
#[tokio::test]
async fn money_that_fits_no_order_is_set_aside() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let parameters = at_the_cashier(&buyer, "k1").await;
    let fits = Paying::new(Outcome::Success);
    let fresh = |what: &str| Some(format!("tx-{what}-{}", shop.activity_id));
    let wrong = [
        (Mismatch::Amount, Paying { amount: Some(PRICE - 1), transaction_id: fresh("amount"), ..fits.clone() }),
        (Mismatch::Amount, Paying { amount: Some(PRICE + 1), transaction_id: fresh("more"), ..fits.clone() }),
        (
            Mismatch::Merchant,
            Paying { merchant_id: Some("somebody-else".to_owned()), transaction_id: fresh("merchant"), ..fits.clone() },
        ),
        (
            Mismatch::UnknownOrder,
            Paying {
                order_no: Some("SKAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned()),
                transaction_id: fresh("order"),
                ..fits.clone()
            },
        ),
    ];
    for (mismatch, paying) in &wrong {
        let receipt = cashier(&shop).pay(&parameters.pay_url, paying).await.unwrap();
        assert_eq!(receipt.notified, 1, "{mismatch:?}");
        assert_eq!(status(&buyer, &parameters.order_no).await, OrderStatus::Unpaid, "{mismatch:?}");
        let payment = eventually("it is listed", SOON, async || {
            listed(&shop, PaymentState::Unmatched, &receipt.transaction_id).await
        })
        .await;
        assert_eq!((payment.state, payment.mismatch), (PaymentState::Unmatched, Some(*mismatch)));
    }
    // None of them has used up the order.
    let receipt = cashier(&shop).pay(&parameters.pay_url, &fits).await.unwrap();
    assert_eq!(status(&buyer, &parameters.order_no).await, OrderStatus::Paid);
    assert_eq!(movement(&shop, &receipt.transaction_id).await.amount, COST);
    // Of the unmatched payments the activity has those that name its order, to this shop.
    let report = shop.audit().await;
    let expected = Money { received: 3 * COST, paid: COST, unmatched: 2 * COST, ..Money::default() };
    assert_eq!(money(&report.counts), expected);
}

/// [P45]
#[tokio::test]
async fn a_try_that_failed_does_not_use_up_the_transaction() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let parameters = at_the_cashier(&buyer, "k1").await;
    let failed = cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Failed)).await.unwrap();
    assert_eq!(failed.notified, 1);
    assert_eq!(status(&buyer, &parameters.order_no).await, OrderStatus::Unpaid);
    assert_eq!(state(&shop.local, &failed.transaction_id).await, None);
    let paid = cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
    assert_eq!(paid.transaction_id, failed.transaction_id);
    assert_eq!(status(&buyer, &parameters.order_no).await, OrderStatus::Paid);
    shop.audit().await;
}

#[tokio::test]
async fn what_the_provider_did_not_sign_just_now_is_sent_away() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    let (local, key) = (&shop.local, shop.local.outputs.pay_notify_secret.reveal());
    let now = Timestamp::now();
    let transaction_id = format!("tx-forged-{}", shop.activity_id);
    let good = notice_of(local, &order_no, &transaction_id, now);
    for (what, key, at) in [
        ("another key", "the key of another house", now.as_second()),
        ("six minutes old", key, now.as_second() - 360),
        ("of the future", key, now.as_second() + 120),
    ] {
        let answer = notice(local, key, at, &good).await;
        assert_eq!(answer.status, 401, "{what}: {}", answer.text());
    }
    let headers = [("content-type", "application/json")];
    let unsigned = Some(good.to_string().into_bytes());
    let request = RawRequest { method: Method::POST, path: "/api/pay/notify", headers: &headers, body: unsigned };
    assert_eq!(local.api.raw(request).await.unwrap().status, 401);
    // Signed, and nothing that could be a notice.
    let answer = notice(local, key, now.as_second(), &json!({"transactionId": transaction_id})).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(state(local, &transaction_id).await, None);
    assert_eq!(status(&buyer, &order_no).await, OrderStatus::Unpaid);
    // The same, as it should be.
    assert_eq!(notice(local, key, now.as_second(), &good).await.status, 200);
    assert_eq!(status(&buyer, &order_no).await, OrderStatus::Paid);
}

/// [P8]
#[tokio::test]
async fn a_cancelled_order_gives_its_units_back_once() {
    let shop = Shop::open(Offer { total: 2, limit_per_user: 1, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let mut socket = buyer.online().await;
    let order_no = buyer.accepted(1, "k1").await;
    socket.result_of(&order_no, SOON).await.unwrap();
    let order = done(buyer.api.cancel(&order_no).await);
    assert_eq!((order.status, order.reason.as_deref()), (OrderStatus::Cancelled, Some("CANCELLED_BY_BUYER")));
    let told = socket.order_in(&order_no, OrderStatus::Cancelled, SOON).await.unwrap().result;
    assert_eq!(told.status, ResultStatus::Fail);
    assert_eq!(done(buyer.api.cancel(&order_no).await).status, OrderStatus::Cancelled);
    eventually("the unit is back", SOON, async || (shop.units().await == (2, 0)).then_some(())).await;
    refusal(buyer.api.pay(&order_no).await.unwrap(), ProblemCode::OrderState);
    // The limit is of live orders: the buyer may have another one.
    let second = buyer.accepted(1, "k2").await;
    buyer.wins(&second).await;
    assert_eq!(shop.audit().await.counts.committed, 1);
}

/// [P26]
#[tokio::test]
async fn only_ones_own_order_that_waits_for_its_payment_is_cancelled() {
    let shop = Shop::open(Offer::default()).await;
    let (buyer, stranger) = (shop.buyer("u1"), shop.buyer("u2"));
    let parameters = at_the_cashier(&buyer, "k1").await;
    let order_no = &parameters.order_no;
    refusal(stranger.api.cancel(order_no).await.unwrap(), ProblemCode::NotFound);
    refusal(stranger.api.pay(order_no).await.unwrap(), ProblemCode::NotFound);
    assert_eq!(status(&buyer, order_no).await, OrderStatus::Unpaid);
    cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
    let problem = refusal(buyer.api.cancel(order_no).await.unwrap(), ProblemCode::OrderState);
    assert_eq!((problem.status, problem.order_status), (409, Some(OrderStatus::Paid)));
    assert_eq!(shop.audit().await.counts.committed, 1);
}

/// [P20] The money was under way when the order was cancelled.
#[tokio::test]
async fn money_for_a_cancelled_order_goes_back() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let parameters = at_the_cashier(&buyer, "k1").await;
    let order_no = &parameters.order_no;
    done(buyer.api.cancel(order_no).await);
    let receipt = cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
    assert_eq!(receipt.notified, 1, "the money is the shop's business from here on");
    goes_back(&shop, &receipt.transaction_id).await;
    assert_eq!(status(&buyer, order_no).await, OrderStatus::Cancelled);
    let report = shop.audit().await;
    assert_eq!(money(&report.counts), Money { received: COST, refunded: COST, ..Money::default() });
}

#[tokio::test]
async fn who_pays_twice_gets_the_second_payment_back() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let parameters = at_the_cashier(&buyer, "k1").await;
    let pays = Paying::new(Outcome::Success);
    let first = cashier(&shop).pay(&parameters.pay_url, &pays).await.unwrap();
    let again = Paying { transaction_id: Some(format!("tx-again-{}", shop.activity_id)), ..pays };
    let second = cashier(&shop).pay(&parameters.pay_url, &again).await.unwrap();
    goes_back(&shop, &second.transaction_id).await;
    assert_eq!(movement(&shop, &first.transaction_id).await.refunded, 0);
    assert_eq!(status(&buyer, &parameters.order_no).await, OrderStatus::Paid);
    let report = shop.audit().await;
    assert_eq!(money(&report.counts), Money { received: 2 * COST, paid: COST, refunded: COST, ..Money::default() });
}

/// A payment in the admin's list, on whichever page.
async fn listed(shop: &Shop, state: PaymentState, transaction_id: &str) -> Option<client::documents::Payment> {
    const PAGES: usize = 100;
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let page = done(shop.local.admin.payments(state, cursor.as_deref()).await);
        if let Some(payment) = page.items.into_iter().find(|payment| payment.transaction_id == transaction_id) {
            return Some(payment);
        }
        cursor = Some(page.next_cursor?);
    }
    panic!("the list has no end");
}

/// A payment that is to be paid back, is, once.
async fn goes_back(shop: &Shop, transaction_id: &str) {
    use sale::store::payments::PaymentState as RowState;
    let before = state(&shop.local, transaction_id).await;
    assert!(matches!(before, Some(RowState::RefundDue | RowState::Refunded)), "{before:?}");
    eventually("a sweep pays it back", REFUNDED_WITHIN, async || {
        shop.local.sweep().await;
        (state(&shop.local, transaction_id).await == Some(RowState::Refunded)).then_some(())
    })
    .await;
    let paid = movement(shop, transaction_id).await;
    assert_eq!(paid.refunded, paid.amount);
    let payment = listed(shop, PaymentState::Refunded, transaction_id).await.expect("it is listed");
    assert!(payment.refunded_at.is_some());
}

#[tokio::test]
async fn an_order_that_nobody_pays_for_runs_out_of_time() {
    let shop = Shop::open(Offer { pay_window_secs: 3, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let mut socket = buyer.online().await;
    let order_no = buyer.accepted(1, "k1").await;
    socket.order_in(&order_no, OrderStatus::Cancelled, SOON).await.unwrap();
    let order = done(buyer.api.order(&order_no).await);
    assert_eq!((order.status, order.reason.as_deref()), (OrderStatus::Cancelled, Some("PAY_TIMEOUT")));
    refusal(buyer.api.pay(&order_no).await.unwrap(), ProblemCode::OrderState);
    eventually("the unit is back", SOON, async || (shop.units().await == (10, 0)).then_some(())).await;
    assert_eq!(shop.audit().await.counts.committed, 0);
}

#[tokio::test]
async fn a_provider_that_is_away_is_unavailable_and_nothing_moves() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    buyer.wins(&order_no).await;
    let orders =
        FunctionProcess::start_with(&shop.local, "orders", &[("PAY_PROVIDER_URL", "http://127.0.0.1:9")]).await;
    let sample = std::fs::read(contract::root().join("events/orders/pay-unknown.404.json")).unwrap();
    let mut event: Value = serde_json::from_slice(&sample).unwrap();
    event["headers"]["authorization"] = format!("Bearer {}", buyer.token.text()).into();
    event["pathParameters"]["orderNo"] = order_no.as_str().into();
    let answer = orders.invoke(&event).await;
    assert_eq!(answer["statusCode"], 503, "{answer}");
    assert!(answer["body"].as_str().unwrap().contains("UNAVAILABLE"), "{answer}");
    // With the provider at hand again it goes on.
    let parameters = done(buyer.api.pay(&order_no).await);
    cashier(&shop).pay(&parameters.pay_url, &Paying::new(Outcome::Success)).await.unwrap();
    assert_eq!(status(&buyer, &order_no).await, OrderStatus::Paid);
}

/// Somebody who goes on with paid orders: a rule of the shop's bus, and a queue behind it.
struct Warehouse {
    events: aws_sdk_eventbridge::Client,
    sqs: aws_sdk_sqs::Client,
    bus: String,
    rule: String,
    queue: String,
}

impl Warehouse {
    const TARGET: &str = "queue";

    /// Is told of the paid orders of one shop.
    async fn of(shop: &Shop) -> Self {
        let (events, sqs) = (aws_sdk_eventbridge::Client::new(&shop.local.aws), shop.local.sqs());
        let (bus, rule) = (shop.local.outputs.event_bus.clone(), format!("warehouse-{}", shop.activity_id));
        let queue = sqs.create_queue().queue_name(&rule).send().await.unwrap().queue_url.unwrap();
        let name = QueueAttributeName::QueueArn;
        let answer = sqs.get_queue_attributes().queue_url(&queue).attribute_names(name.clone()).send().await.unwrap();
        let arn = answer.attributes.unwrap()[&name].clone();
        let pattern = json!({"source": ["hotcake.sale"], "detail": {"activityId": [shop.activity_id]}});
        let put = events.put_rule().name(&rule).event_bus_name(&bus).event_pattern(pattern.to_string());
        put.send().await.unwrap();
        let target = aws_sdk_eventbridge::types::Target::builder().id(Self::TARGET).arn(arn).build().unwrap();
        let put = events.put_targets().rule(&rule).event_bus_name(&bus).targets(target).send().await.unwrap();
        assert_eq!(put.failed_entry_count, 0, "{put:?}");
        Self { events, sqs, bus, rule, queue }
    }

    async fn told_of(&self, order_no: &str) -> Value {
        eventually(&format!("the event about {order_no}"), SOON, async || {
            let answer = self.sqs.receive_message().queue_url(&self.queue).wait_time_seconds(1).send().await.unwrap();
            let bodies = answer.messages.unwrap_or_default().into_iter().filter_map(|message| message.body);
            let mut events = bodies.map(|body| serde_json::from_str::<Value>(&body).unwrap());
            events.find(|event| event["detail"]["orderNo"] == order_no)
        })
        .await
    }

    async fn close(self) {
        self.events.remove_targets().rule(&self.rule).event_bus_name(&self.bus).ids(Self::TARGET).send().await.unwrap();
        self.events.delete_rule().name(&self.rule).event_bus_name(&self.bus).send().await.unwrap();
        self.sqs.delete_queue().queue_url(&self.queue).send().await.unwrap();
    }
}
