//! Buyers at the counter.

use sale::admission::{HoldState, Refusal};
use sale::buy::Bought;
use sale::gate::Followed;
use sale::order::{EndReason, OrderStatus};
use sale::store::orders::Cursor;
use sale::sweep::ABANDON_SECS;

use crate::house::{PRICE, TestSale, refused, unpaid, user_id};

#[tokio::test]
async fn a_buy_is_held_written_down_and_passed_on() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 2, "k1").await;
    let row = sale.row(&order_no).await;
    assert_eq!((row.status, row.qty.get(), row.amount.get()), (OrderStatus::PreCreated, 2, 2 * PRICE));
    assert_eq!(sale.available().await, 8);
    let messages = sale.orders_queue.take();
    assert_eq!(messages.iter().map(|message| &message.order_no).collect::<Vec<_>>(), [&order_no]);
    assert!(unpaid(&sale.consume(messages).await[&order_no]));
    sale.assert_sound().await;
}

#[tokio::test]
async fn s2_the_limit_counts_units_not_orders() {
    let sale = TestSale::open(10, 3).await;
    sale.bought("u1", 1, "k1").await;
    sale.bought("u1", 1, "k2").await;
    assert_eq!(sale.units("u1").await, 2);
    assert_eq!(sale.buy("u1", 2, "k3").await, refused(Refusal::LimitExceeded { remaining: 1 }));
    sale.deliver().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn p1_eleven_buyers_of_ten_units() {
    let sale = TestSale::open(10, 1).await;
    for user in 1..=10 {
        sale.bought(&format!("u{user}"), 1, "k").await;
    }
    assert_eq!(sale.buy("u11", 1, "k").await, refused(Refusal::StockEmpty));
    assert!(sale.deliver().await.values().all(unpaid));
    assert_eq!(sale.offer_row().await.remaining, 0);
    sale.assert_sound().await;
}

#[tokio::test]
async fn p3_one_user_twice_at_once() {
    let sale = TestSale::open(10, 1).await;
    let (first, second) = tokio::join!(sale.buy("u1", 1, "k1"), sale.buy("u1", 1, "k2"));
    let accepted = |bought: &Bought| matches!(bought, Bought::Accepted { .. });
    assert_ne!(accepted(&first), accepted(&second), "{first:?} {second:?}");
    assert!([first, second].contains(&refused(Refusal::AlreadyBought)));
    sale.deliver().await;
    assert_eq!(sale.rows().await.iter().filter(|row| row.status.is_live()).count(), 1);
    sale.assert_sound().await;
}

#[tokio::test]
async fn p4_a_retry_before_the_sweep_goes_on() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.admitted_and_dead("u1", 1, "k1").await;
    let retried =
        Bought::Accepted { order_no: order_no.clone(), status: OrderStatus::PreCreated, reason: None, replayed: true };
    assert_eq!(sale.buy("u1", 1, "k1").await, retried);
    assert_eq!((sale.available().await, sale.units("u1").await), (9, 1));
    assert!(unpaid(&sale.deliver().await[&order_no]));
    sale.assert_sound().await;
}

#[tokio::test]
async fn p4_a_retry_after_the_sweep_is_too_late() {
    let sale = TestSale::open(1, 1).await;
    let order_no = sale.admitted_and_dead("u1", 1, "k1").await;
    assert_eq!(sale.buy("u2", 1, "k1").await, refused(Refusal::StockEmpty));

    // Somebody may still be at work on it.
    sale.pass_secs(ABANDON_SECS - 2);
    assert_eq!(sale.sweep().await.ended, []);
    sale.pass_secs(4);
    let ended = sale.sweep().await.ended;
    assert_eq!(
        ended.iter().map(|ended| (&ended.order_no, ended.reason)).collect::<Vec<_>>(),
        [(&order_no, Some(EndReason::Abandoned))]
    );
    assert_eq!(sale.status(&order_no).await, (OrderStatus::Failed, Some(EndReason::Abandoned)));

    assert_eq!(sale.buy("u1", 1, "k1").await, Bought::RequestExpired);
    sale.assert_sound().await;
    // The unit is for sale, and the limit free again.
    sale.bought("u1", 1, "k2").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// A function that was frozen between hold and row meets the abandoned row, whatever it does then.
#[tokio::test]
async fn a_row_that_comes_too_late_finds_its_place_taken() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.admitted_and_dead("u1", 1, "k1").await;
    sale.pass_secs(ABANDON_SECS + 1);
    sale.sweep().await;
    let late = sale.new_row("u1", 1, "k1").await;
    assert!(matches!(
        sale.stores.orders.put(&late).await.unwrap(),
        sale::store::orders::Put::Exists(row) if row.status == OrderStatus::Failed
    ));
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Failed);
    assert_eq!(sale.available().await, 10);
    sale.assert_sound().await;
}

