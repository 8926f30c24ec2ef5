//! Who audits the audit: every promise is broken once, by hand, and the audit must name it and the orders; and it must keep
//! quiet about a sale that is merely busy.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use kernel::ids::OrderNo;
use sale::admission::Fingerprint;
use sale::audit::{self, BOUND_SECS, Invariant, Report, Verdict};
use sale::gate::NewHold;
use sale::order::EndReason;
use suite::dynamo::{OFFERS, ORDERS, PAYMENTS};

use crate::house::{PAY_WINDOW_SECS, TestSale, order_key, payment_key, quantity};

/// A quiet sale: of ten units, `first` (two) and `second` of u1 and `other` of u2 are UNPAID; `dead` is FAILED.
struct Quiet {
    sale: TestSale,
    first: OrderNo,
    second: OrderNo,
    other: OrderNo,
    dead: OrderNo,
}

async fn quiet() -> Quiet {
    let sale = TestSale::open(10, 3).await;
    let first = sale.bought("u1", 2, "k1").await;
    let second = sale.bought("u1", 1, "k2").await;
    let other = sale.bought("u2", 1, "k1").await;
    let dead = sale.bought("u3", 1, "k1").await;
    sale.stores.orders.fail(&dead, EndReason::GaveUp, sale.now()).await.unwrap();
    sale.deliver().await;
    sale.assert_sound().await;
    Quiet { sale, first, second, other, dead }
}

/// What is broken.
#[derive(Debug, Clone, Copy)]
enum Break {
    AddUnitInRedis,
    DeleteRow,
    RaiseRemaining,
    Oversell,
    ChangeClaim,
    ExceedLimit,
    BendTrail,
    BeginPaid,
    EndElsewhere,
    ChangeAmount,
    RepeatRequest,
    HoldWithoutRow,
    OldPreCreated,
    PendingForever,
    ReleaseLive,
    SellUnpaid,
    HoldDead,
    LoseHold,
    HoldAnother,
    ChangeUnits,
    ChangeGateTotal,
    LoseGate,
    PlantDeadLetter,
    LeaveMessage,
    DeletePayment,
    ChangePaymentAmount,
    MatchAnotherOrder,
    SwapTransaction,
    TellNobody,
    NeverTimeOut,
}

const ALL: [Break; 30] = [
    Break::AddUnitInRedis,
    Break::DeleteRow,
    Break::RaiseRemaining,
    Break::Oversell,
    Break::ChangeClaim,
    Break::ExceedLimit,
    Break::BendTrail,
    Break::BeginPaid,
    Break::EndElsewhere,
    Break::ChangeAmount,
    Break::RepeatRequest,
    Break::HoldWithoutRow,
    Break::OldPreCreated,
    Break::PendingForever,
    Break::ReleaseLive,
    Break::SellUnpaid,
    Break::HoldDead,
    Break::LoseHold,
    Break::HoldAnother,
    Break::ChangeUnits,
    Break::ChangeGateTotal,
    Break::LoseGate,
    Break::PlantDeadLetter,
    Break::LeaveMessage,
    Break::DeletePayment,
    Break::ChangePaymentAmount,
    Break::MatchAnotherOrder,
    Break::SwapTransaction,
    Break::TellNobody,
    Break::NeverTimeOut,
];

/// What the audit has to say: each invariant that does not hold now, with the orders it must name.
type Expected = Vec<(Invariant, Vec<OrderNo>)>;

