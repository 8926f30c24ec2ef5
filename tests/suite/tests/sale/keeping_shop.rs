//! What the shop decides, mid-sale, and what a crash between its two writes leaves.

use std::time::Duration;

use kernel::time::Clock;
use sale::Stores;
use sale::admission::Refusal;
use sale::buy::Bought;
use sale::follow::Told;
use sale::lifecycle::{self, Command, Edit, EditRefusal, OfferSpec};
use sale::offer::{SaleState, UNLIMITED_TOTAL};
use sale::order::OrderStatus;
use sale::store::offers::SYSTEM;

use crate::house::{STOCK, TestSale, admin, done, refused, sku_id, spec, unpaid};
use crate::weather::Fault;

const TRANSACTION: &str = "TransactWriteItems";

#[tokio::test]
async fn p31_a_raise_is_for_sale_at_once() {
    let sale = TestSale::open(2, 1).await;
    for user in ["u1", "u2"] {
        sale.bought(user, 1, "k").await;
    }
    assert_eq!(sale.buy("u3", 1, "k").await, refused(Refusal::StockEmpty));
    assert_eq!(sale.sku().await.free, STOCK - 2);

    assert_eq!(done(sale.put_offer(&spec(7, 1)).await).total, 7);
    assert_eq!((sale.available().await, sale.sku().await.free), (5, STOCK - 7));
    for user in ["u3", "u4", "u5", "u6", "u7"] {
        sale.bought(user, 1, "k").await;
    }
    assert_eq!(sale.buy("u8", 1, "k").await, refused(Refusal::StockEmpty));
    assert!(sale.deliver().await.values().all(unpaid));
    sale.assert_sound().await;
}

#[tokio::test]
async fn p31_stock_is_lowered_down_to_what_is_held_or_sold() {
    let sale = TestSale::open(10, 3).await;
    let too_few = |available| Edit::Refused(EditRefusal::TooFewUnsold { available });
    sale.bought("u1", 3, "k").await;
    sale.deliver().await;
    sale.bought("u2", 2, "k").await;

    // Five are held or sold: by the rows three, by the gate five.
    assert_eq!(sale.put_offer(&spec(4, 3)).await, too_few(5));
    assert_eq!(sale.put_offer(&spec(2, 3)).await, too_few(7));
    assert_eq!((sale.counters().await.total, sale.available().await), (10, 5));
    assert_eq!((sale.offer_row().await.total, sale.sku().await.free), (10, STOCK - 10));

    done(sale.put_offer(&spec(5, 3)).await);
    assert_eq!((sale.counters().await.total, sale.available().await), (5, 0));
    assert_eq!((sale.offer_row().await.total, sale.sku().await.free), (5, STOCK - 5));
    assert_eq!(sale.buy("u3", 1, "k").await, refused(Refusal::StockEmpty));
    assert!(sale.deliver().await.values().all(unpaid));
    sale.assert_sound().await;
}

