//! Orders are let go, by their buyers and by the clock, and every unit comes back once.

use std::time::Duration;

use kernel::ids::OrderNo;
use sale::admission::{Blocked, Refusal};
use sale::due::{self, COOL_DOWN_SECS, UNPAID_ORDERS};
use sale::follow::Told;
use sale::ledger::Outcome;
use sale::order::{EndReason, OrderStatus};
use sale::queue::ReminderMessage;
use sale::store::orders::OWED_SECS;
use suite::dynamo::OFFERS;

use crate::house::{PAY_WINDOW_SECS, Recorder, TestSale, done, refused, sku_id, spec};

fn is_cancelled(outcome: &Outcome, because: EndReason) -> bool {
    matches!(outcome, Outcome::Settled { status: OrderStatus::Cancelled, reason: Some(reason), .. } if *reason == because)
}

/// S6, P8: the unit, the claim and the user's limit come back, once, however often somebody cancels.
#[tokio::test]
async fn p8_cancelled_twice_given_back_once() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    for _ in 0..2 {
        assert!(is_cancelled(&sale.cancel(&order_no).await, EndReason::CancelledByBuyer));
        assert_eq!((sale.claim("u1").await, sale.offer_row().await.committed()), (Some(0), 0));
        sale.attend(std::slice::from_ref(&order_no)).await;
        assert_eq!((sale.available().await, sale.units("u1").await), (10, 0));
    }
    sale.assert_sound().await;
    // The limit is free again, under a new request id.
    sale.unpaid("u1", 1, "k2").await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn p8_cancelled_by_the_buyer_and_by_the_clock_at_once() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.unpaid("u1", 2, "k1").await;
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    let numbers = [order_no.clone()];
    tokio::join!(sale.cancel(&order_no), sale.attend(&numbers), sale.attend(&numbers), sale.sweep());
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Cancelled);
    sale.attend(&numbers).await;
    assert_eq!((sale.available().await, sale.units("u1").await), (10, 0));
    sale.assert_sound().await;
}

/// S6: the user's count comes back with the stock.
#[tokio::test]
async fn s6_after_a_timeout_the_buyer_may_buy_again() {
    let sale = TestSale::open(1, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    assert_eq!(sale.buy("u1", 1, "k2").await, refused(Refusal::AlreadyBought));
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    let (attended, recorder) = sale.attend(std::slice::from_ref(&order_no)).await;
    assert_eq!((attended.cancelled, attended.acquitted, attended.left), (1, 1, 0));
    assert_eq!(recorder.words()[0].reason, Some(EndReason::PayTimeout));
    sale.unpaid("u1", 1, "k2").await;
    sale.assert_sound().await;
}

/// Two reminders of an order may come in one batch: one of its making and one of its cancellation, say. DynamoDB refuses a
/// read that names a key twice.
#[tokio::test]
async fn an_order_that_a_batch_names_twice_is_attended_to_once() {
    let sale = TestSale::open(10, 1).await;
    let [one, two] = [sale.unpaid("u1", 1, "k").await, sale.unpaid("u2", 1, "k").await];
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    let (attended, recorder) = sale.attend(&[one.clone(), two, one]).await;
    assert_eq!((attended.cancelled, attended.acquitted, attended.left, recorder.words().len()), (2, 2, 0, 2));
    assert_eq!(sale.available().await, 10);
    sale.assert_sound().await;
}

/// P23: a reminder that comes early is followed by another one, and no hop is longer than SQS allows.
#[tokio::test]
async fn p23_hops_until_the_deadline() {
    const WINDOW_SECS: i64 = 1_800;
    let sale = TestSale::closed().await;
    sale.open_with(10, 1, |rules| rules.pay_window_secs = WINDOW_SECS as u32).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    let deadline = sale.row(&order_no).await.pay_deadline.unwrap();
    let mut hops = Vec::new();
    while sale.status(&order_no).await.0 == OrderStatus::Unpaid {
        assert!(hops.len() < 10, "{hops:?}");
        sale.attend(std::slice::from_ref(&order_no)).await;
        for (body, delay_secs) in sale.reminders.take_bodies() {
            let message: ReminderMessage = serde_json::from_str(&body).unwrap();
            assert_eq!(message.order_no, order_no);
            assert!(delay_secs <= 900, "{delay_secs}");
            hops.push(delay_secs);
            sale.pass_secs(delay_secs);
        }
    }
    assert_eq!(hops, [900, 900]);
    let late = sale.row(&order_no).await.updated_at.millis_since(deadline);
    assert!((0..60_000).contains(&late), "{late} ms after the deadline");
    sale.assert_sound().await;
}

/// No reminder ever comes: the sweep is there.
#[tokio::test]
async fn the_sweep_cancels_what_nobody_was_reminded_of() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    // At the very deadline the reminders are at it.
    for secs in [i64::from(PAY_WINDOW_SECS) - 30, 30] {
        sale.pass_secs(secs);
        assert_eq!(sale.sweep().await.attended.cancelled, 0);
    }
    sale.pass_secs(OWED_SECS);
    let swept = sale.sweep().await;
    assert_eq!((swept.attended.cancelled, swept.attended.acquitted), (1, 1));
    assert_eq!(sale.status(&order_no).await, (OrderStatus::Cancelled, Some(EndReason::PayTimeout)));
    assert_eq!(sale.available().await, 10);
    sale.assert_sound().await;
}

