//! From the press of the button to an order, each exactly once.

use client::documents::{OrderStatus, ProblemCode, ResultStatus};
use e2e::shop::{CURRENCY, PRICE, accepted, settled};
use e2e::{Offer, SOON, Shop, refusal};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use sale::order::OrderStatus as RowStatus;
use sale::queue::OrderMessage;

/// The spine: one buy, 202, an order, a push, and an audit that has nothing to say.
#[tokio::test]
async fn one_buy_becomes_an_order_and_its_buyer_is_told() {
    let shop = Shop::open(Offer { pay_window_secs: 600, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let mut socket = buyer.online().await;
    let before = Timestamp::now();

    let answer = buyer.buy(2, "k1").await;
    assert_eq!(answer.headers.request_id(), Some("k1"));
    assert!(!answer.headers.is_replay());
    assert_eq!(answer.outcome.as_ref().unwrap().status, ResultStatus::Pending);
    let order_no = accepted(answer);
    assert!(order_no.starts_with("SK") && order_no.len() == 28, "{order_no}");

    let pushed = socket.result_of(&order_no, SOON).await.unwrap().result;
    assert_eq!((pushed.status, pushed.order_status), (ResultStatus::Success, OrderStatus::Unpaid));
    assert!(!pushed.message.is_empty());

    let result = buyer.wins(&order_no).await;
    assert_eq!((result.amount, result.currency.as_str()), (2 * PRICE, CURRENCY));
    let deadline = result.pay_deadline.expect("an order to be paid has a deadline");
    let window = deadline.duration_since(before);
    assert!(window >= SignedDuration::from_secs(599) && window <= SignedDuration::from_secs(660), "{window:?}");

    let order = buyer.api.order(&order_no).await.unwrap().outcome.unwrap();
    assert_eq!((order.activity_id, order.sku_id), (shop.activity_id.clone(), shop.sku_id.clone()));
    assert_eq!((order.qty, order.price, order.amount), (2, PRICE, 2 * PRICE));
    assert_eq!(
        (order.status, order.pay_deadline, order.paid_at, order.reason),
        (OrderStatus::Unpaid, Some(deadline), None, None)
    );
    let state = buyer.api.order_state(&order_no).await.unwrap().outcome.unwrap();
    assert_eq!((state.order_no, state.status), (order_no, OrderStatus::Unpaid));

    let report = shop.audit().await;
    let counts = report.counts;
    assert_eq!((counts.total, counts.committed, counts.available, counts.held, counts.sold), (10, 2, 8, 2, 0));
    assert_eq!((counts.orders[&OrderStatus::Unpaid], counts.pending), (1, 0));
}

/// [P1]
#[tokio::test]
async fn ten_units_make_ten_orders_and_the_eleventh_buyer_is_told_so() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyers: Vec<_> = (1..=11).map(|n| shop.buyer(&format!("u{n}"))).collect();
    let answers = join_all(buyers.iter().map(|buyer| buyer.buy(1, "k1"))).await;
    let (let_in, turned_away): (Vec<_>, Vec<_>) =
        buyers.iter().zip(answers).partition(|(_, answer)| answer.status == 202);
    assert_eq!((let_in.len(), turned_away.len()), (10, 1));
    for (_, answer) in turned_away {
        refusal(answer, ProblemCode::StockEmpty);
    }
    for (buyer, answer) in let_in {
        buyer.wins(&accepted(answer)).await;
    }
    assert_eq!(shop.units().await, (0, 10));
    assert_eq!(shop.audit().await.counts.committed, 10);
}

/// [P3]
#[tokio::test]
async fn two_presses_at_once_of_one_buyer_make_one_order() {
    let shop = Shop::open(Offer { limit_per_user: 1, ..Offer::default() }).await;
    let buyer = shop.buyer("u1");
    let (first, second) = tokio::join!(buyer.buy(1, "k1"), buyer.buy(1, "k2"));
    let (won, lost) = if first.status == 202 { (first, second) } else { (second, first) };
    refusal(lost, ProblemCode::AlreadyBought);
    buyer.wins(&accepted(won)).await;
    assert_eq!(shop.units().await, (9, 1));
    shop.audit().await;
}

/// [S2]
#[tokio::test]
async fn a_limit_of_three_lets_one_buyer_buy_three_times() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    for request_id in ["k1", "k2", "k3"] {
        let order_no = buyer.accepted(1, request_id).await;
        buyer.wins(&order_no).await;
    }
    let problem = buyer.refused(1, "k4", ProblemCode::LimitExceeded).await;
    assert_eq!(problem.remaining, Some(0));
    assert_eq!(shop.audit().await.counts.committed, 3);
}