#[tokio::test]
async fn p5_a_lost_reply_is_counted_once() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 2, "k1").await;
    for status in [OrderStatus::PreCreated, OrderStatus::Unpaid] {
        let again = Bought::Accepted { order_no: order_no.clone(), status, reason: None, replayed: true };
        assert_eq!(sale.buy("u1", 2, "k1").await, again);
        assert_eq!((sale.available().await, sale.units("u1").await), (8, 2));
        // Two messages about one order, the second time none.
        sale.deliver().await;
    }
    assert_eq!(sale.orders_queue.take(), []);
    assert_eq!(sale.claim("u1").await, Some(2));
    sale.assert_sound().await;
}

/// Impatient buyers do not fill the queue: a retry sends the message again, and for a while no other one does.
#[tokio::test]
async fn retries_send_an_order_again_now_and_then() {
    let sale = TestSale::open(10, 3).await;
    sale.bought("u1", 1, "k1").await;
    assert_eq!(sale.orders_queue.take().len(), 1);
    for expected in [1, 0, 0] {
        sale.buy("u1", 1, "k1").await;
        assert_eq!(sale.orders_queue.take().len(), expected);
    }
    sale.pass_secs(5);
    sale.buy("u1", 1, "k1").await;
    sale.buy("u1", 1, "k1").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn p9_the_last_unit_of_the_limit() {
    let sale = TestSale::open(10, 3).await;
    sale.bought("u1", 3, "k1").await;
    assert_eq!(sale.buy("u1", 3, "k2").await, refused(Refusal::LimitExceeded { remaining: 0 }));
    sale.deliver().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn s16_a_request_id_belongs_to_its_user() {
    let sale = TestSale::open(10, 1).await;
    let (first, second) = (sale.bought("u1", 1, "k").await, sale.bought("u2", 1, "k").await);
    assert_ne!(first, second);
    sale.deliver().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn p25_a_request_id_with_another_quantity() {
    let sale = TestSale::open(10, 3).await;
    sale.bought("u1", 1, "k").await;
    assert_eq!(sale.buy("u1", 2, "k").await, refused(Refusal::RequestIdReused));
    assert_eq!(sale.available().await, 9);
    sale.deliver().await;
    sale.assert_sound().await;
}

/// The gate has lost the order's hold and lets the other wish in; only then the row is met. The row stands, and has its hold
/// again.
#[tokio::test]
async fn p25_also_when_the_gate_lost_the_hold() {
    for committed in [false, true] {
        let sale = TestSale::open(10, 3).await;
        let order_no = sale.bought("u1", 1, "k").await;
        if committed {
            sale.deliver().await;
        }
        lose_hold(&sale, "u1", "k", 1).await;
        assert_eq!(sale.available().await, 10);

        assert_eq!(sale.buy("u1", 2, "k").await, refused(Refusal::RequestIdReused));
        let holds = sale.stores.gate.holds(&sale.offer, std::slice::from_ref(&order_no)).await.unwrap();
        let hold = holds[0].as_ref().unwrap();
        assert_eq!((hold.state, hold.quantity.get()), (HoldState::Held, 1));
        assert_eq!((sale.available().await, sale.units("u1").await), (9, 1));
        sale.deliver().await;
        sale.assert_sound().await;
    }
}

/// A dead order has no right to a hold: only the other wish's is let go.
#[tokio::test]
async fn p25_of_a_dead_order() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.stores.orders.fail(&order_no, EndReason::GaveUp, sale.now()).await.unwrap();
    lose_hold(&sale, "u1", "k", 1).await;
    assert_eq!(sale.buy("u1", 2, "k").await, refused(Refusal::RequestIdReused));
    assert_eq!((sale.available().await, sale.units("u1").await), (10, 0));
}

/// The gate has lost the hold, and the same wish comes again: the row knows that it is a retry.
#[tokio::test]
async fn a_retry_is_told_so_even_by_a_gate_that_forgot() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k").await;
    lose_hold(&sale, "u1", "k", 1).await;
    sale.pass_secs(1);
    let again = Bought::Accepted { order_no, status: OrderStatus::PreCreated, reason: None, replayed: true };
    assert_eq!(sale.buy("u1", 1, "k").await, again);
    sale.deliver().await;
    sale.assert_sound().await;
}

/// Takes a hold out of the book as if it had never been, with what it counted for.
async fn lose_hold(sale: &TestSale, user: &str, key: &str, units: i64) {
    let order_no = sale.order_no(user, key);
    let (book, pending, units) = (sale.book(), sale.pending(), units.to_string());
    sale.tamper(&["HDEL", &book, order_no.as_str(), &format!("u:{user}")]).await;
    sale.tamper(&["HINCRBY", &book, "avail", &units]).await;
    sale.tamper(&["ZREM", &pending, order_no.as_str()]).await;
}

#[tokio::test]
async fn what_is_over_at_the_counter_stays_over() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.stores.orders.fail(&order_no, EndReason::StockEmpty, sale.now()).await.unwrap();
    // The hold was not let go by whoever ended the order; the retry sees to it.
    let over = Bought::Accepted {
        order_no: order_no.clone(),
        status: OrderStatus::Failed,
        reason: Some(EndReason::StockEmpty),
        replayed: true,
    };
    assert_eq!(sale.buy("u1", 1, "k").await, over);
    assert_eq!(sale.available().await, 10);
    assert_eq!(sale.stores.gate.release(&sale.offer, &[order_no]).await.unwrap(), [Followed::Unchanged]);
    sale.deliver().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn sqs_takes_nothing_and_the_order_is_made_all_the_same() {
    let sale = TestSale::open(10, 3).await;
    let bought = sale.buy_without_queue("u1", 1, "k").await;
    let order_no = sale.order_no("u1", "k");
    assert_eq!(
        bought,
        Bought::Accepted { order_no: order_no.clone(), status: OrderStatus::PreCreated, reason: None, replayed: false }
    );
    assert_eq!(sale.deliver().await.len(), 0);
    sale.pass_secs(31);
    assert_eq!(sale.sweep().await.resent, 1);
    assert!(unpaid(&sale.deliver().await[&order_no]));
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_users_orders_come_in_pages_newest_first() {
    let sale = TestSale::open(10, 10).await;
    let mut expected = Vec::new();
    for key in ["k1", "k2", "k3", "k4", "k5"] {
        expected.insert(0, sale.bought("u1", 1, key).await);
        sale.pass_secs(1);
        sale.bought("u2", 1, key).await;
    }
    let (mut listed, mut pages, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = sale.stores.orders.list_by_user(&user_id("u1"), 2, after.as_ref()).await.unwrap();
        pages.push(page.orders.len());
        listed.extend(page.orders.into_iter().map(|row| row.order_no));
        // As a client carries it from page to page.
        match page.next {
            Some(next) => after = Some(Cursor::decode(&next.encode()).unwrap()),
            None => break,
        }
    }
    assert_eq!(listed, expected);
    assert_eq!(pages, [2, 2, 1]);
    let nobody = sale.stores.orders.list_by_user(&user_id("u3"), 2, None).await.unwrap();
    assert!(nobody.orders.is_empty() && nobody.next.is_none());
}
