//! The consumer's half: admitted orders become real ones, in groups, each exactly once.

use kernel::ids::OrderNo;
use sale::ledger::{GROUP, Outcome};
use sale::order::{EndReason, OrderStatus};
use sale::queue::OrderMessage;

use crate::house::{PAY_WINDOW_SECS, TestSale, failed, quantity, unpaid, user_id};

const TRANSACTION: &str = "TransactWriteItems";

#[tokio::test]
async fn ten_clean_orders_are_one_transaction() {
    let sale = TestSale::open(100, 3).await;
    for user in 0..10 {
        sale.bought(&format!("u{user}"), 1 + user % 3, "k").await;
    }
    sale.weather.calls(TRANSACTION);
    assert!(sale.deliver().await.values().all(unpaid));
    assert_eq!(sale.weather.calls(TRANSACTION), 1);
    assert_eq!(sale.offer_row().await.committed(), 19);
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_commit_sets_the_deadline_to_pay() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.pass_secs(7);
    let outcomes = sale.deliver().await;
    let row = sale.row(&order_no).await;
    assert_eq!(row.pay_deadline, Some(row.updated_at.plus_secs(i64::from(PAY_WINDOW_SECS))));
    assert_eq!(row.trail, [OrderStatus::PreCreated, OrderStatus::Unpaid]);
    // Whoever tells the buyer tells the instant that the row says, each time.
    assert_eq!(outcomes[&order_no], Outcome::Settled { status: OrderStatus::Unpaid, reason: None, at: row.updated_at });
}

#[tokio::test]
async fn s7_the_same_message_twice_changes_nothing() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 2, "k").await;
    let messages = sale.orders_queue.take();
    let first = sale.consume(messages.clone()).await;
    sale.pass_secs(60);
    // Acknowledged, with the very same result.
    assert_eq!(sale.consume(messages).await, first);
    assert!(unpaid(&first[&order_no]));
    assert_eq!((sale.available().await, sale.offer_row().await.remaining), (8, 8));
    sale.assert_sound().await;
}

#[tokio::test]
async fn p6_the_same_message_at_two_consumers() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 2, "k").await;
    let messages = sale.orders_queue.take();
    let (first, second) = tokio::join!(sale.consume(messages.clone()), sale.consume(messages));
    assert!(unpaid(&first[&order_no]) && unpaid(&second[&order_no]));
    assert_eq!((sale.offer_row().await.committed(), sale.claim("u1").await), (2, Some(2)));
    sale.assert_sound().await;
}

#[tokio::test]
async fn p44_one_user_twice_and_one_order_twice_in_a_batch() {
    let sale = TestSale::open(10, 3).await;
    sale.bought("u1", 1, "k1").await;
    sale.bought("u1", 2, "k2").await;
    sale.bought("u2", 1, "k1").await;
    let mut messages = sale.orders_queue.take();
    messages.push(messages[0].clone());
    sale.weather.calls(TRANSACTION);
    let outcomes = sale.consume(messages).await;
    assert_eq!(outcomes.len(), 3);
    assert!(outcomes.values().all(unpaid));
    assert_eq!(sale.weather.calls(TRANSACTION), 1);
    assert_eq!(sale.claim("u1").await, Some(3));
    sale.assert_sound().await;
}

#[tokio::test]
async fn orders_of_several_offers_in_a_batch() {
    let mut sale = TestSale::open(10, 3).await;
    let first = sale.bought("u1", 1, "k").await;
    let offer = std::mem::replace(&mut sale.offer, other_offer());
    crate::house::done(sale.put_sku(5).await);
    crate::house::done(sale.put_offer(&crate::house::spec(5, 1)).await);
    crate::house::done(sale.preheat().await);
    let second = sale.bought("u1", 1, "k").await;
    let outcomes = sale.commit(sale.orders_queue.take()).await;
    assert!(unpaid(&outcomes[&first]) && unpaid(&outcomes[&second]));
    assert_eq!(sale.offer_row().await.committed(), 1);
    sale.offer = offer;
    assert_eq!(sale.offer_row().await.committed(), 1);
}

fn other_offer() -> sale::offer::OfferId {
    sale::offer::OfferId { activity_id: "a1".parse().unwrap(), sku_id: crate::house::sku_id("s11") }
}

/// The gate had let five in for two units: two are served, three told so, and the gate is right again.
#[tokio::test]
async fn too_many_for_the_stock_end_sold_out() {
    let sale = TestSale::open(2, 1).await;
    for user in 1..=5 {
        sale.let_in_by_force(&format!("u{user}"), 1, "k").await;
    }
    assert_eq!(sale.available().await, -3);
    let outcomes = sale.deliver().await;
    assert_eq!(outcomes.values().filter(|outcome| unpaid(outcome)).count(), 2);
    assert_eq!(outcomes.values().filter(|outcome| failed(outcome, EndReason::StockEmpty)).count(), 3);
    sale.looked_at_again().await;
    assert_eq!((sale.available().await, sale.offer_row().await.remaining), (0, 0));
    sale.assert_sound().await;
}

