//! Redis forgets; the rows do not.

use sale::admission::{HoldState, Refusal};
use sale::buy::Bought;
use sale::follow::Told;
use sale::gate::LoadHold;
use sale::lifecycle::Command;
use sale::order::{EndReason, OrderStatus};
use sale::rebuild::{self, Readiness, WAIT_SECS};

use crate::house::{TestSale, done, refused, unpaid};

#[tokio::test]
async fn p13_a_gate_that_forgot_everything() {
    let sale = TestSale::open(10, 4).await;
    let order_no = sale.bought("u1", 3, "k1").await;
    sale.deliver().await;
    let waiting = sale.bought("u2", 1, "k1").await;

    sale.wipe_gate().await;
    let not_ready = refused(Refusal::NotReady);
    assert_eq!(sale.buy("u3", 1, "k1").await, not_ready);
    assert_eq!(sale.sweep().await.gates_waiting, 1);
    for _ in 0..4 {
        // Nobody is told that it is sold out, nor lets in whom the rows do not know yet: not even who was in already.
        assert_eq!(sale.buy("u3", 1, "k1").await, not_ready);
        assert_eq!(sale.buy("u1", 3, "k1").await, not_ready);
        sale.pass_secs(WAIT_SECS / 5);
        assert_eq!(sale.sweep().await.gates_waiting, 1);
    }
    // Orders are made meanwhile.
    assert!(unpaid(&sale.deliver().await[&waiting]));
    sale.pass_secs(WAIT_SECS / 5);
    assert_eq!(sale.sweep().await.gates_ready, 1);

    assert_eq!((sale.available().await, sale.units("u1").await, sale.units("u2").await), (6, 3, 1));
    let again = Bought::Accepted { order_no, status: OrderStatus::Unpaid, reason: None, replayed: true };
    assert_eq!(sale.buy("u1", 3, "k1").await, again);
    assert_eq!(sale.buy("u1", 2, "k2").await, refused(Refusal::LimitExceeded { remaining: 1 }));
    sale.bought("u3", 1, "k1").await;
    sale.deliver().await;
    sale.sweep().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn s8_preheating_a_lost_gate_does_not_sell_again_what_is_sold() {
    let sale = TestSale::open(100, 1).await;
    for user in 0..63 {
        sale.bought(&format!("u{user}"), 1, "k").await;
    }
    assert!(sale.deliver().await.values().all(unpaid));
    sale.wipe_gate().await;
    done(sale.preheat().await);
    assert_eq!(sale.buy("v1", 1, "k").await, refused(Refusal::NotReady));
    sale.pass_secs(WAIT_SECS);
    done(sale.preheat().await);
    assert_eq!(sale.available().await, 37);
    sale.pass_secs(20);
    sale.sweep().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn preheating_a_gate_that_is_there_changes_nothing() {
    let sale = TestSale::open(10, 1).await;
    sale.bought("u1", 1, "k").await;
    let before = sale.counters().await;
    done(sale.preheat().await);
    assert_eq!(sale.counters().await, before);
    assert_eq!(sale.offer_row().await.epoch, 1);
}

/// Dead orders come back as released holds: their request ids stay used, their units are for sale.
#[tokio::test]
async fn the_dead_stay_known() {
    let sale = TestSale::open(10, 1).await;
    let dead = sale.bought("u1", 1, "k1").await;
    sale.stores.orders.fail(&dead, EndReason::StockEmpty, sale.now()).await.unwrap();
    sale.deliver().await;
    sale.wipe_gate().await;
    sale.rebuilt().await;
    let hold = sale.stores.gate.holds(&sale.offer, std::slice::from_ref(&dead)).await.unwrap().remove(0).unwrap();
    assert_eq!(hold.state, HoldState::Released);
    assert_eq!(sale.available().await, 10);
    let over = Bought::Accepted {
        order_no: dead,
        status: OrderStatus::Failed,
        reason: Some(EndReason::StockEmpty),
        replayed: true,
    };
    assert_eq!(sale.buy("u1", 1, "k1").await, over);
    sale.bought("u1", 1, "k2").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// Whoever has a gate made anew and asks again, waits no longer for it.
#[tokio::test]
async fn a_gate_that_is_being_made_is_not_begun_again() {
    let sale = TestSale::open(10, 1).await;
    sale.bought("u1", 1, "k").await;
    sale.deliver().await;
    let ask = async || rebuild::ask(&sale.stores, &sale.offer_row().await).await.unwrap();
    let until = sale.now().plus_secs(WAIT_SECS);
    let first = ask().await;
    assert!(matches!(first, Readiness::Making { until: said } if said.millis_since(until).abs() < 5_000), "{first:?}");
    let epoch = sale.offer_row().await.epoch;
    sale.pass_secs(WAIT_SECS / 2);
    assert_eq!((ask().await, sale.offer_row().await.epoch), (first, epoch));
    sale.pass_secs(WAIT_SECS);
    assert_eq!((ask().await, sale.offer_row().await.epoch), (Readiness::Ready, epoch));
    // It is done, so this is another wish.
    assert!(matches!(ask().await, Readiness::Making { .. }));
}

/// A buyer whose order FAILED, and who could not be told yet, is told though the gate was made anew in between.
#[tokio::test]
async fn who_was_not_told_of_a_failure_is_not_forgotten_with_the_gate() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.orders_queue.take();
    sale.stores.orders.fail(&order_no, EndReason::GaveUp, sale.now()).await.unwrap();
    sale.wipe_gate().await;
    sale.sweep_telling(&sale.stores, Told::NotStored).await;
    sale.pass_secs(WAIT_SECS);
    sale.sweep_telling(&sale.stores, Told::NotStored).await;
    let (_, words) = sale.sweep_telling(&sale.stores, Told::Stored).await;
    assert_eq!(words.iter().map(|word| &word.order_no).collect::<Vec<_>>(), [&order_no]);
    let (_, words) = sale.sweep_telling(&sale.stores, Told::Stored).await;
    assert_eq!(words, []);
    sale.assert_sound().await;
}

/// A hold without a row is gone with the gate: nobody was promised anything.
#[tokio::test]
async fn a_hold_that_no_row_knows_is_forgotten() {
    let sale = TestSale::open(10, 1).await;
    sale.admitted_and_dead("u1", 1, "k").await;
    sale.wipe_gate().await;
    sale.rebuilt().await;
    assert_eq!(sale.available().await, 10);
    sale.bought("u1", 1, "k").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// A row that moves while the gate is made is followed afterwards.
#[tokio::test]
async fn an_order_that_dies_while_the_gate_is_made() {
    let sale = TestSale::open(10, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.wipe_gate().await;
    sale.sweep().await;
    // As the load reads it, and as it is when the load is over.
    let row = sale.row(&order_no).await;
    let epoch = sale.offer_row().await.epoch;
    sale.stores.gate.load_chunk(&sale.offer, epoch, &[LoadHold::of(&row)]).await.unwrap();
    sale.stores.orders.fail(&order_no, EndReason::GaveUp, sale.now()).await.unwrap();
    sale.deliver().await;
    sale.pass_secs(WAIT_SECS);
    sale.sweep().await;
    assert_eq!((sale.available().await, sale.units("u1").await), (10, 0));
    sale.assert_sound().await;
}

#[tokio::test]
async fn p43_a_crash_at_each_step_of_a_rebuild() {
    for step in 0..4 {
        let sale = TestSale::open(10, 1).await;
        sale.bought("u1", 1, "k").await;
        sale.deliver().await;
        sale.wipe_gate().await;
        let row = sale.rows().await.remove(0);
        // So far came the one that died.
        sale.stores.offers.begin_rebuild(&sale.offer, 1, sale.now()).await.unwrap();
        if step >= 1 {
            sale.stores.gate.load_begin(&sale.offer, 2).await.unwrap();
        }
        if step >= 2 {
            sale.stores.gate.load_chunk(&sale.offer, 2, &[LoadHold::of(&row)]).await.unwrap();
        }
        if step >= 3 {
            let settings = sale.offer_row().await.gate_settings();
            sale.stores.gate.load_finish(&sale.offer, &settings).await.unwrap();
        }
        for _ in 0..3 {
            sale.sweep().await;
            sale.pass_secs(WAIT_SECS);
        }
        assert_eq!(sale.sweep().await.gates_ready, 1, "step {step}");
        let offer = sale.offer_row().await;
        assert_eq!((offer.rebuilding, offer.epoch), (None, sale.counters().await.epoch), "step {step}");
        assert_eq!((sale.available().await, sale.units("u1").await), (9, 1), "step {step}");
        sale.assert_sound().await;
    }
}

#[tokio::test]
async fn p43_a_pause_during_a_rebuild_stays() {
    let sale = TestSale::open(10, 1).await;
    sale.bought("u1", 1, "k").await;
    sale.deliver().await;
    sale.wipe_gate().await;
    sale.sweep().await;
    done(sale.command(Command::Pause).await);
    sale.pass_secs(WAIT_SECS);
    sale.sweep().await;
    assert_eq!(sale.buy("u2", 1, "k").await, refused(Refusal::Paused));
    assert_eq!(sale.available().await, 9);
    done(sale.command(Command::Resume).await);
    sale.bought("u2", 1, "k").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// An old copy of the book comes back (a replica, a backup): its epoch is not the row's, so it is not believed.
#[tokio::test]
async fn a_gate_of_another_epoch_is_made_anew() {
    let sale = TestSale::open(10, 1).await;
    sale.wipe_gate().await;
    sale.rebuilt().await;
    sale.bought("u1", 1, "k").await;
    sale.deliver().await;
    sale.tamper(&["HSET", &sale.book(), "epoch", "1", "avail", "10"]).await;
    sale.rebuilt().await;
    assert_eq!(sale.available().await, 9);
    sale.pass_secs(20);
    sale.sweep().await;
    sale.assert_sound().await;
}
