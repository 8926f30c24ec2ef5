//! A sale ends: it is drained first, then what is left goes back to the SKU, once.

use sale::lifecycle::Command;
use sale::offer::SaleState;
use sale::order::{EndReason, OrderStatus};
use sale::sweep::ABANDON_SECS;

use crate::house::{PAY_WINDOW_SECS, STOCK, TestSale, done};

#[tokio::test]
async fn p32_drained_first_then_the_leftovers_go_back_once() {
    let sale = TestSale::open(10, 3).await;
    let paid = sale.unpaid("u1", 2, "k1").await;
    let unpaid = sale.unpaid("u2", 3, "k1").await;
    let held = sale.admitted_and_dead("u3", 1, "k1").await;
    sale.pay("t1", &paid, 2).await;
    sale.attend(&[paid]).await;
    done(sale.command(Command::End).await);

    // A hold and an unpaid order are undecided; then only the order; then nothing.
    assert_eq!(sale.sweep().await.settled, 0);
    sale.pass_secs(ABANDON_SECS + 2);
    assert_eq!(sale.sweep().await.settled, 0);
    assert_eq!(sale.status(&held).await, (OrderStatus::Failed, Some(EndReason::Abandoned)));
    assert_eq!(sale.offer_row().await.state, SaleState::Closed);
    sale.pass_secs(i64::from(PAY_WINDOW_SECS));
    assert_eq!(sale.sweep().await.settled, 1);
    assert_eq!(sale.status(&unpaid).await.0, OrderStatus::Cancelled);

    for _ in 0..2 {
        let offer = sale.offer_row().await;
        assert_eq!((offer.state, offer.total, offer.remaining), (SaleState::Settled, 2, 0));
        assert_eq!((sale.sku().await.stock, sale.sku().await.free), (STOCK, STOCK - 2));
        assert_eq!(sale.sweep().await.settled, 0);
    }
    let counters = sale.counters().await;
    assert_eq!((counters.total, counters.available, counters.sold), (2, 0, 2));
    sale.assert_sound().await;
}

/// P41: a function that was frozen through the loss of the gate and the end of the sale puts its row at last.
#[tokio::test]
async fn p41_a_row_that_comes_after_the_end() {
    let sale = TestSale::open(10, 3).await;
    sale.admitted_and_dead("u1", 1, "k1").await;
    let late = sale.new_row("u1", 1, "k1").await;
    sale.wipe_gate().await;
    sale.rebuilt().await;
    done(sale.command(Command::End).await);
    assert_eq!(sale.sweep().await.settled, 1);
    assert_eq!(sale.sku().await.free, STOCK);

    sale.stores.orders.put(&late).await.unwrap();
    sale.pass_secs(31);
    assert_eq!(sale.sweep().await.resent, 1);
    sale.deliver().await;
    assert_eq!(sale.status(&late.order_no).await, (OrderStatus::Failed, Some(EndReason::StockEmpty)));
    assert_eq!((sale.offer_row().await.committed(), sale.sku().await.free), (0, STOCK));
    sale.assert_sound().await;
}

/// Redis does not answer when the sale settles: it does not, since holds cannot be counted. Later it does.
#[tokio::test]
async fn no_gate_no_settlement() {
    let sale = TestSale::open(10, 3).await;
    done(sale.command(Command::End).await);
    let (swept, _) = sale.sweep_telling(&sale.cut_from_gate(), sale::follow::Told::Stored).await;
    assert_eq!(swept.settled, 0);
    assert_eq!(sale.sku().await.free, STOCK - 10);
    assert_eq!(sale.sweep().await.settled, 1);
    assert_eq!(sale.sku().await.free, STOCK);
}

/// Crashed between the row and the gate: the next sweep tells the gate, and the leftovers are back once.
#[tokio::test]
async fn settled_and_the_gate_not_told() {
    let sale = TestSale::open(10, 3).await;
    let paid = sale.unpaid("u1", 2, "k1").await;
    sale.pay("t1", &paid, 2).await;
    sale.attend(&[paid]).await;
    done(sale.command(Command::End).await);
    assert_eq!(sale.sweep().await.settled, 1);
    // As if it had died in between: the gate is as it was, and the activity says that it is not told.
    sale.tamper(&["HSET", &sale.book(), "total", "10", "avail", "8", "version", "1"]).await;
    sale.tamper(&["PERSIST", &sale.book()]).await;
    sale.unarchive().await;
    sale.sweep().await;
    let counters = sale.counters().await;
    assert_eq!((counters.total, counters.available, counters.sold), (2, 0, 2));
    assert_eq!(sale.sku().await.free, STOCK - 2);
    let kept: i64 = redis::cmd("TTL").arg(sale.book()).query_async(&mut sale.redis.operator().await).await.unwrap();
    assert!(kept > 6 * 24 * 3_600, "{kept}");
    sale.assert_sound().await;
}

/// One that never opened goes back whole, and says that it is over.
#[tokio::test]
async fn a_sale_that_ends_before_it_opens() {
    let sale = TestSale::closed().await;
    done(sale.put_activity(3_600, 7_200).await);
    done(sale.put_offer(&crate::house::spec(10, 1)).await);
    done(sale.command(Command::End).await);
    sale.sweep().await;
    assert!(matches!(sale.refusal("u1", "k").await, sale::admission::Refusal::Ended { .. }));
    sale.sweep().await;
    assert_eq!(sale.offer_row().await.state, SaleState::Settled);
    assert_eq!(sale.sku().await.free, STOCK);
}