#[tokio::test]
async fn each_broken_promise_is_named() {
    let wrong: Vec<String> = join_all(ALL.map(|what| Box::pin(check(what)))).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn check(what: Break) -> Option<String> {
    let quiet = quiet().await;
    let mut expected = Box::pin(break_it(&quiet, what)).await;
    let report = quiet.sale.audit(0).await;
    let mut named = named(&report);
    named.sort();
    expected.iter_mut().for_each(|(_, orders)| orders.sort());
    expected.sort();
    let right = report.verdict == Verdict::Fail && named == expected;
    (!right).then(|| format!("{what:?}: {:?} {:#?}\nexpected {expected:?}", report.verdict, report.violations))
}

fn named(report: &Report) -> Expected {
    report.violations.iter().map(|violation| (violation.invariant, violation.order_nos.clone())).collect()
}

async fn break_it(quiet: &Quiet, what: Break) -> Expected {
    let Quiet { sale, first, second, other, dead } = quiet;
    let book = sale.book();
    match what {
        Break::AddUnitInRedis => {
            sale.tamper(&["HINCRBY", &book, "avail", "1"]).await;
            vec![(Invariant::I2, vec![])]
        }
        Break::DeleteRow => {
            let db = &sale.dynamo.client;
            db.delete_item().table_name(ORDERS).set_key(Some(order_key(first))).send().await.unwrap();
            vec![
                (Invariant::I1, vec![first.clone()]),
                (Invariant::I3, vec![second.clone()]),
                (Invariant::I5, vec![first.clone()]),
            ]
        }
        Break::RaiseRemaining => {
            change(sale, OFFERS, sale.offer_key(), "remaining", number(7)).await;
            vec![(Invariant::I1, vec![])]
        }
        Break::Oversell => {
            change(sale, OFFERS, sale.offer_key(), "total", number(3)).await;
            change(sale, OFFERS, sale.offer_key(), "remaining", number(-1)).await;
            let all = vec![first.clone(), second.clone(), other.clone()];
            // And the gate sells what the offer does not have.
            vec![(Invariant::I1, all), (Invariant::I2, vec![])]
        }
        Break::ChangeClaim => {
            change(sale, OFFERS, sale.claim_key("u2"), "units", number(2)).await;
            vec![(Invariant::I3, vec![other.clone()])]
        }
        Break::ExceedLimit => {
            for order_no in [first, second] {
                change(sale, ORDERS, order_key(order_no), "limitPerUser", number(2)).await;
            }
            vec![(Invariant::I3, vec![first.clone(), second.clone()])]
        }
        Break::BendTrail => {
            change(sale, ORDERS, order_key(first), "trail", trail(&["PRE_CREATED", "FAILED", "UNPAID"])).await;
            vec![(Invariant::I4, vec![first.clone()])]
        }
        Break::BeginPaid => {
            change(sale, ORDERS, order_key(first), "trail", trail(&["UNPAID"])).await;
            vec![(Invariant::I4, vec![first.clone()])]
        }
        Break::EndElsewhere => {
            change(sale, ORDERS, order_key(first), "trail", trail(&["PRE_CREATED"])).await;
            vec![(Invariant::I4, vec![first.clone()])]
        }
        Break::ChangeAmount => {
            change(sale, ORDERS, order_key(first), "amount", number(1)).await;
            vec![(Invariant::I4, vec![first.clone()])]
        }
        Break::RepeatRequest => {
            change(sale, ORDERS, order_key(second), "requestId", AttributeValue::S("k1".to_owned())).await;
            vec![(Invariant::I8, vec![first.clone(), second.clone()])]
        }
        Break::HoldWithoutRow => {
            let hold = NewHold::of(&sale.new_row("u4", 1, "k1").await);
            sale.stores.gate.take(&sale.offer, std::slice::from_ref(&hold)).await.unwrap();
            vec![(Invariant::I5, vec![hold.order_no])]
        }
        Break::OldPreCreated => {
            let order_no = sale.bought("u4", 1, "k1").await;
            sale.orders_queue.take();
            // The row is undecided, and so is its hold.
            vec![(Invariant::I5, vec![order_no.clone()]), (Invariant::I5, vec![order_no])]
        }
        Break::PendingForever => {
            sale.tamper(&["ZADD", &sale.pending(), "1500000000", first.as_str()]).await;
            vec![(Invariant::I5, vec![first.clone()])]
        }
        Break::ReleaseLive => {
            sale.stores.gate.release(&sale.offer, std::slice::from_ref(first)).await.unwrap();
            vec![(Invariant::I2, vec![first.clone()])]
        }
        Break::SellUnpaid => {
            sale.stores.gate.sell(&sale.offer, std::slice::from_ref(first)).await.unwrap();
            vec![(Invariant::I2, vec![first.clone()])]
        }
        Break::HoldDead => {
            sale.tamper(&["HDEL", &book, dead.as_str()]).await;
            sale.stores.gate.take(&sale.offer, &[NewHold::of(&sale.row(dead).await)]).await.unwrap();
            vec![(Invariant::I2, vec![dead.clone()])]
        }
        Break::LoseHold => {
            sale.tamper(&["HDEL", &book, other.as_str(), "u:u2"]).await;
            sale.tamper(&["HINCRBY", &book, "avail", "1"]).await;
            vec![(Invariant::I2, vec![other.clone()])]
        }
        Break::HoldAnother => {
            let mut hold = NewHold::of(&sale.row(other).await);
            hold.fingerprint = Fingerprint::of(quantity(3));
            sale.tamper(&["HDEL", &book, other.as_str(), "u:u2"]).await;
            sale.tamper(&["HINCRBY", &book, "avail", "1"]).await;
            sale.stores.gate.take(&sale.offer, &[hold]).await.unwrap();
            vec![(Invariant::I2, vec![other.clone()])]
        }
        Break::ChangeUnits => {
            sale.tamper(&["HSET", &book, "u:u1", "2"]).await;
            vec![(Invariant::I2, vec![first.clone(), second.clone()])]
        }
        Break::ChangeGateTotal => {
            sale.tamper(&["HINCRBY", &book, "total", "-7"]).await;
            sale.tamper(&["HINCRBY", &book, "avail", "-7"]).await;
            // It sells another number than the offer has, and less than nothing.
            vec![(Invariant::I2, vec![]), (Invariant::I2, vec![])]
        }
        Break::LoseGate => {
            sale.wipe_gate().await;
            vec![(Invariant::I2, vec![])]
        }
        Break::PlantDeadLetter => {
            sale.dead_letters.plant("{}");
            vec![(Invariant::I9, vec![])]
        }
        Break::LeaveMessage => {
            sale.orders_queue.plant("{}");
            vec![(Invariant::I9, vec![])]
        }
        Break::DeletePayment => {
            paid(sale, other).await;
            let db = &sale.dynamo.client;
            db.delete_item().table_name(PAYMENTS).set_key(Some(payment_key("t1"))).send().await.unwrap();
            vec![(Invariant::I6, vec![other.clone()])]
        }
        Break::ChangePaymentAmount => {
            paid(sale, other).await;
            change(sale, PAYMENTS, payment_key("t1"), "amount", number(1)).await;
            vec![(Invariant::I6, vec![other.clone()])]
        }
        Break::MatchAnotherOrder => {
            paid(sale, other).await;
            change(sale, PAYMENTS, payment_key("t1"), "orderNo", AttributeValue::S(dead.to_string())).await;
            // One order has no payment, and one payment an order that is not PAID.
            vec![(Invariant::I6, vec![other.clone()]), (Invariant::I6, vec![dead.clone()])]
        }
        Break::SwapTransaction => {
            paid(sale, other).await;
            change(sale, ORDERS, order_key(other), "transactionId", AttributeValue::S("t2".to_owned())).await;
            vec![(Invariant::I6, vec![other.clone()]), (Invariant::I6, vec![other.clone()])]
        }
        Break::TellNobody => {
            sale.pay("t1", other, 1).await;
            // Nobody was told, the gate neither.
            vec![(Invariant::I2, vec![other.clone()]), (Invariant::I5, vec![other.clone()])]
        }
        Break::NeverTimeOut => {
            sale.pass_secs(i64::from(PAY_WINDOW_SECS));
            vec![(Invariant::I5, vec![first.clone(), second.clone(), other.clone()])]
        }
    }
}

/// A paid order in good order.
async fn paid(sale: &TestSale, order_no: &OrderNo) {
    sale.pay("t1", order_no, 1).await;
    sale.attend(std::slice::from_ref(order_no)).await;
    sale.assert_sound().await;
}

async fn change(
    sale: &TestSale,
    table: &str,
    key: HashMap<String, AttributeValue>,
    attribute: &str,
    value: AttributeValue,
) {
    let update = sale.dynamo.client.update_item().table_name(table).set_key(Some(key)).update_expression("SET #a = :v");
    let update = update.expression_attribute_names("#a", attribute).expression_attribute_values(":v", value);
    update.send().await.unwrap();
}

fn number(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn trail(statuses: &[&str]) -> AttributeValue {
    AttributeValue::L(statuses.iter().map(|status| AttributeValue::S((*status).to_owned())).collect())
}

/// What is in motion gets its time; after it, it counts.
#[tokio::test]
async fn the_bound_is_the_time_to_come_right() {
    let quiet = quiet().await;
    let sale = &quiet.sale;
    let waiting = sale.bought("u4", 1, "k1").await;
    let orphan = sale.admitted_and_dead("u5", 1, "k1").await;
    sale.orders_queue.take();
    assert_eq!(sale.audit(BOUND_SECS).await.verdict, Verdict::Pass);
    sale.pass_secs(i64::from(BOUND_SECS) + 1);
    let report = sale.audit(BOUND_SECS).await;
    assert_eq!(report.verdict, Verdict::Fail);
    assert!(report.violations.iter().all(|violation| violation.invariant == Invariant::I5), "{report:?}");
    for order_no in [waiting, orphan] {
        assert!(report.violations.iter().any(|violation| violation.order_nos.contains(&order_no)), "{report:?}");
    }
}

#[tokio::test]
async fn counts_are_what_is_there() {
    let quiet = quiet().await;
    let counts = quiet.sale.audit(0).await.counts;
    assert_eq!((counts.offers, counts.total, counts.committed), (1, 10, 4));
    assert_eq!((counts.available, counts.held, counts.sold, counts.pending), (6, 4, 0, 0));
    assert_eq!((counts.orders["UNPAID"], counts.orders["FAILED"], counts.orders["PAID"]), (3, 1, 0));
    assert_eq!((counts.queued, counts.dead_letters, counts.moving), (0, 0, 0));
}

#[tokio::test]
async fn an_activity_that_is_not_there_is_not_audited() {
    let quiet = quiet().await;
    let none = audit::audit(&quiet.sale.stores, &quiet.sale.dead_letters(), &"a2".parse().unwrap(), 0).await.unwrap();
    assert_eq!(none, None);
}

/// Buyers buy, the consumer commits, some orders die and come back, and the audit looks on all the time.
#[tokio::test]
async fn a_busy_sale_is_not_a_broken_one() {
    const ROUNDS: usize = 240;
    let sale = TestSale::open(90, 3).await;
    let busy = async {
        for round in 0..ROUNDS {
            let user = format!("u{round}");
            tokio::join!(sale.buy(&user, 1, "k1"), sale.buy(&user, 2, "k2"));
            match round % 6 {
                0 => {
                    sale.let_in_by_force(&user, 3, "k3").await;
                }
                2 => {
                    sale.commit(sale.orders_queue.take()).await;
                }
                3 => {
                    sale.stores.orders.fail(&sale.order_no(&user, "k1"), EndReason::GaveUp, sale.now()).await.unwrap();
                }
                4 => {
                    sale.deliver().await;
                }
                5 => {
                    sale.sweep().await;
                }
                _ => {}
            }
        }
    };
    let done = std::cell::Cell::new(false);
    let watched = async {
        let mut audits = 0;
        while !done.get() {
            let report = audit::audit(&sale.stores, &sale.dead_letters(), sale.activity_id(), BOUND_SECS)
                .await
                .unwrap()
                .unwrap();
            assert_eq!((report.verdict, report.violations), (Verdict::Pass, Vec::new()));
            audits += 1;
        }
        audits
    };
    let (_, audits) = tokio::join!(
        async {
            busy.await;
            done.set(true)
        },
        watched
    );
    // Each looks up to five times while the sale moves.
    assert!(audits >= 2, "{audits} audits");

    // And once it is quiet, nothing is wrong either.
    for _ in 0..3 {
        sale.pass_secs(60);
        sale.sweep().await;
        sale.deliver().await;
    }
    assert_eq!(sale.offer_row().await.remaining, 0);
    sale.assert_sound().await;
}

/// More is sold with every look, so no two of them see the same numbers. An oversell is one all the same.
#[tokio::test]
async fn a_busy_sale_that_is_oversold_does_not_pass() {
    let sale = TestSale::open(1_000, 1).await;
    for user in 0..5 {
        sale.unpaid(&format!("early{user}"), 1, "k").await;
    }
    // Five are sold of three, and by the count more are left.
    change(&sale, OFFERS, sale.offer_key(), "total", number(3)).await;
    let done = std::cell::Cell::new(false);
    let busy = async {
        for user in 0..900 {
            if done.get() {
                return user;
            }
            sale.unpaid(&format!("u{user}"), 1, "k").await;
        }
        900
    };
    let audited = async {
        let report =
            audit::audit(&sale.stores, &sale.dead_letters(), sale.activity_id(), BOUND_SECS).await.unwrap().unwrap();
        done.set(true);
        report
    };
    let (sold, report) = tokio::join!(busy, audited);
    assert!(sold > 5, "{sold} sold meanwhile");
    assert_eq!(report.verdict, Verdict::Fail, "{report:?}");
    let oversold = report.violations.iter().find(|violation| violation.detail.contains("oversold"));
    assert!(oversold.is_some_and(|violation| violation.invariant == Invariant::I1), "{report:?}");
}

/// Orders that are wrong in one look and right in the next do not make up one that stays.
#[tokio::test]
async fn among_orders_in_motion_the_one_that_stands_still_is_named() {
    let sale = TestSale::open(1_000, 1).await;
    let stuck = sale.bought("stuck", 1, "k").await;
    sale.orders_queue.take();
    sale.pass_secs(i64::from(BOUND_SECS) + 1);
    let done = std::cell::Cell::new(false);
    let busy = async {
        for user in 0..300 {
            if done.get() {
                return;
            }
            // Old when it is seen, and then decided.
            let mut row = sale.new_row(&format!("u{user}"), 1, "k").await;
            row.created_at = sale.now().plus_secs(-600);
            sale.stores.orders.put(&row).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            sale.stores.orders.fail(&row.order_no, EndReason::GaveUp, sale.now()).await.unwrap();
        }
    };
    let audited = async {
        let report =
            audit::audit(&sale.stores, &sale.dead_letters(), sale.activity_id(), BOUND_SECS).await.unwrap().unwrap();
        done.set(true);
        report
    };
    let ((), report) = tokio::join!(busy, audited);
    let undecided = report.violations.iter().find(|violation| violation.detail.contains("PRE_CREATED"));
    assert_eq!(undecided.map(|violation| &violation.order_nos[..]), Some(&[stuck][..]), "{report:?}");
}
