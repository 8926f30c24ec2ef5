//! AWS under load: conflicts, throttling, replies that are lost after the deed. Never is it told to a buyer as a refusal.

use std::time::Duration;

use kernel::time::Clock;
use sale::buy::{Bought, BuyError};
use sale::ledger::{Ledger, Outcome};
use sale::lifecycle::Command;
use sale::order::OrderStatus;

use crate::house::{TestSale, done, spec, unpaid};
use crate::weather::Fault;

const TRANSACTION: &str = "TransactWriteItems";

/// Attempts of one SDK call.
const ATTEMPTS: usize = 3;

#[tokio::test]
async fn p24_a_conflict_is_tried_again() {
    let sale = TestSale::open(10, 3).await;
    for user in ["u1", "u2", "u3"] {
        sale.bought(user, 1, "k").await;
    }
    sale.weather.calls(TRANSACTION);
    sale.weather.next(TRANSACTION, [Fault::Conflict; 4]);
    assert!(sale.deliver().await.values().all(unpaid));
    assert_eq!(sale.weather.calls(TRANSACTION), 5);
    sale.assert_sound().await;
}

#[tokio::test]
async fn throttling_is_tried_again() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k").await;
    // More than the SDK tries by itself.
    sale.weather.next(TRANSACTION, [Fault::Throttled; ATTEMPTS + 1]);
    assert!(unpaid(&sale.deliver().await[&order_no]));
    sale.assert_sound().await;
}

/// Conflicts until the deadline: all go back to the queue, and are made with the next delivery.
#[tokio::test]
async fn whoever_is_not_made_in_time_comes_again() {
    let sale = TestSale::open(10, 1).await;
    for user in ["u1", "u2", "u3"] {
        sale.bought(user, 1, "k").await;
    }
    let messages = sale.orders_queue.take();
    for fault in [Fault::Conflict, Fault::Throttled] {
        sale.weather.always(TRANSACTION, fault);
        // This ledger's time passes.
        let ledger = Ledger { clock: Clock::System, ..sale.ledger.clone() };
        let outcomes = ledger.commit(messages.clone(), Clock::System.now().plus_millis(300)).await;
        assert_eq!(outcomes.len(), 3);
        assert!(outcomes.values().all(|outcome| *outcome == Outcome::Busy), "{outcomes:?}");
        sale.weather.clear();
    }
    assert!(sale.rows().await.iter().all(|row| row.status == OrderStatus::PreCreated));
    assert!(sale.consume(messages).await.values().all(unpaid));
    sale.assert_sound().await;
}

/// A deadline that has passed costs no call at all: what is left of the time-out belongs to others.
#[tokio::test]
async fn nothing_is_begun_after_the_deadline() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    let messages = sale.orders_queue.take();
    sale.weather.calls(TRANSACTION);
    let outcomes = sale.ledger.commit(messages, sale.now()).await;
    assert_eq!(outcomes[&order_no], Outcome::Busy);
    assert_eq!(sale.weather.calls(TRANSACTION), 0);
}

/// Committed, and nobody told: the SDK's own retry, or the row, says so. Counted once either way.
#[tokio::test]
async fn a_commit_whose_reply_is_lost_counts_once() {
    for cut in [1, ATTEMPTS, ATTEMPTS + 1] {
        let sale = TestSale::open(10, 3).await;
        for user in ["u1", "u2"] {
            sale.bought(user, 2, "k").await;
        }
        sale.weather.next(TRANSACTION, vec![Fault::ReplyCut; cut]);
        assert!(sale.deliver().await.values().all(unpaid), "{cut} replies cut");
        assert_eq!((sale.offer_row().await.committed(), sale.claim("u1").await), (4, Some(2)));
        sale.assert_sound().await;
    }
}

/// The row is put, and the reply lost: the second put meets the first one and knows it for its own.
#[tokio::test]
async fn a_row_whose_reply_is_lost_is_the_buyers_own() {
    let sale = TestSale::open(10, 3).await;
    sale.weather.next("PutItem", [Fault::ReplyCut]);
    let order_no = sale.bought("u1", 1, "k").await;
    assert!(unpaid(&sale.deliver().await[&order_no]));
    sale.assert_sound().await;
}

