//! What was left lying is picked up.

use std::collections::{BTreeSet, HashSet};

use sale::admission::Refusal;
use sale::follow::Told;
use sale::order::{EndReason, OrderStatus};
use sale::rebuild::WAIT_SECS;
use sale::store::orders::OUTBOX_DELAY_SECS;
use sale::sweep::{ABANDON_SECS, MAX_ATTEMPTS};

use suite::dynamo::OFFERS;

use crate::house::{TestSale, item_key, refused, unpaid};

/// A message that never arrives is sent again, less and less often, and at last the order is given up.
#[tokio::test]
async fn an_order_is_sent_again_until_it_is_given_up() {
    const STEP_SECS: i64 = 30;
    let sale = TestSale::open(1, 1).await;
    let order_no = sale.bought("u1", 1, "k").await;
    sale.orders_queue.take();
    let mut sent_at = Vec::new();
    let given_up_at = loop {
        sale.pass_secs(STEP_SECS);
        let age = sale.now().secs() - sale.row(&order_no).await.created_at.secs();
        let age = age - age % STEP_SECS;
        assert!(age < 2 * 3_600, "sent at {sent_at:?}");
        let swept = sale.sweep().await;
        assert_eq!(swept.resent, sale.orders_queue.take().len());
        if swept.resent == 1 {
            sent_at.push(age);
        }
        if let [ended] = &swept.ended[..] {
            assert_eq!((&ended.order_no, ended.reason), (&order_no, Some(EndReason::GaveUp)));
            break age;
        }
    };
    let pauses: Vec<i64> =
        sent_at.windows(2).map(|two| two[1] - two[0]).chain([given_up_at - sent_at[sent_at.len() - 1]]).collect();
    assert_eq!(sent_at[0], OUTBOX_DELAY_SECS);
    assert_eq!(sent_at.len(), MAX_ATTEMPTS as usize);
    assert_eq!(pauses, [60, 120, 240, 480, 600, 600, 600, 600]);
    assert_eq!(sale.status(&order_no).await, (OrderStatus::Failed, Some(EndReason::GaveUp)));
    sale.assert_sound().await;
    sale.bought("u2", 1, "k").await;
}

/// One message of a batch is refused by SQS: the others are not sent twice for it.
#[tokio::test]
async fn what_sqs_refuses_is_sent_with_the_next_sweep() {
    let sale = TestSale::open(20, 1).await;
    for user in 0..12 {
        sale.bought(&format!("u{user}"), 1, "k").await;
    }
    let lost: BTreeSet<_> = sale.orders_queue.take().into_iter().map(|message| message.order_no).collect();
    sale.pass_secs(OUTBOX_DELAY_SECS + 1);
    sale.orders_queue.refuse(1);
    assert_eq!(sale.sweep().await.resent, 11);
    assert_eq!(sale.sweep().await.resent, 1);
    let sent: Vec<_> = sale.orders_queue.take().into_iter().map(|message| message.order_no).collect();
    assert_eq!(sent.len(), 12);
    assert_eq!(sent.into_iter().collect::<BTreeSet<_>>(), lost);
}

/// Without the queue the sweep goes on with the rest, says that a step failed, and gives nobody up.
#[tokio::test]
async fn a_sweep_without_the_queue() {
    let sale = TestSale::open(10, 1).await;
    let waiting = sale.bought("u1", 1, "k").await;
    let orphan = sale.admitted_and_dead("u2", 1, "k").await;
    sale.orders_queue.take();
    sale.pass_secs(ABANDON_SECS + 2);
    let mut stores = sale.stores.clone();
    stores.queue = suite::queue::unreachable();
    let (swept, _) = sale.sweep_telling(&stores, Told::Stored).await;
    assert_eq!((swept.failures, swept.resent), (1, 0));
    assert_eq!(sale.status(&orphan).await, (OrderStatus::Failed, Some(EndReason::Abandoned)));
    assert_eq!(sale.row(&waiting).await.attempts, 0);
    assert_eq!(sale.sweep().await.resent, 1);
    assert!(unpaid(&sale.deliver().await[&waiting]));
    sale.assert_sound().await;
}

/// A row of a later version, say.
#[tokio::test]
async fn an_activity_that_cannot_be_read_holds_up_no_other_one() {
    let sale = TestSale::open(10, 1).await;
    sale.damage(OFFERS, item_key("ACTIVITY", "a0"), "name").await;
    assert_eq!(sale.sweep().await.gates_ready, 1);
}

/// A consumer that died after its transaction has told nobody; neither gate nor row depends on it.
#[tokio::test]
async fn the_gate_follows_rows_that_nobody_told_it_of() {
    let sale = TestSale::open(2, 1).await;
    let made = sale.bought("u1", 1, "k").await;
    let dead = sale.bought("u2", 1, "k").await;
    let messages = sale.orders_queue.take();
    sale.stores.orders.fail(&dead, EndReason::GaveUp, sale.now()).await.unwrap();
    assert!(unpaid(&sale.commit(messages).await[&made]));
    assert_eq!(sale.available().await, 0);

    // Too young to judge: its consumer may be about to.
    assert_eq!(sale.sweep().await.followed, 0);
    sale.pass_secs(20);
    assert_eq!(sale.sweep().await.followed, 2);
    assert_eq!((sale.available().await, sale.units("u1").await, sale.units("u2").await), (1, 1, 0));
    sale.assert_sound().await;
    assert_eq!(sale.sweep().await.followed, 0);
}