/// A whole lot runs out of time at once: cancelled in groups, the offer's row written once for each.
#[tokio::test]
async fn many_time_out_together() {
    const BUYERS: usize = 120;
    let sale = TestSale::open(BUYERS as i64, 1).await;
    for user in 0..BUYERS {
        sale.bought(&format!("u{user}"), 1, "k").await;
    }
    sale.deliver().await;
    sale.pass_secs(i64::from(PAY_WINDOW_SECS) + OWED_SECS);
    sale.weather.calls("TransactWriteItems");
    let swept = sale.sweep().await;
    assert_eq!((swept.attended.cancelled, swept.attended.acquitted), (BUYERS, BUYERS));
    assert!(sale.weather.calls("TransactWriteItems") <= 4, "some groups of 49, and no single orders");
    assert_eq!((sale.available().await, sale.offer_row().await.remaining), (BUYERS as i64, BUYERS as i64));
    sale.assert_sound().await;
}

/// Whoever cancelled dies before anybody is told: the units come back with the sweep, and the buyer learns of it.
#[tokio::test]
async fn cancelled_and_nobody_told() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.unpaid("u1", 1, "k1").await;
    sale.cancel(&order_no).await;
    assert_eq!(sale.available().await, 9);
    sale.pass_secs(31);
    let (swept, words) = sale.sweep_telling(&sale.stores, Told::Stored).await;
    assert_eq!((swept.failures, swept.attended.acquitted), (0, 1));
    assert_eq!((words[0].order_no.clone(), words[0].reason), (order_no, Some(EndReason::CancelledByBuyer)));
    assert_eq!(sale.available().await, 10);
    sale.assert_sound().await;
}

