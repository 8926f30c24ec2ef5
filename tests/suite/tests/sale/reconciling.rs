//! The gate lost some writes, not all: order by order it is put right.

use sale::admission::{HoldState, Refusal};
use sale::follow::Told;
use sale::order::{EndReason, OrderStatus};
use sale::reconcile::{self, Drift, Repair};
use sale::sweep::ABANDON_SECS;

use crate::house::{TestSale, refused};

/// The sweep looks at another part of the orders each minute: in eight, at all of them.
const PARTS: usize = 8;

/// Nobody's time to pay ends while the sweep goes through all parts.
async fn patient_sale() -> TestSale {
    let sale = TestSale::closed().await;
    sale.open_with(10, 3, |rules| rules.pay_window_secs = 24 * 3_600).await;
    sale
}

async fn swept_through(sale: &TestSale) -> usize {
    let mut drifts = 0;
    for _ in 0..PARTS {
        sale.pass_secs(60);
        drifts += sale.sweep().await.drifts;
    }
    drifts
}

/// S9: the seed repairs by totals (`total − dbSold`) and, run between admission and the order's row, gives a unit away that
/// somebody was promised.
#[tokio::test]
async fn s9_a_repair_between_admission_and_row_changes_nothing() {
    let sale = TestSale::open(1, 1).await;
    let order_no = sale.admitted_and_dead("u1", 1, "k1").await;
    let row = sale.new_row("u1", 1, "k1").await;

    // The seed's rule would set this, and sell the unit again.
    let by_totals = sale.offer_row().await.total - sale.offer_row().await.committed();
    assert_eq!((by_totals, sale.available().await), (1, 0));

    let comparison = reconcile::whole(&sale.stores, &sale.offer_row().await, Repair::Do).await.unwrap();
    assert_eq!((comparison.drifts.len(), comparison.rebuild), (0, false));
    assert_eq!(sale.available().await, 0);
    assert_eq!(sale.buy("u2", 1, "k1").await, refused(Refusal::StockEmpty));

    sale.stores.orders.put(&row).await.unwrap();
    sale.pass_secs(31);
    sale.sweep().await;
    sale.deliver().await;
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Unpaid);
    sale.assert_sound().await;
}

