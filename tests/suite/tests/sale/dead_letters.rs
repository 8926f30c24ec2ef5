//! Messages that failed too often: none is an end.

use std::collections::BTreeMap;

use sale::dead_letters::Settled;
use sale::order::{EndReason, OrderStatus};

use crate::house::TestSale;

/// P37: sent again byte for byte, and a second time nothing.
#[tokio::test]
async fn p37_redriven_twice() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    let bodies: Vec<String> = sale.orders_queue.take_bodies().into_iter().map(|(body, _)| body).collect();
    let odd = "{ \"热\" :\t[1e2],\n\"x\":\"\\u00e9\"}";
    for body in bodies.iter().map(String::as_str).chain([odd, bodies[0].as_str()]) {
        sale.dead_letters.plant(body);
    }
    let letters = sale.dead_letters().list().await.unwrap();
    assert_eq!(letters.len(), 3);
    assert_eq!((letters[0].order_no.as_ref(), letters[1].order_no.as_ref()), (Some(&order_no), None));
    // Looking takes nothing away.
    assert_eq!(sale.dead_letters().list().await.unwrap(), letters);

    assert_eq!(sale.dead_letters().redrive().await.unwrap(), 3);
    assert_eq!(sale.dead_letters().redrive().await.unwrap(), 0);
    let again: Vec<String> = sale.orders_queue.take_bodies().into_iter().map(|(body, _)| body).collect();
    assert_eq!(again, [bodies[0].as_str(), odd, bodies[0].as_str()]);
    for body in [&bodies[0], &bodies[0]] {
        sale.orders_queue.plant(body);
    }
    sale.deliver().await;
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Unpaid);
    sale.assert_sound().await;
}

#[tokio::test]
async fn settling_letters_ends_their_orders() {
    let sale = TestSale::open(10, 1).await;
    let undecided = sale.bought("u1", 1, "k").await;
    let made = sale.bought("u2", 1, "k").await;
    let (of_undecided, of_made): (Vec<_>, Vec<_>) =
        sale.orders_queue.take().into_iter().partition(|message| message.order_no == undecided);
    sale.consume(of_made.clone()).await;
    let mut unknown = of_made[0].clone();
    unknown.order_no = "SKNOBODY".parse().unwrap();
    for message in [&of_undecided[0], &of_made[0], &unknown] {
        sale.dead_letters.plant(&serde_json::to_string(message).unwrap());
    }
    sale.dead_letters.plant("not an order");

    let settled = sale.dead_letters().settle(&sale.stores.orders, sale.now()).await.unwrap();
    let found: BTreeMap<&str, Settled> = settled
        .iter()
        .map(|(letter, what)| (letter.order_no.as_ref().map_or("-", |order_no| order_no.as_str()), *what))
        .collect();
    let expected = [
        (undecided.as_str(), Settled::Failed),
        (made.as_str(), Settled::Decided),
        ("SKNOBODY", Settled::NoOrder),
        ("-", Settled::Malformed),
    ];
    assert_eq!(found, expected.into());
    assert_eq!(sale.status(&undecided).await, (OrderStatus::Failed, Some(EndReason::GaveUp)));
    assert_eq!(sale.dead_letters().depth().await.unwrap().all(), 0);
    // The sweep tells the buyer and gives the unit back.
    sale.looked_at_again().await;
    assert_eq!(sale.available().await, 9);
    sale.assert_sound().await;
}