#[tokio::test]
async fn units_come_out_of_the_skus_stock() {
    let sale = TestSale::open(10, 3).await;
    assert_eq!(
        sale.put_offer(&spec(STOCK + 1, 3)).await,
        Edit::Refused(EditRefusal::TooFewFree { available: STOCK - 10 })
    );
    assert_eq!(sale.put_sku(9).await, Edit::Refused(EditRefusal::TooFewFree { available: STOCK - 10 }));
    assert_eq!(done(sale.put_sku(10).await).free, 0);
    assert_eq!(sale.put_offer(&spec(11, 3)).await, Edit::Refused(EditRefusal::TooFewFree { available: 0 }));
    done(sale.put_sku(11).await);
    done(sale.put_offer(&spec(11, 3)).await);
    let sku = sale.sku().await;
    assert_eq!((sku.stock, sku.free), (11, 0));
    assert_eq!(sale.available().await, 11);
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_new_limit_counts_from_now_on() {
    let sale = TestSale::open(10, 3).await;
    sale.bought("u1", 3, "k1").await;
    done(sale.put_offer(&spec(10, 1)).await);
    assert_eq!(sale.buy("u1", 1, "k2").await, refused(Refusal::AlreadyBought));
    assert_eq!(sale.buy("u2", 2, "k1").await, refused(Refusal::LimitExceeded { remaining: 1 }));
    sale.bought("u2", 1, "k1").await;
    // An order keeps the limit it was admitted under.
    assert!(sale.deliver().await.values().all(unpaid));
    sale.assert_sound().await;
}

#[tokio::test]
async fn an_unlimited_offer_sells_on_and_takes_nothing_from_the_sku() {
    let sale = TestSale::closed().await;
    done(sale.put_activity(-60, 3_600).await);
    let unlimited = OfferSpec { unlimited: true, ..spec(0, 1_000) };
    assert_eq!(done(sale.put_offer(&unlimited).await).total, UNLIMITED_TOTAL);
    done(sale.preheat().await);
    sale.bought("u1", 1_000, "k").await;
    sale.bought("u2", 1, "k").await;
    assert!(sale.deliver().await.values().all(unpaid));
    assert_eq!((sale.offer_row().await.committed(), sale.sku().await.free), (1_001, STOCK));
    assert_eq!(sale.available().await, UNLIMITED_TOTAL - 1_001);
    assert_eq!(sale.put_offer(&spec(2_000, 1)).await, Edit::Refused(EditRefusal::UnlimitedIsFixed));
    // Its other terms may change; the count goes on.
    done(sale.put_offer(&OfferSpec { limit_per_user: 2, ..unlimited }).await);
    assert_eq!(sale.buy("u2", 2, "k2").await, refused(Refusal::LimitExceeded { remaining: 1 }));
    assert_eq!(sale.available().await, UNLIMITED_TOTAL - 1_001);
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_sale_is_paused_resumed_and_ended() {
    let sale = TestSale::open(10, 3).await;
    let waiting = sale.bought("u1", 1, "k").await;

    assert_eq!(done(sale.command(Command::Pause).await).state, SaleState::Paused);
    assert_eq!(sale.buy("u2", 1, "k").await, refused(Refusal::Paused));
    // Who is in already is served, and told again when asking again.
    assert!(matches!(sale.buy("u1", 1, "k").await, Bought::Accepted { replayed: true, .. }));
    assert!(unpaid(&sale.deliver().await[&waiting]));
    assert_eq!(done(sale.command(Command::Pause).await).state, SaleState::Paused);

    assert_eq!(done(sale.command(Command::Resume).await).state, SaleState::Live);
    let last = sale.bought("u2", 1, "k").await;

    let ended = done(sale.command(Command::End).await);
    assert_eq!(ended.state, SaleState::Closed);
    assert_eq!(sale.buy("u3", 1, "k").await, refused(Refusal::Ended { ends_at: ended.rules.ends_at }));
    assert!(unpaid(&sale.deliver().await[&last]));
    for command in [Command::Pause, Command::Resume] {
        assert_eq!(sale.command(command).await, Edit::Refused(EditRefusal::Ended));
    }
    assert_eq!(sale.put_offer(&spec(20, 3)).await, Edit::Refused(EditRefusal::Ended));
    assert_eq!(sale.put_activity(0, 60).await, Edit::Refused(EditRefusal::Ended));
    assert_eq!(sale.preheat().await, Edit::Refused(EditRefusal::Ended));

    // What a settlement will give back: all that is not committed, which is what the gate still has.
    let offer = sale.offer_row().await;
    assert_eq!((offer.remaining, offer.committed(), sale.available().await), (8, 2, 8));
    assert_eq!(sale.sku().await.free + offer.allotted(), STOCK);
    sale.assert_sound().await;

    let changes = sale.stores.offers.changes_of(sale.activity_id().as_str(), 100, None).await.unwrap().items;
    let actions: Vec<&str> = changes.iter().map(|change| change.action.as_str()).collect();
    assert_eq!(actions, ["put-activity", "put-product s10", "pause", "resume", "end"]);
    assert!(changes.iter().all(|change| change.by == admin()));
}

/// The same done twice in one millisecond is two entries; and a log may be long.
#[tokio::test]
async fn the_log_loses_nothing_and_is_shown_page_by_page() {
    let sale = TestSale::closed().await;
    let (offers, at) = (&sale.stores.offers, sale.now());
    for n in 0..3 {
        offers.log(SYSTEM, &admin(), at, "redrive".to_owned(), None, &n).await.unwrap();
    }
    offers.log(SYSTEM, &admin(), at.plus_millis(1), "redrive".to_owned(), None, &3).await.unwrap();
    let (mut found, mut cursor) = (Vec::new(), None);
    for _ in 0..3 {
        let page = offers.changes_of(SYSTEM, 3, cursor.as_ref()).await.unwrap();
        found.extend(page.items.into_iter().map(|change| change.after));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((found, cursor), (["0", "1", "2", "3"].map(str::to_owned).to_vec(), None));
}

#[tokio::test]
async fn a_sale_closes_by_the_clock_of_the_gate() {
    let sale = TestSale::closed().await;
    done(sale.put_activity(-60, 600).await);
    done(sale.put_offer(&spec(10, 1)).await);
    done(sale.preheat().await);
    sale.bought("u1", 1, "k").await;
    sale.deliver().await;
    // Our clock runs ahead, and the gate sells on.
    sale.pass_secs(601);
    assert_eq!(sale.sweep().await.closed, 0);
    sale.bought("u2", 1, "k").await;
    sale.deliver().await;
    let activity = done(sale.put_activity(-660, -600).await);
    tokio::time::timeout(Duration::from_secs(10), async {
        while sale.stores.gate.now().await.unwrap() < activity.rules.ends_at {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the gate's clock goes on");
    // Over at the gate, and not by a clock that runs behind.
    let behind = Clock::manual(activity.rules.ends_at.plus_secs(-60));
    let (swept, _) = sale.sweep_telling(&Stores { clock: behind, ..sale.stores.clone() }, Told::Stored).await;
    assert_eq!(swept.closed, 0);
    assert_eq!(sale.sweep().await.closed, 1);
    let offer = sale.offer_row().await;
    assert_eq!(offer.state, SaleState::Closed);
    assert_eq!(sale.buy("u3", 1, "k").await, refused(Refusal::Ended { ends_at: offer.rules.ends_at }));
    assert_eq!(sale.sweep().await.closed, 0);
    sale.assert_sound().await;
}

/// A gate that does not answer keeps no sale open.
#[tokio::test]
async fn a_sale_closes_without_its_gate() {
    let sale = TestSale::closed().await;
    done(sale.put_activity(-60, 600).await);
    done(sale.put_offer(&spec(10, 1)).await);
    done(sale.preheat().await);
    sale.pass_secs(601);
    let (swept, _) = sale.sweep_telling(&sale.cut_from_gate(), Told::Stored).await;
    assert_eq!(swept.closed, 1);
    assert_eq!(sale.offer_row().await.state, SaleState::Closed);
}

#[tokio::test]
async fn a_gate_is_made_before_the_start_and_opens_by_itself() {
    let sale = TestSale::closed().await;
    let activity = done(sale.put_activity(1_000, 2_000).await);
    done(sale.put_offer(&spec(10, 1)).await);
    assert_eq!(sale.sweep().await.gates_ready, 0);
    assert_eq!(sale.buy("u1", 1, "k").await, refused(Refusal::NotReady));
    sale.pass_secs(701);
    assert_eq!(sale.sweep().await.gates_ready, 1);
    let starts_at = activity.rules.starts_at;
    assert_eq!(sale.buy("u1", 1, "k").await, refused(Refusal::NotStarted { starts_at }));
    sale.assert_sound().await;
}

/// A pause has listed the offers and is about to write; meanwhile one more is put up. The pause must not miss it.
#[tokio::test]
async fn a_pause_misses_no_offer() {
    let mut sale = TestSale::open(10, 1).await;
    sale.offer.sku_id = sku_id("s11");
    done(sale.put_sku(10).await);
    sale.weather.calls(TRANSACTION);
    sale.weather.next(TRANSACTION, [Fault::Late]);
    let put = async {
        while sale.weather.calls(TRANSACTION) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        done(sale.put_offer(&spec(10, 1)).await)
    };
    let (paused, put) = tokio::join!(sale.command(Command::Pause), put);
    assert_eq!(put.state, SaleState::Live);
    assert_eq!(done(paused).state, SaleState::Paused);
    let offers = sale.stores.offers.offers_of(sale.activity_id()).await.unwrap();
    assert_eq!(offers.iter().map(|offer| offer.state).collect::<Vec<_>>(), [SaleState::Paused; 2]);
}

// P42: the process dies between the two writes. The gate is cut off, so the second one cannot happen.

#[tokio::test]
async fn p42_a_raise_that_the_gate_was_not_told() {
    let sale = TestSale::open(2, 1).await;
    sale.pass_secs(1);
    let edit = lifecycle::put_offer(&sale.cut_from_gate(), &admin(), &sale.offer, &spec(5, 1)).await.unwrap();
    assert_eq!(done(edit).total, 5);
    assert_eq!((sale.counters().await.total, sale.offer_row().await.total), (2, 5));
    assert_eq!(sale.sweep().await.gates_corrected, 1);
    assert_eq!((sale.counters().await.total, sale.available().await), (5, 5));
    assert_eq!(sale.sweep().await.gates_corrected, 0);
    sale.assert_sound().await;
}

#[tokio::test]
async fn p42_a_lower_that_only_the_gate_knows() {
    let sale = TestSale::open(10, 1).await;
    sale.bought("u1", 1, "k").await;
    sale.die_lowering(4).await;
    assert_eq!(sale.available().await, 5);
    assert_eq!(sale.sweep().await.gates_corrected, 1);
    assert_eq!((sale.counters().await.total, sale.available().await), (10, 9));
    sale.deliver().await;
    sale.assert_sound().await;
}

/// Whoever lowers an offer tells the gate first. A sync in between must not take that for a mistake, or the units would be
/// sold that the row is about to lose.
#[tokio::test]
async fn a_sync_between_the_two_writes_of_a_lower_gives_nothing_back() {
    let sale = TestSale::open(10, 1).await;
    let version = sale.offer_row().await.version;
    sale.stores.gate.lower(&sale.offer, 4, version + 1).await.unwrap();
    for _ in 0..2 {
        sale.command(Command::Resume).await;
        sale.sweep().await;
        assert_eq!((sale.counters().await.total, sale.available().await), (6, 6));
    }
    // Somebody else's change of the row comes first: then the lowerer's own is refused, and its units are back already.
    done(sale.put_offer(&OfferSpec { title: "Other".to_owned(), ..spec(10, 1) }).await);
    assert_eq!((sale.counters().await.total, sale.available().await), (10, 10));
    sale.stores.gate.unlower(&sale.offer, version + 1).await.unwrap();
    assert_eq!((sale.counters().await.total, sale.available().await), (10, 10));

    // And one that is refused for another reason puts them back itself, once.
    let version = sale.offer_row().await.version;
    sale.stores.gate.lower(&sale.offer, 3, version + 1).await.unwrap();
    for _ in 0..2 {
        sale.stores.gate.unlower(&sale.offer, version + 1).await.unwrap();
        assert_eq!((sale.counters().await.total, sale.available().await), (10, 10));
    }
    sale.assert_sound().await;
}

#[tokio::test]
async fn p42_a_pause_and_an_end_that_the_gate_was_not_told() {
    let sale = TestSale::open(10, 1).await;
    for (command, expected) in
        [(Command::Pause, SaleState::Paused), (Command::Resume, SaleState::Live), (Command::End, SaleState::Closed)]
    {
        sale.pass_secs(1);
        // Nobody can buy who cannot reach the gate either; the row has it.
        done(lifecycle::command(&sale.cut_from_gate(), &admin(), sale.activity_id(), command).await.unwrap());
        assert_eq!(sale.offer_row().await.state, expected);
        assert_eq!(sale.sweep().await.gates_corrected, 1);
        let answer = sale.buy("u1", 1, &format!("{command:?}")).await;
        match expected {
            SaleState::Paused => assert_eq!(answer, refused(Refusal::Paused)),
            SaleState::Live => assert!(matches!(answer, Bought::Accepted { .. })),
            SaleState::Closed | SaleState::Settled => {
                let ends_at = sale.offer_row().await.rules.ends_at;
                assert_eq!(answer, refused(Refusal::Ended { ends_at }));
            }
        }
    }
    sale.deliver().await;
    assert_eq!(sale.rows().await.iter().map(|row| row.status).collect::<Vec<_>>(), [OrderStatus::Unpaid]);
    sale.assert_sound().await;
}

/// One product is taken off the shelf in the middle of the sale, and put back.
#[tokio::test]
async fn off_the_shelf_and_back() {
    let sale = TestSale::open(10, 3).await;
    let order_no = sale.bought("u1", 1, "k1").await;
    done(sale.put_offer(&OfferSpec { on_sale: Some(false), ..spec(10, 3) }).await);
    assert_eq!(sale.buy("u2", 1, "k1").await, refused(Refusal::Paused));
    // Whoever was let in gets the goods, and the activity's own pause is another thing.
    sale.deliver().await;
    assert_eq!(sale.status(&order_no).await.0, OrderStatus::Unpaid);
    done(sale.command(Command::Pause).await);
    done(sale.command(Command::Resume).await);
    assert_eq!(sale.buy("u2", 1, "k1").await, refused(Refusal::Paused));
    // Another edit, which says nothing of the shelf, leaves it there.
    done(sale.put_offer(&spec(11, 3)).await);
    assert_eq!(sale.buy("u2", 1, "k1").await, refused(Refusal::Paused));
    done(sale.put_offer(&OfferSpec { on_sale: Some(true), ..spec(10, 3) }).await);
    sale.bought("u2", 1, "k1").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// The row says it; that the list of offers cannot be read at that moment only means that the gate is told later.
#[tokio::test]
async fn a_pause_that_stands_is_done_though_nobody_can_be_told() {
    let sale = TestSale::open(10, 1).await;
    // The pause lists the offers to write them, and once more to tell their gates.
    sale.weather.next("Query", [Fault::Late]);
    sale.weather.next("Query", [Fault::Throttled; 8]);
    assert_eq!(done(sale.command(Command::Pause).await).state, SaleState::Paused);
    sale.weather.clear();
    assert_eq!(sale.offer_row().await.state, SaleState::Paused);
    assert_eq!(sale.sweep().await.gates_corrected, 1);
    assert_eq!(sale.buy("u1", 1, "k").await, refused(Refusal::Paused));
}