/// P16: the last writes are lost. The gate lets too many in; the rows refuse them, once each, and the gate is put right before
/// anything comes back to it.
#[tokio::test]
async fn p16_the_last_writes_are_lost() {
    let sale = TestSale::open(5, 1).await;
    for user in 0..3 {
        sale.unpaid(&format!("early{user}"), 1, "k").await;
    }
    let before = sale.copy_gate().await;
    for user in 0..2 {
        sale.unpaid(&format!("lost{user}"), 1, "k").await;
    }
    sale.restore_gate(before).await;
    assert_eq!(sale.available().await, 2);

    let mut refused_ones = Vec::new();
    for user in 0..2 {
        refused_ones.push(sale.bought(&format!("excess{user}"), 1, "k").await);
    }
    sale.deliver().await;
    for order_no in &refused_ones {
        assert_eq!(sale.status(order_no).await, (OrderStatus::Failed, Some(EndReason::StockEmpty)));
    }
    // What was refused is not sold again before the sweep has looked.
    for user in 0..20 {
        assert_eq!(sale.buy(&format!("hopeful{user}"), 1, "k").await, refused(Refusal::StockEmpty));
    }
    sale.pass_secs(31);
    let (swept, words) = sale.sweep_telling(&sale.stores, Told::Stored).await;
    // Two holds were lost, and two refused orders still had theirs.
    assert_eq!((swept.failures, swept.drifts), (0, 4));
    assert!(refused_ones.iter().all(|order_no| words.iter().any(|word| word.order_no == *order_no)));
    assert_eq!((sale.available().await, sale.offer_row().await.committed()), (0, 5));
    assert_eq!(sale.buy("hopeful", 1, "k2").await, refused(Refusal::StockEmpty));
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_lost_hold_is_found_in_turn_and_put_back() {
    let sale = patient_sale().await;
    let order_no = sale.unpaid("u1", 2, "k1").await;
    sale.lose_hold("u1", &order_no, 2).await;
    assert_eq!(sale.available().await, 10);
    assert!(swept_through(&sale).await >= 1);
    assert_eq!((sale.available().await, sale.units("u1").await), (8, 2));
    assert_eq!(sale.row(&order_no).await.drifts, 1);
    sale.assert_sound().await;
    assert_eq!(swept_through(&sale).await, 0);
}

/// A paid order whose hold is lost comes back as sold.
#[tokio::test]
async fn a_lost_hold_of_a_paid_order() {
    let sale = patient_sale().await;
    let order_no = sale.unpaid("u1", 2, "k1").await;
    sale.pay("t1", &order_no, 2).await;
    sale.attend(std::slice::from_ref(&order_no)).await;
    sale.tamper(&["HINCRBY", &sale.book(), "sold", "-2"]).await;
    sale.lose_hold("u1", &order_no, 2).await;
    swept_through(&sale).await;
    assert_eq!((sale.counters().await.sold, sale.available().await), (2, 8));
    sale.assert_sound().await;
}

/// Steps that were missed: sell, release, and a hold that nobody has an order for.
#[tokio::test]
async fn what_the_gate_was_never_told() {
    let sale = patient_sale().await;
    let paid = sale.unpaid("u1", 1, "k1").await;
    let cancelled = sale.unpaid("u2", 1, "k1").await;
    sale.pay("t1", &paid, 1).await;
    sale.cancel(&cancelled).await;
    // Told, the rows say; and the gate was not.
    for (order_no, status) in [(&paid, OrderStatus::Paid), (&cancelled, OrderStatus::Cancelled)] {
        sale.forget_due(order_no, status).await;
    }
    let orphan = sale.admitted_and_dead("u3", 1, "k1").await;
    sale.tamper(&["ZREM", &sale.pending(), orphan.as_str()]).await;
    sale.pass_secs(ABANDON_SECS + 5);

    let offer = sale.offer_row().await;
    let expected = [
        (paid.clone(), Drift::NotSold),
        (cancelled.clone(), Drift::NotReleased),
        (orphan.clone(), Drift::OrderMissing),
    ];
    let untold = |orders: &[sale::follow::Decided]| -> Vec<_> {
        orders.iter().map(|decided| decided.order_no.clone()).collect()
    };
    for repair in [Repair::OnlyLook, Repair::Do] {
        let comparison = reconcile::whole(&sale.stores, &offer, repair).await.unwrap();
        assert_eq!(comparison.drifts, expected.clone().into());
        assert!(!comparison.rebuild && !comparison.sums_differ);
        let untouched = repair == Repair::OnlyLook;
        // The orphan's unit waits until its buyer is told, which this one cannot do.
        assert_eq!(sale.available().await, if untouched { 7 } else { 8 });
        assert_eq!(untold(&comparison.untold), if untouched { vec![] } else { vec![orphan.clone()] });
    }
    assert_eq!(sale.counters().await.sold, 1);
    assert_eq!(sale.status(&orphan).await, (OrderStatus::Failed, Some(EndReason::Abandoned)));
    // Nobody can be told for a while; then the buyer is, and the unit is for sale.
    for told in [Told::NotStored, Told::Stored] {
        assert_eq!(sale.available().await, 8);
        let mut words = Vec::new();
        for _ in 0..PARTS {
            sale.pass_secs(60);
            words.extend(sale.sweep_telling(&sale.stores, told).await.1);
        }
        assert_eq!(untold(&words), std::slice::from_ref(&orphan));
    }
    assert_eq!(sale.available().await, 9);
    assert_eq!(reconcile::whole(&sale.stores, &offer, Repair::Do).await.unwrap().drifts.len(), 0);
    sale.assert_sound().await;
}

/// The same order's hold is lost again: the gate is not to be trusted, and made anew.
#[tokio::test]
async fn the_second_drift_of_one_order_makes_the_gate_anew() {
    let sale = patient_sale().await;
    let order_no = sale.unpaid("u1", 2, "k1").await;
    for round in 1..=2 {
        sale.lose_hold("u1", &order_no, 2).await;
        swept_through(&sale).await;
        assert_eq!(sale.offer_row().await.epoch, round);
    }
    sale.assert_sound().await;
}

/// A live order's units were given back, or the sums are nobody's: nothing in the book can be believed.
#[tokio::test]
async fn a_book_that_cannot_be_right_is_made_anew() {
    for surplus in [false, true] {
        let sale = patient_sale().await;
        let order_no = sale.unpaid("u1", 2, "k1").await;
        if surplus {
            sale.tamper(&["HINCRBY", &sale.book(), "avail", "3"]).await;
        } else {
            sale.stores.gate.release(&sale.offer, std::slice::from_ref(&order_no)).await.unwrap();
        }
        sale.pass_secs(31);
        let comparison = reconcile::whole(&sale.stores, &sale.offer_row().await, Repair::Do).await.unwrap();
        assert!(comparison.rebuild);
        assert_eq!(comparison.sums_differ, surplus);
        sale::rebuild::begin(&sale.stores, &sale.offer_row().await).await.unwrap();
        assert_eq!(sale.refusal("u2", "k").await, Refusal::NotReady);
        sale.rebuilt().await;
        assert_eq!(sale.available().await, 8);
        let hold = sale.stores.gate.holds(&sale.offer, &[order_no]).await.unwrap().remove(0).unwrap();
        assert_eq!(hold.state, HoldState::Held);
        sale.assert_sound().await;
    }
}

/// A gate that is missing or being made has no holds; that is no loss of each single one.
#[tokio::test]
async fn a_gate_that_is_being_made_has_lost_nothing() {
    for begun in [false, true] {
        let sale = patient_sale().await;
        let orders = bought_out(&sale, 10).await;
        let offer = sale.offer_row().await;
        if begun {
            sale.stores.offers.begin_rebuild(&sale.offer, offer.epoch, sale.now()).await.unwrap();
            sale.stores.gate.load_begin(&sale.offer, offer.epoch + 1).await.unwrap();
        } else {
            sale.wipe_gate().await;
        }
        sale.pass_secs(31);
        for _ in 0..PARTS {
            sale.pass_secs(60);
            let found = reconcile::rolling(&sale.stores, &offer).await.unwrap();
            assert_eq!(found, reconcile::Comparison::default(), "begun: {begun}");
        }
        for order_no in &orders {
            assert_eq!(sale.row(order_no).await.drifts, 0);
        }
    }
}

/// The sweep itself begins to make the gate anew, and then comes to the step that compares.
#[tokio::test]
async fn a_gate_that_the_sweep_just_closed_has_lost_nothing() {
    const BUYERS: usize = 60;
    let sale = TestSale::closed().await;
    sale.open_with(BUYERS as i64, 1, |rules| rules.pay_window_secs = 24 * 3_600).await;
    let orders = bought_out(&sale, BUYERS).await;
    // One too many was let in, so the sweep compares; and finds sums that are nobody's.
    sale.let_in_by_force("excess", 1, "k").await;
    sale.deliver().await;
    sale.tamper(&["HINCRBY", &sale.book(), "avail", "3"]).await;
    sale.pass_secs(31);
    let swept = sale.sweep().await;
    assert_eq!((sale.offer_row().await.epoch, swept.drifts), (2, 1));
    for order_no in &orders {
        assert_eq!(sale.row(order_no).await.drifts, 0);
    }
    sale.pass_secs(sale::rebuild::WAIT_SECS);
    sale.sweep().await;
    assert_eq!(sale.available().await, 0);
    sale.looked_at_again().await;
    sale.assert_sound().await;
}

/// A surplus alone: every hold is right, and the gate sells what is not there.
#[tokio::test]
async fn the_sweep_finds_a_surplus_that_no_order_shows() {
    let sale = patient_sale().await;
    sale.unpaid("u1", 2, "k1").await;
    sale.tamper(&["HINCRBY", &sale.book(), "avail", "3"]).await;
    swept_through(&sale).await;
    sale.pass_secs(60);
    sale.sweep().await;
    assert_eq!((sale.offer_row().await.epoch, sale.available().await), (2, 8));
    sale.looked_at_again().await;
    sale.assert_sound().await;
}

/// So many buyers, each with a unit.
async fn bought_out(sale: &TestSale, buyers: usize) -> Vec<kernel::ids::OrderNo> {
    let mut orders = Vec::new();
    for user in 0..buyers {
        orders.push(sale.bought(&format!("u{user}"), 1, "k").await);
    }
    sale.deliver().await;
    orders
}
