//! A limit for each calendar day: the gate's clock says which day, once, and row, claim and hold repeat it.

use aws_sdk_dynamodb::types::AttributeValue;
use kernel::time::Clock;
use sale::admission::Refusal;
use sale::lifecycle::{self, Edit, EditRefusal, GateSync, OfferSpec};
use sale::offer::{Allowance, LimitPeriod};
use suite::dynamo::OFFERS;

use crate::house::{TestSale, done, refused, spec, user_id};

/// The day that it is for the gate, where clocks are `offset` ahead of UTC.
fn today(offset_secs: i32) -> i64 {
    Clock::System.now().plus_secs(i64::from(offset_secs)).secs().div_euclid(86_400)
}

/// Where it is noon now, so that no day begins while the test runs; in seconds east of UTC.
fn noon() -> i32 {
    12 * 3_600 - i32::try_from(Clock::System.now().secs().rem_euclid(86_400)).unwrap()
}

async fn daily(limit: u32, offset_secs: i32) -> TestSale {
    let sale = TestSale::closed().await;
    done(sale.put_activity_with(-3_600, 24 * 3_600, |rules| rules.utc_offset_secs = offset_secs).await);
    done(sale.put_offer(&OfferSpec { limit_period: LimitPeriod::Day, ..spec(10, limit) }).await);
    done(sale.preheat().await);
    sale
}

/// Days begin elsewhere, by force: for the gate, tomorrow has come.
async fn tomorrow(sale: &TestSale, offset_secs: i32) {
    let update = sale.dynamo.client.update_item().table_name(OFFERS).set_key(Some(sale.offer_key()));
    let update = update.update_expression("SET utcOffsetSecs = :offset, #version = #version + :one");
    let number = |number: i32| AttributeValue::N(number.to_string());
    let update =
        update.expression_attribute_names("#version", "version").expression_attribute_values(":one", number(1));
    update.expression_attribute_values(":offset", number(offset_secs + 86_400)).send().await.unwrap();
    assert_eq!(lifecycle::sync_gate(&sale.stores, &sale.offer).await.unwrap(), GateSync::Corrected);
}

#[tokio::test]
async fn a_new_day_is_a_new_limit() {
    let offset = noon();
    let sale = daily(2, offset).await;
    let first = sale.unpaid("u1", 2, "k1").await;
    assert_eq!(sale.buy("u1", 1, "k2").await, refused(Refusal::LimitExceeded { remaining: 0 }));
    assert_eq!(sale.row(&first).await.terms.limit_day, Some(today(offset)));
    sale.assert_sound().await;

    tomorrow(&sale, offset).await;
    let second = sale.unpaid("u1", 2, "k2").await;
    assert_eq!(sale.row(&second).await.terms.limit_day, Some(today(offset) + 1));
    assert_eq!(sale.buy("u1", 1, "k3").await, refused(Refusal::LimitExceeded { remaining: 0 }));
    sale.assert_sound().await;

    // A retry of yesterday's request is yesterday's order.
    assert!(matches!(
        sale.buy("u1", 2, "k1").await,
        sale::buy::Bought::Accepted { order_no, replayed: true, .. } if order_no == first
    ));
    assert_eq!(sale.buy("u1", 1, "k1").await, refused(Refusal::RequestIdReused));

    // What is given back of yesterday makes no room today.
    sale.cancel(&first).await;
    sale.attend(&[first]).await;
    assert_eq!(sale.available().await, 8);
    assert_eq!(sale.buy("u1", 1, "k4").await, refused(Refusal::LimitExceeded { remaining: 0 }));
    sale.assert_sound().await;
}

#[tokio::test]
async fn a_gate_made_anew_counts_by_day_too() {
    let offset = noon();
    let sale = daily(2, offset).await;
    let first = sale.unpaid("u1", 2, "k1").await;
    tomorrow(&sale, offset).await;
    sale.unpaid("u1", 1, "k2").await;
    sale.wipe_gate().await;
    sale.rebuilt().await;
    let snapshot = sale.stores.gate.snapshot(&sale.offer).await.unwrap().unwrap();
    let of = |day: i64| Allowance { user_id: user_id("u1"), limit_day: Some(day) };
    assert_eq!(snapshot.units, [(of(today(offset)), 2), (of(today(offset) + 1), 1)].into());
    sale.lose_hold_of_day("u1", today(offset), &first, 2).await;
    sale.pass_secs(31);
    let offer = sale.offer_row().await;
    sale::reconcile::whole(&sale.stores, &offer, sale::reconcile::Repair::Do).await.unwrap();
    sale.assert_sound().await;
}

/// Somebody in a cool-down stays in it over midnight.
#[tokio::test]
async fn a_cool_down_outlives_the_day() {
    let offset = noon();
    let sale = daily(2, offset).await;
    sale.unpaid("u1", 1, "k1").await;
    let until = Clock::System.now().plus_secs(600);
    sale.stores.gate.cool_down(&sale.offer, &user_id("u1"), until).await.unwrap();
    assert!(matches!(sale.refusal("u1", "k2").await, Refusal::Blocked(_)));
    tomorrow(&sale, offset).await;
    assert!(matches!(sale.refusal("u1", "k2").await, Refusal::Blocked(_)));
    sale.bought("u2", 1, "k1").await;
    sale.deliver().await;
    sale.assert_sound().await;
}

/// An edit that says nothing of the time zone would have days begin elsewhere, and one of them twice.
#[tokio::test]
async fn where_days_begin_is_fixed_once_somebody_may_have_bought() {
    const SHANGHAI: i32 = 8 * 3_600;
    let sale = TestSale::closed().await;
    let put =
        async |offset: i32| sale.put_activity_with(-3_600, 24 * 3_600, |rules| rules.utc_offset_secs = offset).await;
    done(put(0).await);
    done(sale.put_offer(&OfferSpec { limit_period: LimitPeriod::Day, ..spec(10, 1) }).await);
    done(put(SHANGHAI).await);
    done(sale.preheat().await);
    assert_eq!(put(0).await, Edit::Refused(EditRefusal::DaysAreFixed));
    done(put(SHANGHAI).await);
    assert_eq!(sale.offer_row().await.rules.utc_offset_secs, SHANGHAI);
}

#[tokio::test]
async fn where_no_limit_is_of_a_day_days_may_begin_anywhere() {
    let sale = TestSale::open(10, 1).await;
    done(sale.put_activity_with(-3_600, 24 * 3_600, |rules| rules.utc_offset_secs = 3_600).await);
}