#[tokio::test]
async fn p36_the_third_unpaid_order_brings_a_cool_down() {
    let sale = TestSale::open(100, 3).await;
    for round in 0..UNPAID_ORDERS {
        let order_no = sale.unpaid("u1", 1, &format!("k{round}")).await;
        sale.pass_secs(i64::from(PAY_WINDOW_SECS));
        let (attended, _) = sale.attend(&[order_no]).await;
        assert_eq!(attended.acquitted, 1);
    }
    let Refusal::Blocked(Blocked { retry_after_ms: Some(wait) }) = sale.refusal("u1", "k9").await else {
        panic!("not blocked");
    };
    assert!(wait > 0, "{wait}");
    // The clock of this house is ahead of the gate's by all the time that passed here.
    let ahead = Duration::from_millis(sale.now().millis_since(kernel::time::Clock::System.now()).unsigned_abs());
    assert!(Duration::from_millis(wait) <= ahead + Duration::from_secs(COOL_DOWN_SECS.unsigned_abs() + 1), "{wait}");
    // Somebody else may buy; and so may this one, once it is over.
    sale.bought("u2", 1, "k").await;
    sale.stores.gate.cool_down(&sale.offer, &"u1".parse().unwrap(), kernel::time::UnixMillis::new(1)).await.unwrap();
    sale.bought("u1", 1, "k9").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// Two unpaid orders, and orders that the buyer gave back, bring none.
#[tokio::test]
async fn giving_back_is_no_offence() {
    let sale = TestSale::open(100, 3).await;
    for round in 0..UNPAID_ORDERS + 1 {
        let order_no = sale.unpaid("u1", 1, &format!("c{round}")).await;
        sale.cancel(&order_no).await;
        sale.attend(&[order_no]).await;
    }
    for round in 0..UNPAID_ORDERS - 1 {
        let order_no = sale.unpaid("u1", 1, &format!("k{round}")).await;
        sale.pass_secs(i64::from(PAY_WINDOW_SECS));
        sale.attend(&[order_no]).await;
    }
    sale.unpaid("u1", 1, "last").await;
    sale.assert_sound().await;
}

/// Three at once are three, and the buyer's orders are looked through once.
#[tokio::test]
async fn three_that_run_out_together_bring_one_cool_down() {
    let sale = TestSale::open(100, 3).await;
    let mut orders: Vec<OrderNo> = Vec::new();
    for round in 0..UNPAID_ORDERS {
        orders.push(sale.unpaid("u1", 1, &format!("k{round}")).await);
    }
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    sale.weather.calls("Query");
    let (attended, recorder) = sale.attend(&orders).await;
    assert_eq!((attended.cancelled, attended.acquitted, recorder.tellings()), (3, 3, 1));
    // The buyer's orders, and the offers of the activity.
    assert_eq!(sale.weather.calls("Query"), 2);
    assert!(matches!(sale.refusal("u1", "k9").await, Refusal::Blocked(_)));
}

/// However many products a batch is about, its buyers are told in one go.
#[tokio::test]
async fn a_batch_is_told_in_one_go() {
    let mut sale = TestSale::open(10, 1).await;
    let mut orders = vec![sale.unpaid("u1", 1, "k").await];
    sale.offer.sku_id = sku_id("s11");
    done(sale.put_sku(10).await);
    done(sale.put_offer(&spec(10, 1)).await);
    done(sale.preheat().await);
    orders.push(sale.unpaid("u2", 1, "k").await);
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    let (attended, recorder) = sale.attend(&orders).await;
    assert_eq!((attended.cancelled, attended.acquitted, attended.left), (2, 2, 0));
    assert_eq!((recorder.tellings(), recorder.words().len()), (1, 2));
    sale.assert_sound().await;
}

#[tokio::test]
async fn when_time_is_over_what_is_owed_is_left() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.unpaid("u1", 1, "k").await;
    sale.pay("t1", &order_no, 1).await;
    let recorder = Recorder::new(Told::Stored);
    let now = sale.now();
    let attended = due::attend(&sale.stores, &recorder, std::slice::from_ref(&order_no), now).await.unwrap();
    assert_eq!((attended.left, attended.acquitted, recorder.tellings()), (1, 0, 0));
    assert!(sale.row(&order_no).await.is_owed());
}

/// A claim that does not count an order: people have to look, and nobody else waits for them.
#[tokio::test]
async fn an_order_that_cannot_be_cancelled_holds_nobody_up() {
    let sale = TestSale::open(10, 1).await;
    let stuck = sale.unpaid("u1", 1, "k").await;
    let other = sale.unpaid("u2", 1, "k").await;
    let count = async |units: &str| {
        let update = sale.dynamo.client.update_item().table_name(OFFERS).set_key(Some(sale.claim_key("u1")));
        let update = update.update_expression("SET units = :units");
        let units = aws_sdk_dynamodb::types::AttributeValue::N(units.to_owned());
        update.expression_attribute_values(":units", units).send().await.unwrap();
    };
    count("0").await;
    sale.pass_secs(i64::from(PAY_WINDOW_SECS) + OWED_SECS);
    assert_eq!(sale.sweep().await.attended.cancelled, 1);
    assert_eq!(sale.status(&other).await.0, OrderStatus::Cancelled);
    assert_eq!(sale.status(&stuck).await.0, OrderStatus::Unpaid);
    count("1").await;
    sale.pass_secs(60);
    assert_eq!(sale.sweep().await.attended.cancelled, 0);
    sale.pass_secs(3_600);
    assert_eq!(sale.sweep().await.attended.cancelled, 1);
    sale.assert_sound().await;
}