/// A group of three does not fit, but a smaller order in it does.
#[tokio::test]
async fn the_last_unit_goes_to_an_order_that_fits() {
    let sale = TestSale::open(3, 3).await;
    for (user, qty) in [("u1", 2), ("u2", 2), ("u3", 1)] {
        sale.let_in_by_force(user, qty, "k").await;
    }
    let outcomes = sale.deliver().await;
    assert!(unpaid(&outcomes[&sale.order_no("u1", "k")]));
    assert!(failed(&outcomes[&sale.order_no("u2", "k")], EndReason::StockEmpty));
    assert!(unpaid(&outcomes[&sale.order_no("u3", "k")]));
    sale.looked_at_again().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn too_many_for_the_limit_end_so() {
    let sale = TestSale::open(10, 2).await;
    for key in ["k1", "k2", "k3"] {
        sale.let_in_by_force("u1", 1, key).await;
    }
    let outcomes = sale.deliver().await;
    assert_eq!(outcomes.values().filter(|outcome| unpaid(outcome)).count(), 2);
    assert_eq!(outcomes.values().filter(|outcome| failed(outcome, EndReason::LimitExceeded)).count(), 1);
    sale.looked_at_again().await;
    assert_eq!((sale.units("u1").await, sale.claim("u1").await), (2, Some(2)));
    // One order above the limit, of a user without any.
    let order_no = sale.let_in_by_force("u2", 3, "k").await;
    assert!(failed(&sale.deliver().await[&order_no], EndReason::LimitExceeded));
    assert_eq!(sale.claim("u2").await, None);
    sale.looked_at_again().await;
    sale.assert_sound().await;
}

/// What is wrong with one order is its own affair: for each place in the group and each kind of wrong.
#[tokio::test]
async fn one_bad_order_in_a_group_of_49_does_not_hurt_the_others() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Bad {
        OverTheLimit,
        Dead,
        Missing,
        Lying,
        Unreadable,
    }
    let sale = TestSale::open(1_000, 1).await;
    for (round, (bad, place)) in
        [(Bad::OverTheLimit, 0), (Bad::Dead, 10), (Bad::Missing, 24), (Bad::Lying, 37), (Bad::Unreadable, 48)]
            .into_iter()
            .enumerate()
    {
        for user in 0..GROUP {
            sale.bought(&format!("r{round}u{user}"), 1, "k").await;
        }
        let mut messages = sale.orders_queue.take();
        let message = &mut messages[place];
        let order_no = message.order_no.clone();
        match bad {
            Bad::OverTheLimit => {
                sale.let_in_by_force(message.user_id.as_str(), 1, "before").await;
                let before = sale.orders_queue.take();
                sale.consume(before).await;
            }
            Bad::Dead => {
                sale.stores.orders.fail(&order_no, EndReason::GaveUp, sale.now()).await.unwrap();
            }
            Bad::Missing => message.order_no = "SKNOSUCHORDER".parse().unwrap(),
            Bad::Lying => message.qty = quantity(2),
            Bad::Unreadable => damage(&sale, &order_no).await,
        }
        let asked = message.order_no.clone();
        sale.weather.calls(TRANSACTION);
        let outcomes = sale.consume(messages).await;
        assert_eq!(outcomes.values().filter(|outcome| unpaid(outcome)).count(), GROUP - 1, "{bad:?}");
        let outcome = &outcomes[&asked];
        match bad {
            Bad::OverTheLimit => assert!(failed(outcome, EndReason::LimitExceeded), "{outcome:?}"),
            Bad::Dead => assert!(failed(outcome, EndReason::GaveUp), "{outcome:?}"),
            Bad::Missing | Bad::Lying | Bad::Unreadable => assert_eq!(*outcome, Outcome::Unknown, "{bad:?}"),
        }
        // The group, the group without it, and it alone.
        let transactions = if bad == Bad::OverTheLimit { 3 } else { 2 };
        assert_eq!(sale.weather.calls(TRANSACTION), transactions, "{bad:?}");
    }
}

/// Makes a row that no code here wrote.
async fn damage(sale: &TestSale, order_no: &OrderNo) {
    use aws_sdk_dynamodb::types::AttributeValue;
    let db = &sale.dynamo.client;
    let update = db.update_item().table_name(suite::dynamo::ORDERS).set_key(Some(crate::house::order_key(order_no)));
    let update = update.update_expression("SET #status = :odd").expression_attribute_names("#status", "status");
    update.expression_attribute_values(":odd", AttributeValue::S("ODD".to_owned())).send().await.unwrap();
}

/// The commit is conditional on the row saying the same: whoever can put messages into the queue gains nothing.
#[tokio::test]
async fn a_message_that_lies_changes_nothing() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    let honest = sale.orders_queue.take().remove(0);
    let lies: [fn(&mut OrderMessage); 5] = [
        |message| message.qty = quantity(3),
        |message| message.user_id = user_id("u2"),
        |message| message.sku_id = crate::house::sku_id("s11"),
        |message| message.limit_per_user = 1_000,
        |message| message.pay_window_secs = 1,
    ];
    for lie in lies {
        let mut message = honest.clone();
        lie(&mut message);
        assert_eq!(sale.consume(vec![message.clone()]).await[&order_no], Outcome::Unknown, "{message:?}");
        assert_eq!(sale.status(&order_no).await.0, OrderStatus::PreCreated);
        assert_eq!((sale.claim("u1").await, sale.offer_row().await.committed()), (None, 0));
    }
    assert!(unpaid(&sale.consume(vec![honest]).await[&order_no]));
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_message_without_a_row_is_unknown() {
    let sale = TestSale::open(10, 1).await;
    let row = sale.new_row("u1", 1, "k").await;
    let outcomes = sale.consume(vec![OrderMessage::from(&row)]).await;
    assert_eq!(outcomes[&row.order_no], Outcome::Unknown);
    assert_eq!(sale.rows().await, []);
    sale.assert_sound().await;
}