/// No row can be put: the buyer is told that it is not certain, and a retry goes on with the same number.
#[tokio::test]
async fn a_row_that_cannot_be_put_is_no_refusal() {
    let sale = TestSale::open(10, 3).await;
    sale.weather.always("PutItem", Fault::Throttled);
    assert!(matches!(sale.try_buy("u1", 1, "k").await, Err(BuyError::Store(_))));
    sale.weather.clear();
    let order_no = sale.order_no("u1", "k");
    let again =
        Bought::Accepted { order_no: order_no.clone(), status: OrderStatus::PreCreated, reason: None, replayed: true };
    assert_eq!(sale.buy("u1", 1, "k").await, again);
    assert!(unpaid(&sale.deliver().await[&order_no]));
    assert_eq!(sale.available().await, 9);
    sale.assert_sound().await;
}

/// A retry at the very moment of the commit: DynamoDB refuses the put because of the transaction, not because of the row.
#[tokio::test]
async fn a_retry_that_meets_the_commit_is_answered() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.weather.next("PutItem", [Fault::Conflict]);
    sale.pass_secs(1);
    let again = Bought::Accepted { order_no, status: OrderStatus::PreCreated, reason: None, replayed: true };
    assert_eq!(sale.buy("u1", 1, "k").await, again);
    sale.deliver().await;
    sale.assert_sound().await;
}

/// Commits keep the offer's row busy; the shop's decisions get through all the same.
#[tokio::test]
async fn the_shop_decides_in_a_storm() {
    let sale = TestSale::open(10, 3).await;
    sale.weather.next(TRANSACTION, [Fault::Conflict; 3]);
    done(sale.put_offer(&spec(12, 3)).await);
    sale.weather.next(TRANSACTION, [Fault::Conflict; 3]);
    done(sale.command(Command::Pause).await);
    assert_eq!((sale.offer_row().await.total, sale.available().await), (12, 12));
    sale.assert_sound().await;
}

/// One postponement meets a conflict: the order is merely sent once more.
#[tokio::test]
async fn an_outbox_in_a_storm() {
    let sale = TestSale::open(10, 3).await;
    for user in ["u1", "u2", "u3"] {
        sale.bought(user, 1, "k").await;
    }
    sale.orders_queue.take();
    sale.pass_secs(31);
    sale.weather.next("UpdateItem", [Fault::Conflict]);
    assert_eq!(sale.sweep().await.resent, 3);
    assert_eq!(sale.orders_queue.take().len(), 3);
    assert_eq!(sale.sweep().await.resent, 1);
    assert!(unpaid(&sale.deliver().await.into_values().next().unwrap()));
}

/// Conflicts on every third call while ten batches are committed at once: all are made, once.
#[tokio::test]
async fn p24_many_consumers_on_one_offer() {
    const BATCHES: usize = 10;
    const ORDERS: usize = 12;
    let sale = TestSale::open(1_000, 1).await;
    for user in 0..BATCHES * ORDERS {
        sale.bought(&format!("u{user}"), 1, "k").await;
    }
    let messages = sale.orders_queue.take();
    for _ in 0..BATCHES {
        sale.weather.next(TRANSACTION, [Fault::Conflict, Fault::Throttled, Fault::ReplyCut]);
    }
    // Each order is delivered to two of the consumers.
    let batches = messages.chunks(ORDERS).chain(messages.chunks(2 * ORDERS)).map(<[_]>::to_vec);
    let all = futures_util::future::join_all(batches.map(|batch| sale.consume(batch)));
    let outcomes = tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
    assert!(outcomes.iter().flat_map(|outcomes| outcomes.values()).all(unpaid));
    assert_eq!(sale.offer_row().await.committed(), (BATCHES * ORDERS) as i64);
    sale.assert_sound().await;
}

/// S13: the seed's consumer sends a message again when it fails, and throws, so that the queue delivers the first one too: each
/// failure doubles it. Ours leaves it to the queue.
#[tokio::test]
async fn s13_a_consumer_that_fails_sends_nothing() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    let delivered = sale.orders_queue.take();
    // The seed: sent again, and not acknowledged.
    let by_the_seed = [delivered.clone(), delivered.clone()].concat();
    assert_eq!(by_the_seed.len(), 2);

    sale.weather.always("TransactWriteItems", Fault::Throttled);
    // By the real clock, which moves.
    let ledger = Ledger { clock: Clock::System, ..sale.ledger.clone() };
    let outcomes = ledger.commit(delivered.clone(), Clock::System.now().plus_millis(300)).await;
    assert_eq!(outcomes[&order_no], Outcome::Busy);
    sale.weather.clear();
    assert_eq!(sale.orders_queue.take(), []);
    sale.consume(delivered).await;
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Unpaid);
    sale.assert_sound().await;
}