#[tokio::test]
async fn a_retry_gets_the_same_order_and_is_told_that_it_is_one() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    let at_once = buyer.buy(1, "k1").await;
    assert!(at_once.headers.is_replay());
    assert_eq!(accepted(at_once), order_no);

    buyer.wins(&order_no).await;
    let later = buyer.buy(1, "k1").await;
    assert!(later.headers.is_replay());
    assert_eq!(later.outcome.as_ref().unwrap().status, ResultStatus::Success);
    assert_eq!(accepted(later), order_no);

    // The sale ends; what was bought stays bought.
    shop.act(client::documents::ActivityAction::End).await;
    assert_eq!(buyer.accepted(1, "k1").await, order_no);
    assert_eq!(shop.rows().await.len(), 1);
    assert_eq!(shop.units().await, (9, 1));
    shop.audit().await;
}

#[tokio::test]
async fn without_a_request_id_each_call_is_a_wish_of_its_own() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let mut ids = Vec::new();
    let mut order_nos = Vec::new();
    for _ in 0..2 {
        let answer = buyer.api.buy(&buyer.wish(1), None).await.unwrap();
        ids.push(answer.headers.request_id().expect("the id that was made up").to_owned());
        order_nos.push(accepted(answer));
    }
    assert_ne!(ids[0], ids[1]);
    assert_ne!(order_nos[0], order_nos[1]);
    // What was made up can be sent like one's own.
    assert_eq!(buyer.accepted(1, &ids[0]).await, order_nos[0]);
    for order_no in &order_nos {
        buyer.wins(order_no).await;
    }
    shop.audit().await;
}

/// [P25]
#[tokio::test]
async fn a_request_id_stands_for_one_quantity() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(1, "k1").await;
    buyer.refused(2, "k1", ProblemCode::RequestIdReused).await;
    assert_eq!(buyer.accepted(1, "k1").await, order_no);
    buyer.wins(&order_no).await;
    buyer.refused(2, "k1", ProblemCode::RequestIdReused).await;
    assert_eq!(shop.units().await, (9, 1));
    shop.audit().await;
}

/// [S16]
#[tokio::test]
async fn the_same_request_id_of_two_buyers_means_two_orders() {
    let shop = Shop::open(Offer::default()).await;
    let (one, other) = (shop.buyer("u1"), shop.buyer("u2"));
    let (first, second) = (one.accepted(1, "k1").await, other.accepted(1, "k1").await);
    assert_ne!(first, second);
    one.wins(&first).await;
    other.wins(&second).await;
    shop.audit().await;
}

/// [S7, P6] The queue may deliver twice, and late.
#[tokio::test]
async fn a_message_that_comes_again_changes_nothing() {
    let shop = Shop::open(Offer::default()).await;
    let buyer = shop.buyer("u1");
    let order_no = buyer.accepted(2, "k1").await;
    buyer.wins(&order_no).await;
    let order_no = order_no.parse().unwrap();
    let before = settled(&shop, &order_no).await;
    let message = serde_json::to_string(&OrderMessage::from(&before)).unwrap();
    for _ in 0..3 {
        shop.local.enqueue(&message).await;
    }
    // The audit waits for the queue to be empty.
    let counts = shop.audit().await.counts;
    assert_eq!((counts.committed, counts.available, counts.held), (2, 8, 2));
    let after = shop.row(&order_no).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(after.trail, [RowStatus::PreCreated, RowStatus::Unpaid]);
}