/// The buyer is told before the gate is: a hold that is pending there reminds the sweep of both.
#[tokio::test]
async fn a_buyer_who_cannot_be_told_now_is_told_by_the_next_sweep() {
    let sale = TestSale::open(3, 1).await;
    let made = sale.bought("u1", 1, "k").await;
    let abandoned = sale.admitted_and_dead("u2", 1, "k").await;
    let worn_out = sale.bought("u3", 1, "k").await;
    let messages = sale.orders_queue.take().into_iter().filter(|message| message.order_no == made);
    sale.commit(messages.collect()).await;
    sale.stores.orders.postpone(&worn_out, MAX_ATTEMPTS, sale.now()).await.unwrap();
    sale.pass_secs(ABANDON_SECS + 2);

    let expected = HashSet::from([
        (&made, OrderStatus::Unpaid, None),
        (&abandoned, OrderStatus::Failed, Some(EndReason::Abandoned)),
        (&worn_out, OrderStatus::Failed, Some(EndReason::GaveUp)),
    ]);
    for told in [Told::NotStored, Told::NotStored, Told::Stored] {
        assert_eq!(sale.available().await, 0);
        let (swept, words) = sale.sweep_telling(&sale.stores, told).await;
        assert_eq!(swept.failures, usize::from(told == Told::NotStored));
        let words = words.iter().map(|word| (&word.order_no, word.status, word.reason));
        assert_eq!(words.collect::<HashSet<_>>(), expected);
    }
    assert_eq!(sale.available().await, 2);
    let (_, words) = sale.sweep_telling(&sale.stores, Told::Stored).await;
    assert_eq!(words, []);
    sale.assert_sound().await;
}

/// More pending holds than one page, most of them undecided.
#[tokio::test]
async fn undecided_holds_do_not_hide_the_others() {
    const BUYERS: usize = 520;
    let sale = TestSale::open(1_000, 1).await;
    for user in 0..BUYERS {
        sale.bought(&format!("u{user}"), 1, "k").await;
    }
    sale.orders_queue.take();
    // The youngest is met on the second page, behind those that stay pending.
    let orphan = sale.admitted_and_dead("late", 1, "k").await;
    sale.pass_secs(ABANDON_SECS + 5);
    sale.sweep().await;
    assert_eq!(sale.status(&orphan).await, (OrderStatus::Failed, Some(EndReason::Abandoned)));
    assert_eq!(sale.available().await, 1_000 - BUYERS as i64);
    sale.deliver().await;
    sale.assert_sound().await;
}

#[tokio::test]
async fn p35_two_sweeps_at_once_do_what_one_does() {
    let sale = TestSale::open(5, 1).await;
    let orphan = sale.admitted_and_dead("u1", 1, "k").await;
    let unsent = sale.bought("u2", 1, "k").await;
    let made = sale.bought("u3", 1, "k").await;
    let messages = sale.orders_queue.take();
    sale.commit(messages.into_iter().filter(|message| message.order_no == made).collect()).await;
    sale.pass_secs(ABANDON_SECS + 2);

    let (first, second) = tokio::join!(sale.sweep(), sale.sweep());
    assert_eq!(first.ended.len() + second.ended.len(), 1, "{first:?} {second:?}");
    assert_eq!(sale.status(&orphan).await, (OrderStatus::Failed, Some(EndReason::Abandoned)));
    assert_eq!(sale.available().await, 3);
    // Perhaps sent twice, made once.
    assert!(unpaid(&sale.deliver().await[&unsent]));
    assert_eq!(sale.offer_row().await.committed(), 2);
    sale.assert_sound().await;
}

#[tokio::test]
async fn p35_two_sweeps_at_once_make_a_lost_gate_once() {
    let sale = TestSale::open(5, 1).await;
    let made = sale.bought("u1", 1, "k").await;
    assert!(unpaid(&sale.deliver().await[&made]));
    sale.wipe_gate().await;
    tokio::join!(sale.sweep(), sale.sweep());
    assert_eq!(sale.buy("u1", 1, "k2").await, refused(Refusal::NotReady));
    sale.pass_secs(WAIT_SECS + 1);
    tokio::join!(sale.sweep(), sale.sweep());
    sale.sweep().await;
    assert_eq!(sale.available().await, 4);
    assert_eq!(sale.buy("u1", 1, "k2").await, refused(Refusal::AlreadyBought));
    sale.assert_sound().await;
}

/// S12: the seed holds a lock for ten seconds and gives it back without looking whose it is. Work that takes longer ends the
/// next holder's lock.
#[tokio::test]
async fn s12_who_comes_late_ends_nobody_elses_lease() {
    let sale = TestSale::open(1, 1).await;
    let mut redis = sale.redis.operator().await;
    let mut lock = async |holder: &str| -> bool {
        let mut set = redis::cmd("SET");
        set.arg("lock").arg(holder).arg("NX").arg("PX").arg(40);
        set.query_async::<Option<String>>(&mut redis).await.unwrap().is_some()
    };
    assert!(lock("first").await);
    tokio::time::sleep(std::time::Duration::from_millis(60)).await;
    assert!(lock("second").await);
    sale.tamper(&["DEL", "lock"]).await;
    assert!(lock("third").await, "the seed: two at once");

    let (offers, now) = (&sale.stores.offers, sale.now());
    assert!(offers.lease("work", "first", now.plus_secs(10), now).await.unwrap());
    assert!(!offers.lease("work", "second", now.plus_secs(20), now.plus_secs(9)).await.unwrap());
    let later = now.plus_secs(12);
    assert!(offers.lease("work", "second", later.plus_secs(10), later).await.unwrap());
    offers.end_lease("work", "first").await.unwrap();
    assert!(!offers.lease("work", "third", later.plus_secs(10), later).await.unwrap());
    offers.end_lease("work", "second").await.unwrap();
    assert!(offers.lease("work", "third", later.plus_secs(10), later).await.unwrap());
}
